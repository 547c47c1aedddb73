//! The edge that a handoff takes by a person's word.

use std::sync::Arc;

use serde_json::Value;

use super::{Intake, IntakeError};
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::failure::Failure;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, HandoffId, TenantId};
use handoffd_domain::message::Message;
use handoffd_domain::ruling::OtherEdge;
use handoffd_gate::edge_contract::{self, ContractTerms};
use handoffd_store::store::StoreError;

/// The rules of an edge, or why its contract refuses the message.
type Judged = Result<Option<Box<OtherEdge>>, Vec<Failure>>;

impl Intake {
    /// The handoff with that id.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn failed_handoff(
        &self,
        tenant: &TenantId,
        id: HandoffId,
    ) -> Result<Option<Handoff>, IntakeError> {
        let found = self.store.find_handoff(&(tenant.clone(), id)).await;
        found.map_err(|err: StoreError| Arc::new(err).into())
    }

    /// Holds a kept message against the contract of the edge to an agent that a person gives it to. A person's
    /// decision replaces a missing contract, and the person that a contract asks. An erased message has nothing to
    /// check. `kept` is the message as stored.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn reassigned(
        &self,
        handoff: &Handoff,
        target: &AgentId,
        kept: Option<Value>,
    ) -> Result<Judged, IntakeError> {
        let agents = self.directory.agents(&handoff.tenant).await?;
        let contracts = self.directory.contracts(&handoff.tenant).await?;
        let roster = &agents.roster;
        // Of agents that are gone the ledger speaks.
        let (Some(source), Some(agent)) = (roster.find(&handoff.source), roster.find(target))
        else {
            return Ok(Ok(None));
        };
        if source.agent_id == agent.agent_id || kept.is_none() {
            return Ok(Ok(None));
        }
        let value = self.message_of(handoff, kept).await?;
        let read = CanonicalObject::from_value(&value).map(|bytes| Message::new(value, bytes));
        let Some(Ok(message)) = read else { return Ok(Ok(None)) };
        let (tenant, at) = (&handoff.tenant, self.clock.now());
        let requirement = &self.gate.requirement;
        let terms = requirement.terms(tenant, &source.agent_id, target, at, true);
        let terms = ContractTerms { required: false, ..terms };
        let found = edge_contract::check_beside(&message, source, agent, &contracts, terms);
        if !found.failures.is_empty() {
            let failures = found.failures.into_iter().map(|one| {
                let message = match one.pointer.as_str() {
                    "" | "/toAgent" => one.message.clone(),
                    place => format!("{place}: {}", one.message),
                };
                Failure { pointer: "/agentId".to_owned(), message, ..one }
            });
            return Ok(Err(failures.collect()));
        }
        let rules = found.ruling.map(|ready| OtherEdge::of(ready.policy(), source, agent));
        Ok(Ok(rules.map(Box::new)))
    }
}
