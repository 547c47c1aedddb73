//! Finds the record by which a contract came to be. No index leads to it: records of contracts belong to
//! no task. The log's order is nearly that of time, so it is looked for around the contract's time first.

use serde_json::Value;

use super::format::{CONTRACT_PUT, contract_name};
use crate::domain::ids::{Micros, TenantId};
use crate::store::contracts::ContractRow;
use crate::store::{Store, StoreError, StoredRecord};

/// Records looked through at once.
const SCAN: i64 = 512;

/// How far from its time's place a record is looked for before the whole log is: brokers whose clocks
/// disagree, and batches, put records out of the order of time.
const NEAR: i64 = 4_096;

/// The leaf index of the record by which this version of a contract was put, if it is before `end`.
///
/// # Errors
/// When the store fails.
pub(super) async fn find_put(
    store: &dyn Store,
    tenant: &TenantId,
    contract: &ContractRow,
    end: i64,
) -> Result<Option<i64>, StoreError> {
    let place = place_of(store, tenant, contract.created_at, end).await?;
    let name = format!("{}@{}", contract.id, contract.version);
    for (from, to) in [(place - NEAR, place + NEAR), (0, end)] {
        let (mut from, to) = (from.max(0), to.min(end));
        while from < to {
            let page = store.list_records(tenant, None, from, SCAN.min(to - from), false).await?;
            let Some(last) = page.last() else { break };
            from = last.leaf_index + 1;
            if let Some(found) = page.iter().find(|record| puts(record, &name)) {
                return Ok(Some(found.leaf_index));
            }
        }
    }
    Ok(None)
}

fn puts(record: &StoredRecord, name: &str) -> bool {
    record.kind == CONTRACT_PUT
        && serde_json::from_slice::<Value>(&record.body)
            .is_ok_and(|body| contract_name(&body).as_deref() == Some(name))
}

/// About where the first record of that time or later is.
async fn place_of(
    store: &dyn Store,
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
