//! Records about the state of objects, and the rows that no record commits to.

use std::sync::Arc;

use handoffd::audit::{LogCheck, verify_log};
use handoffd::store::{KeyRow, Role, Store, Writes};
use handoffd_domain::ids::{ContentId, Micros, TenantId};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::{Actor, AdoptionFacts, RecordContent, RecordDraft, RecordKind};
use handoffd_evidence::verify::VerificationReport;
use uuid::Uuid;

use crate::fixture::{given, submit, write};
use crate::harness::{Bed, acme};

fn about(kind: RecordKind, n: u128) -> RecordDraft {
    let mut draft = RecordDraft::new(acme(), kind, Micros(7), Actor::broker());
    draft.content = Some(RecordContent {
        id: ContentId(Uuid::from_u128(0x57 << 96 | n)),
        part: PackedContent::new(CommitmentSubject::Message, [7; 16], b"{\"states\":[]}"),
    });
    draft
}

async fn kinds(store: &Arc<Store>, tenant: &TenantId, from: i64) -> Vec<(String, bool)> {
    let page = store.list_state_records(tenant, from, 10).await.unwrap();
    page.into_iter().map(|record| (record.kind, record.content.is_some())).collect()
}

pub async fn records_about_state_are_listed_apart_with_their_contents(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    let records = vec![about(RecordKind::KeyCreated, 1)];
    write(&bed.store, Writes { records, ..Writes::default() }).await.unwrap();
    submit(&bed.store, &[given(2, 2)]).await;
    let records = RecordKind::ABOUT_STATE.into_iter().zip(2..).map(|(kind, n)| about(kind, n));
    let records: Vec<_> = records.take(3).collect();
    write(&bed.store, Writes { records, ..Writes::default() }).await.unwrap();
    let all = kinds(&bed.store, &acme(), 0).await;
    let names = ["KEY_CREATED", "AGENT_CREATED", "AGENT_UPDATED", "AGENT_DELETED"];
    assert_eq!(all, names.map(|name| (name.to_owned(), true)));
    assert_eq!(kinds(&bed.store, &acme(), 3).await.len(), 3);
    assert_eq!(kinds(&bed.store, &"beta".parse().unwrap(), 0).await, []);
}

async fn verify_rows(store: &Arc<Store>, tenant: &TenantId) -> VerificationReport {
    verify_log(store, tenant, LogCheck::default()).await.unwrap()
}

/// Finding E2 of 0.3.0: rows that an earlier version writes beside a newer one are counted, and are not a fault; a row that no
/// version wrote is one.
pub async fn rows_of_an_earlier_version_are_counted_and_added_ones_found(bed: Arc<Bed>) {
    let key = |id: &str| KeyRow {
        tenant: acme(),
        key_id: id.to_owned(),
        hash: format!("{id:0>32}").into_bytes(),
        role: Role::Admin,
        agent: None,
        label: String::new(),
        created_at: Micros(7),
        expires_at: None,
    };
    let mut writes =
        Writes { records: vec![about(RecordKind::StateAdopted, 1)], ..Writes::default() };
    writes.records[0].adoption = Some(AdoptionFacts { objects: 0, as_of: 0 });
    write(&bed.store, writes).await.unwrap();
    let mut writes = Writes::default();
    writes.keys.insert((acme(), "k1".to_owned()), key("k1"));
    let mut record = about(RecordKind::KeyCreated, 2);
    record.content = None;
    writes.records.push(record);
    write(&bed.store, writes).await.unwrap();
    let report = verify_rows(&bed.store, &acme()).await;
    assert_eq!((report.uncommitted_rows, report.first_fault), (1, None));
    let mut writes = Writes::default();
    writes.keys.insert((acme(), "k2".to_owned()), key("k2"));
    write(&bed.store, writes).await.unwrap();
    let fault = verify_rows(&bed.store, &acme()).await.first_fault.unwrap();
    assert_eq!(fault.fault, "state");
    assert!(fault.detail.contains("key k2"), "{}", fault.detail);
}
