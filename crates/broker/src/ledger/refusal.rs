//! Decisions on refusals: the record, the dead letter, and the failure that counts against the sender.

use super::call::Call;
use super::case::{addressed, escalation, party};
use super::context::Context;
use super::draft::{draft_of, publish};
use super::plan::{Change, Decided};
use super::reply::{SubmissionReply, Undone};
use super::submission::{Run, Submit, new_task, run_by};
use handoffd_domain::canonical;
use handoffd_domain::cap::CapExceeded;
use handoffd_domain::escalation::FAILURES_TO_ESCALATE;
use handoffd_domain::event::{Alert, Event, EventType};
use handoffd_domain::failure::{Code, Failure, primary};
use handoffd_domain::handoff::{CheckpointRef, HandoffDraft};
use handoffd_domain::ids::{AgentId, ContentId, ExecutionId, HandoffId, TaskId};
use handoffd_domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{Actor, RecordContent, RecordDraft, RecordKind, RecordParty};
use handoffd_store::store::refusals::{self, Finding, RefusalRow};
use handoffd_store::store::{BatchState, CheckpointRow, RefusedTaskRow};

/// A refused submission as a failure.
#[derive(Debug, Clone)]
pub struct Counted {
    pub by: AgentId,
    /// As addressed: an agent's id, `type:<agentType>` or `capability:<name>`; empty where that is unreadable.
    pub to: String,
    pub target: Option<AgentId>,
    /// The sender's run, where it could be read.
    pub run: Option<ExecutionId>,
    /// The checkpoint in the message.
    pub checkpoint: Option<PackedContent>,
}

/// Places of a refusal that are listed, at most.
const MOST_FINDINGS: usize = 32;

/// The refusal as it is listed, and as operators are told of it. It follows its record.
pub(super) fn listed(
    call: &Call,
    id: ContentId,
    (from, to): (Option<&RecordParty>, Option<&RecordParty>),
    (task_id, handoff_id): (Option<TaskId>, Option<HandoffId>),
    failures: &[Failure],
) -> [Change; 2] {
    let code = primary(failures).unwrap_or(Code::Internal);
    let first = failures.iter().find(|failure| failure.code == code);
    let pointer = first.map_or_else(String::new, |failure| place(&failure.pointer));
    let named = |party: Option<&RecordParty>| party.and_then(|party| party.agent_id.clone());
    let source = call.actor.agent_id.clone().or_else(|| named(from));
    let target = named(to);
    let findings = failures.iter().take(MOST_FINDINGS).map(|failure| Finding {
        stage: failure.stage.as_str().to_owned(),
        code: failure.code.as_str().to_owned(),
        pointer: place(&failure.pointer),
        rule: failure.rule.clone(),
    });
    let row = RefusalRow {
        tenant: call.tenant.clone(),
        id,
        created_at: call.at,
        source: source.clone(),
        target: target.clone(),
        task_id,
        handoff_id,
        code: code.as_str().to_owned(),
        pointer: pointer.clone(),
        findings: findings.collect(),
    };
    let event = Event::new(EventType::HandoffRefused, call.tenant.clone(), call.at);
    let event = Event { task_id, handoff_id, source, target, ..event };
    let event = event.with("reason", code.as_str()).with("pointer", pointer);
    [Change::Row(refusals::insert(&row)), publish(event)]
}

/// A pointer without what its sender may have written into it: a segment that is not a plain name is `*`.
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

/// Counts a refused submission as a failure of its task, if the sender holds that task or begins it: otherwise an agent could
/// escalate the task of another agent. The third failure escalates the task.
pub(super) fn count_refusal(
    state: &BatchState,
    call: &Call,
    context: &Context,
    (task_id, begun, saved): (TaskId, Option<Task>, Option<Saved>),
    counted: &Counted,
    code: &str,
) -> (Vec<Change>, Option<Undone>) {
    let key = (call.tenant.clone(), task_id);
    let Some(mut task) = begun.or_else(|| state.tasks.get(&key).cloned()) else {
        let key = (call.tenant.clone(), task_id, counted.by.clone());
        let before = state.refused_tasks.get(&key).map_or(0, |row| row.refusals);
        let refusals = before + 1;
        if refusals < FAILURES_TO_ESCALATE {
            let row = RefusedTaskRow {
                tenant: call.tenant.clone(),
                task_id,
                agent: counted.by.clone(),
                refusals,
                updated_at: call.at,
            };
            return (vec![Change::RefusedTask(row)], None);
        }
        let mut task = new_task(call, task_id, &counted.by);
        task.failures = refusals;
        return give_up(state, call, context, (task, saved), counted, code);
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
    give_up(state, call, context, (task, saved), counted, code)
}

/// A checkpoint that a dead letter's own change stores in this commit already.
type Saved = (CheckpointRef, [u8; 32]);

/// Its sender cannot mend it: the task is rolled back to what came along, as after a rejection, and a person is
/// asked.
fn give_up(
    state: &BatchState,
    call: &Call,
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
        let Run { last, next } = run_by(state, call, (task.id, run), &counted.by);
        if let Some(part) = &counted.checkpoint {
            let at = CheckpointRef { execution_id: run, seq: next };
            task.checkpoint = Some(at);
            commitment = Some(part.commitment);
            changes.push(Change::Checkpoint(CheckpointRow {
                tenant: call.tenant.clone(),
                task_id: task.id,
                at,
                agent: counted.by.clone(),
                part: part.clone(),
                created_at: call.at,
            }));
        } else {
            let at = last.map(|last| CheckpointRef { execution_id: run, seq: last.seq });
            task.checkpoint = at.or(task.checkpoint);
            commitment = last.map(|last| last.commitment);
        }
    }
    let about = |kind, task: &Task| {
        let event = Event::of_task(kind, task, call.at).with("reason", code);
        Event { source: Some(counted.by.clone()), ..event }
    };
    let draft = |kind, task: &Task| {
        let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, Actor::broker());
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
    task.updated_at = call.at;
    let target = counted.target.as_ref().unwrap_or(&counted.by);
    let row = escalation(call, context, task.id, (&counted.by, target), code);
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

/// A refusal that only the ledger can decide, in the gate's form.
pub(super) fn refuse_here(
    state: &BatchState,
    call: &Call,
    context: &Context,
    submit: &Submit,
    (failures, over): (Vec<Failure>, Option<Box<CapExceeded>>),
) -> Decided<SubmissionReply> {
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
    let mut draft = draft_of(call, RecordKind::Refused, &submit.handoff);
    draft.status = None;
    draft.reason = Some(code.as_str().to_owned());
    draft.from = Some(submit.from.clone());
    draft.to = Some(submit.to.clone());
    draft.content = Some(content);
    let mut changes = vec![Change::Record(Box::new(draft))];
    let HandoffDraft { id, task_id, .. } = &submit.handoff;
    changes.extend(listed(
        call,
        submit.content.id,
        (Some(&submit.from), Some(&submit.to)),
        (Some(*task_id), Some(*id)),
        &failures,
    ));
    let mut undone = None;
    // A handoff beyond a cap's room is to come later, and has no defect.
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
            count_refusal(state, call, context, (*task_id, None, None), &counted, code.as_str());
        changes.extend(more);
        undone = outcome;
    }
    (
        changes,
        SubmissionReply::Refused { failures, dead_lettered: false, replayed: false, over, undone },
    )
}
