//! Opens the connections to the database, and to that of the log.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgPool;

use super::PostgresStore;
use super::apart::{self, SeparateLog};
use super::connect::PoolHealth;
use super::probes;
use super::servers::{self, Follower, Servers};
use super::session::Sessions;
use crate::store::{Result, StoreError};

/// Share of the connections that the write path has: a quarter, and one at least.
const WRITING: u32 = 4;

#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// URL of a separate log database, if any.
    pub audit_url: Option<String>,
    /// Most connections to each database: a quarter of them for batches, the others for all else. Two at least.
    pub max_connections: u32,
    /// Longest wait for a free or a new connection.
    pub acquire_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { audit_url: None, max_connections: 10, acquire_timeout: Duration::from_secs(3) }
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("PostgresOptions")
            .field("max_connections", &self.max_connections)
            .field("acquire_timeout", &self.acquire_timeout)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects to `postgres://user:password@host:port/database`, or to the primary of
    /// `postgres://user:password@host:port,host:port/database`, and to the log's database where that is another.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where a URL is malformed, the server turns the user away, or the two
    /// databases do not belong together; [`StoreError::Unavailable`] where one cannot be reached within
    /// the acquire timeout.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let doubt = PoolHealth::none();
        let main = open(url, "the database URL", &options, "warning", &doubt).await?;
        let Some(url) = &options.audit_url else {
            apart::expect_here(&main.pool).await?;
            return Ok(Self::of(main, None, doubt));
        };
        // Once its part of a batch is prepared a connection is in no transaction, and would warn of
        // that each time it is given back.
        let log = open(url, "audit.database_url", &options, "error", &doubt).await?;
        let store = Self::of(main, Some(log), doubt);
        if let Some(apart) = &store.apart {
            apart.check().await?;
        }
        Ok(store)
    }

    fn of(main: Database, log: Option<Database>, doubt: PoolHealth) -> Self {
        let Database { servers, pool, sessions, follower } = main;
        let mut followers = Vec::from_iter(follower);
        let apart = log.map(|log| {
            followers.extend(log.follower);
            SeparateLog::new(pool.clone(), log.pool, log.sessions, log.servers)
        });
        Self {
            log: apart.as_ref().map_or_else(|| pool.clone(), |apart| apart.log.clone()),
            pool,
            sessions,
            servers,
            _followers: followers.into(),
            apart,
            doubt,
            statistics: Arc::default(),
        }
    }
}

/// The connections to one database.
struct Database {
    servers: Arc<Servers>,
    pool: PgPool,
    sessions: Arc<Sessions>,
    follower: Option<Follower>,
}

/// Opens the connections to one database; `what` names its URL in an error.
async fn open(
    url: &str,
    what: &str,
    options: &PostgresOptions,
    messages: &'static str,
    doubt: &PoolHealth,
) -> Result<Database> {
    let most = options.max_connections;
    if most < 2 {
        return Err(StoreError::Refused(
            "database.max_connections must be at least 2: one connection for batches, one for all else"
                .to_owned(),
        ));
    }
    let writing = (most / WRITING).max(1);
    let servers = Arc::new(Servers::named(url, what, options.acquire_timeout).await?);
    servers.find().await?;
    let (pool, sessions) = tokio::try_join!(
        servers::pool(&servers, options, most - writing, messages, doubt),
        Sessions::open(&servers, options, writing, messages, doubt),
    )?;
    expect_utf8(&pool, what).await?;
    let follower = Follower::start(&servers, &pool, doubt);
    Ok(Database { servers, pool, sessions, follower })
}

/// Rejects a database in another encoding: it could not hold every text.
async fn expect_utf8(pool: &PgPool, what: &str) -> Result<()> {
    let encoding = probes::encoding(pool).await?;
    if encoding == "UTF8" {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "the database of {what} has the encoding {encoding}, which cannot hold every text: make one with \
         CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0 LOCALE 'C.UTF-8', and move the data with pg_dump"
    )))
}
