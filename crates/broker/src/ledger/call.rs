//! The call that brings a command.

use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_evidence::record::Actor;

/// The call that brings a command.
#[derive(Debug, Clone)]
pub struct Call {
    /// The tenant of the change.
    pub tenant: TenantId,
    /// The caller's clock, which all rows of the change carry.
    pub at: Micros,
    /// The caller, for the record.
    pub actor: Actor,
}

impl Call {
    /// By whom, for rows that people read: the key, else the agent, else the role.
    pub(super) fn person(&self) -> String {
        let actor = &self.actor;
        actor
            .key_id
            .clone()
            .or_else(|| actor.agent_id.as_ref().map(AgentId::to_string))
            .unwrap_or_else(|| actor.role.as_str().to_owned())
    }
}
