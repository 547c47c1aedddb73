//! The migrations of this binary, and their application.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator};
use sqlx::sqlite::SqliteConnection;

use super::connection::failure;
use crate::store::{Result, StoreError};

/// Number, name and text; the same numbers and names as on the Postgres side. sqlx's own `migrate!`
/// would bring its macros, and a second copy of SQLite into every build.
const KNOWN: &[(i64, &str, &str)] = &[
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
];

fn migrator() -> Migrator {
    Migrator::with_migrations(
        KNOWN
            .iter()
            .map(|&(version, name, sql)| {
                // No transaction of its own: it runs inside the caller's.
                let (kind, no_tx) = (MigrationType::Simple, true);
                Migration::new(version, name.into(), kind, sql.into_sql_str(), no_tx)
            })
            .collect(),
    )
}

/// Applies new migrations inside the caller's transaction, whose write lock excludes a second process. Returns their
/// number.
pub(super) async fn run(conn: &mut SqliteConnection) -> Result<usize> {
    let migrator = migrator();
    conn.ensure_migrations_table(&migrator.table_name).await.map_err(refusal)?;
    let applied = conn.list_applied_migrations(&migrator.table_name).await.map_err(refusal)?.len();
    migrator.run_direct(None, conn, false).await.map_err(refusal)?;
    Ok(KNOWN.len().saturating_sub(applied))
}

fn refusal(err: MigrateError) -> StoreError {
    match err {
        MigrateError::Execute(err) | MigrateError::ExecuteMigration(err, _) => failure(err),
        MigrateError::VersionMissing(version) => StoreError::Refused(format!(
            "the database has migration {version}, which this binary does not know: \
             a newer version made it"
        )),
        MigrateError::VersionMismatch(version) => StoreError::Refused(format!(
            "migration {version} was applied with another text than this binary has"
        )),
        err => StoreError::Refused(err.to_string()),
    }
}
