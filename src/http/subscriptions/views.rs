//! Subscriptions as requests state them and as answers show them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::open;
use crate::http::problem::WarningView;
use handoffd_broker::vault::{AgentSecrets, Vault};
use handoffd_domain::event::{EventFormat, EventType, Scope, Subscriber, SubscriptionSpec};
use handoffd_domain::ids::Micros;
use handoffd_domain::residency::Region;
use handoffd_store::store::events::{CursorRow, EventDeliveryRow, SubscriptionRow};

/// A subscription, without its secret.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionView {
    /// Its id.
    pub subscription_id: String,
    /// URL to which events are posted.
    pub url: String,
    /// A name for people.
    pub description: String,
    /// Which types; empty: all.
    #[schema(value_type = Vec<open::EventType>)]
    pub event_types: Vec<String>,
    /// The agent, task or handoff that it is limited to.
    pub filter: FilterView,
    /// How events are written.
    pub format: EventFormat,
    /// The agent whose subscription it is; absent: the operators'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Whether events are delivered.
    pub enabled: bool,
    /// Why the broker switched it off: `ENDPOINT_GONE` or `FAILING`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<String>,
    /// The region of the endpoint; none: the broker's region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The legal basis of the transfer of events to its region: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_basis: Option<String>,
    /// The names of the credentials that its endpoint asks for (`authorization`, `token`), never shown; absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials_set: Vec<String>,
    /// How far it has been told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it was changed last, RFC 3339.
    pub updated_at: String,
    /// The secret that deliveries are signed with: only in the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The parts of the subscription that do not hold, in the answer to its change; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

/// A caller's description of a subscription: a [`SubscriptionSpec`], and what only its creation takes.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(description = "A caller's description of a subscription.")]
pub struct SubscriptionBody {
    /// URL to which events are posted; needed on creation.
    url: Option<String>,
    /// A name for people.
    description: Option<String>,
    /// Which types; an empty list means all.
    #[schema(value_type = Option<Vec<open::EventType>>)]
    event_types: Option<Vec<EventType>>,
    /// The agent, task or handoff that it is limited to; empty means no limit. An agent names a handoff that it sends.
    #[schema(value_type = Option<FilterView>)]
    filter: Option<Scope>,
    /// How events are written.
    format: Option<EventFormat>,
    /// Whether events are delivered.
    enabled: Option<bool>,
    /// The region of the endpoint; none: the broker's region.
    #[schema(value_type = Option<String>)]
    region: Option<Region>,
    /// The legal basis of the transfer of events to that region: a code.
    transfer_basis: Option<String>,
    /// On creation: the value of `Authorization` that the endpoint asks for. It is kept sealed and never shown again.
    pub(super) authorization: Option<String>,
    /// On creation: the value of `X-A2A-Notification-Token` that the endpoint asks for, kept likewise.
    pub(super) token: Option<String>,
    /// On creation: it gets the events since then, in order; a cursor of the feed or an RFC 3339 time. By default, only the
    /// events to come.
    pub(super) since: Option<String>,
}

impl SubscriptionBody {
    /// The subscription that it describes.
    pub(super) fn spec(self) -> SubscriptionSpec {
        SubscriptionSpec {
            url: self.url,
            description: self.description,
            event_types: self.event_types,
            filter: self.filter,
            format: self.format,
            enabled: self.enabled,
            region: self.region.map(Some),
            transfer_basis: self.transfer_basis.map(Some),
        }
    }
}

/// The agent, task or handoff that a subscription is limited to.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FilterView {
    /// Events that this agent has a part in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Events of this task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Events of this handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<String>,
}

/// How far a subscription has been told.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgressView {
    /// The last event that it was told of, or passed over.
    pub cursor: String,
    /// Attempts since its creation.
    pub attempts: i64,
    /// Failed attempts in a row.
    pub failures: i32,
    /// Since when every attempt failed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// When it is tried again, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
}

impl From<&CursorRow> for ProgressView {
    fn from(row: &CursorRow) -> Self {
        Self {
            cursor: row.position.to_string(),
            attempts: row.attempts,
            failures: row.failures,
            failing_since: row.failing_since.map(Micros::rfc3339),
            next_attempt_at: (row.failures > 0).then(|| row.next_at.rfc3339()),
        }
    }
}

impl SubscriptionView {
    /// Shows a subscription with the names of its credentials, which `vault` opens; one that does not open has none.
    pub(super) fn new(row: &SubscriptionRow, vault: &Vault) -> Self {
        let it = &row.subscription;
        let owner = Subscriber::Subscription(row.id);
        let credentials = AgentSecrets::parse(&row.secrets).credentials(vault, &row.tenant, &owner);
        let credentials = credentials.unwrap_or_default().names();
        Self {
            subscription_id: row.id.to_string(),
            url: it.url.clone(),
            description: it.description.clone(),
            event_types: it.filter.types.iter().map(ToString::to_string).collect(),
            filter: FilterView {
                agent_id: it.filter.agent_id.as_ref().map(ToString::to_string),
                task_id: it.filter.task_id.map(|id| id.to_string()),
                handoff_id: it.filter.handoff_id.map(|id| id.to_string()),
            },
            format: it.format,
            owner: it.owner.as_ref().map(ToString::to_string),
            enabled: it.enabled,
            disabled_reason: it.disabled_reason.clone(),
            region: it.region.map(|region| region.to_string()),
            transfer_basis: it.transfer_basis.clone(),
            credentials_set: credentials.into_iter().map(str::to_owned).collect(),
            progress: None,
            created_at: row.created_at.rfc3339(),
            updated_at: row.updated_at.rfc3339(),
            secret: None,
            warnings: Vec::new(),
        }
    }
}

/// All subscriptions of the tenant.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionsView {
    /// The subscriptions, by age.
    pub items: Vec<SubscriptionView>,
}

/// One attempt at telling a subscription of an event.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventDeliveryView {
    /// The subscription's attempts, counted; give it as `before` to go on.
    pub number: i64,
    /// The event; also its `webhook-id`.
    pub event_id: String,
    /// The event's type.
    #[serde(rename = "type")]
    #[schema(value_type = open::EventType)]
    pub kind: String,
    /// The event's place in the feed.
    pub cursor: String,
    /// When the attempt ended, RFC 3339.
    pub at: String,
    /// Of this event, from 1.
    pub attempt: i32,
    /// `delivered`, `retry` (to be tried again), `set_aside` (refused too often), `gone` (410).
    #[schema(value_type = open::EventOutcome)]
    pub outcome: String,
    /// HTTP status that the endpoint answered; absent where no answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// The fault, in a sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
}

impl From<EventDeliveryRow> for EventDeliveryView {
    fn from(row: EventDeliveryRow) -> Self {
        Self {
            number: row.number,
            event_id: row.event_id,
            kind: row.kind,
            cursor: row.position.to_string(),
            at: row.at.rfc3339(),
            attempt: row.attempt,
            outcome: row.outcome.as_str().to_owned(),
            status: row.status,
            detail: row.detail,
            duration_ms: row.duration_us as f64 / 1_000.0,
        }
    }
}

/// The last attempts.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventDeliveriesView {
    /// Newest first; the last 1 000 are remembered.
    pub items: Vec<EventDeliveryView>,
}

/// How long the old secret stays valid.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RotateSubscriptionBody {
    /// In seconds, a year at most; `auth.rotation_overlap_s` unless said.
    #[schema(maximum = 31_536_000)]
    pub(super) overlap_seconds: Option<u64>,
}

/// A subscription's new secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotatedSecretView {
    /// Until when deliveries carry the old signature too, RFC 3339.
    pub old_valid_until: String,
    /// The secret that deliveries are signed with from now on.
    pub secret: String,
}

/// From where on to tell again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayBody {
    /// A cursor: everything behind it; or a time, RFC 3339: everything from then on.
    pub(super) since: String,
}
