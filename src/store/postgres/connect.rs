//! Connections, and what each of them is told before its first use.

use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};

use super::PostgresOptions;
use super::failure::failed;
use crate::store::{Result, StoreError};

/// Longest run of one statement; a statement that takes longer is stuck.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait of an open transaction for its client. The plan is pure and takes microseconds, so
/// only a broker that hangs or is cut off comes near; its locks are then freed.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads a URL; `what` is its name in an error.
pub(super) fn parse(url: &str, what: &str) -> Result<PgConnectOptions> {
    // The parser's own message may quote the URL, and with it the password.
    let connect = url
        .parse::<PgConnectOptions>()
        .map_err(|_| StoreError::Refused(format!("{what} is malformed")))?;
    Ok(connect.application_name("handoffd").log_statements(tracing::log::LevelFilter::Trace))
}

/// Connections to a database. `messages`: what the server tells of at least.
pub(super) async fn pool(
    connect: &PgConnectOptions,
    options: &PostgresOptions,
    messages: &'static str,
) -> Result<PgPool> {
    PgPoolOptions::new()
        .max_connections(options.max_connections)
        .acquire_timeout(options.acquire_timeout)
        // One cheap round trip; in turn the pool mends itself once the server is back.
        .test_before_acquire(true)
        .after_connect(move |connection, _| Box::pin(prepare(connection, messages)))
        .connect_with(connect.clone())
        .await
        .map_err(failed)
}

/// Settles what the server's configuration or the role's settings might have otherwise. SET and not
/// start-up options, which poolers refuse.
///
/// Every statement here goes by an index, from a few keys to their rows. Plans are cached from when
/// the tables were small or the outbox empty, and a hash over a whole table that was right then is
/// kept while the table grows: nested loops over indexes are never far from the best, and stay. So does
/// none of them read a table once and compare each of its rows with each key, which a planner without
/// statistics takes for cheap.
async fn prepare(connection: &mut PgConnection, messages: &str) -> sqlx::Result<()> {
    let sql = format!(
        "SET synchronous_commit = on; SET statement_timeout = {}; \
         SET idle_in_transaction_session_timeout = {}; SET client_min_messages = {messages}; \
         SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; \
         SET enable_mergejoin = off; SET enable_material = off",
        STATEMENT_TIMEOUT.as_millis(),
        IDLE_IN_TRANSACTION_TIMEOUT.as_millis(),
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
}
