//! Agents: registration, change, removal, and the rotation of their secrets (specification §4.1).

use std::sync::Arc;

use zeroize::Zeroizing;

use super::credentials::{RegistrationError, seal_credentials};
use super::keys::{NewKey, new_key};
use super::{Administration, RotatedSecret, sealing};
use crate::directory::{Agents, Principal};
use crate::intake::Refusal;
use crate::intake::refused::misfit;
use crate::ledger::commands::{AgentChange, ChangeAgent, CreateAgent, RevokeKey, SecretsChange};
use crate::vault::{AgentSecrets, SecretKind};
use handoffd_domain::agent::{Agent, AgentSpec, Delivery};
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::transport::FieldError;
use handoffd_domain::warning::Warning;
use handoffd_gate::context::tokens;
use handoffd_store::clock;
use handoffd_store::store::{AgentRow, Role};

/// An agent after its change, with the other agents of its tenant.
#[derive(Debug)]
pub struct ChangedAgent {
    pub row: AgentRow,
    pub agents: Arc<Agents>,
    /// Members that do not hold in full.
    pub warnings: Vec<Warning>,
}

/// A new agent, with its key and its secrets.
#[derive(Debug)]
pub struct RegisteredAgent {
    pub agent: ChangedAgent,
    pub key: Zeroizing<String>,
    /// Its messages are signed with it.
    pub signing: Zeroizing<String>,
    /// The broker signs its deliveries with it.
    pub webhook: Zeroizing<String>,
}

impl Administration<'_> {
    /// Registers an agent, with a key and secrets of its own.
    ///
    /// # Errors
    /// A member does not fit, or the id is taken.
    pub async fn register_agent(
        &self,
        principal: &Principal,
        mut spec: AgentSpec,
    ) -> Result<RegisteredAgent, Refusal> {
        let (now, tenant, vault) = (self.now(), &principal.tenant, &self.intake.vault);
        let id = match &spec.agent_id {
            Some(id) => id.clone(),
            None => format!("agent_{}", clock::time_ordered_id(now).simple())
                .parse()
                .map_err(|_| Refusal::because(Code::Internal, "no id could be made"))?,
        };
        if spec.delivery.as_ref().is_some_and(|delivery| delivery.mode.is_none()) {
            return Err(misfit("/delivery/mode", "missing field `mode`").into());
        }
        let without_effect = spec.without_effect();
        let sealed = self.seal_delivery((tenant, &id), &mut spec, (None, ""))?;
        let agent = spec.apply(&Agent::new(id.clone())).map_err(|error| unfit(vec![error]))?;
        let mut secrets = AgentSecrets::parse(&sealed.map(|change| change.to).unwrap_or_default());
        let mut secret = |kind| secrets.rotate(vault, tenant, &id, kind, now).map_err(sealing);
        let (signing, webhook) = (secret(SecretKind::Signing)?, secret(SecretKind::Webhook)?);
        let secrets = secrets.to_text();
        let row =
            AgentRow { tenant: tenant.clone(), agent, secrets, created_at: now, updated_at: now };
        let label = "made with the agent".to_owned();
        let wish = NewKey { role: Role::Agent, agent: Some(id), label, expires_at: None };
        let (own_key, key) = new_key(tenant.clone(), wish, now);
        let create = CreateAgent { row, key: own_key };
        let created = self.carry_out(principal, now, create).await;
        // Also after an error: an unanswered commit may have got through.
        self.intake.directory.agents_changed(tenant).await;
        let agent = self.changed_agent(principal, created?, without_effect).await?;
        Ok(RegisteredAgent { agent, key, signing, webhook })
    }

    /// Changes an agent; members that the specification does not state stay.
    ///
    /// # Errors
    /// A member does not fit, no such agent exists, or its secrets were changed meanwhile.
    pub async fn change_agent(
        &self,
        principal: &Principal,
        id: AgentId,
        mut spec: AgentSpec,
    ) -> Result<ChangedAgent, Refusal> {
        if spec.agent_id.as_ref().is_some_and(|other| *other != id) {
            return Err(misfit("/agentId", "an agent's id cannot be changed").into());
        }
        let without_effect = spec.without_effect();
        let secrets = if spec.delivery.is_none() {
            None
        } else {
            let agents = self.intake.directory.agents(&principal.tenant).await?;
            let row = agents.row(&id).ok_or(Refusal::NotFound("agent"))?;
            let stored = (Some(&row.agent.delivery), row.secrets.as_str());
            self.seal_delivery((&principal.tenant, &id), &mut spec, stored)?
        };
        let change = AgentChange::Patch { spec: Box::new(spec), secrets };
        let row = self.change_row(principal, id, change).await?;
        self.changed_agent(principal, row, without_effect).await
    }

    /// Removes an agent and revokes its keys.
    ///
    /// # Errors
    /// No such agent exists.
    pub async fn remove_agent(&self, principal: &Principal, id: AgentId) -> Result<(), Refusal> {
        // Its keys first: an agent that is registered under this id later is another one.
        for key in self.intake.store.list_keys(&principal.tenant).await? {
            if key.agent.as_ref() == Some(&id) && key.expires_at.is_none() {
                self.change_key(principal, RevokeKey { key_id: key.key_id }).await?;
            }
        }
        self.try_change(principal, id, AgentChange::Delete).await?;
        Ok(())
    }

    /// Replaces an agent's signing or webhook secret. The old one stays valid for `overlap_s` seconds, or as the settings say.
    ///
    /// # Errors
    /// No such agent exists, the time is too long, or the secrets were changed meanwhile.
    pub async fn rotate_agent_secret(
        &self,
        principal: &Principal,
        id: AgentId,
        kind: SecretKind,
        overlap_s: Option<u64>,
    ) -> Result<RotatedSecret, Refusal> {
        let agents = self.intake.directory.agents(&principal.tenant).await?;
        let row = agents.row(&id).ok_or(Refusal::NotFound("agent"))?;
        let until = self.valid_until(overlap_s)?;
        let mut secrets = AgentSecrets::parse(&row.secrets);
        let secret = secrets
            .rotate(&self.intake.vault, &principal.tenant, &id, kind, until)
            .map_err(sealing)?;
        let change = SecretsChange { from: row.secrets.clone(), to: secrets.to_text() };
        self.change_row(principal, id, AgentChange::Secrets(change)).await?;
        Ok(RotatedSecret { secret, old_valid_until: until })
    }

    async fn try_change(
        &self,
        principal: &Principal,
        agent: AgentId,
        change: AgentChange,
    ) -> Result<Option<AgentRow>, Refusal> {
        let change = ChangeAgent { agent, change };
        let changed = self.carry_out(principal, self.now(), change).await;
        // Also after an error: an unanswered commit may have got through.
        self.intake.directory.agents_changed(&principal.tenant).await;
        Ok(changed?)
    }

    pub(super) async fn change_row(
        &self,
        principal: &Principal,
        agent: AgentId,
        change: AgentChange,
    ) -> Result<AgentRow, Refusal> {
        let row = self.try_change(principal, agent, change).await?;
        row.ok_or(Refusal::NotFound("agent"))
    }

    /// Checks the delivery of a specification against its transport, and seals its credentials.
    fn seal_delivery(
        &self,
        whose: (&TenantId, &AgentId),
        spec: &mut AgentSpec,
        stored: (Option<&Delivery>, &str),
    ) -> Result<Option<SecretsChange>, Refusal> {
        let sealed = seal_credentials(self.delivery_types, &self.intake.vault, whose, spec, stored);
        sealed.map_err(|err| match err {
            RegistrationError::Fields(errors) => unfit(errors),
            RegistrationError::Sealing => {
                Refusal::because(Code::Internal, "the credentials could not be sealed")
            }
        })
    }

    /// A row after its change, with warnings: of members without effect, of the roster, and of the egress guard.
    async fn changed_agent(
        &self,
        principal: &Principal,
        row: AgentRow,
        mut warnings: Vec<Warning>,
    ) -> Result<ChangedAgent, Refusal> {
        if let Some(tokenizer) = row.agent.tokenizer {
            // No message of the agent waits for its vocabulary.
            tokio::task::spawn_blocking(move || tokens::load(tokenizer));
        }
        let agents = self.intake.directory.agents(&principal.tenant).await?;
        warnings.extend(agents.roster.warnings(&row.agent));
        let urls = addresses(&row.agent);
        warnings.extend(urls.filter_map(|(pointer, url)| self.refused_endpoint(pointer, url)));
        Ok(ChangedAgent { row, agents, warnings })
    }
}

/// The URLs to which the broker sends something for an agent, each with its pointer.
fn addresses(agent: &Agent) -> impl Iterator<Item = (&'static str, &String)> {
    let Agent { delivery, callback_url, .. } = agent;
    let webhook = delivery.url.as_ref().filter(|_| delivery.mode == DeliveryMode::Webhook);
    let urls = [("/delivery/url", webhook), ("/callbackUrl", callback_url.as_ref())];
    urls.into_iter().filter_map(|(pointer, url)| Some((pointer, url?)))
}

/// The refusal of members that do not fit, each with its pointer.
fn unfit(errors: Vec<FieldError>) -> Refusal {
    let failures = errors.into_iter().map(|(pointer, message)| misfit(&pointer, message));
    Refusal::Findings(failures.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_delivery_counts_where_deliveries_go_there() {
        let mut agent = Agent::new("reviewer".parse().unwrap());
        assert_eq!(addresses(&agent).count(), 0);
        agent.delivery.url = Some("https://reviewer.example/in".to_owned());
        agent.callback_url = Some("https://reviewer.example/events".to_owned());
        let rows = [
            (DeliveryMode::Webhook, vec!["/delivery/url", "/callbackUrl"]),
            (DeliveryMode::Pull, vec!["/callbackUrl"]),
        ];
        for (mode, pointers) in rows {
            agent.delivery.mode = mode;
            let named: Vec<_> = addresses(&agent).map(|(pointer, _)| pointer).collect();
            assert_eq!(named, pointers, "{mode:?}");
        }
    }
}
