//! Record that the gate refused a submission; keep it as a dead letter where that is due.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::failure::rejected;
use crate::ledger::groups;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decided, Decision, Plan};
use crate::ledger::refusal::{Counted, count_refusal, listed};
use crate::ledger::reply::{LedgerError, SubmissionReply, Undone};
use crate::ledger::submission::{Submit, is_same, new_task, remember_key, replay, run_of};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::failure::{Code, Failure, primary};
use handoffd_domain::handoff::{
    CheckpointRef, Handoff, HandoffCommit, HandoffDraft, HandoffStatus,
};
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::task::Task;
use handoffd_evidence::commitment::PackedContent;
use handoffd_evidence::record::{
    Actor, PersonalPart, RecordContent, RecordDraft, RecordKind, RecordParty, SafetyFacts,
};
use handoffd_store::store::{BatchState, CheckpointRow, DeadLetterRow};

#[derive(Debug, Clone)]
pub struct Refuse {
    /// On which task, as far as the message could be read.
    pub task_id: Option<TaskId>,
    pub handoff_id: Option<HandoffId>,
    pub parent_handoff_id: Option<HandoffId>,
    pub from: Option<RecordParty>,
    /// The receiver as addressed.
    pub to: Option<RecordParty>,
    /// The failure that counts against the sender.
    pub counted: Option<Counted>,
    /// The handoff as it would have been, where only the contract's acceptance criteria speak against it and the
    /// contract says where it goes then.
    pub recovery: Option<Box<Submit>>,
    pub failures: Vec<Failure>,
    /// The failures, as the record's content.
    pub content: RecordContent,
    /// The whole canonical message, where it could be read.
    pub whole: Option<Vec<u8>>,
    /// The findings of the safety stage, if the record has them.
    pub safety: Option<SafetyFacts>,
    /// If it is a dead letter: the row to keep, and the message's other parts.
    pub dead_letter: Option<Box<DeadLetter>>,
}

/// A handoff to be kept for a person.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The handoff, with status `DEAD_LETTERED`.
    pub handoff: HandoffDraft,
    /// The message.
    pub content: RecordContent,
    /// The sender's checkpoint, or the state that replaces it.
    pub checkpoint: PackedContent,
    pub personal: Vec<PersonalPart>,
    /// `Idempotency-Key`: it stays this message's, as that of a handoff does.
    pub idempotency_key: Option<String>,
}

impl Command for Refuse {
    type Reply = SubmissionReply;
    const NAME: &'static str = "refuse";

    fn needs(&self, rows: &mut Rows<'_>) {
        if let Some(submit) = &self.recovery {
            rows.caps([&submit.handoff.source, &submit.handoff.target]);
        }
        if let (Some(task_id), Some(handoff_id)) = (self.task_id, self.handoff_id) {
            rows.handoff(task_id, handoff_id);
            rows.first_branch(handoff_id);
        }
        if let (Some(task_id), Some(counted)) = (self.task_id, &self.counted) {
            rows.task(task_id);
            rows.refused_task(task_id, &counted.by);
            if let Some(run) = counted.run {
                rows.run(task_id, run, &counted.by);
            }
        }
        if let Some(letter) = &self.dead_letter {
            let handoff = &letter.handoff;
            rows.handoff(handoff.task_id, handoff.id);
            rows.run(handoff.task_id, handoff.source_execution, &handoff.source);
            rows.idempotency(&handoff.source, letter.idempotency_key.as_ref());
        }
        if let Some(submit) = &self.recovery {
            submit.read(rows);
            rows.open(submit.handoff.task_id);
            let ruling = submit.handoff.ruling.as_ref();
            let others = ruling.map(|ruling| ruling.fallbacks()).unwrap_or_default();
            for id in &others {
                rows.agent(id);
            }
        }
    }

    /// Records a refusal, counts it, and keeps the handoff as a dead letter where that is due.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let letter = self.dead_letter.as_deref();
        let apart = letter.is_some_and(|letter| Some(letter.handoff.id) != self.handoff_id);
        // A letter that is kept apart has an id that its caller's key and the claimed id make.
        let id = letter.map(|letter| letter.handoff.id).or(self.handoff_id);
        let mut kept = letter;
        if let (Some(id), Some(whole)) = (self.handoff_id, &self.whole)
            && let Some(decision @ Ok(_)) = groups::again(state, call, id, whole)
        {
            return decision;
        }
        if let Some(known) = id.and_then(|id| state.handoffs.get(&(call.tenant.clone(), id))) {
            // The first answer to this very message stays, whatever the gate decides today. It is
            // its sender's: to anyone else the refusal is the answer.
            if let Some(whole) = &self.whole
                && call.actor.agent_id.as_ref() == Some(&known.source)
                && is_same(known, whole)
            {
                return refused_before(known, whole, self);
            }
            // Idempotency comes before the gate: a sender's own id with another message is a conflict, whatever the gate
            // says of that message (specification §2.3).
            let own = self.whole.is_some() && call.actor.agent_id.as_ref() == Some(&known.source);
            if apart {
                kept = None;
            } else if letter.is_some() || own {
                return Err(LedgerError::Exists(known.id));
            }
        } else if let Some(submit) = &self.recovery
            && let Some(decided) = recover(state, call, context, self, submit)
        {
            return Ok(decided);
        }
        let reason = primary(&self.failures).map(|code| code.as_str().to_owned());
        let mut draft =
            RecordDraft::new(call.tenant.clone(), RecordKind::Refused, call.at, call.actor.clone());
        draft.task_id = self.task_id;
        draft.handoff_id = self.handoff_id;
        draft.parent_handoff_id = self.parent_handoff_id;
        draft.from.clone_from(&self.from);
        draft.to.clone_from(&self.to);
        draft.reason.clone_from(&reason);
        draft.safety.clone_from(&self.safety);
        let mut changes = Vec::new();
        let mut begun = None;
        if kept.is_none() || apart {
            draft.content = Some(self.content.clone());
            changes.push(Change::Record(Box::new(draft.clone())));
        }
        if let Some(letter) = kept {
            begun = keep(state, call, self, letter, draft, &mut changes);
        }
        changes.extend(listed(
            call,
            self.content.id,
            (self.from.as_ref(), self.to.as_ref()),
            (self.task_id, self.handoff_id),
            &self.failures,
        ));
        let mut undone = None;
        if let (Some(task_id), Some(counted)) = (self.task_id, &self.counted) {
            let code = reason.unwrap_or_default();
            let saved = changes.iter().find_map(|change| match change {
                Change::Checkpoint(row) => Some((row.at, row.part.commitment)),
                _ => None,
            });
            let (more, outcome) =
                count_refusal(state, call, context, (task_id, begun, saved), counted, &code);
            changes.extend(more);
            undone = outcome;
        }
        let reply = SubmissionReply::Refused {
            failures: self.failures.clone(),
            dead_lettered: letter.is_some(),
            replayed: apart && kept.is_none(),
            over: None,
            undone,
        };
        Ok((changes, reply))
    }

    fn submission(reply: &Self::Reply) -> Option<&SubmissionReply> {
        Some(reply)
    }
}

/// The first answer to a message that comes again, and is refused now.
fn refused_before(known: &Handoff, whole: &[u8], refuse: &Refuse) -> Decision<SubmissionReply> {
    if known.status == HandoffStatus::Rejected && refuse.recovery.is_some() {
        let failures = refuse.failures.clone();
        return Ok((
            Vec::new(),
            SubmissionReply::Refused {
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
    call: &Call,
    refuse: &Refuse,
    letter: &DeadLetter,
    mut draft: RecordDraft,
    changes: &mut Vec<Change>,
) -> Option<Task> {
    let reason = draft.reason.clone();
    let handoff = &letter.handoff;
    // Nothing was spent on a task that no handoff has begun.
    let known = state.tasks.get(&(call.tenant.clone(), handoff.task_id)).cloned();
    let task = known.unwrap_or_else(|| new_task(call, handoff.task_id, &handoff.source));
    let at = CheckpointRef {
        execution_id: handoff.source_execution,
        seq: run_of(state, call, handoff).next,
    };
    let mut handoff = handoff.clone().committed(HandoffCommit {
        content: (letter.content.id, letter.content.part.commitment),
        checkpoint: Some((at, letter.checkpoint.commitment)),
        fencing_token: 0,
        topped_up: Usd(0),
    });
    handoff.reason.clone_from(&reason);
    handoff.ended_at = Some(call.at);
    draft.kind = RecordKind::DeadLettered;
    draft.task_id = Some(handoff.task_id);
    draft.handoff_id = Some(handoff.id);
    draft.parent_handoff_id = handoff.parent_id;
    if let Some(from) = &mut draft.from {
        // The dead letter has the caller as its sender, whatever sender the message names.
        from.agent_id = Some(handoff.source.clone());
    }
    draft.status = Some(HandoffStatus::DeadLettered.as_str());
    draft.cost = Some(handoff.cost);
    draft.content = Some(letter.content.clone());
    draft.checkpoint_commitment = handoff.checkpoint_commitment;
    draft.personal.clone_from(&letter.personal);
    changes.push(Change::Checkpoint(CheckpointRow {
        tenant: call.tenant.clone(),
        task_id: handoff.task_id,
        at,
        agent: handoff.source.clone(),
        part: letter.checkpoint.clone(),
        created_at: call.at,
    }));
    changes.push(Change::DeadLetter(DeadLetterRow {
        tenant: call.tenant.clone(),
        handoff_id: handoff.id,
        task_id: handoff.task_id,
        source: handoff.source.clone(),
        target: refuse.to.as_ref().and_then(|to| to.agent_id.clone()),
        reason: reason.clone().unwrap_or_default(),
        failures: refuse.failures.clone(),
        status: DeadLetterStatus::Open,
        created_at: call.at,
        resolved_at: None,
        resolved_by: None,
    }));
    let begun = !state.tasks.contains_key(&(call.tenant.clone(), handoff.task_id));
    if begun {
        changes.push(Change::Task(task.clone()));
    }
    // A key that was used for another message is not taken from it; what is dangerous is kept all the same.
    let key = letter.idempotency_key.as_ref().filter(|key| {
        let key = (call.tenant.clone(), handoff.source.clone(), (*key).clone());
        !state.idempotency.contains_key(&key)
    });
    changes.extend(remember_key(call, key, &handoff));
    let event = Event::of_handoff(EventType::HandoffDeadLettered, &handoff, call.at);
    changes.push(Change::Handoff(handoff));
    changes.push(Change::Record(Box::new(draft)));
    changes.push(publish(event.with("reason", reason)));
    begun.then_some(task)
}

/// A message that the contract's acceptance criteria refuse takes the contract's way for rejections, if it names
/// one: the broker commits and rejects the handoff in the same step. None if the ledger would refuse it, too.
fn recover(
    state: &BatchState,
    call: &Call,
    context: &Context,
    refuse: &Refuse,
    wanted: &Submit,
) -> Option<Decided<SubmissionReply>> {
    let (mut changes, reply) = wanted.decide(state, call, context).ok()?;
    let SubmissionReply::Handoff { handoff, replayed: false, .. } = reply else { return None };
    let mut plan = Plan::new(state.clone());
    plan.apply(changes.clone());
    let broker = Call { actor: Actor::broker(), ..call.clone() };
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
        call,
        refuse.content.id,
        (refuse.from.as_ref(), refuse.to.as_ref()),
        (refuse.task_id, refuse.handoff_id),
        &refuse.failures,
    ));
    let reply = SubmissionReply::Refused {
        failures: refuse.failures.clone(),
        dead_lettered: false,
        replayed: false,
        over: None,
        undone: Some(Undone { task_status, successor }),
    };
    Some((changes, reply))
}
