//! Brokers that break one promise each: this broker behind a proxy that changes what passes, on the way in, on the way back,
//! and on the way to the receivers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A broken promise.
pub struct Mutant {
    /// The broken promise, in words.
    pub breaks: &'static str,
    /// The claim that must fail.
    pub claim: &'static str,
    change: Change,
}

/// The difference between a mutant and the broker.
enum Change {
    /// Answers a request of a client itself.
    Instead(fn(&Proxy, &Asked) -> Option<Said>),
    /// Changes the broker's answer.
    Answer(fn(&Proxy, &Asked, &mut Said)),
    /// Changes a delivery to a receiver.
    Delivery(fn(&Proxy, &mut HeaderMap, &mut Value)),
    /// Delivers a second time.
    Again(fn(&Proxy) -> bool),
    /// None: the verifier that the kit is given takes everything.
    Verifier,
}

/// A client's request.
struct Asked {
    method: Method,
    path: String,
    query: String,
    key: String,
    body: Value,
}

impl Asked {
    fn submits(&self) -> bool {
        let path = self.path == "/handoffs" || self.path.ends_with("/message:send");
        self.method == Method::POST && path
    }
}

/// An answer.
#[derive(Clone)]
struct Said {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
    bytes: Bytes,
    changed: bool,
}

impl Said {
    fn json(status: u16, body: Value) -> Self {
        let status = StatusCode::from_u16(status).unwrap();
        Self { status, headers: HeaderMap::new(), body, bytes: Bytes::new(), changed: true }
    }

    fn turn(&mut self, status: u16, body: Value) {
        *self = Self::json(status, body);
    }

    fn refuses(&self, code: &str) -> bool {
        let a2a = &self.body["error"]["details"][0]["reason"];
        self.status.as_u16() >= 400 && (self.body["reason"] == code || a2a == code)
    }
}

/// Notes of a proxy.
#[derive(Default)]
struct Seen {
    submissions: usize,
    deliveries: usize,
    /// How often each message of A2A came.
    messages: HashMap<String, usize>,
    /// Agent by key.
    agents: HashMap<String, String>,
    /// The last bad end of a handoff that the kit read.
    ended: String,
    checkpoints: HashMap<String, Value>,
}

pub struct Proxy {
    broker: String,
    admin: String,
    relay: String,
    mutant: &'static Mutant,
    client: reqwest::Client,
    seen: Mutex<Seen>,
}

fn taken() -> Value {
    json!({ "status": "PENDING" })
}

/// Changes a checkpoint that is read after a handoff ended so.
fn another_state(proxy: &Proxy, incoming: &Asked, answer: &mut Said, ended: &str) {
    if incoming.path.contains("/checkpoints/") && proxy.seen.lock().unwrap().ended == ended {
        answer.body["state"]["note"] = json!("another");
        answer.changed = true;
    }
}

/// Lets a refusal by this code pass for an acceptance.
fn waves_through(answer: &mut Said, code: &str) {
    if answer.refuses(code) {
        answer.turn(202, taken());
    }
}

pub static MUTANTS: &[Mutant] = &[
    Mutant {
        breaks: "acknowledges one handoff of a hundred and drops it",
        claim: "delivered",
        change: Change::Instead(|proxy, incoming| {
            let dropped = incoming.submits() && {
                let mut seen = proxy.seen.lock().unwrap();
                seen.submissions += 1;
                seen.submissions == 100
            };
            dropped.then(|| Said::json(202, taken()))
        }),
    },
    Mutant {
        breaks: "delivers one handoff of a hundred twice",
        claim: "delivered",
        change: Change::Again(|proxy| proxy.seen.lock().unwrap().deliveries == 50),
    },
    Mutant {
        breaks: "takes other content under a known id",
        claim: "repeat",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.submits() {
                waves_through(answer, "CONFLICT");
            }
        }),
    },
    Mutant {
        breaks: "gives each attempt another webhook id",
        claim: "retried",
        change: Change::Delivery(|proxy, headers, _| {
            let attempt = headers.get("handoff-attempt").and_then(|value| value.to_str().ok());
            if attempt.is_some_and(|attempt| attempt != "1") {
                let id = format!("msg_{}", proxy.seen.lock().unwrap().deliveries);
                headers.insert("webhook-id", HeaderValue::from_str(&id).unwrap());
            }
        }),
    },
    Mutant {
        breaks: "signs with no secret of the receiver",
        claim: "signed",
        change: Change::Delivery(|_, headers, _| {
            headers.insert("webhook-signature", HeaderValue::from_static("v1,AAAA"));
        }),
    },
    Mutant {
        breaks: "delivers the sender's checkpoint",
        claim: "private-checkpoint",
        change: Change::Delivery(|proxy, _, body| {
            let id = body["handoffId"].as_str().unwrap_or_default().to_owned();
            if let Some(state) = proxy.seen.lock().unwrap().checkpoints.get(&id) {
                body["checkpoint"] = state.clone();
            }
        }),
    },
    Mutant {
        breaks: "takes a verdict under a lapsed token",
        claim: "fenced",
        change: Change::Answer(|_, _, answer| waves_through(answer, "STALE_LEASE")),
    },
    Mutant {
        breaks: "takes messages under an unknown key",
        claim: "authenticated",
        change: Change::Answer(|_, _, answer| waves_through(answer, "UNAUTHENTICATED")),
    },
    Mutant {
        breaks: "takes messages in another agent's name",
        claim: "identity",
        change: Change::Answer(|proxy, incoming, answer| {
            let caller = proxy.seen.lock().unwrap().agents.get(&incoming.key).cloned();
            if caller.is_some_and(|caller| incoming.body["fromAgent"]["agentId"] != caller.as_str())
            {
                waves_through(answer, "FORBIDDEN");
            }
        }),
    },
    Mutant {
        breaks: "takes messages to any agent",
        claim: "allowlist",
        change: Change::Answer(|proxy, incoming, answer| {
            let caller = proxy.seen.lock().unwrap().agents.get(&incoming.key).cloned();
            if caller.is_some_and(|caller| incoming.body["fromAgent"]["agentId"] == caller.as_str())
            {
                waves_through(answer, "FORBIDDEN");
            }
        }),
    },
    Mutant {
        breaks: "names no fault of a malformed message",
        claim: "schema",
        change: Change::Answer(|_, _, answer| {
            if answer.refuses("SCHEMA_INVALID") {
                answer.body["failures"] = json!([]);
                answer.changed = true;
            }
        }),
    },
    Mutant {
        breaks: "overlooks an injected order in one language",
        claim: "injection",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.body.to_string().contains("Ignoriere") {
                waves_through(answer, "SAFETY_VIOLATION");
            }
        }),
    },
    Mutant {
        breaks: "takes costs that do not add up",
        claim: "budget",
        change: Change::Answer(|_, _, answer| waves_through(answer, "BUDGET_MISMATCH")),
    },
    Mutant {
        breaks: "takes a parent of another task",
        claim: "lineage",
        change: Change::Answer(|_, _, answer| waves_through(answer, "LINEAGE_MISMATCH")),
    },
    Mutant {
        breaks: "never stops a loop",
        claim: "loop",
        change: Change::Answer(|_, _, answer| {
            if answer.refuses("LOOP_DETECTED") {
                answer.turn(200, json!({ "status": "ACCEPTED" }));
            }
        }),
    },
    Mutant {
        breaks: "does not enforce contracts",
        claim: "contract",
        change: Change::Answer(|_, _, answer| waves_through(answer, "CONTRACT_VIOLATION")),
    },
    Mutant {
        breaks: "returns another state after a rejection",
        claim: "rejected",
        change: Change::Answer(|proxy, incoming, answer| {
            another_state(proxy, incoming, answer, "REJECTED");
        }),
    },
    Mutant {
        breaks: "returns another state after silence",
        claim: "silent",
        change: Change::Answer(|proxy, incoming, answer| {
            another_state(proxy, incoming, answer, "EXPIRED");
        }),
    },
    Mutant {
        breaks: "returns another state after a failure",
        claim: "failed",
        change: Change::Answer(|proxy, incoming, answer| {
            another_state(proxy, incoming, answer, "FAILED");
        }),
    },
    Mutant {
        breaks: "lets two people decide one dead letter",
        claim: "dead-letter",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.path.ends_with("/discard") && answer.status == StatusCode::CONFLICT {
                answer.turn(200, json!({}));
            }
        }),
    },
    Mutant {
        breaks: "states another hash for a record",
        claim: "log",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.path == "/audit/records" && incoming.query.contains("from=0&") {
                answer.body["records"][0]["recordHash"] = json!("sha256:00");
                answer.changed = true;
            }
        }),
    },
    Mutant {
        breaks: "keeps no record of refusals",
        claim: "refusals-recorded",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.path == "/audit/records" && !incoming.query.contains("from=0&") {
                let records = answer.body["records"].as_array_mut().unwrap();
                records.retain(|row| row["record"]["kind"] != "REFUSED");
                answer.changed = true;
            }
        }),
    },
    Mutant {
        breaks: "shows the hops of a task in another order",
        claim: "trace",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.path.ends_with("/trace") && incoming.query.is_empty() {
                answer.body["handoffs"].as_array_mut().unwrap().reverse();
                answer.changed = true;
            }
        }),
    },
    Mutant { breaks: "verifies altered evidence", claim: "tampering", change: Change::Verifier },
];

/// A task that no broker has.
fn a2a_task() -> Value {
    json!({ "task": { "id": "11111111-1111-4111-8111-111111111111", "status": { "state": "TASK_STATE_SUBMITTED" } } })
}

/// Lets a refusal of the A2A door by this code pass for a task.
fn a2a_waves_through(answer: &mut Said, code: &str) {
    if answer.refuses(code) {
        answer.turn(200, a2a_task());
    }
}

/// Brokers that break a promise at their A2A door.
pub static A2A_MUTANTS: &[Mutant] = &[
    Mutant {
        breaks: "A2A: acknowledges one message of a hundred and drops it",
        claim: "delivered",
        change: Change::Instead(|proxy, incoming| {
            let dropped = incoming.submits() && {
                let mut seen = proxy.seen.lock().unwrap();
                seen.submissions += 1;
                seen.submissions == 100
            };
            dropped.then(|| Said::json(200, a2a_task()))
        }),
    },
    Mutant {
        breaks: "A2A: delivers one task of a hundred twice",
        claim: "delivered",
        change: Change::Again(|proxy| proxy.seen.lock().unwrap().deliveries == 50),
    },
    Mutant {
        breaks: "A2A: makes another task of a repeated message",
        claim: "repeat",
        change: Change::Answer(|proxy, incoming, answer| {
            if incoming.submits() && answer.body["task"].is_object() {
                let message = incoming.body["message"]["messageId"].to_string();
                let mut seen = proxy.seen.lock().unwrap();
                let times = seen.messages.entry(message).or_default();
                *times += 1;
                if *times > 1 {
                    drop(seen);
                    answer.turn(200, a2a_task());
                }
            }
        }),
    },
    Mutant {
        breaks: "A2A: names no fault of a malformed message",
        claim: "schema",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.submits() && answer.status == StatusCode::BAD_REQUEST {
                answer.turn(400, json!({ "error": { "code": 400, "message": "no" } }));
            }
        }),
    },
    Mutant {
        breaks: "A2A: overlooks an injected order in one language",
        claim: "injection",
        change: Change::Answer(|_, incoming, answer| {
            if incoming.body.to_string().contains("Ignoriere") {
                a2a_waves_through(answer, "SAFETY_VIOLATION");
            }
        }),
    },
    Mutant {
        breaks: "A2A: takes messages to any agent",
        claim: "allowlist",
        change: Change::Answer(|_, _, answer| a2a_waves_through(answer, "FORBIDDEN")),
    },
    Mutant {
        breaks: "A2A: takes messages under an unknown key",
        claim: "authenticated",
        change: Change::Answer(|_, _, answer| a2a_waves_through(answer, "UNAUTHENTICATED")),
    },
];

/// A proxy that serves until it is dropped.
pub struct Serving {
    pub url: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.abort();
    }
}

pub async fn serve(broker: &str, admin: &str, mutant: &'static Mutant) -> Serving {
    // Another case may have set it before; both set the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let proxy = Arc::new(Proxy {
        broker: broker.to_owned(),
        admin: admin.to_owned(),
        relay: format!("{url}/relay"),
        mutant,
        client: reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap(),
        seen: Mutex::default(),
    });
    let router = Router::new().route("/relay", post(relay)).fallback(forward).with_state(proxy);
    let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Serving { url, server }
}

/// Headers that belong to one connection, or to the body as it was.
const OWN: [HeaderName; 4] =
    [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut passed = headers.clone();
    for name in OWN {
        passed.remove(name);
    }
    passed
}

/// A client's request, to the broker.
async fn forward(
    State(proxy): State<Arc<Proxy>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let incoming = Asked {
        method,
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        key: key.unwrap_or_default().trim_start_matches("Bearer ").to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    if let Change::Instead(instead) = proxy.mutant.change
        && let Some(answer) = instead(&proxy, &incoming)
    {
        return (answer.status, answer.body.to_string()).into_response();
    }
    proxy.note_checkpoint(&incoming);
    let mut answer = proxy.pass(&incoming, &uri, &headers, body).await;
    proxy.note(&incoming, &answer);
    if let Change::Answer(change) = proxy.mutant.change {
        change(&proxy, &incoming, &mut answer);
    }
    let content = if answer.changed { Bytes::from(answer.body.to_string()) } else { answer.bytes };
    (answer.status, passed_on(&answer.headers), content).into_response()
}

impl Proxy {
    async fn pass(&self, incoming: &Asked, uri: &Uri, headers: &HeaderMap, body: Bytes) -> Said {
        // Receivers are reached through the proxy.
        let body = match incoming.body.pointer("/delivery/url").and_then(Value::as_str) {
            Some(url) => {
                let mut spec = incoming.body.clone();
                spec["delivery"]["url"] = json!(format!("{}?to={url}", self.relay));
                Bytes::from(spec.to_string())
            }
            None => body,
        };
        let mut headers = passed_on(headers);
        headers.remove(header::ACCEPT_ENCODING);
        let request = self.client.request(incoming.method.clone(), format!("{}{uri}", self.broker));
        let response = request.headers(headers).body(body).send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Said { status, headers, body, bytes, changed: false }
    }

    /// Before the broker has the message: it may deliver before it answers.
    fn note_checkpoint(&self, incoming: &Asked) {
        if incoming.submits() && incoming.body["checkpoint"].is_object() {
            let id = incoming.body["handoffId"].as_str().unwrap_or_default();
            let mut seen = self.seen.lock().unwrap();
            seen.checkpoints.insert(id.to_owned(), incoming.body["checkpoint"].clone());
        }
    }

    fn note(&self, incoming: &Asked, answer: &Said) {
        let mut seen = self.seen.lock().unwrap();
        if let Some(key) = answer.body["apiKey"].as_str() {
            let agent = incoming.body["agentId"].as_str().unwrap_or_default();
            seen.agents.insert(key.to_owned(), agent.to_owned());
        }
        let ended = answer.body["status"].as_str().unwrap_or_default();
        if incoming.path.starts_with("/handoffs/")
            && incoming.key == self.admin
            && ["REJECTED", "EXPIRED", "FAILED"].contains(&ended)
        {
            ended.clone_into(&mut seen.ended);
        }
    }
}

/// A delivery, to its receiver.
async fn relay(
    State(proxy): State<Arc<Proxy>>,
    Query(to): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    proxy.seen.lock().unwrap().deliveries += 1;
    let mut headers = passed_on(&headers);
    let mut content = body;
    if let Change::Delivery(change) = proxy.mutant.change {
        let before: Value = serde_json::from_slice(&content).unwrap_or_default();
        let mut message = before.clone();
        change(&proxy, &mut headers, &mut message);
        if message != before {
            content = Bytes::from(message.to_string());
        }
    }
    let send = async || {
        let request = proxy.client.post(&to["to"]).headers(headers.clone()).body(content.clone());
        request.send().await.unwrap()
    };
    if let Change::Again(again) = proxy.mutant.change
        && again(&proxy)
    {
        send().await;
    }
    let response = send().await;
    let (status, kind) = (response.status(), response.headers().get(header::CONTENT_TYPE).cloned());
    let kind = kind.unwrap_or_else(|| HeaderValue::from_static("application/json"));
    (status, [(header::CONTENT_TYPE, kind)], response.bytes().await.unwrap()).into_response()
}
