//! Brings a database's schema up to this binary's. sqlx's own `migrate!` would bring its macros, and a second copy of SQLite into
//! every build.

use std::collections::BTreeMap;

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType};

use super::db::Db;
use crate::store::migrations::{MigrationSet, SQLITE};
use crate::store::{Result, SchemaState, StoreError};

/// The table of applied migrations, in the form of sqlx, which wrote it in 0.1.0.
const APPLIED: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (version BIGINT PRIMARY KEY, \
     description TEXT NOT NULL, installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, \
     success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL)";

/// Applies new migrations inside the caller's transaction, whose write lock excludes a second process. Returns their
/// number.
pub(super) fn run(db: &Db, known: MigrationSet) -> Result<usize> {
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
    for (version, _, sql) in SQLITE {
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
