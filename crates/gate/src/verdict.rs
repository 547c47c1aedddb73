//! The verdict of the gate on a message: passed, malformed or refused, with all that the ledger and the log need of it.

use std::sync::Arc;

use serde_json::Value;

use super::safety::SafetyFinding;
use super::{OtherEdges, PassedGroup};
use crate::contract::enforce::CompiledContract;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::{Code, Failure, primary};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_domain::message::Message;
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::warning::Warning;
use handoffd_domain::window::ContextFacts;

pub enum GateVerdict {
    /// The message is accepted.
    Pass(Box<PassedMessage>),
    /// The body is not valid JSON.
    Malformed(Failure),
    Refused(Box<RefusedMessage>),
}

pub struct PassedMessage {
    pub message: Message,
    pub target: Arc<Agent>,
    /// Whether the sender is the receiver.
    pub to_itself: bool,
    /// The contract that rules the edge.
    pub contract: Option<Arc<CompiledContract>>,
    /// The other edges that the message may take.
    pub others: OtherEdges,
    /// Safety findings that are recorded only.
    pub observed: Vec<SafetyFinding>,
    /// Orders inside tools' outputs and data that are marked.
    pub marked: Vec<SafetyFinding>,
    /// Whether some text would be reported if it repeated a tool's output of an earlier message of its task.
    pub may_repeat: bool,
    /// Fields that the broker accepts without full effect.
    pub warnings: Vec<Warning>,
    /// The regions between which the data moves.
    pub residency: Option<ResidencyFacts>,
    /// The message against its receiver's context window; `None` of a handoff to its own sender.
    pub context: Option<ContextFacts>,
    /// The receivers of a message to many; `target`, `contract`, `residency` and `context` are those of the first.
    pub group: Option<PassedGroup>,
}

/// Findings of a scan, by their effect.
pub(super) struct JudgedReport {
    pub(super) findings: Vec<SafetyFinding>,
    pub(super) observed: Vec<SafetyFinding>,
    pub(super) marked: Vec<SafetyFinding>,
}

pub struct RefusedMessage {
    /// All failures, in stage order.
    pub failures: Vec<Failure>,
    /// The message, where the schema stage passed.
    pub message: Option<Message>,
    /// The receiver, where the route was resolved.
    pub target: Option<Arc<Agent>>,
    /// The contract that rules the edge.
    pub contract: Option<Arc<CompiledContract>>,
    /// The other edges that the message may take.
    pub others: OtherEdges,
    /// Safety findings that refuse.
    pub findings: Vec<SafetyFinding>,
    /// Safety findings that are recorded only.
    pub observed: Vec<SafetyFinding>,
    /// Details of an allowlist refusal, for the log.
    pub allowlist: Option<AllowlistViolation>,
    /// The message against its receiver's context window, where the route was resolved.
    pub context: Option<ContextFacts>,
    /// The receivers of a message to many, where each was found.
    pub group: Option<PassedGroup>,
    /// `taskId` and `handoffId`, where readable although the schema stage failed.
    pub ids: (Option<TaskId>, Option<HandoffId>),
    /// The readable fields, where the schema stage failed.
    pub unread: UnreadMessage,
}

/// The fields of a message that are readable although the schema stage failed, as far as the refusal counts them.
#[derive(Debug, Clone, Default)]
pub struct UnreadMessage {
    /// `fromAgent.agentId`.
    pub from: Option<AgentId>,
    /// `fromAgent.executionId`.
    pub run: Option<ExecutionId>,
    /// As addressed: an agent's id, `type:<agentType>` or `capability:<name>`.
    pub to: String,
    pub checkpoint: Option<Value>,
}

impl UnreadMessage {
    fn of(value: &Value) -> Self {
        let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
        // As long as an id may be, and free of characters that no store takes.
        let short = |text: &str| text.chars().filter(|c| !c.is_control()).take(128).collect();
        let named = |kind: &str, pointer| Some(short(&format!("{kind}:{}", text(pointer)?)));
        Self {
            from: text("/fromAgent/agentId").and_then(|id| id.parse().ok()),
            run: text("/fromAgent/executionId").and_then(|id| id.parse().ok()),
            to: text("/toAgent/agentId")
                .map(short)
                .or_else(|| named("type", "/toAgent/agentType"))
                .or_else(|| named("capability", "/toAgent/capability"))
                .unwrap_or_default(),
            checkpoint: value.get("checkpoint").filter(|kept| kept.is_object()).cloned(),
        }
    }
}

/// A handoff to a target outside of the sender's allowlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowlistViolation {
    pub source: AgentId,
    /// The target as addressed.
    pub target: String,
    /// Number of entries of the sender's allowlist.
    pub allowlist_size: usize,
}

impl RefusedMessage {
    pub(super) fn early(failures: Vec<Failure>, value: Option<&Value>) -> GateVerdict {
        let ids = value.map_or((None, None), |value| {
            let text = |name| value.get(name).and_then(Value::as_str);
            (
                text("taskId").and_then(|id| id.parse().ok()),
                text("handoffId").and_then(|id| id.parse().ok()),
            )
        });
        GateVerdict::Refused(Box::new(Self {
            ids,
            unread: value.map(UnreadMessage::of).unwrap_or_default(),
            failures,
            message: None,
            target: None,
            contract: None,
            others: OtherEdges::default(),
            findings: Vec::new(),
            observed: Vec::new(),
            allowlist: None,
            context: None,
            group: None,
        }))
    }

    /// Refuses a message that passed the gate.
    #[must_use]
    pub fn after_gate(
        message: Message,
        target: Arc<Agent>,
        contract: Option<Arc<CompiledContract>>,
        failures: Vec<Failure>,
    ) -> Self {
        let envelope = message.envelope();
        Self {
            ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
            unread: UnreadMessage::default(),
            failures,
            message: Some(message),
            target: Some(target),
            contract,
            others: OtherEdges::default(),
            findings: Vec::new(),
            observed: Vec::new(),
            allowlist: None,
            context: None,
            group: None,
        }
    }

    /// Refuses an accepted message on the finding of an external classifier.
    #[must_use]
    pub fn unsafe_text(passed: PassedMessage, finding: SafetyFinding, failure: Failure) -> Self {
        let PassedMessage { message, target, contract, others, observed, context, group, .. } =
            passed;
        let refused = Self::after_gate(message, target, contract, vec![failure]);
        Self { findings: vec![finding], others, observed, context, group, ..refused }
    }

    /// The primary reason (specification §2.2).
    #[must_use]
    pub fn reason(&self) -> Code {
        primary(&self.failures).unwrap_or(Code::Internal)
    }
}
