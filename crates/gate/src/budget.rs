//! Budget: is there money left? (Seed 000 §6.1 and §9, specification §2.2 stage 9.) Whether the relay
//! adds up against the task's ledger is the ledger's to say; this stage reads the message alone.

use serde_json::Value;

use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::money::Usd;

/// The pointer to the remaining budget in a message.
const POINTER: &str = "/costTracking/costBudgetRemainingUSD";

/// The constraint that names the budget of the whole task, in decimal US dollars: `budgetUSD:10.00`.
const DECLARED: &str = "budgetUSD";

/// The texts behind `budgetUSD:`, with their places.
fn declarations(message: &Value) -> impl Iterator<Item = (usize, &str)> {
    let constraints = message.get("constraints").and_then(Value::as_array);
    constraints.into_iter().flatten().enumerate().filter_map(|(place, constraint)| {
        let (key, amount) = constraint.as_str()?.split_once(':')?;
        (key.trim() == DECLARED).then(|| (place, amount.trim()))
    })
}

/// The budget of the whole task that a message declares, in US dollars. Call it on messages that passed this stage: it skips an
/// amount that it cannot read. The broker counts the budget from the task's first handoff on.
#[must_use]
pub fn declared(message: &Value) -> Option<Usd> {
    declarations(message).find_map(|(_, amount)| amount.parse().ok())
}

/// A budget that cannot be read, or is named twice, is one failure each at its constraint.
fn check_declared(message: &Value) -> impl Iterator<Item = Failure> {
    declarations(message).enumerate().filter_map(|(nth, (place, amount))| {
        let why = match amount.parse::<Usd>() {
            Err(why) => why.to_string(),
            Ok(_) if nth > 0 => "the task's budget is named twice".to_owned(),
            Ok(_) => return None,
        };
        let pointer = format!("/constraints/{place}");
        Some(Failure::new(Stage::Budget, Code::SchemaInvalid, pointer, why))
    })
}

/// Checks a message that passed the schema: a remaining budget of zero US dollars or less is one
/// [`Code::BudgetExhausted`] failure that names the amount. A constraint `budgetUSD` must be an amount.
#[must_use]
pub fn check(message: &Value) -> Vec<Failure> {
    // As the books will have it: in whole nano-dollars.
    let exhausted = match message.pointer(POINTER).and_then(Value::as_f64).map(Usd::from_f64) {
        Some(remaining) if remaining <= Usd(0) => Some(Failure::new(
            Stage::Budget,
            Code::BudgetExhausted,
            POINTER,
            format!("The remaining budget is {remaining} USD; nothing may be started on it."),
        )),
        _ => None,
    };
    exhausted.into_iter().chain(check_declared(message)).collect()
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
            assert!(failures[0].message.contains(" 0.00 USD"), "{}", failures[0].message);
        }
    }

    #[test]
    fn a_debt_is_exhausted_and_names_the_amount() {
        assert!(with_remaining(&json!(-1.25))[0].message.contains("-1.25 USD"));
    }

    #[test]
    fn the_budget_of_a_whole_task_is_an_exact_amount_named_once() {
        let with = |constraints: Value| json!({ "constraints": constraints });
        let named = with(json!(["tone:formal", "budgetUSD: 12.000000001"]));
        assert_eq!((declared(&named), check(&named)), (Some(Usd(12_000_000_001)), Vec::new()));
        assert_eq!(declared(&with(json!(["budget:low"]))), None);
        for (bad, pointer) in [
            (json!(["budgetUSD:much"]), "/constraints/0"),
            (json!(["a:b", "budgetUSD:-1"]), "/constraints/1"),
            (json!(["budgetUSD:1", "budgetUSD:1"]), "/constraints/1"),
        ] {
            let failures = check(&with(bad));
            assert_eq!((failures.len(), failures[0].pointer.as_str()), (1, pointer));
            assert_eq!(failures[0].code, Code::SchemaInvalid);
        }
    }

    #[test]
    fn f1_6_an_amount_that_the_books_round_to_nothing_is_nothing() {
        for nothing in [1e-10, 4.9e-10, -1e-10] {
            let failures = with_remaining(&json!(nothing));
            assert_eq!(failures[0].code, Code::BudgetExhausted, "{nothing}");
        }
        for something in [5.1e-10, 1e-9] {
            assert!(with_remaining(&json!(something)).is_empty(), "{something}");
        }
    }

    #[test]
    fn the_smallest_amount_above_zero_passes() {
        assert!(with_remaining(&json!(1e-9)).is_empty());
        assert!(with_remaining(&json!(40)).is_empty());
    }
}
