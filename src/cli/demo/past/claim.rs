//! A claim on its way from agent to agent, and the messages that it makes.

use serde_json::{Value, json};

use super::dice::Dice;
use super::fleet::INTAKE;

/// Kind, place of the damage, and the amount in euros.
const CLAIMS: [(&str, &str, u32); 10] = [
    ("Water damage in a kitchen", "Lindenweg 4, Graz", 3_840),
    ("Hail damage to a car", "A9 near Leoben", 2_150),
    ("Stolen bicycle", "Station square, Utrecht", 890),
    ("Broken window after a storm", "Kirchgasse 11, Bern", 640),
    ("Luggage lost in transit", "Lyon to Oslo", 1_320),
    ("Fire damage in a garage", "Hafenstraße 2, Kiel", 18_400),
    ("Travel cancelled for illness", "Flight to Porto", 2_760),
    ("Dog bite, medical costs", "Parc Monceau, Paris", 1_180),
    ("Burst pipe below a terrace", "Rue des Lilas 8, Metz", 5_900),
    ("Theft from a van", "Industrial park, Delft", 7_450),
];

const CUSTOMERS: [&str; 8] = [
    "mara.lind@example.org",
    "j.okafor@example.org",
    "s.moreau@example.org",
    "t.nyberg@example.org",
    "a.kaya@example.org",
    "p.novak@example.org",
    "e.vandijk@example.org",
    "r.costa@example.org",
];

/// US cents that a claim may cost, unless said otherwise.
const BUDGET: u32 = 600;

/// A claim, and the agent that has it.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) task: String,
    /// The handoff by which its holder came to it.
    pub(super) parent: Option<String>,
    pub(super) holder: &'static str,
    /// The last handoff.
    pub(super) handoff: String,
    pub(super) customer: &'static str,
    title: String,
    number: String,
    amount: u32,
    budget: u32,
    spent: u32,
    tokens: (u32, u32),
    done: Vec<Value>,
    conversation: String,
}

impl Claim {
    /// The claim of this number in the order of the past.
    pub(super) fn new(index: u32, dice: &mut Dice) -> Self {
        let (kind, place, base) = CLAIMS[dice.below(CLAIMS.len() as u32) as usize];
        let customer = CUSTOMERS[dice.below(CUSTOMERS.len() as u32) as usize];
        let amount = base + dice.below(base / 4);
        Self {
            task: dice.id(),
            parent: None,
            holder: INTAKE,
            handoff: String::new(),
            customer,
            title: format!("{kind}, {place}"),
            number: format!("C-2026-{:05}", 41_200 + index * 7 + dice.below(7)),
            amount,
            budget: BUDGET,
            spent: 0,
            tokens: (0, 0),
            done: Vec::new(),
            conversation: dice.id(),
        }
    }

    /// The same claim with so many cents to spend.
    pub(super) fn with_budget(self, cents: u32) -> Self {
        Self { budget: cents, ..self }
    }

    /// The last handoff was accepted: its receiver has the claim, and did this.
    pub(super) fn taken(&mut self, by: &'static str) {
        self.holder = by;
        self.parent = Some(self.handoff.clone());
    }

    /// The last handoff ended badly: the claim is with its sender again.
    pub(super) fn back_to(&mut self, before: &Self) {
        self.holder = before.holder;
        self.parent.clone_from(&before.parent);
    }

    /// Adds a finished part.
    pub(super) fn add_done(&mut self, what: &str, result: &Value, at: &str) {
        let id = format!("s{}", self.done.len() + 1);
        self.done.push(json!({
            "subtaskId": id, "description": what, "result": result, "completedAt": at,
        }));
    }

    /// Adds cents and tokens that the holder spends before it hands on.
    pub(super) fn spend(&mut self, dice: &mut Dice) {
        self.spend_cents(8 + dice.below(70));
        self.tokens.0 += 900 + dice.below(21_200);
        self.tokens.1 += 120 + dice.below(3_900);
    }

    pub(super) fn spend_cents(&mut self, cents: u32) {
        self.spent = (self.spent + cents).min(self.budget);
    }

    /// A message from the holder, in the newest schema.
    pub(super) fn message(&mut self, to: &str, task: &str, at: &str, dice: &mut Dice) -> Value {
        if self.done.is_empty() {
            self.add_done("Read the report of the customer", &json!({ "complete": true }), at);
        }
        self.handoff = dice.id();
        let dollars = |cents: u32| f64::from(cents) / 100.0;
        let amount = self.amount;
        let mut message = json!({
            "schemaVersion": "2.2",
            "handoffId": self.handoff,
            "taskId": self.task,
            "parentHandoffId": self.parent,
            "conversationId": self.conversation,
            "userId": self.customer,
            "fromAgent": {
                "agentId": self.holder, "agentVersion": "1.4.0", "executionId": dice.id(),
            },
            "toAgent": { "agentId": to },
            "timestamp": at,
            "taskDescription": format!("{task}: {}", self.title),
            "completedSubtasks": self.done,
            "remainingSubtasks": [{ "subtaskId": format!("s{}", self.done.len() + 1), "description": task }],
            "currentState": {
                "intent": "claim", "claimNumber": self.number, "amountEUR": amount,
                "policy": format!("HH-{}", 700_000 + amount),
            },
            "relevantContext": [{
                "source": "Policy terms, section 4",
                "excerpt": "The insurer pays for sudden damage; wear is not covered.",
                "relevanceScore": 0.6,
            }],
            "constraints": ["language:en"],
            "costTracking": {
                "costSpentSoFarUSD": dollars(self.spent),
                "costBudgetRemainingUSD": dollars(self.budget - self.spent),
                "tokenSpent": { "prompt": self.tokens.0, "completion": self.tokens.1 },
            },
            "conversationHistorySummary": format!("{}, claim {}, {amount} EUR.", self.title, self.number),
            "conversationHistoryVerbatim": [{
                "role": "user",
                "content": format!("I report a damage: {}. The repair costs {amount} EUR.", self.title),
            }],
            "toolCallHistory": [],
            "traceparent": format!("00-{}-{}-01", dice.hex(32), dice.hex(16)),
            "checkpoint": { "step": self.done.len(), "claimNumber": self.number, "amountEUR": amount },
        });
        if self.parent.is_none() {
            let data = json!({ "email": self.customer });
            message["personalDataPayload"] =
                json!({ "subjects": [{ "subjectId": self.customer, "data": data }] });
        }
        message
    }
}
