//! Questions to the server itself, which no table answers.

use sqlx::{PgConnection, PgPool};

use super::failure::failed;
use crate::store::Result;

/// Whether the server answers.
pub(super) async fn ping(pool: &PgPool) -> Result<()> {
    sqlx::query("SELECT 1").execute(pool).await.map(drop).map_err(failed)
}

/// Whether the server takes writes.
pub(super) async fn is_primary(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT NOT pg_is_in_recovery()").fetch_one(connection).await
}

/// The encoding of a database's texts.
pub(super) async fn encoding(pool: &PgPool) -> Result<String> {
    let encoding = sqlx::query_scalar("SELECT current_setting('server_encoding')");
    encoding.fetch_one(pool).await.map_err(failed)
}
