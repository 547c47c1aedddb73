//! Temporal over its HTTP API: a request in JSON, through the egress guard.

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use super::super::exchange::{exchange, foreign};
use handoffd_broker::egress::GuardedClient;
use handoffd_broker::egress::exchange::denied;
use handoffd_broker::transport::AttemptFailure;

/// Largest answer read, in bytes: twice the largest payload in base64.
const MAX_ANSWER: usize = 8 << 20;
/// Payloads as they are, and not rewritten as plain JSON.
const EXACT: HeaderValue = HeaderValue::from_static("application/json+no-payload-shorthand");
/// Temporal Cloud finds a namespace by this header.
const NAMESPACE: HeaderName = HeaderName::from_static("temporal-namespace");

/// A namespace of a Temporal server, and in whose name it is asked.
pub struct Client {
    pub http: GuardedClient,
    /// The server's address, without a path.
    pub address: Url,
    pub namespace: String,
    pub api_key: Option<Zeroizing<String>>,
}

/// Why a request has no result.
#[derive(Debug)]
pub enum CallError {
    /// No answer came, or one that is not Temporal's.
    Transport(AttemptFailure),
    /// The API key holds characters that a header cannot carry.
    Key,
    /// Temporal refused.
    Refused(Refusal),
}

/// An error of Temporal: a status of gRPC in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// Code of gRPC.
    pub code: i64,
    /// The last part of the type of its details, such as `NamespaceNotFoundFailure`.
    pub kind: String,
    pub message: String,
}

impl Client {
    /// Sends a request below the namespace; `parts` of the path are encoded.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        method: Method,
        parts: &[&str],
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Value, CallError> {
        let mut url = self.address.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api", "v1", "namespaces", self.namespace.as_str()]);
            path.extend(parts);
        }
        let mut request = self
            .http
            .request(method, url.as_str())
            .map_err(|why| CallError::Transport(denied(why)))?
            .header(ACCEPT, EXACT);
        if let Ok(namespace) = HeaderValue::try_from(&self.namespace) {
            request = request.header(NAMESPACE, namespace);
        }
        if let Some(key) = &self.api_key {
            let bearer = Zeroizing::new(format!("Bearer {}", key.as_str()));
            let mut value = HeaderValue::try_from(bearer.as_str()).map_err(|_| CallError::Key)?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answered = exchange(request, limit, MAX_ANSWER).await;
        let (status, body) = answered.map_err(CallError::Transport)?;
        result(status, &body)
    }
}

fn result(status: u16, body: &[u8]) -> Result<Value, CallError> {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    if status == 200
        && let Some(value) = value
    {
        return Ok(value);
    }
    let value = value.unwrap_or_default();
    let Some(code) = value.get("code").and_then(Value::as_i64) else {
        return Err(CallError::Transport(foreign(status, "Temporal")));
    };
    let kind = value.pointer("/details/0/@type").and_then(Value::as_str).unwrap_or_default();
    let message = value.get("message").and_then(Value::as_str).unwrap_or_default();
    Err(CallError::Refused(Refusal {
        status,
        code,
        kind: kind.rsplit('.').next().unwrap_or_default().to_owned(),
        message: message.to_owned(),
    }))
}
