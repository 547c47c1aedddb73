//! Allowlists: the agents to which an agent may hand off (specification §4.2).

use super::Administration;
use super::agents::ChangedAgent;
use crate::directory::Principal;
use crate::intake::Refusal;
use crate::ledger::commands::AgentChange;
use handoffd_domain::agent::{Agent, Target};
use handoffd_domain::ids::AgentId;
use handoffd_domain::roster::Roster;
use handoffd_domain::warning::Warning;

/// A change of an allowlist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetsChange {
    /// These entries replace the present ones.
    Replace(Vec<Target>),
    Add(Target),
    Remove(Target),
}

impl From<TargetsChange> for AgentChange {
    fn from(change: TargetsChange) -> Self {
        match change {
            TargetsChange::Replace(targets) => Self::SetTargets(targets),
            TargetsChange::Add(target) => Self::AddTarget(target),
            TargetsChange::Remove(target) => Self::RemoveTarget(target),
        }
    }
}

impl Administration<'_> {
    /// Changes an agent's allowlist. An entry that names no agent is stored, with a warning.
    ///
    /// # Errors
    /// No such agent exists, the list has no such entry to remove, or it is full.
    pub async fn change_targets(
        &self,
        principal: &Principal,
        id: AgentId,
        change: TargetsChange,
    ) -> Result<ChangedAgent, Refusal> {
        let row = self.change_row(principal, id, change.into()).await?;
        let agents = self.intake.directory.agents(&principal.tenant).await?;
        let warnings = warnings(&agents.roster, &row.agent);
        Ok(ChangedAgent { row, agents, warnings })
    }
}

/// The entries of an agent's allowlist that name no agent, each at its pointer.
#[must_use]
pub fn warnings(roster: &Roster, agent: &Agent) -> Vec<Warning> {
    let mut warnings = roster.warnings(agent);
    warnings.retain(|warning| warning.pointer.starts_with("/handoffTargets/"));
    warnings
}

/// The agents that an entry names now.
#[must_use]
pub fn named<'a>(roster: &'a Roster, target: &Target) -> Vec<&'a AgentId> {
    match target {
        Target::Agent(id) => roster.find(id).map(|agent| &agent.agent_id).into_iter().collect(),
        Target::Type(name) => roster.of_type(name).map(|agent| &agent.agent_id).collect(),
    }
}
