//! Decisions on what senders bring: handoffs, refusals, checkpoints.

use super::caps;
use super::case::{Case, addressed, asked, edges_of, escalation, escalation_of};
use super::command::{
    Command, Counted, DeadLetter, LedgerError, PutCheckpoint, Refuse, Reply, Submit, Undone,
};
use super::context::Context;
use super::contracts;
use super::decide::{Decided, Decision};
use super::plan::{Change, Plan};
use super::returns;
use super::verdict::rejected;
use handoffd_core::domain::cap::CapExceeded;
use handoffd_core::domain::course::Course;
use handoffd_core::domain::escalation::{Escalation, FAILURES_TO_ESCALATE};
use handoffd_core::domain::event::{Event, EventType};
use handoffd_core::domain::failure::{Code, Failure, Stage, primary};
use handoffd_core::domain::funds::{Funds, FundsRequest};
use handoffd_core::domain::handoff::{CheckpointRef, Handoff, HandoffStatus};
use handoffd_core::domain::ids::{AgentId, HandoffId, Micros, TaskId};
use handoffd_core::domain::lineage;
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::progress::{Hop, LoopLimits, check_budget, check_loop, passed, short};
use handoffd_core::domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_core::evidence::record::{Actor, RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::{
    BatchState, CheckpointRow, DeadLetterRow, IdempotencyRow, OutboxRow, RefusedTaskRow,
};

/// Why a person is asked about a handoff that goes to one: a code.
const HUMAN_TARGET: &str = "HUMAN_TARGET";

/// The run's checkpoints are another agent's.
const ANOTHERS_RUN: LedgerError = LedgerError::Forbidden("this run is another agent's");

/// Commits a handoff that passed the gate, or answers as the first time.
pub(super) fn submit(
    state: &BatchState,
    command: &Command,
    context: &Context,
    submit: &Submit,
) -> Decision {
    let key = (command.tenant.clone(), submit.handoff.id);
    let used = submit.idempotency_key.as_ref().and_then(|name| {
        let key = (command.tenant.clone(), submit.handoff.source.clone(), name.clone());
        state.idempotency.get(&key)
    });
    if let Some(known) = state.handoffs.get(&key) {
        let (mut changes, reply) = replay(known, &submit.whole)?;
        if used.is_none() {
            changes.extend(remember_key(command, submit.idempotency_key.as_ref(), &submit.handoff));
        }
        return Ok((changes, reply));
    }
    // The key is read after the handoffs: a copy of this very submission that was committed in between
    // shows as a key without its handoff. To insert it then collides, and all is read anew.
    if used.is_some_and(|used| used.handoff_id != submit.handoff.id) {
        return Err(LedgerError::IdempotencyMismatch);
    }
    let no_op = submit.handoff.status == HandoffStatus::NoOp;
    let mut task = task_of(state, command, &submit.handoff);
    if !submit.has_part && task.holder != submit.handoff.source {
        return Err(LedgerError::NotHolder);
    }
    let seen = contracts::refuse_repeat(state, command, submit)?;
    let mut failures = Vec::new();
    if !no_op {
        task.status = task.status.next(TaskEvent::Submit)?;
        let progress = task.course.progress(&submit.subtasks);
        failures = guard(state, command, context, &submit.handoff, progress);
    }

    let mut changes = Vec::with_capacity(8);
    let mut handoff = submit.handoff.clone();
    let run = (command.tenant.clone(), handoff.task_id, handoff.source_execution);
    let last = state.runs.get(&run);
    if last.is_some_and(|last| last.agent != handoff.source) {
        return Err(ANOTHERS_RUN);
    }
    if submit.checkpoint.is_none() && last.is_none() && submit.require_checkpoint {
        failures.push(no_checkpoint());
    }
    let funds = if no_op { None } else { open_funds(&task, submit, context, &mut failures) };
    let mut over = None;
    if failures.is_empty() && !no_op {
        let books = (&task, funds.as_deref());
        over = caps::check(state, command, context, books, &submit.handoff).map(Box::new);
        failures.extend(over.as_deref().map(CapExceeded::failure));
    }
    if !failures.is_empty() {
        if over.is_none() && !state.tasks.contains_key(&(command.tenant.clone(), task.id)) {
            // Refusals on a task that does not exist are counted by a command of their own.
            return Err(LedgerError::Refused(failures));
        }
        return Ok(refuse_here(state, command, context, submit, (failures, over)));
    }
    let commitment = match (&submit.checkpoint, last) {
        (None, Some(last)) => {
            handoff.checkpoint =
                Some(CheckpointRef { execution_id: handoff.source_execution, seq: last.seq });
            last.commitment
        }
        (own, last) => {
            let part = own.as_ref().unwrap_or(&submit.implied_checkpoint).clone();
            let seq = last.map_or(1, |last| last.seq + 1);
            let at = CheckpointRef { execution_id: handoff.source_execution, seq };
            handoff.checkpoint = Some(at);
            let commitment = part.commitment;
            changes.push(Change::Checkpoint(CheckpointRow {
                tenant: command.tenant.clone(),
                task_id: handoff.task_id,
                at,
                agent: handoff.source.clone(),
                part,
                created_at: command.at,
            }));
            commitment
        }
    };
    if !no_op {
        task.fence += 1;
    }
    if !no_op {
        returns::inherit(state, command, &mut handoff);
    }
    changes.extend(returns::take_out(command, &mut task, Some(&handoff.source)));
    handoff.fencing_token = task.fence;
    handoff.content_id = Some(submit.content.id);
    handoff.commitment = Some(submit.content.part.commitment);
    handoff.checkpoint_commitment = Some(commitment);
    handoff.topped_up = task.topped_up;
    task.updated_at = command.at;
    task.spent = task.spent.max(handoff.cost.spent);
    task.remaining = handoff.cost.remaining;

    let kind = if no_op { RecordKind::NoOp } else { RecordKind::Handoff };
    let mut draft = draft_of(command, kind, &handoff);
    draft.from = Some(submit.from.clone());
    draft.to = Some(submit.to.clone());
    draft.contract = contracts::named(&submit.policy);
    draft.cost = Some(handoff.cost);
    draft.content = Some(submit.content.clone());
    draft.checkpoint_commitment = Some(commitment);
    draft.personal.clone_from(&submit.personal);
    draft.safety.clone_from(&submit.safety);
    draft.residency.clone_from(&submit.residency);

    if no_op {
        handoff.ended_at = Some(command.at);
    } else {
        handoff.clock = context.offered(handoff.clock, command.at, handoff.mode);
        task.funds = funds.or_else(|| task.funds.take());
        draw(&mut task, &handoff);
        draft.spent = task.funds.as_ref().and_then(|funds| funds.before(handoff.id));
        changes.extend(suspend_lease(state, command, &task, handoff.id));
        task.handoffs += 1;
        // The first of its task goes out at once where the dispatcher kept a place for it; any other
        // waits for those before it.
        let claim = submit.claim.as_ref().filter(|_| task.undelivered == 0);
        task.undelivered += 1;
        handoff.attempts = i32::from(claim.is_some());
        task.course.see(&submit.subtasks);
        let edges = edges_of(state, command, task.id);
        let completed = task.course.progress(&[]);
        let hop = Hop { source: &handoff.source, target: &handoff.target, completed };
        changes.push(Change::Edge(passed(&edges, hop, &task, &handoff.cost, command.at)));
        changes.push(Change::Outbox(OutboxRow {
            tenant: command.tenant.clone(),
            handoff_id: handoff.id,
            task_id: handoff.task_id,
            seq: task.handoffs,
            target: handoff.target.clone(),
            mode: handoff.mode,
            priority: submit.priority,
            // At once, whatever another broker's clock says.
            visible_at: claim.map_or(Micros(0), |(_, until)| *until),
            attempt: handoff.attempts,
            busy: 0,
            claimed_by: claim.map(|(broker, _)| broker.clone()),
            created_at: command.at,
        }));
    }
    changes.extend(remember_key(command, submit.idempotency_key.as_ref(), &handoff));
    changes.extend(seen);
    let to_person = handoff.ruling.as_ref().filter(|ruling| ruling.is_to_person() && !no_op);
    let mut asks = None;
    if let Some(ruling) = to_person {
        task.status = task.status.next(TaskEvent::Escalate)?;
        let row = escalation_of(command, context, &handoff, HUMAN_TARGET);
        asks = Some(Box::new(Escalation { resume_as: ruling.resumes_as(), ..row }));
    }
    changes.push(Change::Task(task));
    changes.push(Change::Handoff(handoff.clone()));
    changes.push(Change::Record(Box::new(draft)));
    if !no_op {
        changes.push(tell(Event::of_handoff(EventType::HandoffOccurred, &handoff, command.at)));
    }
    if let Some(row) = asks {
        changes.extend(asked(command, &handoff, *row));
    }
    Ok((changes, Reply::Submitted { handoff, placed: None, replayed: false }))
}

/// Remembers what a submission's `Idempotency-Key` was used for.
fn remember_key(command: &Command, key: Option<&String>, handoff: &Handoff) -> Option<Change> {
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

/// Records a refusal, counts it, and keeps the handoff as a dead letter where that is due.
pub(super) fn refuse(
    state: &BatchState,
    command: &Command,
    context: &Context,
    refuse: &Refuse,
) -> Decision {
    let letter = refuse.dead_letter.as_deref();
    let apart = letter.is_some_and(|letter| Some(letter.handoff.id) != refuse.handoff_id);
    // A letter that is kept apart has an id that its caller's key and the claimed id make.
    let id = letter.map(|letter| letter.handoff.id).or(refuse.handoff_id);
    let mut kept = letter;
    if let Some(known) = id.and_then(|id| state.handoffs.get(&(command.tenant.clone(), id))) {
        // The first answer to this very message stands, whatever the gate says today. It is its
        // sender's: to anyone else the refusal is the answer.
        if let Some(whole) = &refuse.whole
            && command.actor.agent_id.as_ref() == Some(&known.source)
            && is_same(known, whole)
        {
            return refused_before(known, whole, refuse);
        }
        if apart {
            kept = None;
        } else if letter.is_some() {
            return Err(LedgerError::Conflict(format!(
                "handoff {} exists with another content",
                known.id
            )));
        }
    } else if let Some(submit) = &refuse.recovery
        && let Some(decided) = recover(state, command, context, refuse, submit)
    {
        return Ok(decided);
    }
    let reason = primary(&refuse.failures).map(|code| code.as_str().to_owned());
    let mut draft = RecordDraft::new(
        command.tenant.clone(),
        RecordKind::Refused,
        command.at,
        command.actor.clone(),
    );
    draft.task_id = refuse.task_id;
    draft.handoff_id = refuse.handoff_id;
    draft.parent_handoff_id = refuse.parent_handoff_id;
    draft.from.clone_from(&refuse.from);
    draft.to.clone_from(&refuse.to);
    draft.reason.clone_from(&reason);
    draft.safety.clone_from(&refuse.safety);
    let mut changes = Vec::new();
    let mut begun = None;
    if kept.is_none() || apart {
        draft.content = Some(refuse.content.clone());
        changes.push(Change::Record(Box::new(draft.clone())));
    }
    if let Some(letter) = kept {
        begun = keep(state, command, refuse, letter, draft, &mut changes);
    }
    let mut undone = None;
    if let (Some(task_id), Some(counted)) = (refuse.task_id, &refuse.counted) {
        let code = reason.unwrap_or_default();
        let saved = changes.iter().find_map(|change| match change {
            Change::Checkpoint(row) => Some((row.at, row.part.commitment)),
            _ => None,
        });
        let (more, outcome) =
            count_refusal(state, command, context, (task_id, begun, saved), counted, &code);
        changes.extend(more);
        undone = outcome;
    }
    let reply = Reply::Refused {
        failures: refuse.failures.clone(),
        dead_lettered: letter.is_some(),
        replayed: apart && kept.is_none(),
        over: None,
        undone,
    };
    Ok((changes, reply))
}

/// The first answer to a message that comes again, and is refused now.
fn refused_before(known: &Handoff, whole: &[u8], refuse: &Refuse) -> Decision {
    if known.status == HandoffStatus::Rejected && refuse.recovery.is_some() {
        let failures = refuse.failures.clone();
        return Ok((
            Vec::new(),
            Reply::Refused {
                failures,
                dead_lettered: false,
                replayed: true,
                over: None,
                undone: None,
            },
        ));
    }
    replay(known, whole)
}

/// Keeps a handoff for a person; returns its task, where this begins it.
fn keep(
    state: &BatchState,
    command: &Command,
    refuse: &Refuse,
    letter: &DeadLetter,
    mut draft: RecordDraft,
    changes: &mut Vec<Change>,
) -> Option<Task> {
    let reason = draft.reason.clone();
    let mut handoff = letter.handoff.clone();
    let task = task_of(state, command, &handoff);
    let run = (command.tenant.clone(), handoff.task_id, handoff.source_execution);
    let last = state.runs.get(&run);
    // Under another agent's run no checkpoint is kept: the refusal is recorded all the same.
    let own_run = last.is_none_or(|last| last.agent == handoff.source);
    let at = CheckpointRef {
        execution_id: handoff.source_execution,
        seq: last.map_or(1, |last| last.seq + 1),
    };
    handoff.checkpoint = own_run.then_some(at);
    handoff.content_id = Some(letter.content.id);
    handoff.commitment = Some(letter.content.part.commitment);
    handoff.checkpoint_commitment = own_run.then_some(letter.checkpoint.commitment);
    handoff.reason.clone_from(&reason);
    handoff.ended_at = Some(command.at);
    draft.kind = RecordKind::DeadLettered;
    draft.task_id = Some(handoff.task_id);
    draft.handoff_id = Some(handoff.id);
    draft.parent_handoff_id = handoff.parent_id;
    if let Some(from) = &mut draft.from {
        // Whoever it claims to be from, it is kept as the caller's.
        from.agent_id = Some(handoff.source.clone());
    }
    draft.status = Some(HandoffStatus::DeadLettered.as_str());
    draft.cost = Some(handoff.cost);
    draft.content = Some(letter.content.clone());
    draft.checkpoint_commitment = handoff.checkpoint_commitment;
    draft.personal.clone_from(&letter.personal);
    if own_run {
        changes.push(Change::Checkpoint(CheckpointRow {
            tenant: command.tenant.clone(),
            task_id: handoff.task_id,
            at,
            agent: handoff.source.clone(),
            part: letter.checkpoint.clone(),
            created_at: command.at,
        }));
    }
    changes.push(Change::DeadLetter(DeadLetterRow {
        tenant: command.tenant.clone(),
        handoff_id: handoff.id,
        task_id: handoff.task_id,
        source: handoff.source.clone(),
        target: refuse.to.as_ref().and_then(|to| to.agent_id.clone()),
        reason: reason.clone().unwrap_or_default(),
        failures: refuse.failures.clone(),
        status: "OPEN".to_owned(),
        created_at: command.at,
        resolved_at: None,
        resolved_by: None,
    }));
    let begun = !state.tasks.contains_key(&(command.tenant.clone(), handoff.task_id));
    if begun {
        changes.push(Change::Task(task.clone()));
    }
    // A key that was used for another message is not taken from it; what is dangerous is kept all the same.
    let key = letter.idempotency_key.as_ref().filter(|key| {
        let key = (command.tenant.clone(), handoff.source.clone(), (*key).clone());
        !state.idempotency.contains_key(&key)
    });
    changes.extend(remember_key(command, key, &handoff));
    let event = Event::of_handoff(EventType::HandoffDeadLettered, &handoff, command.at);
    changes.push(Change::Handoff(handoff));
    changes.push(Change::Record(Box::new(draft)));
    changes.push(tell(event.with("reason", reason)));
    begun.then_some(task)
}

/// What the contract's acceptance criteria refuse goes the way of a rejection where the contract names one: the
/// handoff is committed and rejected in the same step, by the broker. None where the ledger would refuse it, too.
fn recover(
    state: &BatchState,
    command: &Command,
    context: &Context,
    refuse: &Refuse,
    wanted: &Submit,
) -> Option<Decided> {
    let (mut changes, reply) = submit(state, command, context, wanted).ok()?;
    let Reply::Submitted { handoff, replayed: false, .. } = reply else { return None };
    let mut plan = Plan::new(state.clone());
    plan.apply(changes.clone());
    let broker = Command { actor: Actor::broker(), ..command.clone() };
    let mut case = Case::open(&plan.state, &broker, context, handoff.task_id, handoff.id).ok()?;
    case.undo(&rejected(Code::ContractViolation.as_str(), Some(&refuse.content))).ok()?;
    let task_status = case.task.status;
    let (more, _) = case.close();
    let child = context.spare.handoff;
    let successor = more
        .iter()
        .any(|change| matches!(change, Change::Handoff(other) if other.id == child))
        .then_some(child);
    changes.extend(more);
    let reply = Reply::Refused {
        failures: refuse.failures.clone(),
        dead_lettered: false,
        replayed: false,
        over: None,
        undone: Some(Undone { task_status, successor }),
    };
    Some((changes, reply))
}

/// Stores a checkpoint ahead of a handoff.
pub(super) fn put_checkpoint(
    state: &BatchState,
    command: &Command,
    put: &PutCheckpoint,
) -> Decision {
    let run = (command.tenant.clone(), put.task_id, put.execution_id);
    let last = state.runs.get(&run);
    if last.is_some_and(|last| last.agent != put.agent) {
        return Err(ANOTHERS_RUN);
    }
    let row = CheckpointRow {
        tenant: command.tenant.clone(),
        task_id: put.task_id,
        at: CheckpointRef {
            execution_id: put.execution_id,
            seq: last.map_or(1, |last| last.seq + 1),
        },
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

fn is_same(known: &Handoff, whole: &[u8]) -> bool {
    // An erased digest can no longer tell: the id decides then.
    known.digest.is_empty()
        || commit(CommitmentSubject::Submission, &known.digest_salt, whole)[..] == known.digest
}

fn replay(known: &Handoff, whole: &[u8]) -> Decision {
    if !is_same(known, whole) {
        return Err(LedgerError::Conflict(format!(
            "handoff {} exists with another content",
            known.id
        )));
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
    Ok((Vec::new(), Reply::Submitted { handoff: known.clone(), placed: None, replayed: true }))
}

/// The task of a handoff, as it is or as it begins.
fn task_of(state: &BatchState, command: &Command, handoff: &Handoff) -> Task {
    state.tasks.get(&(command.tenant.clone(), handoff.task_id)).cloned().unwrap_or_else(|| Task {
        spent: handoff.cost.spent,
        remaining: handoff.cost.remaining,
        ..new_task(command, handoff.task_id, &handoff.source)
    })
}

/// A task that an agent begins.
fn new_task(command: &Command, id: TaskId, by: &AgentId) -> Task {
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

/// Tells of an event.
pub(super) fn tell(event: Event) -> Change {
    Change::Event(Box::new(event))
}

/// A draft that speaks of a handoff.
pub(super) fn draft_of(command: &Command, kind: RecordKind, handoff: &Handoff) -> RecordDraft {
    let mut draft =
        RecordDraft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
    draft.task_id = Some(handoff.task_id);
    draft.handoff_id = Some(handoff.id);
    draft.parent_handoff_id = handoff.parent_id;
    draft.status = Some(handoff.status.as_str());
    if let Some(ruling) = &handoff.ruling {
        draft.contract = contracts::named(&ruling.edge);
        draft.audit_event.clone_from(&ruling.edge.audit_event);
    }
    draft
}

/// The books of a task that this handoff begins; what it asks for must be there from the start.
fn open_funds(
    task: &Task,
    submit: &Submit,
    context: &Context,
    failures: &mut Vec<Failure>,
) -> Option<Box<Funds>> {
    if task.handoffs > 0 || task.funds.is_some() {
        return None;
    }
    let Handoff { source, cost, .. } = &submit.handoff;
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
pub(super) fn guard(
    state: &BatchState,
    command: &Command,
    context: &Context,
    handoff: &Handoff,
    completed: i64,
) -> Vec<Failure> {
    let edges = edges_of(state, command, handoff.task_id);
    let task = state.tasks.get(&(command.tenant.clone(), handoff.task_id));
    let find = |id| state.handoffs.get(&(command.tenant.clone(), id));
    let (mut failures, mut parent) = (Vec::new(), handoff.parent_id);
    // What the broker sent to somebody else follows what failed.
    if handoff.origin.is_none() {
        let own = |one: &&Handoff| {
            one.tenant == command.tenant
                && one.task_id == handoff.task_id
                && lineage::reached(one, &handoff.source)
        };
        let reached: Vec<&Handoff> = state.handoffs.values().filter(own).collect();
        if let Err(found) = lineage::check(task, parent, &handoff.source, &reached) {
            parent = found.expected;
            failures.push(found.failure);
        }
    }
    let parent = parent.and_then(find);
    let rule = handoff.ruling.as_ref().map(|ruling| &ruling.edge);
    let limits = LoopLimits {
        max_hops: context.rules.max_hops,
        max_edge_repeats: rule
            .and_then(|edge| edge.max_edge_repeats)
            .map_or(context.rules.max_edge_repeats, i64::from),
        contract: rule.and_then(|edge| edge.loop_guard.as_ref()),
    };
    let hop = Hop { source: &handoff.source, target: &handoff.target, completed };
    failures.extend(check_budget(task, &edges, parent, &handoff.source, &handoff.cost));
    failures.extend(check_loop(task, &edges, hop, limits));
    failures
}

/// A refused submission counts as a failure, where its sender has the task, or where there is none: nobody can
/// bring another's task before a person that way. The third is the last.
fn count_refusal(
    state: &BatchState,
    command: &Command,
    context: &Context,
    (task_id, begun, saved): (TaskId, Option<Task>, Option<Saved>),
    counted: &Counted,
    code: &str,
) -> (Vec<Change>, Option<Undone>) {
    let key = (command.tenant.clone(), task_id);
    let Some(mut task) = begun.or_else(|| state.tasks.get(&key).cloned()) else {
        let key = (command.tenant.clone(), task_id, counted.by.clone());
        let before = state.refused_tasks.get(&key).map_or(0, |row| row.refusals);
        let refusals = before + 1;
        if refusals < FAILURES_TO_ESCALATE {
            let row = RefusedTaskRow {
                tenant: command.tenant.clone(),
                task_id,
                agent: counted.by.clone(),
                refusals,
                updated_at: command.at,
            };
            return (vec![Change::RefusedTask(row)], None);
        }
        let mut task = new_task(command, task_id, &counted.by);
        task.failures = refusals;
        return give_up(state, command, context, (task, saved), counted, code);
    };
    let waits = task.status == TaskStatus::Escalated || task.status.is_final();
    if waits || task.holder != counted.by {
        return (Vec::new(), None);
    }
    task.failures += 1;
    let failures = task.course.fail(&counted.by, &counted.to).max(task.failures);
    if failures < FAILURES_TO_ESCALATE {
        return (vec![Change::Task(task)], None);
    }
    give_up(state, command, context, (task, saved), counted, code)
}

/// A checkpoint that a dead letter's own change stores in this commit already.
type Saved = (CheckpointRef, [u8; 32]);

/// Its sender cannot mend it: the task is rolled back to what came along, as after a rejection, and a person is
/// asked.
fn give_up(
    state: &BatchState,
    command: &Command,
    context: &Context,
    (mut task, saved): (Task, Option<Saved>),
    counted: &Counted,
    code: &str,
) -> (Vec<Change>, Option<Undone>) {
    let mut changes = Vec::new();
    let mut commitment = None;
    if let Some((at, own)) = saved {
        task.checkpoint = Some(at);
        commitment = Some(own);
    } else if let Some(run) = counted.run {
        let last = state.runs.get(&(command.tenant.clone(), task.id, run));
        let own_run = last.is_none_or(|last| last.agent == counted.by);
        match &counted.checkpoint {
            Some(part) if own_run => {
                let seq = last.map_or(1, |last| last.seq + 1);
                let at = CheckpointRef { execution_id: run, seq };
                task.checkpoint = Some(at);
                commitment = Some(part.commitment);
                changes.push(Change::Checkpoint(CheckpointRow {
                    tenant: command.tenant.clone(),
                    task_id: task.id,
                    at,
                    agent: counted.by.clone(),
                    part: part.clone(),
                    created_at: command.at,
                }));
            }
            None if own_run => {
                let at = last.map(|last| CheckpointRef { execution_id: run, seq: last.seq });
                task.checkpoint = at.or(task.checkpoint);
                commitment = last.map(|last| last.commitment);
            }
            _ => {}
        }
    }
    let about = |kind, task: &Task| {
        let event = Event::of_task(kind, task, command.at).with("reason", code);
        Event { source: Some(counted.by.clone()), ..event }
    };
    let draft = |kind, task: &Task| {
        let mut draft = RecordDraft::new(command.tenant.clone(), kind, command.at, Actor::broker());
        draft.task_id = Some(task.id);
        draft.status = Some(task.status.as_str());
        draft.reason = Some(code.to_owned());
        draft
    };
    let alert = |alert, task: &Task| about(EventType::AlertRaised, task).with("alert", alert);
    // While another handoff of the task is on its way there is nothing to go back from.
    if task.status != TaskStatus::HandingOff
        && let Ok(status) = task.status.next(TaskEvent::RollBack)
    {
        task.status = status;
        let mut record = draft(RecordKind::RolledBack, &task);
        record.checkpoint_commitment = commitment;
        changes.push(Change::Record(Box::new(record)));
        let checkpoint = task
            .checkpoint
            .map(|at| serde_json::json!({ "executionId": at.execution_id, "seq": at.seq }));
        let event = about(EventType::HandoffRolledBack, &task)
            .with("checkpoint", checkpoint)
            .with("taskStatus", task.status.as_str())
            .with("failures", task.failures);
        changes.push(tell(Event { audience: Some(counted.by.clone()), ..event }));
        changes.push(tell(alert("HANDOFF_ROLLED_BACK", &task)));
    }
    let Ok(status) = task.status.next(TaskEvent::Escalate) else { return (Vec::new(), None) };
    task.status = status;
    task.updated_at = command.at;
    let target = counted.target.as_ref().unwrap_or(&counted.by);
    let row = escalation(command, context, task.id, (&counted.by, target), code);
    changes.push(Change::Record(Box::new(draft(RecordKind::Escalated, &task))));
    let id = row.id.to_string();
    changes.push(tell(about(EventType::HandoffEscalated, &task).with("escalationId", id)));
    changes.push(tell(alert("HANDOFF_ESCALATED", &task)));
    changes.push(Change::Escalation(row));
    let undone = Undone { task_status: task.status, successor: None };
    changes.push(Change::Task(task));
    (changes, Some(undone))
}

/// The sender must keep checkpoints and has none.
fn no_checkpoint() -> Failure {
    Failure::new(
        Stage::Completeness,
        Code::IncompleteContext,
        "/checkpoint",
        "this sender must checkpoint before it hands off: send `checkpoint`, or store one with PUT /tasks/{taskId}/checkpoints/{executionId}",
    )
}

/// What only the ledger can know, it refuses as the gate would.
fn refuse_here(
    state: &BatchState,
    command: &Command,
    context: &Context,
    submit: &Submit,
    (failures, over): (Vec<Failure>, Option<Box<CapExceeded>>),
) -> Decided {
    let text = serde_json::json!({ "failures": failures });
    let content = RecordContent {
        id: submit.content.id,
        part: PackedContent::new(
            CommitmentSubject::Message,
            submit.refusal_salt,
            &handoffd_core::domain::canonical::to_vec(&text),
        ),
    };
    let code = primary(&failures).unwrap_or(Code::Internal);
    let mut draft = draft_of(command, RecordKind::Refused, &submit.handoff);
    draft.status = None;
    draft.reason = Some(code.as_str().to_owned());
    draft.from = Some(submit.from.clone());
    draft.to = Some(submit.to.clone());
    draft.content = Some(content);
    let mut changes = vec![Change::Record(Box::new(draft))];
    let mut undone = None;
    // What a cap has no room for is to come later, and no defect of the message.
    if over.is_none() {
        let Handoff { task_id, source, target, source_execution, .. } = &submit.handoff;
        let own = submit.checkpoint.as_ref().unwrap_or(&submit.implied_checkpoint);
        let counted = Counted {
            by: source.clone(),
            to: addressed(&submit.handoff),
            target: Some(target.clone()),
            run: Some(*source_execution),
            checkpoint: Some(own.clone()),
        };
        let (more, outcome) =
            count_refusal(state, command, context, (*task_id, None, None), &counted, code.as_str());
        changes.extend(more);
        undone = outcome;
    }
    (changes, Reply::Refused { failures, dead_lettered: false, replayed: false, over, undone })
}
