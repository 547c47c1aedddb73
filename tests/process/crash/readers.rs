//! Receivers of handoffs in pieces: one that takes chunks by webhook, and one that pulls. Both complete after the close.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::caller::Caller;
use super::hands::{Hands, serving};
use super::rig::below;

/// One chunk of eight is not taken the first time.
const NOT_TAKEN: f64 = 0.125;

/// The webhook receiver's work on a chunk, in seconds at most.
const WORK: f64 = 0.06;

/// One chunk of six is work for `LONG_WORK` seconds.
const LONG: f64 = 1.0 / 6.0;

/// Longer than a broker sends before it writes its line: behind such a chunk it writes the line, however fast the machine.
const LONG_WORK: f64 = 0.3;

/// A chunk that a receiver took.
#[derive(Debug, Clone)]
pub struct HeardChunk {
    pub seq: i64,
    pub body: Value,
}

/// The streams that the receivers of a case got, by handoff and in order.
#[derive(Default)]
pub struct HeardStreams {
    messages: Mutex<BTreeMap<String, Vec<Value>>>,
    chunks: Mutex<BTreeMap<String, Vec<HeardChunk>>>,
}

impl HeardStreams {
    fn message(&self, handoff: &str, message: &Value) {
        let mut all = self.messages.lock().unwrap();
        all.entry(handoff.to_owned()).or_default().push(message.clone());
    }

    fn chunk(&self, handoff: &str, seq: i64, body: &Value) {
        let chunk = HeardChunk { seq, body: body.clone() };
        self.chunks.lock().unwrap().entry(handoff.to_owned()).or_default().push(chunk);
    }

    /// The messages that came for a handoff, one for each attempt.
    pub fn messages(&self, handoff: &str) -> Vec<Value> {
        self.messages.lock().unwrap().get(handoff).cloned().unwrap_or_default()
    }

    /// The chunks that its receiver took.
    pub fn chunks(&self, handoff: &str) -> Vec<HeardChunk> {
        self.chunks.lock().unwrap().get(handoff).cloned().unwrap_or_default()
    }
}

/// Whether the message came without its chunks.
pub fn is_open(message: &Value) -> bool {
    message["stream"]["open"] == true
}

/// Takes messages and their chunks, and accepts at once; returns its URL. It lives as long as the case.
pub async fn listening(hands: &Hands, heard: &Arc<HeardStreams>) -> String {
    let (hands, heard) = (hands.clone(), Arc::clone(heard));
    let completing = Arc::new(Mutex::new(BTreeSet::new()));
    let take = move |headers: HeaderMap, Json(body): Json<Value>| {
        let (hands, heard, completing) =
            (hands.clone(), Arc::clone(&heard), Arc::clone(&completing));
        async move { take(&hands, &heard, &completing, &headers, &body).await }
    };
    serving(axum::routing::post(take)).await
}

async fn take(
    hands: &Hands,
    heard: &HeardStreams,
    completing: &Mutex<BTreeSet<String>>,
    headers: &HeaderMap,
    body: &Value,
) -> Response {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (handoff, token) = (text("handoff-id"), text("handoff-fencing-token").parse().unwrap());
    let whole = if headers.contains_key("handoff-chunk") {
        let work = if below(1.0) < LONG { LONG_WORK } else { below(WORK) };
        tokio::time::sleep(Duration::from_secs_f64(work)).await;
        if below(1.0) < NOT_TAKEN {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        heard.chunk(&handoff, text("handoff-chunk").parse().unwrap(), body);
        body["close"] == true
    } else {
        hands.note(headers);
        heard.message(&handoff, body);
        !is_open(body)
    };
    if whole && completing.lock().unwrap().insert(handoff.clone()) {
        let hands = hands.clone();
        tokio::spawn(async move { hands.finish(&handoff, token).await });
    }
    Json(json!({ "status": "ACCEPTED" })).into_response()
}

/// Pulls messages and reads their chunks page by page, until the case ends.
pub async fn reading(hands: Hands, caller: Caller, heard: Arc<HeardStreams>) {
    loop {
        for item in hands.pull().await {
            let (hands, caller, heard) = (hands.clone(), caller.clone(), Arc::clone(&heard));
            tokio::spawn(async move { read(&hands, &caller, &heard, &item).await });
        }
    }
}

async fn read(hands: &Hands, caller: &Caller, heard: &HeardStreams, item: &Value) {
    let handoff = item["handoffId"].as_str().unwrap();
    let token = item["fencingToken"].as_i64().unwrap();
    heard.message(handoff, &item["message"]);
    if !hands.heard("accept", handoff, token).await {
        return;
    }
    if !is_open(&item["message"]) {
        return hands.finish(handoff, token).await;
    }
    let mut from = 1;
    loop {
        let path = format!("/handoffs/{handoff}/chunks?from={from}&wait=1&limit=3");
        let (status, page) = caller.get(&path).await;
        assert_eq!(status, 200, "{page}");
        for chunk in page["items"].as_array().unwrap() {
            heard.chunk(handoff, chunk["seq"].as_i64().unwrap(), chunk);
            if chunk["abort"] == true {
                return;
            }
            if chunk["close"] == true {
                return hands.finish(handoff, token).await;
            }
        }
        from = page["next"].as_i64().unwrap();
    }
}
