//! Messages to send, built on the documents of `tests/vectors/messages`.

use handoffd::clock::random_id;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_gate::signature;
use serde_json::{Value, json};

/// A handoff message that can be changed at will.
#[derive(Debug, Clone)]
pub struct Message(pub Value);

impl std::ops::Deref for Message {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Message {
    /// The first handoff of a new task, schema 2.1, without checkpoint and personal data.
    pub fn initial(from: &str, to: &str) -> Self {
        let template = include_str!("../vectors/messages/initial.json");
        Self(serde_json::from_str(template).unwrap())
            .set("/taskId", json!(random_id()))
            .set("/fromAgent/executionId", json!(random_id()))
            .without("/capabilitiesRequired")
            .without("/receiverList")
            .without("/checkpoint")
            .without("/personalDataPayload")
            .between(from, to)
    }

    /// A handoff in the middle of a task, schema 2.1.
    pub fn review(from: &str, to: &str) -> Self {
        let template = include_str!("../vectors/messages/review.json");
        Self(serde_json::from_str(template).unwrap())
            .set("/schemaVersion", json!("2.1"))
            .set("/taskId", json!(random_id()))
            .set("/parentHandoffId", Value::Null)
            .set("/fromAgent/executionId", json!(random_id()))
            .between(from, to)
    }

    /// The next handoff on the task of this one: it follows this one, or, from the same sender, what this
    /// one follows.
    pub fn next(&self, from: &str, to: &str) -> Self {
        let parent =
            if self["fromAgent"]["agentId"] == from { "parentHandoffId" } else { "handoffId" };
        Self::review(from, to)
            .set("/taskId", self["taskId"].clone())
            .set("/parentHandoffId", self[parent].clone())
    }

    /// The same message as another handoff.
    pub fn again(&self) -> Self {
        self.clone().set("/handoffId", json!(random_id()))
    }

    /// As schema 2.0 has it: the target by type, and no field of 2.1. Default agents have their id as
    /// their type.
    pub fn old(from: &str, to: &str) -> Self {
        let template = include_str!("../vectors/messages/review.json");
        Self(serde_json::from_str(template).unwrap())
            .set("/taskId", json!(random_id()))
            .set("/parentHandoffId", Value::Null)
            .between(from, to)
            .set("/toAgent", json!({ "agentType": to, "agentVersion": "*" }))
    }

    fn between(self, from: &str, to: &str) -> Self {
        self.set("/handoffId", json!(random_id()))
            .set("/fromAgent/agentId", json!(from))
            .set("/fromAgent/agentVersion", json!("1.0.0"))
            .set("/toAgent", json!({ "agentId": to }))
    }

    /// Sets one value, making the last member where it is missing.
    pub fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match self.0.pointer_mut(parent).unwrap() {
            Value::Object(object) => {
                object.insert(name.to_owned(), value);
            }
            Value::Array(list) => list[name.parse::<usize>().unwrap()] = value,
            other => panic!("{pointer} is below {other}"),
        }
        self
    }

    /// Takes one member out.
    pub fn without(mut self, pointer: &str) -> Self {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
        self
    }

    /// Cumulative cost so far, and what is left, in US dollars.
    pub fn cost(self, spent: f64, remaining: f64) -> Self {
        self.set("/costTracking/costSpentSoFarUSD", json!(spent))
            .set("/costTracking/costBudgetRemainingUSD", json!(remaining))
    }

    /// Signed by the sender.
    pub fn signed(self, secret: &str) -> Self {
        let canonical = CanonicalObject::from_value(&self.0).unwrap();
        let tag = signature::sign(&canonical, secret.as_bytes());
        self.set("/signature", json!(tag))
    }

    pub fn id(&self) -> String {
        self["handoffId"].as_str().unwrap().to_owned()
    }

    pub fn task(&self) -> String {
        self["taskId"].as_str().unwrap().to_owned()
    }

    /// `/handoffs/{id}`.
    pub fn path(&self) -> String {
        format!("/handoffs/{}", self.id())
    }

    /// `/tasks/{id}`.
    pub fn task_path(&self) -> String {
        format!("/tasks/{}", self.task())
    }
}
