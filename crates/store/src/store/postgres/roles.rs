//! The serving role: what a broker needs, and nothing by which it could change the log.
//!
//! The owner of the database migrates and gives these rights (`handoffd migrate --serving-role`); brokers
//! connect as the role. In the log it may insert and read; of the logs' heads it may update the columns
//! that move. An attacker who takes a broker over can add to the log as the broker could, and take nothing
//! from it.

use std::fmt::Write as _;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use super::failure::failed;
use crate::store::table::Rights;
pub(super) use crate::store::tables::audit::LOG;
use crate::store::{Result, StoreError, tables};

/// Server version from which a role that does not own a table can be granted vacuum.
const MAINTAIN_SINCE: i32 = 170_000;

/// Tables vacuumed after an erasure.
pub(super) const SCRUBBED: [&str; 9] = [
    "personal_data",
    "handoffs",
    "delivery_attempts",
    "dead_letters",
    "contents",
    "checkpoints",
    "erasures",
    "legal_holds",
    "contract_repeats",
];

/// Longest name of a role, in bytes.
const MAX_NAME: usize = 63;

/// Tables without a file in `tables/`, where the others state theirs, as far as a statement of the store needs it.
pub(super) const OPERATIONS: Rights =
    &[("_sqlx_migrations", "SELECT"), ("two_phase", "SELECT, INSERT, DELETE")];

/// Privileges on the tables beside the log in a separate log database.
pub(super) const AUDIT: Rights = &[("_sqlx_migrations", "SELECT"), ("audit.identity", "SELECT")];

/// Creates the role unless it exists, and sets exactly these privileges, with [`OPERATIONS`] those of all tables; refuses, without changes, a role with
/// further rights on the log.
pub(super) async fn grant(
    connection: &mut PgConnection,
    role: &str,
    rights: &[Rights],
) -> Result<()> {
    check_name(role)?;
    let mut tx = connection.begin().await.map_err(failed)?;
    make(&mut tx, role).await?;
    let mut sql = format!(
        "REVOKE ALL ON ALL TABLES IN SCHEMA audit FROM {role}; \
         REVOKE ALL ON SCHEMA audit FROM {role}; GRANT USAGE ON SCHEMA audit TO {role};"
    );
    let operates = rights.contains(&OPERATIONS);
    let with_files = if operates { tables::RIGHTS } else { &[] };
    for (table, rights) in rights.iter().chain(with_files).copied().flatten() {
        let _ =
            write!(sql, "REVOKE ALL ON {table} FROM {role}; GRANT {rights} ON {table} TO {role};");
    }
    if operates && version(&mut tx).await? >= MAINTAIN_SINCE {
        let _ = write!(sql, "GRANT MAINTAIN ON {} TO {role};", SCRUBBED.join(", "));
    }
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed)?;
    let surplus = surplus(&mut tx, role).await?;
    if !surplus.is_empty() {
        return Err(StoreError::Refused(format!(
            "the role {role} could do more than serve: {}",
            surplus.join("; ")
        )));
    }
    tx.commit().await.map_err(failed)
}

/// Accepts names without need for quotes, equal here, in `psql` and in the server's lists.
fn check_name(role: &str) -> Result<()> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    let begins = role.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c == b'_');
    if begins && role.len() <= MAX_NAME && role.bytes().all(plain) && !role.starts_with("pg_") {
        return Ok(());
    }
    Err(StoreError::Refused(
        "the name of a role is made of a-z, 0-9 and _, 63 at most, and begins with no digit or pg_"
            .to_owned(),
    ))
}

/// Creates the role without a password: `\password` in `psql` sets one outside of command lines and logs.
async fn make(connection: &mut PgConnection, role: &str) -> Result<()> {
    let there: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)")
            .bind(role)
            .fetch_one(&mut *connection)
            .await
            .map_err(failed)?;
    if there {
        return Ok(());
    }
    let sql = AssertSqlSafe(format!("CREATE ROLE {role} LOGIN"));
    sqlx::raw_sql(sql).execute(connection).await.map(|_| ()).map_err(|err| match failed(err) {
        StoreError::Refused(why) | StoreError::Denied(why) => StoreError::Refused(format!(
            "the role {role} cannot be made ({why}): a user that may CREATE ROLE must make it"
        )),
        other => other,
    })
}

/// The role's further rights on the log: as a superuser, as a member of another role, or as granted to all roles.
async fn surplus(connection: &mut PgConnection, role: &str) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "WITH given AS (SELECT oid, rolsuper FROM pg_roles WHERE rolname = $1) \
         SELECT what FROM given CROSS JOIN LATERAL (VALUES \
           (rolsuper, 'it is a superuser'), \
           (EXISTS (SELECT 1 FROM pg_class AS c WHERE c.relnamespace = 'audit'::regnamespace \
              AND c.relkind = 'r' AND pg_has_role(given.oid, c.relowner, 'MEMBER')), \
            'it is, or belongs to, the owner of the log'), \
           (EXISTS (SELECT 1 FROM pg_class AS c WHERE c.relnamespace = 'audit'::regnamespace \
              AND c.relkind = 'r' \
              AND (has_table_privilege(given.oid, c.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER') \
                OR c.relname <> 'log_heads' \
                  AND has_any_column_privilege(given.oid, c.oid, 'UPDATE'))), \
            'it may change or remove rows of the log'), \
           (has_schema_privilege(given.oid, 'audit', 'CREATE'), \
            'it may make tables in the schema audit'), \
           (has_schema_privilege(given.oid, current_schema()::text, 'CREATE'), \
            'it may make tables (REVOKE CREATE ON SCHEMA public FROM PUBLIC)')) AS found(so, what) \
         WHERE so",
    )
    .bind(role)
    .fetch_all(connection)
    .await
    .map_err(failed)
}

/// The log's triggers that are missing, off or call something else, and the roles with rights to change the log that do not own it.
pub(super) async fn unguarded(connection: &mut PgConnection) -> Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT 'the trigger ' || wanted.name || ' was dropped, switched off or changed' \
         FROM (VALUES ('audit.records', 'records_append_only', 27), ('audit.records', 'records_no_truncate', 34), \
           ('audit.nodes', 'nodes_append_only', 27), ('audit.nodes', 'nodes_no_truncate', 34)) \
           AS wanted(of_table, name, kind) \
         WHERE NOT EXISTS (SELECT 1 FROM pg_trigger AS t JOIN pg_proc AS f ON f.oid = t.tgfoid \
           WHERE t.tgrelid = to_regclass(wanted.of_table) AND t.tgname = wanted.name AND t.tgtype = wanted.kind \
             AND t.tgenabled IN ('O', 'A') AND t.tgqual IS NULL AND f.pronamespace = 'audit'::regnamespace \
             AND f.proname = 'refuse_change' \
             AND f.prosrc ~ '^\\s*BEGIN\\s+RAISE EXCEPTION ''the audit log is append-only') \
         UNION ALL \
         SELECT DISTINCT 'the role ' || CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee)::text END \
           || ' has the right to ' || a.privilege_type || ' ' || c.oid::regclass::text \
         FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a \
         WHERE c.oid IN (to_regclass('audit.records'), to_regclass('audit.nodes')) AND a.grantee <> c.relowner \
           AND a.privilege_type IN ('UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')",
    )
    .fetch_all(connection)
    .await
    .map_err(failed)
}

async fn version(connection: &mut PgConnection) -> Result<i32> {
    sqlx::query_scalar("SELECT current_setting('server_version_num')::integer")
        .fetch_one(connection)
        .await
        .map_err(failed)
}

/// Whether this role may vacuum these tables: Postgres skips the others with only a warning.
pub(super) async fn may_vacuum(connection: &mut PgConnection, tables: &[&str]) -> Result<bool> {
    let right = if version(connection).await? >= MAINTAIN_SINCE {
        " OR has_table_privilege(oid, 'MAINTAIN')"
    } else {
        ""
    };
    sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT count(*) = 0 FROM pg_class WHERE oid = ANY ($1::text[]::regclass[]) \
         AND NOT (pg_has_role(relowner, 'USAGE'){right})"
    )))
    .bind(tables)
    .fetch_one(connection)
    .await
    .map_err(failed)
}
