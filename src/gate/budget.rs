//! Budget: is there money left? (Seed 000 §6.1 and §9, specification §2.2 stage 9.) Whether the relay
//! adds up against the task's ledger is the ledger's to say; this stage reads the message alone.

use serde_json::Value;

use crate::domain::failure::{Code, Failure, Stage};

/// Where the remaining budget stands in a message.
const POINTER: &str = "/costTracking/costBudgetRemainingUSD";

/// Checks a message that passed the schema: a remaining budget of zero US dollars or less is one
/// [`Code::BudgetExhausted`] failure that names the amount.
#[must_use]
pub fn check(message: &Value) -> Vec<Failure> {
    match message.pointer(POINTER).and_then(Value::as_f64) {
        Some(remaining) if remaining <= 0.0 => vec![Failure::new(
            Stage::Budget,
            Code::BudgetExhausted,
            POINTER,
            format!(
                "The remaining budget is {} USD; nothing may be started on it.",
                remaining + 0.0
            ),
        )],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_remaining(amount: &Value) -> Vec<Failure> {
        check(&json!({"costTracking": {"costBudgetRemainingUSD": amount}}))
    }

    #[test]
    fn a105_a_remaining_budget_of_zero_is_exhausted() {
        for zero in [json!(0), json!(0.0), json!(-0.0)] {
            let failures = with_remaining(&zero);
            assert_eq!(failures.len(), 1, "{zero}");
            assert_eq!(failures[0].code, Code::BudgetExhausted);
            assert_eq!(failures[0].stage, Stage::Budget);
            assert_eq!(failures[0].pointer, "/costTracking/costBudgetRemainingUSD");
            assert!(failures[0].message.contains(" 0 USD"), "{}", failures[0].message);
        }
    }

    #[test]
    fn a_debt_is_exhausted_and_names_the_amount() {
        assert!(with_remaining(&json!(-1.25))[0].message.contains("-1.25 USD"));
    }

    #[test]
    fn the_smallest_amount_above_zero_passes() {
        assert!(with_remaining(&json!(1e-9)).is_empty());
        assert!(with_remaining(&json!(40)).is_empty());
    }
}
