//! Contracts, and what their dedupe keys were seen with.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::ManualClock;
use handoffd::directory::Directory;
use handoffd::store::contracts::{ContractRow, RepeatRow};
use handoffd::store::{BatchState, Needs, StoreError, Writes};
use handoffd_domain::ids::Micros;

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
    assert_eq!(bed.store.list_contracts(&acme(), None).await.unwrap(), rows);
    assert_eq!(bed.store.count_contracts(&acme()).await.unwrap(), 3);
    assert_eq!(bed.store.count_contracts(&"beta".parse().unwrap()).await.unwrap(), 0);
    let again = Writes { contracts: vec![contract("a", "1.1.0")], ..Writes::default() };
    let err = write(&bed.store, again).await.unwrap_err();
    assert!(matches!(err, StoreError::Conflict(_)), "{err}");
    let needs = Needs {
        contracts: [rows[1].key(), contract("c", "1.0.0").key()].into(),
        ..Needs::default()
    };
    let mut seen = BatchState::default();
    transact(&bed.store, &needs, |state| {
        seen = state;
        Writes::default()
    })
    .await
    .unwrap();
    assert_eq!(seen.contracts.into_values().collect::<Vec<_>>(), [rows[1].clone()]);
}

/// Puts another document in the place of a kept one.
async fn rewrite(bed: &Bed, id: &str, doc: &str, sha256: [u8; 32]) {
    let sql = format!("UPDATE contracts SET doc = '{doc}', sha256 = $1 WHERE contract_id = '{id}'");
    assert_eq!(bed.raw().await.put(&sql, &sha256).await, 1);
}

pub async fn contracts_put_since_are_found_also_under_an_old_date(bed: Arc<Bed>) {
    let clock = Arc::new(ManualClock::new(Micros(0)));
    let directory = Directory::new(Arc::clone(&bed.store), clock, Duration::ZERO);
    let hour = 3_600_000_000;
    let mut expected = Vec::new();
    // The second is of a moment before the first, and the last of long before all.
    for (id, at) in
        [("a", 9 * hour), ("b", 9 * hour - 1), ("c", 10 * hour), ("d", 11 * hour), ("e", 0)]
    {
        let row = ContractRow { created_at: Micros(at), ..contract(id, "1.0.0") };
        write(&bed.store, Writes { contracts: vec![row.clone()], ..Writes::default() })
            .await
            .unwrap();
        expected.push(id);
        // A row older than the look back is not read again, unless the count says so: it may be unreadable.
        if id == "d" {
            rewrite(&bed, "a", "unreadable", [8; 32]).await;
        }
        for _ in 0..2 {
            let catalog = directory.contracts(&acme()).await.unwrap();
            let known: Vec<_> = catalog.iter().map(|ready| ready.contract().id.clone()).collect();
            assert_eq!(known, expected);
        }
        if id == "d" {
            rewrite(&bed, "a", &contract("a", "1.0.0").doc, [7; 32]).await;
        }
        let since = bed.store.list_contracts(&acme(), Some(row.created_at)).await.unwrap();
        assert!(
            since.contains(&row) && since.iter().all(|row| row.created_at.0 >= at),
            "{since:?}"
        );
    }
}

pub async fn contracts_of_an_older_state_of_the_database_are_those_that_it_has(bed: Arc<Bed>) {
    let directory = Directory::new(
        Arc::clone(&bed.store),
        Arc::new(ManualClock::new(Micros(0))),
        Duration::ZERO,
    );
    let rows = vec![contract("a", "1.0.0"), contract("b", "1.0.0")];
    write(&bed.store, Writes { contracts: rows, ..Writes::default() }).await.unwrap();
    assert_eq!(directory.contracts(&acme()).await.unwrap().iter().count(), 2);
    // As a backup has it that was made in between.
    bed.raw().await.run("DELETE FROM contracts WHERE contract_id = 'b'").await.unwrap();
    let catalog = directory.contracts(&acme()).await.unwrap();
    let known: Vec<_> = catalog.iter().map(|ready| ready.contract().id.as_str()).collect();
    assert_eq!(known, ["a"]);
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
