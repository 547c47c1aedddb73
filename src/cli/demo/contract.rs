//! The contract under review, the four roles, and the messages between them.

use serde_json::{Value, json};

use super::agents::{DemoAgent, DemoRole, DemoVerdict};
use handoffd_store::clock::{self, Clock, SystemClock};

pub(super) const DOCUMENT: &str =
    "Supply Agreement Meridian Components / Halvorsen Pumps, 2026-06-11";

/// US cents that the task may cost.
const BUDGET_CENTS: u32 = 40;

/// Number, page, title and text of each clause that matters.
const CLAUSES: [(&str, u32, &str, &str); 4] = [
    (
        "4.2",
        6,
        "Limitation of liability",
        "Except for death or personal injury caused by its negligence, the Supplier's total liability \
         under this Agreement shall not exceed the fees paid in the twelve months before the claim.",
    ),
    (
        "7.1",
        11,
        "Indemnity",
        "The Supplier shall indemnify the Customer against all third-party claims arising from the \
         infringement of intellectual property rights by the Products, without limit in amount.",
    ),
    (
        "9.3",
        14,
        "Termination for convenience",
        "The Supplier may terminate this Agreement for convenience on ten days' written notice; the \
         Customer may do so on no less than ninety days' written notice.",
    ),
    (
        "11.4",
        17,
        "Renewal",
        "This Agreement renews for successive terms of three years unless either party objects in \
         writing at least one hundred and eighty days before the end of the current term.",
    ),
];

/// The clause whose page the extraction agent fails to read at first.
pub(super) const UNREADABLE: &str = "9.3";

/// The four, in the order of the pipeline.
pub(super) const ROLES: [DemoRole; 4] = [
    DemoRole {
        id: "intake-agent",
        version: "1.2.0",
        description: "Takes contracts in and says what is to be done with them",
        required_state: &[],
        judge: |_| DemoVerdict::Accept,
    },
    DemoRole {
        id: "clause-extraction-agent",
        version: "2.0.1",
        description: "Finds the clauses that matter and their exact text",
        required_state: &["documentId"],
        judge: |_| DemoVerdict::Accept,
    },
    DemoRole {
        id: "risk-scoring-agent",
        version: "1.5.0",
        description: "Scores each clause for liability risk after ISO 31000",
        required_state: &["extractedClauses"],
        judge: risk_scoring,
    },
    DemoRole {
        id: "summary-agent",
        version: "1.0.3",
        description: "Writes the summary that a person decides on",
        required_state: &["riskScores"],
        judge: |_| DemoVerdict::Accept,
    },
];

/// The risk agent scores text, so it cannot use an empty clause. Scoring takes time: a complete
/// list of clauses gets its verdict later.
fn risk_scoring(message: &Value) -> DemoVerdict {
    let clauses = message.pointer("/currentState/extractedClauses").and_then(Value::as_array);
    let empty = clauses.into_iter().flatten().find(|clause| {
        clause.get("text").and_then(Value::as_str).is_none_or(|text| text.trim().is_empty())
    });
    match empty {
        Some(clause) => {
            DemoVerdict::Reject("MISSING_CLAUSE_TEXT", json!({ "clause": clause.get("number") }))
        }
        None => DemoVerdict::Later,
    }
}

/// The clauses as the extraction agent has them; the text of `without` is missing.
pub(super) fn clauses(without: Option<&str>) -> Value {
    CLAUSES
        .iter()
        .map(|(number, page, title, text)| {
            let text = if without == Some(*number) { "" } else { text };
            json!({ "number": number, "page": page, "title": title, "text": text })
        })
        .collect()
}

/// The text of one page, read again with more care.
pub(super) fn read_page(page: u64) -> Option<&'static str> {
    CLAUSES.iter().find(|clause| u64::from(clause.1) == page).map(|clause| clause.3)
}

/// The scores that the risk agent comes to.
pub(super) fn scores() -> Value {
    json!([
        { "number": "4.2", "likelihood": 2, "impact": 3, "level": "MEDIUM" },
        { "number": "7.1", "likelihood": 3, "impact": 5, "level": "HIGH" },
        { "number": "9.3", "likelihood": 4, "impact": 4, "level": "HIGH" },
        { "number": "11.4", "likelihood": 3, "impact": 2, "level": "MEDIUM" },
    ])
}

/// The result of the summary agent.
pub(super) fn summary() -> Value {
    json!({
        "overall": "HIGH",
        "recommendation": "Negotiate 7.1 (cap the indemnity) and 9.3 (equal notice periods) before signing.",
        "clauses": ["7.1", "9.3"],
    })
}

/// Everything about a message that its sender decides.
pub(super) struct Draft<'a> {
    pub(super) task: &'a str,
    pub(super) parent: Option<&'a str>,
    pub(super) from: &'a DemoAgent,
    pub(super) to: &'a str,
    pub(super) description: &'a str,
    pub(super) done: Vec<(&'a str, &'a str, Value)>,
    pub(super) left: &'a [(&'a str, &'a str)],
    pub(super) state: Value,
    pub(super) checkpoint: Value,
    /// Cumulative over the task.
    pub(super) spent_cents: u32,
    pub(super) tokens: (u32, u32),
    pub(super) summary: &'a str,
    pub(super) verbatim: Value,
}

impl Draft<'_> {
    /// The canonical message, schema 2.1, still without a signature.
    pub(super) fn message(self) -> Value {
        let now = SystemClock::default().now().rfc3339();
        let dollars = |cents: u32| f64::from(cents) / 100.0;
        let done: Value = self
            .done
            .into_iter()
            .map(|(id, what, result)| {
                json!({ "subtaskId": id, "description": what, "result": result, "completedAt": now })
            })
            .collect();
        let left: Value = self
            .left
            .iter()
            .map(|(id, what)| json!({ "subtaskId": id, "description": what }))
            .collect();
        let version = ROLES.iter().find(|role| role.id == self.from.id).map(|role| role.version);
        json!({
            "schemaVersion": "2.1",
            "handoffId": clock::random_id().to_string(),
            "taskId": self.task,
            "parentHandoffId": self.parent,
            "fromAgent": {
                "agentId": self.from.id,
                "agentVersion": version,
                "executionId": self.from.execution_id,
            },
            "toAgent": { "agentType": self.to, "agentVersion": ">=1.0.0" },
            "timestamp": now,
            "taskDescription": self.description,
            "completedSubtasks": done,
            "remainingSubtasks": left,
            "currentState": self.state,
            "relevantContext": [{
                "source": DOCUMENT,
                "excerpt": "The governing law of this Agreement is the law of England and Wales.",
                "relevanceScore": 0.4,
            }],
            "constraints": ["returnJSON:true", "scoringFramework:iso31000"],
            "costTracking": {
                "costSpentSoFarUSD": dollars(self.spent_cents),
                "costBudgetRemainingUSD": dollars(BUDGET_CENTS - self.spent_cents),
                "tokenSpent": { "prompt": self.tokens.0, "completion": self.tokens.1 },
            },
            "conversationHistorySummary": self.summary,
            "conversationHistoryVerbatim": self.verbatim,
            "toolCallHistory": [],
            "traceparent": format!(
                "00-{}-{}-01",
                hex::encode(clock::random::<16>()),
                hex::encode(clock::random::<8>())
            ),
            "checkpoint": self.checkpoint,
        })
    }
}
