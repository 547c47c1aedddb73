//! Decisions on what senders bring: handoffs, refusals, checkpoints.

use super::caps;
use super::case::{asked, edges_of, escalation_of};
use super::command::{Command, LedgerError, PutCheckpoint, Reply, Submit};
use super::context::Context;
use super::contracts;
use super::crossing::{CrossingOrigin, HandoffCrossing};
use super::draft::draft_of;
use super::groups;
use super::opinions;
use super::plan::{Change, Decided, Decision};
use super::refusal::refuse_here;
use super::returns;
use super::streams;
use handoffd_core::domain::cap::CapExceeded;
use handoffd_core::domain::course::Course;
use handoffd_core::domain::escalation::Escalation;
use handoffd_core::domain::failure::Failure;
use handoffd_core::domain::funds::{Funds, FundsRequest};
use handoffd_core::domain::handoff::{
    CheckpointRef, Handoff, HandoffCommit, HandoffDraft, HandoffStatus, HandoffTerms,
};
use handoffd_core::domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_core::domain::lineage;
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::progress::{Edge, Hop, LoopLimits, check_budget, check_loop, short};
use handoffd_core::domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_core::evidence::commitment::{CommitmentSubject, commit};
use handoffd_core::evidence::record::{RecordDraft, RecordKind};
use handoffd_core::gate::completeness::no_checkpoint;
use handoffd_store::store::{BatchState, CheckpointRow, IdempotencyRow, LastCheckpoint, RunState};

/// Why a person is asked about a handoff that goes to one: a code.
const HUMAN_TARGET: &str = "HUMAN_TARGET";

/// Commits a handoff that passed the gate, or answers as the first time.
pub(super) fn submit(
    state: &BatchState,
    command: &Command,
    context: &Context,
    submit: &Submit,
) -> Decision {
    if let Some(repeated) = repeated(state, command, submit)? {
        return Ok(repeated);
    }
    let no_op = submit.handoff.status == HandoffStatus::NoOp;
    let mut task = task_of(state, command, &submit.handoff);
    if !submit.has_part && task.holder != submit.handoff.source {
        return Err(LedgerError::NotHolder);
    }
    held_by_sender(state, command, submit)?;
    let parent = (submit.handoff.parent_id, &submit.handoff.source);
    streams::parent_must_be_whole(state, command, parent)?;
    if !no_op {
        groups::may_hand_on(&task)?;
    }
    let repeat = (submit.repeat.as_ref(), is_key_kept(state, command, submit));
    let seen = match contracts::refuse_repeat(state, command, repeat, submit.handoff.id) {
        Err(repeated) => return answered_before(state, command, submit, repeated),
        Ok(seen) => seen,
    };
    if !no_op {
        task.status = task.status.next(TaskEvent::Submit)?;
    }
    let run = run_of(state, command, &submit.handoff);
    let SubmissionCheck { failures, over, funds } =
        check(state, command, context, (&task, run.last), submit);
    if !failures.is_empty() {
        if over.is_none() && !state.tasks.contains_key(&(command.tenant.clone(), task.id)) {
            // Refusals on a task that does not exist are counted by a command of their own.
            return Err(LedgerError::Refused(failures));
        }
        return Ok(refuse_here(state, command, context, submit, (failures, over)));
    }
    let (checkpoint, stored) = checkpoint(command, submit, run);
    let mut handoff = submit.handoff.clone().committed(HandoffCommit {
        content: (submit.content.id, submit.content.part.commitment),
        checkpoint: Some(checkpoint),
        fencing_token: task.fence + i64::from(!no_op),
        topped_up: task.topped_up,
    });
    let mut changes = Vec::with_capacity(8);
    changes.extend(stored);
    let draft = submitted(command, submit, &handoff);
    if no_op {
        changes.extend(stay(command, &mut task, &mut handoff, draft));
    } else {
        task.funds = funds.or_else(|| task.funds.take());
        let origin = CrossingOrigin::Message { subtasks: &submit.subtasks };
        let priority = submit.priority;
        let seq = None;
        let crossing = HandoffCrossing { state, command, context, origin, priority, seq };
        changes.extend(crossing.cross(&mut task, &mut handoff, draft));
    }
    if !is_key_kept(state, command, submit) {
        changes.extend(remember_key(command, submit.idempotency_key.as_ref(), &handoff));
    }
    changes.extend(seen);
    changes.extend(opinions::due(command, submit));
    if !no_op {
        changes.extend(ask_person(command, context, &mut task, &handoff)?);
    }
    changes.push(Change::Task(task));
    Ok((changes, Reply::Submitted { handoff, replayed: false }))
}

/// Refuses a sender that says by which token it holds the task, and holds it no more: another worker took over.
pub(super) fn held_by_sender(
    state: &BatchState,
    command: &Command,
    submit: &Submit,
) -> Result<(), LedgerError> {
    let Some(token) = submit.fencing_token else { return Ok(()) };
    if submit.handoff.parent_id.is_none() {
        let why = "is needed beside Handoff-Fencing-Token: the token is that of the handoff by which the sender holds the task";
        return Err(LedgerError::Invalid("/parentHandoffId".to_owned(), why.to_owned()));
    }
    let parent = submit.handoff.parent_id.map(|id| (command.tenant.clone(), id));
    let parent = parent.and_then(|key| state.handoffs.get(&key));
    let holds = parent.is_some_and(|parent| {
        parent.target == submit.handoff.source && parent.fencing_token == token
    });
    if holds { Ok(()) } else { Err(LedgerError::StaleLease) }
}

/// Asks the person to whom a handoff goes, where its contract names one.
pub(super) fn ask_person(
    command: &Command,
    context: &Context,
    task: &mut Task,
    handoff: &Handoff,
) -> Result<Vec<Change>, LedgerError> {
    let Some(ruling) = handoff.ruling.as_ref().filter(|ruling| ruling.is_to_person()) else {
        return Ok(Vec::new());
    };
    task.status = task.status.next(TaskEvent::Escalate)?;
    let row = escalation_of(command, context, handoff, HUMAN_TARGET);
    let row = Escalation { resume_as: ruling.resumes_as(), ..row };
    Ok(asked(command, handoff, row).into())
}

/// The answer to a submission that was committed before, by its handoff's id.
fn repeated(
    state: &BatchState,
    command: &Command,
    submit: &Submit,
) -> Result<Option<Decided>, LedgerError> {
    let used = submit.idempotency_key.as_ref().and_then(|name| {
        let key = (command.tenant.clone(), submit.handoff.source.clone(), name.clone());
        state.idempotency.get(&key)
    });
    if let Some(known) = state.handoffs.get(&(command.tenant.clone(), submit.handoff.id)) {
        let (mut changes, reply) = replay(known, &submit.whole)?;
        if used.is_none() {
            changes.extend(remember_key(command, submit.idempotency_key.as_ref(), &submit.handoff));
        }
        return Ok(Some((changes, reply)));
    }
    if let Some(known) = groups::again(state, command, submit.handoff.id, &submit.whole) {
        return known.map(Some);
    }
    // The key is read after the handoffs: a copy of this very submission that was committed in between shows as a key
    // without its handoff. To insert the handoff then collides, and all is read anew.
    if used.is_some_and(|used| used.handoff_id != submit.handoff.id) {
        return Err(LedgerError::IdempotencyMismatch);
    }
    Ok(None)
}

/// The answer to a repeat under a contract's dedupe key: the first handoff where the caller found that it counts, with the
/// key of this submission kept, so that another message under the key is refused.
fn answered_before(
    state: &BatchState,
    command: &Command,
    submit: &Submit,
    repeated: LedgerError,
) -> Decision {
    let LedgerError::Repeat { first, seen_at } = repeated else { return Err(repeated) };
    let answered = submit.repeat.as_ref().and_then(|repeat| repeat.answered);
    let known = state.handoffs.get(&(command.tenant.clone(), first));
    let Some(known) = known.filter(|_| answered == Some((first, seen_at))) else {
        return Err(LedgerError::Repeat { first, seen_at });
    };
    let mut changes = Vec::new();
    if !is_key_kept(state, command, submit) {
        changes.extend(remember_key(command, submit.idempotency_key.as_ref(), &submit.handoff));
    }
    Ok((changes, Reply::Submitted { handoff: known.clone(), replayed: true }))
}

/// Whether the submission's `Idempotency-Key` is stored, as one whose repeat was dropped left it.
pub(super) fn is_key_kept(state: &BatchState, command: &Command, submit: &Submit) -> bool {
    submit.idempotency_key.as_ref().is_some_and(|name| {
        let key = (command.tenant.clone(), submit.handoff.source.clone(), name.clone());
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

/// The run of an agent. What others stored under the same id is theirs: it is neither read nor in the way.
pub(super) fn run_by<'a>(
    state: &'a BatchState,
    command: &Command,
    (task, execution): (TaskId, ExecutionId),
    agent: &AgentId,
) -> Run<'a> {
    let stored = state.runs.get(&(command.tenant.clone(), task, execution));
    Run { last: stored.and_then(|run| run.last(agent)), next: stored.map_or(1, RunState::next) }
}

/// The run of a handoff's sender.
pub(super) fn run_of<'a>(
    state: &'a BatchState,
    command: &Command,
    handoff: &HandoffDraft,
) -> Run<'a> {
    run_by(state, command, (handoff.task_id, handoff.source_execution), &handoff.source)
}

/// What the ledger finds of a submission.
struct SubmissionCheck {
    failures: Vec<Failure>,
    /// The cap that has no room for it.
    over: Option<Box<CapExceeded>>,
    /// The funds of a task that begins with it.
    funds: Option<Box<Funds>>,
}

/// Checks a submission against its task, the sender's checkpoints, the task's funds and, where nothing else speaks
/// against it, the caps. A handoff to itself needs a checkpoint only.
fn check(
    state: &BatchState,
    command: &Command,
    context: &Context,
    (task, last): (&Task, Option<&LastCheckpoint>),
    submit: &Submit,
) -> SubmissionCheck {
    let no_op = submit.handoff.status == HandoffStatus::NoOp;
    let mut failures = Vec::new();
    if !no_op {
        let progress = task.course.progress(&submit.subtasks);
        failures = guard(state, command, context, &submit.handoff, progress);
    }
    if submit.checkpoint.is_none() && last.is_none() && submit.require_checkpoint {
        failures.push(no_checkpoint());
    }
    let funds = if no_op { None } else { open_funds(task, submit, context, &mut failures) };
    let mut over = None;
    if failures.is_empty() && !no_op {
        let budget = (task, funds.as_deref());
        over = caps::check(state, command, context, budget, &submit.handoff).map(Box::new);
        failures.extend(over.as_deref().map(CapExceeded::failure));
    }
    SubmissionCheck { failures, over, funds }
}

/// The handoff's checkpoint with its commitment: the run's last one, or a new one with the state that the message
/// brings, which the change stores.
pub(super) fn checkpoint(
    command: &Command,
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
        tenant: command.tenant.clone(),
        task_id: handoff.task_id,
        at,
        agent: handoff.source.clone(),
        part,
        created_at: command.at,
    });
    ((at, commitment), Some(stored))
}

/// The record of a submission, with what its message states.
pub(super) fn submitted(command: &Command, submit: &Submit, handoff: &Handoff) -> RecordDraft {
    let no_op = handoff.status == HandoffStatus::NoOp;
    let kind = if no_op { RecordKind::NoOp } else { RecordKind::Handoff };
    let mut draft = draft_of(command, kind, handoff);
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

/// Commits a handoff of an agent to itself: it is recorded, and the task stays where it is.
fn stay(
    command: &Command,
    task: &mut Task,
    handoff: &mut Handoff,
    mut draft: RecordDraft,
) -> Vec<Change> {
    let mut changes = returns::take_out(command, task, Some(&handoff.source));
    handoff.ended_at = Some(command.at);
    task.state_cost(&handoff.cost);
    task.updated_at = command.at;
    draft.cost = Some(handoff.cost);
    draft.checkpoint_commitment = handoff.checkpoint_commitment;
    changes.push(Change::Handoff(handoff.clone()));
    changes.push(Change::Record(Box::new(draft)));
    changes
}

/// Remembers what a submission's `Idempotency-Key` was used for.
pub(super) fn remember_key<'a>(
    command: &Command,
    key: Option<&String>,
    handoff: impl Into<HandoffTerms<'a>>,
) -> Option<Change> {
    let handoff = handoff.into();
    key.map(|key| {
        Change::Idempotency(IdempotencyRow {
            tenant: command.tenant.clone(),
            agent: handoff.source.clone(),
            key: key.clone(),
            handoff_id: handoff.id,
            created_at: command.at,
        })
    })
}

/// Stores a checkpoint ahead of a handoff: for an agent that has a part in the task, or before there is one.
pub(super) fn put_checkpoint(
    state: &BatchState,
    command: &Command,
    put: &PutCheckpoint,
) -> Decision {
    let task = state.tasks.get(&(command.tenant.clone(), put.task_id));
    if task.is_some_and(|task| !put.has_part && task.holder != put.agent) {
        return Err(LedgerError::NotFound("task"));
    }
    if let Some((handoff_id, token)) = put.fence {
        let held = state
            .handoffs
            .get(&(command.tenant.clone(), handoff_id))
            .filter(|handoff| handoff.task_id == put.task_id && handoff.target == put.agent)
            .ok_or(LedgerError::NotFound("handoff"))?;
        if held.fencing_token != token || held.status == HandoffStatus::Expired {
            return Err(LedgerError::StaleLease);
        }
    }
    let run = run_by(state, command, (put.task_id, put.execution_id), &put.agent);
    let row = CheckpointRow {
        tenant: command.tenant.clone(),
        task_id: put.task_id,
        at: CheckpointRef { execution_id: put.execution_id, seq: run.next },
        agent: put.agent.clone(),
        part: put.part.clone(),
        created_at: command.at,
    };
    let mut draft = RecordDraft::new(
        command.tenant.clone(),
        RecordKind::Checkpoint,
        command.at,
        command.actor.clone(),
    );
    draft.task_id = Some(put.task_id);
    draft.checkpoint_commitment = Some(put.part.commitment);
    Ok((
        vec![Change::Checkpoint(row.clone()), Change::Record(Box::new(draft))],
        Reply::Checkpoint(row),
    ))
}

pub(super) fn is_same(known: &Handoff, whole: &[u8]) -> bool {
    // An erased digest can no longer tell: the id decides then.
    known.is_erased()
        || commit(CommitmentSubject::Submission, &known.digest_salt, whole)[..] == known.digest
}

pub(super) fn replay(known: &Handoff, whole: &[u8]) -> Decision {
    if !is_same(known, whole) {
        return Err(LedgerError::Exists(known.id));
    }
    if known.status == HandoffStatus::DeadLettered {
        return Ok((
            Vec::new(),
            Reply::Refused {
                failures: Vec::new(),
                dead_lettered: true,
                replayed: true,
                over: None,
                undone: None,
            },
        ));
    }
    Ok((Vec::new(), Reply::Submitted { handoff: known.clone(), replayed: true }))
}

/// The task of a handoff, as it is or as it begins.
pub(super) fn task_of(state: &BatchState, command: &Command, handoff: &HandoffDraft) -> Task {
    state.tasks.get(&(command.tenant.clone(), handoff.task_id)).cloned().unwrap_or_else(|| Task {
        spent: handoff.cost.spent,
        remaining: handoff.cost.remaining,
        ..new_task(command, handoff.task_id, &handoff.source)
    })
}

/// A task that an agent begins.
pub(super) fn new_task(command: &Command, id: TaskId, by: &AgentId) -> Task {
    Task {
        tenant: command.tenant.clone(),
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
        created_at: command.at,
        updated_at: command.at,
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
    command: &Command,
    task: &Task,
    handed_on: HandoffId,
) -> Option<Change> {
    let incoming = task.funds.as_ref()?.above(handed_on)?;
    let incoming = state.handoffs.get(&(command.tenant.clone(), incoming))?;
    let runs = incoming.status == HandoffStatus::Accepted && incoming.deadline_at.is_some();
    runs.then(|| Change::Handoff(Handoff { deadline_at: None, ..incoming.clone() }))
}

/// What only the ledger can say of a submission, under the task's lock: what it follows, the loop guard and
/// the budget relay. A message that names the wrong parent is measured against the right one.
pub(super) fn guard<'a>(
    state: &BatchState,
    command: &Command,
    context: &Context,
    handoff: impl Into<HandoffTerms<'a>>,
    completed: i64,
) -> Vec<Failure> {
    let handoff = handoff.into();
    let edges = edges_of(state, command, handoff.task_id);
    let task = state.tasks.get(&(command.tenant.clone(), handoff.task_id));
    let find = |id| state.handoffs.get(&(command.tenant.clone(), id));
    let (mut failures, mut parent) = (Vec::new(), handoff.parent_id);
    // What the broker sent to somebody else follows what failed.
    if handoff.origin.is_none() {
        let own = |one: &&Handoff| {
            one.tenant == command.tenant
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

/// What the loop guard alone says of a submission.
pub(super) fn loop_guard<'a>(
    state: &BatchState,
    command: &Command,
    context: &Context,
    handoff: impl Into<HandoffTerms<'a>>,
    completed: i64,
) -> Vec<Failure> {
    let handoff = handoff.into();
    let edges = edges_of(state, command, handoff.task_id);
    let task = state.tasks.get(&(command.tenant.clone(), handoff.task_id));
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
