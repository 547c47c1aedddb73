//! Receivers that carry out what they accepted, and write down under which fencing token.
//!
//! Their word goes by callback: nothing is carried out before the broker has taken the acceptance, and
//! what it refuses with 409 is not carried out. Each says its word until it is heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use handoffd::clock::random_fraction;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::receiver::{Delivery, Seen};
use crate::world::client;

/// Pause before a request is repeated that got no answer.
const AGAIN: Duration = Duration::from_millis(20);

/// An agent that carries out what it accepted. Clones share everything.
#[derive(Clone)]
pub struct Hands {
    id: String,
    key: Arc<OnceLock<String>>,
    bases: Vec<watch::Receiver<String>>,
    seen: Arc<Seen>,
    done: Arc<Done>,
    /// Handoffs that came, whose repeats are told by the handoff's id.
    known: Arc<Mutex<BTreeSet<String>>>,
    /// Whether what it accepted may be taken from it: only what it completed counts as carried out then.
    withdrawn: bool,
    http: reqwest::Client,
}

/// How often each handoff was carried out under each fencing token.
#[derive(Default)]
pub struct Done {
    times: Mutex<BTreeMap<(String, i64), usize>>,
    faults: Mutex<Vec<String>>,
}

impl Done {
    /// It was carried out once more.
    pub fn add(&self, handoff: &str, token: i64) {
        *self.times.lock().unwrap().entry((handoff.to_owned(), token)).or_default() += 1;
    }

    fn fault(&self, what: String) {
        self.faults.lock().unwrap().push(what);
    }

    /// How often a handoff was carried out, over all tokens.
    pub fn times(&self, handoff: &str) -> usize {
        let all = self.times.lock().unwrap();
        all.iter().filter(|((id, _), _)| id == handoff).map(|(_, times)| times).sum()
    }

    /// Handoffs that were carried out.
    pub fn count(&self) -> usize {
        self.times.lock().unwrap().len()
    }

    /// Answers that no receiver should get.
    pub fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }
}

impl Hands {
    /// At these brokers; its key is not known before it is registered.
    pub fn new(
        id: &str,
        bases: Vec<watch::Receiver<String>>,
        seen: &Arc<Seen>,
        done: &Arc<Done>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            key: Arc::default(),
            bases,
            seen: Arc::clone(seen),
            done: Arc::clone(done),
            known: Arc::default(),
            withdrawn: false,
            http: client(),
        }
    }

    /// One whose handoffs end when enough others have completed theirs.
    pub fn withdrawn(self) -> Self {
        Self { withdrawn: true, ..self }
    }

    /// Writes a delivery down, and carries out what comes for the first time.
    pub fn take(&self, delivery: Delivery) {
        self.seen.add(delivery.clone());
        if self.known.lock().unwrap().insert(delivery.handoff.clone()) {
            tokio::spawn(self.clone().carry_out(delivery.handoff, delivery.token));
        }
    }

    /// Writes a delivery by webhook down.
    pub fn note(&self, headers: &HeaderMap) -> Delivery {
        noted(&self.seen, headers)
    }

    /// Tells it its key.
    pub fn give_key(&self, key: &str) {
        self.key.set(key.to_owned()).unwrap();
    }

    fn key(&self) -> &str {
        self.key.get().expect("it was given its key before anything else")
    }

    /// Any of the brokers, as a client behind a load balancer would find.
    fn base(&self) -> String {
        let at = (random_fraction() * self.bases.len() as f64) as usize;
        self.bases[at.min(self.bases.len() - 1)].borrow().clone()
    }

    /// Says one word; `Some` once it was answered: whether it was taken.
    async fn say(&self, word: &str, handoff: &str, token: i64) -> Option<bool> {
        let said = self
            .http
            .post(format!("{}/handoffs/{handoff}/{word}", self.base()))
            .bearer_auth(self.key())
            .json(&json!({ "fencingToken": token }))
            .send()
            .await;
        match said.map(|answer| answer.status()) {
            Ok(StatusCode::OK) => Some(true),
            Ok(StatusCode::CONFLICT) => Some(false),
            Ok(StatusCode::SERVICE_UNAVAILABLE) | Err(_) => None,
            Ok(status) => {
                self.done.fault(format!("{word} of {handoff} was answered with {status}"));
                Some(false)
            }
        }
    }

    pub async fn heard(&self, word: &str, handoff: &str, token: i64) -> bool {
        loop {
            if let Some(taken) = self.say(word, handoff, token).await {
                return taken;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Completes what it has accepted, and writes down that the broker took it.
    pub async fn finish(&self, handoff: &str, token: i64) {
        if self.heard("complete", handoff, token).await {
            self.done.add(handoff, token);
        }
    }

    /// From the acceptance to the end.
    async fn carry_out(self, handoff: String, token: i64) {
        if self.heard("accept", &handoff, token).await {
            if self.withdrawn {
                return self.finish(&handoff, token).await;
            }
            self.done.add(&handoff, token);
            if !self.heard("complete", &handoff, token).await {
                self.done.fault(format!("{handoff} was accepted under {token}, its end refused"));
            }
        }
    }

    /// Takes webhooks, answers 202 and calls back; returns the URL. It lives as long as the case.
    pub async fn calling_back(&self) -> String {
        let hands = self.clone();
        let take = move |headers: HeaderMap| {
            hands.take(Delivery::of(&headers));
            async { StatusCode::ACCEPTED }
        };
        serving(axum::routing::post(take)).await
    }

    /// Pulls and carries out what it claims, until it is dropped.
    pub async fn pulling(self) {
        loop {
            for item in self.pull().await {
                let handoff = item["handoffId"].as_str().unwrap().to_owned();
                let token = item["fencingToken"].as_i64().unwrap();
                tokio::spawn(self.clone().carry_out(handoff, token));
            }
        }
    }

    /// The handoffs of one poll at any of the brokers; none, after a pause, if that broker is away.
    pub async fn pull(&self) -> Vec<Value> {
        let inbox = format!("{}/agents/{}/inbox?wait=1&max=5", self.base(), self.id);
        let answer = self.http.get(inbox).bearer_auth(self.key()).send().await;
        let page: Option<Value> = match answer {
            Ok(answer) if answer.status() == 200 => answer.json().await.ok(),
            _ => None,
        };
        let Some(mut page) = page else {
            tokio::time::sleep(AGAIN).await;
            return Vec::new();
        };
        let Value::Array(items) = page["items"].take() else { return Vec::new() };
        for item in &items {
            // Written down before it is accepted: the acceptance frees the next of its task.
            self.seen.add(Delivery {
                handoff: item["handoffId"].as_str().unwrap().to_owned(),
                attempt: item["attempt"].as_i64().unwrap(),
                token: item["fencingToken"].as_i64().unwrap(),
            });
        }
        items
    }
}

/// Takes webhooks and answers each the same; returns the URL. It lives as long as the case.
pub async fn answering(seen: &Arc<Seen>, status: StatusCode, body: Value) -> String {
    let seen = Arc::clone(seen);
    let take = move |headers: HeaderMap| {
        noted(&seen, &headers);
        let body = axum::Json(body.clone());
        async move { (status, body) }
    };
    serving(axum::routing::post(take)).await
}

/// Takes webhooks and accepts each after a pause, and none while it is held back.
#[derive(Clone)]
pub struct Slow {
    /// Each request that waits has a receiver of it.
    held: Arc<watch::Sender<bool>>,
}

impl Slow {
    pub fn new() -> Self {
        Self { held: Arc::new(watch::Sender::new(false)) }
    }

    /// Whether it is held back from now on.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Requests that wait for it to be let go: as many as brokers wait for their answer.
    pub fn waiting(&self) -> usize {
        self.held.receiver_count()
    }

    /// Serves; returns the URL. It lives as long as the case.
    pub async fn serve(&self, seen: &Arc<Seen>, pause: Duration) -> String {
        let (slow, seen) = (self.clone(), Arc::clone(seen));
        let take = move |headers: HeaderMap| {
            noted(&seen, &headers);
            let held = Arc::clone(&slow.held);
            async move {
                tokio::time::sleep(pause).await;
                held.subscribe().wait_for(|held| !held).await.expect("the case has a sender");
                axum::Json(json!({ "status": "ACCEPTED" }))
            }
        };
        serving(axum::routing::post(take)).await
    }
}

/// Takes whatever is posted, and writes nothing down.
pub async fn indifferent() -> String {
    serving(axum::routing::post(async || StatusCode::NO_CONTENT)).await
}

fn noted(seen: &Seen, headers: &HeaderMap) -> Delivery {
    let delivery = Delivery::of(headers);
    seen.add(delivery.clone());
    delivery
}

pub async fn serving(route: axum::routing::MethodRouter) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/", route);
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}
