//! The servers that a database URL names. If it names several, the broker looks for the primary when it opens the
//! store, and whenever the primary has changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};
use tokio::task::AbortHandle;

use super::PostgresOptions;
use super::connect::{self, PoolHealth};
use super::failure::failed;
use super::probes::is_primary;
use crate::store::{Result, StoreError};

/// Pause between two looks at the primary.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for one server to say whether it is the primary.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Values of `target_session_attrs` (PostgreSQL manual, 34.1.2) that mean what a broker needs.
const PRIMARY: [&str; 2] = ["read-write", "primary"];

/// The servers of one database.
#[derive(Debug)]
pub(super) struct Servers {
    all: Vec<PgConnectOptions>,
    /// Place of the server in use.
    current: AtomicUsize,
    /// Whether a server is asked if it is the primary: where there are several, or the URL says so.
    asked: bool,
    /// Longest wait for the primary.
    patience: Duration,
}

impl Servers {
    /// Reads `postgres://user:password@host:port,host:port/database`; `what` names the URL in an error.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the URL is malformed.
    pub(super) async fn named(url: &str, what: &str, patience: Duration) -> Result<Self> {
        let (urls, wants_primary) =
            split(url).map_err(|why| StoreError::Refused(format!("{what} {why}")))?;
        let asked = wants_primary || urls.len() > 1;
        let all = join_all(urls.iter().map(|url| connect::settle(url, what, patience))).await;
        let all = all.into_iter().collect::<Result<_>>()?;
        Ok(Self { all, current: AtomicUsize::new(0), asked, patience })
    }

    pub(super) fn all(&self) -> &[PgConnectOptions] {
        &self.all
    }

    /// Whether a server is asked if it is the primary.
    pub(super) fn are_asked(&self) -> bool {
        self.asked
    }

    /// The server in use.
    pub(super) fn current(&self) -> &PgConnectOptions {
        &self.all[self.place()]
    }

    /// Place of the server in use.
    pub(super) fn place(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Finds the primary, the server in use first, and takes it into use; returns its place. If only one server is
    /// named, it is that one, whatever its role.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] where none is found in time, with what each of them said.
    pub(super) async fn find(&self) -> Result<usize> {
        if !self.asked {
            return Ok(0);
        }
        let (place, connection) = self.reach_primary().await?;
        // It has served its purpose.
        drop(connection.close().await);
        Ok(place)
    }

    /// A connection to the primary, which is taken into use, and its place.
    async fn reach_primary(&self) -> Result<(usize, PgConnection)> {
        let (count, first) = (self.all.len(), self.place());
        let share = self.patience / u32::try_from(count).unwrap_or(u32::MAX);
        let mut said = Vec::new();
        for place in (first..count).chain(0..first) {
            let reached = tokio::time::timeout(share, reach(&self.all[place])).await;
            let why = match reached {
                Ok(Ok(Some(connection))) => {
                    if self.current.swap(place, Ordering::Relaxed) != place {
                        tracing::warn!(
                            server = place + 1,
                            of = count,
                            "the primary is another server"
                        );
                    }
                    return Ok((place, connection));
                }
                Ok(Ok(None)) => "a standby".to_owned(),
                // The whole answer says that the store is unavailable.
                Ok(Err(StoreError::Unavailable(why))) => why,
                Ok(Err(err)) => err.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            said.push(format!("server {}: {why}", place + 1));
        }
        let said = said.join("; ");
        Err(StoreError::Unavailable(format!("none of {count} servers is the primary ({said})")))
    }
}

/// A connection to a server, where it is the primary.
async fn reach(server: &PgConnectOptions) -> Result<Option<PgConnection>> {
    let mut connection = server.connect().await.map_err(failed)?;
    Ok(is_primary(&mut connection).await.map_err(failed)?.then_some(connection))
}

/// Opens a pool of at most `most` connections. `messages` is the lowest level of server messages.
pub(super) async fn pool(
    servers: &Servers,
    options: &PostgresOptions,
    most: u32,
    messages: &'static str,
    doubt: &PoolHealth,
) -> Result<PgPool> {
    let doubt = doubt.clone();
    let asked = servers.are_asked();
    // Between two databases, what ends a batch that one of them lost must not fail of a stale connection.
    let tried_after =
        if options.audit_url.is_some() { Duration::ZERO } else { connect::TRIED_AFTER };
    PgPoolOptions::new()
        .max_connections(most)
        .acquire_timeout(options.acquire_timeout)
        // A connection that was used a moment ago need not be tried again: that is a round trip for each transaction.
        .test_before_acquire(false)
        .before_acquire(move |connection, used| {
            let tried = used.idle_for >= tried_after || doubt.covers(used.idle_for);
            Box::pin(async move {
                if tried {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .after_connect(move |connection, _| {
            Box::pin(async move {
                // The data of a standby may be old.
                if asked && !is_primary(connection).await? {
                    return Err(sqlx::Error::Protocol("the server is a standby".to_owned()));
                }
                prepare(connection, messages).await
            })
        })
        .connect_with(servers.current().clone())
        .await
        .map_err(failed)
}

async fn prepare(connection: &mut PgConnection, messages: &str) -> sqlx::Result<()> {
    let sql = sqlx::AssertSqlSafe(connect::settings(messages));
    sqlx::raw_sql(sql).execute(connection).await.map(|_| ())
}

/// Leads a pool to the primary after each failover, until it is dropped.
#[derive(Debug)]
pub(super) struct Follower(AbortHandle);

impl Follower {
    /// Follows the primary with `pool`; `None` where no server is asked.
    pub(super) fn start(
        servers: &Arc<Servers>,
        pool: &PgPool,
        health: &PoolHealth,
    ) -> Option<Self> {
        servers.asked.then(|| {
            let following = follow(Arc::clone(servers), pool.clone(), health.clone());
            Self(tokio::spawn(following).abort_handle())
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a connection to the primary, and looks for another primary when it breaks.
async fn follow(servers: Arc<Servers>, pool: PgPool, health: PoolHealth) {
    let mut kept: Option<PgConnection> = None;
    let mut led = servers.place();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let stands = match &mut kept {
            Some(connection) => {
                let looked = tokio::time::timeout(LOOK_TIMEOUT, is_primary(connection)).await;
                matches!(looked, Ok(Ok(true)))
            }
            None => false,
        };
        // The write path may have found another one meanwhile.
        if stands && servers.place() == led {
            continue;
        }
        kept = None;
        let Ok((place, connection)) = servers.reach_primary().await else { continue };
        kept = Some(connection);
        if place != led {
            led = place;
            pool.set_connect_options(servers.all[place].clone());
            // Open connections lead to the previous server.
            health.raise();
        }
    }
}

/// The URL of each server, and whether the primary is asked for by name. An error is the end of a sentence.
fn split(url: &str) -> std::result::Result<(Vec<String>, bool), String> {
    let (scheme, rest) = url.split_once("://").ok_or("is malformed")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let (path, wants_primary) = take_target(path)?;
    let several = hosts.contains(',');
    if several && hosts.split(',').any(str::is_empty) {
        return Err("names a server without a host".to_owned());
    }
    let each = |host| format!("{scheme}://{user}{host}{path}");
    Ok((hosts.split(',').map(each).collect(), wants_primary))
}

/// Takes `target_session_attrs` out of the text after the hosts.
fn take_target(path: &str) -> std::result::Result<(String, bool), String> {
    let Some((path, query)) = path.split_once('?') else { return Ok((path.to_owned(), false)) };
    let mut wants_primary = false;
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("target_session_attrs", value)) if PRIMARY.contains(&value) => {
                wants_primary = true;
            }
            Some(("target_session_attrs", _)) => {
                return Err("has a target_session_attrs that is neither read-write nor primary: a broker writes".to_owned());
            }
            Some(("host" | "hostaddr" | "port", value))
                if value.contains(',') || value.contains("%2C") =>
            {
                return Err(
                    "names several servers in its query: they stand before the path, as in \
                     postgres://user@first:5432,second:5432/database"
                        .to_owned(),
                );
            }
            _ => kept.push(pair),
        }
    }
    let query = kept.join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    Ok((format!("{path}{mark}{query}"), wants_primary))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(url: &str) -> (Vec<String>, bool) {
        split(url).expect("a URL")
    }

    #[test]
    fn each_server_has_the_user_the_database_and_the_settings_of_the_url() {
        let (each, primary) = urls("postgres://u:p,w%40@a:1,b,[::1]:3/ledger?sslmode=require");
        assert_eq!(
            each,
            [
                "postgres://u:p,w%40@a:1/ledger?sslmode=require",
                "postgres://u:p,w%40@b/ledger?sslmode=require",
                "postgres://u:p,w%40@[::1]:3/ledger?sslmode=require"
            ]
        );
        assert!(!primary);
    }

    #[test]
    fn a_url_of_one_server_stays_as_it_is() {
        for url in [
            "postgres://u@h/d",
            "postgresql:///d?host=/run/postgresql&user=me",
            "postgres://h?options=-c%20a%3Db,c",
        ] {
            assert_eq!(urls(url), (vec![url.to_owned()], false));
        }
    }

    #[test]
    fn the_primary_may_be_asked_for_by_name() {
        for value in PRIMARY {
            let url = format!("postgres://a,b/d?target_session_attrs={value}");
            assert_eq!(
                urls(&url),
                (vec!["postgres://a/d".to_owned(), "postgres://b/d".to_owned()], true)
            );
            let url = format!("postgres://a/d?sslmode=disable&target_session_attrs={value}");
            assert_eq!(urls(&url), (vec!["postgres://a/d?sslmode=disable".to_owned()], true));
        }
    }

    #[test]
    fn what_a_broker_cannot_use_is_refused_without_a_word_of_the_url() {
        for url in [
            "postgres://secret@a,/d",
            "postgres://secret@,b/d",
            "postgres://secret@a,,b/d",
            "postgres://secret@a,b/d?target_session_attrs=any",
            "postgres://secret@a/d?target_session_attrs=prefer-standby",
            "postgres:///d?user=secret&host=a,b",
            "postgres:///d?user=secret&host=a&port=1%2C2",
            "postgres:secret",
        ] {
            let why = split(url).expect_err(url);
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[tokio::test]
    async fn none_of_several_servers_is_an_error_that_passes() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = closed.local_addr().expect("its address").port();
        drop(closed);
        let url = format!("postgres://u@127.0.0.1:{port},localhost:{port}/d");
        let servers = Servers::named(&url, "the URL", Duration::from_secs(1)).await.expect("a URL");
        let found = servers.find().await;
        assert!(
            matches!(&found, Err(StoreError::Unavailable(why)) if why.contains("server 2: ")),
            "{found:?}"
        );
    }
}
