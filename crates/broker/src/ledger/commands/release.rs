//! Deliver a dead letter after all.

use crate::ledger::caps;
use crate::ledger::command::{Call, Command, Freed};
use crate::ledger::context::Context;
use crate::ledger::contracts;
use crate::ledger::contracts::Repeat;
use crate::ledger::crossing::{CrossingOrigin, HandoffCrossing, resent};
use crate::ledger::dead_letters::{decided, open, refuse_again};
use crate::ledger::draft::draft_of;
use crate::ledger::groups;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{DeadLetterReply, LedgerError};
use crate::ledger::streams;
use crate::ledger::submission::{ask_person, guard};
use handoffd_domain::agent::Agent;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::Failure;
use handoffd_domain::funds::Funds;
use handoffd_domain::handoff::{Handoff, HandoffEvent, Priority};
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::money::Usd;
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::ruling::Ruling;
use handoffd_domain::task::TaskEvent;
use handoffd_domain::window::ContextFacts;
use handoffd_evidence::record::{RecordContent, RecordKind, SafetyFacts};
use handoffd_store::store::BatchState;

/// A dead letter that a fresh gate run finds fit, but for waived findings.
#[derive(Debug, Clone)]
pub struct Release {
    pub handoff_id: HandoffId,
    pub task_id: TaskId,
    pub source: AgentId,
    /// The handoff before it, whose figures count.
    pub parent_id: Option<HandoffId>,
    pub target: Agent,
    /// The rules of its end.
    pub ruling: Option<Box<Ruling>>,
    /// Whether it may be tried again after its bytes were sent.
    pub idempotent: bool,
    /// How urgent it is.
    pub priority: Priority,
    /// The constraint `budgetUSD` of a message that begins its task.
    pub declared_budget: Option<Usd>,
    /// Subtasks that the message has a result of, as [`handoffd_domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// The regions between which its data go, where they are two.
    pub residency: Option<ResidencyFacts>,
    /// The message against the receiver's context window.
    pub context: Option<ContextFacts>,
    /// Rules that observe or mark the message, and the classifier's verdict on it.
    pub safety: Option<SafetyFacts>,
    /// The key of the contract's dedupe rule, with its window.
    pub repeat: Option<Repeat>,
    /// Findings that a person waived by name.
    pub waived: Vec<Failure>,
    /// The appeal: reason and waived findings.
    pub content: RecordContent,
}

impl Command for Release {
    type Reply = DeadLetterReply;
    const NAME: &'static str = "release";
    const ASKS_CAPS: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([&self.target.agent_id]);
        rows.handoff(self.task_id, self.handoff_id);
        rows.handoffs(self.parent_id);
        rows.lineage(self.task_id, &self.source, self.parent_id);
        rows.whole_task(self.task_id);
        rows.dead_letter(self.handoff_id);
        rows.repeat(self.repeat.as_ref());
    }

    /// An appeal was upheld: the fresh gate run found nothing that was not waived by name, so the handoff
    /// is delivered after all.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let (row, handoff, task) = open(state, call, self.task_id, self.handoff_id)?;
        streams::must_have_closed(handoff)?;
        let mut handoff = rerouted(handoff, self)?;
        let mut task = task.clone();
        task.status = task.status.next(TaskEvent::Submit)?;
        let progress = task.course.progress(&self.subtasks);
        let failures = guard(state, call, context, &handoff, progress);
        let refused: Vec<Failure> =
            failures.into_iter().filter(|failure| !self.waived.contains(failure)).collect();
        if !refused.is_empty() {
            return Ok(refuse_again(call, row, &handoff, (&self.waived, refused), &self.content));
        }
        groups::may_hand_on(&task)?;
        streams::parent_must_be_whole(state, call, (handoff.parent_id, &handoff.source))?;
        let seen =
            contracts::refuse_repeat(state, call, (self.repeat.as_ref(), false), handoff.id)?;
        if task.handoffs == 0 {
            let (cost, reserve) = (&handoff.cost, context.rules.reserve);
            let declared = self.declared_budget;
            let funds = Funds::open(&handoff.source, cost, declared, task.topped_up, reserve);
            task.funds.get_or_insert(Box::new(funds));
        }
        if let Some(over) = caps::check(state, call, context, (&task, None), &handoff) {
            return Ok(refuse_again(
                call,
                row,
                &handoff,
                (&self.waived, vec![over.failure()]),
                &self.content,
            ));
        }
        // The time of the review does not count as latency.
        handoff.clock = LatencyClock::starting(call.at);
        (handoff.reason, handoff.ended_at, handoff.accepted_at) = (None, None, None);
        handoff.context = self.context;
        let mut decision = draft_of(call, RecordKind::Released, &handoff);
        decision.content = Some(self.content.clone());
        decision.reason = Some(row.reason.clone());
        // The boundary is crossed now: its record is like any other's.
        let mut crossed = resent(call, &handoff, self.residency.clone());
        crossed.reason = Some(RecordKind::Released.as_str().to_owned());
        crossed.safety.clone_from(&self.safety);
        let row = decided(call, row, DeadLetterStatus::Released);
        let origin = CrossingOrigin::Message { subtasks: &self.subtasks };
        let priority = self.priority;
        let crossing = HandoffCrossing { state, call, context, origin, priority, seq: None };
        let mut changes = vec![Change::Record(Box::new(decision))];
        // The person's waiver grants the crossing.
        changes.extend(crossing.cross(&mut task, &mut handoff, crossed));
        changes.extend(seen);
        changes.extend(ask_person(call, context, &mut task, &handoff)?);
        changes.extend([Change::Task(task), Change::DeadLetter(row.clone())]);
        Ok((changes, DeadLetterReply { row, handoff, refused: Vec::new() }))
    }

    fn frees(&self, reply: Option<&Self::Reply>) -> Option<Freed> {
        let reply = reply?;
        (reply.row.status == DeadLetterStatus::Released).then_some(Freed::Anywhere)
    }
}

/// The handoff of a dead letter, open again, with the receiver and the rules of the fresh gate run.
fn rerouted(handoff: &Handoff, release: &Release) -> Result<Handoff, LedgerError> {
    Ok(Handoff {
        status: handoff.status.next(HandoffEvent::Release)?,
        target: release.target.agent_id.clone(),
        target_type: release.target.agent_type.clone(),
        target_version: release.target.agent_version.to_string(),
        mode: release.target.delivery.mode,
        idempotent: release.idempotent,
        ruling: release.ruling.clone(),
        // Its message is compressed anew, for this receiver, and goes out whole; what another asked is over.
        sent_id: None,
        questions: Vec::new(),
        ..handoff.clone()
    })
}
