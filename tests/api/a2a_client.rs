//! A client of the A2A door: requests by both bindings, and answers held to the protocol's form.

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Caller, within};
use crate::message::Message;

/// A client that speaks A2A with one agent.
#[derive(Clone)]
pub struct A2a {
    pub caller: Caller,
    pub agent: String,
}

/// The client's view of an answer.
#[derive(Debug)]
pub struct Told {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Told {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        assert!(self.header("content-type").contains("json"), "{self:?}");
        self.body
    }

    /// An error of HTTP+JSON with this status and reason.
    #[track_caller]
    pub fn refused(&self, status: u16, reason: &str) {
        let error = &self.body["error"];
        let is = (
            self.status,
            error["code"].as_u64(),
            error["details"][0]["reason"].as_str().unwrap_or_default(),
        );
        assert_eq!(is, (status, Some(status.into()), reason), "{self:?}");
        assert_eq!(error["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
        assert!(error["message"].is_string() && error["status"].is_string(), "{self:?}");
    }
}

pub async fn told(response: reqwest::Response) -> Told {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    assert!(headers.contains_key("x-request-id"), "{headers:?}");
    Told { status, headers, body: response.json().await.unwrap_or_default() }
}

impl A2a {
    pub fn of(caller: &Caller, agent: &str) -> Self {
        Self { caller: caller.clone(), agent: agent.to_owned() }
    }

    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let path = format!("/a2a/{}{path}", self.agent);
        self.caller.request(method, &path).header("a2a-version", "1.0")
    }

    pub async fn post(&self, path: &str, body: &Value) -> Told {
        told(self.request(Method::POST, path).json(body).send().await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Told {
        told(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn send(&self, body: Value) -> Told {
        self.post("/message:send", &body).await
    }

    /// Sends a message and does not wait; returns the task.
    pub async fn sent(&self, message: Value) -> Value {
        let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
        self.send(body).await.ok()["task"].clone()
    }

    pub async fn task(&self, id: &str) -> Value {
        self.get(&format!("/tasks/{id}")).await.ok()
    }

    /// A call of JSON-RPC; the answer.
    pub async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params });
        let told = self.post("", &body).await;
        assert_eq!(
            (told.status, told.header("content-type")),
            (200, "application/json"),
            "{told:?}"
        );
        assert_eq!(
            (&told.body["jsonrpc"], &told.body["id"]),
            (&json!("2.0"), &json!("q")),
            "{told:?}"
        );
        told.body
    }

    /// A stream of Server-Sent Events.
    pub async fn stream(&self, request: reqwest::RequestBuilder) -> Updates {
        let response = request.send().await.unwrap();
        let status = response.status();
        let kind =
            response.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        assert_eq!(kind.as_deref(), Some("text/event-stream"), "{status}");
        let body = response.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec()));
        Updates { body: Box::pin(body), read: String::new() }
    }
}

/// Updates of a stream, with their ids.
pub struct Updates {
    pub body: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<Vec<u8>>> + Send>>,
    pub read: String,
}

impl Updates {
    /// The next update and its id; none at the end of the stream.
    pub async fn next(&mut self) -> Option<(Option<String>, Value)> {
        loop {
            while let Some(end) = self.read.find("\n\n") {
                let block: String = self.read.drain(..end + 2).collect();
                let of = |name: &str| {
                    block
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(|text| text.trim().to_owned())
                };
                if let Some(data) = of("data:") {
                    return Some((of("id:"), serde_json::from_str(&data).unwrap()));
                }
            }
            let piece = within("a piece of the stream", self.body.next()).await?.unwrap();
            self.read.push_str(&String::from_utf8(piece).unwrap());
        }
    }

    /// All that is still to come.
    pub async fn rest(&mut self) -> Vec<(Option<String>, Value)> {
        let mut rest = Vec::new();
        while let Some(update) = self.next().await {
            rest.push(update);
        }
        rest
    }
}

pub fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

/// Short names of the updates.
pub fn short(updates: &[(Option<String>, Value)]) -> Vec<String> {
    let of = |update: &Value| {
        let (name, body) = update.as_object().unwrap().iter().next().unwrap();
        match name.as_str() {
            "artifactUpdate" => {
                format!("artifact {}", body["artifact"]["artifactId"].as_str().unwrap())
            }
            _ => format!("{name} {}", state(body).trim_start_matches("TASK_STATE_")),
        }
    };
    updates.iter().map(|(_, update)| of(update)).collect()
}

pub fn text(id: &str, text: &str) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] })
}

/// `a` may hand off to `b`, which has a card and looks into its inbox.
pub async fn pair(broker: &Broker) -> (Agent, Agent, A2a) {
    let a = broker.pull("a", &["b"]).await;
    let b = broker.agent(json!({ "agentId": "b", "card": {}, "description": "Adds", "capabilities": ["sums"], "examples": ["Add 3 and 4"] })).await;
    let client = A2a::of(&a.api, "b");
    (a, b, client)
}

/// Takes the next handoff and accepts it.
pub async fn taken(agent: &Agent) -> (Message, i64) {
    let item = agent.claim(1).await.remove(0);
    let token = item["fencingToken"].as_i64().unwrap();
    let message = Message(item["message"].clone());
    agent.say(&message, "accept", token, json!({})).await.expect(200);
    (message, token)
}

pub async fn done(agent: &Agent, result: Value) -> Message {
    let (message, token) = taken(agent).await;
    agent.say(&message, "complete", token, json!({ "result": result })).await.expect(200);
    message
}

pub async fn told_of(request: reqwest::RequestBuilder) -> Told {
    told(request.send().await.unwrap()).await
}
