//! The failed end of a handoff: what it counts, and what its contract has follow it (specification §5).

use super::case::{Case, addressed, asked, escalation_of};
use super::crossing::{CrossingOrigin, HandoffCrossing, resent};
use super::failure::HandoffFailure;
use super::loaded::open_of;
use super::reply::LedgerError;
use super::returns::resume_leases;
use super::streams;
use handoffd_domain::agent::Agent;
use handoffd_domain::escalation::FAILURES_TO_ESCALATE;
use handoffd_domain::event::{Alert, EventType};
use handoffd_domain::handoff::{ALL_UNAVAILABLE, Handoff, HandoffStatus, Priority, is_reason_code};
use handoffd_domain::ids::AgentId;
use handoffd_domain::latency::LatencyClock;
use handoffd_domain::policy::EdgePolicy;
use handoffd_domain::residency::{Crossing, ResidencyRules};
use handoffd_domain::ruling::{Next, Ruling, Standing};
use handoffd_domain::task::{TaskEvent, TaskStatus};
use handoffd_domain::window::ContextLimit;
use handoffd_evidence::record::RecordKind;

/// The longest reason kept with a handoff, in characters; what was said in full is its record's
/// content.
const MAX_REASON: usize = 500;

/// The same as a code.
const ALL_UNAVAILABLE_CODE: &str = "ALL_PREFERRED_AGENTS_UNAVAILABLE";

impl Case<'_> {
    /// Whether the task is still where this handoff brought it: nothing was handed on since, and no other
    /// agent has the task. An old lease that runs out, or the rejection of one of several, must not undo
    /// the work of others. Nothing was handed on if the last fencing token is its own, or if its receiver
    /// runs the task: one of several may be accepted after another was given a later token, and its end is
    /// the end of the task's run all the same. If that receiver has also taken a later one, it runs the
    /// task by that. A handoff that it sent may have come back, so that the task waits for it: it still has
    /// the task by this one.
    fn is_current(&self) -> bool {
        let (holder, runs) = match self.was {
            HandoffStatus::Accepted | HandoffStatus::InputRequired => {
                let with_it =
                    matches!(self.task.status, TaskStatus::Running | TaskStatus::PendingHandoff);
                let runs = with_it && !self.has_taken_later();
                (&self.handoff.target, runs)
            }
            _ => (&self.handoff.source, false),
        };
        !self.task.status.is_final()
            && (runs || self.handoff.fencing_token == self.task.fence)
            && self.task.holder == *holder
    }

    /// Whether its receiver has taken another handoff of the task, of a later token.
    fn has_taken_later(&self) -> bool {
        open_of(self.state, self.call, self.task.id).into_iter().any(|id| {
            let other = &self.state.handoffs[&(self.call.tenant.clone(), id)];
            id != self.handoff.id
                && other.status.is_held()
                && other.target == self.handoff.target
                && other.fencing_token > self.handoff.fencing_token
        })
    }

    /// Ends the handoff badly and counts that; returns why, as a code, and how often the edge or the task failed.
    pub(super) fn fail(
        &mut self,
        failure: &HandoffFailure<'_>,
    ) -> Result<(String, i64), LedgerError> {
        let HandoffFailure { event, kind, trigger: _, reason, content, spent } = *failure;
        self.handoff.status = self.handoff.status.next(event)?;
        let spent = self.end(spent);
        // Postgres takes no NUL in a text, and no reason needs one.
        self.handoff.reason =
            Some(reason.chars().filter(|c| *c != '\0').take(MAX_REASON).collect());
        let code = as_code(reason, kind);
        self.end_stream(&code);
        self.leave_outbox();
        self.record_end(kind, Some(code.clone()), (content, spent));
        let event_type = match kind {
            RecordKind::Rejected => EventType::HandoffRejected,
            RecordKind::Expired => EventType::HandoffExpired,
            _ => EventType::HandoffFailed,
        };
        self.publish(event_type, |event| event.with("reason", code.clone()));
        if self.task.status.is_final() {
            return Ok((code, 0));
        }
        // A replacement fails for the handoff that it replaces: the task counts that once.
        if self.handoff.origin.is_none() && self.open_branch().is_none() {
            self.task.failures += 1;
        }
        let failures = self.task.course.fail(&self.handoff.source, &addressed(&self.handoff));
        Ok((code, failures.max(self.task.failures)))
    }

    /// Ends the handoff badly and does what was agreed on for that: where it is the task's current
    /// one, the task goes back to its sender, to another agent, or to a person (specification §5).
    pub(super) fn undo(&mut self, failure: &HandoffFailure<'_>) -> Result<(), LedgerError> {
        self.answered(failure.outcome())?;
        if let Some(place) = self.open_branch() {
            return self.undo_branch(place, failure);
        }
        let current = self.is_current();
        let (code, failures) = self.fail(failure)?;
        if self.task.status.is_final() {
            return Ok(());
        }
        let ruling = self.handoff.ruling.as_deref().cloned().unwrap_or_default();
        let untouched = self.was == HandoffStatus::Pending;
        // One of several that were sent at once may still go to another agent.
        let may_go_on = current || (untouched && self.task.holder == self.handoff.source);
        let next = if self.was_streaming {
            // No other agent can go on with a part of a message.
            Next::RollBack { exhausted: false }
        } else {
            ruling.next(failure.trigger, untouched, |id| self.can_take_over(id))
        };
        match next {
            Next::Readdress(target, ruling) if may_go_on => {
                self.readdress(&target, *ruling, current)?;
            }
            Next::Escalate if current => {
                self.take_back();
                self.escalate(&code)?;
            }
            Next::RollBack { exhausted } if current => {
                if exhausted {
                    self.handoff.reason = Some(ALL_UNAVAILABLE.to_owned());
                    self.roll_back(ALL_UNAVAILABLE_CODE)?;
                } else {
                    self.roll_back(&code)?;
                }
            }
            _ => self.nothing_on_its_way(&code)?,
        }
        if current && failures >= FAILURES_TO_ESCALATE {
            self.escalate(&code)?;
        }
        let own = Some(self.handoff.id);
        self.changes.extend(resume_leases(self.state, self.call, self.context, &self.task, own));
        Ok(())
    }

    /// One of several failed. If none of the others is on its way any more, the agent that took one of
    /// them and has the task goes on with it; if no agent did, it is its sender's again.
    fn nothing_on_its_way(&mut self, code: &str) -> Result<(), LedgerError> {
        if self.task.status != TaskStatus::HandingOff {
            return Ok(());
        }
        let (mut waits, mut held) = (false, false);
        for id in open_of(self.state, self.call, self.task.id) {
            let other = &self.state.handoffs[&(self.call.tenant.clone(), id)];
            if id != self.handoff.id {
                waits |= other.status == HandoffStatus::Pending;
                held |= other.status.is_held() && other.target == self.task.holder;
            }
        }
        if held && !waits {
            self.task.status = self.task.status.next(TaskEvent::Accept)?;
        } else if !waits {
            self.roll_back(code)?;
        }
        Ok(())
    }

    /// Whether an agent can take the handoff over: it is there, takes handoffs, and is neither who
    /// sent it nor who just failed.
    pub(super) fn can_take_over(&self, id: &AgentId) -> bool {
        *id != self.handoff.target && self.can_take(id)
    }

    /// Whether an agent other than its sender can take the handoff: it is there and takes handoffs, the message was judged
    /// for the edge to it and is not too large for it, and residency lets the data go there.
    pub(super) fn can_take(&self, id: &AgentId) -> bool {
        let key = (self.call.tenant.clone(), id.clone());
        let ruling = self.handoff.ruling.as_deref();
        *id != self.handoff.source
            && !ruling.is_some_and(|ruling| ruling.unknown.contains(id))
            && self.state.agents.get(&key).is_some_and(|row| {
                row.agent.is_live()
                    && !self.is_too_large_for(&row.agent)
                    && !self
                        .crossings(&row.agent)
                        .iter()
                        .any(|one| self.context.rules.residency.refuses(one))
            })
    }

    /// Whether the message is over the limit of another receiver, which refuses it then.
    fn is_too_large_for(&self, agent: &Agent) -> bool {
        let settings = &self.context.rules.context;
        let ruling = self.handoff.ruling.as_ref();
        let edge = ruling.map(|ruling| ruling.edge_to(&agent.agent_id));
        self.handoff
            .context
            .is_some_and(|facts| facts.refuses(&self.context_limit(agent, edge), settings))
    }

    /// The limit of another receiver, by the contract of its edge.
    fn context_limit(&self, agent: &Agent, edge: Option<&EdgePolicy>) -> ContextLimit {
        let rule = edge.map(|edge| &edge.context);
        ContextLimit::of(agent, rule, &self.context.rules.context)
    }

    /// The crossings on the way to another receiver. That the sender's own, if it is one, was let through,
    /// the record of the handoff before says.
    fn crossings(&self, target: &Agent) -> Vec<Crossing> {
        let key = (self.call.tenant.clone(), self.handoff.source.clone());
        let source = self.state.agents.get(&key).map(|row| &row.agent);
        self.context.rules.residency.crossings(source, Some(target))
    }

    /// The sender's checkpoint is the task's current one again, and it has the task.
    fn take_back(&mut self) {
        self.task.holder = self.handoff.source.clone();
        self.task.checkpoint = self.handoff.checkpoint;
        // A holder of the old token is late from here on.
        self.task.fence += 1;
    }

    /// Gives the task back to its sender.
    pub(super) fn roll_back(&mut self, code: &str) -> Result<(), LedgerError> {
        self.rolled_back = true;
        self.task.status = self.task.status.next(TaskEvent::RollBack)?;
        self.take_back();
        self.record(RecordKind::RolledBack, Some(code.to_owned()), None);
        self.publish_rollback(code);
        Ok(())
    }

    /// The sender learns what it goes on from and why; the operators that something went wrong.
    fn publish_rollback(&mut self, reason: &str) {
        let checkpoint = self
            .task
            .checkpoint
            .map(|at| serde_json::json!({ "executionId": at.execution_id, "seq": at.seq }));
        let (task_status, failures) = (self.task.status.as_str(), self.task.failures);
        self.publish(EventType::HandoffRolledBack, |event| {
            event
                .with("reason", reason)
                .with("checkpoint", checkpoint)
                .with("taskStatus", task_status)
                .with("failures", failures)
        });
        self.alert(Alert::HandoffRolledBack, reason);
    }

    pub(super) fn alert(&mut self, alert: Alert, reason: &str) {
        self.publish(EventType::AlertRaised, |event| {
            event.with("alert", alert.as_str()).with("reason", reason)
        });
    }

    /// Gives the same message to another agent, as a handoff of its own that follows the failed one.
    /// Who may get it was settled by the contract or by the sender's own list, so the sender's
    /// allowlist is not asked again.
    pub(super) fn readdress(
        &mut self,
        target: &AgentId,
        ruling: Ruling,
        take_back: bool,
    ) -> Result<(), LedgerError> {
        streams::must_have_closed(&self.handoff)?;
        let key = (self.call.tenant.clone(), target.clone());
        let row = self.state.agents.get(&key).ok_or(LedgerError::NotFound("agent"))?;
        let agent = &row.agent;
        if take_back {
            self.take_back();
        }
        if self.task.status != TaskStatus::Escalated && self.open_branch().is_none() {
            self.task.status =
                self.task.status.next(TaskEvent::RollBack)?.next(TaskEvent::Submit)?;
        }
        let reason = match ruling.standing {
            Standing::Preferred => "PREFERRED_AGENT",
            _ => "RECOVERY",
        };
        let mut child = self.successor(agent, ruling);
        let draft = resent(self.call, &child, ResidencyRules::facts(self.crossings(agent)));
        let key = (self.call.tenant.clone(), self.handoff.id);
        let mut task = self.task.clone();
        let crossing = HandoffCrossing {
            state: self.state,
            call: self.call,
            context: self.context,
            origin: CrossingOrigin::Failed { id: self.handoff.id, edges: self.edges(), reason },
            // Beside the other branches, like the handoff that it replaces.
            seq: self
                .task
                .course
                .open_group()
                .filter(|_| self.open_branch().is_some())
                .map(|one| one.seq),
            // As urgent as it was, where that is still known.
            priority: self.state.outbox.get(&key).map_or(Priority::Normal, |row| row.priority),
        };
        let changes = crossing.cross(&mut task, &mut child, draft);
        self.changes.extend(changes);
        self.task = task;
        // Something of the task waits for delivery.
        self.freed = true;
        Ok(())
    }

    /// The handoff that gives the same message to another agent. Its token is that of its commit.
    fn successor(&self, agent: &Agent, ruling: Ruling) -> Handoff {
        let limit = self.context_limit(agent, Some(&ruling.edge));
        Handoff {
            id: self.context.spare.handoff,
            parent_id: Some(self.handoff.id),
            target: agent.agent_id.clone(),
            target_type: agent.agent_type.clone(),
            target_version: agent.agent_version.to_string(),
            mode: agent.delivery.mode,
            status: HandoffStatus::Pending,
            deadline_at: None,
            pulse: None,
            origin: Some(self.handoff.origin.unwrap_or(self.handoff.id)),
            idempotent: ruling.edge.idempotent,
            ruling: Some(Box::new(ruling)),
            context: self
                .handoff
                .context
                .map(|facts| facts.readdressed(&limit, &self.context.rules.context)),
            // Its message is compressed anew, for another window.
            sent_id: None,
            stream: None,
            // No submission was made for it, so none can be the same. The salt serves its questions.
            digest: vec![0; 32],
            questions: Vec::new(),
            reason: None,
            created_at: self.call.at,
            clock: LatencyClock::starting(self.call.at),
            accepted_at: None,
            ended_at: None,
            ..self.handoff.clone()
        }
    }

    /// Asks a person, unless one is asked already.
    pub(super) fn escalate(&mut self, reason: &str) -> Result<(), LedgerError> {
        if self.task.status == TaskStatus::Escalated {
            return Ok(());
        }
        self.task.status = self.task.status.next(TaskEvent::Escalate)?;
        let row = escalation_of(self.call, self.context, &self.handoff, reason);
        self.changes.extend(asked(self.call, &self.handoff, row));
        self.alert(Alert::HandoffEscalated, reason);
        Ok(())
    }
}

/// A reason as it may stand in a record: a code stays, free text becomes the kind's own code (a
/// record cannot be erased, so no free text goes there).
pub(super) fn as_code(reason: &str, kind: RecordKind) -> String {
    if is_reason_code(reason) {
        reason.to_owned()
    } else {
        format!("{}_BY_RECEIVER", kind.as_str())
    }
}
