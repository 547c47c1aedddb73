//! A message as the ledger commits it: the handoff's row, its parties, and its place in a trace.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tracing::Span;

use super::Request;
use crate::directory::{Agents, Principal};
use crate::ledger::command::content;
use crate::ledger::commands::{Repeat, Submit};
use crate::telemetry;
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical;
use handoffd_domain::course::subtasks_of;
use handoffd_domain::handoff::{DeliveryMode, HandoffDraft, HandoffStatus};
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::message::{Address, Message, ReturnTo, whole_number};
use handoffd_domain::policy::EdgePolicy;
use handoffd_domain::redaction::is_redacted;
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::ruling::Ruling;
use handoffd_domain::strategy::RouterChoice;
use handoffd_domain::stream::Stream;
use handoffd_domain::trace_context::{TraceContext, TraceParent};
use handoffd_domain::window::ContextFacts;
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_evidence::record::{PersonalPart, RecordParty, SafetyFacts};
use handoffd_gate::contract::enforce::{CompiledContract, TraceField};
use handoffd_gate::contract::payload;
use handoffd_gate::{OtherEdges, budget};
use handoffd_store::clock;

/// The ruling on the end of a handoff on this edge; `None` for the defaults. `choice` is a door's choice of its receiver.
pub(super) fn ruling(
    edge: EdgePolicy,
    others: OtherEdges,
    agents: &Agents,
    message: &Message,
    target: &Agent,
    choice: Option<RouterChoice>,
) -> Option<Box<Ruling>> {
    let envelope = message.envelope();
    let source = &envelope.from_agent.agent_id;
    let supervisor = edge.supervisor(agents.row(source).map(|row| &row.agent), target);
    let OtherEdges { rules: others, unknown } = others;
    let preferred = envelope.preferred_agents.iter().filter(|id| **id != target.agent_id).cloned();
    let (preferred, addressed) = (preferred.collect(), addressed(message));
    let returns_to = envelope.return_to.map(|ReturnTo::Source| source.clone());
    let max_iterations = max_iterations(message.value());
    let (strategy, specialty) =
        choice.map_or((None, None), |choice| (Some(choice.strategy), choice.specialty));
    let ruling = Ruling {
        edge,
        supervisor,
        preferred,
        others,
        unknown,
        addressed,
        returns_to,
        max_iterations,
        strategy,
        specialty,
        ..Ruling::default()
    };
    (!ruling.is_default()).then(|| Box::new(ruling))
}

/// The rounds that a message grants its receiver. JSON Schema counts `3.0` as an integer.
fn max_iterations(message: &serde_json::Value) -> Option<u64> {
    whole_number(message.get("maxIterations")?)
}

/// Subtasks that a message has a result of.
pub(super) fn subtasks(message: &Message) -> Vec<u64> {
    subtasks_of(message.envelope().task_id, message.value())
}

/// How a message is addressed, where not by an agent's id.
pub(super) fn addressed(message: &Message) -> Option<String> {
    named(&message.envelope().to_agent)
}

/// How a receiver is addressed, where not by an agent's id.
pub(super) fn named(to: &Address) -> Option<String> {
    match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(_), ..) | (None, None, None) => None,
        (None, Some(name), _) => Some(format!("type:{name}")),
        (None, None, Some(name)) => Some(format!("capability:{name}")),
    }
}

/// Settings that rule a submission.
pub(super) struct Ruled<'a> {
    pub(super) target: &'a Agent,
    pub(super) to_itself: bool,
    pub(super) policy: EdgePolicy,
    pub(super) others: OtherEdges,
    pub(super) ready: Option<&'a Arc<CompiledContract>>,
    pub(super) require_checkpoint: bool,
    pub(super) safety: Option<SafetyFacts>,
    pub(super) residency: Option<ResidencyFacts>,
    pub(super) context: Option<ContextFacts>,
}

/// A message as the ledger commits it; `body` is its content.
pub(super) fn submission_of(
    principal: &Principal,
    agents: &Agents,
    message: &Message,
    body: &[u8],
    ruled: Ruled<'_>,
    request: Request,
    now: Micros,
) -> Submit {
    let Ruled {
        target,
        to_itself,
        policy,
        others,
        ready,
        require_checkpoint,
        safety,
        residency,
        context,
    } = ruled;
    let status = if to_itself { HandoffStatus::NoOp } else { HandoffStatus::Pending };
    let whole = message.whole();
    let mut handoff = handoff_of(principal, message, Some(target), status, &whole, now);
    handoff.clock = LatencyClock::starting(request.arrived_at.unwrap_or(now));
    handoff.user_ref = request.user_ref;
    let named = ready.and_then(|ready| ready.trace_id(message.value()));
    set_trace(&mut handoff, request.trace, message, named);
    let choice = RouterChoice::of_submission(request.door, message.value(), target);
    handoff.ruling = ruling(policy.clone(), others, agents, message, target, choice);
    handoff.idempotent = policy.idempotent;
    handoff.context = context;
    let checkpoint = message.checkpoint().map(|own| packed_checkpoint(&own));
    // Packed only where it may be needed.
    let implied_checkpoint =
        checkpoint.clone().unwrap_or_else(|| packed_checkpoint(&message.implied_checkpoint()));
    Submit {
        from: sender(message, agents),
        to: receiver(message, Some(target)),
        content: content(body, now),
        checkpoint,
        implied_checkpoint,
        require_checkpoint,
        priority: message.envelope().priority,
        repeat: if to_itself { None } else { repeat_of(&policy, message) },
        policy,
        subtasks: subtasks(message),
        declared_budget: budget::declared(message.value()),
        personal: personal_parts(message),
        whole,
        idempotency_key: request.idempotency_key,
        fencing_token: request.fencing_token,
        has_part: false,
        refusal_salt: clock::random(),
        safety,
        residency,
        handoff,
    }
}

/// A checkpoint as the store keeps it.
pub(super) fn packed_checkpoint(canonical: &[u8]) -> PackedContent {
    PackedContent::new(CommitmentSubject::Checkpoint, clock::random(), canonical)
}

pub(super) fn personal_parts(message: &Message) -> Vec<PersonalPart> {
    message
        .personal_data()
        .into_iter()
        .map(|datum| PersonalPart {
            part: PackedContent::new(
                CommitmentSubject::PersonalData,
                clock::random(),
                &datum.canonical,
            ),
            subject_id: datum.subject_id,
        })
        .collect()
}

/// Whether a sender must keep checkpoints: the contract of an edge that the message may take says so, or its own registration.
pub(super) fn requires_checkpoint(
    policy: &EdgePolicy,
    others: &OtherEdges,
    agents: &Agents,
    source: &AgentId,
) -> bool {
    policy.require_checkpoint
        || others.rules.values().any(|other| other.edge.require_checkpoint)
        || agents.row(source).is_some_and(|row| row.agent.require_checkpoint)
}

/// The key that identifies a repeat of a message under its contract's `dedupe_key`; `None` if the
/// message has no such value.
pub(super) fn repeat_of(policy: &EdgePolicy, message: &Message) -> Option<Repeat> {
    let (dedupe, contract) = (policy.dedupe.as_ref()?, policy.contract.as_ref()?);
    let (_, value) = payload::find(message.value(), &dedupe.name)?;
    let mut hash = Sha256::new();
    hash.update(canonical::to_vec(&value));
    Some(Repeat {
        key: format!("{}:{}", contract.id, hex::encode(hash.finalize())),
        window: Duration::from_millis(dedupe.window_ms),
        over: None,
        answered: None,
    })
}

pub(super) fn sender(message: &Message, agents: &Agents) -> RecordParty {
    let from = &message.envelope().from_agent;
    let registered = agents.row(&from.agent_id).map(|row| row.agent.agent_version.to_string());
    RecordParty {
        agent_id: Some(from.agent_id.clone()),
        agent_type: None,
        agent_version: Some(from.agent_version.clone()),
        registered_version: registered,
        execution_id: Some(from.execution_id),
    }
}

pub(super) fn receiver(message: &Message, target: Option<&Agent>) -> RecordParty {
    let to = &message.envelope().to_agent;
    match target {
        Some(agent) => RecordParty {
            agent_id: Some(agent.agent_id.clone()),
            agent_type: Some(agent.agent_type.clone()),
            agent_version: Some(agent.agent_version.to_string()),
            ..RecordParty::default()
        },
        None => RecordParty {
            agent_id: to.agent_id.clone(),
            agent_type: to.agent_type.clone(),
            agent_version: to.agent_version.clone(),
            ..RecordParty::default()
        },
    }
}

/// Sets the trace of a handoff: the one that its contract's field names, else the request's,
/// else the message's, else a new one. Of the trace that the contract's field names, the request or the
/// message may know the span.
pub(super) fn set_trace(
    handoff: &mut HandoffDraft,
    request: Option<TraceContext>,
    message: &Message,
    named: Option<TraceField>,
) {
    let envelope = message.envelope();
    let span = Span::current();
    let own = telemetry::own(&span);
    let told =
        [request, TraceContext::of_message(&envelope.traceparent, envelope.tracestate.as_deref())];
    let told = told.into_iter().flatten();
    let context = match named {
        None => told.into_iter().next(),
        Some(TraceField::Parent(parent)) => Some(TraceContext { parent, state: String::new() }),
        Some(TraceField::Id(id)) => {
            let mut told = told.into_iter();
            told.find(|context| context.parent.trace_id == id).or_else(|| {
                let parent = TraceParent::new(id, clock::random(), 0)?;
                Some(TraceContext { parent, state: String::new() })
            })
        }
    };
    let context = context.or_else(|| {
        let begun = || TraceParent::new(clock::random(), clock::random(), 0);
        let parent = own.or_else(begun)?;
        Some(TraceContext { parent, state: String::new() })
    });
    handoff.span = own.map(|own| own.to_string()).unwrap_or_default();
    // The lines of the request say under which trace its handoff goes on.
    let trace = context.as_ref().map(|context| context.parent.trace_id_hex());
    // At once: each record of a field reads and writes all fields of the span.
    tracing::record_all!(
        span,
        handoff.id = tracing::field::display(handoff.id),
        handoff.task.id = tracing::field::display(handoff.task_id),
        handoff.source = handoff.source.as_str(),
        handoff.target = handoff.target.as_str(),
        trace_id = trace,
    );
    if let Some(TraceContext { parent, state }) = context {
        handoff.traceparent = parent.to_string();
        handoff.tracestate = state;
    }
}

/// The conversation that a message names. Postgres takes no NUL in a text, and such an id cannot be asked for.
fn conversation(message: &Message) -> Option<String> {
    let named = message.shown().get("conversationId")?.as_str()?;
    (!named.contains('\0')).then(|| named.to_owned())
}

/// The user that a message names, unless its name was redacted.
pub(super) fn user(message: &Message) -> Option<&str> {
    let named = message.value().get("userId").filter(|named| !is_redacted(named))?.as_str()?;
    (!named.is_empty() && !named.contains('\0')).then_some(named)
}

/// A handoff as its message states it. Without a receiver it names the agent as addressed, or else the sender.
pub(super) fn handoff_of(
    principal: &Principal,
    message: &Message,
    target: Option<&Agent>,
    status: HandoffStatus,
    whole: &[u8],
    now: Micros,
) -> HandoffDraft {
    let envelope = message.envelope();
    let salt: [u8; 16] = clock::random();
    let unresolved: AgentId =
        envelope.to_agent.agent_id.clone().unwrap_or_else(|| envelope.from_agent.agent_id.clone());
    HandoffDraft {
        tenant: principal.tenant.clone(),
        id: envelope.handoff_id,
        task_id: envelope.task_id,
        parent_id: envelope.parent_handoff_id,
        source: envelope.from_agent.agent_id.clone(),
        source_version: envelope.from_agent.agent_version.clone(),
        source_execution: envelope.from_agent.execution_id,
        target: target.map_or(unresolved, |agent| agent.agent_id.clone()),
        target_type: target.map_or_else(
            || envelope.to_agent.agent_type.clone().unwrap_or_default(),
            |agent| agent.agent_type.clone(),
        ),
        target_version: target.map_or_else(
            || envelope.to_agent.agent_version.clone().unwrap_or_default(),
            |agent| agent.agent_version.to_string(),
        ),
        mode: target.map_or(DeliveryMode::Pull, |agent| agent.delivery.mode),
        status,
        cost: envelope.cost_tracking,
        idempotent: true,
        ruling: None,
        context: None,
        conversation_id: conversation(message),
        user_ref: None,
        stream: envelope.stream.filter(|stream| stream.open).map(|_| Stream::opened(now)),
        digest_salt: salt.to_vec(),
        digest: commit(CommitmentSubject::Submission, &salt, whole).to_vec(),
        traceparent: String::new(),
        tracestate: String::new(),
        span: String::new(),
        created_at: now,
        clock: LatencyClock::starting(now),
    }
}
