//! Brings a database's schema up to this binary's.

use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType};
use sqlx::postgres::PgConnection;
use sqlx::{Connection, SqlSafeStr};

use super::failure::failed;
use crate::store::migrations::MigrationSet;
use crate::store::{Result, StoreError};

/// sqlx's own table name, for its tools.
const TABLE: &str = "_sqlx_migrations";

/// Most attempts to migrate where other brokers migrate too, or write.
const ATTEMPTS: u32 = 20;

fn all(known: MigrationSet) -> Vec<Migration> {
    known
        .iter()
        .map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        })
        .collect()
}

/// Applies the missing migrations; returns their number. If none is missing, the role only has to read
/// which were applied. Of brokers that start together one applies them all.
pub(super) async fn apply(connection: &mut PgConnection, known: MigrationSet) -> Result<usize> {
    sqlx::raw_sql("SET client_min_messages = warning; SET statement_timeout = 0")
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    let wanted = missing(connection, known).await?.len();
    if wanted == 0 {
        return Ok(0);
    }
    owns_schema(connection, wanted).await?;
    if let Err(err) = connection.ensure_migrations_table(TABLE).await
        && !has_begun(connection).await?
    {
        return Err(broken(err));
    }
    for _ in 0..ATTEMPTS {
        let missing = missing(connection, known).await?;
        if apply_all(connection, &missing).await? {
            return Ok(missing.len());
        }
    }
    Err(StoreError::Conflict(
        "other brokers migrate the database, or their writes and the migrations wait for each other"
            .to_owned(),
    ))
}

/// Applies migrations in one transaction, which writes the row of each before its statements: another broker that
/// migrates waits at the first row until this one is done. Returns whether all were applied; `false` where another
/// broker was first, or where the server ended this side of a deadlock: brokers that serve take their locks in the order of
/// their statements, and migrations in the order of theirs. Nothing was applied then.
async fn apply_all(connection: &mut PgConnection, missing: &[Migration]) -> Result<bool> {
    let mut tx = connection.begin().await.map_err(failed)?;
    for migration in missing {
        match tx.skip(TABLE, migration).await.map_err(broken) {
            Err(StoreError::Conflict(_)) => {
                tx.rollback().await.map_err(failed)?;
                return Ok(false);
            }
            entered => entered?,
        }
        let ran = sqlx::raw_sql(migration.sql.clone()).execute(&mut *tx).await;
        if ran.as_ref().is_err_and(gave_way) {
            tx.rollback().await.map_err(failed)?;
            return Ok(false);
        }
        ran.map_err(|err| broken(MigrateError::ExecuteMigration(err, migration.version)))?;
    }
    tx.commit().await.map_err(failed)?;
    Ok(true)
}

/// Whether the table of migrations is there.
async fn has_begun(connection: &mut PgConnection) -> Result<bool> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(TABLE)
        .fetch_one(connection)
        .await
        .map_err(failed)
}

/// The missing migrations, in order.
pub(super) async fn missing(
    connection: &mut PgConnection,
    known: MigrationSet,
) -> Result<Vec<Migration>> {
    let mut known = all(known);
    if !has_begun(connection).await? {
        return Ok(known);
    }
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
    known.retain(|migration| applied.iter().all(|done| done.version != migration.version));
    Ok(known)
}

/// Checks that the role owns the schema; any other role gets an instruction.
async fn owns_schema(connection: &mut PgConnection, wanted: usize) -> Result<()> {
    let owns: Option<bool> = sqlx::query_scalar(
        "SELECT COALESCE( \
           (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass($1)), \
           has_schema_privilege(current_schema(), 'CREATE'))",
    )
    .bind(TABLE)
    .fetch_one(connection)
    .await
    .map_err(failed)?;
    if owns == Some(true) {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "{wanted} migrations are to be applied, and this role may not change the schema: run \
         `handoffd migrate` as the owner of the database"
    )))
}

/// Whether the server ended a statement in favour of another transaction, so that it may succeed when it is sent again
/// (PostgreSQL manual, appendix A, class 40). A row that breaks a constraint stays, so its statement fails again.
fn gave_way(err: &sqlx::Error) -> bool {
    let code = err.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["40001", "40P01"].contains(&code.as_ref()))
}

fn broken(err: MigrateError) -> StoreError {
    match err {
        MigrateError::Execute(err) => failed(err),
        // Migrations hold no data of users: the server's own words may be shown.
        MigrateError::ExecuteMigration(err, version) => match failed(err) {
            StoreError::Refused(why) | StoreError::Denied(why) => {
                StoreError::Refused(format!("migration {version} failed: {why}"))
            }
            other => other,
        },
        other => StoreError::Refused(other.to_string()),
    }
}
