//! Decisions on what senders bring: handoffs, refusals, checkpoints.

use super::call::Call;
use super::case::{asked, escalation_of};
use super::context::Context;
use super::contracts;
use super::contracts::Repeat;
use super::draft::draft_of;
use super::loaded::edges_of;
use super::needs::Rows;
use super::plan::{Change, Decision};
use super::reply::{LedgerError, SubmissionReply};
use super::streams;
use handoffd_domain::course::Course;
use handoffd_domain::escalation::Escalation;
use handoffd_domain::failure::Failure;
use handoffd_domain::funds::{Funds, FundsRequest};
use handoffd_domain::group::{Join, OnReject};
use handoffd_domain::handoff::{
    CheckpointRef, Handoff, HandoffDraft, HandoffStatus, HandoffTerms, Priority,
};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_domain::lineage;
use handoffd_domain::money::Usd;
use handoffd_domain::policy::EdgePolicy;
use handoffd_domain::progress::{Edge, Hop, LoopLimits, check_budget, check_loop, short};
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_evidence::record::{
    PersonalPart, RecordContent, RecordDraft, RecordKind, RecordParty, SafetyFacts,
};
use handoffd_store::store::{BatchState, CheckpointRow, IdempotencyRow, LastCheckpoint, RunState};

/// A handoff that passed the gate.
#[derive(Debug, Clone)]
pub struct Submit {
    /// The handoff as the message and the route state it.
    pub handoff: HandoffDraft,
    /// The sender, for the record.
    pub from: RecordParty,
    /// The receiver, for the record.
    pub to: RecordParty,
    /// The message.
    pub content: RecordContent,
    /// The sender's own checkpoint.
    pub checkpoint: Option<PackedContent>,
    /// The state that replaces one: the message's own state fields.
    pub implied_checkpoint: PackedContent,
    /// Whether the state fields may not stand in for a checkpoint.
    pub require_checkpoint: bool,
    /// The priority among the receiver's handoffs.
    pub priority: Priority,
    /// The rules of the edge.
    pub policy: EdgePolicy,
    /// The dedupe key and its window.
    pub repeat: Option<Repeat>,
    pub personal: Vec<PersonalPart>,
    /// The whole canonical message, to tell a replay from a conflict.
    pub whole: Vec<u8>,
    pub idempotency_key: Option<String>,
    /// The fencing token of the handoff by which the sender came to the task, where the sender proves that it holds it.
    pub fencing_token: Option<i64>,
    /// The sender is known to have a part in the task, though another may hold it.
    pub has_part: bool,
    /// Subtasks that the message has a result of, as [`handoffd_domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// The budget of the whole task that the message names; counts with the task's first handoff.
    pub declared_budget: Option<Usd>,
    /// The salt of a refusal by the ledger.
    pub refusal_salt: [u8; 16],
    /// The findings of the safety stage, if the record has them.
    pub safety: Option<SafetyFacts>,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
}

/// A message to many that passed the gate.
#[derive(Debug, Clone)]
pub struct SubmitGroup {
    /// The message under the group's id, addressed to its first receiver.
    pub base: Submit,
    /// How many branches are needed.
    pub join: Join,
    /// The effect of one bad end.
    pub on_reject: OnReject,
    /// The branches in the list's order.
    pub branches: Vec<SubmitBranch>,
}

/// One branch of a message to many.
#[derive(Debug, Clone)]
pub struct SubmitBranch {
    /// The handoff to its receiver.
    pub handoff: HandoffDraft,
    /// The receiver, for the record.
    pub to: RecordParty,
    /// The rules of the edge.
    pub policy: EdgePolicy,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
}

/// Why a person is asked about a handoff that goes to one: a code.
const HUMAN_TARGET: &str = "HUMAN_TARGET";

impl Submit {
    /// The rows that the decision on it reads, but for the caps.
    pub(super) fn read(&self, rows: &mut Rows<'_>) {
        let handoff = &self.handoff;
        rows.handoff(handoff.task_id, handoff.id);
        rows.first_branch(handoff.id);
        rows.handoffs(handoff.parent_id);
        rows.lineage(handoff.task_id, &handoff.source, handoff.parent_id);
        rows.edges(handoff.task_id);
        rows.run(handoff.task_id, handoff.source_execution, &handoff.source);
        rows.repeat(self.repeat.as_ref());
        let answered = self.repeat.as_ref().and_then(|repeat| repeat.answered);
        rows.handoffs(answered.map(|(id, _)| id));
        rows.idempotency(&handoff.source, self.idempotency_key.as_ref());
    }
}

impl SubmitGroup {
    /// The rows that the decision on it reads.
    pub(super) fn read(&self, rows: &mut Rows<'_>) {
        let HandoffDraft { source, target, task_id, .. } = &self.base.handoff;
        rows.caps(self.branches.iter().map(|branch| &branch.handoff.target));
        rows.caps([source, target]);
        self.base.read(rows);
        rows.open(*task_id);
        rows.handoffs(self.branches.iter().map(|branch| branch.handoff.id));
    }
}

/// Refuses a sender that says by which token it holds the task, and holds it no more: another worker took over.
pub(super) fn held_by_sender(
    state: &BatchState,
    call: &Call,
    submit: &Submit,
) -> Result<(), LedgerError> {
    let Some(token) = submit.fencing_token else { return Ok(()) };
    if submit.handoff.parent_id.is_none() {
        let why = "is needed beside Handoff-Fencing-Token: the token is that of the handoff by which the sender holds the task";
        return Err(LedgerError::Invalid("/parentHandoffId".to_owned(), why.to_owned()));
    }
    let parent = submit.handoff.parent_id.map(|id| (call.tenant.clone(), id));
    let parent = parent.and_then(|key| state.handoffs.get(&key));
    let holds = parent.is_some_and(|parent| {
        parent.target == submit.handoff.source && parent.fencing_token == token
    });
    if holds { Ok(()) } else { Err(LedgerError::StaleLease) }
}

/// Asks the person to whom a handoff goes, where its contract names one.
pub(super) fn ask_person(
    call: &Call,
    context: &Context,
    task: &mut Task,
    handoff: &Handoff,
) -> Result<Vec<Change>, LedgerError> {
    let Some(ruling) = handoff.ruling.as_ref().filter(|ruling| ruling.is_to_person()) else {
        return Ok(Vec::new());
    };
    task.status = task.status.next(TaskEvent::Escalate)?;
    let row = escalation_of(call, context, handoff, HUMAN_TARGET);
    let row = Escalation { resume_as: ruling.resumes_as(), ..row };
    Ok(asked(call, handoff, row).into())
}

/// Whether the submission's `Idempotency-Key` is stored, as one whose repeat was dropped left it.
pub(super) fn is_key_kept(state: &BatchState, call: &Call, submit: &Submit) -> bool {
    submit.idempotency_key.as_ref().is_some_and(|name| {
        let key = (call.tenant.clone(), submit.handoff.source.clone(), name.clone());
        state.idempotency.contains_key(&key)
    })
}

/// The sender's run on its task, as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    /// Its last checkpoint.
    pub(super) last: Option<&'a LastCheckpoint>,
    /// The number of its next one.
    pub(super) next: i64,
}

/// The run of an agent. Rows that others stored under the same id are theirs: they are neither read nor in the way.
pub(super) fn run_by<'a>(
    state: &'a BatchState,
    call: &Call,
    (task, execution): (TaskId, ExecutionId),
    agent: &AgentId,
) -> Run<'a> {
    let stored = state.runs.get(&(call.tenant.clone(), task, execution));
    Run { last: stored.and_then(|run| run.last(agent)), next: stored.map_or(1, RunState::next) }
}

/// The run of a handoff's sender.
pub(super) fn run_of<'a>(state: &'a BatchState, call: &Call, handoff: &HandoffDraft) -> Run<'a> {
    run_by(state, call, (handoff.task_id, handoff.source_execution), &handoff.source)
}

/// The handoff's checkpoint with its commitment: the run's last one, or a new one with the state that the message
/// brings, which the change stores.
pub(super) fn checkpoint(
    call: &Call,
    submit: &Submit,
    run: Run<'_>,
) -> ((CheckpointRef, [u8; 32]), Option<Change>) {
    let handoff = &submit.handoff;
    let execution_id = handoff.source_execution;
    if let (None, Some(last)) = (&submit.checkpoint, run.last) {
        return ((CheckpointRef { execution_id, seq: last.seq }, last.commitment), None);
    }
    let part = submit.checkpoint.as_ref().unwrap_or(&submit.implied_checkpoint).clone();
    let at = CheckpointRef { execution_id, seq: run.next };
    let commitment = part.commitment;
    let stored = Change::Checkpoint(CheckpointRow {
        tenant: call.tenant.clone(),
        task_id: handoff.task_id,
        at,
        agent: handoff.source.clone(),
        part,
        created_at: call.at,
    });
    ((at, commitment), Some(stored))
}

/// The record of a submission, with what its message states.
pub(super) fn submitted(call: &Call, submit: &Submit, handoff: &Handoff) -> RecordDraft {
    let no_op = handoff.status == HandoffStatus::NoOp;
    let kind = if no_op { RecordKind::NoOp } else { RecordKind::Handoff };
    let mut draft = draft_of(call, kind, handoff);
    draft.from = Some(submit.from.clone());
    draft.to = Some(submit.to.clone());
    draft.contract = contracts::named(&submit.policy);
    draft.content = Some(submit.content.clone());
    draft.personal.clone_from(&submit.personal);
    draft.safety.clone_from(&submit.safety);
    draft.residency.clone_from(&submit.residency);
    draft.context = handoff.context;
    draft.stream = streams::facts(handoff);
    draft
}

/// Remembers what a submission's `Idempotency-Key` was used for.
pub(super) fn remember_key<'a>(
    call: &Call,
    key: Option<&String>,
    handoff: impl Into<HandoffTerms<'a>>,
) -> Option<Change> {
    let handoff = handoff.into();
    key.map(|key| {
        Change::Idempotency(IdempotencyRow {
            tenant: call.tenant.clone(),
            agent: handoff.source.clone(),
            key: key.clone(),
            handoff_id: handoff.id,
            created_at: call.at,
        })
    })
}

pub(super) fn is_same(known: &Handoff, whole: &[u8]) -> bool {
    // An erased digest can no longer tell: the id decides then.
    known.is_erased()
        || commit(CommitmentSubject::Submission, &known.digest_salt, whole)[..] == known.digest
}

pub(super) fn replay(known: &Handoff, whole: &[u8]) -> Decision<SubmissionReply> {
    if !is_same(known, whole) {
        return Err(LedgerError::Exists(known.id));
    }
    if known.status == HandoffStatus::DeadLettered {
        return Ok((
            Vec::new(),
            SubmissionReply::Refused {
                failures: Vec::new(),
                dead_lettered: true,
                replayed: true,
                over: None,
                undone: None,
            },
        ));
    }
    let handoff = Box::new(known.clone());
    Ok((Vec::new(), SubmissionReply::Handoff { handoff, replayed: true }))
}

/// The task of a handoff, as it is or as it begins.
pub(super) fn task_of(state: &BatchState, call: &Call, handoff: &HandoffDraft) -> Task {
    state.tasks.get(&(call.tenant.clone(), handoff.task_id)).cloned().unwrap_or_else(|| Task {
        spent: handoff.cost.spent,
        remaining: handoff.cost.remaining,
        ..new_task(call, handoff.task_id, &handoff.source)
    })
}

/// A task that an agent begins.
pub(super) fn new_task(call: &Call, id: TaskId, by: &AgentId) -> Task {
    Task {
        tenant: call.tenant.clone(),
        id,
        status: TaskStatus::PendingHandoff,
        holder: by.clone(),
        checkpoint: None,
        fence: 0,
        handoffs: 0,
        undelivered: 0,
        failures: 0,
        course: Course::default(),
        spent: Usd(0),
        remaining: Usd(0),
        topped_up: Usd(0),
        funds: None,
        opened_by: Some(by.clone()),
        created_at: call.at,
        updated_at: call.at,
    }
}

/// The funds of a task that this handoff begins; what it asks for must be there from the start.
pub(super) fn open_funds(
    task: &Task,
    submit: &Submit,
    context: &Context,
    failures: &mut Vec<Failure>,
) -> Option<Box<Funds>> {
    if task.handoffs > 0 || task.funds.is_some() {
        return None;
    }
    let HandoffDraft { source, cost, .. } = &submit.handoff;
    let reserve = context.rules.reserve;
    let funds = Funds::open(source, cost, submit.declared_budget, task.topped_up, reserve);
    failures.extend(short(&funds, None, source, cost));
    Some(Box::new(funds))
}

/// A handoff takes its part of the task's funds.
pub(super) fn draw(task: &mut Task, handoff: &Handoff) {
    if let Some(funds) = &mut task.funds {
        let Handoff { parent_id: parent, source, cost, .. } = handoff;
        funds.draw(handoff.id, &handoff.target, FundsRequest { parent: *parent, source, cost });
    }
}

/// Who hands a task on has until the answer: the lease by which it holds the task does not run while what
/// it handed on is open.
pub(super) fn suspend_lease(
    state: &BatchState,
    call: &Call,
    task: &Task,
    handed_on: HandoffId,
) -> Option<Change> {
    let incoming = task.funds.as_ref()?.above(handed_on)?;
    let incoming = state.handoffs.get(&(call.tenant.clone(), incoming))?;
    let runs = incoming.status == HandoffStatus::Accepted && incoming.deadline_at.is_some();
    runs.then(|| Change::Handoff(Handoff { deadline_at: None, ..incoming.clone() }))
}

/// The checks of a submission that need the task's lock: its parent, the loop guard and the budget relay. A
/// message that names the wrong parent is measured against the right one.
pub(super) fn guard<'a>(
    state: &BatchState,
    call: &Call,
    context: &Context,
    handoff: impl Into<HandoffTerms<'a>>,
    completed: i64,
) -> Vec<Failure> {
    let handoff = handoff.into();
    let edges = edges_of(state, call, handoff.task_id);
    let task = state.tasks.get(&(call.tenant.clone(), handoff.task_id));
    let find = |id| state.handoffs.get(&(call.tenant.clone(), id));
    let (mut failures, mut parent) = (Vec::new(), handoff.parent_id);
    // A handoff that the broker sent to another agent follows the failed one.
    if handoff.origin.is_none() {
        let own = |one: &&Handoff| {
            one.tenant == call.tenant
                && one.task_id == handoff.task_id
                && lineage::reached(one, handoff.source)
        };
        let reached: Vec<&Handoff> = state.handoffs.values().filter(own).collect();
        if let Err(mismatch) = lineage::check(task, parent, handoff.source, &reached) {
            parent = mismatch.expected;
            failures.push(mismatch.failure);
        }
    }
    let parent = parent.and_then(find);
    failures.extend(check_budget(task, &edges, parent, handoff.source, handoff.cost));
    failures.extend(check_hop(task, &edges, context, handoff, completed));
    failures
}

/// The loop guard's verdict on a submission.
pub(super) fn loop_guard<'a>(
    state: &BatchState,
    call: &Call,
    context: &Context,
    handoff: impl Into<HandoffTerms<'a>>,
    completed: i64,
) -> Vec<Failure> {
    let handoff = handoff.into();
    let edges = edges_of(state, call, handoff.task_id);
    let task = state.tasks.get(&(call.tenant.clone(), handoff.task_id));
    check_hop(task, &edges, context, handoff, completed)
}

fn check_hop(
    task: Option<&Task>,
    edges: &[&Edge],
    context: &Context,
    handoff: HandoffTerms<'_>,
    completed: i64,
) -> Vec<Failure> {
    let rule = handoff.ruling.map(|ruling| &ruling.edge);
    let limits = LoopLimits {
        max_hops: context.rules.max_hops,
        max_edge_repeats: context.rules.max_edge_repeats,
        contract: rule.and_then(|edge| edge.loop_guard.as_ref()),
    };
    let hop = Hop { source: handoff.source, target: handoff.target, completed };
    check_loop(task, edges, hop, limits)
}
