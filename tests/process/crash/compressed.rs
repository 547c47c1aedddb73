//! Messages over their receiver's window under load, and what must hold of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::http::HeaderMap;
use handoffd::clock::random_id;
use serde_json::{Value, json};

use super::caller::Caller;
use super::hands::{Hands, serving};
use super::rig::below;
use super::together::Tally;
use crate::world::message;

/// Turns of a message, at least: more than the receiver's window.
const TURNS: usize = 60;

/// A message over its receiver's window, as its sender knows of it.
#[derive(Debug, Clone)]
pub struct SentLong {
    pub task: String,
    pub turns: Vec<Value>,
}

/// The long messages of a case by handoff.
pub type SentLongs = Arc<Mutex<BTreeMap<String, SentLong>>>;

/// The messages that the receiver got, by handoff: the body of each attempt.
pub type Bodies = Arc<Mutex<BTreeMap<String, Vec<Value>>>>;

/// Sends one message over the window of `target`.
pub async fn send(caller: &Caller, sent: &SentLongs, tally: &Tally, target: &str) {
    let task = random_id().to_string();
    let mut message = message(&task, None, target);
    let turns: Vec<Value> = (0..TURNS + below(20.0) as usize)
        .map(|at| {
            let said = format!("I went through part {at} once more, and it reads well so far.");
            json!({ "role": "user", "content": said })
        })
        .collect();
    message["conversationHistoryVerbatim"] = json!(turns);
    let (status, answer) = caller.say("/handoffs", &message).await;
    assert_eq!(status, 202, "{answer}");
    assert_eq!(answer["context"]["action"], "compress", "{answer}");
    tally.add(1);
    let id = message["handoffId"].as_str().unwrap().to_owned();
    sent.lock().unwrap().insert(id, SentLong { task, turns });
}

/// Accepts what comes by webhook and keeps it; returns its URL. It lives as long as the case.
pub async fn keeping(hands: &Hands, bodies: &Bodies) -> String {
    let (hands, bodies) = (hands.clone(), Arc::clone(bodies));
    let take = move |headers: HeaderMap, Json(body): Json<Value>| {
        let delivery = hands.note(&headers);
        bodies.lock().unwrap().entry(delivery.handoff).or_default().push(body);
        async { Json(json!({ "status": "ACCEPTED" })) }
    };
    serving(axum::routing::post(take)).await
}

/// The evidence of a compressed handoff, once it is at rest.
pub struct LongEvidence<'a> {
    /// The task's trace.
    pub page: &'a Value,
    /// The message that the broker says its receiver was sent, whose commitment the trace's verification opens.
    pub kept: &'a Value,
    /// The turns of the original, as its receiver reads them.
    pub turns: &'a Value,
    /// The body of each attempt.
    pub bodies: &'a [Value],
}

/// The faults of a compressed handoff.
pub fn of_a_long(sent: &SentLong, has: &LongEvidence<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let records = has.page["records"].as_array().unwrap().iter();
    let kinds: Vec<&str> = records.filter_map(|record| record["kind"].as_str()).collect();
    if kinds != ["HANDOFF", "COMPRESSED", "ACCEPTED"] {
        faults.push(format!("its records are {kinds:?}"));
    }
    if has.page["verification"]["ok"] != true {
        faults.push(format!("its evidence does not verify: {}", has.page["verification"]));
    }
    if has.kept["historyStrategy"] != "compressed" {
        faults.push(format!("what was kept is not compressed: {}", has.kept["historyStrategy"]));
    }
    for body in has.bodies.iter().filter(|body| *body != has.kept) {
        faults.push(format!("its receiver got what no record commits to: {body}"));
    }
    if has.bodies.is_empty() {
        faults.push("it reached no agent".to_owned());
    }
    if *has.turns != json!(sent.turns) {
        faults.push(format!("the original is not readable: {}", has.turns));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_breach_of_a_compression_is_found() {
        let turns = vec![json!({ "role": "user", "content": "a" })];
        let sent = SentLong { task: "t".to_owned(), turns: turns.clone() };
        let page = |kinds: &[&str], ok: bool| {
            let records: Vec<Value> = kinds.iter().map(|kind| json!({ "kind": kind })).collect();
            json!({ "records": records, "verification": { "ok": ok } })
        };
        let well = page(&["HANDOFF", "COMPRESSED", "ACCEPTED"], true);
        let (small, turns) = (json!({ "historyStrategy": "compressed" }), json!(turns));
        let twice = page(&["HANDOFF", "COMPRESSED", "COMPRESSED", "ACCEPTED"], true);
        let (bad, plain) = (page(&["HANDOFF", "COMPRESSED", "ACCEPTED"], false), json!({}));
        let (one, none) = (std::slice::from_ref(&small), &[][..]);
        let is = |page, kept, turns, bodies| {
            of_a_long(&sent, &LongEvidence { page, kept, turns, bodies })
        };
        assert_eq!(is(&well, &small, &turns, one), Vec::<String>::new());
        for (faults, named) in [
            (is(&twice, &small, &turns, one), "its records are"),
            (is(&bad, &small, &turns, one), "does not verify"),
            (is(&well, &plain, &turns, std::slice::from_ref(&plain)), "is not compressed"),
            (is(&well, &small, &turns, &[small.clone(), plain.clone()]), "no record commits to"),
            (is(&well, &small, &turns, none), "reached no agent"),
            (is(&well, &small, &plain, one), "not readable"),
        ] {
            assert!(faults.iter().any(|fault| fault.contains(named)), "{named}: {faults:?}");
        }
    }
}
