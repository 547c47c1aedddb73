//! Second opinions in a log: each follows, once, the record of a handoff that says that its opinion is pending.

use std::collections::HashSet;

use serde_json::Value;

use crate::record::ClassifierFacts;

/// The opinions that are pending in a log or in a task, from the records in log order. Memory grows with their number.
#[derive(Debug, Default)]
pub struct OpinionCheck {
    pending: HashSet<String>,
}

impl OpinionCheck {
    /// Takes the next record.
    ///
    /// # Errors
    /// A sentence: no record before it says that this opinion is pending.
    pub fn take(&mut self, body: &Value) -> Result<(), String> {
        let text = |pointer| body.pointer(pointer).and_then(Value::as_str);
        let Some(id) = text("/handoffId") else { return Ok(()) };
        match text("/kind") {
            Some("SECOND_OPINION") if !self.pending.remove(id) => Err(format!(
                "no record before it says that a second opinion on handoff {id} is pending"
            )),
            Some("HANDOFF" | "NO_OP")
                if text("/safety/classifier/verdict") == Some(ClassifierFacts::PENDING) =>
            {
                self.pending.insert(id.to_owned());
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn committed(kind: &str, verdict: &str) -> Value {
        let safety = json!({ "classifier": { "by": "guard", "verdict": verdict } });
        json!({ "kind": kind, "handoffId": "h", "safety": safety })
    }

    fn fault(records: &[Value]) -> Option<usize> {
        let mut check = OpinionCheck::default();
        records.iter().position(|record| check.take(record).is_err())
    }

    #[test]
    fn an_opinion_follows_once_the_record_that_says_that_it_is_pending() {
        let opinion = || json!({ "kind": "SECOND_OPINION", "handoffId": "h" });
        let other = json!({ "kind": "COMPLETED", "handoffId": "h" });
        for kind in ["HANDOFF", "NO_OP"] {
            assert_eq!(fault(&[committed(kind, "PENDING"), other.clone(), opinion()]), None);
        }
        assert_eq!(fault(&[committed("HANDOFF", "PENDING")]), None, "it may still come");
        assert_eq!(fault(&[committed("HANDOFF", "PENDING"), opinion(), opinion()]), Some(2));
        assert_eq!(fault(&[committed("HANDOFF", "SAFE"), opinion()]), Some(1));
        assert_eq!(fault(&[opinion(), committed("HANDOFF", "PENDING")]), Some(0));
    }
}
