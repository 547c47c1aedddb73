//! Handoffs to several receivers under load, and what must hold of each group.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use handoffd::clock::random_id;
use handoffd_domain::handoff::HandoffStatus;
use serde_json::{Value, json};

use super::caller::Caller;
use super::hands::Done;
use super::laws::{handoff_event, status};
use super::rig::below;
use super::together::Tally;
use crate::world::message;

/// A list of receivers and how it is joined.
#[derive(Debug, Clone, Copy)]
pub struct Fork {
    pub receivers: [&'static str; 3],
    pub join: &'static str,
    pub on_reject: &'static str,
}

const fn fork(receivers: [&'static str; 3], join: &'static str, on_reject: &'static str) -> Fork {
    Fork { receivers, join, on_reject }
}

/// Groups that complete, that fail for one refusal, and that fail because too few are left.
const FORKS: [Fork; 7] = [
    fork(["doer", "taker", "swift"], "all", "rollback"),
    fork(["doer", "taker", "naysayer"], "quorum:2", "drop"),
    fork(["swift", "naysayer", "taker"], "all", "rollback"),
    fork(["swift", "doer", "taker"], "any", "drop"),
    fork(["naysayer", "mute", "doer"], "quorum:2", "drop"),
    fork(["doer", "mute", "taker"], "all", "drop"),
    fork(["taker", "swift", "doer"], "quorum:2", "rollback"),
];

/// One submission of three that got no answer is not repeated.
const ABANDONED: f64 = 1.0 / 3.0;

/// A message to several receivers, as its sender knows of it.
#[derive(Debug, Clone)]
pub struct SentGroup {
    pub task: String,
    pub fork: Fork,
    /// The branches that the 202 names; `None` where no answer came and the sender gave up.
    pub branches: Option<Vec<String>>,
}

/// The groups of a case.
pub type SentGroups = Arc<Mutex<Vec<SentGroup>>>;

/// Sends one message to several receivers.
pub async fn send(caller: &Caller, sent: &SentGroups, tally: &Tally, turn: usize) {
    let fork = FORKS[turn % FORKS.len()];
    let task = random_id().to_string();
    let mut message = message(&task, None, fork.receivers[0]);
    message["schemaVersion"] = json!("2.2");
    message["receiverList"] = json!(fork.receivers);
    message["join"] = json!(fork.join);
    message["onReject"] = json!(fork.on_reject);
    let branches = loop {
        match caller.post("/handoffs", &message).await {
            Some((202, answer)) => break Some(branches_of(&answer)),
            Some(other) => panic!("an answer that no sender of a list should get: {other:?}"),
            None if below(1.0) < ABANDONED => break None,
            None => {}
        }
    };
    tally.add(usize::from(branches.is_some()));
    sent.lock().unwrap().push(SentGroup { task, fork, branches });
}

fn branches_of(answer: &Value) -> Vec<String> {
    let branches = answer["group"]["branches"].as_array().unwrap();
    branches.iter().map(|one| one["handoffId"].as_str().unwrap().to_owned()).collect()
}

/// The joins of a group's branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    Open,
    Completed,
    Failed,
}

/// Joins statuses by the documentation of `join` and `onReject` alone.
fn joined(fork: Fork, branches: &BTreeMap<&str, HandoffStatus>) -> Join {
    use HandoffStatus as S;
    let count = |of: &[S]| branches.values().filter(|status| of.contains(status)).count();
    let bad = count(&[S::Rejected, S::Failed, S::Expired]);
    let left = branches.len() - bad;
    let needed = match (fork.join, fork.on_reject) {
        ("any", _) => 1,
        ("all", "drop") => left.max(1),
        ("all", _) => branches.len(),
        (quorum, _) => quorum.strip_prefix("quorum:").unwrap().parse().unwrap(),
    };
    if left < needed || (bad > 0 && fork.on_reject == "rollback") {
        Join::Failed
    } else if count(&[S::Completed]) >= needed {
        Join::Completed
    } else {
        Join::Open
    }
}

/// Whether nothing happens to the group any more.
pub fn is_settled(page: Option<&Value>) -> bool {
    page.is_none_or(|page| {
        let handoffs = page["handoffs"].as_array().unwrap();
        let ended = |one: &Value| status(one).is_final();
        handoffs.iter().all(ended) && page["status"] == "PENDING_HANDOFF"
    })
}

/// The faults of a group that is at rest.
pub fn of_a_group(page: Option<&Value>, sent: &SentGroup, completed: &Done) -> Vec<String> {
    let mut faults = Vec::new();
    let Some(page) = page else {
        if sent.branches.is_some() {
            faults.push("it was acknowledged and is not in the log".to_owned());
        }
        return faults;
    };
    if page["verification"]["ok"] != true {
        faults.push(format!("its evidence does not verify: {}", page["verification"]));
    }
    if page["status"] != "PENDING_HANDOFF" {
        faults.push(format!("the task is {}, and its group has ended", page["status"]));
    }
    all_are_there(page, sent, &mut faults);
    let mut branches: BTreeMap<&str, HandoffStatus> = BTreeMap::new();
    // The end, and how many verdicts before it found the group decided.
    let (mut ends, mut decided) = (0, 0);
    for record in page["records"].as_array().unwrap() {
        let kind = record["kind"].as_str().unwrap();
        let (id, leaf) = (record["handoffId"].as_str().unwrap_or_default(), &record["leafIndex"]);
        if kind == "GROUP_ENDED" {
            ends += 1;
            let says = &record["group"]["outcome"];
            let comes_to = match joined(sent.fork, &branches) {
                Join::Open => "OPEN",
                Join::Completed => "COMPLETED",
                Join::Failed => "FAILED",
            };
            if says != comes_to {
                faults.push(format!("it ended as {says}, its branches come to {comes_to}"));
            }
            if decided != 1 {
                faults.push(format!("{decided} verdicts stand before its end that decide it"));
            }
        } else if kind == "HANDOFF" {
            if branches.insert(id, HandoffStatus::Pending).is_some() {
                faults.push(format!("branch {id} is in the log twice, again at {leaf}"));
            }
        } else if let Some(event) = handoff_event(kind) {
            match branches.get(id).map(|status| status.next(event)) {
                Some(Ok(next)) => {
                    branches.insert(id, next);
                }
                other => faults.push(format!("{kind} of {id} at {leaf}: {other:?}")),
            }
            if ends == 0 {
                decided += usize::from(joined(sent.fork, &branches) != Join::Open);
            } else if kind != "CANCELED" {
                faults.push(format!("{kind} of {id} at {leaf}, behind the group's end"));
            }
        }
    }
    if ends != 1 {
        faults.push(format!("it ended {ends} times"));
    }
    for handoff in page["handoffs"].as_array().unwrap() {
        let id = handoff["handoffId"].as_str().unwrap();
        let is = status(handoff);
        if branches.get(id) != Some(&is) {
            faults.push(format!("{id} is {is:?}, by its records {:?}", branches.get(id)));
        }
        let heard = completed.times(id);
        if heard > usize::from(is == HandoffStatus::Completed) {
            faults.push(format!(
                "{id} is {is:?}; its receiver was told {heard} times that it completed it"
            ));
        }
    }
    faults
}

/// Checks that all branches are there in the list's order, those of the acknowledgement.
fn all_are_there(page: &Value, sent: &SentGroup, faults: &mut Vec<String>) {
    let mut places = BTreeMap::new();
    for handoff in page["handoffs"].as_array().unwrap() {
        let place = handoff["group"]["index"].as_u64();
        let agent = handoff["toAgent"]["agentId"].as_str().unwrap();
        let id = handoff["handoffId"].as_str().unwrap();
        if places.insert(place, (id, agent)).is_some() {
            faults.push(format!("two branches at place {place:?}"));
        }
    }
    let agents: Vec<&str> = places.values().map(|(_, agent)| *agent).collect();
    if agents != sent.fork.receivers {
        faults.push(format!("its branches go to {agents:?}, not {:?}", sent.fork.receivers));
    }
    if let Some(named) = &sent.branches {
        let ids: Vec<&str> = places.values().map(|(id, _)| *id).collect();
        if ids != *named {
            faults.push(format!("the 202 named the branches {named:?}, there are {ids:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUORUM: Fork = fork(["a", "b", "c"], "quorum:2", "drop");

    fn sent(fork: Fork) -> SentGroup {
        let branches = Some(["h0", "h1", "h2"].map(str::to_owned).to_vec());
        SentGroup { task: "t".to_owned(), fork, branches }
    }

    /// A trace of these records: kind and handoff, or `GROUP_ENDED` and its outcome.
    fn page(statuses: [&str; 3], records: &[(&str, &str)]) -> Value {
        let agents = ["a", "b", "c"].into_iter().zip(statuses).enumerate();
        let handoffs = agents.map(|(n, (agent, status))| {
            json!({
                "handoffId": format!("h{n}"), "status": status, "group": { "index": n },
                "toAgent": { "agentId": agent },
            })
        });
        let opening = ["h0", "h1", "h2"].map(|id| ("HANDOFF", id));
        let all = opening.iter().chain(records).enumerate();
        let records = all.map(|(leaf, (kind, what))| {
            json!({ "kind": kind, "handoffId": what, "leafIndex": leaf, "group": { "outcome": what } })
        });
        json!({
            "status": "PENDING_HANDOFF", "handoffs": handoffs.collect::<Vec<_>>(),
            "records": records.collect::<Vec<_>>(), "verification": { "ok": true },
        })
    }

    const WELL: [(&str, &str); 6] = [
        ("ACCEPTED", "h0"),
        ("ACCEPTED", "h1"),
        ("COMPLETED", "h1"),
        ("COMPLETED", "h0"),
        ("GROUP_ENDED", "COMPLETED"),
        ("CANCELED", "h2"),
    ];
    const DONE: [&str; 3] = ["COMPLETED", "COMPLETED", "CANCELED"];

    #[test]
    fn a_group_that_went_well_has_no_fault() {
        let none = Vec::<String>::new();
        assert_eq!(of_a_group(Some(&page(DONE, &WELL)), &sent(QUORUM), &Done::default()), none);
        // Not acknowledged: none of it, or all of it.
        let unknown = SentGroup { branches: None, ..sent(QUORUM) };
        assert_eq!(of_a_group(None, &unknown, &Done::default()), none);
        assert_eq!(of_a_group(Some(&page(DONE, &WELL)), &unknown, &Done::default()), none);
    }

    #[test]
    fn each_breach_of_a_group_is_found() {
        let mut two = page(DONE, &WELL);
        two["handoffs"].as_array_mut().unwrap().pop();
        let mut other = page(DONE, &WELL);
        other["handoffs"][1]["handoffId"] = json!("h9");
        let mut running = page(DONE, &WELL);
        running["status"] = json!("RUNNING");
        let mut bad = page(DONE, &WELL);
        bad["verification"]["ok"] = json!(false);
        let mut early = WELL;
        early.swap(3, 4);
        let mut failed = WELL;
        failed[4].1 = "FAILED";
        let mut late = WELL.to_vec();
        late[5] = ("ACCEPTED", "h2");
        let twice = [&WELL[..], &[("GROUP_ENDED", "COMPLETED")]].concat();
        let again = [&[("HANDOFF", "h1")], &WELL[..]].concat();
        let none = WELL[..4].to_vec();
        let passed = [&WELL[..4], &[("REJECTED", "h2")], &WELL[4..5]].concat();
        for (page, named) in [
            (two, "its branches go to"),
            (other, "the 202 named"),
            (running, "the task is"),
            (bad, "does not verify"),
            (page(DONE, &early), "its branches come to OPEN"),
            (page(DONE, &failed), "its branches come to COMPLETED"),
            (page(["COMPLETED", "COMPLETED", "ACCEPTED"], &late), "behind the group's end"),
            (page(DONE, &twice), "it ended 2 times"),
            (page(DONE, &again), "in the log twice"),
            (page(["COMPLETED", "COMPLETED", "PENDING"], &none), "it ended 0 times"),
            (page(["COMPLETED", "COMPLETED", "REJECTED"], &passed), "2 verdicts stand before"),
            (page(["COMPLETED", "CANCELED", "CANCELED"], &WELL), "by its records"),
        ] {
            let faults = of_a_group(Some(&page), &sent(QUORUM), &Done::default());
            assert!(faults.iter().any(|fault| fault.contains(named)), "{named}: {faults:?}");
        }
        let lost = of_a_group(None, &sent(QUORUM), &Done::default());
        assert!(lost[0].contains("not in the log"), "{lost:?}");
        let completed = Done::default();
        completed.add("h2", 1);
        let told = of_a_group(Some(&page(DONE, &WELL)), &sent(QUORUM), &completed);
        assert!(told[0].contains("told 1 times"), "{told:?}");
    }

    #[test]
    fn a_join_is_read_as_documented() {
        use HandoffStatus as S;
        let all = |join, on_reject| fork(["a", "b", "c"], join, on_reject);
        for (fork, statuses, expected) in [
            (all("all", "rollback"), [S::Completed, S::Completed, S::Accepted], Join::Open),
            (all("all", "rollback"), [S::Completed; 3], Join::Completed),
            (all("all", "rollback"), [S::Pending, S::Expired, S::Pending], Join::Failed),
            (all("all", "drop"), [S::Completed, S::Rejected, S::Accepted], Join::Open),
            (all("all", "drop"), [S::Completed, S::Rejected, S::Completed], Join::Completed),
            (all("all", "drop"), [S::Failed; 3], Join::Failed),
            (all("any", "drop"), [S::Rejected, S::Rejected, S::Completed], Join::Completed),
            (all("any", "drop"), [S::Rejected, S::Rejected, S::Pending], Join::Open),
            (all("quorum:2", "drop"), [S::Rejected, S::Completed, S::Pending], Join::Open),
            (all("quorum:2", "drop"), [S::Rejected, S::Completed, S::Failed], Join::Failed),
            (all("quorum:2", "rollback"), [S::Rejected, S::Pending, S::Pending], Join::Failed),
        ] {
            let branches = ["h0", "h1", "h2"].into_iter().zip(statuses).collect();
            assert_eq!(joined(fork, &branches), expected, "{fork:?} {statuses:?}");
        }
    }
}
