//! Finds the record that registered a contract or a payload schema. Such records belong to no task and have no index.
//! The log is nearly ordered by time, so the search begins around the time of registration.

use serde_json::Value;

use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::bundle::format::{CONTRACT_PUT, SCHEMA_PUT, contract_name, schema_name};
use handoffd_store::store::{Store, StoreError, StoredRecord};

/// Records read at once in a search.
const SCAN: i64 = 512;

/// Distance from the expected index that is searched before the whole log: clocks that differ between brokers, and
/// batches, put records out of the order of time.
const NEAR: i64 = 4_096;

/// A registered document: `id@version`, and the time of registration.
pub(super) enum RegisteredDocument {
    Contract(String, Micros),
    Schema(String, Micros),
}

impl RegisteredDocument {
    const fn at(&self) -> Micros {
        match self {
            Self::Contract(_, at) | Self::Schema(_, at) => *at,
        }
    }

    /// Whether a record registered this document.
    fn is_by(&self, record: &StoredRecord) -> bool {
        let (kind, name, named): (_, _, fn(&Value) -> Option<String>) = match self {
            Self::Contract(name, _) => (CONTRACT_PUT, name, contract_name),
            Self::Schema(name, _) => (SCHEMA_PUT, name, schema_name),
        };
        record.kind == kind
            && serde_json::from_slice(&record.body)
                .is_ok_and(|body| named(&body).as_ref() == Some(name))
    }
}

/// The leaf index of the record that registered this version, if it is before `end`.
///
/// # Errors
/// [`StoreError`] where the store fails.
pub(super) async fn find_put(
    store: &Store,
    tenant: &TenantId,
    put: &RegisteredDocument,
    end: i64,
) -> Result<Option<i64>, StoreError> {
    let place = place_of(store, tenant, put.at(), end).await?;
    for (from, to) in [(place - NEAR, place + NEAR), (0, end)] {
        let (mut from, to) = (from.max(0), to.min(end));
        while from < to {
            let page = store.list_records(tenant, None, from, SCAN.min(to - from), false).await?;
            let Some(last) = page.last() else { break };
            from = last.leaf_index + 1;
            if let Some(found) = page.iter().find(|record| put.is_by(record)) {
                return Ok(Some(found.leaf_index));
            }
        }
    }
    Ok(None)
}

/// The approximate leaf index of the first record at or after a time.
async fn place_of(
    store: &Store,
    tenant: &TenantId,
    at: Micros,
    end: i64,
) -> Result<i64, StoreError> {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = store.list_records(tenant, None, middle, 1, false).await?;
        if found.first().is_some_and(|record| record.recorded_at < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
