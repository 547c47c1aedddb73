//! A service outside that the broker asks, and that says what a case wants: a classifier, a matcher.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::Value;
use tokio::sync::Semaphore;

/// How it behaves.
#[derive(Debug, Clone)]
pub enum Manner {
    Says(Value),
    /// One answer after the other, and then the last one.
    SaysInTurn(Vec<Value>),
    Fails,
    Babbles,
    Sleeps,
    /// Says it once the semaphore has a permit.
    Waits(Arc<Semaphore>, Value),
}

/// A service on port 0, and what it was asked.
pub struct Service {
    pub url: String,
    asked: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.server.abort();
    }
}

type Kept = (Manner, Arc<Mutex<Vec<(HeaderMap, Value)>>>);

async fn respond(
    State((manner, asked)): State<Kept>,
    headers: HeaderMap,
    body: Json<Value>,
) -> Response {
    let turn = {
        let mut asked = asked.lock().unwrap();
        asked.push((headers, body.0));
        asked.len() - 1
    };
    match manner {
        Manner::Says(answer) => Json(answer).into_response(),
        Manner::SaysInTurn(answers) => {
            Json(answers[turn.min(answers.len() - 1)].clone()).into_response()
        }
        Manner::Fails => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Manner::Babbles => "well, who knows".into_response(),
        Manner::Sleeps => std::future::pending().await,
        Manner::Waits(gate, answer) => {
            gate.acquire().await.unwrap().forget();
            Json(answer).into_response()
        }
    }
}

impl Service {
    pub async fn start(manner: Manner) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ask", listener.local_addr().unwrap());
        let asked = Arc::default();
        let app = Router::new().fallback(respond).with_state((manner, Arc::clone(&asked)));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Self { url, asked, server }
    }

    pub fn asked(&self) -> Vec<(HeaderMap, Value)> {
        self.asked.lock().unwrap().clone()
    }
}
