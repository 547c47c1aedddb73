//! The state of each object that steers the broker, as one JSON value: records commit to it, and a row is compared with it.
//! It has every column except the tenant, the columns that a use of the object moves (last use, a cap's usage), and the
//! secrets under their seal.

use serde_json::{Value, json};

use super::contracts::ContractRow;
use super::erasure::HoldRow;
use super::events::SubscriptionRow;
use super::schemas::PayloadSchemaRow;
use super::{AgentRow, KeyRow, Result, Store};
use handoffd_domain::cap::{Cap, CapKey};
use handoffd_domain::ids::TenantId;
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::record::StateObject;
use handoffd_evidence::verify::states::version_key;

/// An object as its row has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectState {
    pub object: StateObject,
    pub id: String,
    /// The agent of a key.
    pub agent: Option<String>,
    pub state: Value,
    /// Secrets under their seal, of an agent or a subscription.
    pub sealed: Option<String>,
    /// The person whom a legal hold names.
    pub subject: Option<String>,
}

impl ObjectState {
    fn new(object: StateObject, id: String, state: Value) -> Self {
        Self { object, id, agent: None, state, sealed: None, subject: None }
    }
}

/// The state of an agent.
#[must_use]
pub fn of_agent(row: &AgentRow) -> ObjectState {
    let state = json!({
        "agent": row.agent,
        "createdAt": row.created_at.0,
        "updatedAt": row.updated_at.0,
    });
    let id = row.agent.agent_id.to_string();
    let sealed = Some(row.secrets.clone());
    ObjectState { sealed, ..ObjectState::new(StateObject::Agent, id, state) }
}

/// The state of a key. Its hash is of 256 random bits.
#[must_use]
pub fn of_key(row: &KeyRow) -> ObjectState {
    let agent = row.agent.as_ref().map(ToString::to_string);
    let state = json!({
        "role": row.role.as_str(),
        "agentId": agent,
        "label": row.label,
        "keyHash": hash_text(&row.hash),
        "createdAt": row.created_at.0,
        "expiresAt": row.expires_at.map(|at| at.0),
    });
    ObjectState { agent, ..ObjectState::new(StateObject::Key, row.key_id.clone(), state) }
}

/// The state of a legal hold. It names the person by a keyed hash: the name leaves the row with the release.
#[must_use]
pub fn of_hold(row: &HoldRow) -> ObjectState {
    let state = json!({
        "subjectKey": row.subject_key.map(|key| hash_text(&key)),
        "named": row.subject_id.is_some(),
        "taskId": row.task_id,
        "reason": row.reason,
        "placedAt": row.placed_at.0,
        "releasedAt": row.released_at.map(|at| at.0),
    });
    let subject = row.subject_id.clone();
    ObjectState { subject, ..ObjectState::new(StateObject::LegalHold, row.id.clone(), state) }
}

/// The id of a cap in records.
#[must_use]
pub fn cap_id((_, agent, window): &CapKey) -> String {
    match agent {
        Some(agent) => format!("{agent}/{window}"),
        None => window.to_string(),
    }
}

/// The state of a cap that an operator set; one of the settings has an account and nothing that was set.
#[must_use]
pub fn of_cap(cap: &Cap) -> Option<ObjectState> {
    if cap.usd.is_none() && cap.tokens().is_none() {
        return None;
    }
    let state = json!({ "usd": cap.usd.map(|usd| usd.to_string()), "tokens": cap.tokens() });
    Some(ObjectState::new(StateObject::Cap, cap_id(&cap.key()), state))
}

/// The state of a subscription.
#[must_use]
pub fn of_subscription(row: &SubscriptionRow) -> ObjectState {
    let state = json!({
        "subscription": row.subscription,
        "createdAt": row.created_at.0,
        "updatedAt": row.updated_at.0,
    });
    let sealed = Some(row.secrets.clone());
    ObjectState { sealed, ..ObjectState::new(StateObject::Subscription, row.id.to_string(), state) }
}

/// A document as JSON; a text that is none as a text, which no record commits to.
fn doc(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The state of a version of a contract.
#[must_use]
pub fn of_contract(row: &ContractRow) -> ObjectState {
    let state = json!({
        "doc": doc(&row.doc),
        "sha256": hash_text(&row.sha256),
        "source": row.source,
        "target": row.target,
        "createdAt": row.created_at.0,
    });
    ObjectState::new(StateObject::Contract, version_key(&row.id, &row.version), state)
}

/// The state of a version of a payload schema.
#[must_use]
pub fn of_schema(row: &PayloadSchemaRow) -> ObjectState {
    let state = json!({
        "doc": doc(&row.doc),
        "sha256": hash_text(&row.sha256),
        "migration": row.migration,
        "ordinal": row.ordinal,
        "createdBy": row.created_by,
        "createdAt": row.created_at.0,
    });
    ObjectState::new(StateObject::PayloadSchema, version_key(&row.id, &row.version), state)
}

/// Legal holds read at once.
const PAGE: i64 = 500;

/// All legal holds of a tenant.
///
/// # Errors
/// The store cannot be read.
pub async fn list_all_holds(store: &Store, tenant: &TenantId) -> Result<Vec<HoldRow>> {
    let mut holds: Vec<HoldRow> = Vec::new();
    loop {
        let after = holds.last().map(|hold| hold.id.clone());
        let page = store.list_holds(tenant, None, after.as_deref(), PAGE).await?;
        if page.is_empty() {
            return Ok(holds);
        }
        holds.extend(page);
    }
}

/// The objects of a tenant, as their rows have them.
///
/// # Errors
/// The store cannot be read, or a row is of no known form.
pub async fn list_states(store: &Store, tenant: &TenantId) -> Result<Vec<ObjectState>> {
    let mut states: Vec<ObjectState> = Vec::new();
    states.extend(store.list_agents(tenant).await?.iter().map(of_agent));
    states.extend(store.list_keys(tenant).await?.iter().map(of_key));
    states.extend(list_all_holds(store, tenant).await?.iter().map(of_hold));
    states.extend(store.list_caps(tenant).await?.iter().filter_map(of_cap));
    states.extend(store.list_subscriptions(tenant).await?.iter().map(of_subscription));
    states.extend(store.list_contracts(tenant, None).await?.iter().map(of_contract));
    states.extend(store.list_payload_schemas(tenant, None).await?.iter().map(of_schema));
    Ok(states)
}
