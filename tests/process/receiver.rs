//! Receivers: real HTTP servers that write down what comes, and one that pulls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::world::client;

/// One delivery as a receiver saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivery {
    pub handoff: String,
    pub attempt: i64,
    pub token: i64,
}

impl Delivery {
    /// As the headers of a webhook tell.
    pub fn of(headers: &HeaderMap) -> Self {
        Self {
            handoff: headers["handoff-id"].to_str().unwrap().to_owned(),
            attempt: number(headers, "handoff-attempt"),
            token: number(headers, "handoff-fencing-token"),
        }
    }
}

/// Everything that reached any receiver of a case, in order.
#[derive(Default)]
pub struct Seen(Mutex<Vec<Delivery>>);

impl Seen {
    pub fn add(&self, delivery: Delivery) {
        self.0.lock().unwrap().push(delivery);
    }

    /// The last such entry was no delivery after all.
    pub fn withdraw(&self, delivery: &Delivery) {
        let mut all = self.0.lock().unwrap();
        if let Some(place) = all.iter().rposition(|one| one == delivery) {
            all.remove(place);
        }
    }

    pub fn all(&self) -> Vec<Delivery> {
        self.0.lock().unwrap().clone()
    }

    pub fn handoffs(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().iter().map(|delivery| delivery.handoff.clone()).collect()
    }

    /// An attempt is made once, and a handoff keeps its token over all its attempts.
    pub fn check_attempts(&self) {
        let mut tokens = BTreeMap::new();
        let mut attempts = BTreeSet::new();
        for delivery in self.all() {
            let token = *tokens.entry(delivery.handoff.clone()).or_insert(delivery.token);
            assert_eq!(token, delivery.token, "{delivery:?}: another token than before");
            assert!(
                attempts.insert((delivery.handoff.clone(), delivery.attempt)),
                "{delivery:?}: an attempt was made twice"
            );
        }
    }
}

#[derive(Clone)]
struct Behaviour {
    seen: Arc<Seen>,
    pause: Duration,
}

fn number(headers: &HeaderMap, name: &str) -> i64 {
    headers[name].to_str().unwrap().parse().unwrap()
}

async fn take(State(behaviour): State<Behaviour>, headers: HeaderMap) -> axum::Json<Value> {
    behaviour.seen.add(Delivery::of(&headers));
    tokio::time::sleep(behaviour.pause).await;
    axum::Json(json!({ "status": "ACCEPTED" }))
}

/// A receiver that accepts after `pause`; returns its URL. It lives as long as the case.
pub async fn accepting(seen: Arc<Seen>, pause: Duration) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/handoffs", listener.local_addr().unwrap());
    let app = axum::Router::new()
        .route("/handoffs", axum::routing::post(take))
        .with_state(Behaviour { seen, pause });
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// Pulls and accepts until `base` has no more senders; brokers that are gone are asked again.
pub async fn pulling(base: watch::Receiver<String>, id: String, key: String, seen: Arc<Seen>) {
    let http = client();
    while base.has_changed().is_ok() {
        let at = base.borrow().clone();
        let inbox = format!("{at}/agents/{id}/inbox?wait=2&max=20");
        let answer = http.get(inbox).bearer_auth(&key).send().await;
        let page: Option<Value> = match answer {
            Ok(answer) if answer.status() == 200 => answer.json().await.ok(),
            _ => None,
        };
        let Some(page) = page else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for item in page["items"].as_array().unwrap() {
            let handoff = item["handoffId"].as_str().unwrap();
            let delivery = Delivery {
                handoff: handoff.to_owned(),
                attempt: item["attempt"].as_i64().unwrap(),
                token: 0,
            };
            // Written down before it is accepted: the acceptance frees the next of its task.
            seen.add(delivery.clone());
            // A broker that dies now leaves the claim to run out: it comes again.
            let accepted = || {
                http.post(format!("{at}/handoffs/{handoff}/accept"))
                    .bearer_auth(&key)
                    .json(&json!({ "fencingToken": item["fencingToken"] }))
                    .send()
            };
            let mut said = accepted().await;
            // A database that went away may have committed it: asking again finds out.
            while said.as_ref().is_ok_and(|said| said.status() == 503) {
                tokio::time::sleep(Duration::from_millis(20)).await;
                said = accepted().await;
            }
            let taken = match said {
                Ok(said) => said.status() == 200,
                // The receiver may have got a request that was sent.
                Err(err) => !err.is_connect(),
            };
            if !taken {
                seen.withdraw(&delivery);
            }
        }
    }
}
