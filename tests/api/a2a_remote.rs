//! A remote A2A agent by hand: a plain server that keeps tasks, answers as a case says, and lies where it is told to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, until};

/// The agent's behaviour on a message.
#[derive(Debug, Clone)]
pub enum Manner {
    /// Makes a task in this state.
    Task(&'static str),
    /// Answers with a message.
    Says(Value),
    /// Makes a task, and breaks off before it answers.
    Breaks(&'static str),
    /// Answers with this, and makes nothing.
    Answers(u16, String),
    Redirects(String),
}

pub struct FakeState {
    pub card: Value,
    pub manner: Manner,
    pub tasks: BTreeMap<String, Value>,
    /// Parameters of each `SendMessage`.
    pub sent: Vec<Value>,
    pub canceled: Vec<String>,
    pub gets: usize,
    pub authorizations: Vec<String>,
    pub versions: Vec<String>,
    /// The answer to a get in place of the task.
    pub lies: Option<Value>,
    /// Statuses of the next answers to a list.
    pub list_faults: Vec<u16>,
    /// Lists have pages of one task.
    pub pages: bool,
    /// Tasks are shown without their history.
    pub forgets: bool,
    /// A cancellation is taken, and nothing comes of it.
    pub goes_on: bool,
    /// The answer of `/keys`, and the credentials of the requests for it.
    pub keys: Option<Value>,
    pub keys_asked: Vec<String>,
}

/// An agent by hand.
#[derive(Clone)]
pub struct Fake {
    pub url: String,
    pub state: Arc<Mutex<FakeState>>,
    /// Looks at tasks get no answer.
    pub stalls: Arc<AtomicBool>,
}

pub fn json_answer(status: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

pub fn signing_key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

/// The JSON Web Key Set of a seed.
pub fn key_set(seed: u8) -> Value {
    let x = URL_SAFE_NO_PAD.encode(signing_key(seed).verifying_key().as_bytes());
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "card", "x": x }] })
}

/// A card with a signature by a seed's key.
pub fn signed(card: &Value, seed: u8) -> Value {
    let protected = URL_SAFE_NO_PAD.encode(json!({ "alg": "EdDSA", "kid": "card" }).to_string());
    let payload = URL_SAFE_NO_PAD.encode(serde_json_canonicalizer::to_vec(card).unwrap());
    let signature = signing_key(seed).sign(format!("{protected}.{payload}").as_bytes());
    let signature = URL_SAFE_NO_PAD.encode(signature.to_bytes());
    let mut card = card.clone();
    card["signatures"] = json!([{ "protected": protected, "signature": signature }]);
    card
}

pub fn status(state: &str) -> Value {
    json!({ "state": format!("TASK_STATE_{state}"), "timestamp": "2026-01-01T00:00:00Z" })
}

impl FakeState {
    /// Takes a message: a new task, or more for one that is there.
    #[expect(clippy::result_large_err, reason = "a refusal is an answer, as axum has it")]
    pub fn send(&mut self, params: &Value) -> Result<Value, Response<Body>> {
        self.sent.push(params.clone());
        let message = params["message"].clone();
        if let Some(task) = message["taskId"].as_str() {
            let Some(task) = self.tasks.get_mut(task) else {
                return Err(json_answer(404, &json!({})));
            };
            task["history"].as_array_mut().unwrap().push(message);
            task["status"] = status("WORKING");
            return Ok(json!({ "task": task }));
        }
        let make = |state: &str, tasks: &mut BTreeMap<String, Value>| {
            let id = format!("remote-{}", tasks.len() + 1);
            let task = json!({
                "id": id, "contextId": message["contextId"], "status": status(state), "history": [message],
            });
            tasks.insert(id, task.clone());
            task
        };
        match self.manner.clone() {
            Manner::Task(state) => Ok(json!({ "task": make(state, &mut self.tasks) })),
            Manner::Says(parts) => {
                Ok(json!({ "message": { "messageId": "r", "role": "ROLE_AGENT", "parts": parts } }))
            }
            Manner::Breaks(state) => {
                make(state, &mut self.tasks);
                self.manner = Manner::Task(state);
                Err(json_answer(500, &json!({ "oops": true })))
            }
            Manner::Answers(status, body) => Err(Response::builder()
                .status(status)
                .header("content-type", "application/json")
                .body(Body::from(body))
                .unwrap()),
            Manner::Redirects(to) => Err(Response::builder()
                .status(307)
                .header("location", to)
                .body(Body::empty())
                .unwrap()),
        }
    }

    pub fn get(&mut self, id: &str) -> Option<Value> {
        self.gets += 1;
        let mut task = self.lies.clone().or_else(|| self.tasks.get(id).cloned())?;
        if self.forgets {
            task["history"] = json!([]);
        }
        Some(task)
    }

    #[expect(clippy::result_large_err, reason = "a refusal is an answer, as axum has it")]
    pub fn list(&mut self, context: &str, page: &str) -> Result<Value, Response<Body>> {
        if !self.list_faults.is_empty() {
            return Err(json_answer(self.list_faults.remove(0), &json!({ "oops": true })));
        }
        let tasks: Vec<&Value> =
            self.tasks.values().filter(|task| task["contextId"] == context).collect();
        let total = tasks.len();
        if !self.pages {
            return Ok(
                json!({ "tasks": tasks, "nextPageToken": "", "pageSize": 50, "totalSize": total }),
            );
        }
        let at: usize = page.parse().unwrap_or(0);
        let next = if at + 1 < total { (at + 1).to_string() } else { String::new() };
        Ok(
            json!({ "tasks": tasks.get(at..=at).unwrap_or_default(), "nextPageToken": next, "pageSize": 1, "totalSize": total }),
        )
    }

    pub fn cancel(&mut self, id: &str) -> Option<Value> {
        self.canceled.push(id.to_owned());
        let goes_on = self.goes_on;
        let task = self.tasks.get_mut(id)?;
        if !goes_on {
            task["status"] = status("CANCELED");
        }
        Some(task.clone())
    }
}

pub async fn respond(
    State(fake): State<Fake>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    if method == Method::GET
        && uri.path().starts_with("/rest/tasks/")
        && fake.stalls.load(Ordering::Relaxed)
    {
        std::future::pending::<()>().await;
    }
    let mut state = fake.state.lock().unwrap();
    let header =
        |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let credentials = format!("{}{}", header("authorization"), header("x-agent-key"));
    if uri.path() == "/keys" {
        state.keys_asked.push(credentials);
        return match &state.keys {
            Some(keys) => json_answer(200, keys),
            None => json_answer(503, &json!({})),
        };
    }
    state.authorizations.push(credentials);
    state.versions.push(header("a2a-version"));
    let path = uri.path().to_owned();
    if path.ends_with("agent-card.json") {
        return json_answer(200, &state.card);
    }
    let read: Value = serde_json::from_slice(&body).unwrap_or_default();
    let no_task = || {
        json_answer(
            404,
            &json!({ "error": { "code": 404, "status": "NOT_FOUND", "message": "none", "details": [
            { "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org" }
        ] } }),
        )
    };
    if let Some(rest) = path.strip_prefix("/rest") {
        let id =
            |rest: &str| rest.trim_start_matches("/tasks/").trim_end_matches(":cancel").to_owned();
        return match (method, rest) {
            (Method::POST, "/message:send") => {
                state.send(&read).map_or_else(|broken| broken, |sent| json_answer(200, &sent))
            }
            (Method::GET, "/tasks") => {
                let query = uri.query().unwrap_or_default();
                let parameter = |wanted: &str| {
                    url::form_urlencoded::parse(query.as_bytes())
                        .find(|(name, _)| name == wanted)
                        .map_or_else(String::new, |(_, value)| value.into_owned())
                };
                let listed = state.list(&parameter("contextId"), &parameter("pageToken"));
                listed.map_or_else(|broken| broken, |list| json_answer(200, &list))
            }
            (Method::GET, rest) => {
                state.get(&id(rest)).map_or_else(no_task, |task| json_answer(200, &task))
            }
            (_, rest) => {
                state.cancel(&id(rest)).map_or_else(no_task, |task| json_answer(200, &task))
            }
        };
    }
    let params = read["params"].clone();
    let id = params["id"].as_str().unwrap_or_default().to_owned();
    let result = match read["method"].as_str().unwrap_or_default() {
        "SendMessage" => match state.send(&params) {
            Ok(sent) => Some(sent),
            Err(broken) => return broken,
        },
        "GetTask" => state.get(&id),
        "ListTasks" => {
            let text = |name: &str| params[name].as_str().unwrap_or_default();
            match state.list(text("contextId"), text("pageToken")) {
                Ok(list) => Some(list),
                Err(broken) => return broken,
            }
        }
        _ => state.cancel(&id),
    };
    json_answer(
        200,
        &match result {
            Some(result) => json!({ "jsonrpc": "2.0", "id": read["id"], "result": result }),
            None => {
                json!({ "jsonrpc": "2.0", "id": read["id"], "error": { "code": -32001, "message": "none" } })
            }
        },
    )
}

impl Fake {
    pub async fn start(binding: &str, manner: Manner) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let path = if binding == "JSONRPC" { "rpc" } else { "rest" };
        let interface = |binding: &str, path: &str, version: &str| json!({ "url": format!("{url}/{path}"), "protocolBinding": binding, "protocolVersion": version });
        let card = json!({
            "name": "Fake", "description": "By hand", "version": "1",
            "supportedInterfaces": [
                interface("GRPC", "grpc", "1.0"), interface("JSONRPC", "old", "0.3"), interface(binding, path, "1.0"),
            ],
            "capabilities": { "pushNotifications": true },
            "defaultInputModes": ["text/plain", "application/json"], "defaultOutputModes": ["text/plain"], "skills": [],
        });
        let state = FakeState {
            card,
            manner,
            tasks: BTreeMap::new(),
            sent: Vec::new(),
            canceled: Vec::new(),
            gets: 0,
            authorizations: Vec::new(),
            versions: Vec::new(),
            lies: None,
            list_faults: Vec::new(),
            pages: false,
            forgets: false,
            goes_on: false,
            keys: None,
            keys_asked: Vec::new(),
        };
        let fake = Self { url, state: Arc::new(Mutex::new(state)), stalls: Arc::default() };
        let app = Router::new().fallback(respond).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        fake
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut FakeState) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    /// Waits until the broker read its task `times` more.
    pub async fn is_read_again(&self, times: usize) {
        let before = self.with(|state| state.gets);
        until("the task is read again", async || match self.with(|state| state.gets) {
            now if now >= before + times => Ok(()),
            now => Err(format!("{now} reads, {before} before")),
        })
        .await;
    }

    /// Changes the only task.
    pub fn task(&self, change: impl FnOnce(&mut Value)) {
        self.with(|state| {
            assert_eq!(state.tasks.len(), 1, "{:?}", state.tasks);
            change(state.tasks.values_mut().next().unwrap());
        });
    }

    pub fn becomes(&self, to: &str, words: Option<&str>) {
        self.task(|task| {
            task["status"] = status(to);
            if let Some(text) = words {
                task["status"]["message"] =
                    json!({ "messageId": "s", "role": "ROLE_AGENT", "parts": [{ "text": text }] });
            }
        });
    }

    pub fn completes(&self, parts: &Value) {
        self.task(|task| {
            task["artifacts"] = json!([{ "artifactId": "a", "parts": parts }]);
            task["status"] = status("COMPLETED");
        });
    }

    pub fn sent(&self) -> Vec<Value> {
        self.with(|state| state.sent.clone())
    }
}

/// `a`, which may hand off to `b`, the agent.
pub async fn pair(broker: &Broker, fake: &Fake) -> Agent {
    let sender = broker.pull("a", &["b"]).await;
    let delivery = json!({ "mode": "a2a", "config": { "url": fake.url } });
    broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
    sender
}
