//! Servers of SQS (moto, which keeps nothing over its end) and Temporal (the development server, with its database in a
//! file), and receivers that read them over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::hands::Hands;
use crate::python::{Program, free_port, programs};
use crate::receiver::Delivery;
use crate::world::client;

/// Pause before a receiver asks its server again.
const AGAIN: Duration = Duration::from_millis(200);
/// Time between two looks at a workflow that has a signal already, and how long more may come.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const LOOK_FOR: Duration = Duration::from_mins(1);

const ACCOUNT: &str = "123456789012";

/// An SQS server with FIFO queues, which are made anew where it comes back empty.
pub struct Sqs {
    pub port: u16,
    queues: Vec<&'static str>,
    program: Program,
}

impl Sqs {
    /// `None` where it cannot be had.
    pub async fn start(queues: &[&'static str]) -> Option<Self> {
        programs().await?;
        let port = free_port();
        let server = Self { port, queues: queues.to_vec(), program: Self::run(port).await };
        server.make_queues().await;
        Some(server)
    }

    async fn run(port: u16) -> Program {
        let path = programs().await.unwrap().join("moto_server");
        let port_text = port.to_string();
        let arguments = ["-H", "127.0.0.1", "-p", port_text.as_str()];
        let program = Program::start(&path, &arguments, &[]);
        program.serves(&format!("http://127.0.0.1:{port}")).await;
        program
    }

    async fn make_queues(&self) {
        for name in &self.queues {
            let input = json!({ "QueueName": name, "Attributes": { "FifoQueue": "true" } });
            call(&client(), self.port, "CreateQueue", input).await.unwrap();
        }
    }

    /// The URL of a queue.
    pub fn url(&self, queue: &str) -> String {
        queue_url(&format!("127.0.0.1:{}", self.port), queue)
    }

    pub async fn kill(&self) {
        self.program.kill().await;
    }

    /// Starts it again, for a moment without its queues.
    pub async fn go(&mut self, pause: Duration) {
        self.program = Self::run(self.port).await;
        sleep(pause).await;
        self.make_queues().await;
    }
}

/// Makes a request; `None` where the server is away or refuses it.
pub async fn call(http: &reqwest::Client, port: u16, action: &str, input: Value) -> Option<Value> {
    let credential = "AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
    let ask = http
        .post(format!("http://127.0.0.1:{port}"))
        .header("x-amz-target", format!("AmazonSQS.{action}"))
        .header("content-type", "application/x-amz-json-1.0")
        .header("authorization", credential)
        .body(input.to_string());
    let answer = ask.send().await.ok()?.error_for_status().ok()?;
    // Some actions answer with nothing.
    let text = answer.text().await.ok()?;
    Some(serde_json::from_str(&text).unwrap_or_default())
}

/// The URL of a queue behind an address.
pub fn queue_url(address: &str, name: &str) -> String {
    format!("http://{address}/{ACCOUNT}/{name}")
}

/// Receives the messages of a queue, each once, and deletes them; it reads as long as the case lives.
pub async fn reading_sqs(
    port: u16,
    queue: &'static str,
    mut take: impl FnMut(Delivery, Value) + Send + 'static,
) {
    let url = queue_url(&format!("127.0.0.1:{port}"), queue);
    let (http, mut known) = (client(), BTreeSet::new());
    loop {
        let input = json!({
            "QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1, "MessageAttributeNames": ["All"],
        });
        let Some(received) = call(&http, port, "ReceiveMessage", input).await else {
            sleep(AGAIN).await;
            continue;
        };
        for message in received["Messages"].as_array().into_iter().flatten() {
            let attributes = message["MessageAttributes"].clone();
            let text = |name: &str| {
                attributes[name]["StringValue"].as_str().unwrap_or_default().to_owned()
            };
            let delivery = Delivery {
                handoff: text("webhook-id"),
                attempt: text("Handoff-Attempt").parse().unwrap(),
                token: text("Handoff-Fencing-Token").parse().unwrap(),
            };
            if known.insert(delivery.clone()) {
                take(delivery, attributes);
            }
            let handle = json!({ "QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"] });
            call(&http, port, "DeleteMessage", handle).await;
        }
    }
}

/// A development server of Temporal.
pub struct Temporal {
    pub http: u16,
    grpc: u16,
    folder: tempfile::TempDir,
    program: Program,
}

impl Temporal {
    /// `None` where it cannot be had.
    pub async fn start() -> Option<Self> {
        programs().await?;
        let (folder, grpc, http) = (tempfile::tempdir().unwrap(), free_port(), free_port());
        let program = Self::run(&folder, grpc, http).await;
        Some(Self { http, grpc, folder, program })
    }

    async fn run(folder: &tempfile::TempDir, grpc: u16, http: u16) -> Program {
        let file = folder.path().join("temporal.db");
        let (grpc, port) = (grpc.to_string(), http.to_string());
        let mut arguments = vec!["server", "start-dev", "--headless", "--ip", "127.0.0.1"];
        arguments.extend([
            "--port",
            grpc.as_str(),
            "--http-port",
            port.as_str(),
            "--log-level",
            "error",
        ]);
        arguments.extend(["--db-filename", file.to_str().unwrap()]);
        let path = programs().await.unwrap().join("temporal");
        let program = Program::start(&path, &arguments, &[]);
        program.serves(&format!("http://127.0.0.1:{http}/api/v1/namespaces/default")).await;
        program
    }

    /// Its HTTP API.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// The address for workers.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.grpc)
    }

    pub async fn kill(&self) {
        self.program.kill().await;
    }

    /// Starts it again, with what it had.
    pub async fn go(&mut self) {
        self.program = Self::run(&self.folder, self.grpc, self.http).await;
    }
}

async fn get(http: &reqwest::Client, port: u16, path: &str) -> Option<Value> {
    let url = format!("http://127.0.0.1:{port}/api/v1/namespaces/default/workflows{path}");
    http.get(url).send().await.ok()?.json().await.ok()
}

/// The deliveries that a workflow was signalled with.
async fn signals(http: &reqwest::Client, port: u16, workflow: &str) -> Option<Vec<Delivery>> {
    let page = get(http, port, &format!("/{workflow}/history")).await?;
    let events = page.pointer("/history/events")?.as_array()?.iter();
    let inputs = events.filter_map(|event| {
        event.pointer("/workflowExecutionSignaledEventAttributes/input/0/headers")
    });
    let deliveries = inputs.map(|headers| {
        let text = |name: &str| headers[name].as_str().unwrap();
        Delivery {
            handoff: text("Handoff-Id").to_owned(),
            attempt: text("Handoff-Attempt").parse().unwrap(),
            token: text("Handoff-Fencing-Token").parse().unwrap(),
        }
    });
    Some(deliveries.collect())
}

/// Reads the signals of all workflows, each attempt once; it reads as long as the case lives.
pub async fn reading_temporal(port: u16, hands: Hands) {
    /// When it was seen first and looked at last, and whether it had a signal.
    struct Look(Instant, Instant, bool);
    let http = client();
    let mut known = BTreeSet::new();
    let mut looks: BTreeMap<String, Look> = BTreeMap::new();
    loop {
        sleep(AGAIN).await;
        let Some(page) = get(&http, port, "?pageSize=1000").await else { continue };
        for found in page["executions"].as_array().into_iter().flatten() {
            let Some(workflow) = found.pointer("/execution/workflowId").and_then(Value::as_str)
            else {
                continue;
            };
            let now = Instant::now();
            let look = looks.entry(workflow.to_owned()).or_insert(Look(now, now, false));
            if look.2 && (now - look.1 < LOOK_AGAIN || now - look.0 > LOOK_FOR) {
                continue;
            }
            let Some(deliveries) = signals(&http, port, workflow).await else { continue };
            look.1 = now;
            look.2 = !deliveries.is_empty();
            for delivery in deliveries {
                if known.insert(delivery.clone()) {
                    hands.take(delivery);
                }
            }
        }
    }
}
