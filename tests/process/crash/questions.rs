//! Brokers that die while a receiver asks its sender and is answered. However often a request that got no answer is sent
//! again, the log has each question and each answer once, and the handoff goes on to its end.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use handoffd::fault::Step;
use reqwest::Method;
use serde_json::{Value, json};

use super::RESTS_WITHIN;
use super::failures::ask as send;
use super::fleet::Fleet;
use super::rig::below;
use crate::kills::rounds;
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Takes, World, message};

/// Rounds where `HANDOFFD_TEST_ROUNDS` says nothing.
const ROUNDS: usize = 4;

/// The steps of a broker on the way from a question to the end.
const STEPS: [Step; 5] = [
    Step::CommitBegin,
    Step::CommitDecided,
    Step::CommitWritten,
    Step::CommitSealed,
    Step::CommitDone,
];

/// Commits of one round: submission, claim, acceptance, two questions and answers, completion.
const COMMITS: f64 = 8.0;

pub async fn killed_while_receivers_ask_each_question_is_in_the_log_once(site: Arc<Site>) {
    let mut fleet = Fleet::start(&site, Vec::new(), 1).await;
    let world = World::new(fleet.first(), vec![("puller", Takes::Inbox)]).await;
    let offset = usize::from(site.side != Side::Sqlite);
    let rounds = rounds(ROUNDS);
    for round in 0..rounds {
        let step = STEPS[(offset + round) % STEPS.len()];
        fleet.kill(0).await;
        fleet.arm(0, step, below(COMMITS) as u32, "").await;
        let handoff = message(&random_id().to_string(), None, "puller");
        Talk { fleet: &mut fleet, world: &world, handoff: &handoff, step }.through().await;
        fleet.kill(0).await;
        fleet.revive(0).await;
        judge(&fleet, &handoff, step).await;
        site.verify().await;
    }
    let ends: usize = fleet.ends.values().sum();
    assert!(ends * 2 >= rounds, "{ends} of {rounds} rounds came to their step");
    fleet.stop().await;
    site.verify().await;
}

/// A handoff whose receiver asks twice.
struct Talk<'a> {
    fleet: &'a mut Fleet,
    world: &'a World,
    handoff: &'a Value,
    step: Step,
}

impl Talk<'_> {
    /// Sends a request until it is answered well.
    async fn until_done(&mut self, path: &str, key: &str, body: &Value) -> Value {
        let deadline = tokio::time::Instant::now() + RESTS_WITHIN;
        loop {
            let step = self.step.name();
            assert!(tokio::time::Instant::now() < deadline, "{step}: no answer to {path}");
            self.fleet.tend().await;
            match send(&self.fleet.base(), Method::POST, path, key, body).await {
                Some((200 | 202, said)) => return said,
                None | Some((503, _)) => tokio::time::sleep(Duration::from_millis(20)).await,
                Some(other) => panic!("{step}: {path}: {other:?}"),
            }
        }
    }

    async fn through(mut self) {
        let sender = self.world.sender_key.clone();
        let receiver = self.world.receivers["puller"].clone();
        let id = self.handoff["handoffId"].as_str().unwrap().to_owned();
        let own = |verb: &str| format!("/handoffs/{id}/{verb}");
        self.until_done("/handoffs", &sender, self.handoff).await;
        // A claim of a broker that died comes back to the inbox, with another token.
        let mut token = Value::Null;
        let deadline = tokio::time::Instant::now() + RESTS_WITHIN;
        while token.is_null() {
            assert!(tokio::time::Instant::now() < deadline, "{}: no claim", self.step.name());
            self.fleet.tend().await;
            let inbox = "/agents/puller/inbox?wait=1";
            let page = send(&self.fleet.base(), Method::GET, inbox, &receiver, &json!({})).await;
            if let Some((200, page)) = page {
                token = page["items"][0]["fencingToken"].clone();
            }
        }
        self.until_done(&own("accept"), &receiver, &json!({ "fencingToken": token })).await;
        for number in 1..=2 {
            let question =
                json!({ "question": format!("question {number}?"), "fencingToken": token });
            self.until_done(&own("ask"), &receiver, &question).await;
            let answer = json!({ "answer": format!("answer {number}"), "number": number });
            self.until_done(&own("answer"), &sender, &answer).await;
        }
        let done = json!({ "result": "done", "fencingToken": token });
        self.until_done(&own("complete"), &receiver, &done).await;
    }
}

/// Each question and each answer is there once, in order, and the handoff came to its end.
async fn judge(fleet: &Fleet, handoff: &Value, step: Step) {
    let path = format!("/tasks/{}/trace", handoff["taskId"].as_str().unwrap());
    let page = send(&fleet.base(), Method::GET, &path, ADMIN_KEY, &json!({})).await.unwrap().1;
    let said: Vec<(&str, Option<i64>)> = page["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| (record["kind"].as_str().unwrap(), record["question"].as_i64()))
        .collect();
    let expected = [
        ("HANDOFF", None),
        ("ACCEPTED", None),
        ("INPUT_REQUESTED", Some(1)),
        ("INPUT_PROVIDED", Some(1)),
        ("INPUT_REQUESTED", Some(2)),
        ("INPUT_PROVIDED", Some(2)),
        ("COMPLETED", None),
    ];
    assert_eq!(said, expected, "after {}: {page:#}", step.name());
    assert_eq!(page["verification"]["ok"], true, "after {}: {page:#}", step.name());
}
