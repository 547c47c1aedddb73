//! The delivery of a registration: the transport checks it, and the vault seals its credentials.

use crate::ledger::commands::SecretsChange;
use crate::transport::DeliveryTypes;
use crate::vault::{AgentSecrets, Vault};
use handoffd_domain::agent::{AgentSpec, Delivery};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::transport::FieldError;

/// Why a delivery cannot be registered.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistrationError {
    /// Invalid members: the pointer and the reason of each.
    #[error("the delivery does not fit its transport")]
    Fields(Vec<FieldError>),
    #[error("the credentials could not be sealed")]
    Sealing,
}

/// Checks the delivery that a registration or a patch names, and moves its credentials into the agent's sealed secrets.
/// `None` if it names no delivery.
///
/// New credentials replace all stored ones. Without new ones, stored credentials of the same mode stay and those of
/// another mode are removed. A request that names another server must bring its credentials: otherwise the caller could
/// read on his own server the stored credentials, which the API never shows.
///
/// # Errors
/// [`RegistrationError`].
pub(super) fn seal_credentials(
    types: &dyn DeliveryTypes,
    vault: &Vault,
    (tenant, agent): (&TenantId, &AgentId),
    spec: &mut AgentSpec,
    (before, stored): (Option<&Delivery>, &str),
) -> Result<Option<SecretsChange>, RegistrationError> {
    let Some(stated) = &mut spec.delivery else { return Ok(None) };
    let delivery = &stated.over(before.unwrap_or(&Delivery::default()));
    let mut secrets = AgentSecrets::parse(stored);
    types
        .check(tenant, delivery, secrets.delivery_names(delivery.mode))
        .map_err(RegistrationError::Fields)?;
    let kept = delivery.credentials.is_none() && !secrets.delivery_names(delivery.mode).is_empty();
    if let Some(before) = before.filter(|_| kept)
        && let Some(changed) = other_server(before, delivery)
    {
        let why = format!("must be given anew where {changed} changes");
        return Err(RegistrationError::Fields(vec![("/delivery/credentials".to_owned(), why)]));
    }
    match stated.credentials.take() {
        Some(credentials) => secrets
            .keep_delivery(vault, tenant, agent, delivery.mode, &credentials.0)
            .map_err(|_| RegistrationError::Sealing)?,
        None => secrets.keep_delivery_of(vault, tenant, agent, delivery.mode),
    }
    stated.credentials_set = Some(secrets.delivery_names(delivery.mode).to_vec());
    Ok(Some(SecretsChange { from: stored.to_owned(), to: secrets.to_text() }))
}

/// The member that now names another server, to which the stored credentials would go.
fn other_server(before: &Delivery, now: &Delivery) -> Option<&'static str> {
    let changed = |key: &&str| before.config.get(*key) != now.config.get(*key);
    let member = ["server", "address"].into_iter().find(changed);
    member.or_else(|| (before.url != now.url).then_some("url"))
}
