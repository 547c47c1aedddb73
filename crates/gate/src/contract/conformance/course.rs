//! Checks the course of a handoff under its contract from the records that follow it: whether an expiry kept the contract's time
//! limit, how many attempts were made, and which party got control afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{CompiledContract, EARLY, HandoffRecord, LATE, LintRule, RECOVERY, RETRIES, text};
use handoffd_domain::policy::Recovery;

/// Handoffs in progress, by id.
#[derive(Debug, Default)]
pub(super) struct OpenCourses(HashMap<String, HandoffCourse>);

/// One handoff in progress.
#[derive(Debug)]
struct HandoffCourse {
    ready: Arc<CompiledContract>,
    leaf_index: i64,
    edge: [String; 2],
    began: Option<OffsetDateTime>,
    /// The sender's own list, in order.
    preferred: Vec<String>,
    /// A stand-in for one that failed: when this one fails too, the task goes back.
    recovers: bool,
    /// The clause that says what follows, and what it says.
    failed: Option<(&'static str, Recovery)>,
}

/// A deviation from the contract.
#[derive(Debug)]
pub(super) struct CourseDeviation {
    pub(super) contract: String,
    pub(super) message: String,
    leaf_index: i64,
    edge: [String; 2],
}

impl CourseDeviation {
    pub(super) fn passage(&self) -> HandoffRecord<'_> {
        let [source, target] = &self.edge;
        HandoffRecord { leaf_index: self.leaf_index, source, target }
    }
}

/// An agent as its records show it, in the predicates' names.
pub(super) fn facts(party: &Value) -> Value {
    let mut facts = json!({});
    for (told, names) in [
        ("agentId", ["id", "agentId", "agent_id"]),
        ("agentType", ["type", "agentType", "agent_type"]),
        ("agentVersion", ["version", "agentVersion", "agent_version"]),
    ] {
        if let Some(value) = party.get(told) {
            for name in names {
                facts[name] = value.clone();
            }
        }
    }
    facts
}

fn time_of(record: &Value) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text(record, "/time")?, &Rfc3339).ok()
}

impl HandoffCourse {
    fn drift(&self, message: String) -> CourseDeviation {
        let (contract, edge) = (self.ready.contract().to_string(), self.edge.clone());
        CourseDeviation { contract, message, leaf_index: self.leaf_index, edge }
    }

    /// Milliseconds from the handoff's commit to a record.
    fn lasted(&self, record: &Value) -> Option<u64> {
        let lasted = time_of(record)? - self.began?;
        u64::try_from(lasted.whole_milliseconds()).ok()
    }

    /// Time and attempts, once the receiver's verdict, or its want, is recorded.
    fn ended(&self, record: &Value, kind: &str) -> Option<(LintRule, CourseDeviation)> {
        let policy = self.ready.policy();
        if let (Some(granted), Some(lasted)) = (policy.timeout_ms, self.lasted(record)) {
            let silent = text(record, "/reason") == Some("VERDICT_TIMEOUT");
            if kind == "EXPIRED" && silent && lasted < granted {
                let why = format!(
                    "it ended after {lasted} ms without a verdict; `timeout_ms` is {granted}"
                );
                return Some((EARLY, self.drift(why)));
            }
            if matches!(kind, "ACCEPTED" | "REJECTED") && lasted > granted {
                let why = format!("the verdict came after {lasted} ms; `timeout_ms` is {granted}");
                return Some((LATE, self.drift(why)));
            }
        }
        let made = record.get("attempts").and_then(Value::as_u64)?;
        let retries = policy.max_retries?;
        (made > u64::from(retries) + 1).then(|| {
            let why = format!("{made} attempts were made; `max_retries` is {retries}");
            (RETRIES, self.drift(why))
        })
    }

    /// The contract's clause for a failure of that kind.
    fn clause(&self, kind: &str, reason: Option<&str>) -> Option<(&'static str, Recovery)> {
        let policy = self.ready.policy();
        Some(match (kind, reason) {
            ("REJECTED", _) => ("on_reject", policy.on_reject.clone()),
            ("EXPIRED", Some("LEASE_EXPIRED" | "ANSWER_TIMEOUT")) | ("FAILED", _) => {
                ("on_error", policy.on_error.clone())
            }
            ("EXPIRED", Some("VERDICT_TIMEOUT")) => ("on_timeout", policy.on_timeout.clone()),
            _ => return None,
        })
    }

    /// Checks that control went to the party that the contract names. If that agent takes no handoffs at that moment, or if no
    /// agent has the supervisor's id, the task goes back to its source. The third failure of an edge always escalates to a
    /// person.
    fn followed(&self, kind: &str, to: Option<&str>) -> Option<(LintRule, CourseDeviation)> {
        let (clause, way) = self.failed.as_ref()?;
        let preferred = to.is_some_and(|to| self.preferred.iter().any(|one| one == to));
        let well = match (kind, way) {
            ("ROLLED_BACK", Recovery::Human) => self.recovers,
            ("HANDOFF", Recovery::Agent(agent)) => preferred || to == Some(agent.as_str()),
            ("HANDOFF", Recovery::Source | Recovery::Human) => preferred,
            _ => true,
        };
        (!well).then(|| {
            let went = match kind {
                "HANDOFF" => format!("the task went to {}", to.unwrap_or("another agent")),
                "ROLLED_BACK" => "the task went back to its source".to_owned(),
                _ => "a person was asked".to_owned(),
            };
            (RECOVERY, self.drift(format!("`recovery.{clause}` is `{way}`, and {went}")))
        })
    }
}

impl OpenCourses {
    /// Starts to follow a handoff under a contract.
    pub(super) fn begin(
        &mut self,
        record: &Value,
        ready: &Arc<CompiledContract>,
        message: Option<&Value>,
    ) {
        let (Some(id), Some(source), Some(target)) = (
            text(record, "/handoffId"),
            text(record, "/fromAgent/agentId"),
            text(record, "/toAgent/agentId"),
        ) else {
            return;
        };
        let own = message.and_then(|message| message.get("preferredAgents"));
        let own = own.and_then(Value::as_array).into_iter().flatten();
        let preferred = own.filter_map(Value::as_str).map(str::to_owned).collect();
        let course = HandoffCourse {
            ready: Arc::clone(ready),
            leaf_index: record.get("leafIndex").and_then(Value::as_i64).unwrap_or_default(),
            edge: [source.to_owned(), target.to_owned()],
            began: time_of(record),
            preferred,
            recovers: text(record, "/actor/role") == Some("broker"),
            failed: None,
        };
        self.0.insert(id.to_owned(), course);
    }

    /// Applies the next record.
    pub(super) fn go_on(&mut self, record: &Value) -> Option<(LintRule, CourseDeviation)> {
        let kind = text(record, "/kind")?;
        let by_broker = text(record, "/actor/role") == Some("broker");
        let id = match kind {
            "HANDOFF" if by_broker => text(record, "/parentHandoffId")?,
            "HANDOFF" => return None,
            _ => text(record, "/handoffId")?,
        };
        match kind {
            "COMPLETED" | "CANCELED" => {
                self.0.remove(id);
                None
            }
            "ACCEPTED" | "REJECTED" | "EXPIRED" | "FAILED" => {
                let course = self.0.get_mut(id)?;
                course.failed = course.clause(kind, text(record, "/reason"));
                course.ended(record, kind)
            }
            "ROLLED_BACK" | "ESCALATED" | "HANDOFF" => {
                let course = self.0.get(id).filter(|course| course.failed.is_some())?;
                let found = course.followed(kind, text(record, "/toAgent/agentId"));
                self.0.remove(id);
                found
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::document::Document;
    use crate::contract::read;
    use handoffd_domain::ids::Micros;

    fn ready(recovery: &str) -> Arc<CompiledContract> {
        let text = format!(
            "{{id: a-to-b, version: 1.0.0, source: a, target: b, recovery: {{timeout_ms: 1000, {recovery}}}}}"
        );
        let (contract, _) = read(&Document::parse(&text).unwrap());
        Arc::new(CompiledContract::new(contract, String::new(), String::new(), Micros(0)))
    }

    fn record(kind: &str, second: u32, more: &Value) -> Value {
        let mut record = json!({
            "kind": kind, "handoffId": "1", "leafIndex": 4, "actor": { "role": "agent" },
            "time": format!("2026-01-01T00:00:{second:02}.000000Z"),
            "fromAgent": { "agentId": "a" }, "toAgent": { "agentId": "b" },
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            record[name] = value.clone();
        }
        record
    }

    /// The rules that fire on a handoff with these records behind it.
    fn fired(recovery: &str, then: &[Value]) -> Vec<&'static str> {
        let mut courses = OpenCourses::default();
        let message = json!({ "preferredAgents": ["p"] });
        courses.begin(&record("HANDOFF", 0, &json!({})), &ready(recovery), Some(&message));
        then.iter().filter_map(|record| courses.go_on(record)).map(|(rule, _)| rule.name).collect()
    }

    #[test]
    fn f3_2_time_attempts_and_recovery_are_replayed() {
        let silent = |second| record("EXPIRED", second, &json!({ "reason": "VERDICT_TIMEOUT" }));
        let back = record("ROLLED_BACK", 9, &json!({}));
        let asked = record("ESCALATED", 9, &json!({}));
        let child = |to: &str| {
            let more = json!({
                "handoffId": "2", "parentHandoffId": "1", "actor": { "role": "broker" },
                "toAgent": { "agentId": to },
            });
            record("HANDOFF", 9, &more)
        };
        let none: [&str; 0] = [];
        assert_eq!(fired("on_timeout: source", &[silent(1), back.clone()]), none);
        assert_eq!(fired("on_timeout: source", &[silent(0), back.clone()]), ["early-timeout"]);
        let late = record("ACCEPTED", 2, &json!({}));
        assert_eq!(fired("on_error: source", &[late]), ["late-verdict"]);
        let tried = record("FAILED", 0, &json!({ "attempts": 3 }));
        assert_eq!(fired("max_retries: 2", std::slice::from_ref(&tried)), none);
        assert_eq!(fired("max_retries: 1", &[tried]), ["retry-drift"]);
        let no = record("REJECTED", 0, &json!({}));
        for (way, then, rules) in [
            ("human", &asked, &[][..]),
            ("human", &back, &["recovery-drift"]),
            ("c", &child("c"), &[]),
            ("c", &child("p"), &[]),
            ("c", &child("d"), &["recovery-drift"]),
            ("c", &back, &[]),
            ("source", &back, &[]),
            ("source", &asked, &[]),
            ("source", &child("d"), &["recovery-drift"]),
            ("supervisor", &child("d"), &[]),
        ] {
            let recovery = format!("on_reject: {way}");
            assert_eq!(fired(&recovery, &[no.clone(), then.clone()]), rules, "{way} {then}");
        }
    }
}
