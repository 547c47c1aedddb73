//! Brings a database's schema up to this binary's, under sqlx's advisory lock.

use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, SqlSafeStr};

use super::failure::failed;
use crate::store::{Result, StoreError};

/// sqlx's own name for it, so that its tools can read it.
const TABLE: &str = "_sqlx_migrations";

/// Every migration, in order. A released one is never edited: its checksum is kept.
fn all() -> Vec<Migration> {
    [(1, "spine", include_str!("../../../migrations/postgres/0001_spine.sql"))]
        .into_iter()
        .map(|(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        })
        .collect()
}

/// Applies what is missing; returns how many that were. The lock is the session's: it ends with the
/// connection, whatever happens.
pub(super) async fn apply(connection: &mut PgConnection) -> Result<usize> {
    sqlx::raw_sql("SET client_min_messages = warning; SET statement_timeout = 0")
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    connection.lock().await.map_err(broken)?;
    connection.ensure_migrations_table(TABLE).await.map_err(broken)?;
    let known = all();
    let applied = connection.list_applied_migrations(TABLE).await.map_err(broken)?;
    for done in &applied {
        let version = done.version;
        match known.iter().find(|migration| migration.version == version) {
            None => {
                return Err(StoreError::Refused(format!(
                    "the database has migration {version}, which this version of handoffd does not know: run a newer one"
                )));
            }
            Some(migration) if migration.checksum != done.checksum => {
                return Err(StoreError::Refused(format!(
                    "migration {version} is not the one that this database was made with"
                )));
            }
            Some(_) => {}
        }
    }
    let mut count = 0;
    for migration in known {
        if applied.iter().all(|done| done.version != migration.version) {
            connection.apply(TABLE, &migration).await.map_err(broken)?;
            count += 1;
        }
    }
    connection.unlock().await.map_err(broken)?;
    connection.ping().await.map_err(failed)?;
    Ok(count)
}

fn broken(err: MigrateError) -> StoreError {
    match err {
        MigrateError::Execute(err) => failed(err),
        // Migrations hold no data of users: the server's own words may be shown.
        MigrateError::ExecuteMigration(err, version) => match failed(err) {
            StoreError::Refused(why) => {
                StoreError::Refused(format!("migration {version} failed: {why}"))
            }
            other => other,
        },
        other => StoreError::Refused(other.to_string()),
    }
}
