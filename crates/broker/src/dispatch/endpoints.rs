//! Reports of the dispatcher to the ledger on a receiver's endpoint: gone, about to be disabled, or recovered.

use super::dispatcher::Dispatcher;
use super::lanes::EndpointHealthChange;
use crate::ledger::command::Call;
use crate::ledger::commands::{AgentChange, ChangeAgent};
use handoffd_evidence::record::Actor;
use handoffd_store::store::DeliveryClaim;

impl Dispatcher {
    /// Reports that the endpoint answered 410.
    pub(super) async fn gone(&self, claim: &DeliveryClaim, address: &str) {
        tracing::error!(
            event = "agent.endpoint_disabled",
            agent_id = %claim.target,
            handoff_id = %claim.handoff_id,
            task_id = %claim.task_id,
            "the endpoint answered 410: delivery to this agent is disabled"
        );
        self.parts().metrics.endpoint_alert("disabled", &claim.tenant, &claim.target);
        self.change(claim, AgentChange::DisableDelivery { address: address.to_owned() }).await;
    }

    /// Reports consecutive failures of the endpoint, or its recovery after them.
    pub(super) async fn report_health(
        &self,
        claim: &DeliveryClaim,
        address: String,
        health_change: EndpointHealthChange,
    ) {
        let DeliveryClaim { target: agent_id, handoff_id, task_id, .. } = claim;
        match health_change {
            EndpointHealthChange::Failing(step) => {
                let (failures, percent) = (step.failures, step.percent);
                let what = if percent >= 100 { "disabled" } else { "failing" };
                self.parts().metrics.endpoint_alert(what, &claim.tenant, agent_id);
                if percent >= 100 {
                    tracing::error!(
                        event = "agent.endpoint_disabled",
                        %agent_id,
                        %handoff_id,
                        %task_id,
                        failures,
                        "delivery to this agent is disabled: its endpoint keeps failing"
                    );
                } else {
                    tracing::warn!(
                        event = "agent.endpoint_failing",
                        %agent_id,
                        %handoff_id,
                        %task_id,
                        failures,
                        percent,
                        "the endpoint is on its way to being disabled"
                    );
                }
                self.change(claim, AgentChange::Failing { address, step }).await;
            }
            EndpointHealthChange::Answers => {
                self.parts().metrics.endpoint_alert("recovered", &claim.tenant, agent_id);
                tracing::info!(%agent_id, %handoff_id, %task_id, "the endpoint answers again");
                self.change(claim, AgentChange::Answers { address }).await;
            }
        }
    }

    async fn change(&self, claim: &DeliveryClaim, change: AgentChange) {
        let parts = self.parts();
        let call =
            Call { tenant: claim.tenant.clone(), at: parts.clock.now(), actor: Actor::broker() };
        let command = ChangeAgent { agent: claim.target.clone(), change };
        if let Some(ledger) = self.ledger()
            && let Err(err) = ledger.handle(call, command).await
        {
            tracing::warn!(error = %err, "the state of an endpoint could not be written");
        }
        parts.directory.agents_changed(&claim.tenant).await;
    }
}
