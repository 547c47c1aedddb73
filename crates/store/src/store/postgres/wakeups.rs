//! LISTEN and NOTIFY: one channel a database, no payload. Only a hint that looking is worth while.

use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};

use super::failure::failed;
use crate::store::{Result, Wakeups};

const CHANNEL: &str = "handoffd";

/// Not within the transaction that committed what it tells of: a commit that notifies takes a lock that
/// is one for the whole server, and would queue up all commits behind it. Nothing waits for this one to
/// reach the disk.
const NOTIFY: &str = "BEGIN; SET LOCAL synchronous_commit = off; NOTIFY handoffd; COMMIT";

/// See [`crate::store::Store::notify`].
pub(super) async fn notify(pool: &PgPool) -> Result<()> {
    sqlx::raw_sql(NOTIFY).execute(pool).await.map_err(failed).map(|_| ())
}

struct PostgresWakeups {
    listener: PgListener,
}

/// See [`crate::store::Store::listen`]. On a connection of its own: it is held for good, and must not be
/// missed by the others.
pub(super) async fn listen(connect: PgConnectOptions) -> Result<Box<dyn Wakeups>> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_with(connect)
        .await
        .map_err(failed)?;
    let mut listener = PgListener::connect_with(&pool).await.map_err(failed)?;
    listener.listen(CHANNEL).await.map_err(failed)?;
    Ok(Box::new(PostgresWakeups { listener }))
}

#[async_trait::async_trait]
impl Wakeups for PostgresWakeups {
    async fn next(&mut self) -> Result<()> {
        // Nothing within: the connection was lost and will be made anew, and something may have been
        // said meanwhile.
        let _ = self.listener.try_recv().await.map_err(failed)?;
        while self.listener.next_buffered().is_some() {}
        Ok(())
    }
}
