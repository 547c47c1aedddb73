//! A receiver of the kit: an HTTP server that notes each delivery and answers by a script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::net::TcpListener;

/// One delivery as it came.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// `webhook-id`.
    pub(crate) id: String,
    /// `webhook-timestamp`, seconds since 1970.
    timestamp: String,
    /// `webhook-signature`.
    signature: String,
    /// `Handoff-Id`.
    pub(crate) handoff: String,
    /// `Handoff-Fencing-Token`.
    pub(crate) token: i64,
    body: Bytes,
}

impl Delivery {
    fn of(headers: &HeaderMap, body: Bytes) -> Self {
        let header = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        Self {
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            handoff: header("handoff-id"),
            token: header("handoff-fencing-token").parse().unwrap_or(-1),
            body,
        }
    }

    /// The message; null where the body is not JSON.
    pub(crate) fn message(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether a secret (`whsec_…`) signed this delivery: HMAC-SHA256 over `id.timestamp.body` (Standard Webhooks 1.0).
    pub(crate) fn signed_by(&self, secret: &str) -> bool {
        let Ok(key) = BASE64.decode(secret.trim_start_matches("whsec_")) else { return false };
        let mut signed = format!("{}.{}.", self.id, self.timestamp).into_bytes();
        signed.extend_from_slice(&self.body);
        self.signature.split(' ').filter_map(|one| one.strip_prefix("v1,")).any(|tag| {
            let Ok(tag) = BASE64.decode(tag) else { return false };
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&key) else { return false };
            mac.update(&signed);
            mac.verify_slice(&tag).is_ok()
        })
    }
}

/// An answer of a receiver.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    /// Takes the handoff.
    Accept,
    /// Sends it back, with this reason.
    Reject(&'static str),
    /// Has it, and says later.
    Later,
    /// Is busy.
    Busy,
    /// Fails.
    Fail,
}

impl IntoResponse for Say {
    fn into_response(self) -> Response {
        let json = |status, body: Value| {
            (status, [("content-type", "application/json")], body.to_string()).into_response()
        };
        match self {
            Self::Accept => json(StatusCode::OK, json!({ "status": "ACCEPTED" })),
            Self::Reject(reason) => {
                json(StatusCode::OK, json!({ "status": "REJECTED", "reason": reason }))
            }
            Self::Later => StatusCode::ACCEPTED.into_response(),
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Self::Fail => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

type Script = dyn Fn(&Delivery, usize) -> Say + Send + Sync;

struct Shared {
    log: Mutex<Vec<Delivery>>,
    script: Box<Script>,
}

/// A receiver that serves until it is dropped.
pub(crate) struct Receiver {
    pub(crate) url: String,
    shared: Arc<Shared>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Say {
    let delivery = Delivery::of(&headers, body);
    let mut log = shared.log.lock().unwrap_or_else(PoisonError::into_inner);
    let earlier = log.iter().filter(|other| other.handoff == delivery.handoff).count();
    let answer = (shared.script)(&delivery, earlier);
    log.push(delivery);
    answer
}

impl Receiver {
    /// Starts a receiver. The script sees each delivery and how many of the same handoff came before.
    pub(crate) async fn start(
        host: &str,
        script: impl Fn(&Delivery, usize) -> Say + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let cannot = |err: std::io::Error| format!("a receiver cannot listen: {err}");
        let listener = TcpListener::bind((bind_address(host), 0)).await.map_err(cannot)?;
        let port = listener.local_addr().map_err(cannot)?.port();
        let shared = Arc::new(Shared { log: Mutex::new(Vec::new()), script: Box::new(script) });
        let router = Router::new().fallback(take).with_state(shared.clone());
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url: format!("http://{host}:{port}/handoffs"), shared, server })
    }

    /// Everything that came so far.
    pub(crate) fn log(&self) -> Vec<Delivery> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Loopback listens on itself; any other host is reached by every address of this machine.
fn bind_address(host: &str) -> String {
    let loopback = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if loopback { host.to_owned() } else { SocketAddr::from(([0, 0, 0, 0], 0)).ip().to_string() }
}
