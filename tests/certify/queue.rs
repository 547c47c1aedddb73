//! Two of the smallest systems that take tasks: a queue with a worker, by HTTP in a form of its own, which sends each job to the kit, again
//! where it failed; and an A2A agent that sends the task at once and answers with a message.

use std::collections::HashMap;
use std::net::TcpListener as Std;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

type Jobs = Arc<Mutex<HashMap<u64, &'static str>>>;

/// A queue that runs until it is dropped.
pub struct Queue {
    pub url: String,
    /// The mapping file by which the kit drives the queue.
    pub map: String,
    /// The mapping file by which it drives the agent.
    pub agent_map: String,
    pub folder: TempDir,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for Queue {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn show(State(jobs): State<Jobs>, Path(id): Path<u64>) -> (StatusCode, Json<Value>) {
    match jobs.lock().unwrap().get(&id) {
        Some(state) => (StatusCode::OK, Json(json!({ "job": { "state": state } }))),
        None => (StatusCode::NOT_FOUND, Json(Value::Null)),
    }
}

/// Sends each job to the receiver until it takes it.
async fn work(jobs: Jobs, mut queue: mpsc::UnboundedReceiver<(u64, Value)>, receiver: String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    while let Some((number, job)) = queue.recv().await {
        while !client.post(&receiver).json(&job).send().await.unwrap().status().is_success() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        jobs.lock().unwrap().insert(number, "finished");
    }
}

pub async fn start() -> Queue {
    // Another case may have set it before; both set the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let receiver = Std::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let jobs = Jobs::default();
    let (add, queue) = mpsc::unbounded_channel();
    let submit = {
        let jobs = jobs.clone();
        move |Json(job): Json<Value>| async move {
            let mut jobs = jobs.lock().unwrap();
            let number = jobs.len() as u64;
            jobs.insert(number, "waiting");
            let _ = add.send((number, job));
            (StatusCode::CREATED, Json(json!({ "job": { "number": number } })))
        }
    };
    let agent = {
        let (client, receiver) =
            (reqwest::Client::builder().no_proxy().build().unwrap(), format!("http://{receiver}/"));
        move |Json(asked): Json<Value>| async move {
            let sent = client.post(receiver).json(&asked["message"]).send().await.unwrap();
            assert!(sent.status().is_success());
            let parts = json!([{ "text": "done" }]);
            Json(json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": parts } }))
        }
    };
    let router = Router::new()
        .route("/message:send", post(agent))
        .route("/queue", post(submit).get(|| async { "alive" }))
        .route("/queue/{id}", get(show))
        .with_state(jobs.clone());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let working = tokio::spawn(work(jobs, queue, format!("http://{receiver}/")));
    let map = format!(
        "speaks: http\nsubmit: /queue\nhandoff: '/queue/{{id}}'\nalive: /queue\nid: /job/number\nstatus: /job/state\n\
         body: {{payload: {{ref: '{{id}}', text: '{{text}}', state: '{{state}}'}}}}\n\
         statuses: {{waiting: PENDING, finished: COMPLETED}}\nreceiver: {{listen: '{receiver}', id: /payload/ref}}\n"
    );
    let agent_map =
        format!("speaks: a2a\nalive: /queue\nreceiver: {{listen: '{receiver}', id: /messageId}}\n");
    Queue { url, map, agent_map, folder: tempfile::tempdir().unwrap(), tasks: [serving, working] }
}
