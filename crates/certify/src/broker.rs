//! The broker under test, as its HTTP API shows it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::CertifyError;
use crate::clock;
use crate::map::{Map, Speaks};
use crate::message::Message;
use crate::receiver::Receiver;

/// Longest wait for one answer. A broker that is slower than this does not answer.
const ANSWER: Duration = Duration::from_secs(90);
/// Longest time that the kit keeps a connection without a request: shorter than common servers do, so that none closes one that
/// the kit is about to use.
const IDLE: Duration = Duration::from_secs(2);
/// Longest wait for a state that the broker reaches by itself.
pub(crate) const REACHED: Duration = Duration::from_mins(2);
/// Pause between two looks at a state.
const LOOK: Duration = Duration::from_millis(50);
/// First pause between two looks at a verdict, where the protocol has no wait for it. The measured latency has it in it.
const POLL: Duration = Duration::from_millis(10);
/// The longest pause between two looks at a status. Each pause is twice the one before, so that many submissions cause little load.
const POLL_MAX: Duration = Duration::from_millis(640);
/// Longest wait for a verdict.
const VERDICT: Duration = Duration::from_mins(1);
/// In place of the id of a message that an A2A agent answered with a message: it made no task, and the work is done.
const AT_ONCE: &str = "answered at once";
/// The good ends of a delivery.
pub(crate) const SETTLED: [&str; 2] = ["ACCEPTED", "COMPLETED"];
/// Statuses after which no other comes.
const ENDED: [&str; 4] = ["COMPLETED", "REJECTED", "FAILED", "CANCELED"];

/// The broker, with the key of its operator.
pub(crate) struct Broker {
    base: String,
    key: String,
    client: reqwest::Client,
    pub(crate) map: Map,
    /// Name and version, as far as the broker states them.
    pub(crate) product: String,
    /// Sets this run's agents apart from others.
    run: String,
    agents: AtomicU32,
    /// The broker's own ids of the submitted messages, where it gives some.
    ids: Mutex<HashMap<String, String>>,
}

/// An agent of the kit.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) webhook_secret: String,
}

impl Agent {
    /// The agent's key; agents of a system without keys have none.
    fn key(&self) -> Option<&str> {
        Some(self.key.as_str()).filter(|key| !key.is_empty())
    }
}

/// An answer of the broker.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
    pub(crate) text: String,
    pub(crate) replayed: bool,
    /// The canonical code of a refusal.
    reason: Option<String>,
}

impl Answer {
    /// The answer, if it has this status.
    pub(crate) fn expect(self, status: u16, doing: &str) -> Result<Self, String> {
        if self.status.as_u16() == status {
            return Ok(self);
        }
        Err(format!("{doing}: {} instead of {status}: {}", self.status, short(&self.text)))
    }

    /// Confirms a refusal: this status, and this code.
    pub(crate) fn refused(self, status: u16, code: &str, doing: &str) -> Result<Self, String> {
        let answer = self.expect(status, doing)?;
        if answer.reason.as_deref() == Some(code) {
            return Ok(answer);
        }
        Err(format!("{doing}: the reason is {:?} and not {code}", answer.reason))
    }

    pub(crate) fn text_at(&self, pointer: &str) -> Result<String, String> {
        match self.body.pointer(pointer) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => Err(format!("an answer has no {pointer}: {}", short(&self.text))),
        }
    }
}

/// The innermost cause of an error: the outer ones of a request name its address alone.
fn cause(err: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = err;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    format!("the request failed: {innermost}")
}

/// The beginning of a long text.
pub(crate) fn short(text: &str) -> String {
    const SHOWN: usize = 200;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

impl Broker {
    /// Checks that the broker answers under the key.
    pub(crate) async fn connect(url: &str, key: &str, map: Map) -> Result<Self, CertifyError> {
        let unreachable = |why: String| CertifyError::Unreachable { url: url.to_owned(), why };
        // A broker of another process-wide setting may be there already; either serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(ANSWER)
            .pool_idle_timeout(IDLE)
            .redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(|err| unreachable(err.to_string()))?;
        let run = clock::id().simple().to_string()[..8].to_owned();
        let base = url.trim_end_matches('/').to_owned();
        let mut broker = Self {
            base,
            key: key.to_owned(),
            client,
            map,
            product: String::new(),
            run,
            agents: AtomicU32::new(0),
            ids: Mutex::default(),
        };
        let alive = broker.map.alive.clone();
        let looked = broker.get(&alive).await.map_err(&unreachable)?;
        if !looked.status.is_success() {
            return Err(unreachable(format!("GET {alive} under the given key: {}", looked.status)));
        }
        broker.product = broker.stated_product(&looked).await;
        Ok(broker)
    }

    /// Title and version of the broker's OpenAPI document, or name and version of its agent card; empty without both.
    async fn stated_product(&self, alive: &Answer) -> String {
        let of = |body: &Value, title: &str| {
            let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}", text(title), text("version")).trim().to_owned()
        };
        let document = self.get("/openapi.json").await;
        let stated = document.map(|answer| of(&answer.body["info"], "title")).unwrap_or_default();
        if stated.is_empty() { of(&alive.body, "name") } else { stated }
    }

    /// The operator's key; a system without keys gets none.
    fn operator(&self) -> Option<&str> {
        Some(self.key.as_str()).filter(|key| !key.is_empty())
    }

    /// Makes a request under a key. An error is a connection that failed, in words.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        headers: &[(&str, &str)],
        body: Option<Vec<u8>>,
    ) -> Result<Answer, String> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        for (name, value) in &self.map.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.map_err(|err| format!("{path}: {}", cause(&err)))?;
        let status = response.status();
        let replayed =
            response.headers().get("idempotency-replayed").is_some_and(|value| value == "true");
        let text = response.text().await.map_err(|err| format!("{path}: {err}"))?;
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let reason = self.map.reason_in(&body);
        Ok(Answer { status, body, text, replayed, reason })
    }

    /// Whether nothing serves at the broker's address: a new connection is refused, or a proxy has no broker behind it.
    pub(crate) async fn is_down(&self) -> bool {
        let unserved =
            [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
        // A connection of the pool may break while the dying process still listens, so this one is new.
        let Ok(client) = reqwest::Client::builder().timeout(LOOK).build() else { return false };
        match client.get(format!("{}{}", self.base, self.map.alive)).send().await {
            Ok(answer) => unserved.contains(&answer.status()),
            Err(err) => err.is_connect(),
        }
    }

    /// Reads under the operator's key; once more where the connection failed, which says nothing of the broker's state.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, String> {
        let read = || self.request(Method::GET, path, self.operator(), &[], None);
        if let Ok(answer) = read().await {
            return Ok(answer);
        }
        tokio::time::sleep(LOOK).await;
        read().await
    }

    /// The bytes of an answer, under the operator's key.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Vec<u8>, String> {
        let sent = self.client.get(format!("{}{path}", self.base)).bearer_auth(&self.key).send();
        let response = sent.await.and_then(reqwest::Response::error_for_status);
        let read = response.map_err(|err| format!("{path}: {err}"))?.bytes().await;
        Ok(read.map_err(|err| format!("{path}: {err}"))?.to_vec())
    }

    /// Sends JSON under the operator's key.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Answer, String> {
        let body = body.to_string().into_bytes();
        self.request(method, path, self.operator(), &[], Some(body)).await
    }

    /// Sends JSON under an agent's key.
    pub(crate) async fn as_agent(
        &self,
        agent: &Agent,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Answer, String> {
        let body = body.to_string().into_bytes();
        self.request(method, path, agent.key(), &[], Some(body)).await
    }

    /// A new name for an agent.
    pub(crate) fn name(&self, role: &str) -> String {
        let number = self.agents.fetch_add(1, Ordering::Relaxed);
        format!("certify-{}-{number}-{role}", self.run)
    }

    /// Registers an agent.
    pub(crate) async fn agent(&self, mut spec: Value) -> Result<Agent, String> {
        let path = self.map.agents.clone();
        if let Value::Object(members) = &mut spec {
            members.extend(self.map.register.clone());
        }
        let made =
            self.send(Method::POST, &path, &spec).await?.expect(201, "registering an agent")?;
        let id = spec["agentId"].as_str().unwrap_or_default().to_owned();
        let webhook_secret = made.body.pointer(&self.map.webhook_secret).and_then(Value::as_str);
        Ok(Agent {
            id,
            key: made.text_at(&self.map.api_key)?,
            webhook_secret: webhook_secret.unwrap_or_default().to_owned(),
        })
    }

    /// Changes members of an agent.
    pub(crate) async fn change(&self, agent: &Agent, change: &Value) -> Result<(), String> {
        let path = format!("{}/{}", self.map.agents, agent.id);
        self.send(Method::PATCH, &path, change).await?.expect(200, "changing an agent").map(drop)
    }

    /// A sender and a receiver at that webhook.
    pub(crate) async fn pair(&self, receiver: &Receiver) -> Result<(Agent, Agent), String> {
        if self.map.receiver.is_some() {
            // The system has its own worker: no agent is registered.
            let agent = |role: &str| Agent {
                id: role.to_owned(),
                key: self.key.clone(),
                webhook_secret: String::new(),
            };
            return Ok((agent("certify-sender"), agent("certify-receiver")));
        }
        let to = self.name("receiver");
        let delivery = json!({ "mode": "webhook", "url": receiver.url });
        let b = self.agent(json!({ "agentId": to, "delivery": delivery })).await?;
        let a =
            self.agent(json!({ "agentId": self.name("sender"), "handoffTargets": [b.id] })).await?;
        Ok((a, b))
    }

    /// A sender and a receiver that takes its handoffs from its inbox.
    pub(crate) async fn pull_pair(&self) -> Result<(Agent, Agent), String> {
        let b = self.agent(json!({ "agentId": self.name("receiver") })).await?;
        let a =
            self.agent(json!({ "agentId": self.name("sender"), "handoffTargets": [b.id] })).await?;
        Ok((a, b))
    }

    /// Submits a message. A message that another protocol took has the status 202 here, and a repeat is one that got the same id again.
    pub(crate) async fn submit(&self, agent: &Agent, message: &Message) -> Result<Answer, String> {
        let path = self.submit_path(message);
        let body = self.map.submission(message);
        let mut answer = self.as_agent(agent, Method::POST, &path, &body).await?;
        let Some(pointer) = self.map.id.as_ref().filter(|_| answer.status.is_success()) else {
            if self.map.speaks != Speaks::Canonical && answer.status.is_success() {
                answer.status = StatusCode::ACCEPTED;
            }
            return Ok(answer);
        };
        let id = if self.map.speaks == Speaks::A2a && answer.body["message"].is_object() {
            AT_ONCE.to_owned()
        } else {
            answer.text_at(pointer)?
        };
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = ids.insert(message.id().to_owned(), id.clone());
        answer.replayed |= earlier == Some(id);
        answer.status = StatusCode::ACCEPTED;
        Ok(answer)
    }

    pub(crate) fn submit_path(&self, message: &Message) -> String {
        self.map.submit.replace("{agent}", message.to())
    }

    /// Submits a message and waits up to a minute for the verdict.
    pub(crate) async fn submit_and_wait(
        &self,
        agent: &Agent,
        message: &Message,
    ) -> Result<Answer, String> {
        if self.map.speaks == Speaks::Canonical {
            let body = message.value().to_string().into_bytes();
            let path = self.submit_path(message);
            let wait = [("prefer", "wait=60")];
            return self.request(Method::POST, &path, agent.key(), &wait, Some(body)).await;
        }
        let mut answer = self.submit(agent, message).await?;
        if answer.status.is_success() {
            let path = self.handoff_path(message);
            self.becomes_within(&path, &SETTLED, VERDICT, (POLL, POLL_MAX)).await?;
            answer.status = StatusCode::OK;
        }
        Ok(answer)
    }

    /// The broker's id of a submitted message.
    pub(crate) fn id_of(&self, message: &Message) -> String {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.get(message.id()).cloned().unwrap_or_else(|| message.id().to_owned())
    }

    pub(crate) fn handoff_path(&self, message: &Message) -> String {
        let id = self.id_of(message);
        if id == AT_ONCE {
            return id;
        }
        self.map.handoff.replace("{agent}", message.to()).replace("{id}", &id)
    }

    pub(crate) fn task_path(&self, message: &Message) -> String {
        self.map.task.replace("{id}", message.task())
    }

    /// The canonical status of a handoff or task.
    pub(crate) async fn status(&self, path: &str) -> Result<String, String> {
        if path == AT_ONCE {
            return Ok("COMPLETED".to_owned());
        }
        let answer = self.get(path).await?.expect(200, path)?;
        let word = answer.text_at(&self.map.status)?;
        Ok(self.map.status_word(&word).to_owned())
    }

    /// Waits until a handoff or task has one of these statuses.
    pub(crate) async fn becomes(&self, path: &str, wanted: &[&str]) -> Result<String, String> {
        self.becomes_within(path, wanted, REACHED, (LOOK, LOOK)).await
    }

    async fn becomes_within(
        &self,
        path: &str,
        wanted: &[&str],
        longest: Duration,
        (mut pause, widest): (Duration, Duration),
    ) -> Result<String, String> {
        let began = Instant::now();
        loop {
            let status = self.status(path).await?;
            if wanted.contains(&status.as_str()) {
                return Ok(status);
            }
            // The canonical API has tasks that go on after a handoff's bad end.
            let over = self.map.speaks != Speaks::Canonical && ENDED.contains(&status.as_str());
            if over || began.elapsed() > longest {
                return Err(format!(
                    "{path} is {status} after {:.0} s, and not {wanted:?}",
                    began.elapsed().as_secs_f64()
                ));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(widest);
        }
    }
}
