//! `contracts` and `contract_repeats`: versions of contracts, and the last uses of their dedupe keys.
//!
//! A row, and how it changes:
//!
//! - `contracts`: one version of a contract: canonical document and hash. Inserted only.
//! - `contract_repeats`: the last value of a contract's dedupe key, as a hash. Updated.

use crate::store::query::{Row, Statement, Texts};
use crate::store::rows::{get, hash32, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{BatchState, Result, Store};
use handoffd_domain::ids::{HandoffId, Micros, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights =
    &[("contracts", "SELECT, INSERT"), ("contract_repeats", "SELECT, INSERT, UPDATE, DELETE")];

/// Key of a contract version: tenant, id, version.
pub type ContractKey = (TenantId, String, String);
/// Key of a dedupe value: tenant, and contract with a hash of the value.
pub type RepeatKey = (TenantId, String);

/// A contract version. Rows are never changed or deleted, as records name them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractRow {
    pub tenant: TenantId,
    pub id: String,
    /// The contract's semver version.
    pub version: String,
    /// The canonical document (RFC 8785).
    pub doc: String,
    /// SHA-256 of `doc`.
    pub sha256: [u8; 32],
    /// The source as written in the contract.
    pub source: String,
    /// The target as written in the contract.
    pub target: String,
    pub created_at: Micros,
}

impl ContractRow {
    #[must_use]
    pub fn key(&self) -> ContractKey {
        (self.tenant.clone(), self.id.clone(), self.version.clone())
    }
}

/// The last use of a contract's dedupe value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatRow {
    pub tenant: TenantId,
    /// The contract and a hash of the value.
    pub key: String,
    /// The handoff created with it.
    pub handoff_id: HandoffId,
    pub seen_at: Micros,
}

table! {
    CONTRACTS: ContractRow = "contracts" by 3 {
        "tenant" Text: |row| &row.tenant,
        "contract_id" Text: |row| &row.id,
        "version" Text: |row| &row.version,
        "doc" Text: |row| &row.doc,
        "sha256" Bytes: |row| &row.sha256,
        "source" Text: |row| &row.source,
        "target" Text: |row| &row.target,
        "created_at" Long: |row| row.created_at,
    }
}

table! {
    REPEATS: RepeatRow = "contract_repeats" by 2 {
        "tenant" Text: |row| &row.tenant,
        "repeat_key" Text: |row| &row.key,
        "handoff_id" Text: |row| row.handoff_id,
        "seen_at" Long: |row| row.seen_at,
    }
}

fn decode(row: &dyn Row) -> Result<ContractRow> {
    Ok(ContractRow {
        tenant: parse(row, "tenant")?,
        id: get(row, "contract_id")?,
        version: get(row, "version")?,
        doc: get(row, "doc")?,
        sha256: hash32(row, "sha256")?,
        source: get(row, "source")?,
        target: get(row, "target")?,
        created_at: micros(row, "created_at")?,
    })
}

/// Adds a contract to what a batch has loaded.
pub(in crate::store) fn load(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = decode(row)?;
    state.contracts.insert(row.key(), row);
    Ok(())
}

/// Adds a dedupe value to what a batch has loaded.
pub(in crate::store) fn load_repeat(row: &dyn Row, state: &mut BatchState) -> Result<()> {
    let row = RepeatRow {
        tenant: parse(row, "tenant")?,
        key: get(row, "repeat_key")?,
        handoff_id: parse(row, "handoff_id")?,
        seen_at: micros(row, "seen_at")?,
    };
    state.repeats.insert((row.tenant.clone(), row.key.clone()), row);
    Ok(())
}

impl Store {
    /// Number of contract versions of a tenant. Rows are only added, so a changed number means new versions.
    pub async fn count_contracts(&self, tenant: &TenantId) -> Result<i64> {
        let count = Statement::new("SELECT count(*) AS versions FROM contracts WHERE tenant = $1");
        let found = self.find(count.bind(tenant), |row| row.get("versions")).await?;
        Ok(found.unwrap_or(0))
    }

    /// All contract versions of a tenant, by id and version; only those registered at or after the given time by
    /// the writers' clocks.
    pub async fn list_contracts(
        &self,
        tenant: &TenantId,
        since: Option<Micros>,
    ) -> Result<Vec<ContractRow>> {
        let text = format!(
            "SELECT {} FROM contracts WHERE tenant = $1 AND created_at >= $2 \
             ORDER BY contract_id, version",
            CONTRACTS.list
        );
        let since = since.map_or(i64::MIN, |since| since.0);
        self.list(Statement::new(text).bind(tenant).bind(since), decode).await
    }
}

/// Deletes the dedupe keys of handoffs.
pub(in crate::store) const FORGET_REPEATS: Texts = Texts {
    sqlite: "DELETE FROM contract_repeats \
               WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))",
    postgres: "DELETE FROM contract_repeats WHERE tenant = $1 AND handoff_id = ANY($2)",
};
