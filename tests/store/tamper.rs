//! The verifier's report on a log that someone with the database's password has changed.

use std::sync::Arc;

use handoffd::audit::{LogCheck, verify_log};
use handoffd::store::Store;
use handoffd_domain::canonical;
use handoffd_domain::ids::TenantId;
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::merkle::{Frontier, Hash};
use handoffd_evidence::record::{LogHead, record_hash};
use handoffd_evidence::verify::{TrustedHead, VerificationReport};

use crate::fixture::{content_id, given, submit};
use crate::harness::{Bed, Raw, acme};

/// Verifies a log as it is in the store; the handoffs that this suite makes have no life of their own.
pub async fn verify(store: &Arc<Store>, tenant: &TenantId) -> VerificationReport {
    let check = LogCheck { state: false, ..LogCheck::default() };
    verify_log(store, tenant, check).await.unwrap()
}

/// The tables of the log and what it commits to.
const TABLES: &[&str] =
    &["audit.records", "audit.nodes", "audit.log_heads", "contents", "personal_data"];

fn saved(table: &str) -> String {
    format!("saved_{}", table.replace('.', "_"))
}

/// A log of ten records with content and personal data, the triggers off, and a copy of all tables.
struct Scene {
    bed: Arc<Bed>,
    raw: Raw,
}

impl Scene {
    async fn new(bed: Arc<Bed>) -> Self {
        for n in 0..5 {
            let pair = [2 * n, 2 * n + 1].map(|n| given(n, n).about("s1", "{}").about("s2", "[1]"));
            submit(&bed.store, &pair).await;
        }
        let mut raw = bed.raw().await;
        raw.disarm().await;
        for table in TABLES {
            raw.run(&format!("CREATE TABLE {} AS SELECT * FROM {table}", saved(table)))
                .await
                .unwrap();
        }
        Self { bed, raw }
    }

    async fn restore(&mut self) {
        for table in TABLES {
            self.run(&format!("DELETE FROM {table}")).await;
            self.run(&format!("INSERT INTO {table} SELECT * FROM {}", saved(table))).await;
        }
    }

    async fn run(&mut self, sql: &str) -> u64 {
        self.raw.run(sql).await.unwrap_or_else(|err| panic!("{sql}: {err}"))
    }

    async fn flip(&mut self, table: &str, column: &str, condition: &str) {
        let select = format!("SELECT {column} FROM {table} WHERE {condition}");
        let mut blob = self.raw.blob(&select).await;
        let middle = blob.len() / 2;
        blob[middle] ^= 1;
        let sql = format!("UPDATE {table} SET {column} = $1 WHERE {condition}");
        assert_eq!(self.raw.put(&sql, &blob).await, 1);
    }

    /// Moves records to other indexes, by way of indexes that no record has.
    async fn renumber(&mut self, condition: &str, by: i64) {
        self.run(&format!(
            "UPDATE audit.records SET leaf_index = leaf_index + 1000 WHERE {condition}"
        ))
        .await;
        let back = 1000 - by;
        self.run(&format!(
            "UPDATE audit.records SET leaf_index = leaf_index - {back} WHERE leaf_index >= 1000"
        ))
        .await;
    }

    async fn copy(&mut self, from: i64, to: i64) {
        self.run(&format!(
            "INSERT INTO audit.records SELECT tenant, {to}, record_hash, kind, task_id, handoff_id, \
             content_id, recorded_at, body, tree_size FROM saved_audit_records WHERE leaf_index = {from}"
        ))
        .await;
    }

    async fn report(&self, heads: Vec<TrustedHead>) -> VerificationReport {
        let check = LogCheck { heads, state: false, ..LogCheck::default() };
        verify_log(&self.bed.store, &acme(), check).await.unwrap()
    }

    /// The fault that the verifier names; then the log is restored.
    async fn named(&mut self) -> Option<(i64, &'static str)> {
        let fault = self.report(Vec::new()).await.first_fault;
        self.restore().await;
        fault.map(|fault| (fault.leaf_index, fault.fault))
    }

    async fn head(&self) -> LogHead {
        self.bed.store.find_head(&acme()).await.unwrap().unwrap()
    }
}

pub async fn a_sound_log_is_well(bed: Arc<Bed>) {
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.records), (None, 0));
    let mut scene = Scene::new(bed).await;
    let report = scene.report(Vec::new()).await;
    assert_eq!(report.first_fault, None);
    assert_eq!((report.records, report.contents, report.erased), (10, 30, 0));
    scene.restore().await;
    assert_eq!(scene.named().await, None);
}

/// Each column of the log, and of the rows that it commits to.
pub async fn every_changed_column_is_found_and_named(bed: Arc<Bed>) {
    let mut scene = Scene::new(bed).await;
    let at = "leaf_index = 6";
    for column in ["record_hash", "body"] {
        scene.flip("audit.records", column, at).await;
        assert_eq!(scene.named().await, Some((6, "flip")), "{column}");
    }
    let other = content_id(3);
    let texts: &[(&str, String, i64, &str)] = &[
        ("tenant", "'beta'".to_owned(), 7, "drop"),
        ("leaf_index", "60".to_owned(), 7, "drop"),
        ("kind", "'NO_OP'".to_owned(), 6, "flip"),
        ("kind", "'DEAD_LETTERED'".to_owned(), 6, "flip"),
        ("task_id", "NULL".to_owned(), 6, "flip"),
        ("task_id", format!("'{other}'"), 6, "flip"),
        ("handoff_id", "NULL".to_owned(), 6, "flip"),
        ("handoff_id", format!("'{other}'"), 6, "flip"),
        ("content_id", "NULL".to_owned(), 6, "content"),
        ("content_id", format!("'{other}'"), 6, "content"),
        ("recorded_at", "recorded_at + 1".to_owned(), 6, "flip"),
    ];
    for (column, value, place, name) in texts {
        scene.run(&format!("UPDATE audit.records SET {column} = {value} WHERE {at}")).await;
        assert_eq!(scene.named().await, Some((*place, *name)), "{column} = {value}");
    }
    let content = format!("content_id = '{other}'");
    for column in ["salt", "bytes"] {
        scene.flip("contents", column, &content).await;
        assert_eq!(scene.named().await, Some((3, "content")), "{column} of a content");
        scene.flip("personal_data", column, "leaf_index = 2 AND ordinal = 1").await;
        assert_eq!(scene.named().await, Some((2, "personal-data")), "{column} of personal data");
    }
    scene.run(&format!(
            "UPDATE contents SET codec = CASE codec WHEN 'zstd' THEN 'raw' ELSE 'zstd' END WHERE {content}"
        )).await;
    assert_eq!(scene.named().await, Some((3, "content")), "codec");
    scene.run("UPDATE personal_data SET ordinal = 7 WHERE leaf_index = 2 AND ordinal = 1").await;
    assert_eq!(scene.named().await, Some((2, "personal-data")), "ordinal");
    for (column, place, name) in [("hash", 9, "head"), ("frontier", 9, "tree")] {
        scene.flip("audit.log_heads", column, "tenant = 'acme'").await;
        assert_eq!(scene.named().await, Some((place, name)), "{column} of the head");
    }
    for (change, place, name) in [
        ("size = 11", 10, "truncation"),
        ("size = 9", 9, "insert"),
        ("log_id = 'other'", 0, "foreign"),
    ] {
        scene.run(&format!("UPDATE audit.log_heads SET {change}")).await;
        assert_eq!(scene.named().await, Some((place, name)), "{change}");
    }
}

/// Drop, insert, swap, truncate, rewrite: with and without closing the gaps.
pub async fn every_kind_of_tampering_is_found_and_told_apart(bed: Arc<Bed>) {
    let mut scene = Scene::new(bed).await;
    for leaf in [0, 4] {
        scene.run(&format!("DELETE FROM audit.records WHERE leaf_index = {leaf}")).await;
        assert_eq!(scene.named().await, Some((leaf + 1, "drop")), "left open");
        scene.run(&format!("DELETE FROM audit.records WHERE leaf_index = {leaf}")).await;
        scene.renumber(&format!("leaf_index > {leaf}"), -1).await;
        assert_eq!(scene.named().await, Some((leaf, "drop")), "closed up");
    }
    for from in [2, 9] {
        scene.renumber("leaf_index >= 5", 1).await;
        scene.copy(from, 5).await;
        assert_eq!(scene.named().await, Some((5, "insert")), "a copy of {from}");
    }
    scene.copy(3, 10).await;
    assert_eq!(scene.named().await, Some((10, "insert")), "past the end");
    scene.run("DELETE FROM audit.records WHERE leaf_index IN (3, 6)").await;
    scene.copy(3, 6).await;
    scene.copy(6, 3).await;
    assert_eq!(scene.named().await, Some((3, "swap")));
    scene.run("DELETE FROM audit.records WHERE leaf_index >= 8").await;
    assert_eq!(scene.named().await, Some((8, "truncation")));
    scene.run(&format!("DELETE FROM contents WHERE content_id = '{}'", content_id(3))).await;
    assert_eq!(scene.named().await, Some((3, "content")), "deleting a row is not erasing it");
    scene.run("UPDATE contents SET salt = NULL, bytes = NULL").await;
    assert_eq!(scene.named().await, Some((0, "content-gone")), "no record tells of an erasure");

    // One record replaced by another with a hash of its own.
    let body = scene.raw.blob("SELECT body FROM audit.records WHERE leaf_index = 5").await;
    let body = String::from_utf8(body).unwrap().replace("HANDOFF", "REFUSED").into_bytes();
    scene.raw.put("UPDATE audit.records SET body = $1 WHERE leaf_index = 5", &body).await;
    let hash = record_hash(&body);
    scene.raw.put("UPDATE audit.records SET record_hash = $1 WHERE leaf_index = 5", &hash).await;
    scene.run("UPDATE audit.records SET kind = 'REFUSED' WHERE leaf_index = 5").await;
    assert_eq!(scene.named().await, Some((6, "rewrite")));
}

pub async fn a_changed_node_of_the_tree_is_named(bed: Arc<Bed>) {
    for first in (0..300).step_by(60) {
        submit(&bed.store, &(first..first + 60).map(|n| given(n, n)).collect::<Vec<_>>()).await;
    }
    let mut raw = bed.raw_log().await;
    raw.disarm().await;
    let mut node = raw.blob("SELECT hash FROM audit.nodes WHERE level = 1 AND idx = 0").await;
    node[0] ^= 1;
    raw.put("UPDATE audit.nodes SET hash = $1", &node).await;
    let fault = verify(&bed.store, &acme()).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (255, "tree"));
    raw.run("DELETE FROM audit.nodes").await.unwrap();
    let fault = verify(&bed.store, &acme()).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (255, "tree"));
}

/// Nothing inside the log can tell; a signed tree head that someone else holds can.
pub async fn a_log_cut_with_its_head_is_found_against_a_kept_tree_head(bed: Arc<Bed>) {
    let mut scene = Scene::new(bed).await;
    let whole = scene.head().await;
    let kept = TrustedHead { size: whole.tree.size(), root: whole.tree.root() };
    let leaves = scene.bed.store.list_hashes(&acme(), 0, 0, 8).await.unwrap();
    scene.run("DELETE FROM audit.records WHERE leaf_index >= 8").await;
    scene.run("DELETE FROM personal_data WHERE leaf_index >= 8").await;
    set_head(&mut scene, &leaves).await;
    let fault = scene.report(Vec::new()).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (8, "unrecorded"), "its handoffs tell");
    scene.run("DELETE FROM handoffs").await;
    assert_eq!(scene.report(Vec::new()).await.first_fault, None, "without them nothing does");
    let fault = scene.report(vec![kept]).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (8, "truncation"));
}

/// The whole log made anew from a record on, with all hashes, the tree and the head: what witnesses are for.
pub async fn a_log_rewritten_to_its_end_is_found_against_a_kept_tree_head(bed: Arc<Bed>) {
    let mut scene = Scene::new(bed).await;
    let whole = scene.head().await;
    let kept = TrustedHead { size: whole.tree.size(), root: whole.tree.root() };
    let mut leaves = scene.bed.store.list_hashes(&acme(), 0, 0, 4).await.unwrap();
    for leaf in 4..10 {
        let at = format!("leaf_index = {leaf}");
        let body = scene.raw.blob(&format!("SELECT body FROM audit.records WHERE {at}")).await;
        let mut body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        body["previousRecordHash"] = hash_text(&leaves[leaves.len() - 1]).into();
        if leaf == 4 {
            body["reason"] = "NOTHING_HAPPENED".into();
        }
        let body = canonical::to_vec(&body);
        let hash = record_hash(&body);
        scene.raw.put(&format!("UPDATE audit.records SET body = $1 WHERE {at}"), &body).await;
        let sql = format!("UPDATE audit.records SET record_hash = $1 WHERE {at}");
        scene.raw.put(&sql, &hash).await;
        leaves.push(hash);
    }
    set_head(&mut scene, &leaves).await;
    assert_eq!(scene.report(Vec::new()).await.first_fault, None, "the log alone cannot tell");
    let fault = scene.report(vec![kept]).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (9, "rewrite"));
    let other = TrustedHead { root: scene.head().await.tree.root(), ..kept };
    let fault = scene.report(vec![kept, other]).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (10, "fork"), "both versions were signed");
}

async fn set_head(scene: &mut Scene, leaves: &[Hash]) {
    let mut tree = Frontier::default();
    for leaf in leaves {
        tree.push(*leaf, |_, _, _| {});
    }
    scene.run(&format!("UPDATE audit.log_heads SET size = {}", leaves.len())).await;
    scene.raw.put("UPDATE audit.log_heads SET hash = $1", &leaves[leaves.len() - 1]).await;
    scene.raw.put("UPDATE audit.log_heads SET frontier = $1", &tree.to_bytes()).await;
}

/// Finding E5 of 0.3.0: the verifier said nothing of triggers that were dropped.
pub async fn guards_of_the_log_that_are_off_are_named(bed: Arc<Bed>) {
    let found = bed.store.inspect().await.unwrap();
    assert_eq!((found.pending, found.unguarded), (0, Vec::new()));
    bed.raw().await.disarm().await;
    let found = bed.store.inspect().await.unwrap().unguarded;
    for table in ["records", "nodes"] {
        assert!(found.iter().any(|said| said.contains(&format!("{table}_"))), "{table}: {found:?}");
    }
}
