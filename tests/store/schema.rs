//! Migrations, tenants, facts, and the log's own guard.

use std::sync::Arc;

use handoffd::store::StoreError;
use handoffd_domain::ids::Micros;
use sha2::Digest;

use crate::fixture::{given, submit};
use crate::harness::{Bed, Side, acme};

pub async fn migrating_again_changes_nothing(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    assert_eq!(bed.store.migrate().await.unwrap(), 0);
    assert_eq!(bed.store.find_head(&acme()).await.unwrap().unwrap().size, 1);
}

pub async fn two_that_migrate_at_once_both_succeed(bed: Arc<Bed>) {
    let single = Bed::bare(bed.side).await;
    let all = single.store.migrate().await.unwrap();
    single.drop_database().await;
    let bare = Bed::bare(bed.side).await;
    let other = bare.second().await;
    let (one, two) = tokio::join!(bare.store.migrate(), other.migrate());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.min(two), 0, "one of them did it all");
    assert_eq!(one.max(two), all);
    assert_eq!(bare.store.migrate().await.unwrap(), 0);
    bare.drop_database().await;
}

pub async fn a_database_of_a_newer_version_is_refused(bed: Arc<Bed>) {
    let mut raw = bed.raw().await;
    let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         SELECT 9999, description, success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1";
    raw.run(sql).await.unwrap();
    let err = bed.store.migrate().await.unwrap_err();
    assert!(matches!(&err, StoreError::Refused(why) if why.contains("9999")), "{err}");
    let again = bed.store.migrate().await.unwrap_err();
    assert!(matches!(again, StoreError::Refused(_)), "the refusal leaves no lock: {again}");
}

pub async fn an_edited_migration_is_refused(bed: Arc<Bed>) {
    let mut raw = bed.raw().await;
    raw.put("UPDATE _sqlx_migrations SET checksum = $1 WHERE version = 1", &[1, 2, 3]).await;
    let err = bed.store.migrate().await.unwrap_err();
    assert!(matches!(err, StoreError::Refused(_)), "{err}");
}

pub async fn a_tenant_keeps_its_first_log(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    bed.store.ensure_tenant(&acme(), "another-log", Micros(9)).await.unwrap();
    let head = bed.store.find_head(&acme()).await.unwrap().unwrap();
    assert_eq!((head.log_id.as_str(), head.size), ("log-acme", 1));
    let beta = "beta".parse().unwrap();
    assert_eq!(bed.store.find_head(&beta).await.unwrap(), None);
    bed.store.ensure_tenant(&beta, "log-beta", Micros(9)).await.unwrap();
    let head = bed.store.find_head(&beta).await.unwrap().unwrap();
    assert_eq!((head.log_id.as_str(), head.size, head.hash.len()), ("log-beta", 0, 0));
    assert_eq!(bed.store.list_tenants().await.unwrap(), [acme(), beta]);
}

pub async fn a_fact_keeps_its_first_value(bed: Arc<Bed>) {
    let other = bed.second().await;
    let said = futures_util::future::join_all((0u8..16).map(|n| {
        let store = if n % 2 == 0 { &bed.store } else { &other };
        async move { store.settle_fact("master-key", &[n, 0, 255]).await.unwrap() }
    }))
    .await;
    assert!(said.iter().all(|value| *value == said[0]), "{said:?}");
    assert_eq!(bed.store.settle_fact("master-key", b"late").await.unwrap(), said[0]);
    assert_eq!(bed.store.settle_fact("other", b"").await.unwrap(), b"");
}

pub async fn the_log_takes_no_change_from_anyone(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 1)]).await;
    let before = bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap();
    let mut raw = bed.raw_log().await;
    let mut attempts = vec![
        "UPDATE audit.records SET kind = 'REFUSED' WHERE leaf_index = 0",
        "UPDATE audit.records SET leaf_index = 7 WHERE leaf_index = 1",
        "DELETE FROM audit.records WHERE leaf_index = 1",
        "DELETE FROM audit.records",
    ];
    match bed.side {
        Side::Postgres | Side::Serving | Side::Apart | Side::Encrypted | Side::Several => attempts
            .extend([
                "TRUNCATE audit.records",
                "INSERT INTO audit.records SELECT * FROM audit.records WHERE leaf_index = 0 \
             ON CONFLICT (tenant, leaf_index) DO UPDATE SET kind = 'REFUSED'",
            ]),
        Side::Memory => {}
        Side::Sqlite => attempts.extend([
            "REPLACE INTO audit.records SELECT * FROM audit.records WHERE leaf_index = 0",
            "INSERT OR REPLACE INTO audit.records SELECT * FROM audit.records WHERE leaf_index = 0",
            "INSERT INTO audit.records SELECT * FROM audit.records WHERE leaf_index = 0 \
             ON CONFLICT (tenant, leaf_index) DO UPDATE SET kind = 'REFUSED'",
        ]),
    }
    for sql in attempts {
        let err = raw.run(sql).await.expect_err(sql);
        assert!(err.to_string().contains("append-only"), "{sql}: {err}");
    }
    assert_eq!(bed.store.list_records(&acme(), None, 0, 10, true).await.unwrap(), before);
}

/// A database keeps the checksum of each migration, and refuses another text: a released migration never changes, comments included.
#[test]
fn released_migrations_are_as_they_were_released() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let list = std::fs::read_to_string(folder.join("released.sha256")).unwrap();
    let rows: Vec<(&str, &str)> = list
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once("  "))
        .collect();
    assert!(rows.len() >= 74, "0.1.0 to 0.4.0 have 74 files: {}", rows.len());
    for (sum, file) in rows {
        let text = std::fs::read(folder.join(file)).unwrap();
        assert_eq!(
            hex::encode(sha2::Sha256::digest(&text)),
            sum,
            "{file} changed after its release"
        );
    }
}
