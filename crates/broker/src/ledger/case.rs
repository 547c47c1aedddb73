//! A handoff with its task, as they are and as they will be: how it is accepted, and how it ends.

use super::call::Call;
use super::context::Context;
use super::draft::{draft_of, publish};
use super::loaded::edges_of;
use super::plan::Change;
use super::reply::{HandoffReply, LedgerError};
use super::returns;
use super::returns::resume_leases;
use handoffd_domain::escalation::{Escalation, EscalationOutcome, EscalationStatus};
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::funds::Spending;
use handoffd_domain::handoff::{
    HANDED_ON, Handoff, HandoffEvent, HandoffStatus, HandoffTerms, RETURNED,
};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId};
use handoffd_domain::latency::LatencySample;
use handoffd_domain::lease::HolderPulse;
use handoffd_domain::progress::Edge;
use handoffd_domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_evidence::record::{Actor, RecordContent, RecordDraft, RecordKind, RecordParty};
use handoffd_store::store::BatchState;

/// A handoff with its task, as they are and as they will be.
pub(super) struct Case<'a> {
    pub(super) state: &'a BatchState,
    pub(super) call: &'a Call,
    pub(super) context: &'a Context,
    pub(super) task: Task,
    pub(super) handoff: Handoff,
    pub(super) was: HandoffStatus,
    /// Whether its message was coming in pieces.
    pub(super) was_streaming: bool,
    /// When it had been accepted and offered before.
    known: (Option<Micros>, Option<Micros>),
    pub(super) rolled_back: bool,
    pub(super) freed: bool,
    pub(super) changes: Vec<Change>,
    /// The edge, once it changed here.
    edge: Option<Edge>,
}

impl<'a> Case<'a> {
    pub(super) fn open(
        state: &'a BatchState,
        call: &'a Call,
        context: &'a Context,
        task_id: TaskId,
        handoff_id: HandoffId,
    ) -> Result<Self, LedgerError> {
        let handoff = state
            .handoffs
            .get(&(call.tenant.clone(), handoff_id))
            .filter(|handoff| handoff.task_id == task_id)
            .ok_or(LedgerError::NotFound("handoff"))?;
        let task = state
            .tasks
            .get(&(call.tenant.clone(), task_id))
            .ok_or(LedgerError::NotFound("task"))?;
        Ok(Self::of(state, call, context, task.clone(), handoff.clone()))
    }

    /// One of several handoffs of a task that is being decided on.
    pub(super) fn of(
        state: &'a BatchState,
        call: &'a Call,
        context: &'a Context,
        task: Task,
        handoff: Handoff,
    ) -> Self {
        let was = handoff.status;
        let was_streaming = handoff.is_streaming();
        let known = (handoff.accepted_at, handoff.clock.offered_at);
        Self {
            state,
            call,
            context,
            task,
            handoff,
            was,
            was_streaming,
            known,
            rolled_back: false,
            freed: false,
            changes: Vec::new(),
            edge: None,
        }
    }

    /// The changes, and the task after them.
    pub(super) fn finish(mut self) -> (Vec<Change>, Task) {
        self.changes.push(Change::Handoff(self.handoff));
        (self.changes, self.task)
    }

    /// A record about the handoff.
    pub(super) fn record(
        &mut self,
        kind: RecordKind,
        reason: Option<String>,
        content: Option<&RecordContent>,
    ) {
        self.record_end(kind, reason, (content, None));
    }

    /// A record about the handoff, with what its receiver spent.
    pub(super) fn record_end(
        &mut self,
        kind: RecordKind,
        reason: Option<String>,
        (content, spent): (Option<&RecordContent>, Option<Spending>),
    ) {
        let mut draft = draft_of(self.call, kind, &self.handoff);
        draft.reason = reason;
        draft.content = content.cloned();
        draft.spent = spent;
        let ends_delivery = matches!(
            kind,
            RecordKind::Accepted | RecordKind::Rejected | RecordKind::Expired | RecordKind::Failed
        );
        // Under a contract an auditor replays its retries. A pull receiver claims as often as it likes.
        draft.attempts = (ends_delivery && self.handoff.mode.is_pushed())
            .then_some(self.handoff.attempts)
            .filter(|_| draft.contract.is_some());
        if kind == RecordKind::RolledBack {
            // Putting things back is the broker's act, even after another's refusal.
            draft.actor = Actor::broker();
            draft.checkpoint_commitment = self.handoff.checkpoint_commitment;
        }
        self.push(draft);
    }

    /// Publishes an event about the handoff as it is now.
    pub(super) fn publish(&mut self, kind: EventType, more: impl FnOnce(Event) -> Event) {
        self.changes.push(publish(more(Event::of_handoff(kind, &self.handoff, self.call.at))));
    }

    fn push(&mut self, draft: RecordDraft) {
        self.changes.push(Change::Record(Box::new(draft)));
    }

    /// Removes the handoff from the outbox.
    pub(super) fn leave_outbox(&mut self) {
        let key = (self.call.tenant.clone(), self.handoff.id);
        if let Some(row) = self.state.outbox.get(&key) {
            self.handoff.attempts = row.attempt;
            self.changes.push(Change::NoOutbox(key));
            self.freed = true;
            self.task.undelivered = (self.task.undelivered - 1).max(0);
        }
    }

    /// The receiver has it: from now on its time for the verdict runs, unless it ran before, or a person decides
    /// in a time of its own.
    pub(super) fn owes_verdict(&mut self, by: Micros) {
        let to_person = self.handoff.ruling.as_ref().is_some_and(|ruling| ruling.is_to_person());
        if !to_person {
            self.handoff.deadline_at.get_or_insert(by);
        }
    }

    /// Notes when the holder of the lease said a word, and how often it will say one.
    pub(super) fn hear(&mut self, at: Micros, interval_ms: Option<u64>) {
        let Some(until) = self.handoff.deadline_at else { return };
        let known = self.handoff.pulse.map(|pulse| pulse.renewed(at, until));
        let fresh = HolderPulse { interval_ms: 0, heard_at: at, until };
        self.handoff.pulse = match interval_ms {
            Some(interval_ms) => Some(HolderPulse { interval_ms, ..known.unwrap_or(fresh) }),
            None => known,
        };
    }

    pub(super) fn accept(
        &mut self,
        lease_until: Micros,
        content: Option<&RecordContent>,
    ) -> Result<(), LedgerError> {
        if self.answered(EscalationOutcome::Accepted)? {
            let (state, call, context) = (self.state, self.call, self.context);
            let own = Some(self.handoff.id);
            self.changes.extend(resume_leases(state, call, context, &self.task, own));
        }
        self.handoff.status = self.handoff.status.next(HandoffEvent::Accept)?;
        self.handoff.accepted_at = Some(self.call.at);
        self.handoff.deadline_at = Some(lease_until);
        self.handoff.reason = None;
        if let Some(place) = self.open_branch() {
            self.leave_outbox();
            self.record(RecordKind::Accepted, None, content);
            self.publish(EventType::HandoffAccepted, |event| event);
            return self.branch_moved(place);
        }
        self.task.status = self.task.status.next(TaskEvent::Accept)?;
        self.task.holder = self.handoff.target.clone();
        self.leave_outbox();
        self.record(RecordKind::Accepted, None, content);
        self.publish(EventType::HandoffAccepted, |event| event);
        if returns::is_own(&self.handoff) { Ok(()) } else { self.take_over() }
    }

    /// Completes the handoff by which the sender held the task: the sender handed the task on.
    fn take_over(&mut self) -> Result<(), LedgerError> {
        let funds = self.task.funds.as_deref();
        let incoming = funds.and_then(|funds| funds.incoming(self.handoff.id));
        let incoming = incoming
            .and_then(|id| self.state.handoffs.get(&(self.call.tenant.clone(), id)))
            .filter(|incoming| incoming.status.is_held());
        let Some(incoming) = incoming else { return Ok(()) };
        let task = self.task.clone();
        let mut case = Case::of(self.state, self.call, self.context, task, incoming.clone());
        case.handed_on()?;
        let (changes, task) = case.finish();
        self.changes.extend(changes);
        self.task = task;
        Ok(())
    }

    /// Its receiver handed the task on, and that was accepted.
    fn handed_on(&mut self) -> Result<(), LedgerError> {
        self.handoff.status = self.handoff.status.next(HandoffEvent::Complete)?;
        self.end(None);
        went_well(&mut self.task, &self.handoff);
        self.handoff.reason = Some(HANDED_ON.to_owned());
        let mut draft = draft_of(self.call, RecordKind::Completed, &self.handoff);
        draft.actor = Actor::broker();
        draft.reason = Some(HANDED_ON.to_owned());
        self.push(draft);
        self.publish(EventType::HandoffCompleted, |event| event.with("reason", HANDED_ON));
        Ok(())
    }

    /// Ends the handoff, counts the receiver's final spending and returns the rest of the reserve to the source. Returns the
    /// spending that it counted, if the receiver stated any.
    pub(super) fn end(&mut self, stated: Option<Spending>) -> Option<Spending> {
        self.handoff.ended_at = Some(self.call.at);
        self.handoff.deadline_at = None;
        self.handoff.pulse = None;
        if self.was == HandoffStatus::InputRequired {
            self.changes.push(returns::close_question(&self.handoff));
        }
        let agent = Some(&self.handoff.target);
        self.changes.extend(returns::take_out(self.call, &mut self.task, agent));
        let funds = self.task.funds.as_mut()?;
        let spent = funds.settle(self.handoff.id, stated);
        funds.put_behind(self.handoff.id, &self.handoff.cost);
        stated.map(|_| spent)
    }

    pub(super) fn complete(
        &mut self,
        content: Option<&RecordContent>,
        spent: Option<Spending>,
    ) -> Result<(), LedgerError> {
        self.handoff.status = self.handoff.status.next(HandoffEvent::Complete)?;
        let spent = self.end(spent);
        self.record_end(RecordKind::Completed, None, (content, spent));
        self.publish(EventType::HandoffCompleted, |event| event);
        went_well(&mut self.task, &self.handoff);
        if let Some(place) = self.open_branch() {
            self.give_back()?;
            return self.branch_moved(place);
        }
        let (state, call, context) = (self.state, self.call, self.context);
        self.changes.extend(returns::resume(state, call, context, &self.task, &self.handoff));
        self.give_back()
    }

    /// The task goes back to the agent that asked for its return. Of several handoffs that run side by side each
    /// brings its result back, and the task follows the one whose receiver holds it.
    fn give_back(&mut self) -> Result<(), LedgerError> {
        let Some(to) = returns::returns_to(&self.handoff).cloned() else { return Ok(()) };
        if self.task.status.is_final() {
            return Ok(());
        }
        if self.open_branch().is_none()
            && let Some(funds) = &mut self.task.funds
        {
            funds.come_back(self.handoff.id, &to);
        }
        if self.task.holder == self.handoff.target {
            self.task.holder = to.clone();
            self.task.status = self.task.status.next(TaskEvent::Return)?;
        }
        self.handoff.reason = Some(RETURNED.to_owned());
        self.changes.push(returns::note(self.call, &mut self.task, &self.handoff, &to));
        let mut draft = draft_of(self.call, RecordKind::Returned, &self.handoff);
        draft.actor = Actor::broker();
        draft.to = Some(party(&to));
        self.push(draft);
        let event = Event::of_handoff(EventType::HandoffReturned, &self.handoff, self.call.at)
            .with("returnedTo", to.as_str())
            .with("taskStatus", self.task.status.as_str());
        self.changes.push(publish(Event { audience: Some(to), ..event }));
        Ok(())
    }

    /// Who was asked from the start answered, or never will: the escalation that this handoff is ends, and the task
    /// is on its way as with any other. Returns whether one ended.
    pub(super) fn answered(&mut self, outcome: EscalationOutcome) -> Result<bool, LedgerError> {
        let own = |row: &&Escalation| {
            row.is_open()
                && row.tenant == self.call.tenant
                && row.handoff_id == Some(self.handoff.id)
        };
        if self.was.is_final() || self.task.status != TaskStatus::Escalated {
            return Ok(false);
        }
        let Some(row) = self.state.escalations.values().find(own) else { return Ok(false) };
        let row = Escalation {
            status: EscalationStatus::Resolved,
            resolved_at: Some(self.call.at),
            resolved_by: Some(self.call.person()),
            resolution: Some(outcome),
            ..row.clone()
        };
        self.task.status = self.task.status.next(TaskEvent::Resume)?.next(TaskEvent::Submit)?;
        let mut draft = draft_of(self.call, RecordKind::EscalationResolved, &self.handoff);
        draft.reason = Some(outcome.as_str().to_owned());
        self.changes.push(Change::Escalation(row));
        self.push(draft);
        Ok(true)
    }

    /// Its receiver handed on, and now says what came of its own part: it is kept, and what it spent
    /// since is counted. Once: after it there is nothing that the receiver has not said.
    pub(super) fn complete_after(
        &mut self,
        content: Option<&RecordContent>,
        stated: Option<Spending>,
    ) {
        self.handoff.reason = None;
        let funds = self.task.funds.as_mut();
        let spent = funds.map(|funds| funds.settle_late(self.handoff.id, stated));
        self.record_end(RecordKind::Completed, None, (content, spent.filter(|_| stated.is_some())));
    }

    pub(super) fn withdraw(&mut self, reason: &str) -> Result<(), LedgerError> {
        self.handoff.status = self.handoff.status.next(HandoffEvent::Cancel)?;
        self.end_stream(reason);
        self.end(None);
        self.leave_outbox();
        self.record(RecordKind::Canceled, Some(reason.to_owned()), None);
        self.publish(EventType::HandoffCanceled, |event| event.with("reason", reason));
        Ok(())
    }

    /// The edges of the task, with what changed here.
    pub(super) fn edges(&self) -> Vec<&Edge> {
        let own = self.edge.as_ref();
        edges_of(self.state, self.call, self.task.id)
            .into_iter()
            .filter(|edge| {
                own.is_none_or(|own| (&own.source, &own.target) != (&edge.source, &edge.target))
            })
            .chain(own)
            .collect()
    }

    /// The handoff's own edge.
    fn edge(&self) -> Edge {
        let Handoff { source, target, .. } = &self.handoff;
        let known = || {
            let key = (self.call.tenant.clone(), self.task.id, source.clone(), target.clone());
            self.state.edges.get(&key).cloned()
        };
        self.edge.clone().or_else(known).unwrap_or_else(|| {
            Edge::new(
                self.call.tenant.clone(),
                self.task.id,
                source.clone(),
                target.clone(),
                self.call.at,
            )
        })
    }

    fn keep(&mut self, mut edge: Edge) {
        edge.updated_at = self.call.at;
        self.changes.push(Change::Edge(edge.clone()));
        self.edge = Some(edge);
    }

    /// A person decided: the edge begins anew.
    pub(super) fn forgive(&mut self) {
        let mut edge = self.edge();
        edge.repeats = 0;
        self.keep(edge);
    }

    /// The parts of its latency that this command makes known.
    fn latency(&self) -> LatencySample {
        let Some(accepted_at) = self.handoff.accepted_at else { return LatencySample::default() };
        let clock = self.handoff.clock;
        let shares = clock.shares(accepted_at).filter(|_| {
            let (accepted, offered) = self.known;
            accepted.is_none() || offered.is_none()
        });
        let whole = self.known.0.is_none().then(|| clock.whole(accepted_at));
        LatencySample { whole, shares }
    }

    /// When its receiver could take it, which a callback overtook: nothing else is new.
    pub(super) fn note_offer(mut self, at: Micros) -> (Vec<Change>, HandoffReply) {
        self.handoff.clock.offer(at);
        let (latency, handoff) = (self.latency(), self.handoff);
        let changes = vec![Change::Handoff(handoff.clone())];
        let (repeated, rolled_back, more) = (true, false, false);
        (changes, HandoffReply { handoff, repeated, rolled_back, more, latency })
    }

    pub(super) fn close(mut self) -> (Vec<Change>, HandoffReply) {
        self.task.updated_at = self.call.at;
        let more = self.freed && self.task.undelivered > 0;
        let (rolled_back, latency) = (self.rolled_back, self.latency());
        self.changes.push(Change::Task(self.task));
        let repeated = self.handoff.status == self.was;
        self.changes.push(Change::Handoff(self.handoff.clone()));
        let reply = HandoffReply { handoff: self.handoff, repeated, rolled_back, more, latency };
        (self.changes, reply)
    }

    pub(super) fn unchanged(self) -> (Vec<Change>, HandoffReply) {
        let reply = HandoffReply {
            handoff: self.handoff,
            repeated: true,
            rolled_back: false,
            more: false,
            latency: LatencySample::default(),
        };
        (Vec::new(), reply)
    }
}

/// How a handoff's sender addressed it: by an agent's id, `type:<agentType>` or `capability:<name>`.
pub(super) fn addressed<'a>(handoff: impl Into<HandoffTerms<'a>>) -> String {
    let handoff = handoff.into();
    let named = handoff.ruling.and_then(|ruling| ruling.addressed.clone());
    named.unwrap_or_else(|| handoff.target.to_string())
}

/// A handoff did what it was for: what failed on its edge and on the task before no longer counts.
pub(super) fn went_well(task: &mut Task, handoff: &Handoff) {
    task.failures = 0;
    task.course.succeed(&handoff.source, &addressed(handoff));
}

/// A fresh escalation of a handoff, by what its contract says of people.
pub(super) fn escalation_of(
    call: &Call,
    context: &Context,
    handoff: &Handoff,
    reason: &str,
) -> Escalation {
    let human = handoff.ruling.as_ref().and_then(|ruling| ruling.edge.human.clone());
    let human = human.unwrap_or_default();
    let edge = (&handoff.source, &handoff.target);
    let row = escalation(call, context, handoff.task_id, edge, reason);
    let time = human.timeout_ms.map(std::time::Duration::from_millis);
    Escalation {
        handoff_id: Some(handoff.id),
        channel: human.channel,
        resume_as: human.resume_as,
        timeout_at: time.map_or(row.timeout_at, |time| call.at.plus(time)),
        ..row
    }
}

/// An agent in a record that is about it.
pub(super) fn party(agent: &AgentId) -> RecordParty {
    RecordParty { agent_id: Some(agent.clone()), ..RecordParty::default() }
}

/// A person is asked about a handoff: the row, its record and its event.
pub(super) fn asked(call: &Call, handoff: &Handoff, row: Escalation) -> [Change; 3] {
    let mut draft = draft_of(call, RecordKind::Escalated, handoff);
    draft.actor = Actor::broker();
    draft.reason = Some(row.reason.clone());
    (draft.from, draft.to) = (Some(party(&row.source)), Some(party(&row.target)));
    let mut event = Event::of_handoff(EventType::HandoffEscalated, handoff, call.at)
        .with("reason", row.reason.as_str())
        .with("escalationId", row.id.to_string());
    if let Some(channel) = &row.channel {
        event = event.with("channel", channel.as_str());
    }
    [Change::Escalation(row), Change::Record(Box::new(draft)), publish(event)]
}

/// A person is asked about a task, and about none of its handoffs: the row, its record and its event.
pub(super) fn asked_of_nobody(call: &Call, task: &Task, row: Escalation) -> [Change; 3] {
    let kind = RecordKind::Escalated;
    let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, Actor::broker());
    draft.task_id = Some(task.id);
    draft.status = Some(task.status.as_str());
    draft.reason = Some(row.reason.clone());
    (draft.from, draft.to) = (Some(party(&row.source)), Some(party(&row.target)));
    let event = Event::of_task(EventType::HandoffEscalated, task, call.at)
        .with("reason", row.reason.as_str())
        .with("escalationId", row.id.to_string());
    let event = Event { source: Some(row.source.clone()), ..event };
    [Change::Escalation(row), Change::Record(Box::new(draft)), publish(event)]
}

/// A fresh escalation of an edge, without handoff and contract.
pub(super) fn escalation(
    call: &Call,
    context: &Context,
    task_id: TaskId,
    (source, target): (&AgentId, &AgentId),
    reason: &str,
) -> Escalation {
    Escalation {
        tenant: call.tenant.clone(),
        id: context.spare.escalation,
        task_id,
        handoff_id: None,
        source: source.clone(),
        target: target.clone(),
        reason: reason.to_owned(),
        channel: None,
        resume_as: None,
        status: EscalationStatus::Open,
        created_at: call.at,
        timeout_at: call.at.plus(context.rules.escalation_timeout),
        resolved_at: None,
        resolved_by: None,
        resolution: None,
    }
}
