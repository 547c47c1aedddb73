//! Brokers that die while handoffs fail: a verdict that is late at an inbox, a webhook that does not answer, and three
//! refusals that open a task for a person. However often what was under way is taken up again, the log has each failure
//! once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use handoffd::fault::Step;
use reqwest::Method;
use serde_json::{Value, json};

use super::RESTS_WITHIN;
use super::fleet::Fleet;
use super::rig::below;
use crate::kills::rounds;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Takes, World, client, message};

/// Rounds where `HANDOFFD_TEST_ROUNDS` says nothing: the two cases have half of the steps each then.
const ROUNDS: usize = 7;

/// A stride over the steps, from the first or the second.
const STRIDE: usize = 2;

/// The steps of a broker while handoffs fail.
const STEPS: [Step; 14] = [
    Step::CommitBegin,
    Step::CommitDecided,
    Step::CommitWritten,
    Step::CommitSealed,
    Step::CommitDone,
    Step::RollbackDecided,
    Step::RollbackDone,
    Step::HeadSign,
    Step::SendBegin,
    Step::InboxClaimed,
    Step::InboxLeased,
    Step::SweepFound,
    Step::SweepDone,
    Step::SettleBegin,
];

/// How often a step is passed before it is the end, at most: a round has some commits, three rollbacks, and one of
/// most else.
const fn most_passes(step: Step) -> f64 {
    match step {
        Step::CommitBegin
        | Step::CommitDecided
        | Step::CommitWritten
        | Step::CommitSealed
        | Step::CommitDone => 4.0,
        Step::RollbackDecided | Step::RollbackDone => 2.0,
        _ => 1.0,
    }
}

pub async fn f2_killed_while_handoffs_fail_each_failure_is_in_the_log_once(site: Arc<Site>) {
    let settings = [
        // Longer than a claim lives: what a dead broker handed out comes back to the inbox first.
        ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "2000"),
        ("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "1000"),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let mut fleet = Fleet::start(&site, settings, 1).await;
    let hangs = accepting(Arc::<Seen>::default(), Duration::from_mins(10)).await;
    let receivers = vec![("hangs", Takes::Webhook(hangs, 64)), ("puller", Takes::Inbox)];
    let world = World::new(fleet.first(), receivers).await;
    let offset = usize::from(site.side != Side::Sqlite);
    let rounds = rounds(ROUNDS);
    for round in 0..rounds {
        // Past the last, those that were left out.
        let place = offset + STRIDE * round + STRIDE * round / STEPS.len();
        let step = STEPS[place % STEPS.len()];
        fleet.kill(0).await;
        fleet.arm(0, step, below(most_passes(step)) as u32, "").await;
        let failing = Failing::new();
        failing.end(&mut fleet, &world, step).await;
        // If the round was too short for its step, the broker ends here.
        fleet.kill(0).await;
        fleet.revive(0).await;
        failing.judge(&fleet, step).await;
        site.verify().await;
    }
    let ends: usize = fleet.ends.values().sum();
    assert!(ends * 2 >= rounds, "{ends} of {rounds} rounds came to their step");
    println!("{:?}: {rounds} rounds, {ends} ends at {} steps", site.side, fleet.ends.len());
    fleet.stop().await;
    site.verify().await;
}

/// The handoffs that fail in one round.
struct Failing {
    /// To an inbox whose owner claims and says nothing.
    pulled: Value,
    /// To a webhook that does not answer.
    hung: Value,
    /// Refused by the gate, each time.
    refused: Value,
}

pub(super) async fn ask(
    base: &str,
    method: Method,
    path: &str,
    key: &str,
    body: &Value,
) -> Option<(u16, Value)> {
    let ask = client().request(method, format!("{base}{path}")).bearer_auth(key).json(body);
    let answer = ask.send().await.ok()?;
    Some((answer.status().as_u16(), answer.json().await.ok()?))
}

async fn get(base: &str, path: &str) -> Option<(u16, Value)> {
    ask(base, Method::GET, path, ADMIN_KEY, &json!({})).await
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap()
}

impl Failing {
    fn new() -> Self {
        let mut refused = message(&random_id().to_string(), None, "puller");
        refused.as_object_mut().unwrap().remove("remainingSubtasks");
        Self {
            pulled: message(&random_id().to_string(), None, "puller"),
            hung: message(&random_id().to_string(), None, "hangs"),
            refused,
        }
    }

    /// Asks for all of it, again where no answer came, until it has failed.
    async fn end(&self, fleet: &mut Fleet, world: &World, step: Step) {
        let deadline = tokio::time::Instant::now() + RESTS_WITHIN;
        let mut taken = [false; 2];
        loop {
            assert!(tokio::time::Instant::now() < deadline, "{}: no end", step.name());
            fleet.tend().await;
            let base = fleet.base();
            let mut expired = 0;
            for (one, taken) in [&self.pulled, &self.hung].into_iter().zip(&mut taken) {
                if !*taken {
                    let said = ask(&base, Method::POST, "/handoffs", &world.sender_key, one).await;
                    *taken = said.is_some_and(|(status, _)| matches!(status, 200 | 202));
                }
                let path = format!("/handoffs/{}", text(one, "handoffId"));
                let found = get(&base, &path).await;
                expired += usize::from(found.is_some_and(|(_, row)| row["status"] == "EXPIRED"));
            }
            let inbox = "/agents/puller/inbox?wait=0";
            ask(&base, Method::GET, inbox, &world.receivers["puller"], &json!({})).await;
            // Not once more than it takes: an answer that was lost may have counted.
            let opened = get(&base, &format!("/tasks/{}", text(&self.refused, "taskId"))).await;
            match opened {
                Some((200, _)) if expired == 2 => return,
                Some((404, _)) => {
                    let key = &world.sender_key;
                    let said = ask(&base, Method::POST, "/handoffs", key, &self.refused).await;
                    assert!(said.is_none_or(|(status, _)| matches!(status, 422 | 503)));
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Each failure is there once, in the log and in the counts.
    async fn judge(&self, fleet: &Fleet, step: Step) {
        let (base, step) = (fleet.base(), step.name());
        let (_, open) = get(&base, "/escalations?status=OPEN").await.unwrap();
        for (one, failures, wanted) in [
            (&self.pulled, 1, &[("HANDOFF", 1), ("EXPIRED", 1), ("ROLLED_BACK", 1)][..]),
            (&self.hung, 1, &[("HANDOFF", 1), ("EXPIRED", 1), ("ROLLED_BACK", 1)]),
            (&self.refused, 3, &[("REFUSED", 3), ("ROLLED_BACK", 1), ("ESCALATED", 1)]),
        ] {
            let id = text(one, "taskId");
            let (_, page) = get(&base, &format!("/tasks/{id}/trace")).await.unwrap();
            let mut kinds = BTreeMap::new();
            for record in page["records"].as_array().unwrap() {
                *kinds.entry(text(record, "kind")).or_insert(0) += 1;
            }
            assert_eq!(
                kinds,
                wanted.iter().copied().collect::<BTreeMap<_, _>>(),
                "after {step}: {page:#}"
            );
            assert_eq!(page["verification"]["ok"], true, "after {step}: {page:#}");
            let (_, task) = get(&base, &format!("/tasks/{id}")).await.unwrap();
            assert_eq!(task["failures"], failures, "after {step}: {task:#}");
            let asked = open["items"].as_array().unwrap().iter().filter(|row| row["taskId"] == id);
            let escalated = wanted.iter().filter(|(kind, _)| *kind == "ESCALATED").count();
            assert_eq!(asked.count(), escalated, "after {step}: {open:#}");
        }
    }
}
