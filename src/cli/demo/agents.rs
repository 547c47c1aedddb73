//! The demo's agents: each is an HTTP server for webhooks and a client with its own key. The agents share only HTTP
//! with the broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::client::{IDLE_CONNECTION, causes};
use handoffd_broker::transport::standard_webhooks::{
    HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, TOLERANCE, WebhookSecret, verify,
};
use handoffd_domain::canonical::CanonicalObject;
use handoffd_gate::signature;
use handoffd_store::clock::{Clock, SystemClock};

/// An HTTP client of the broker: its address and one key.
pub(super) struct Caller {
    http: reqwest::Client,
    base: String,
    key: String,
}

pub(super) struct BrokerAnswer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl BrokerAnswer {
    /// A text in the body; empty where there is none.
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// The body, if the status is that one.
    pub(super) fn expect(self, status: u16, what: &str) -> Result<Value, String> {
        if self.status == status {
            return Ok(self.body);
        }
        Err(format!("{what}: expected {status}, the broker answered {} {}", self.status, self.body))
    }
}

impl Caller {
    pub(super) fn new(broker: SocketAddr, key: &str) -> Result<Self, String> {
        // A proxy from the environment has no business between two ends on one machine.
        let http = reqwest::Client::builder().pool_idle_timeout(IDLE_CONNECTION).no_proxy().build();
        let http = http.map_err(|err| err.to_string())?;
        Ok(Self { http, base: format!("http://{broker}"), key: key.to_owned() })
    }

    pub(super) async fn get(&self, path: &str) -> Result<BrokerAnswer, String> {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<BrokerAnswer, String> {
        self.send(self.http.post(format!("{}{path}", self.base)).json(body)).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<BrokerAnswer, String> {
        self.send(self.http.put(format!("{}{path}", self.base)).json(body)).await
    }

    pub(super) async fn patch(&self, path: &str, body: &Value) -> Result<BrokerAnswer, String> {
        self.send(self.http.patch(format!("{}{path}", self.base)).json(body)).await
    }

    pub(super) async fn delete(&self, path: &str, body: &Value) -> Result<BrokerAnswer, String> {
        self.send(self.http.delete(format!("{}{path}", self.base)).json(body)).await
    }

    /// A request with headers of a protocol.
    pub(super) async fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<BrokerAnswer, String> {
        let mut request = self.http.post(format!("{}{path}", self.base)).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Result<BrokerAnswer, String> {
        let answer = request.bearer_auth(&self.key).send().await.map_err(|err| causes(&err))?;
        let status = answer.status().as_u16();
        let body = answer.json().await.map_err(|err| err.to_string())?;
        Ok(BrokerAnswer { status, body })
    }
}

/// An agent's answer to a delivery.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DemoVerdict {
    /// 200: accepted.
    Accept,
    /// 202: received; the verdict follows by callback.
    Later,
    /// 200: rejected, with a code and details.
    Reject(&'static str, Value),
}

/// A handoff as it arrived.
#[derive(Debug)]
pub(super) struct ReceivedDelivery {
    pub(super) handoff_id: String,
    pub(super) fencing_token: String,
    pub(super) message: Value,
    pub(super) verdict: DemoVerdict,
}

/// State of an agent's webhook endpoint.
struct WebhookState {
    secret: WebhookSecret,
    judge: fn(&Value) -> DemoVerdict,
    deliveries: mpsc::UnboundedSender<ReceivedDelivery>,
    received: AtomicUsize,
    refused: AtomicUsize,
}

pub(super) struct DemoAgent {
    pub(super) id: &'static str,
    /// This run of the agent.
    pub(super) execution_id: String,
    caller: Caller,
    signing_secret: String,
    desk: Arc<WebhookState>,
    inbox: mpsc::UnboundedReceiver<ReceivedDelivery>,
    _server: AbortOnDropHandle<()>,
}

/// The registration of an agent.
pub(super) struct DemoRole {
    pub(super) id: &'static str,
    pub(super) version: &'static str,
    pub(super) description: &'static str,
    /// Members that it needs in a message's `currentState`.
    pub(super) required_state: &'static [&'static str],
    pub(super) judge: fn(&Value) -> DemoVerdict,
}

impl DemoAgent {
    /// Listens, is registered by the operator, and starts to serve.
    pub(super) async fn start(
        role: &DemoRole,
        operator: &Caller,
        broker: SocketAddr,
    ) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|err| err.to_string())?;
        let at = listener.local_addr().map_err(|err| err.to_string())?;
        let spec = json!({
            "agentId": role.id,
            "agentType": role.id,
            "agentVersion": role.version,
            "description": role.description,
            "requiredState": role.required_state,
            "requireSignature": true,
            "requireCheckpoint": true,
            "delivery": { "mode": "webhook", "url": format!("http://{at}/handoffs") },
        });
        let made = operator.post("/agents", &spec).await?.expect(201, "registering an agent")?;
        let secret = |name: &str| {
            made.get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or_else(|| format!("registering an agent: no {name} in the answer"))
        };
        let (deliveries, inbox) = mpsc::unbounded_channel();
        let desk = Arc::new(WebhookState {
            secret: WebhookSecret::parse(&secret("webhookSecret")?)
                .map_err(|err| err.to_string())?,
            judge: role.judge,
            deliveries,
            received: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
        });
        let routes = Router::new().route("/handoffs", post(receive)).with_state(Arc::clone(&desk));
        let server = tokio::spawn(async move {
            // Ends with the demo; an error would show as a delivery that does not arrive.
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self {
            id: role.id,
            execution_id: handoffd_store::clock::random_id().to_string(),
            caller: Caller::new(broker, &secret("apiKey")?)?,
            signing_secret: secret("signingSecret")?,
            desk,
            inbox,
            _server: AbortOnDropHandle::new(server),
        })
    }

    /// Signs a message and submits it; with `wait`, the broker holds its answer for the verdict.
    pub(super) async fn submit(
        &self,
        mut message: Value,
        wait: bool,
    ) -> Result<BrokerAnswer, String> {
        let canonical =
            CanonicalObject::from_value(&message).ok_or("a message is a JSON object")?;
        let signature = signature::sign(&canonical, self.signing_secret.as_bytes());
        message[signature::FIELD] = json!(signature);
        let mut request =
            self.caller.http.post(format!("{}/handoffs", self.caller.base)).json(&message);
        if wait {
            request = request.header("Prefer", "wait=20");
        }
        self.caller.send(request).await
    }

    /// The next handoff that arrives here.
    pub(super) async fn next(&mut self) -> Result<ReceivedDelivery, String> {
        self.inbox.recv().await.ok_or_else(|| format!("{} no longer listens", self.id))
    }

    /// Reports a verdict by callback, under the delivery's fencing token.
    pub(super) async fn say(
        &self,
        delivery: &ReceivedDelivery,
        word: &str,
        mut said: Value,
    ) -> Result<Value, String> {
        said["fencingToken"] = json!(delivery.fencing_token);
        let path = format!("/handoffs/{}/{word}", delivery.handoff_id);
        self.caller.post(&path, &said).await?.expect(200, word)
    }

    /// The broker, with this agent's key.
    pub(super) const fn broker(&self) -> &Caller {
        &self.caller
    }

    /// Deliveries that arrived with a good signature.
    pub(super) fn received(&self) -> usize {
        self.desk.received.load(Ordering::Relaxed)
    }

    /// Requests that were turned away for their signature.
    pub(super) fn refused(&self) -> usize {
        self.desk.refused.load(Ordering::Relaxed)
    }
}

/// The webhook endpoint: believe the signature first, then look at the message, then answer.
async fn receive(
    State(desk): State<Arc<WebhookState>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let believed = verify(
        std::slice::from_ref(&desk.secret),
        header(HEADER_ID),
        header(HEADER_TIMESTAMP),
        header(HEADER_SIGNATURE),
        &body,
        SystemClock::default().now().seconds(),
        TOLERANCE,
    );
    if let Err(err) = believed {
        desk.refused.fetch_add(1, Ordering::Relaxed);
        return (StatusCode::UNAUTHORIZED, err.to_string()).into_response();
    }
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    desk.received.fetch_add(1, Ordering::Relaxed);
    let verdict = (desk.judge)(&message);
    let answer = match &verdict {
        DemoVerdict::Accept => axum::Json(json!({ "status": "ACCEPTED" })).into_response(),
        DemoVerdict::Later => StatusCode::ACCEPTED.into_response(),
        DemoVerdict::Reject(reason, details) => {
            axum::Json(json!({ "status": "REJECTED", "reason": reason, "details": details }))
                .into_response()
        }
    };
    let delivery = ReceivedDelivery {
        handoff_id: header("handoff-id").to_owned(),
        fencing_token: header("handoff-fencing-token").to_owned(),
        message,
        verdict,
    };
    // The story may have ended badly; the broker gets its answer all the same.
    let _ = desk.deliveries.send(delivery);
    answer
}
