//! What a transport is to those who do not send by it: described, registered, tested, and heard.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::ledger::commands::SecretsChange;
use crate::vault::{AgentSecrets, Vault};
use handoffd_core::domain::agent::{AgentSpec, Delivery};
use handoffd_core::domain::ids::{AgentId, HandoffId, TaskId, TenantId};
use handoffd_core::domain::transport::{FieldError, TransportDescription};
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

/// What came of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryTest {
    pub delivered: bool,
    /// The step taken, or the failure, as a sentence.
    pub detail: String,
    /// The class of the failure.
    pub failure: Option<&'static str>,
    /// JSON pointer of the setting that is wrong.
    pub field: Option<&'static str>,
    /// What the server answered.
    pub answered: Option<String>,
    /// How long it took.
    pub took: Duration,
}

/// Why a delivery cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// Members that do not fit.
    #[error("the delivery does not fit its transport")]
    Fields(Vec<FieldError>),
    #[error("the credentials could not be sealed")]
    Sealing,
}

/// Checks the delivery that a registration or a patch names, and moves its credentials into the agent's sealed secrets.
/// `None` where it names no delivery.
///
/// Credentials of the same mode stay where none are given; given ones replace them all; those of another mode end. They stay for
/// the server that they were given for: who names another could read there what the API never shows.
///
/// # Errors
/// [`RegistrationError`].
pub fn seal_credentials(
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

/// The member that names another server than before, to which the credentials would go.
fn other_server(before: &Delivery, now: &Delivery) -> Option<&'static str> {
    let changed = |key: &&str| before.config.get(*key) != now.config.get(*key);
    let member = ["server", "address"].into_iter().find(changed);
    member.or_else(|| (before.url != now.url).then_some("url"))
}

/// The outcome of a message that came in by a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Its effect is committed, or it has none: acknowledge it.
    Done,
    /// It was refused: publish the problem document on the answers' channel, where the settings name one, then
    /// acknowledge it.
    Refused(Bytes),
    /// It can never be taken: publish it to the place for such messages with this reason, where the settings name one,
    /// then acknowledge it.
    Park(String),
    /// The broker cannot take it now: leave it unacknowledged and go on after the pause.
    Later(Duration),
}

/// Takes messages that came by a transport.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Takes one message, and returns after its effect is committed.
    async fn take(&self, message: Bytes) -> Disposition;

    /// Messages with equal keys are taken in the order in which they came, others at once.
    fn order(&self, message: &[u8]) -> Option<String>;

    /// The handoffs of an agent that have no final verdict: for transports that ask receivers for theirs. `None` where
    /// the broker cannot know now.
    async fn unfinished(&self, agent: &AgentId) -> Option<Vec<UnfinishedHandoff>> {
        let _ = agent;
        Some(Vec::new())
    }
}

/// A handoff that waits for its receiver's verdict, or that its receiver holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedHandoff {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
}

/// Messages that are taken one after the other, and their key.
type Line<T> = (Option<String>, Vec<(T, Bytes)>);

/// Takes the messages of one batch and returns them with what becomes of each, never [`Disposition::Later`]: a message
/// that cannot be taken now is taken again after its pause. What is left at `stopping` is not in the answer, and stays
/// unacknowledged.
pub async fn take_all<T>(
    sink: &dyn Sink,
    batch: Vec<(T, Bytes)>,
    stopping: &CancellationToken,
) -> Vec<(T, Bytes, Disposition)> {
    let mut lines: Vec<Line<T>> = Vec::new();
    for (tag, message) in batch {
        let key = sink.order(&message);
        match lines.iter_mut().find(|(known, _)| key.is_some() && *known == key) {
            Some((_, line)) => line.push((tag, message)),
            None => lines.push((key, vec![(tag, message)])),
        }
    }
    let lines = lines.into_iter().map(|(_, line)| async move {
        let mut taken = Vec::with_capacity(line.len());
        for (tag, message) in line {
            let Some(what) = take_until(sink, &message, stopping).await else { break };
            taken.push((tag, message, what));
        }
        taken
    });
    futures_util::future::join_all(lines).await.into_iter().flatten().collect()
}

async fn take_until(
    sink: &dyn Sink,
    message: &Bytes,
    stopping: &CancellationToken,
) -> Option<Disposition> {
    loop {
        if stopping.is_cancelled() {
            return None;
        }
        match sink.take(message.clone()).await {
            Disposition::Later(pause) => {
                tokio::select! {
                    biased;
                    () = stopping.cancelled() => return None,
                    () = tokio::time::sleep(pause) => {}
                }
            }
            what => return Some(what),
        }
    }
}
