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

use crate::map::Fixed;

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
    /// A delivery of a system with a worker of its own, which says where the ids are.
    fn of_worker(place: &Fixed, headers: &HeaderMap, body: Bytes) -> Self {
        let mut delivery = Self::of(headers, body);
        let message = delivery.message();
        let at = |pointer: &str| {
            message.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        delivery.handoff = at(&place.id);
        delivery.id = match &place.delivery {
            Some(pointer) => at(pointer),
            None => delivery.handoff.clone(),
        };
        delivery
    }

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

impl Shared {
    fn new(script: impl Fn(&Delivery, usize) -> Say + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { log: Mutex::new(Vec::new()), script: Box::new(script) })
    }

    fn answer(&self, delivery: Delivery) -> Say {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = log.iter().filter(|other| other.handoff == delivery.handoff).count();
        let answer = (self.script)(&delivery, earlier);
        log.push(delivery);
        answer
    }
}

/// A server that ends when it is dropped.
struct Server(tokio::task::JoinHandle<()>);

impl Server {
    /// Ends it. The address is free afterwards.
    async fn stop(mut self) {
        self.0.abort();
        let _ = (&mut self.0).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves a router at an address; returns the port.
async fn serve(address: String, router: Router) -> Result<(Server, u16), String> {
    let cannot = |err: std::io::Error| format!("a receiver cannot listen at {address}: {err}");
    let listener = TcpListener::bind(&address).await.map_err(cannot)?;
    let port = listener.local_addr().map_err(cannot)?.port();
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    Ok((Server(server), port))
}

/// A receiver of one check.
pub(crate) struct Receiver {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _server: Option<Server>,
}

async fn take(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Say {
    shared.answer(Delivery::of(&headers, body))
}

/// The receiver at a fixed address, which one check after the other uses.
pub(crate) struct Standing {
    current: Arc<Mutex<Arc<Shared>>>,
    server: Server,
}

type Worked = (Fixed, Arc<Mutex<Arc<Shared>>>);

async fn take_worked(State(state): State<Arc<Worked>>, headers: HeaderMap, body: Bytes) -> Say {
    let delivery = Delivery::of_worker(&state.0, &headers, body);
    let current = state.1.lock().unwrap_or_else(PoisonError::into_inner).clone();
    current.answer(delivery)
}

impl Standing {
    pub(crate) async fn start(place: &Fixed) -> Result<Self, String> {
        let current = Arc::new(Mutex::new(Shared::new(|_, _| Say::Accept)));
        let state = Arc::new((place.clone(), current.clone()));
        let router = Router::new().fallback(take_worked).with_state(state);
        let (server, _) = serve(place.listen.clone(), router).await?;
        Ok(Self { current, server })
    }

    /// Ends it. The address is free afterwards.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }

    /// Answers by this script from now on.
    pub(crate) fn scripted(
        &self,
        script: impl Fn(&Delivery, usize) -> Say + Send + Sync + 'static,
    ) -> Receiver {
        let shared = Shared::new(script);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = shared.clone();
        Receiver { url: String::new(), shared, _server: None }
    }
}

impl Receiver {
    /// Starts a receiver. The script sees each delivery and how many of the same handoff came before.
    pub(crate) async fn start(
        host: &str,
        script: impl Fn(&Delivery, usize) -> Say + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let shared = Shared::new(script);
        let router = Router::new().fallback(take).with_state(shared.clone());
        let (server, port) = serve(format!("{}:0", bind_address(host)), router).await?;
        Ok(Self { url: format!("http://{host}:{port}/handoffs"), shared, _server: Some(server) })
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
