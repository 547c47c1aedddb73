//! Groups in a log: what the records of the branches come to is what the record of the group's end says
//! (specification §10.4).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use handoffd_domain::group::{Join, OnReject, Standing, standing};
use handoffd_domain::handoff::HandoffStatus;

/// The groups of a log or of a task, from their records in log order. Memory grows with the number of groups.
#[derive(Debug, Default)]
pub struct GroupCheck {
    open: HashMap<String, OpenGroup>,
    ended: HashSet<String>,
}

#[derive(Debug)]
struct OpenGroup {
    of: u64,
    join: Join,
    on_reject: OnReject,
    statuses: Vec<HandoffStatus>,
}

/// A group as a record names it.
struct Named<'a> {
    id: &'a str,
    of: u64,
    join: Join,
    on_reject: OnReject,
}

impl<'a> Named<'a> {
    fn of(group: &'a Value) -> Option<Self> {
        Some(Self {
            id: group.get("id")?.as_str()?,
            of: group.get("of")?.as_u64()?,
            join: group.get("join")?.as_str()?.parse().ok()?,
            on_reject: match group.get("onReject")?.as_str()? {
                "rollback" => OnReject::Rollback,
                "drop" => OnReject::Drop,
                _ => return None,
            },
        })
    }
}

impl GroupCheck {
    /// Takes the next record.
    ///
    /// # Errors
    /// A sentence: the record contradicts those of its group before it.
    pub fn take(&mut self, body: &Value) -> Result<(), String> {
        let Some(group) = body.get("group") else { return Ok(()) };
        let named = Named::of(group).ok_or("the record names its group in no known form")?;
        let kind = body.get("kind").and_then(Value::as_str).unwrap_or_default();
        match group.get("index").and_then(Value::as_u64) {
            Some(index) => self.branch(kind, &named, index, body),
            None => self.end(&named, group.get("outcome").and_then(Value::as_str)),
        }
    }

    fn branch(
        &mut self,
        kind: &str,
        named: &Named<'_>,
        index: u64,
        body: &Value,
    ) -> Result<(), String> {
        let Named { id, of, join, on_reject } = *named;
        if index >= of {
            return Err(format!("group {id} has {of} handoffs, and this would be number {index}"));
        }
        if self.ended.contains(id) {
            return if kind == "HANDOFF" {
                Err(format!("group {id} ended before this handoff of it was committed"))
            } else {
                Ok(())
            };
        }
        if kind == "HANDOFF" && index == 0 {
            let statuses = Vec::new();
            let begun = || OpenGroup { of, join, on_reject, statuses };
            self.open.entry(id.to_owned()).or_insert_with(begun);
        }
        let Some(open) = self.open.get_mut(id) else {
            return Err(format!("the first handoff of group {id} is missing"));
        };
        if (open.of, open.join, open.on_reject) != (of, join, on_reject) {
            return Err(format!("group {id} was another one in the record of its first handoff"));
        }
        let committed = u64::try_from(open.statuses.len()).unwrap_or(u64::MAX);
        if committed < of {
            if kind != "HANDOFF" || index != committed {
                return Err(format!("handoff {committed} of group {id} is missing"));
            }
            open.statuses.push(HandoffStatus::Pending);
            return Ok(());
        }
        let status = body.get("status").and_then(Value::as_str).and_then(HandoffStatus::parse);
        let place = usize::try_from(index).ok().and_then(|index| open.statuses.get_mut(index));
        if let (Some(status), Some(place)) = (status, place) {
            *place = status;
        }
        Ok(())
    }

    fn end(&mut self, named: &Named<'_>, outcome: Option<&str>) -> Result<(), String> {
        let id = named.id;
        let Some(open) = self.open.remove(id) else {
            return Err(format!("group {id} ends, and was not open"));
        };
        self.ended.insert(id.to_owned());
        let committed = u64::try_from(open.statuses.len()).unwrap_or(u64::MAX);
        if committed < open.of {
            return Err(format!(
                "{committed} of {} handoffs of group {id} were committed",
                open.of
            ));
        }
        let holds = match outcome {
            Some("COMPLETED") => Standing::Completed == open.standing(),
            Some("FAILED") => matches!(open.standing(), Standing::Failed(_)),
            // Its task ended, whatever the join was.
            Some("CANCELED") => true,
            _ => false,
        };
        if holds {
            return Ok(());
        }
        let outcome = outcome.unwrap_or("without an outcome");
        Err(format!("group {id} ends {outcome}, and the records of its handoffs say otherwise"))
    }
}

impl OpenGroup {
    fn standing(&self) -> Standing {
        standing(self.join, self.on_reject, self.statuses.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn branch(kind: &str, index: u32, status: &str) -> Value {
        let group =
            json!({ "id": "g", "index": index, "of": 2, "join": "any", "onReject": "drop" });
        json!({ "kind": kind, "status": status, "group": group })
    }

    fn end(outcome: &str) -> Value {
        let group =
            json!({ "id": "g", "of": 2, "join": "any", "onReject": "drop", "outcome": outcome });
        json!({ "kind": "GROUP_ENDED", "group": group })
    }

    /// The first record that does not fit.
    fn fault(records: &[Value]) -> Option<usize> {
        let mut check = GroupCheck::default();
        records.iter().position(|record| check.take(record).is_err())
    }

    #[test]
    fn the_end_of_a_group_is_what_its_branches_come_to() {
        let sent = || vec![branch("HANDOFF", 0, "PENDING"), branch("HANDOFF", 1, "PENDING")];
        let with = |more: &[Value]| [sent(), more.to_vec()].concat();
        let done = branch("COMPLETED", 1, "COMPLETED");
        let lost = |index| branch("REJECTED", index, "REJECTED");
        let late = branch("CANCELED", 0, "CANCELED");
        assert_eq!(fault(&with(&[done.clone(), end("COMPLETED"), late])), None);
        assert_eq!(fault(&with(&[lost(0), lost(1), end("FAILED")])), None);
        assert_eq!(fault(&with(&[end("CANCELED")])), None);
        assert_eq!(fault(&with(&[lost(0), end("FAILED")])), Some(3), "the other may still come");
        assert_eq!(
            fault(&with(&[lost(0), branch("HANDOFF", 0, "PENDING"), lost(1), end("FAILED")])),
            Some(5)
        );
        assert_eq!(fault(&with(&[end("COMPLETED")])), Some(2));
        assert_eq!(fault(&with(&[done.clone(), end("COMPLETED"), end("COMPLETED")])), Some(4));
        assert_eq!(fault(&sent()[1..]), Some(0), "the first is missing");
        assert_eq!(fault(&[sent()[0].clone(), done]), Some(1), "the second is missing");
        assert_eq!(fault(&[branch("HANDOFF", 2, "PENDING")]), Some(0));
        assert_eq!(fault(&[json!({ "kind": "HANDOFF", "group": { "id": "g" } })]), Some(0));
        assert_eq!(fault(&[json!({ "kind": "HANDOFF" })]), None);
    }
}
