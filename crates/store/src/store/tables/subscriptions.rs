//! `subscriptions`: subscribers as JSON, and their sealed secrets.
//!
//! A row, and how it changes:
//!
//! - `subscriptions`: a subscriber as JSON, and its sealed secrets. Updated.

use crate::store::events::{SubscriptionKey, SubscriptionRow};
use crate::store::query::{Row, Statement, Texts, unreadable};
use crate::store::rows::{get, micros, parse};
use crate::store::table::Rights;
use crate::store::{BatchState, Result, Store};
use handoffd_domain::ids::TenantId;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("subscriptions", "SELECT, INSERT, UPDATE, DELETE")];

/// Columns of a subscription.
pub(in crate::store) const SUBSCRIPTION: &str =
    "tenant, subscription_id, doc, secrets, created_at, updated_at";

pub(in crate::store) fn decode(row: &dyn Row) -> Result<SubscriptionRow> {
    Ok(SubscriptionRow {
        tenant: parse(row, "tenant")?,
        id: parse(row, "subscription_id")?,
        subscription: serde_json::from_str(get(row, "doc")?)
            .map_err(|err| unreadable("doc", err))?,
        secrets: get(row, "secrets")?,
        created_at: micros(row, "created_at")?,
        updated_at: micros(row, "updated_at")?,
    })
}

/// Adds a row to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.subscriptions.insert((row.tenant.clone(), row.id), row);
    Ok(())
}

/// The sealed secrets of all rows, with `id`; locked where the database locks rows.
pub(in crate::store) const SECRETS: Texts = Texts {
    sqlite: "SELECT tenant, subscription_id AS id, secrets FROM subscriptions ORDER BY tenant, subscription_id",
    postgres: "SELECT tenant, subscription_id AS id, secrets FROM subscriptions ORDER BY tenant, subscription_id FOR UPDATE",
};

/// Replaces the sealed secrets of a subscription.
pub(in crate::store) fn set_secrets(
    tenant: &TenantId,
    id: String,
    secrets: String,
) -> Statement<'static> {
    let set = Statement::new(
        "UPDATE subscriptions SET secrets = $1 WHERE tenant = $2 AND subscription_id = $3",
    );
    set.bind(secrets).bind(tenant.to_string()).bind(id)
}

/// SQLite: deletes a subscription.
pub(in crate::store) const REMOVE: &str =
    "DELETE FROM subscriptions WHERE tenant = ? AND subscription_id = ?";

/// SQLite: writes a subscription.
pub(in crate::store) fn upsert() -> String {
    format!(
        "INSERT INTO subscriptions ({SUBSCRIPTION}) VALUES (?, ?, ?, ?, ?, ?) \
         ON CONFLICT (tenant, subscription_id) DO UPDATE SET doc = excluded.doc, \
           secrets = excluded.secrets, updated_at = excluded.updated_at"
    )
}

impl Store {
    pub async fn find_subscription(
        &self,
        key: &SubscriptionKey,
    ) -> Result<Option<SubscriptionRow>> {
        let text = format!(
            "SELECT {SUBSCRIPTION} FROM subscriptions WHERE tenant = $1 AND subscription_id = $2"
        );
        self.find(Statement::new(text).bind(&key.0).bind(key.1.to_string()), decode).await
    }

    /// A tenant's subscriptions, oldest first.
    pub async fn list_subscriptions(&self, tenant: &TenantId) -> Result<Vec<SubscriptionRow>> {
        let text = format!(
            "SELECT {SUBSCRIPTION} FROM subscriptions WHERE tenant = $1 \
             ORDER BY created_at, subscription_id"
        );
        self.list(Statement::new(text).bind(tenant), decode).await
    }
}
