//! A key at brokers that come and go: each request goes to any of them, and is repeated until it is answered.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::RESTS_WITHIN;
use super::fleet::Fleet;
use super::rig::below;
use crate::world::client;

/// Pause before a request that got no answer is repeated.
const AGAIN: Duration = Duration::from_millis(20);

/// An answer: status and document.
pub type Answer = (u16, Value);

/// A key at several brokers.
#[derive(Clone)]
pub struct Caller {
    bases: Vec<watch::Receiver<String>>,
    key: String,
    http: reqwest::Client,
}

impl Caller {
    pub fn new(fleet: &Fleet, key: &str) -> Self {
        let bases = fleet.bases.iter().map(watch::Sender::subscribe).collect();
        Self { bases, key: key.to_owned(), http: client() }
    }

    /// A request at any of the brokers.
    fn at(&self, method: Method, path: &str) -> RequestBuilder {
        let place = (below(self.bases.len() as f64) as usize).min(self.bases.len() - 1);
        let base = self.bases[place].borrow().clone();
        self.http.request(method, format!("{base}{path}")).bearer_auth(&self.key)
    }

    /// Sends one request; `None` where no answer came, or a 503: what was asked for may have happened.
    async fn send(&self, request: impl Fn() -> RequestBuilder) -> Option<Answer> {
        let answer = loop {
            match request().send().await {
                Ok(answer) => break answer,
                // Nothing was sent.
                Err(err) if err.is_connect() => tokio::time::sleep(AGAIN).await,
                Err(_) => return None,
            }
        };
        let status = answer.status().as_u16();
        let body = answer.json().await.ok()?;
        (status != 503).then_some((status, body))
    }

    /// Posts a document once.
    pub async fn post(&self, path: &str, body: &Value) -> Option<Answer> {
        self.send(|| self.at(Method::POST, path).json(body)).await
    }

    /// Posts a line for each document once.
    pub async fn post_lines(&self, path: &str, lines: &[Value]) -> Option<Answer> {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let text = lines.join("\n") + "\n";
        let kind = ("content-type", "application/x-ndjson");
        let request = || self.at(Method::POST, path).header(kind.0, kind.1).body(text.clone());
        self.send(request).await
    }

    /// Reads until it is answered.
    pub async fn get(&self, path: &str) -> Answer {
        let deadline = Instant::now() + RESTS_WITHIN;
        loop {
            if let Some(answer) = self.send(|| self.at(Method::GET, path)).await {
                return answer;
            }
            assert!(Instant::now() < deadline, "no answer to GET {path}");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Posts the same document until it is answered.
    pub async fn say(&self, path: &str, body: &Value) -> Answer {
        let deadline = Instant::now() + RESTS_WITHIN;
        loop {
            if let Some(answer) = self.post(path, body).await {
                return answer;
            }
            assert!(Instant::now() < deadline, "no answer to POST {path}");
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The trace of a task; `None` if no such task exists.
    pub async fn trace(&self, task: &str) -> Option<Value> {
        let path = format!("/tasks/{task}/trace");
        loop {
            match self.get(&path).await {
                (404, _) => return None,
                // One that broke off is read again.
                (200, page) if page["verification"].is_object() => return Some(page),
                _ => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}
