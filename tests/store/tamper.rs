//! What the verifier says of a log that someone with the database's password has been at.

use std::sync::Arc;

use handoffd::domain::ids::TenantId;
use handoffd::evidence::commitment::Codec;
use handoffd::evidence::verify::{Entry, Report, Verifier};
use handoffd::store::Store;

use crate::fixture::{content_id, given, submit};
use crate::harness::{Bed, Raw, acme};

type Kept = Option<(Vec<u8>, Codec, Vec<u8>)>;

fn kept(kept: &Kept) -> Option<(&[u8], Codec, &[u8])> {
    kept.as_ref().map(|(salt, codec, bytes)| (&salt[..], *codec, &bytes[..]))
}

/// Reads a log in small pages and verifies it.
pub async fn verify(store: &Arc<dyn Store>, tenant: &TenantId) -> Report {
    const PAGE: i64 = 7;
    let head = store.find_head(tenant).await.unwrap().unwrap();
    let mut verifier = Verifier::new(head.log_id);
    let mut from = 0;
    loop {
        let page = store.list_records(tenant, None, from, PAGE, true).await.unwrap();
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in &page {
            verifier.entry(&Entry {
                leaf_index: record.leaf_index,
                hash: &record.hash,
                kind: &record.kind,
                task_id: record.task_id.as_deref(),
                handoff_id: record.handoff_id.as_deref(),
                body: &record.body,
                content: record.content.as_ref().map(|content| kept(&content.kept)),
                personal: record.personal.iter().map(|p| (p.ordinal, kept(&p.kept))).collect(),
            });
        }
    }
    verifier.finish(head.size, &head.hash)
}

async fn fault(bed: &Bed) -> (i64, &'static str) {
    let fault = verify(&bed.store, &acme()).await.first_fault.expect("a fault");
    (fault.leaf_index, fault.fault)
}

/// Ten records with content and personal data, and the triggers off.
async fn prepared(bed: &Bed) -> Raw {
    for n in 0..5 {
        let pair = [2 * n, 2 * n + 1].map(|n| given(n, n).about("s1", "{}").about("s2", "[1]"));
        submit(&bed.store, &pair).await;
    }
    let mut raw = bed.raw().await;
    raw.disarm().await;
    raw
}

async fn flip(raw: &mut Raw, table: &str, column: &str, condition: &str, place: usize) {
    let mut blob = raw.blob(&format!("SELECT {column} FROM {table} WHERE {condition}")).await;
    blob[place] ^= 1;
    let sql = format!("UPDATE {table} SET {column} = $1 WHERE {condition}");
    assert_eq!(raw.put(&sql, &blob).await, 1);
}

pub async fn a_sound_log_is_well(bed: Arc<Bed>) {
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 0));
    prepared(&bed).await;
    let report = verify(&bed.store, &acme()).await;
    assert_eq!(report.first_fault, None);
    assert_eq!((report.records, report.contents, report.erased), (10, 30, 0));
}

pub async fn an_erased_content_is_well(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    let sql = format!(
        "UPDATE contents SET salt = NULL, bytes = NULL WHERE content_id = '{}'",
        content_id(4)
    );
    assert_eq!(raw.run(&sql).await.unwrap(), 1);
    let sql = "UPDATE personal_data SET salt = NULL, bytes = NULL WHERE subject_id = 's2'";
    assert_eq!(raw.run(sql).await.unwrap(), 10);
    let report = verify(&bed.store, &acme()).await;
    assert_eq!(report.first_fault, None);
    assert_eq!((report.contents, report.erased), (19, 11));
}

pub async fn a_flipped_byte_of_a_record_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    flip(&mut raw, "audit.records", "body", "leaf_index = 6", 40).await;
    assert_eq!(fault(&bed).await, (6, "record-hash"));
}

pub async fn a_flipped_byte_of_a_content_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    let condition = format!("content_id = '{}'", content_id(3));
    flip(&mut raw, "contents", "salt", &condition, 0).await;
    assert_eq!(fault(&bed).await, (3, "content"));
}

pub async fn a_flipped_byte_of_personal_data_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    flip(&mut raw, "personal_data", "bytes", "leaf_index = 2 AND ordinal = 1", 1).await;
    assert_eq!(fault(&bed).await, (2, "personal-data"));
}

pub async fn a_changed_column_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    let sql = "UPDATE audit.records SET kind = 'NO_OP' WHERE leaf_index = 8";
    assert_eq!(raw.run(sql).await.unwrap(), 1);
    assert_eq!(fault(&bed).await, (8, "column"));
}

pub async fn a_deleted_record_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    raw.run("DELETE FROM audit.records WHERE leaf_index = 4").await.unwrap();
    assert_eq!(fault(&bed).await, (5, "index"));
}

pub async fn a_deleted_content_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    let sql = format!("DELETE FROM contents WHERE content_id = '{}'", content_id(3));
    assert_eq!(raw.run(&sql).await.unwrap(), 1);
    let report = verify(&bed.store, &acme()).await;
    let fault = report.first_fault.expect("deleting a row is not erasing its content");
    assert_eq!((fault.leaf_index, fault.fault), (3, "content"));
}

pub async fn a_truncated_log_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    raw.run("DELETE FROM audit.records WHERE leaf_index >= 8").await.unwrap();
    assert_eq!(fault(&bed).await, (8, "truncated"));
}

/// Nothing inside the log can tell; a signed tree head that someone else holds can.
pub async fn a_log_truncated_with_its_head_verifies_and_is_shorter(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    let whole = bed.store.find_head(&acme()).await.unwrap().unwrap();
    let hash = raw.blob("SELECT record_hash FROM audit.records WHERE leaf_index = 7").await;
    raw.run("DELETE FROM audit.records WHERE leaf_index >= 8").await.unwrap();
    raw.put("UPDATE audit.log_heads SET size = 8, hash = $1", &hash).await;
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 8));
    assert!(whole.size > 8);
    assert_eq!(bed.store.list_unrecorded(&acme()).await.unwrap().len(), 2, "the handoffs tell");
}

pub async fn a_rewritten_head_is_named(bed: Arc<Bed>) {
    let mut raw = prepared(&bed).await;
    flip(&mut raw, "audit.log_heads", "hash", "tenant = 'acme'", 31).await;
    assert_eq!(fault(&bed).await, (9, "head"));
}
