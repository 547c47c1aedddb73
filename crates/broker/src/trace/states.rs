//! The states of a task's handoffs as its records say them. A row that says otherwise is named with both values, and the
//! document goes by the record.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::Micros;
use handoffd_evidence::verify::ToldReasons;

/// The state in a handoff's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowState {
    status: HandoffStatus,
    reason: Option<String>,
    accepted_at: Option<Micros>,
    ended_at: Option<Micros>,
}

impl From<&Handoff> for RowState {
    fn from(row: &Handoff) -> Self {
        Self {
            status: row.status,
            reason: row.reason.clone(),
            accepted_at: row.accepted_at,
            ended_at: row.ended_at,
        }
    }
}

/// The state in the records of one handoff.
#[derive(Debug, Default)]
struct Told {
    /// Each status with its time and leaf index, in log order.
    statuses: Vec<(String, String, i64)>,
    reasons: ToldReasons,
    accepted: Option<String>,
}

/// The states in the records of a task's handoffs, by their ids.
#[derive(Debug, Default)]
pub(super) struct ToldStates {
    handoffs: HashMap<String, Told>,
    /// The end of the task: its status, and the leaf index of the record.
    ended: Option<(&'static str, i64)>,
}

/// A value of a row that is not what the records say.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RowDifference {
    /// In the row.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub row: Value,
    /// By the records.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub record: Value,
}

/// A member of a row that is not as the records say: its name, the row's value, and the record's.
type Difference = (&'static str, Value, Value);

impl ToldStates {
    /// Takes the body of the next record.
    pub(super) fn take(&mut self, body: &Value) {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let leaf = body.get("leafIndex").and_then(Value::as_i64).unwrap_or(0);
        match text("kind") {
            Some("TASK_COMPLETED") => self.ended = Some(("COMPLETED", leaf)),
            Some("TASK_CANCELED") => self.ended = Some(("CANCELED", leaf)),
            _ => {}
        }
        let (Some(id), Some(kind)) = (text("handoffId"), text("kind")) else { return };
        let told = self.handoffs.entry(id.to_owned()).or_default();
        let time = text("time").unwrap_or_default();
        match kind {
            // A dead letter that is released begins anew.
            "HANDOFF" => told.accepted = None,
            "ACCEPTED" => told.accepted = Some(time.to_owned()),
            _ => {}
        }
        told.reasons.take(kind, text("reason"));
        if let Some(status) = text("status") {
            told.statuses.push((status.to_owned(), time.to_owned(), leaf));
        }
    }

    /// The task's status as the records say it, and what is wrong with the row's: an end that no record tells. `row` was read
    /// before the records; `ahead` where it may be ahead of those that count.
    pub(super) fn task<'a>(
        &self,
        row: Option<&'a str>,
        ahead: bool,
    ) -> (Option<&'a str>, Option<(i64, String)>) {
        let ends = row.filter(|status| ["COMPLETED", "CANCELED"].contains(status));
        match (ends, self.ended) {
            (None, None) => (row, None),
            // A row that was read before the end.
            (None, Some((status, _))) => (row.map(|_| status), None),
            (Some(row_status), Some((status, _))) if row_status == status => (row, None),
            (Some(row_status), told) if !ahead => {
                let (leaf, said) = match told {
                    Some((status, leaf)) => (leaf, format!("its record says {status}")),
                    None => (0, "no record says that it ended".to_owned()),
                };
                let why = format!("the task has the status {row_status}, {said}");
                (told.map(|(status, _)| status), Some((leaf, why)))
            }
            (Some(_), told) => (told.map_or(row, |(status, _)| Some(status)), None),
        }
    }

    /// The members in which a row differs from the records so far.
    fn differences(told: &Told, row: &RowState) -> Vec<Difference> {
        let Some((last, ended, _)) = told.statuses.last() else { return Vec::new() };
        let mut found: Vec<Difference> = Vec::new();
        let stands = row.status.as_str();
        if stands != last {
            found.push(("status", json!(stands), json!(last)));
        }
        let accepted = row.accepted_at.map(Micros::rfc3339);
        if accepted != told.accepted {
            found.push(("acceptedAt", json!(accepted), json!(told.accepted)));
        }
        let is_open = HandoffStatus::parse(last).is_some_and(|last| !last.is_final());
        let at = row.ended_at.map(Micros::rfc3339);
        let fits = match &at {
            Some(at) => !is_open && told.statuses.iter().any(|(_, known, _)| known == at),
            None => is_open,
        };
        if !fits {
            found.push(("endedAt", json!(at), json!(Some(ended).filter(|_| !is_open))));
        }
        if stands == last && told.reasons.contradict(row.status, row.reason.as_deref()) {
            found.push(("reason", json!(row.reason), json!(told.reasons.of(row.status))));
        }
        found
    }

    /// Whether a row differs from the records. It may have been read before the last of them.
    pub(super) fn suspect(&self, id: &str, row: &RowState) -> bool {
        self.handoffs.get(id).is_some_and(|told| !Self::differences(told, row).is_empty())
    }

    /// Lets the entry of a suspect handoff say what its records say. `row` was read before the records, `now` after them;
    /// none where the row may be ahead of the records that count. Returns the leaf index of its last record, and a
    /// sentence, where the row is neither behind nor ahead. A reader outside the handoff sees no reason.
    pub(super) fn correct(
        &self,
        entry: &mut Map<String, Value>,
        id: &str,
        (row, now): (&RowState, Option<&RowState>),
        sees_reason: bool,
    ) -> Option<(i64, String)> {
        let told = self.handoffs.get(id)?;
        let stands = row.status.as_str();
        let was_there = told.statuses.iter().any(|(status, ..)| status == stands);
        let excused = now.is_none_or(|now| now != row && was_there);
        let mut said = Map::new();
        for (name, is, was) in Self::differences(told, row) {
            if name == "reason" && !sees_reason {
                continue;
            }
            entry.insert(name.to_owned(), was.clone());
            said.insert(name.to_owned(), json!(RowDifference { row: is, record: was }));
        }
        if excused || said.is_empty() {
            return None;
        }
        let (name, values) = said.iter().next()?;
        let (is, was) = (&values["row"], &values["record"]);
        let why = format!("handoff {id} has /{name} {is}, its records say {was}");
        entry.insert("rowDiffers".to_owned(), Value::Object(said));
        told.statuses.last().map(|(.., leaf)| (*leaf, why))
    }
}
