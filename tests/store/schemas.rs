//! Payload schemas.

use std::sync::Arc;

use handoffd::store::schemas::PayloadSchemaRow;
use handoffd::store::{BatchState, Needs, StoreError, Writes};
use handoffd_domain::ids::Micros;

use crate::fixture::{transact, write};
use crate::harness::{Bed, acme};

fn version(id: &str, version: &str, ordinal: i64) -> PayloadSchemaRow {
    PayloadSchemaRow {
        tenant: acme(),
        id: id.to_owned(),
        version: version.to_owned(),
        ordinal,
        doc: format!(r#"{{"title":"{id} {version}"}}"#),
        sha256: [9; 32],
        migration: (ordinal > 0).then(|| "send more".to_owned()),
        created_by: "key-1".to_owned(),
        created_at: Micros(5 + ordinal),
    }
}

fn writes(rows: &[PayloadSchemaRow]) -> Writes {
    Writes { payload_schemas: rows.to_vec(), ..Writes::default() }
}

pub async fn payload_schemas_are_kept_in_all_versions_and_never_written_over(bed: Arc<Bed>) {
    let rows = [version("a", "1.0.0", 0), version("a", "1.10.0", 1), version("b", "1.0.0", 0)];
    write(&bed.store, writes(&rows)).await.unwrap();
    assert_eq!(bed.store.list_payload_schemas(&acme(), None).await.unwrap(), rows);
    assert_eq!(bed.store.list_payload_schemas(&acme(), Some("a")).await.unwrap(), rows[..2]);
    assert_eq!(bed.store.list_payload_schemas(&acme(), Some("c")).await.unwrap(), []);
    let beta = "beta".parse().unwrap();
    assert_eq!(bed.store.list_payload_schemas(&beta, None).await.unwrap(), []);
    // Nothing takes a version's place, nor a place among the versions that another has.
    for taken in [version("a", "1.10.0", 2), version("a", "1.11.0", 1)] {
        let err = write(&bed.store, writes(&[taken])).await.unwrap_err();
        assert!(matches!(err, StoreError::Conflict(_)), "{err}");
    }
    let needs = Needs {
        payload_schemas: [(acme(), "a".to_owned()), (acme(), "c".to_owned())].into(),
        ..Needs::default()
    };
    let mut seen = BatchState::default();
    transact(&bed.store, &needs, |state| {
        seen = state;
        Writes::default()
    })
    .await
    .unwrap();
    assert_eq!(seen.payload_schemas.into_values().collect::<Vec<_>>(), rows[..2]);
}
