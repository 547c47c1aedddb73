//! Delivery by SQS, against moto, an SQS server by others, with an agent written with boto3.
//!
//! moto takes any signature, so the signature is compared with botocore's.

use handoffd_transports::sqs::client::{AwsCredential, signed};
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Caller, Kind, run, until};
use crate::line::CutLine;
use crate::message::Message;
use crate::python::{Program, code_of, free_port, programs};

const PAGE: &str = include_str!("../../docs/transports/sqs.md");

/// A server of SQS.
pub struct Server {
    pub program: Program,
    port: u16,
}

impl Server {
    /// Starts one; `None` where it cannot be had.
    pub async fn start() -> Option<Self> {
        programs().await?;
        Some(Self::on(free_port()).await)
    }

    async fn on(port: u16) -> Self {
        let path = programs().await.unwrap().join("moto_server");
        let port_text = port.to_string();
        let program = Program::start(&path, &["-H", "127.0.0.1", "-p", &port_text], &[]);
        let server = Self { program, port };
        server.program.serves(&server.url()).await;
        server
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    async fn call(&self, action: &str, input: Value) -> Value {
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let credential = "AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
        let answer = client
            .post(self.url())
            .header("x-amz-target", format!("AmazonSQS.{action}"))
            .header("content-type", "application/x-amz-json-1.0")
            .header("authorization", credential)
            .body(input.to_string())
            .send()
            .await
            .unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{action}: {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Makes a user who may send to every queue, and has keys and signatures checked from then on; returns its key.
    async fn enforce(&self) -> (String, String) {
        let policy = json!({ "Version": "2012-10-17", "Statement": [
            { "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*" }] });
        self.iam(&[("Action", "CreateUser"), ("UserName", "broker")]).await;
        let policy = policy.to_string();
        let named = [("PolicyName", "send"), ("PolicyDocument", policy.as_str())];
        self.iam(&[&[("Action", "PutUserPolicy"), ("UserName", "broker")][..], &named].concat())
            .await;
        let made = self.iam(&[("Action", "CreateAccessKey"), ("UserName", "broker")]).await;
        let element = |name: &str| {
            let (_, rest) = made.split_once(&format!("<{name}>")).unwrap();
            rest.split_once('<').unwrap().0.to_owned()
        };
        self.unchecked_requests("0").await;
        (element("AccessKeyId"), element("SecretAccessKey"))
    }

    /// How many messages a queue holds, received ones included.
    async fn left(&self, queue: &str) -> u64 {
        let input = json!({ "QueueUrl": queue, "AttributeNames": ["All"] });
        let found = self.call("GetQueueAttributes", input).await["Attributes"].clone();
        let names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
        names.iter().map(|name| found[name].as_str().unwrap().parse::<u64>().unwrap()).sum()
    }

    async fn iam(&self, form: &[(&str, &str)]) -> String {
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.append_pair("Version", "2010-05-08").extend_pairs(form);
        let credential = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0";
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let request = client
            .post(self.url())
            .header("authorization", credential)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.finish());
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{text}");
        text
    }

    async fn take_everything(&self) {
        self.unchecked_requests("1000000").await;
    }

    async fn unchecked_requests(&self, count: &str) {
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let path = format!("{}/moto-api/reset-auth", self.url());
        let request = client.post(path).header("content-type", "text/plain").body(count.to_owned());
        assert_eq!(request.send().await.unwrap().status(), 200);
    }

    /// Makes a queue; returns its URL.
    pub async fn queue(&self, name: &str) -> String {
        let mut attributes = json!({ "VisibilityTimeout": "2" });
        if name.strip_suffix(".fifo").is_some() {
            attributes["FifoQueue"] = json!("true");
        }
        let made = self.call("CreateQueue", json!({ "QueueName": name, "Attributes": attributes }));
        made.await["QueueUrl"].as_str().unwrap().to_owned()
    }

    /// Receives up to ten messages and deletes them.
    async fn receive(&self, queue: &str) -> Vec<Value> {
        let input = json!({
            "QueueUrl": queue,
            "MaxNumberOfMessages": 10,
            "WaitTimeSeconds": 1,
            "MessageAttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"],
        });
        let answer = self.call("ReceiveMessage", input).await;
        let messages = answer["Messages"].as_array().cloned().unwrap_or_default();
        for message in &messages {
            let receipt = &message["ReceiptHandle"];
            self.call("DeleteMessage", json!({ "QueueUrl": queue, "ReceiptHandle": receipt }))
                .await;
        }
        messages
    }

    /// Waits for so many messages.
    pub async fn messages(&self, queue: &str, count: usize) -> Vec<Value> {
        let mut all = Vec::new();
        until("messages in the queue", async || {
            all.extend(self.receive(queue).await);
            if all.len() >= count { Ok(()) } else { Err(format!("{} messages", all.len())) }
        })
        .await;
        all
    }
}

fn attribute<'a>(message: &'a Value, name: &str) -> &'a str {
    let attribute = &message["MessageAttributes"][name];
    assert!(attribute.is_null() || attribute["DataType"] == "String");
    attribute["StringValue"].as_str().unwrap_or_default()
}

/// An agent whose handoffs go to that queue.
pub async fn agent(broker: &Broker, id: &str, config: Value) -> Agent {
    agent_with(broker, id, config, "AKIDEXAMPLE", "secret").await
}

async fn agent_with(broker: &Broker, id: &str, config: Value, key: &str, secret: &str) -> Agent {
    broker.agent(json!({ "agentId": id, "delivery": delivery(config, key, secret) })).await
}

pub fn config(queue: &str) -> Value {
    json!({ "queueUrl": queue, "region": "eu-west-1" })
}

both! {
    async fn a_handoff_is_a_message_of_the_queue(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let queue = server.queue("plain").await;
        let a = broker.pull("a", &["b"]).await;
        let b = agent(broker, "b", config(&queue)).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let sent = &server.messages(&queue, 1).await[0];
        assert_eq!(attribute(sent, "webhook-id"), message.id());
        assert_eq!(attribute(sent, "Handoff-Task-Id"), message.task());
        assert_eq!(attribute(sent, "Handoff-Attempt"), "1");
        assert_eq!(attribute(sent, "traceparent").len(), 55);
        let body = sent["Body"].as_str().unwrap();
        let secret = standardwebhooks::Webhook::new(&b.webhook_secret).unwrap();
        let mut headers = axum::http::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(name, attribute(sent, name).parse().unwrap());
        }
        secret.verify(body.as_bytes(), &headers).unwrap();
        let token = attribute(sent, "Handoff-Fencing-Token").parse().unwrap();
        b.say(&message, "accept", token, json!({})).await.expect(200);
        b.say(&message, "heartbeat", token, json!({})).await.expect(200);
        b.say(&message, "complete", token, json!({ "result": { "done": true } })).await.expect(200);
        broker.handoff_becomes(&message, "COMPLETED").await;
        assert!(server.receive(&queue).await.is_empty(), "it was sent once");
    }

    async fn a_fifo_queue_gets_the_task_as_its_group_and_one_message_for_an_attempt(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let queue = server.queue("ordered.fifo").await;
        // The answers of the first two connections are lost: what became of the messages is unknown.
        let line = CutLine::to(server.port, 2).await;
        let through = queue.replace(&server.port.to_string(), &line.port.to_string());
        let a = broker.pull("a", &["b"]).await;
        let b = agent(broker, "b", config(&through)).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        // moto forgets what was deleted, so all three requests come before the receiver.
        attempts(broker, 1).await;
        assert!(line.answered());
        let sent = server.messages(&queue, 1).await;
        assert_eq!(sent.len(), 1, "the repeats are the same message");
        assert_eq!(sent[0]["Attributes"]["MessageGroupId"], message.task());
        let id = format!("{}.1", message.id());
        assert_eq!(sent[0]["Attributes"]["MessageDeduplicationId"], id);
        assert!(server.receive(&queue).await.is_empty());
        let token = attribute(&sent[0], "Handoff-Fencing-Token").parse().unwrap();
        b.say(&message, "complete", token, json!({ "result": {} })).await.expect(200);
        broker.handoff_becomes(&message, "COMPLETED").await;
    }

    async fn a_server_that_comes_back_empty_loses_nothing(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let queue = server.queue("plain").await;
        let a = broker.pull("a", &["b"]).await;
        let b = agent(broker, "b", config(&queue)).await;
        server.program.kill().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        attempts(broker, 1).await;
        let server = Server::on(server.port).await;
        let seen = broker.metric("handoff_delivery_attempts_total").await;
        attempts(broker, seen + 1).await;
        assert_eq!(server.queue("plain").await, queue);
        let sent = &server.messages(&queue, 1).await[0];
        assert_eq!(attribute(sent, "webhook-id"), message.id());
        // Between message and verdict the broker is another one.
        let b = Agent { api: Caller { key: b.api.key.clone(), ..broker.restart().await }, ..b };
        let token = attribute(sent, "Handoff-Fencing-Token").parse().unwrap();
        b.say(&message, "accept", token, json!({})).await.expect(200);
        b.say(&message, "complete", token, json!({ "result": {} })).await.expect(200);
    }

    async fn refused_credentials_wait_and_the_test_names_the_field(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let queue = server.queue("plain").await;
        let (key, secret) = server.enforce().await;
        let b = agent_with(broker, "b", config(&queue), &key, "wrong").await;
        let a = broker.pull("a", &["b"]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        attempts(broker, 1).await;
        let path = format!("/agents/{}/delivery/test", b.id);
        for (key, secret, field, answered) in [
            (key.as_str(), "wrong", "/delivery/credentials/secretAccessKey", "SignatureDoesNotMatch"),
            ("AKIANOBODY", "wrong", "/delivery/credentials/accessKeyId", "InvalidClientTokenId"),
        ] {
            let delivery = delivery(config(&queue), key, secret);
            broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await.expect(200);
            let tested = broker.admin.post(&path, &json!({})).await.expect(200).body;
            assert_eq!((&tested["delivered"], &tested["field"]), (&json!(false), &json!(field)), "{tested}");
            assert!(tested["answered"].as_str().unwrap().contains(answered), "{tested}");
            assert!(!tested.to_string().contains("wrong"), "{tested}");
        }
        // The right keys, whose signature moto now compares with botocore's.
        let right = delivery(config(&queue), &key, &secret);
        broker.admin.patch("/agents/b", &json!({ "delivery": right })).await.expect(200);
        let tested = broker.admin.post(&path, &json!({})).await.expect(200).body;
        assert_eq!(tested["delivered"], true, "{tested}");
        server.take_everything().await;
        let sent = server.messages(&queue, 2).await;
        let test = sent.iter().find(|sent| attribute(sent, "Handoff-Test") == "true");
        assert!(test.is_some_and(|test| test["Body"].as_str().unwrap().contains("\"test\":true")));
        let real = sent.iter().find(|sent| attribute(sent, "webhook-id") == message.id()).unwrap();
        let token = attribute(real, "Handoff-Fencing-Token").parse().unwrap();
        b.say(&message, "reject", token, json!({ "reason": "NOT_MINE" })).await.expect(200);
        broker.handoff_becomes(&message, "REJECTED").await;
    }

    async fn what_the_queue_does_not_take_goes_as_a_claim_check(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let queue = server.queue("small").await;
        let mut there = config(&queue);
        there["maxMessageBytes"] = json!(4_096);
        let b = agent(broker, "b", there).await;
        let a = broker.pull("a", &["b"]).await;
        let text = "Check each of these invoices against its order. ".repeat(120);
        let message = Message::review("a", "b").set("/taskDescription", json!(text));
        a.submit(&message).await.expect(202);
        let sent = &server.messages(&queue, 1).await[0];
        let check: Value = serde_json::from_str(sent["Body"].as_str().unwrap()).unwrap();
        assert_eq!(check["handoffId"], message.id(), "{check}");
        let link = attribute(sent, "Handoff-Claim-Check");
        assert_eq!(check["claimCheck"], link);
        let body = b.api.http.get(format!("{}{link}", b.api.base)).send().await.unwrap();
        assert_eq!(body.status(), 200);
        let body = body.text().await.unwrap();
        assert!(body.contains(&text));
        let mut headers = axum::http::HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(name, attribute(sent, name).parse().unwrap());
        }
        let secret = standardwebhooks::Webhook::new(&b.webhook_secret).unwrap();
        secret.verify(body.as_bytes(), &headers).unwrap();
    }

    async fn the_agent_of_the_page_answers_on_its_reply_queue(broker: Broker) {
        let Some(server) = Server::start().await else { return };
        let (queue, replies) = (server.queue("plain").await, server.queue("verdicts.fifo").await);
        let mut there = config(&queue);
        there["replyTo"] = json!(replies);
        let b = agent(broker, "b", there).await;
        let a = broker.pull("a", &["b"]).await;
        let url = server.url();
        let _agent = Program::python(
            &code_of(PAGE, "python"),
            &[
                ("AWS_ENDPOINT_URL", url.as_str()),
                ("AWS_DEFAULT_REGION", "eu-west-1"),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("QUEUE_URL", queue.as_str()),
                ("WEBHOOK_SECRET", b.webhook_secret.as_str()),
                ("SIGNING_SECRET", b.signing_secret.as_str()),
            ],
        )
        .await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "COMPLETED").await;
        let kinds = broker.kinds(&message).await;
        assert!(kinds.contains(&"ACCEPTED".to_owned()), "{kinds:?}");
        // A client that may write to the queue and knows no secret changes nothing.
        let forged = json!({ "handoffId": message.id(), "fencingToken": 1, "verdict": "fail",
            "timestamp": "2026-11-24T08:00:00Z", "signature": format!("hmac-sha256:{}", "0".repeat(64)) });
        let group = json!({ "QueueUrl": replies, "MessageBody": forged.to_string(),
            "MessageGroupId": "x", "MessageDeduplicationId": "x" });
        server.call("SendMessage", group).await;
        until("the broker drops it", async || {
            let counted = broker.metric("handoff_replies_total").await;
            if counted >= 4 { Ok(()) } else { Err(format!("{counted} replies")) }
        })
        .await;
        let handoff = broker.admin.get(&message.path()).await.expect(200).body;
        assert_eq!(handoff["status"], "COMPLETED");
        until("the queue is empty", async || {
            let left = server.left(&replies).await;
            if left == 0 { Ok(()) } else { Err(format!("{left} messages")) }
        })
        .await;
    }

    async fn a_registration_is_checked_field_by_field(broker: Broker) {
        let queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/q";
        let keys = json!({ "accessKeyId": "AKID", "secretAccessKey": "s" });
        for (config, credentials, pointer) in [
            (json!({}), &keys, "/delivery/config/queueUrl"),
            (json!({ "queueUrl": "sqs" }), &keys, "/delivery/config/queueUrl"),
            (json!({ "queueUrl": "http://queues.example/q" }), &keys, "/delivery/config/region"),
            (json!({ "queueUrl": queue, "maxMessageBytes": 1 }), &keys, "/delivery/config/maxMessageBytes"),
            (json!({ "queueUrl": queue }), &json!({ "accessKeyId": "A" }), "/delivery/credentials/secretAccessKey"),
            (json!({ "queueUrl": queue }), &json!({ "sessionToken": "A" }), "/delivery/credentials/accessKeyId"),
            // Without keys the broker's own role would sign, and no queue is allowed to it.
            (json!({ "queueUrl": queue }), &json!({}), "/delivery/config/queueUrl"),
        ] {
            let delivery = json!({ "mode": "sqs", "config": config, "credentials": credentials });
            let spec = json!({ "agentId": "c", "delivery": delivery });
            let problem = broker.admin.post("/agents", &spec).await.expect(422);
            assert!(problem.text.contains(pointer), "{config}: {}", problem.text);
        }
    }
}

/// Waits until so many attempts ended.
async fn attempts(broker: &Broker, count: u64) {
    until("attempts", async || {
        let seen = broker.metric("handoff_delivery_attempts_total").await;
        if seen >= count { Ok(()) } else { Err(format!("{seen} attempts")) }
    })
    .await;
}

fn delivery(config: Value, key: &str, secret: &str) -> Value {
    let credentials = json!({ "accessKeyId": key, "secretAccessKey": secret });
    let mut delivery = json!({ "mode": "sqs", "credentials": credentials });
    delivery["config"] = config;
    delivery
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoffs_come_in_from_a_queue() {
    let Some(server) = Server::start().await else { return };
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let queue = server.queue(&format!("in-{kind:?}")).await;
        let answers = server.queue(&format!("refused-{kind:?}")).await;
        let parked = server.queue(&format!("parked-{kind:?}")).await;
        let settings = [
            ("HANDOFFD_TRANSPORTS__SQS__INTAKE__QUEUE_URL", queue.as_str()),
            ("HANDOFFD_TRANSPORTS__SQS__INTAKE__REGION", "eu-west-1"),
            ("HANDOFFD_TRANSPORTS__SQS__INTAKE__ACCESS_KEY_ID", "test"),
            ("HANDOFFD_TRANSPORTS__SQS__INTAKE__SECRET_ACCESS_KEY", "test"),
            ("HANDOFFD_TRANSPORTS__SQS__INTAKE__ANSWERS_URL", answers.as_str()),
            ("HANDOFFD_TRANSPORTS__SQS__INTAKE__PARKED_URL", parked.as_str()),
        ];
        run(kind, &settings, async |broker: &Broker| {
            intake(broker, &server, [&queue, &answers, &parked]).await;
        })
        .await;
    }
}

async fn intake(broker: &Broker, server: &Server, [queue, answers, parked]: [&str; 3]) {
    let (a, b) = broker.pull_pair().await;
    let good = Message::initial("a", "b").signed(&a.signing_secret);
    let forged = Message::initial("a", "b").signed("hss_wrong");
    for body in [good.0.to_string(), forged.0.to_string(), "no JSON".to_owned(), good.0.to_string()]
    {
        server.call("SendMessage", json!({ "QueueUrl": queue, "MessageBody": body })).await;
    }
    let token = b.claim_one().await;
    b.say(&good, "complete", token, json!({ "result": {} })).await.expect(200);
    let refused = &server.messages(answers, 1).await[0];
    let problem: Value = serde_json::from_str(refused["Body"].as_str().unwrap()).unwrap();
    assert_eq!(problem["code"], "SIGNATURE_INVALID", "{problem}");
    assert!(!attribute(refused, "Handoff-Message-Id").is_empty());
    let poison = &server.messages(parked, 1).await[0];
    assert_eq!(poison["Body"], "no JSON");
    assert!(!attribute(poison, "Handoff-Park-Reason").is_empty(), "{poison}");
    until("everything is acknowledged", async || {
        let left = server.left(queue).await;
        if left == 0 { Ok(()) } else { Err(format!("{left} messages")) }
    })
    .await;
    let kinds = broker.kinds(&good).await;
    let handoffs = kinds.iter().filter(|kind| *kind == "HANDOFF").count();
    assert_eq!(handoffs, 1, "the repeat changed nothing: {kinds:?}");
    assert!(broker.metric("handoff_queue_submissions_total").await >= 4);
}

/// Signs each request again with botocore, at the time that the request names.
const BOTOCORE: &str = r#"
import datetime, json, sys
import botocore.auth, botocore.awsrequest, botocore.credentials
for line in sys.stdin:
    case = json.loads(line)
    headers = {name: value for name, value in case["headers"].items() if name != "authorization"}
    moment = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    botocore.auth.get_current_datetime = lambda remove_tzinfo=True: moment.replace(tzinfo=None) if remove_tzinfo else moment
    headers.pop("x-amz-security-token", None)
    request = botocore.awsrequest.AWSRequest("POST", case["url"], headers=headers, data=case["body"].encode())
    keys = botocore.credentials.Credentials(case["key"], case["secret"], case["token"])
    botocore.auth.SigV4Auth(keys, "sqs", case["region"]).add_auth(request)
    print(request.headers["Authorization"])
"#;

#[tokio::test]
async fn signatures_are_those_of_botocore() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let Some(programs) = programs().await else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut cases = Vec::new();
    for (key, secret, token) in [
        ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None),
        ("ASIA0123456789", "a b=/+c", Some("FwoGZXIvYXdzE//+=token==")),
        ("k", "\u{e9}\u{4e2d}", None),
    ] {
        for (url, region) in [
            ("https://sqs.eu-west-1.amazonaws.com/", "eu-west-1"),
            ("https://sqs.us-gov-west-1.amazonaws.com/", "us-gov-west-1"),
            ("http://127.0.0.1:5000/", "us-east-1"),
            ("https://[::1]:9324/", "elasticmq"),
        ] {
            for (action, body) in [
                ("SendMessage", r#"{"MessageBody":"é \"quoted\"  two  spaces"}"#),
                ("ReceiveMessage", "{}"),
            ] {
                let credential = AwsCredential {
                    key_id: key.to_owned(),
                    secret_key: secret.to_owned(),
                    token: token.map(str::to_owned),
                };
                let endpoint = url.parse().unwrap();
                let headers =
                    signed(&credential, region, &endpoint, action, body.to_owned().into()).unwrap();
                let named = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
                    (name.to_string(), json!(value.to_str().unwrap()))
                };
                let headers: serde_json::Map<_, _> = headers.iter().map(named).collect();
                cases.push(json!({ "key": key, "secret": secret, "token": token, "url": url,
                    "region": region, "body": body, "headers": headers }));
            }
        }
    }
    let mut child = Command::new(programs.join("python"))
        .args(["-c", BOTOCORE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for case in &cases {
        writeln!(stdin, "{case}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let theirs: Vec<_> = theirs.lines().collect();
    assert_eq!(theirs.len(), 24);
    for (case, theirs) in cases.iter().zip(theirs) {
        assert_eq!(case["headers"]["authorization"], theirs, "{case}");
    }
}
