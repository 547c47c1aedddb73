//! The migrations of this binary, and their application.

use std::collections::BTreeMap;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType};

use super::db::Db;
use crate::store::{Result, SchemaState, StoreError};

/// Number, name and text; the same numbers and names as on the Postgres side. sqlx's own `migrate!`
/// would bring its macros, and a second copy of SQLite into every build.
pub(super) const KNOWN: &[(i64, &str, &str)] = &[
    (1, "spine", include_str!("../../../../../migrations/sqlite/0001_spine.sql")),
    (2, "tree", include_str!("../../../../../migrations/sqlite/0002_tree.sql")),
    (3, "erasure", include_str!("../../../../../migrations/sqlite/0003_erasure.sql")),
    (4, "cold", include_str!("../../../../../migrations/sqlite/0004_cold.sql")),
    (5, "recovery", include_str!("../../../../../migrations/sqlite/0005_recovery.sql")),
    (6, "contracts", include_str!("../../../../../migrations/sqlite/0006_contracts.sql")),
    (7, "brokers", include_str!("../../../../../migrations/sqlite/0007_brokers.sql")),
    (8, "events", include_str!("../../../../../migrations/sqlite/0008_events.sql")),
    (9, "two_phase", include_str!("../../../../../migrations/sqlite/0009_two_phase.sql")),
    (10, "trace_context", include_str!("../../../../../migrations/sqlite/0010_trace_context.sql")),
    (11, "funds", include_str!("../../../../../migrations/sqlite/0011_funds.sql")),
    (
        12,
        "payload_schemas",
        include_str!("../../../../../migrations/sqlite/0012_payload_schemas.sql"),
    ),
    (13, "caps", include_str!("../../../../../migrations/sqlite/0013_caps.sql")),
    (14, "agent_changes", include_str!("../../../../../migrations/sqlite/0014_agent_changes.sql")),
    (15, "failures", include_str!("../../../../../migrations/sqlite/0015_failures.sql")),
    (16, "latency", include_str!("../../../../../migrations/sqlite/0016_latency.sql")),
    (17, "purge", include_str!("../../../../../migrations/sqlite/0017_purge.sql")),
    (18, "returns", include_str!("../../../../../migrations/sqlite/0018_returns.sql")),
    (19, "narrow", include_str!("../../../../../migrations/sqlite/0019_narrow.sql")),
    (21, "context", include_str!("../../../../../migrations/sqlite/0021_context.sql")),
    (22, "questions", include_str!("../../../../../migrations/sqlite/0022_questions.sql")),
    (24, "streams", include_str!("../../../../../migrations/sqlite/0024_streams.sql")),
    (25, "opinions", include_str!("../../../../../migrations/sqlite/0025_opinions.sql")),
    (26, "lookups", include_str!("../../../../../migrations/sqlite/0026_lookups.sql")),
    (34, "operating", include_str!("../../../../../migrations/sqlite/0034_operating.sql")),
    (35, "requests", include_str!("../../../../../migrations/sqlite/0035_requests.sql")),
    (36, "waiting", include_str!("../../../../../migrations/sqlite/0036_waiting.sql")),
    (39, "takeover", include_str!("../../../../../migrations/sqlite/0039_takeover.sql")),
    (40, "states", include_str!("../../../../../migrations/sqlite/0040_states.sql")),
    (45, "users", include_str!("../../../../../migrations/sqlite/0045_users.sql")),
    (46, "console", include_str!("../../../../../migrations/sqlite/0046_console.sql")),
    (47, "attempts", include_str!("../../../../../migrations/sqlite/0047_attempts.sql")),
    (48, "kinds", include_str!("../../../../../migrations/sqlite/0048_kinds.sql")),
    (49, "receivers", include_str!("../../../../../migrations/sqlite/0049_receivers.sql")),
    (50, "figures", include_str!("../../../../../migrations/sqlite/0050_figures.sql")),
    (51, "open_tasks", include_str!("../../../../../migrations/sqlite/0051_open_tasks.sql")),
];

/// Where applied migrations stand, in the form of sqlx, which wrote it in 0.1.0.
const APPLIED: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (version BIGINT PRIMARY KEY, \
     description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
     success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL)";

/// Applies new migrations inside the caller's transaction, whose write lock excludes a second process. Returns their
/// number.
pub(super) fn run(db: &Db, known: &[(i64, &'static str, &'static str)]) -> Result<usize> {
    db.batch(APPLIED)?;
    let mut applied: BTreeMap<i64, Vec<u8>> = db
        .query("SELECT version, checksum FROM _sqlx_migrations")
        .list(|row| Ok((row.get("version")?, row.get("checksum")?)))?;
    let mut new = 0;
    for &(version, name, sql) in known {
        let (kind, no_tx) = (MigrationType::Simple, true);
        let checksum =
            Migration::new(version, name.into(), kind, sql.into_sql_str(), no_tx).checksum;
        match applied.remove(&version) {
            Some(known) if *known == *checksum => {}
            Some(_) => {
                return Err(StoreError::Refused(format!(
                    "migration {version} was applied with another text than this binary has"
                )));
            }
            None => {
                db.batch(sql)?;
                db.query(
                    "INSERT INTO _sqlx_migrations \
                     (version, description, success, checksum, execution_time) \
                     VALUES (?, ?, TRUE, ?, 0)",
                )
                .bind(version)
                .bind(name)
                .bind(&*checksum)
                .execute()?;
                new += 1;
            }
        }
    }
    match applied.keys().next() {
        None => Ok(new),
        // The transaction rolls back.
        Some(version) => Err(StoreError::Refused(format!(
            "the database has migration {version}, which this binary does not know: \
             a newer version made it"
        ))),
    }
}

/// Looks at what is applied and at the log's triggers, which SQLite keeps in the words of the migration that made them.
pub(super) fn inspect(db: &Db) -> Result<SchemaState> {
    let tables: Vec<String> = db
        .query("SELECT name FROM sqlite_master WHERE type = 'table' AND name = '_sqlx_migrations'")
        .list(|row| row.get("name"))?;
    let applied: Vec<i64> = if tables.is_empty() {
        Vec::new()
    } else {
        db.query("SELECT version FROM _sqlx_migrations").list(|row| row.get("version"))?
    };
    let there: BTreeMap<String, String> = db
        .query("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        .list(|row| Ok((row.get("name")?, row.get("sql")?)))?;
    let mut state = SchemaState::default();
    for (version, _, sql) in KNOWN {
        if !applied.contains(version) {
            state.pending += 1;
            continue;
        }
        for made in sql.split("CREATE TRIGGER ").skip(1) {
            let name = made.split_whitespace().next().unwrap_or_default();
            // Others keep caches fresh; they guard nothing.
            if !name.starts_with("audit_") {
                continue;
            }
            match there.get(name) {
                None => state.unguarded.push(format!("the trigger {name} was dropped")),
                Some(text) if sql.contains(text.trim()) => {}
                Some(_) => state.unguarded.push(format!("the trigger {name} was changed")),
            }
        }
    }
    Ok(state)
}
