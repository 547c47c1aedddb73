use super::*;
use crate::contract::document::Document;
use crate::contract::read;
use crate::contract::tests::WORKED_EXAMPLE;

fn ready(text: &str) -> CompiledContract {
    let (contract, faults) = read(&Document::parse(text).unwrap());
    assert_eq!(faults, []);
    CompiledContract::new(contract, String::new(), String::new(), Micros(0))
}

fn message() -> Value {
    json!({
        "taskSummary": "Refund order 7",
        "provenance": {"order_id": "7", "message_ids": ["m-1"]},
        "constraints": ["policy_window_days:30"], "historyStrategy": "summary",
        "currentState": {"intent": "refund", "confidence": 0.9},
    })
}

fn told(
    ready: &CompiledContract,
    message: &Value,
    change: impl FnOnce(&mut Agent),
) -> Vec<(String, String)> {
    let source = Agent::new("triage-agent".parse().unwrap());
    let mut target = Agent::new("refund-agent".parse().unwrap());
    target.domains = vec!["billing".to_owned()];
    target.permissions = vec!["perm:refund:read".to_owned()];
    change(&mut target);
    ready
        .check(message, HandoffEdge { source: &source, target: &target })
        .into_iter()
        .map(|failure| (failure.rule.unwrap_or_default(), failure.pointer))
        .collect()
}

fn one(clause: &str, pointer: &str) -> Vec<(String, String)> {
    vec![(clause.to_owned(), pointer.to_owned())]
}

#[test]
fn c20_each_clause_is_held_and_named() {
    let ready = ready(WORKED_EXAMPLE);
    assert_eq!(told(&ready, &message(), |_| {}), []);
    let mut low = message();
    low["currentState"]["confidence"] = json!(0.5);
    assert_eq!(told(&ready, &low, |_| {}), one("trigger.predicate", "/currentState"));
    let mut bare = message();
    bare["provenance"] = json!({ "trajectory": "runs/7" });
    assert_eq!(
        told(&ready, &bare, |_| {}),
        one("acceptance_criteria.required_fields", "/provenance/order_id")
    );
    let mut open = message();
    open["constraints"] = json!([]);
    assert_eq!(
        told(&ready, &open, |_| {}),
        one("payload.required", "/constraints/policy_window_days")
    );
    assert_eq!(
        told(&ready, &message(), |target| target.domains.clear()),
        one("acceptance_criteria.domain_match", "/toAgent")
    );
    assert_eq!(
        told(&ready, &message(), |target| target.permissions.clear()),
        one("acceptance_criteria.permission_check", "/toAgent")
    );
    let mut full = message();
    full["historyStrategy"] = json!("full");
    assert_eq!(told(&ready, &full, |_| {}), one("payload.history_strategy", "/historyStrategy"));
    // Nor what it carries, whatever it says.
    let mut carries = message();
    let turn = json!({ "role": "user", "content": "x" });
    carries["conversationHistoryVerbatim"] = json!(vec![turn; 6]);
    assert_eq!(
        told(&ready, &carries, |_| {}),
        one("payload.history_strategy", "/conversationHistoryVerbatim")
    );
    let mut unsourced = message();
    unsourced["provenance"] = json!({ "order_id": "7", "messageIds": [] });
    assert_eq!(told(&ready, &unsourced, |_| {}), one("payload.provenance", "/provenance"));
    let mut around = message();
    around["currentState"]["visited_agents"] = json!(["triage-agent", "refund-agent"]);
    assert_eq!(
        told(&ready, &around, |_| {}),
        one("recovery.loop_guard", "/currentState/visited_agents")
    );
}

#[test]
fn c14_the_payload_is_held_against_its_own_schema() {
    let text = format!(
        "{WORKED_EXAMPLE}schemas:\n  schemas/refund-handoff@1.2.0.json:\n    type: object\n    additionalProperties: false\n    required: [task_summary, provenance, constraints]\n    properties:\n      task_summary: {{type: string, maxLength: 20}}\n      provenance: {{type: object, properties: {{order_id: {{type: string}}}}}}\n      constraints: {{type: object, properties: {{policy_window_days: {{maximum: 60}}}}}}\n"
    );
    let ready = ready(&text);
    assert_eq!(told(&ready, &message(), |_| {}), []);
    let mut wrong = message();
    wrong["provenance"]["order_id"] = json!(7);
    assert_eq!(told(&ready, &wrong, |_| {}), one("payload.schema", "/provenance/order_id"));
    let mut long = message();
    long["taskSummary"] = json!("x".repeat(21));
    assert_eq!(told(&ready, &long, |_| {}), one("payload.schema", "/taskSummary"));
    let mut late = message();
    late["constraints"] = json!(["policy_window_days: 90"]);
    assert_eq!(told(&ready, &late, |_| {}).len(), 1);
}
