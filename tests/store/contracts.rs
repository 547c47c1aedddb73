//! Contracts, and what their dedupe keys were seen with.

use std::sync::Arc;

use handoffd::domain::ids::Micros;
use handoffd::store::contracts::{ContractRow, RepeatRow};
use handoffd::store::{Needs, State, StoreError, Writes};

use crate::fixture::{handoff_id, transact, write};
use crate::harness::{Bed, acme};

fn contract(id: &str, version: &str) -> ContractRow {
    ContractRow {
        tenant: acme(),
        id: id.to_owned(),
        version: version.to_owned(),
        doc: format!(r#"{{"id":"{id}","version":"{version}"}}"#),
        sha256: [7; 32],
        source: "alice".to_owned(),
        target: "bob".to_owned(),
        created_at: Micros(5),
    }
}

fn repeat(n: u128, at: i64) -> RepeatRow {
    RepeatRow {
        tenant: acme(),
        key: "a-to-b:00".to_owned(),
        handoff_id: handoff_id(n),
        seen_at: Micros(at),
    }
}

fn repeats(row: &RepeatRow) -> Writes {
    let key = (row.tenant.clone(), row.key.clone());
    Writes { repeats: [(key, row.clone())].into(), ..Writes::default() }
}

pub async fn contracts_are_kept_in_all_versions_and_never_written_over(bed: Arc<Bed>) {
    let rows = [contract("a", "1.0.0"), contract("a", "1.1.0"), contract("b", "1.0.0")];
    write(&bed.store, Writes { contracts: rows.to_vec(), ..Writes::default() }).await.unwrap();
    assert_eq!(bed.store.list_contracts(&acme()).await.unwrap(), rows);
    assert_eq!(bed.store.count_contracts(&acme()).await.unwrap(), 3);
    assert_eq!(bed.store.count_contracts(&"beta".parse().unwrap()).await.unwrap(), 0);
    let again = Writes { contracts: vec![contract("a", "1.1.0")], ..Writes::default() };
    let err = write(&bed.store, again).await.unwrap_err();
    assert!(matches!(err, StoreError::Conflict(_)), "{err}");
    let needs = Needs {
        contracts: [rows[1].key(), contract("c", "1.0.0").key()].into(),
        ..Needs::default()
    };
    let mut seen = State::default();
    transact(&bed.store, &needs, |state| {
        seen = state;
        Writes::default()
    })
    .await
    .unwrap();
    assert_eq!(seen.contracts.into_values().collect::<Vec<_>>(), [rows[1].clone()]);
}

pub async fn what_a_dedupe_key_was_seen_with_is_kept_and_renewed(bed: Arc<Bed>) {
    let needs = Needs { repeats: [(acme(), "a-to-b:00".to_owned())].into(), ..Needs::default() };
    let mut seen = Vec::new();
    for row in [repeat(1, 5), repeat(2, 9)] {
        transact(&bed.store, &needs, |state| {
            seen.extend(state.repeats.into_values());
            repeats(&row)
        })
        .await
        .unwrap();
    }
    transact(&bed.store, &needs, |state| {
        seen.extend(state.repeats.into_values());
        Writes::default()
    })
    .await
    .unwrap();
    assert_eq!(seen, [repeat(1, 5), repeat(2, 9)]);
}
