//! Subscriptions to events. Operators subscribe to any event; an agent to those of a handoff that it sends.

use std::time::Duration;

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Administration, RotatedSecret, sealing};
use crate::directory::Principal;
use crate::intake::Refusal;
use crate::intake::refused::misfit;
use crate::ledger::command::content;
use crate::ledger::commands::{ChangeSubscription, CreateSubscription, SubscriptionChange};
use crate::vault::{AgentSecrets, EndpointCredentials, SecretKind};
use handoffd_domain::canonical;
use handoffd_domain::event::{Position, Subscriber, Subscription, SubscriptionSpec};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, SubscriptionId, TenantId};
use handoffd_domain::residency::{CrossingParty, ResidencyRules};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_evidence::record::RecordContent;
use handoffd_store::clock;
use handoffd_store::store::events::{CursorKey, CursorRow, SubscriptionRow};

/// Longest wait of a replay for the cursor of events that are under way, which is written at least every 250 ms.
const CURSOR_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks at that cursor.
const CURSOR_LOOK: Duration = Duration::from_millis(20);

/// Most subscriptions of one agent.
pub const MAX_OWN: usize = 200;

/// A subscription to make.
#[derive(Debug)]
pub struct NewSubscription {
    pub subscription: Subscription,
    /// Values of headers that its endpoint asks for.
    pub credentials: EndpointCredentials,
    /// The place of the first event; `None`: events from now on.
    pub from: Option<Position>,
}

/// A subscription after its change.
#[derive(Debug)]
pub struct ChangedSubscription {
    pub row: SubscriptionRow,
    /// How far its events are delivered.
    pub cursor: Option<CursorRow>,
    /// Members that do not hold in full.
    pub warnings: Vec<Warning>,
}

impl Administration<'_> {
    /// Makes a subscription, with a secret of its own.
    ///
    /// # Errors
    /// It is not the agent's to subscribe to, the agent has too many, or the residency policy refuses its region.
    pub async fn subscribe(
        &self,
        principal: &Principal,
        new: NewSubscription,
    ) -> Result<(ChangedSubscription, Zeroizing<String>), Refusal> {
        let NewSubscription { mut subscription, credentials, from } = new;
        subscription.owner = self.owner_of(principal, &subscription).await?;
        let warnings = self.warnings(&principal.tenant, &subscription).await?;
        let (now, tenant) = (self.now(), principal.tenant.clone());
        let id = SubscriptionId(clock::time_ordered_id(now));
        let (secrets, secret) = self.secrets(&tenant, id, &credentials, now)?;
        let mut words = json!({ "created": subscription });
        if let Some(from) = from {
            words["since"] = from.to_string().into();
        }
        let content = words_of(id, &words, now);
        let row = SubscriptionRow {
            tenant,
            id,
            subscription,
            secrets: secrets.to_text(),
            created_at: now,
            updated_at: now,
        };
        let create = CreateSubscription { row, from, content };
        let row = self.carry_out(principal, self.now(), create).await?;
        Ok((self.changed(row, warnings).await?, secret))
    }

    /// Changes a subscription of the caller; members that the specification does not state stay.
    ///
    /// # Errors
    /// No such subscription exists, a member does not fit, the residency policy refuses its region, or an agent changes the
    /// address or the handoff.
    pub async fn change_subscription(
        &self,
        principal: &Principal,
        id: SubscriptionId,
        spec: SubscriptionSpec,
    ) -> Result<ChangedSubscription, Refusal> {
        let row = self.subscription(principal, id).await?;
        let next = spec.apply(&row.subscription).map_err(|(at, why)| misfit(&at, why))?;
        if !principal.reader().sees_all() && !is_same_endpoint(&row.subscription, &next) {
            // Another address and another handoff are another subscription.
            let why = "an agent's subscription keeps its url and its handoff: make another";
            return Err(Refusal::because(Code::Forbidden, why));
        }
        let warnings = self.warnings(&principal.tenant, &next).await?;
        let (change, words) =
            (SubscriptionChange::Patch(Box::new(spec)), json!({ "updated": next }));
        let row = self.change_subscriber(principal, id, change, &words).await?;
        self.changed(row, warnings).await
    }

    /// Ends a subscription of the caller.
    ///
    /// # Errors
    /// No such subscription exists.
    pub async fn unsubscribe(
        &self,
        principal: &Principal,
        id: SubscriptionId,
    ) -> Result<(), Refusal> {
        self.subscription(principal, id).await?;
        let content = words_of(id, &json!("deleted"), self.now());
        let change = ChangeSubscription { id, change: SubscriptionChange::Delete, content };
        self.carry_out(principal, self.now(), change).await?;
        Ok(())
    }

    /// Replaces a subscription's secret. The old one stays valid for `overlap_s` seconds, or as the settings say.
    ///
    /// # Errors
    /// No such subscription exists, the time is too long, or the secrets were changed meanwhile.
    pub async fn rotate_subscription_secret(
        &self,
        principal: &Principal,
        id: SubscriptionId,
        overlap_s: Option<u64>,
    ) -> Result<RotatedSecret, Refusal> {
        let row = self.subscription(principal, id).await?;
        let until = self.valid_until(overlap_s)?;
        let owner = Subscriber::Subscription(id);
        let mut secrets = AgentSecrets::parse(&row.secrets);
        let secret = secrets
            .rotate(&self.intake.vault, &principal.tenant, &owner, SecretKind::Webhook, until)
            .map_err(sealing)?;
        let change = SubscriptionChange::Secrets { from: row.secrets, to: secrets.to_text() };
        self.change_subscriber(principal, id, change, &json!("secret rotated")).await?;
        Ok(RotatedSecret { secret, old_valid_until: until })
    }

    /// Delivers the events behind a place once more.
    ///
    /// # Errors
    /// No such subscription exists, or the place is ahead of its cursor.
    pub async fn replay_events(
        &self,
        principal: &Principal,
        id: SubscriptionId,
        to: Position,
    ) -> Result<ChangedSubscription, Refusal> {
        self.subscription(principal, id).await?;
        let key = (principal.tenant.clone(), Subscriber::Subscription(id));
        if !self.has_passed(&key, to).await? {
            let why = "is ahead of the subscription's cursor: a replay goes back";
            return Err(misfit("/since", why).into());
        }
        let words = json!({ "replayedFrom": to.to_string() });
        let change = SubscriptionChange::Replay(to);
        let row = self.change_subscriber(principal, id, change, &words).await?;
        self.with_cursor(row, Vec::new()).await
    }

    /// A subscription of the caller.
    ///
    /// # Errors
    /// There is none of that id, or it is another agent's.
    pub async fn subscription(
        &self,
        principal: &Principal,
        id: SubscriptionId,
    ) -> Result<SubscriptionRow, Refusal> {
        let row = self.intake.store.find_subscription(&(principal.tenant.clone(), id)).await?;
        row.filter(|row| owns(principal, row)).ok_or(Refusal::NotFound("subscription"))
    }

    /// A subscription with how far its events are delivered.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn with_cursor(
        &self,
        row: SubscriptionRow,
        warnings: Vec<Warning>,
    ) -> Result<ChangedSubscription, Refusal> {
        let key = (row.tenant.clone(), Subscriber::Subscription(row.id));
        let cursor = self.intake.store.find_cursor(&key).await?;
        Ok(ChangedSubscription { row, cursor, warnings })
    }

    async fn changed(
        &self,
        row: SubscriptionRow,
        others: Vec<Warning>,
    ) -> Result<ChangedSubscription, Refusal> {
        let mut warnings = Vec::from_iter(self.refused_endpoint("/url", &row.subscription.url));
        warnings.extend(others);
        self.with_cursor(row, warnings).await
    }

    async fn change_subscriber(
        &self,
        principal: &Principal,
        id: SubscriptionId,
        change: SubscriptionChange,
        words: &Value,
    ) -> Result<SubscriptionRow, Refusal> {
        let content = words_of(id, words, self.now());
        let change = ChangeSubscription { id, change, content };
        let row = self.carry_out(principal, self.now(), change).await?;
        // An event may be due at once: the line is no longer held, or begins at another place.
        self.intake.ledger.look_for_events();
        row.ok_or(Refusal::NotFound("subscription"))
    }

    /// The sealed secrets of a new subscription, and the secret that its deliveries are signed with.
    fn secrets(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        credentials: &EndpointCredentials,
        now: Micros,
    ) -> Result<(AgentSecrets, Zeroizing<String>), Refusal> {
        let (owner, vault) = (Subscriber::Subscription(id), &self.intake.vault);
        let mut secrets = AgentSecrets::default();
        let secret =
            secrets.rotate(vault, tenant, &owner, SecretKind::Webhook, now).map_err(sealing)?;
        if *credentials != EndpointCredentials::default() {
            secrets.keep_credentials(vault, tenant, &owner, credentials).map_err(sealing)?;
        }
        Ok((secrets, secret))
    }

    /// The owner of a new subscription: the agent that subscribes, and `None` for operators.
    async fn owner_of(
        &self,
        principal: &Principal,
        subscription: &Subscription,
    ) -> Result<Option<AgentId>, Refusal> {
        let Some(agent) = principal.agent.clone().filter(|_| !principal.rights().operates()) else {
            return Ok(None);
        };
        self.may_follow(principal, &agent, subscription.filter.handoff_id).await?;
        // No operator will open the way for it.
        if let Some(why) = (self.endpoints)(&subscription.url) {
            return Err(misfit("/url", why).into());
        }
        let rows = self.intake.store.list_subscriptions(&principal.tenant).await?;
        let of_agent = rows.iter().filter(|row| row.subscription.owner.as_ref() == Some(&agent));
        if of_agent.count() >= MAX_OWN {
            let why = format!("an agent may have {MAX_OWN} subscriptions: delete some first");
            return Err(Refusal::because(Code::Conflict, why));
        }
        Ok(Some(agent))
    }

    /// Refuses an agent's subscription to anything but one handoff, or one group, that it sends.
    async fn may_follow(
        &self,
        principal: &Principal,
        agent: &AgentId,
        handoff: Option<HandoffId>,
    ) -> Result<(), Refusal> {
        let Some(id) = handoff else {
            let why = "an agent subscribes to one handoff that it sends: filter.handoffId names it";
            return Err(Refusal::because(Code::Forbidden, why));
        };
        let (reader, store) = (principal.reader(), &*self.intake.store);
        match reader.find_handoff(store, id).await? {
            Some(sent) if sent.source == *agent => Ok(()),
            Some(_) => {
                let why = "an agent subscribes to handoffs that it sends";
                Err(Refusal::because(Code::Forbidden, why))
            }
            // A group is seen by its sender alone.
            None => match reader.find_group(store, id).await? {
                Some(_) => Ok(()),
                None => Err(Refusal::NotFound("handoff")),
            },
        }
    }

    /// Warns of a filter that no event passes, and of an endpoint in another region, where the policy does not refuse that.
    async fn warnings(
        &self,
        tenant: &TenantId,
        subscription: &Subscription,
    ) -> Result<Vec<Warning>, Refusal> {
        let mut warnings = Vec::new();
        if let Some(agent) = &subscription.filter.agent_id
            && self.intake.directory.agents(tenant).await?.row(agent).is_none()
        {
            let why = "names no registered agent: no event passes until such an agent exists";
            warnings.push(Warning::new(WarningCode::UnknownAgent, "/filter/agentId", why));
        }
        warnings.extend(crossing(self.config.residency.rules(), subscription)?);
        Ok(warnings)
    }

    /// Whether the events up to a position were delivered. While events are under way the cursor follows an endpoint's answers a
    /// moment later, so an endpoint that asks at once for the event that it just got waits for it.
    async fn has_passed(&self, key: &CursorKey, to: Position) -> Result<bool, Refusal> {
        let began = tokio::time::Instant::now();
        loop {
            let Some(cursor) = self.intake.store.find_cursor(key).await? else {
                return Ok(true);
            };
            if cursor.position >= to {
                return Ok(true);
            }
            if cursor.lease_until <= self.now() || began.elapsed() >= CURSOR_WAIT {
                return Ok(false);
            }
            tokio::time::sleep(CURSOR_LOOK).await;
        }
    }
}

/// Whether a subscription is the caller's: operators see all, an agent sees its own.
#[must_use]
pub fn owns(principal: &Principal, row: &SubscriptionRow) -> bool {
    principal.reader().sees_all()
        || (principal.agent.is_some() && row.subscription.owner == principal.agent)
}

/// Whether a change leaves the address and the handoff of a subscription alone.
fn is_same_endpoint(before: &Subscription, next: &Subscription) -> bool {
    next.url == before.url && next.filter.handoff_id == before.filter.handoff_id
}

/// The warning on an endpoint in another region, or the refusal of one.
fn crossing(
    residency: ResidencyRules,
    subscription: &Subscription,
) -> Result<Option<Warning>, Failure> {
    let basis = subscription.transfer_basis.as_deref();
    let crossing = residency.crossing(CrossingParty::Receiver, subscription.region, basis);
    let Some(crossing) = crossing else { return Ok(None) };
    if residency.refuses(&crossing) {
        let why = format!("{crossing}: refused");
        return Err(Failure::new(Stage::Route, Code::Forbidden, "/region", why));
    }
    let why = format!("{crossing}; the record of this change says so");
    Ok(Some(Warning::new(WarningCode::ResidencyCrossing, "/region", why)))
}

/// The content to which the record of a change commits.
fn words_of(id: SubscriptionId, change: &Value, now: Micros) -> RecordContent {
    let words = json!({ "subscriptionId": id.to_string(), "change": change });
    content(&canonical::to_vec(&words), now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::residency::ResidencyPolicy;
    use handoffd_store::store::Role;

    fn subscription(owner: Option<&str>, basis: Option<&str>) -> Subscription {
        let spec = SubscriptionSpec {
            url: Some("https://subscriber.example/events".to_owned()),
            region: Some(Some("us-east-1".parse().unwrap())),
            transfer_basis: Some(basis.map(str::to_owned)),
            ..SubscriptionSpec::default()
        };
        let owner = owner.map(|id| id.parse().unwrap());
        Subscription { owner, ..spec.make().unwrap() }
    }

    #[test]
    fn an_endpoint_in_another_region_has_a_warning_or_is_refused_without_a_basis() {
        let rows = [
            (ResidencyPolicy::Off, None, Ok(0)),
            (ResidencyPolicy::Record, None, Ok(1)),
            (ResidencyPolicy::Refuse, Some("SCC"), Ok(1)),
            (ResidencyPolicy::Refuse, None, Err("/region")),
        ];
        for (policy, basis, expected) in rows {
            let rules = ResidencyRules { region: Some("eu-central-1".parse().unwrap()), policy };
            let crossed = crossing(rules, &subscription(None, basis));
            let warnings = crossed.map(|warning| warning.iter().count());
            let warnings = warnings.as_ref().map_err(|failure| failure.pointer.as_str());
            assert_eq!(warnings.copied(), expected, "{policy:?} {basis:?}");
        }
    }

    #[test]
    fn an_agent_owns_its_subscriptions_and_operators_see_all() {
        let caller = |role, agent: Option<&str>| Principal {
            tenant: "t".parse().unwrap(),
            role,
            agent: agent.map(|id| id.parse().unwrap()),
            key_id: "k".to_owned(),
        };
        let rows = [
            (Role::Operator, None, Some("drafter"), true),
            (Role::Agent, Some("drafter"), Some("drafter"), true),
            (Role::Agent, Some("drafter"), Some("reviewer"), false),
            (Role::Agent, Some("drafter"), None, false),
        ];
        for (role, agent, owner, expected) in rows {
            let row = SubscriptionRow {
                tenant: "t".parse().unwrap(),
                id: SubscriptionId(uuid::Uuid::from_u128(1)),
                subscription: subscription(owner, None),
                secrets: String::new(),
                created_at: Micros(0),
                updated_at: Micros(0),
            };
            assert_eq!(owns(&caller(role, agent), &row), expected, "{role:?} {agent:?}");
        }
    }

    #[test]
    fn another_address_and_another_handoff_are_another_subscription() {
        let before = subscription(None, None);
        let mut next = before.clone();
        next.description = "renamed".to_owned();
        assert!(is_same_endpoint(&before, &next));
        next.filter.handoff_id = Some(HandoffId(uuid::Uuid::from_u128(1)));
        assert!(!is_same_endpoint(&before, &next));
        let elsewhere = "https://other.example/".to_owned();
        assert!(!is_same_endpoint(&before, &Subscription { url: elsewhere, ..before.clone() }));
    }
}
