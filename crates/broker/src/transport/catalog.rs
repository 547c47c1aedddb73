//! The transports of this broker, by mode: as a registration is checked against them, and as other rooms ask for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Transport;
use handoffd_domain::agent::Delivery;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::TenantId;
use handoffd_domain::transport::{FieldError, TransportDescription};
use handoffd_store::store::AgentRow;

/// The delivery modes that this broker serves.
#[async_trait]
pub trait DeliveryTypes: Send + Sync {
    /// Their descriptions, in a fixed order.
    fn descriptions(&self) -> Vec<&'static TransportDescription>;

    /// Checks what the registration of a tenant's agent says of its delivery. `set` holds the names of the credentials that are
    /// sealed for this mode already; they count where none are given.
    ///
    /// # Errors
    /// Every member that does not fit, with its JSON pointer.
    fn check(
        &self,
        tenant: &TenantId,
        delivery: &Delivery,
        set: &[String],
    ) -> Result<(), Vec<FieldError>>;

    /// Sends a marked test to an agent.
    async fn test(&self, row: &AgentRow) -> DeliveryTest;
}

/// The outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryTest {
    pub delivered: bool,
    /// The step taken, or the failure, as a sentence.
    pub detail: String,
    /// The class of the failure.
    pub failure: Option<&'static str>,
    /// JSON pointer of the setting that is wrong.
    pub field: Option<&'static str>,
    /// The answer of the server.
    pub answered: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// The transport that posts to the receiver's own URL.
pub const WEBHOOK: TransportDescription = TransportDescription {
    mode: DeliveryMode::Webhook,
    label: "Webhook",
    description: "The broker posts each handoff, signed after Standard Webhooks, to delivery.url; the answer may be the verdict.",
    config_fields: &[],
    credential_fields: &[],
    max_message_bytes: None,
    reply_channel: false,
    intake: false,
};

/// The transport by which a receiver asks for its inbox. Nothing is published.
pub const PULL: TransportDescription = TransportDescription {
    mode: DeliveryMode::Pull,
    label: "Inbox (pull)",
    description: "The agent asks for its handoffs with GET /agents/{agentId}/inbox; the broker sends it no request.",
    config_fields: &[],
    credential_fields: &[],
    max_message_bytes: None,
    reply_channel: false,
    intake: false,
};

/// The transports that a broker serves. Clones share them.
#[derive(Clone, Default)]
pub struct Transports {
    served: Arc<BTreeMap<DeliveryMode, Arc<dyn Transport>>>,
    /// Modes whose transports the build leaves out.
    left_out: &'static [DeliveryMode],
}

/// The refusal of something that needs a transport which the build leaves out. The feature has the mode's name.
#[must_use]
pub fn left_out(mode: DeliveryMode) -> String {
    let mode = mode.as_str();
    format!("this build leaves {mode} out: build the broker with the feature {mode}, or full")
}

impl Transports {
    /// The broker's transports, one for each mode that it pushes by.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = Arc<dyn Transport>>) -> Self {
        let served = all.into_iter().map(|one| (one.describe().mode, one)).collect();
        Self { served: Arc::new(served), left_out: &[] }
    }

    /// The same, knowing which transports the build leaves out, so that a refusal names the feature to build with.
    #[must_use]
    pub fn leaving_out(self, left_out: &'static [DeliveryMode]) -> Self {
        Self { left_out, ..self }
    }

    /// Why no agent can have its handoffs by this mode: the build leaves its transport out.
    #[must_use]
    pub fn left_out(&self, mode: DeliveryMode) -> Option<String> {
        self.left_out.contains(&mode).then(|| left_out(mode))
    }

    #[must_use]
    pub fn get(&self, mode: DeliveryMode) -> Option<&Arc<dyn Transport>> {
        self.served.get(&mode)
    }

    /// All transports except the inbox.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Transport>> {
        self.served.values()
    }

    /// The descriptions of all modes that agents may be registered with.
    #[must_use]
    pub fn descriptions(&self) -> Vec<&'static TransportDescription> {
        DeliveryMode::ALL.into_iter().filter_map(|mode| self.description(mode)).collect()
    }

    #[must_use]
    pub fn description(&self, mode: DeliveryMode) -> Option<&'static TransportDescription> {
        match mode {
            DeliveryMode::Pull => Some(&PULL),
            mode => self.get(mode).map(|transport| transport.describe()),
        }
    }

    /// Checks what the registration of a tenant's agent says of its delivery. `set` holds the names of the credentials that are
    /// sealed for this mode already; they count where none are given.
    ///
    /// # Errors
    /// Every member that does not fit, with its JSON pointer.
    pub fn check(
        &self,
        tenant: &TenantId,
        delivery: &Delivery,
        set: &[String],
    ) -> Result<(), Vec<FieldError>> {
        if let Some(why) = self.left_out(delivery.mode) {
            return Err(vec![("/delivery/mode".to_owned(), why)]);
        }
        let Some(description) = self.description(delivery.mode) else {
            let served: Vec<_> = self.descriptions().iter().map(|one| one.mode.as_str()).collect();
            let why = format!(
                "this broker does not serve {}; it serves {}",
                delivery.mode.as_str(),
                served.join(", ")
            );
            return Err(vec![("/delivery/mode".to_owned(), why)]);
        };
        let given = delivery.credentials.as_ref().map(|credentials| &credentials.0);
        let mut errors = Vec::new();
        errors.extend(description.check_config(&delivery.config).err().into_iter().flatten());
        errors.extend(description.check_credentials(given, set).err().into_iter().flatten());
        if errors.is_empty()
            && let Some(transport) = self.get(delivery.mode)
        {
            let set: Vec<String> =
                given.map_or_else(|| set.to_vec(), |given| given.keys().cloned().collect());
            let config = description.complete(&delivery.config);
            errors = transport.check(&config, &set);
            if errors.is_empty() {
                errors = transport.check_tenant(tenant, &config, &set);
            }
            errors.extend(transport.check_certificates(&delivery.config, given));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}
