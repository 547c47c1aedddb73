//! Decisions on a task that need no message: its withdrawal, an addition to its budget, the answer to an escalation. The words
//! of each are kept with its record.

use std::time::Duration;

use serde_json::{Value, json};

use super::refused::Refusal;
use super::{Intake, actor};
use crate::archive::Contents;
use crate::directory::Principal;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{CancelTask, Resolve, Resolved, TopUp};
use handoffd_domain::canonical;
use handoffd_domain::escalation::{Escalation, Resolution};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId};
use handoffd_domain::money::Usd;
use handoffd_domain::ruling::OtherEdge;
use handoffd_domain::task::Task;

impl Intake {
    /// Withdraws a task. An agent that accepted a handoff may finish it within the grace, in milliseconds.
    ///
    /// # Errors
    /// The ledger refuses: the caller neither holds the task nor began it, or the task is done.
    pub async fn cancel_task(
        &self,
        principal: &Principal,
        task_id: TaskId,
        reason: &str,
        grace: u64,
    ) -> Result<Task, Refusal> {
        let now = self.clock.now();
        let words = json!({ "reason": reason, "graceMs": grace });
        let cancel = CancelTask {
            task_id,
            by: principal.reader().limit().cloned(),
            grace_until: now.plus(Duration::from_millis(grace)),
            content: content(&canonical::to_vec(&words), now),
        };
        Ok(self.ledger.handle(called(principal, now), cancel).await?)
    }

    /// Adds to a task's budget.
    ///
    /// # Errors
    /// The ledger refuses: the task has ended.
    pub async fn top_up(
        &self,
        principal: &Principal,
        task_id: TaskId,
        add: Usd,
        reason: &str,
    ) -> Result<Task, Refusal> {
        let now = self.clock.now();
        let words = json!({ "addUSD": add, "reason": reason });
        let top_up = TopUp { task_id, add, content: content(&canonical::to_vec(&words), now) };
        Ok(self.ledger.handle(called(principal, now), top_up).await?)
    }

    /// Decides on an escalation. A task that goes to another agent is held against the contract of the edge to it.
    ///
    /// # Errors
    /// The contract refuses the message, or the ledger refuses: the escalation was decided before.
    pub async fn resolve(
        &self,
        principal: &Principal,
        contents: &Contents,
        row: &Escalation,
        resolution: Resolution,
        reason: &str,
    ) -> Result<Resolved, Refusal> {
        let now = self.clock.now();
        let agent = match &resolution {
            Resolution::Reassign(agent) => Some(agent.clone()),
            _ => None,
        };
        let words = json!({
            "action": resolution.outcome().as_str(), "agentId": agent, "reason": reason,
        });
        let edge = match &agent {
            Some(target) => self.edge_to(principal, contents, row.handoff_id, target).await?,
            None => None,
        };
        let agents = [row.target.clone()].into_iter().chain(agent).collect();
        let resolve = Resolve {
            escalation_id: row.id,
            task_id: row.task_id,
            handoff_id: row.handoff_id,
            agents,
            resolution: Some(resolution),
            edge,
            content: Some(content(&canonical::to_vec(&words), now)),
        };
        Ok(self.ledger.handle(called(principal, now), resolve).await?)
    }

    /// The rules of the edge to the agent that gets the handoff, where a contract rules it and takes the message.
    async fn edge_to(
        &self,
        principal: &Principal,
        contents: &Contents,
        handoff: Option<HandoffId>,
        target: &AgentId,
    ) -> Result<Option<Box<OtherEdge>>, Refusal> {
        let Some(id) = handoff else { return Ok(None) };
        let Some(handoff) = self.failed_handoff(&principal.tenant, id).await? else {
            return Ok(None);
        };
        let message: Option<Value> = match handoff.content_id {
            Some(content) => contents.find_json(&principal.tenant, content).await?,
            None => None,
        };
        self.reassigned(&handoff, target, message).await?.map_err(Refusal::Findings)
    }
}

fn called(principal: &Principal, at: Micros) -> Call {
    Call { tenant: principal.tenant.clone(), at, actor: actor(principal) }
}
