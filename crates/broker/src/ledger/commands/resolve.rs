//! Decide on an escalation.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command, Freed};
use crate::ledger::context::Context;
use crate::ledger::draft::publish;
use crate::ledger::failure::expired;
use crate::ledger::loaded::open_of;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::returns;
use crate::ledger::returns::resume_leases;
use crate::ledger::streams;
use crate::ledger::tasks::{finish_open, withdraw_open};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::{Escalation, EscalationOutcome, EscalationStatus, Resolution};
use handoffd_domain::event::{Event, EventType};
use handoffd_domain::handoff::{Handoff, HandoffEvent, HandoffStatus};
use handoffd_domain::ids::{AgentId, EscalationId, HandoffId, TaskId};
use handoffd_domain::ruling::{OtherEdge, Standing, Trigger};
use handoffd_domain::task::{Task, TaskEvent};
use handoffd_evidence::record::{Actor, RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::{BatchState, DeadLetterRow};

/// A decision on an escalation.
#[derive(Debug, Clone)]
pub struct Resolve {
    pub escalation_id: EscalationId,
    pub task_id: TaskId,
    /// The handoff that failed.
    pub handoff_id: Option<HandoffId>,
    /// Agents that must be known: the failed receiver, the one to reassign to.
    pub agents: Vec<AgentId>,
    /// The person's decision; none if no decision came in time.
    pub resolution: Option<Resolution>,
    /// The rules of the edge to the agent that gets the handoff by a person's word, where a contract rules it.
    pub edge: Option<Box<OtherEdge>>,
    /// The reason in the person's words.
    pub content: Option<RecordContent>,
}

/// An escalation that was decided, and its task, as they are now.
#[derive(Debug)]
pub struct Resolved {
    pub row: Escalation,
    pub task: Task,
}

impl Command for Resolve {
    type Reply = Resolved;
    const NAME: &'static str = "resolve";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([]);
        rows.whole_task(self.task_id);
        rows.handoffs(self.handoff_id);
        for id in &self.agents {
            rows.agent(id);
        }
    }

    /// A person decides, or time does.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let key = (call.tenant.clone(), self.escalation_id);
        let row = state
            .escalations
            .get(&key)
            .filter(|row| row.is_open() && row.task_id == self.task_id)
            .ok_or_else(|| {
                LedgerError::Conflict("this escalation was decided before".to_owned())
            })?;
        let mut task = state
            .tasks
            .get(&(call.tenant.clone(), row.task_id))
            .cloned()
            .ok_or(LedgerError::NotFound("task"))?;
        let due = row.timeout_at <= call.at;
        if self.resolution.is_none() && !due {
            return Err(LedgerError::Conflict("this escalation still has time".to_owned()));
        }
        task.status = task.status.next(TaskEvent::Resume)?;
        // The count of failures begins anew, after a decision by anyone.
        task.failures = 0;
        task.course.failing.clear();
        let (row, changes) = (row.clone(), Vec::new());
        let mut decider = Decider { state, call, context, row, task, ended: None, changes };
        let (status, outcome) = match &self.resolution {
            Some(resolution) => {
                decider.carry_out(resolution, self.edge.as_deref())?;
                (EscalationStatus::Resolved, resolution.outcome())
            }
            None => (EscalationStatus::TimedOut, decider.time_out()?),
        };
        let again = resume_leases(state, call, context, &decider.task, None);
        decider.changes.extend(again);
        Ok(decider.close(self, status, outcome))
    }

    fn frees(&self, reply: Option<&Self::Reply>) -> Option<Freed> {
        reply.map(|_| Freed::Anywhere)
    }
}

/// Why a dead letter was kept that no person released in time: a code.
const ESCALATION_TIMEOUT: &str = "ESCALATION_TIMEOUT";

/// An escalation with its task, as they will be.
struct Decider<'a> {
    state: &'a BatchState,
    call: &'a Call,
    context: &'a Context,
    row: Escalation,
    task: Task,
    /// The handoff that failed, where it ended here.
    ended: Option<Handoff>,
    changes: Vec<Change>,
}

impl<'a> Decider<'a> {
    fn failed(&self) -> Option<Handoff> {
        let id = self.row.handoff_id?;
        let known = || self.state.handoffs.get(&(self.call.tenant.clone(), id)).cloned();
        self.ended.clone().or_else(known)
    }

    /// The recovery that is open: the task's current handoff, if it is open.
    fn under_way(&self) -> Option<&'a Handoff> {
        open_of(self.state, self.call, self.task.id)
            .into_iter()
            .filter_map(|id| self.state.handoffs.get(&(self.call.tenant.clone(), id)))
            .find(|handoff| handoff.fencing_token == self.task.fence)
    }

    fn carry_out(
        &mut self,
        resolution: &Resolution,
        edge: Option<&OtherEdge>,
    ) -> Result<(), LedgerError> {
        match resolution {
            Resolution::Retry if self.unanswered().is_some() => Err(LedgerError::Conflict(
                "this handoff waits for a person's answer: give it to another agent, roll it back, or let its time run"
                    .to_owned(),
            )),
            Resolution::Retry => match (self.under_way(), self.failed()) {
                (Some(handoff), _) => self.go_on(handoff),
                (None, Some(_)) => {
                    let target = self.row.target.clone();
                    self.readdress(&target, None)
                }
                // Submissions were refused: their sender tries again.
                (None, None) => Ok(()),
            },
            Resolution::Reassign(target) => {
                if self.failed().is_none() {
                    return Err(LedgerError::Conflict(
                        "no handoff can go to another agent: submissions were refused"
                            .to_owned(),
                    ));
                }
                self.withdraw_under_way()?;
                self.readdress(target, edge)
            }
            Resolution::RollBack => {
                if self.failed().is_none() {
                    return Err(LedgerError::Conflict(
                        "no handoff can be rolled back: submissions were refused".to_owned(),
                    ));
                }
                self.withdraw_under_way()?;
                self.with_failed(|case| case.roll_back("ESCALATION_RESOLVED"))
            }
            Resolution::Cancel => {
                self.task.status = self.task.status.next(TaskEvent::Cancel)?;
                let at = self.call.at;
                let more =
                    withdraw_open(self.state, self.call, self.context, &mut self.task, at)?;
                self.changes.extend(more);
                self.changes.extend(returns::take_out(self.call, &mut self.task, None));
                self.record(RecordKind::TaskCanceled, EventType::TaskCanceled);
                Ok(())
            }
            Resolution::Complete => {
                self.task.status = self.task.status.next(TaskEvent::Complete)?;
                let more = finish_open(self.state, self.call, self.context, &mut self.task)?;
                self.changes.extend(more);
                self.changes.extend(returns::take_out(self.call, &mut self.task, None));
                self.record(RecordKind::TaskCompleted, EventType::TaskCompleted);
                Ok(())
            }
        }
    }

    /// No decision came: the contract's synthetic identity takes over (seed 002 §4.4); else the
    /// open recovery goes on; else the handoff becomes a dead letter and its sender has the task
    /// again.
    fn time_out(&mut self) -> Result<EscalationOutcome, LedgerError> {
        if let Some(handoff) = self.under_way() {
            if Some(handoff.id) != self.row.handoff_id {
                self.end_silent()?;
                self.go_on(handoff)?;
                return Ok(EscalationOutcome::TimedOutGoesOn);
            }
            // The person that it went to stayed silent.
            let mut case = self.case(handoff);
            case.fail(&expired("HUMAN_TIMEOUT", Trigger::Timeout))?;
            self.ended = Some(case.handoff.clone());
            self.take(case);
        }
        if self.ended.is_none() {
            self.end_silent()?;
        }
        let Some(failed) = self.failed() else { return Ok(EscalationOutcome::TimedOut) };
        if let Some(identity) = self.row.resume_as.clone()
            && streams::must_have_closed(&failed).is_ok()
            && self.case(&failed).can_take(&identity)
        {
            self.readdress(&identity, None)?;
            return Ok(EscalationOutcome::TimedOutResumed);
        }
        self.dead_letter()?;
        Ok(EscalationOutcome::TimedOutDeadLettered)
    }

    /// Ends the handoff that went to the silent person, even if another handoff of the task is open: no other command
    /// would end it.
    fn end_silent(&mut self) -> Result<(), LedgerError> {
        if let Some(handoff) = self.unanswered() {
            let mut case = self.case(handoff);
            case.fail(&expired("HUMAN_TIMEOUT", Trigger::Timeout))?;
            self.ended = Some(case.handoff.clone());
            self.take(case);
        }
        Ok(())
    }

    fn is_live(&self, id: &AgentId) -> bool {
        let key = (self.call.tenant.clone(), id.clone());
        self.state.agents.get(&key).is_some_and(|row| row.agent.is_live())
    }

    /// The open recovery is the task's present work.
    fn go_on(&mut self, handoff: &Handoff) -> Result<(), LedgerError> {
        let event = match handoff.status {
            HandoffStatus::Accepted | HandoffStatus::InputRequired => TaskEvent::Accept,
            _ => TaskEvent::Submit,
        };
        self.task.status = self.task.status.next(event)?;
        Ok(())
    }

    /// Withdraws the open recovery, and the handoff that went to the person: no other command would end it.
    fn withdraw_under_way(&mut self) -> Result<(), LedgerError> {
        let (under_way, unanswered) = (self.under_way(), self.unanswered());
        let both = under_way.is_some_and(|one| unanswered.is_some_and(|other| one.id == other.id));
        for handoff in under_way.filter(|_| !both).into_iter().chain(unanswered) {
            let mut case = self.case(handoff);
            case.withdraw("ESCALATION_RESOLVED")?;
            if Some(handoff.id) == self.row.handoff_id {
                self.ended = Some(case.handoff.clone());
            }
            self.take(case);
        }
        Ok(())
    }

    /// The handoff that went to the person, while it waits for the answer.
    fn unanswered(&self) -> Option<&'a Handoff> {
        let key = (self.call.tenant.clone(), self.row.handoff_id?);
        self.state.handoffs.get(&key).filter(|one| one.status == HandoffStatus::Pending)
    }

    fn case(&self, handoff: &Handoff) -> Case<'a> {
        Case::of(self.state, self.call, self.context, self.task.clone(), handoff.clone())
    }

    fn take(&mut self, case: Case<'a>) {
        let (changes, task) = case.finish();
        self.changes.extend(changes);
        self.task = task;
    }

    fn with_failed(
        &mut self,
        act: impl FnOnce(&mut Case<'a>) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        let Some(failed) = self.failed() else { return Ok(()) };
        let mut case = self.case(&failed);
        case.forgive();
        act(&mut case)?;
        self.take(case);
        Ok(())
    }

    /// A person's word goes before the allowlist and the failed handoff's contract: any registered agent that takes
    /// handoffs. `edge` has the rules of that edge's own contract, under which the message was judged.
    fn readdress(&mut self, target: &AgentId, edge: Option<&OtherEdge>) -> Result<(), LedgerError> {
        if !self.is_live(target) {
            return Err(LedgerError::Invalid(
                "/agentId".to_owned(),
                format!("agent {target} is not registered, or takes no handoffs now"),
            ));
        }
        self.with_failed(|case| {
            if case.handoff.source == *target {
                return Err(LedgerError::Invalid(
                    "/agentId".to_owned(),
                    "this agent sent the handoff: use rollback to give it the task back".to_owned(),
                ));
            }
            let mut ruling = case.handoff.ruling.as_deref().cloned().unwrap_or_default();
            if let Some(edge) = edge {
                ruling.others.insert(target.clone(), edge.clone());
            }
            let ruling = ruling.stand_in(Standing::Recovery, target);
            case.readdress(target, ruling, true)
        })
    }

    fn dead_letter(&mut self) -> Result<(), LedgerError> {
        let call = self.call;
        self.with_failed(|case| {
            case.handoff.status = case.handoff.status.next(HandoffEvent::DeadLetter)?;
            case.handoff.reason = Some(ESCALATION_TIMEOUT.to_owned());
            case.record(RecordKind::DeadLettered, Some(ESCALATION_TIMEOUT.to_owned()), None);
            case.publish(EventType::HandoffDeadLettered, |event| {
                event.with("reason", ESCALATION_TIMEOUT)
            });
            let handoff = &case.handoff;
            case.changes.push(Change::DeadLetter(DeadLetterRow {
                tenant: handoff.tenant.clone(),
                handoff_id: handoff.id,
                task_id: handoff.task_id,
                source: handoff.source.clone(),
                target: Some(handoff.target.clone()),
                reason: ESCALATION_TIMEOUT.to_owned(),
                failures: Vec::new(),
                status: DeadLetterStatus::Open,
                created_at: call.at,
                resolved_at: None,
                resolved_by: None,
            }));
            case.roll_back(ESCALATION_TIMEOUT)
        })
    }

    fn record(&mut self, kind: RecordKind, event_type: EventType) {
        let call = self.call;
        let mut draft = RecordDraft::new(call.tenant.clone(), kind, call.at, call.actor.clone());
        draft.task_id = Some(self.task.id);
        draft.status = Some(self.task.status.as_str());
        self.changes.push(Change::Record(Box::new(draft)));
        self.changes.push(publish(Event::of_task(event_type, &self.task, call.at)));
    }

    fn close(
        mut self,
        resolve: &Resolve,
        status: EscalationStatus,
        outcome: EscalationOutcome,
    ) -> (Vec<Change>, Resolved) {
        let call = self.call;
        self.row.status = status;
        self.row.resolved_at = Some(call.at);
        self.row.resolved_by = Some(call.person());
        self.row.resolution = Some(outcome);
        let mut draft = RecordDraft::new(
            call.tenant.clone(),
            RecordKind::EscalationResolved,
            call.at,
            call.actor.clone(),
        );
        if outcome == EscalationOutcome::TimedOutResumed {
            // The synthetic identity acts, through the broker.
            draft.actor = Actor { agent_id: self.row.resume_as.clone(), ..Actor::broker() };
        }
        draft.task_id = Some(self.task.id);
        draft.handoff_id = self.row.handoff_id;
        // A status beside a handoff's id is the handoff's.
        draft.status = self.row.handoff_id.is_none().then(|| self.task.status.as_str());
        draft.reason = Some(outcome.as_str().to_owned());
        draft.content.clone_from(&resolve.content);
        self.task.updated_at = call.at;
        // The reason for the task's move comes before the move.
        self.changes.insert(0, Change::Record(Box::new(draft)));
        self.changes.push(Change::Task(self.task.clone()));
        self.changes.push(Change::Escalation(self.row.clone()));
        let reply = Resolved { row: self.row, task: self.task };
        (self.changes, reply)
    }
}
