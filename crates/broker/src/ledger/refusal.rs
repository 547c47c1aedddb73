//! Decisions on refusals: the record, the dead letter, and the failure that counts against the sender.

use super::case::{Case, addressed, escalation, party};
use super::command::{Command, Counted, DeadLetter, LedgerError, Refuse, Reply, Submit, Undone};
use super::context::Context;
use super::draft::{draft_of, publish};
use super::groups;
use super::plan::{Change, Decided, Decision, Plan};
use super::submit::{Run, is_same, new_task, remember_key, replay, run_by, run_of, submit};
use super::verdict::rejected;
use handoffd_core::domain::canonical;
use handoffd_core::domain::cap::CapExceeded;
use handoffd_core::domain::dead_letter::DeadLetterStatus;
use handoffd_core::domain::escalation::FAILURES_TO_ESCALATE;
use handoffd_core::domain::event::{Alert, Event, EventType};
use handoffd_core::domain::failure::{Code, Failure, primary};
use handoffd_core::domain::handoff::{
    CheckpointRef, Handoff, HandoffCommit, HandoffDraft, HandoffStatus,
};
use handoffd_core::domain::ids::{ContentId, HandoffId, TaskId};
use handoffd_core::domain::money::Usd;
use handoffd_core::domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_core::evidence::record::{Actor, RecordContent, RecordDraft, RecordKind, RecordParty};
use handoffd_store::store::refusals::{Finding, RefusalRow};
use handoffd_store::store::{BatchState, CheckpointRow, DeadLetterRow, RefusedTaskRow};

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
    if let (Some(id), Some(whole)) = (refuse.handoff_id, &refuse.whole)
        && let Some(decision @ Ok(_)) = groups::again(state, command, id, whole)
    {
        return decision;
    }
    if let Some(known) = id.and_then(|id| state.handoffs.get(&(command.tenant.clone(), id))) {
        // The first answer to this very message stands, whatever the gate says today. It is its
        // sender's: to anyone else the refusal is the answer.
        if let Some(whole) = &refuse.whole
            && command.actor.agent_id.as_ref() == Some(&known.source)
            && is_same(known, whole)
        {
            return refused_before(known, whole, refuse);
        }
        // Idempotency comes before the gate: a sender's own id with another message is a conflict, whatever the gate
        // says of that message (specification §2.3).
        let own = refuse.whole.is_some() && command.actor.agent_id.as_ref() == Some(&known.source);
        if apart {
            kept = None;
        } else if letter.is_some() || own {
            return Err(LedgerError::Exists(known.id));
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
    changes.extend(listed(
        command,
        refuse.content.id,
        (refuse.from.as_ref(), refuse.to.as_ref()),
        (refuse.task_id, refuse.handoff_id),
        &refuse.failures,
    ));
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

/// Places of a refusal that are listed, at most.
const MOST_FINDINGS: usize = 32;

/// The refusal as it is listed, and as operators are told of it. It follows its record.
fn listed(
    command: &Command,
    id: ContentId,
    (from, to): (Option<&RecordParty>, Option<&RecordParty>),
    (task_id, handoff_id): (Option<TaskId>, Option<HandoffId>),
    failures: &[Failure],
) -> [Change; 2] {
    let code = primary(failures).unwrap_or(Code::Internal);
    let first = failures.iter().find(|failure| failure.code == code);
    let pointer = first.map_or_else(String::new, |failure| place(&failure.pointer));
    let named = |party: Option<&RecordParty>| party.and_then(|party| party.agent_id.clone());
    let source = command.actor.agent_id.clone().or_else(|| named(from));
    let target = named(to);
    let findings = failures.iter().take(MOST_FINDINGS).map(|failure| Finding {
        stage: failure.stage.as_str().to_owned(),
        code: failure.code.as_str().to_owned(),
        pointer: place(&failure.pointer),
        rule: failure.rule.clone(),
    });
    let row = RefusalRow {
        tenant: command.tenant.clone(),
        id,
        created_at: command.at,
        source: source.clone(),
        target: target.clone(),
        task_id,
        handoff_id,
        code: code.as_str().to_owned(),
        pointer: pointer.clone(),
        findings: findings.collect(),
    };
    let event = Event::new(EventType::HandoffRefused, command.tenant.clone(), command.at);
    let event = Event { task_id, handoff_id, source, target, ..event };
    let event = event.with("reason", code.as_str()).with("pointer", pointer);
    [Change::Refusal(Box::new(row)), publish(event)]
}

/// A pointer without what its sender may have written into it: a segment that is no plain name is `*`.
fn place(pointer: &str) -> String {
    let plain = |segment: &str| {
        segment.len() <= 64
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-~$".contains(&byte))
    };
    let segments = pointer.split('/').map(|segment| if plain(segment) { segment } else { "*" });
    let mut place = segments.take(32).collect::<Vec<_>>().join("/");
    place.truncate(512);
    place
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
    let handoff = &letter.handoff;
    // Nothing was spent on a task that no handoff has begun.
    let known = state.tasks.get(&(command.tenant.clone(), handoff.task_id)).cloned();
    let task = known.unwrap_or_else(|| new_task(command, handoff.task_id, &handoff.source));
    let at = CheckpointRef {
        execution_id: handoff.source_execution,
        seq: run_of(state, command, handoff).next,
    };
    let mut handoff = handoff.clone().committed(HandoffCommit {
        content: (letter.content.id, letter.content.part.commitment),
        checkpoint: Some((at, letter.checkpoint.commitment)),
        fencing_token: 0,
        topped_up: Usd(0),
    });
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
    changes.push(Change::Checkpoint(CheckpointRow {
        tenant: command.tenant.clone(),
        task_id: handoff.task_id,
        at,
        agent: handoff.source.clone(),
        part: letter.checkpoint.clone(),
        created_at: command.at,
    }));
    changes.push(Change::DeadLetter(DeadLetterRow {
        tenant: command.tenant.clone(),
        handoff_id: handoff.id,
        task_id: handoff.task_id,
        source: handoff.source.clone(),
        target: refuse.to.as_ref().and_then(|to| to.agent_id.clone()),
        reason: reason.clone().unwrap_or_default(),
        failures: refuse.failures.clone(),
        status: DeadLetterStatus::Open,
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
    changes.push(publish(event.with("reason", reason)));
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
    changes.extend(listed(
        command,
        refuse.content.id,
        (refuse.from.as_ref(), refuse.to.as_ref()),
        (refuse.task_id, refuse.handoff_id),
        &refuse.failures,
    ));
    let reply = Reply::Refused {
        failures: refuse.failures.clone(),
        dead_lettered: false,
        replayed: false,
        over: None,
        undone: Some(Undone { task_status, successor }),
    };
    Some((changes, reply))
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
        let Run { last, next } = run_by(state, command, (task.id, run), &counted.by);
        if let Some(part) = &counted.checkpoint {
            let at = CheckpointRef { execution_id: run, seq: next };
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
        } else {
            let at = last.map(|last| CheckpointRef { execution_id: run, seq: last.seq });
            task.checkpoint = at.or(task.checkpoint);
            commitment = last.map(|last| last.commitment);
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
    let alert = |alert: Alert, task: &Task| {
        about(EventType::AlertRaised, task).with("alert", alert.as_str())
    };
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
        changes.push(publish(Event { audience: Some(counted.by.clone()), ..event }));
        changes.push(publish(alert(Alert::HandoffRolledBack, &task)));
    }
    let Ok(status) = task.status.next(TaskEvent::Escalate) else { return (Vec::new(), None) };
    task.status = status;
    task.updated_at = command.at;
    let target = counted.target.as_ref().unwrap_or(&counted.by);
    let row = escalation(command, context, task.id, (&counted.by, target), code);
    let mut record = draft(RecordKind::Escalated, &task);
    (record.from, record.to) = (Some(party(&row.source)), Some(party(&row.target)));
    changes.push(Change::Record(Box::new(record)));
    let id = row.id.to_string();
    changes.push(publish(about(EventType::HandoffEscalated, &task).with("escalationId", id)));
    changes.push(publish(alert(Alert::HandoffEscalated, &task)));
    changes.push(Change::Escalation(row));
    let undone = Undone { task_status: task.status, successor: None };
    changes.push(Change::Task(task));
    (changes, Some(undone))
}

/// What only the ledger can know, it refuses as the gate would.
pub(super) fn refuse_here(
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
            &canonical::to_vec(&text),
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
    let HandoffDraft { id, task_id, .. } = &submit.handoff;
    changes.extend(listed(
        command,
        submit.content.id,
        (Some(&submit.from), Some(&submit.to)),
        (Some(*task_id), Some(*id)),
        &failures,
    ));
    let mut undone = None;
    // What a cap has no room for is to come later, and no defect of the message.
    if over.is_none() {
        let HandoffDraft { task_id, source, target, source_execution, .. } = &submit.handoff;
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
