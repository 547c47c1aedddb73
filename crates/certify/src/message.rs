//! Messages of the kit.

use serde_json::{Value, json};

use crate::broker::Agent;
use crate::clock;

/// A canonical message, schema 2.1.
#[derive(Debug, Clone)]
pub(crate) struct Message(Value);

impl Message {
    /// The first handoff of a new task.
    pub(crate) fn first(from: &Agent, to: &Agent) -> Self {
        let now = clock::timestamp();
        Self(json!({
            "schemaVersion": "2.1",
            "handoffId": clock::id(),
            "taskId": clock::id(),
            "parentHandoffId": null,
            "fromAgent": { "agentId": from.id, "agentVersion": "1.0.0", "executionId": clock::id() },
            "toAgent": { "agentId": to.id },
            "timestamp": now,
            "taskDescription": "Check the liability clauses of the supply agreement",
            "completedSubtasks": [{
                "subtaskId": "read", "description": "Read the agreement", "result": { "pages": 12 }, "completedAt": now,
            }],
            "remainingSubtasks": [{ "subtaskId": "check", "description": "Check clauses 4.2 and 7.1" }],
            "currentState": { "clauses": ["4.2", "7.1"], "step": 1 },
            "relevantContext": [],
            "constraints": [],
            "costTracking": {
                "costSpentSoFarUSD": 0.08, "costBudgetRemainingUSD": 0.92,
                "tokenSpent": { "prompt": 4200, "completion": 1800 },
            },
            "conversationHistorySummary": "Two clauses speak of liability.",
            "conversationHistoryVerbatim": [],
            "toolCallHistory": [],
            "traceparent": format!("00-{}-00f067aa0ba902b7-01", clock::id().simple()),
        }))
    }

    /// The handoff that follows this one on its task.
    pub(crate) fn next(&self, from: &Agent, to: &Agent) -> Self {
        Self::first(from, to)
            .set("/taskId", self.0["taskId"].clone())
            .set("/parentHandoffId", self.0["handoffId"].clone())
    }

    /// Sets one member, below members that exist.
    pub(crate) fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(Value::Object(members)) = self.0.pointer_mut(parent) {
            members.insert(name.to_owned(), value);
        }
        self
    }

    /// Takes one member of the message out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        if let Value::Object(members) = &mut self.0 {
            members.remove(name);
        }
        self
    }

    /// Costs of the task so far, and the budget that is left, in US dollars.
    pub(crate) fn cost(self, spent: f64, left: f64) -> Self {
        self.set("/costTracking/costSpentSoFarUSD", json!(spent))
            .set("/costTracking/costBudgetRemainingUSD", json!(left))
    }

    pub(crate) fn value(&self) -> &Value {
        &self.0
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    pub(crate) fn id(&self) -> &str {
        self.text("handoffId")
    }

    pub(crate) fn task(&self) -> &str {
        self.text("taskId")
    }

    fn agent(&self, side: &str) -> &str {
        self.0[side]["agentId"].as_str().unwrap_or_default()
    }

    pub(crate) fn from(&self) -> &str {
        self.agent("fromAgent")
    }

    pub(crate) fn to(&self) -> &str {
        self.agent("toAgent")
    }

    /// The task and the summary as one text, for protocols that have one.
    pub(crate) fn words(&self) -> String {
        format!("{}\n\n{}", self.text("taskDescription"), self.text("conversationHistorySummary"))
    }
}
