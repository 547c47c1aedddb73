//! The laws after every round, read from the traces and from the receivers' notes.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt};
use handoffd_domain::handoff::{HandoffEvent, HandoffStatus};
use handoffd_domain::task::{TaskEvent, TaskStatus};
use serde_json::Value;

use super::hands::Done;
use crate::receiver::Delivery;
use crate::site::ADMIN_KEY;
use crate::world::{Acknowledged, client};

/// How the handoffs of one receiver may end, and whether the end is its own doing.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    pub statuses: &'static [HandoffStatus],
    /// Whether it carries handoffs out, which `COMPLETED` then says.
    pub carried_out: bool,
    /// Whether each claim has a fencing token of its own.
    pub pulls: bool,
    /// Whether a handoff may end as `EXPIRED` before its receiver has seen it.
    pub unseen: bool,
    /// Whether it reads a queue of its own: what others get meanwhile may be seen before.
    pub queued: bool,
}

/// The traces of `tasks`, by task.
pub async fn traces(base: &str, tasks: &BTreeSet<String>) -> BTreeMap<String, Value> {
    let http = client();
    let pages = tasks.iter().map(|task| {
        let ask = http.get(format!("{base}/tasks/{task}/trace")).bearer_auth(ADMIN_KEY);
        async move {
            let answer = ask.send().await.ok()?;
            let page = answer.json::<Value>().await.ok()?;
            // One that broke off, or was refused as overload, is asked for again.
            page["verification"].is_object().then(|| (task.clone(), page))
        }
    });
    stream::iter(pages).buffer_unordered(4).filter_map(async |page| page).collect().await
}

/// A task's handoffs that are not at a final place, or all of them if there is no trace.
pub fn unsettled(page: &Value, ends: &BTreeMap<&str, Ends>) -> usize {
    let settled = |handoff: &&Value| {
        let ends = ends[handoff["toAgent"]["agentId"].as_str().unwrap()];
        ends.statuses.contains(&status(handoff))
    };
    let handoffs = page["handoffs"].as_array().unwrap();
    handoffs.len() - handoffs.iter().filter(settled).count()
}

pub fn status(handoff: &Value) -> HandoffStatus {
    HandoffStatus::parse(handoff["status"].as_str().unwrap()).unwrap()
}

/// The faults in the trace of a task that is at rest; none, if all is well.
pub fn of_a_task(page: &Value, ends: &BTreeMap<&str, Ends>, done: &Done) -> Vec<String> {
    let mut faults = Vec::new();
    if page["verification"]["ok"] != true {
        faults.push(format!("its evidence does not verify: {}", page["verification"]));
    }
    let mut handoffs: BTreeMap<&str, HandoffStatus> = BTreeMap::new();
    let mut task = TaskStatus::PendingHandoff;
    for record in page["records"].as_array().unwrap() {
        let kind = record["kind"].as_str().unwrap();
        let id = record["handoffId"].as_str().unwrap_or_default();
        let leaf = &record["leafIndex"];
        if kind == "HANDOFF" {
            if handoffs.insert(id, HandoffStatus::Pending).is_some() {
                faults.push(format!("{id} is in the log twice, again at {leaf}"));
            }
        } else if let Some(event) = handoff_event(kind) {
            match handoffs.get(id).map(|status| (*status, status.next(event))) {
                // A verdict that repeats itself is answered, and not recorded again.
                Some((from, Ok(to))) if from != to => {
                    handoffs.insert(id, to);
                }
                other => faults.push(format!("{kind} of {id} at {leaf} after {other:?}")),
            }
        }
        if let Some(event) = task_event(kind) {
            match task.next(event) {
                Ok(next) => task = next,
                Err(err) => faults.push(format!("at {leaf}: {err}")),
            }
        }
        // One of several failed, and none of the others is on its way: the agent that took one goes on
        // with it.
        let is = |wanted| handoffs.values().any(|status| *status == wanted);
        if matches!(kind, "REJECTED" | "FAILED" | "EXPIRED")
            && task == TaskStatus::HandingOff
            && is(HandoffStatus::Accepted)
            && !is(HandoffStatus::Pending)
        {
            task = TaskStatus::Running;
        }
    }
    if page["status"] != task.as_str() {
        faults.push(format!("the task is {}, by its records {}", page["status"], task.as_str()));
    }
    for handoff in page["handoffs"].as_array().unwrap() {
        let id = handoff["handoffId"].as_str().unwrap();
        let target = handoff["toAgent"]["agentId"].as_str().unwrap();
        let (is, ends) = (status(handoff), ends[target]);
        if handoffs.get(id) != Some(&is) {
            faults.push(format!("{id} is {is:?}, by its records {:?}", handoffs.get(id)));
        }
        if !ends.statuses.contains(&is) {
            faults.push(format!("{id} to {target} ended as {is:?}"));
        }
        let (times, due) = (done.times(id), usize::from(is == HandoffStatus::Completed));
        if ends.carried_out && times != due {
            faults.push(format!("{id} to {target} is {is:?} and was carried out {times} times"));
        }
    }
    faults
}

pub fn handoff_event(kind: &str) -> Option<HandoffEvent> {
    Some(match kind {
        "ACCEPTED" => HandoffEvent::Accept,
        "REJECTED" => HandoffEvent::Reject,
        "COMPLETED" => HandoffEvent::Complete,
        "FAILED" => HandoffEvent::Fail,
        "EXPIRED" => HandoffEvent::Expire,
        "CANCELED" => HandoffEvent::Cancel,
        "DEAD_LETTERED" => HandoffEvent::DeadLetter,
        "RELEASED" => HandoffEvent::Release,
        _ => return None,
    })
}

fn task_event(kind: &str) -> Option<TaskEvent> {
    Some(match kind {
        "HANDOFF" => TaskEvent::Submit,
        "ACCEPTED" => TaskEvent::Accept,
        "ROLLED_BACK" => TaskEvent::RollBack,
        "ESCALATED" => TaskEvent::Escalate,
        "TASK_COMPLETED" => TaskEvent::Complete,
        "TASK_CANCELED" => TaskEvent::Cancel,
        _ => return None,
    })
}

/// The faults in the deliveries to the receivers.
pub fn of_deliveries(
    seen: &[Delivery],
    acknowledged: &BTreeMap<String, Acknowledged>,
    ends: &BTreeMap<&str, Ends>,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut first = BTreeMap::new();
    let mut attempts = BTreeMap::new();
    for (place, delivery) in seen.iter().enumerate() {
        first.entry(&delivery.handoff).or_insert(place);
        let key = (&delivery.handoff, delivery.attempt);
        if let Some(token) = attempts.insert(key, delivery.token) {
            faults.push(format!("{delivery:?}: an attempt was made twice, before under {token}"));
        }
    }
    for (id, Acknowledged { parent, target, .. }) in acknowledged {
        let Some(place) = first.get(id) else {
            faults.push(format!("{id} was acknowledged and reached no agent"));
            continue;
        };
        // One that expired before it was read is not among those that are due, and may be read later.
        let before = parent.as_ref().and_then(|parent| acknowledged.get_key_value(parent));
        let before = before.filter(|(_, one)| one.target == *target || !ends[&*one.target].queued);
        if before.and_then(|(parent, _)| first.get(parent)).is_some_and(|before| before > place) {
            faults.push(format!("{id} went before {parent:?} of its task"));
        }
        let of_it = attempts.range((id, i64::MIN)..=(id, i64::MAX));
        let tokens: Vec<i64> = of_it.map(|(_, token)| *token).collect();
        let pulls = ends[target.as_str()].pulls;
        // By webhook a handoff keeps its token; from an inbox each claim has a later one.
        if tokens.windows(2).any(|pair| if pulls { pair[0] >= pair[1] } else { pair[0] != pair[1] })
        {
            faults.push(format!("{id} to {target}: its attempts have the tokens {tokens:?}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const COMPLETED: &[HandoffStatus] = &[HandoffStatus::Completed];

    fn ends() -> BTreeMap<&'static str, Ends> {
        [(
            "b",
            Ends {
                statuses: COMPLETED,
                carried_out: true,
                pulls: false,
                unseen: false,
                queued: false,
            },
        )]
        .into()
    }

    fn page(kinds: &[&str], status: &str, task: &str) -> Value {
        let records = kinds
            .iter()
            .enumerate()
            .map(|(leaf, kind)| json!({ "kind": kind, "handoffId": "h", "leafIndex": leaf }));
        json!({
            "status": task,
            "handoffs": [{ "handoffId": "h", "toAgent": { "agentId": "b" }, "status": status }],
            "records": records.collect::<Vec<_>>(),
            "verification": { "ok": true },
        })
    }

    fn done(tokens: &[i64]) -> Done {
        let done = Done::default();
        for token in tokens {
            done.add("h", *token);
        }
        done
    }

    #[test]
    fn a_task_that_went_well_has_no_fault() {
        let page = page(&["HANDOFF", "ACCEPTED", "COMPLETED"], "COMPLETED", "RUNNING");
        assert_eq!(of_a_task(&page, &ends(), &done(&[1])), Vec::<String>::new());
    }

    #[test]
    fn each_breach_of_a_task_is_found() {
        let well = ["HANDOFF", "ACCEPTED", "COMPLETED"];
        for (page, done, named) in [
            (page(&["HANDOFF", "HANDOFF"], "PENDING", "HANDING_OFF"), done(&[]), "twice"),
            (
                page(&["HANDOFF", "COMPLETED", "ACCEPTED"], "COMPLETED", "RUNNING"),
                done(&[1]),
                "after",
            ),
            (page(&well, "ACCEPTED", "RUNNING"), done(&[]), "by its records"),
            (page(&well, "COMPLETED", "COMPLETED"), done(&[1]), "the task is"),
            (page(&["HANDOFF"], "PENDING", "HANDING_OFF"), done(&[]), "ended as"),
            (page(&well, "COMPLETED", "RUNNING"), done(&[]), "0 times"),
            (page(&well, "COMPLETED", "RUNNING"), done(&[1, 1]), "2 times"),
            (page(&well, "COMPLETED", "RUNNING"), done(&[1, 2]), "2 times"),
        ] {
            let faults = of_a_task(&page, &ends(), &done);
            assert!(faults.iter().any(|fault| fault.contains(named)), "{named}: {faults:?}");
        }
    }

    #[test]
    fn each_breach_of_a_delivery_is_found() {
        let sent = |handoff: &str, attempt, token| Delivery {
            handoff: handoff.to_owned(),
            attempt,
            token,
        };
        let said = |parent: Option<&str>| Acknowledged {
            task: "t".to_owned(),
            parent: parent.map(str::to_owned),
            target: "b".to_owned(),
        };
        let two: BTreeMap<_, _> =
            [("h".to_owned(), said(None)), ("i".to_owned(), said(Some("h")))].into();
        let well = [sent("h", 1, 1), sent("h", 2, 1), sent("i", 1, 2)];
        assert_eq!(of_deliveries(&well, &two, &ends()), Vec::<String>::new());
        for (seen, named) in [
            (vec![sent("h", 1, 1)], "reached no agent"),
            (vec![sent("i", 1, 2), sent("h", 1, 1)], "went before"),
            (vec![sent("h", 1, 1), sent("h", 1, 1), sent("i", 1, 2)], "made twice"),
            (vec![sent("h", 1, 1), sent("h", 2, 3), sent("i", 1, 2)], "the tokens"),
        ] {
            let faults = of_deliveries(&seen, &two, &ends());
            assert!(faults.iter().any(|fault| fault.contains(named)), "{named}: {faults:?}");
        }
        // Another queue's reader may be ahead of this one's; of one queue there is one order.
        let late = [sent("i", 1, 2), sent("h", 1, 1)];
        let queued = || Ends { queued: true, ..ends()["b"] };
        let queues: BTreeMap<_, _> = [("b", queued()), ("c", queued())].into();
        assert_eq!(of_deliveries(&late, &two, &queues).len(), 1);
        let mut apart = two.clone();
        apart.get_mut("i").unwrap().target = "c".to_owned();
        assert_eq!(of_deliveries(&late, &apart, &queues), Vec::<String>::new());
    }
}
