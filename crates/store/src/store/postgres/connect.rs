//! Connections and their session settings.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::time::Instant;

use crate::store::{Result, StoreError};

/// Statement timeout of the session; a statement that takes longer is stuck.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait of an open transaction for its client. The plan is pure and takes microseconds, so
/// only a broker that hangs or is cut off comes near; its locks are then freed.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be unused before it is tried: the pool mends itself once the server is back.
pub(super) const TRIED_AFTER: Duration = Duration::from_secs(1);

/// Parses a URL; `what` names it in an error.
pub(super) fn parse(url: &str, what: &str) -> Result<PgConnectOptions> {
    // The parser's own message may quote the URL, and with it the password.
    let connect = url
        .parse::<PgConnectOptions>()
        .map_err(|_| StoreError::Refused(format!("{what} is malformed")))?;
    Ok(connect.application_name("handoffd").log_statements(tracing::log::LevelFilter::Trace))
}

/// As [`parse`], and in plain text to a server on this machine that takes it, if the URL leaves that open
/// (`sslmode=prefer`, which is the default): no one can listen in between, and a batch need not be cut into
/// TLS records. A server that insists on TLS gets it.
pub(super) async fn settle(url: &str, what: &str, patience: Duration) -> Result<PgConnectOptions> {
    let connect = parse(url, what)?;
    let local = connect.get_host() == "localhost"
        || connect.get_host().parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    if !local || connect.get_socket().is_some() || !is_open(connect.get_ssl_mode()) {
        return Ok(connect);
    }
    let plain = connect.clone().ssl_mode(PgSslMode::Disable);
    match tokio::time::timeout(patience, plain.connect()).await {
        Ok(Ok(connection)) => {
            // It has served its purpose.
            let _ = connection.close().await;
            Ok(plain)
        }
        // invalid_authorization_specification: also if the server has no line for connections without TLS.
        Ok(Err(sqlx::Error::Database(err))) if err.code().as_deref() == Some("28000") => {
            Ok(connect)
        }
        // Whatever else is wrong is told by who connects in earnest.
        _ => Ok(plain),
    }
}

fn is_open(mode: PgSslMode) -> bool {
    matches!(mode, PgSslMode::Prefer | PgSslMode::Allow)
}

/// The time at which a connection was last found broken: connections unused since may be broken too.
#[derive(Debug, Clone)]
pub(super) struct PoolHealth(Arc<Mutex<Instant>>);

impl PoolHealth {
    pub(super) fn none() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Records that a connection was found broken.
    pub(super) fn raise(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(super) fn covers(&self, idle: Duration) -> bool {
        idle >= self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}

/// Settles what the server's configuration or the role's settings might have otherwise. SET and not
/// start-up options, which poolers refuse. `messages` is the lowest level of server messages.
///
/// Every statement here goes by an index, from a few keys to their rows. Plans are cached from when
/// the tables were small or the outbox empty, and a hash over a whole table that was right then is
/// kept while the table grows: nested loops over indexes are never far from the best, and stay. So does
/// none of them read a table once and compare each of its rows with each key, which a planner without
/// statistics takes for cheap.
pub(super) fn settings(messages: &str) -> String {
    format!(
        "SET synchronous_commit = on; SET statement_timeout = {}; \
         SET idle_in_transaction_session_timeout = {}; SET client_min_messages = {messages}; \
         SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; \
         SET enable_mergejoin = off; SET enable_material = off",
        STATEMENT_TIMEOUT.as_millis(),
        IDLE_IN_TRANSACTION_TIMEOUT.as_millis(),
    )
}
