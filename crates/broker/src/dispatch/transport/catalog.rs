//! The transports of this broker, by mode.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Transport;
use super::a2a::DESCRIPTION as A2A;
use super::amqp::DESCRIPTION as AMQP;
use super::nats::DESCRIPTION as NATS;
use super::redis::DESCRIPTION as REDIS;
use super::servers::{self, TlsSettings};
use super::sqs::DESCRIPTION as SQS;
use super::temporal::DESCRIPTION as TEMPORAL;
use super::webhook::DESCRIPTION as WEBHOOK;
use handoffd_core::domain::agent::Delivery;
use handoffd_core::domain::handoff::DeliveryMode;
use handoffd_core::domain::ids::TenantId;
use handoffd_core::domain::transport::{
    FieldDefault, FieldError, FieldKind, TransportDescription, TransportField,
};

/// The transport by which a receiver asks for its inbox. Nothing is published.
const PULL: TransportDescription = TransportDescription {
    mode: DeliveryMode::Pull,
    label: "Inbox (pull)",
    description: "The agent asks for its handoffs with GET /agents/{agentId}/inbox; the broker calls nobody.",
    config_fields: &[],
    credential_fields: &[],
    max_message_bytes: None,
    reply_channel: false,
    intake: false,
};

/// The descriptions of all transports that this program has.
pub const DESCRIPTIONS: &[&TransportDescription] =
    &[&WEBHOOK, &PULL, &A2A, &REDIS, &NATS, &AMQP, &SQS, &TEMPORAL];

/// The transports that a broker serves. Clones share them.
#[derive(Clone, Default)]
pub struct Transports(Arc<BTreeMap<DeliveryMode, Arc<dyn Transport>>>);

impl Transports {
    /// The broker's transports, one for each mode that it pushes by.
    #[must_use]
    pub fn new(all: impl IntoIterator<Item = Arc<dyn Transport>>) -> Self {
        Self(Arc::new(all.into_iter().map(|one| (one.describe().mode, one)).collect()))
    }

    #[must_use]
    pub fn get(&self, mode: DeliveryMode) -> Option<&Arc<dyn Transport>> {
        self.0.get(&mode)
    }

    /// All transports except the inbox.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Transport>> {
        self.0.values()
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
            errors.extend(unusable_certificate(&delivery.config, given));
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

/// Reads the certificates and the key of a registration as a connection would. Returns the first that no connection could use.
fn unusable_certificate(
    config: &Map<String, Value>,
    given: Option<&Map<String, Value>>,
) -> Option<FieldError> {
    let credential = |name: &str| given?.get(name)?.as_str();
    let ca = config.get(fields::CA_CERTIFICATE.key).and_then(Value::as_str);
    let identity = credential(fields::CLIENT_CERTIFICATE.key);
    let identity = identity.zip(credential(fields::CLIENT_KEY.key));
    if ca.is_none() && identity.is_none() {
        return None;
    }
    let failure = servers::client_config(TlsSettings { ca, identity }).err()?;
    Some((failure.field?.to_owned(), failure.detail))
}

/// Fields that several transports share, so that they are named alike.
pub mod fields {
    use super::{FieldDefault, FieldKind, TransportField};

    /// The channel on which the receiver publishes its verdicts.
    pub const REPLY_TO: TransportField = TransportField::new(
        "replyTo",
        FieldKind::Text,
        "Reply channel",
        "where the agent publishes its verdicts; without it verdicts come by HTTP callback",
    );
    /// Roots that the server's certificate is checked against.
    pub const CA_CERTIFICATE: TransportField = TransportField::new(
        "caCertificate",
        FieldKind::Pem,
        "CA certificate",
        "PEM certificates that are trusted for the server instead of the system's",
    );
    /// The certificate by which the broker identifies itself.
    pub const CLIENT_CERTIFICATE: TransportField = TransportField::secret(
        "clientCertificate",
        FieldKind::Pem,
        "Client certificate",
        "PEM certificate chain by which the broker identifies itself",
    );
    /// The key of the client certificate.
    pub const CLIENT_KEY: TransportField = TransportField::secret(
        "clientKey",
        FieldKind::Pem,
        "Client key",
        "PEM private key of the client certificate",
    );
    /// Whether the connection is encrypted.
    pub const TLS: TransportField = TransportField::new(
        "tls",
        FieldKind::Boolean,
        "TLS",
        "encrypts the connection and checks the server's certificate",
    )
    .default(FieldDefault::Boolean(false));
    /// The user name, where the server knows several.
    pub const USERNAME: TransportField =
        TransportField::secret("username", FieldKind::Text, "User name", "the user to log in as");
    /// The password.
    pub const PASSWORD: TransportField =
        TransportField::secret("password", FieldKind::Text, "Password", "the user's password");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_describes_itself() {
        let described: Vec<_> = DESCRIPTIONS.iter().map(|one| one.mode).collect();
        for mode in DeliveryMode::ALL {
            assert!(described.contains(&mode), "{mode:?}");
        }
        assert_eq!(described.len(), DeliveryMode::ALL.len());
    }
}
