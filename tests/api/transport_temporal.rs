//! Delivery by Temporal, against its development server, with workers written with its Python SDK: those of the page.

use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Caller, until};
use crate::line::CutLine;
use crate::message::Message;
use crate::python::{Program, free_port, programs};

const PAGE: &str = include_str!("../../docs/transports/temporal.md");

/// A server of Temporal, with its database in a file.
pub struct Server {
    pub program: Program,
    grpc: u16,
    http: u16,
    folder: std::sync::Arc<tempfile::TempDir>,
}

impl Server {
    /// Starts one; `None` where it cannot be had.
    pub async fn start() -> Option<Self> {
        programs().await?;
        // Another program may take a port between the look and the start.
        loop {
            let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
            if let Some(server) = Self::on(free_port(), free_port(), folder).await {
                return Some(server);
            }
        }
    }

    /// Starts one at these ports; `None` where one is taken.
    async fn on(grpc: u16, http: u16, folder: std::sync::Arc<tempfile::TempDir>) -> Option<Self> {
        let file = folder.path().join("temporal.db");
        let (grpc_text, http_text) = (grpc.to_string(), http.to_string());
        let arguments = [
            "server",
            "start-dev",
            "--headless",
            "--ip",
            "127.0.0.1",
            "--port",
            &grpc_text,
            "--http-port",
            &http_text,
            "--db-filename",
            file.to_str().unwrap(),
            "--log-level",
            "error",
        ];
        let program = Program::start(&programs().await.unwrap().join("temporal"), &arguments, &[]);
        let server = Self { program, grpc, http, folder };
        let serves = format!("{}/api/v1/namespaces/default", server.address());
        if server.program.serves_or_ends(&serves).await {
            return Some(server);
        }
        let words = server.program.said();
        assert!(words.contains("address already in use"), "no server at {serves}: {words}");
        None
    }

    async fn again(self) -> Self {
        self.program.kill().await;
        // An outgoing connection may have one of the ports for a moment.
        loop {
            if let Some(server) = Self::on(self.grpc, self.http, self.folder.clone()).await {
                return server;
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// A worker of the page; `which` counts its programs from 0.
    async fn worker(&self, which: usize, environment: &[(&str, &str)]) -> Program {
        let code = PAGE.split("```python\n").nth(which + 1).unwrap();
        let code = code.split_once("\n```").unwrap().0;
        let target = format!("127.0.0.1:{}", self.grpc);
        let environment = [&[("TEMPORAL", target.as_str())], environment].concat();
        Program::python(code, &environment).await
    }

    /// Events of a workflow's last run, by their type.
    async fn events(&self, workflow: &str) -> Vec<Value> {
        let path =
            format!("{}/api/v1/namespaces/default/workflows/{workflow}/history", self.address());
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let Ok(answer) = client.get(path).send().await else { return Vec::new() };
        let Ok(history) = answer.json::<Value>().await else { return Vec::new() };
        history.pointer("/history/events").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    pub async fn signals(&self, workflow: &str) -> Vec<Value> {
        let signaled = "workflowExecutionSignaledEventAttributes";
        let events = self.events(workflow).await;
        events.into_iter().filter_map(|event| event.get(signaled).cloned()).collect()
    }
}

pub fn config(address: &str) -> Value {
    json!({ "address": address, "workflowType": "Handoff", "taskQueue": "handoffs" })
}

async fn agent(broker: &Broker, config: Value) -> Agent {
    let delivery = json!({ "mode": "temporal", "config": config });
    broker.agent(json!({ "agentId": "b", "delivery": delivery })).await
}

pub fn workflow(message: &Message) -> String {
    format!("handoff-{}", message.task())
}

/// Waits until so many attempts were made.
async fn attempts(broker: &Broker, count: u64) {
    until("attempts", async || {
        let seen = broker.metric("handoff_delivery_attempts_total").await;
        if seen >= count { Ok(()) } else { Err(format!("{seen} attempts")) }
    })
    .await;
}

both! {
    with [("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "60000")]
    async fn a_worker_accepts_heartbeats_is_killed_and_another_completes(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let a = broker.pull("a", &["b"]).await;
        let b = agent(broker, config(&server.address())).await;
        let environment = [
            ("HANDOFFD_URL", b.api.base.as_str()),
            ("HANDOFFD_API_KEY", b.api.key.as_deref().unwrap()),
            ("STEPS", "6"),
        ];
        let worker = server.worker(0, &environment).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let accepted = async |said: String| {
            let handoff = broker.admin.get(&message.path()).await.expect(200).body;
            if handoff["status"] == "ACCEPTED" { Ok(()) } else { Err(format!("{handoff} {said}")) }
        };
        until("the worker accepts", async || accepted(worker.said()).await).await;
        // Two steps of six, each told to Temporal and to the broker.
        let done = async || {
            let path = format!("{}/api/v1/namespaces/default/workflows/{}", server.address(), workflow(&message));
            let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
            let found: Value = client.get(path).send().await.unwrap().json().await.unwrap();
            let details = found.pointer("/pendingActivities/0/heartbeatDetails/0").and_then(Value::as_i64);
            if details.is_some_and(|done| done >= 2) { Ok(()) } else { Err(format!("{found} {}", worker.said())) }
        };
        until("two steps", done).await;
        worker.kill().await;
        let other = server.worker(0, &environment).await;
        let handoff = until("another worker completes", async || {
            let handoff = broker.admin.get(&message.path()).await.expect(200).body;
            if handoff["status"] == "COMPLETED" { Ok(handoff) } else { Err(format!("{handoff} {}", other.said())) }
        })
        .await;
        assert_eq!(handoff["attempts"].as_i64().unwrap_or(1), 1, "{handoff}");
        let trace = broker.trace(&message).await.to_string();
        assert!(trace.contains("\"resumedAt\":"), "it went on: {trace}");
        assert!(!trace.contains("\"resumedAt\":0"), "it began anew: {trace}");
        let signals = server.signals(&workflow(&message)).await;
        assert_eq!(signals.len(), 1);
        let (headers, body) = (&signals[0]["input"][0]["headers"], signals[0]["input"][0]["body"].as_str().unwrap());
        assert_eq!(headers["Handoff-Id"], message.id());
        let mut signed = axum::http::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            signed.insert(name, headers[name].as_str().unwrap().parse().unwrap());
        }
        standardwebhooks::Webhook::new(&b.webhook_secret).unwrap().verify(body.as_bytes(), &signed).unwrap();
        assert_eq!(signals[0]["header"]["fields"]["traceparent"], headers["traceparent"]);
    }

    async fn a_repeated_request_signals_once(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        // The answers of the first two connections are lost: what became of the signals is unknown.
        let line = CutLine::to(server.http, 2).await;
        let a = broker.pull("a", &["b"]).await;
        let b = agent(broker, config(&format!("http://127.0.0.1:{}", line.port))).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        attempts(broker, 1).await;
        assert!(line.answered());
        let signals = server.signals(&workflow(&message)).await;
        assert_eq!(signals.len(), 1, "three requests, one signal");
        assert_eq!(signals[0]["requestId"], format!("{}.1", message.id()));
        let token = &signals[0]["input"][0]["headers"]["Handoff-Fencing-Token"];
        let token = token.as_str().unwrap().parse().unwrap();
        // Between signal and verdict the broker is another one.
        let b = Agent { api: Caller { key: b.api.key.clone(), ..broker.restart().await }, ..b };
        b.say(&message, "accept", token, json!({})).await.expect(200);
        b.say(&message, "complete", token, json!({ "result": {} })).await.expect(200);
    }

    async fn a_server_away_and_a_missing_namespace_lose_nothing(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let a = broker.pull("a", &["b"]).await;
        let mut there = config(&server.address());
        there["namespace"] = json!("nobodys");
        let b = agent(broker, there).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        attempts(broker, 1).await;
        let test = format!("/agents/{}/delivery/test", b.id);
        let tested = broker.admin.post(&test, &json!({})).await.expect(200).body;
        assert_eq!(tested["field"], "/delivery/config/namespace", "{tested}");
        assert!(tested["answered"].as_str().unwrap().contains("nobodys is not found"), "{tested}");
        // A change leaves alone what it does not name.
        let mut here = config(&server.address());
        here["namespace"] = serde_json::Value::Null;
        let here = json!({ "mode": "temporal", "config": here });
        server.program.kill().await;
        broker.admin.patch("/agents/b", &json!({ "delivery": here })).await.expect(200);
        let tested = broker.admin.post(&test, &json!({})).await.expect(200).body;
        assert_eq!(tested["delivered"], false, "{tested}");
        let server = server.again().await;
        until("the signal", async || {
            let signals = server.signals(&workflow(&message)).await.len();
            if signals == 1 { Ok(()) } else { Err(format!("{signals} signals")) }
        })
        .await;
        let tested = broker.admin.post(&test, &json!({})).await.expect(200).body;
        assert_eq!(tested["delivered"], true, "{tested}");
        assert!(tested.to_string().contains("no worker polls"), "{tested}");
        assert_eq!(broker.admin.get(&message.path()).await.expect(200).body["status"], "PENDING");
    }

    with [("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "60000")]
    async fn a_query_brings_the_verdicts_also_to_another_broker(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let a = broker.pull("a", &["b"]).await;
        let mut there = config(&server.address());
        there["replyTo"] = json!("verdicts");
        there["queryIntervalMs"] = json!(200);
        let b = agent(broker, there).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        attempts(broker, 1).await;
        // Between signal and verdict the broker is another one.
        let admin = broker.restart().await;
        let worker = server.worker(1, &[("SIGNING_SECRET", b.signing_secret.as_str())]).await;
        for status in ["ACCEPTED", "COMPLETED"] {
            until("the verdict", async || {
                let handoff = admin.get(&message.path()).await.expect(200).body;
                if handoff["status"] == status { Ok(()) } else { Err(format!("{handoff} {}", worker.said())) }
            })
            .await;
        }
        let trace = admin.get(&format!("{}/trace", message.task_path())).await.expect(200).body;
        assert!(trace.to_string().contains(&format!("\"task\":\"{}\"", message.task())), "{trace}");
        let replies = admin.metrics().await;
        let replies: Vec<_> = replies.lines().filter(|line| line.starts_with("handoff_replies_total")).collect();
        assert_eq!(replies.len(), 1, "each verdict was taken once: {replies:?}");
        assert!(replies[0].ends_with(" 2"), "{replies:?}");
    }

    async fn a_registration_is_checked_field_by_field(broker: Broker) {
        let address = "https://temporal.example:7243";
        let full = config(address);
        let with = |key: &str, value: &str| {
            let mut config = full.clone();
            config[key] = json!(value);
            config
        };
        let certificate = json!({ "clientCertificate": "-----BEGIN CERTIFICATE-----" });
        for (config, credentials, pointer) in [
            (json!({ "address": address }), json!({}), "/delivery/config/workflowType"),
            (with("address", "http://temporal:7243/ui"), json!({}), "/delivery/config/address"),
            (with("workflowId", "x-{tenant}"), json!({}), "/delivery/config/workflowId"),
            (with("workflowId", "x/{taskId}"), json!({}), "/delivery/config/workflowId"),
            (with("caCertificate", "-----BEGIN nothing"), json!({}), "/delivery/config/caCertificate"),
            (full.clone(), certificate, "/delivery/credentials/clientKey"),
        ] {
            let delivery = json!({ "mode": "temporal", "config": config, "credentials": credentials });
            let spec = json!({ "agentId": "c", "delivery": delivery });
            let problem = broker.admin.post("/agents", &spec).await.expect(422);
            assert!(problem.text.contains(pointer), "{config}: {}", problem.text);
        }
    }
}
