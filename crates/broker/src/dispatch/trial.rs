//! A marked test of an agent's delivery, through the transport that its handoffs take.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use crate::transport::{
    Attempt, AttemptFailure, DeliveryTest, DeliveryTypes, Endpoint, Envelope, FailureClass,
    Transports, VerdictClock, signing_secrets,
};
use crate::vault::Vault;
use handoffd_domain::agent::Delivery;
use handoffd_domain::canonical;
use handoffd_domain::ids::{HandoffId, TaskId, TenantId};
use handoffd_domain::transport::{FieldError, TransportDescription};
use handoffd_store::clock::{self, Clock};
use handoffd_store::store::AgentRow;

/// The delivery types of a running broker, with what a test needs.
pub struct ServedTypes {
    pub transports: Transports,
    pub vault: Vault,
    pub clock: Arc<dyn Clock>,
}

#[async_trait]
impl DeliveryTypes for ServedTypes {
    fn descriptions(&self) -> Vec<&'static TransportDescription> {
        self.transports.descriptions()
    }

    fn check(
        &self,
        tenant: &TenantId,
        delivery: &Delivery,
        set: &[String],
    ) -> Result<(), Vec<FieldError>> {
        self.transports.check(tenant, delivery, set)
    }

    async fn test(&self, row: &AgentRow) -> DeliveryTest {
        let started = Instant::now();
        let outcome = self.send(row).await;
        let took = started.elapsed();
        match outcome {
            Ok(detail) => DeliveryTest {
                delivered: true,
                detail,
                failure: None,
                field: None,
                answered: None,
                took,
            },
            Err(AttemptFailure { class, detail, field, answered, .. }) => DeliveryTest {
                delivered: false,
                detail,
                failure: Some(class.as_str()),
                field,
                answered,
                took,
            },
        }
    }
}

impl ServedTypes {
    async fn send(&self, row: &AgentRow) -> Result<String, AttemptFailure> {
        let wrong = |why: &str| AttemptFailure::unreached(FailureClass::Request, why);
        let delivery = &row.agent.delivery;
        if !delivery.mode.is_pushed() {
            let why = "the agent pulls: nothing is sent to it";
            return Err(wrong(why).at("/delivery/mode"));
        }
        let transport = self
            .transports
            .get(delivery.mode)
            .ok_or_else(|| wrong("this broker does not serve the mode").at("/delivery/mode"))?;
        let sealed = |_| wrong("the credentials do not open").at("/delivery/credentials");
        let endpoint = Endpoint::of(row, &**transport, &self.vault).map_err(sealed)?;
        let now = self.clock.now();
        let secrets = signing_secrets(row, &self.vault, now)
            .ok_or_else(|| wrong("the webhook secret does not open"))?;
        let (handoff_id, task_id) = (HandoffId(clock::random_id()), TaskId(clock::random_id()));
        let body: Bytes = canonical::to_vec(&json!({
            "test": true,
            "handoffId": handoff_id,
            "taskId": task_id,
            "toAgent": { "agentId": row.agent.agent_id },
            "timestamp": now.rfc3339(),
        }))
        .into();
        let timeout = Duration::from_millis(delivery.timeout_ms);
        let envelope = Envelope {
            handoff_id,
            task_id,
            attempt: 1,
            fencing_token: 0,
            traceparent: None,
            tracestate: None,
            reply_to: transport.reply_channel(&endpoint),
            timestamp_s: now.seconds(),
            secrets,
            claim_check: None,
            coding: None,
            test: true,
        };
        let verdict = VerdictClock::Stopped;
        transport.test(Attempt { endpoint, envelope, body, encoded: None, timeout, verdict }).await
    }
}
