//! The states of a task and its handoffs as the records of a bundle say them, against what its trace shows.

use std::collections::HashMap;

use serde_json::Value;

use crate::verify::ToldReasons;
use handoffd_domain::handoff::HandoffStatus;

/// The records of one handoff.
#[derive(Debug, Default)]
struct HandoffStates {
    /// The last status, with the leaf index of its record.
    last: Option<(i64, String)>,
    /// The times of all records with a status.
    times: Vec<String>,
    accepted: Option<String>,
    reasons: ToldReasons,
}

/// The records of a task's states.
#[derive(Debug, Default)]
pub(super) struct RecordedStates {
    handoffs: HashMap<String, HandoffStates>,
    /// The end of the task, with the leaf index of its record.
    ended: Option<(i64, &'static str)>,
}

impl RecordedStates {
    /// Takes the next record of the task.
    pub(super) fn take(&mut self, leaf: i64, body: &Value) {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        match text("kind") {
            Some("TASK_COMPLETED") => self.ended = Some((leaf, "COMPLETED")),
            Some("TASK_CANCELED") => self.ended = Some((leaf, "CANCELED")),
            _ => {}
        }
        let (Some(id), Some(kind)) = (text("handoffId"), text("kind")) else { return };
        let states = self.handoffs.entry(id.to_owned()).or_default();
        let time = text("time").unwrap_or_default().to_owned();
        match kind {
            // A dead letter that is released begins anew.
            "HANDOFF" => states.accepted = None,
            "ACCEPTED" => states.accepted = Some(time.clone()),
            _ => {}
        }
        states.reasons.take(kind, text("reason"));
        if let Some(status) = text("status") {
            states.last = Some((leaf, status.to_owned()));
            states.times.push(time);
        }
    }

    /// How the task's status in a trace differs from its records, with the leaf index of the record.
    pub(super) fn task_differs(&self, shown: Option<&str>) -> Option<(Option<i64>, String)> {
        let ends = shown.filter(|shown| ["COMPLETED", "CANCELED"].contains(shown));
        match (self.ended, ends) {
            (Some((_, ended)), Some(shown)) if ended == shown => None,
            (Some((leaf, ended)), _) => {
                let shown = shown.unwrap_or("none");
                Some((
                    Some(leaf),
                    format!("the trace shows the task as {shown}, its record says {ended}"),
                ))
            }
            (None, Some(shown)) => Some((
                None,
                format!("the trace shows the task as {shown}, no record says that it ended"),
            )),
            (None, None) => None,
        }
    }

    /// How the status of a handoff in a trace differs from its records.
    pub(super) fn status_differs(&self, id: &str, entry: &Value) -> Option<(i64, String)> {
        let shown = entry.get("status").and_then(Value::as_str)?;
        let (leaf, last) =
            self.handoffs.get(id)?.last.as_ref().filter(|(_, last)| last != shown)?;
        Some((*leaf, format!("handoff {id} has the status {shown}, its last record says {last}")))
    }

    /// How the times and the reason of a handoff in a trace differ from its records.
    pub(super) fn times_differ(&self, id: &str, entry: &Value) -> Option<(i64, String)> {
        let states = self.handoffs.get(id)?;
        let (leaf, last) = states.last.as_ref()?;
        let shown = |name: &str| entry.get(name).and_then(Value::as_str);
        let named = |time: Option<&str>| time.unwrap_or("none").to_owned();
        let accepted = states.accepted.as_deref();
        if shown("acceptedAt") != accepted {
            let (is, was) = (named(shown("acceptedAt")), named(accepted));
            return Some((
                *leaf,
                format!("handoff {id} shows acceptedAt {is}, its records say {was}"),
            ));
        }
        let is_open = HandoffStatus::parse(last).is_some_and(|last| !last.is_final());
        let fits = match shown("endedAt") {
            Some(time) => !is_open && states.times.iter().any(|known| known == time),
            None => is_open,
        };
        if !fits {
            let is = named(shown("endedAt"));
            let was = states.times.last().filter(|_| !is_open).map(String::as_str);
            let was = named(was);
            return Some((
                *leaf,
                format!("handoff {id} shows endedAt {is}, its records say {was}"),
            ));
        }
        // A reader outside the handoff sees no reason.
        let (status, reason) = (HandoffStatus::parse(last)?, shown("reason")?);
        states.reasons.contradict(status, Some(reason)).then(|| {
            let was = named(states.reasons.of(status));
            (*leaf, format!("handoff {id} shows the reason {reason}, its records say {was}"))
        })
    }
}
