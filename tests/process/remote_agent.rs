//! An agent that speaks A2A 1.0 by JSON-RPC and knows nothing of the broker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use handoffd::clock::random_id;
use serde_json::{Value, json};

/// An agent that completes each task a moment after it took it, and knows nothing of repeated messages.
#[derive(Clone)]
pub struct RemoteAgent {
    pub url: String,
    /// Tasks with the number of looks at them.
    tasks: Arc<Mutex<BTreeMap<String, (Value, u32)>>>,
    /// No task comes to its end while it is set.
    busy: Arc<AtomicBool>,
}

impl RemoteAgent {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let agent = Self { url, tasks: Arc::default(), busy: Arc::default() };
        let app = Router::new().fallback(respond).with_state(agent.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        agent
    }

    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// How many tasks a message made.
    pub fn tasks_of(&self, message: &str) -> usize {
        self.states_of(message).len()
    }

    /// The states of the tasks that a message made.
    pub fn states_of(&self, message: &str) -> Vec<String> {
        let tasks = self.tasks.lock().unwrap();
        let own = tasks.values().filter(|(task, _)| task["history"][0]["messageId"] == message);
        own.map(|(task, _)| task["status"]["state"].as_str().unwrap().to_owned()).collect()
    }
}

async fn respond(State(agent): State<RemoteAgent>, uri: Uri, body: String) -> axum::Json<Value> {
    if uri.path().ends_with("agent-card.json") {
        let interface = json!({ "url": format!("{}/rpc", agent.url), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
        return axum::Json(
            json!({ "name": "remote", "supportedInterfaces": [interface], "capabilities": {} }),
        );
    }
    let asked: Value = serde_json::from_str(&body).unwrap();
    let params = &asked["params"];
    let mut tasks = agent.tasks.lock().unwrap();
    let result = match asked["method"].as_str().unwrap() {
        "SendMessage" => {
            let (id, message) = (random_id().to_string(), &params["message"]);
            let status = json!({ "state": "TASK_STATE_WORKING" });
            let task = json!({ "id": id, "contextId": message["contextId"], "status": status, "history": [message] });
            tasks.insert(id, (task.clone(), 0));
            json!({ "task": task })
        }
        "GetTask" => {
            if let Some((task, looks)) = tasks.get_mut(params["id"].as_str().unwrap()) {
                *looks += 1;
                let open = task["status"]["state"] == "TASK_STATE_WORKING";
                if *looks > 2 && open && !agent.busy.load(Ordering::Relaxed) {
                    task["status"]["state"] = "TASK_STATE_COMPLETED".into();
                    task["artifacts"] =
                        json!([{ "artifactId": "a", "parts": [{ "text": "done" }] }]);
                }
                task.clone()
            } else {
                let error = json!({ "code": -32001, "message": "no such task" });
                return axum::Json(json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
            }
        }
        "ListTasks" => {
            let own = |task: &&Value| task["contextId"] == params["contextId"];
            let listed: Vec<&Value> = tasks.values().map(|(task, _)| task).filter(own).collect();
            json!({ "tasks": listed })
        }
        "CancelTask" => {
            let (task, _) = tasks.get_mut(params["id"].as_str().unwrap()).unwrap();
            task["status"]["state"] = "TASK_STATE_CANCELED".into();
            task.clone()
        }
        other => panic!("{other}"),
    };
    axum::Json(json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}
