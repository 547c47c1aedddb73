//! A receiver: a real HTTP server that keeps what it got and answers by script.

use std::collections::VecDeque;
use std::io::Read;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::harness::within;

/// One attempt as it came in.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub headers: HeaderMap,
    pub body: Value,
}

impl Delivery {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn handoff(&self) -> String {
        self.body["handoffId"].as_str().unwrap().to_owned()
    }

    pub fn attempt(&self) -> u32 {
        self.header("handoff-attempt").parse().unwrap()
    }

    pub fn token(&self) -> i64 {
        self.header("handoff-fencing-token").parse().unwrap()
    }
}

type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;
type Script = Arc<dyn Fn(Delivery) -> Answering + Send + Sync>;

/// The forbidden things that all receivers of a case saw.
pub type Complaints = Arc<Mutex<Vec<String>>>;

/// A server on port 0.
pub struct Receiver {
    /// Its address.
    pub url: String,
    secrets: Arc<Mutex<Vec<String>>>,
    got: tokio::sync::Mutex<mpsc::UnboundedReceiver<Delivery>>,
    all: Arc<Mutex<Vec<Delivery>>>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// An answer with a JSON body.
pub fn answer(status: u16, body: &Value) -> Response<Body> {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// An answer without a body.
pub fn bare(status: u16) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

/// `{"status":"ACCEPTED"}`.
pub fn accepted() -> Response<Body> {
    answer(200, &json!({ "status": "ACCEPTED" }))
}

/// A body without its content coding.
pub fn decoded(headers: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    match headers.get(header::CONTENT_ENCODING).map(|name| name.to_str().unwrap()) {
        None => Some(body.to_vec()),
        Some("gzip") => {
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(body).read_to_end(&mut plain).ok()?;
            Some(plain)
        }
        Some("zstd") => zstd::decode_all(body).ok(),
        Some(_) => None,
    }
}

impl Receiver {
    /// Listens and answers as the function says.
    pub async fn start<F>(
        complaints: Complaints,
        script: impl Fn(Delivery) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, complaints, Arc::new(move |delivery| Box::pin(script(delivery))))
    }

    /// Listens on an address that is already bound.
    pub fn on(listener: TcpListener, complaints: Complaints, script: Script) -> Self {
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let secrets = Arc::new(Mutex::new(Vec::<String>::new()));
        let all = Arc::new(Mutex::new(Vec::new()));
        let (tell, got) = mpsc::unbounded_channel();
        let (trusted, kept) = (Arc::clone(&secrets), Arc::clone(&all));
        let app = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            let (trusted, kept, tell) = (Arc::clone(&trusted), Arc::clone(&kept), tell.clone());
            let (script, complaints) = (Arc::clone(&script), Arc::clone(&complaints));
            async move {
                // As the HTTP servers of receivers do, before an application sees a byte.
                let Some(body) = decoded(&headers, &body) else {
                    complaints.lock().unwrap().push("a body that does not decode".to_owned());
                    return bare(400);
                };
                let known = trusted.lock().unwrap().clone();
                let valid = known.iter().any(|secret| {
                    let webhook = standardwebhooks::Webhook::new(secret).unwrap();
                    webhook.verify(&body, &headers).is_ok()
                });
                if !valid {
                    complaints.lock().unwrap().push(format!("no valid signature: {headers:?}"));
                    return bare(StatusCode::UNAUTHORIZED.as_u16());
                }
                let Ok(body) = serde_json::from_slice(&body) else {
                    complaints.lock().unwrap().push("a delivery that is not JSON".to_owned());
                    return bare(400);
                };
                let delivery = Delivery { headers, body };
                kept.lock().unwrap().push(delivery.clone());
                let _ = tell.send(delivery.clone());
                script(delivery).await
            }
        });
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Self { url, secrets, got: tokio::sync::Mutex::new(got), all, server }
    }

    /// Says one thing after the other, and then yes.
    pub async fn saying(complaints: Complaints, script: Vec<Response<Body>>) -> Self {
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        Self::start(complaints, move |_| {
            let next = script.lock().unwrap().pop_front();
            async move { next.unwrap_or_else(accepted) }
        })
        .await
    }

    /// Takes signatures under this secret, besides those it took before.
    pub fn trust(&self, secret: &str) {
        self.secrets.lock().unwrap().push(secret.to_owned());
    }

    /// Takes signatures under this secret only.
    pub fn trust_only(&self, secret: &str) {
        *self.secrets.lock().unwrap() = vec![secret.to_owned()];
    }

    /// The next attempt, awaited.
    pub async fn next(&self) -> Delivery {
        let mut got = self.got.lock().await;
        within("a delivery", got.recv()).await.unwrap()
    }

    /// Every attempt so far.
    pub fn all(&self) -> Vec<Delivery> {
        self.all.lock().unwrap().clone()
    }
}
