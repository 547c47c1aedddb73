//! The serving role: what the database refuses it, and what the owner alone does.

use std::sync::Arc;

use handoffd::store::StoreError;
use handoffd::store::erasure::ScrubOutcome;
use handoffd_domain::ids::Micros;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::fixture::{given, submit};
use crate::harness::{Bed, acme};
use crate::tamper::verify;

/// The server's code for a statement beyond a role's rights (PostgreSQL manual, appendix A).
const INSUFFICIENT_PRIVILEGE: &str = "42501";

async fn refused(role: &mut PgConnection, sql: &str) {
    let err = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(role).await.expect_err(sql);
    let sqlx::Error::Database(err) = err else { panic!("{sql}: {err}") };
    assert_eq!(err.code().as_deref(), Some(INSUFFICIENT_PRIVILEGE), "{sql}: {err}");
    assert!(!err.message().contains("append-only"), "{sql}: the rights refuse, not the trigger");
}

pub async fn the_database_refuses_every_change_of_the_log(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1), given(2, 1)]).await;
    let mut role = bed.raw_as_store().await;
    for table in ["audit.records", "audit.nodes", "audit.tree_keys", "audit.log_heads"] {
        for sql in [
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("DROP TABLE {table}"),
            format!("ALTER TABLE {table} DISABLE TRIGGER ALL"),
            format!("ALTER TABLE {table} ADD COLUMN more text"),
            format!(
                "CREATE TRIGGER mine BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION audit.refuse_change()"
            ),
            format!("CREATE RULE mine AS ON INSERT TO {table} DO INSTEAD NOTHING"),
        ] {
            refused(&mut role, &sql).await;
        }
    }
    for sql in [
        "UPDATE audit.records SET kind = 'REFUSED'",
        "UPDATE audit.records SET body = ''",
        "UPDATE audit.nodes SET hash = ''",
        "UPDATE audit.tree_keys SET retired_at = NULL",
        "UPDATE audit.log_heads SET tenant = 'other'",
        "UPDATE audit.log_heads SET log_id = 'other'",
        "DROP TRIGGER records_append_only ON audit.records",
        "DROP FUNCTION audit.refuse_change() CASCADE",
        "CREATE OR REPLACE FUNCTION audit.refuse_change() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RETURN OLD; END'",
        "DROP SCHEMA audit CASCADE",
        "CREATE TABLE audit.more (x text)",
        "SET session_replication_role = replica",
        // Data that a record commits to are erased or moved, and not taken away or renamed.
        "DELETE FROM contents",
        "UPDATE contents SET content_id = 'other'",
        "DELETE FROM personal_data",
        "UPDATE checkpoints SET commitment = ''",
    ] {
        refused(&mut role, sql).await;
    }
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
}

/// A table that a migration adds needs its line in the store's list of rights; this case names it.
pub async fn every_table_has_its_rights_and_no_other_table_has_any(bed: Arc<Bed>) {
    let mut owner = bed.raw().await;
    let sql = format!(
        "SELECT coalesce(string_agg(c.oid::regclass::text, ' ' ORDER BY 1), '')::bytea FROM pg_class AS c \
         WHERE c.relkind IN ('r', 'p', 'v', 'm') \
           AND c.relnamespace IN ('public'::regnamespace, 'audit'::regnamespace) \
           AND NOT has_table_privilege('{}', c.oid, 'SELECT')",
        bed.role()
    );
    let without = String::from_utf8(owner.blob(&sql).await).unwrap();
    assert_eq!(without, "", "tables without rights for the serving role");
}

pub async fn the_role_changes_no_schema(bed: Arc<Bed>) {
    let mut role = bed.raw_as_store().await;
    for sql in [
        "CREATE TABLE mine (x text)",
        "CREATE SCHEMA mine",
        "ALTER TABLE handoffs ADD COLUMN mine text",
        "DROP TABLE handoffs",
        "TRUNCATE handoffs",
        "CREATE INDEX mine ON handoffs (status)",
        "DELETE FROM _sqlx_migrations",
    ] {
        refused(&mut role, sql).await;
    }
}

pub async fn what_is_to_be_migrated_is_the_owners_to_do(bed: Arc<Bed>) {
    assert_eq!(bed.store.migrate().await.unwrap(), 0, "nothing to do needs no right");
    let last =
        "DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)";
    bed.raw().await.run(last).await.unwrap();
    let err = bed.store.migrate().await.unwrap_err();
    let StoreError::Refused(why) = &err else { panic!("{err}") };
    assert!(why.contains("1 migrations") && why.contains("`handoffd migrate`"), "{why}");
}

pub async fn a_role_that_could_do_more_is_refused(bed: Arc<Bed>) {
    let owner = bed.owner().await;
    let mut raw = bed.raw().await;
    let role = bed.role();
    let refused = async |word: &str| {
        let err = owner.grant_serving(role).await.unwrap_err();
        assert!(matches!(&err, StoreError::Refused(why) if why.contains(word)), "{word}: {err}");
    };
    for (give, word, take) in [
        (
            "GRANT UPDATE (body) ON audit.records TO PUBLIC",
            "change or remove rows",
            "REVOKE UPDATE (body) ON audit.records FROM PUBLIC",
        ),
        (
            "GRANT TRUNCATE ON audit.nodes TO PUBLIC",
            "change or remove rows",
            "REVOKE TRUNCATE ON audit.nodes FROM PUBLIC",
        ),
        (
            "GRANT CREATE ON SCHEMA public TO PUBLIC",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        ),
        (
            &format!("ALTER ROLE {role} SUPERUSER"),
            "superuser",
            &format!("ALTER ROLE {role} NOSUPERUSER"),
        ),
        (
            &format!("GRANT ALL ON SCHEMA audit TO {role}; GRANT ALL ON audit.records TO {role}"),
            "",
            "",
        ),
    ] {
        raw.run(give).await.unwrap();
        if word.is_empty() {
            // A grant to the role's own name is taken back, and is not a reason to refuse.
            owner.grant_serving(role).await.unwrap();
        } else {
            refused(word).await;
            raw.run(take).await.unwrap();
        }
    }
    for name in
        ["", "Upper", "1st", "a-b", "a b", "a\"; DROP TABLE tasks; --", "pg_mine", &"a".repeat(64)]
    {
        let err = owner.grant_serving(name).await.unwrap_err();
        assert!(
            matches!(&err, StoreError::Refused(why) if why.contains("name of a role")),
            "{err}"
        );
    }
    owner.close().await;
    submit(&bed.store, &[given(1, 1)]).await;
}

pub async fn a_role_is_made_once_and_its_rights_are_given_again(bed: Arc<Bed>) {
    let mut raw = bed.raw().await;
    raw.run(&format!("REVOKE INSERT ON audit.records FROM {}", bed.role())).await.unwrap();
    let batch = [given(1, 1)];
    let lost = crate::fixture::transact(&bed.store, &crate::fixture::needs(&batch), |state| {
        crate::fixture::plan(&batch, state)
    })
    .await
    .unwrap_err();
    assert!(matches!(&lost, StoreError::Denied(why) if why.contains("42501")), "{lost}");
    let owner = bed.owner().await;
    owner.grant_serving(bed.role()).await.unwrap();
    owner.close().await;
    submit(&bed.store, &batch).await;
    bed.store.ensure_tenant(&"beta".parse().unwrap(), "log-beta", Micros(2)).await.unwrap();
    assert_eq!(bed.store.find_head(&acme()).await.unwrap().unwrap().size, 1);
}

/// From version 17 of the server on a role can be let vacuum what it does not own.
pub async fn what_it_erases_is_left_to_the_servers_vacuum(bed: Arc<Bed>) {
    let mut role = bed.raw_as_store().await;
    let sql = "SELECT current_setting('server_version_num')::integer >= 170000";
    let may: bool = sqlx::query(sql).fetch_one(&mut role).await.unwrap().get(0);
    let done = bed.store.scrub().await.unwrap();
    assert_eq!(done, if may { ScrubOutcome::Freed } else { ScrubOutcome::Left });
    let owner = bed.owner().await;
    assert_eq!(owner.scrub().await.unwrap(), ScrubOutcome::Freed);
    owner.close().await;
}
