//! Decisions on what senders bring: handoffs, refusals, checkpoints.

use super::caps;
use super::case::{edges_of, escalation};
use super::command::{Command, LedgerError, PutCheckpoint, Refuse, Reply, Submit};
use super::context::Context;
use super::contracts;
use super::decide::{Decided, Decision};
use super::plan::Change;
use crate::domain::cap::Over;
use crate::domain::escalation::FAILURES_TO_ESCALATE;
use crate::domain::event::{Event, EventType};
use crate::domain::failure::{Code, Failure, Stage, primary};
use crate::domain::funds::{Ask, Funds};
use crate::domain::handoff::{CheckpointRef, Handoff, HandoffStatus};
use crate::domain::ids::{AgentId, HandoffId, Micros, TaskId};
use crate::domain::lineage;
use crate::domain::money::Usd;
use crate::domain::progress::{Edge, Hop, LoopLimits, check_budget, check_loop, passed, short};
use crate::domain::task::{Task, TaskEvent, TaskStatus};
use crate::evidence::commitment::{Part, Subject, commit};
use crate::evidence::record::{Content, Draft, RecordKind};
use crate::store::{CheckpointRow, DeadLetterRow, IdempotencyRow, OutboxRow, State};

/// The run's checkpoints are another agent's.
const ANOTHERS_RUN: LedgerError = LedgerError::Forbidden("this run is another agent's");

/// Commits a handoff that passed the gate, or answers as the first time.
pub(super) fn submit(
    state: &State,
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
        failures = guard(state, command, context, &submit.handoff, submit.completed);
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
        failures.extend(over.as_deref().map(Over::failure));
    }
    if !failures.is_empty() {
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
        changes.extend(edges_passed(state, command, &task, &handoff, submit.completed));
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
            claimed_by: claim.map(|(broker, _)| broker.clone()),
            created_at: command.at,
        }));
    }
    changes.extend(remember_key(command, submit.idempotency_key.as_ref(), &handoff));
    changes.extend(seen);
    changes.push(Change::Task(task));
    changes.push(Change::Handoff(handoff.clone()));
    changes.push(Change::Record(Box::new(draft)));
    if !no_op {
        changes.push(tell(Event::of_handoff(EventType::HandoffOccurred, &handoff, command.at)));
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

/// Records a refusal, and keeps the handoff as a dead letter where that is due.
pub(super) fn refuse(
    state: &State,
    command: &Command,
    context: &Context,
    refuse: &Refuse,
) -> Decision {
    if let Some(known) =
        refuse.handoff_id.and_then(|id| state.handoffs.get(&(command.tenant.clone(), id)))
    {
        // The first answer to this very message stands, whatever the gate says today. It is its
        // sender's: to anyone else the refusal is the answer.
        if let Some(whole) = &refuse.whole
            && command.actor.agent_id.as_ref() == Some(&known.source)
            && is_same(known, whole)
        {
            return replay(known, whole);
        }
        if refuse.dead_letter.is_some() {
            return Err(LedgerError::Conflict(format!(
                "handoff {} exists with another content",
                known.id
            )));
        }
    }
    let reason = primary(&refuse.failures).map(|code| code.as_str().to_owned());
    let mut draft =
        Draft::new(command.tenant.clone(), RecordKind::Refused, command.at, command.actor.clone());
    draft.task_id = refuse.task_id;
    draft.handoff_id = refuse.handoff_id;
    draft.parent_handoff_id = refuse.parent_handoff_id;
    draft.from.clone_from(&refuse.from);
    draft.to.clone_from(&refuse.to);
    draft.reason.clone_from(&reason);
    draft.safety.clone_from(&refuse.safety);
    let mut changes = Vec::new();
    let reply = Reply::Refused {
        failures: refuse.failures.clone(),
        dead_lettered: refuse.dead_letter.is_some(),
        replayed: false,
        over: None,
    };
    let Some(letter) = &refuse.dead_letter else {
        draft.content = Some(refuse.content.clone());
        changes.push(Change::Record(Box::new(draft)));
        if let (Some(task_id), Some(edge)) = (refuse.task_id, &refuse.edge) {
            let code = reason.unwrap_or_default();
            changes.extend(count_refusal(state, command, context, task_id, edge, &code));
        }
        return Ok((changes, reply));
    };
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
    draft.status = Some(HandoffStatus::DeadLettered.as_str());
    draft.cost = Some(handoff.cost);
    draft.content = Some(letter.content.clone());
    draft.checkpoint_commitment = Some(letter.checkpoint.commitment);
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
    if !state.tasks.contains_key(&(command.tenant.clone(), handoff.task_id)) {
        changes.push(Change::Task(task));
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
    Ok((changes, reply))
}

/// Stores a checkpoint ahead of a handoff.
pub(super) fn put_checkpoint(state: &State, command: &Command, put: &PutCheckpoint) -> Decision {
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
    let mut draft = Draft::new(
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
        || commit(Subject::Submission, &known.digest_salt, whole)[..] == known.digest
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
            },
        ));
    }
    Ok((Vec::new(), Reply::Submitted { handoff: known.clone(), placed: None, replayed: true }))
}

/// The task of a handoff, as it is or as it begins.
fn task_of(state: &State, command: &Command, handoff: &Handoff) -> Task {
    state.tasks.get(&(command.tenant.clone(), handoff.task_id)).cloned().unwrap_or_else(|| Task {
        tenant: command.tenant.clone(),
        id: handoff.task_id,
        status: TaskStatus::PendingHandoff,
        holder: handoff.source.clone(),
        checkpoint: None,
        fence: 0,
        handoffs: 0,
        undelivered: 0,
        failures: 0,
        spent: handoff.cost.spent,
        remaining: handoff.cost.remaining,
        topped_up: Usd(0),
        funds: None,
        opened_by: Some(handoff.source.clone()),
        created_at: command.at,
        updated_at: command.at,
    })
}

/// Tells of an event.
pub(super) fn tell(event: Event) -> Change {
    Change::Event(Box::new(event))
}

/// A draft that speaks of a handoff.
pub(super) fn draft_of(command: &Command, kind: RecordKind, handoff: &Handoff) -> Draft {
    let mut draft = Draft::new(command.tenant.clone(), kind, command.at, command.actor.clone());
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
        funds.draw(handoff.id, &handoff.target, Ask { parent: *parent, source, cost });
    }
}

/// Who hands a task on has until the answer: the lease by which it holds the task does not run while what
/// it handed on is open.
pub(super) fn suspend_lease(
    state: &State,
    command: &Command,
    task: &Task,
    handed_on: HandoffId,
) -> Option<Change> {
    let incoming = task.funds.as_ref()?.incoming(handed_on)?;
    let incoming = state.handoffs.get(&(command.tenant.clone(), incoming))?;
    let runs = incoming.status == HandoffStatus::Accepted && incoming.deadline_at.is_some();
    runs.then(|| Change::Handoff(Handoff { deadline_at: None, ..incoming.clone() }))
}

/// What only the ledger can say of a submission, under the task's lock: what it follows, the loop guard and
/// the budget relay. A message that names the wrong parent is measured against the right one.
pub(super) fn guard(
    state: &State,
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

/// The edge that a handoff takes, and those by which its sender got the task: it goes on with it, so
/// these went well.
fn edges_passed(
    state: &State,
    command: &Command,
    task: &Task,
    handoff: &Handoff,
    completed: i64,
) -> Vec<Change> {
    let edges = edges_of(state, command, handoff.task_id);
    let hop = Hop { source: &handoff.source, target: &handoff.target, completed };
    let passed = passed(&edges, hop, task, &handoff.cost, command.at);
    edges
        .into_iter()
        .filter(|edge| edge.target == handoff.source && edge.failures > 0)
        .map(|edge| Edge { failures: 0, updated_at: command.at, ..edge.clone() })
        .chain(std::iter::once(passed))
        .map(Change::Edge)
        .collect()
}

/// A message that its sender has to mend counts as a failure of the edge, where the sender has the
/// task (ruling X9): nobody else can bring a task before a person that way.
fn count_refusal(
    state: &State,
    command: &Command,
    context: &Context,
    task_id: TaskId,
    (source, target): &(AgentId, AgentId),
    code: &str,
) -> Vec<Change> {
    let Some(task) = state
        .tasks
        .get(&(command.tenant.clone(), task_id))
        .filter(|task| task.holder == *source && source != target && !task.status.is_final())
    else {
        return Vec::new();
    };
    let key = (command.tenant.clone(), task_id, source.clone(), target.clone());
    let mut edge = state.edges.get(&key).cloned().unwrap_or_else(|| {
        Edge::new(command.tenant.clone(), task_id, source.clone(), target.clone(), command.at)
    });
    edge.failures += 1;
    edge.updated_at = command.at;
    let failures = edge.failures;
    let mut changes = vec![Change::Edge(edge)];
    let mut task = task.clone();
    task.failures += 1;
    task.updated_at = command.at;
    let due = failures >= FAILURES_TO_ESCALATE && task.status != TaskStatus::Escalated;
    let Some(status) = due.then(|| task.status.next(TaskEvent::Escalate).ok()).flatten() else {
        changes.push(Change::Task(task));
        return changes;
    };
    task.status = status;
    let mut draft = Draft::new(
        command.tenant.clone(),
        RecordKind::Escalated,
        command.at,
        crate::evidence::record::Actor::broker(),
    );
    draft.task_id = Some(task_id);
    draft.status = Some(status.as_str());
    draft.reason = Some(code.to_owned());
    let row = escalation(command, context, task_id, (source, target), code);
    let event = Event::of_task(EventType::HandoffEscalated, &task, command.at)
        .with("reason", code)
        .with("escalationId", row.id.to_string());
    changes.push(Change::Escalation(row));
    changes.push(Change::Task(task));
    changes.push(Change::Record(Box::new(draft)));
    changes.push(tell(event));
    changes
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
    state: &State,
    command: &Command,
    context: &Context,
    submit: &Submit,
    (failures, over): (Vec<Failure>, Option<Box<Over>>),
) -> Decided {
    let text = serde_json::json!({ "failures": failures });
    let content = Content {
        id: submit.content.id,
        part: Part::new(
            Subject::Message,
            submit.refusal_salt,
            &crate::domain::canonical::to_vec(&text),
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
    if code == Code::IncompleteContext {
        let Handoff { task_id, source, target, .. } = &submit.handoff;
        let edge = (source.clone(), target.clone());
        changes.extend(count_refusal(state, command, context, *task_id, &edge, code.as_str()));
    }
    (changes, Reply::Refused { failures, dead_lettered: false, replayed: false, over })
}
