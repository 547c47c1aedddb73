//! The Postgres side of the store: several brokers may share one database.
//!
//! A batch is one READ COMMITTED transaction. What it needs is locked first, in key order, so that
//! batches cannot deadlock; the log's heads are locked last, so that they are held for the shortest
//! time. Ids are compared bytewise (`COLLATE "C"`), so key order is the same here and in Rust.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use crate::domain::handoff::{DeliveryMode, Handoff};
use crate::domain::ids::{AgentId, ContentId, Micros, TaskId, TenantId};
use crate::domain::task::Task;
use crate::evidence::record::{LogHead, Sealed};
use crate::store::{
    AgentRow, CheckpointRow, Claim, Cursor, DeadLetterRow, Depths, HandoffFilter, HandoffKey,
    KeyRow, Needs, Receiver, Result, RunKey, State, Store, StoreError, StoredRecord, TaskFilter,
    TaskKey, Writes,
};

mod batch;
mod claims;
mod failure;
mod log;
mod migrations;
mod reads;
mod rows {
    crate::store::rows::decoders!(sqlx::postgres::PgRow);
}
mod transact;
mod writes;

use failure::failed;

/// Longest run of one statement; a statement that takes longer is stuck.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait of an open transaction for its client. The plan is pure and takes microseconds, so
/// only a broker that hangs or is cut off comes near; its locks are then freed.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest batch as seen from here: a server that is cut off without a word never answers, and the
/// operating system would wait for it for a quarter of an hour.
const BATCH_TIMEOUT: Duration = Duration::from_secs(40);

/// How a [`PostgresStore`] uses its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Connections at most.
    pub max_connections: u32,
    /// How long to wait for a free or a new connection.
    pub acquire_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { max_connections: 10, acquire_timeout: Duration::from_secs(3) }
    }
}

/// Everything that is kept, in Postgres.
#[derive(Debug, Clone)]
pub struct PostgresStore {
    pool: PgPool,
    connect: PgConnectOptions,
}

impl PostgresStore {
    /// Connects to `postgres://user:password@host:port/database`.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the URL is malformed or the server turns the user away,
    /// [`StoreError::Unavailable`] where it cannot be reached within the acquire timeout.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        // The parser's own message may quote the URL, and with it the password.
        let connect = url
            .parse::<PgConnectOptions>()
            .map_err(|_| StoreError::Refused("the database URL is malformed".to_owned()))?
            .application_name("handoffd")
            .log_statements(tracing::log::LevelFilter::Trace);
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire_timeout)
            // One cheap round trip; in turn the pool mends itself once the server is back.
            .test_before_acquire(true)
            .after_connect(|connection, _| Box::pin(prepare(connection)))
            .connect_with(connect.clone())
            .await
            .map_err(failed)?;
        Ok(Self { pool, connect })
    }
}

/// Settles what the server's configuration or the role's settings might have otherwise. SET and not
/// start-up options, which poolers refuse.
///
/// Every statement here goes by an index, from a few keys to their rows. Plans are cached from when
/// the tables were small or the outbox empty, and a hash over a whole table that was right then is
/// kept while the table grows: nested loops over indexes are never far from the best, and stay.
async fn prepare(connection: &mut PgConnection) -> sqlx::Result<()> {
    let sql = format!(
        "SET synchronous_commit = on; SET statement_timeout = {}; \
         SET idle_in_transaction_session_timeout = {}; SET client_min_messages = warning; \
         SET jit = off; SET enable_seqscan = off; SET enable_hashjoin = off; \
         SET enable_mergejoin = off",
        STATEMENT_TIMEOUT.as_millis(),
        IDLE_IN_TRANSACTION_TIMEOUT.as_millis(),
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(|_| ())
}

#[async_trait]
impl Store for PostgresStore {
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(State) -> Writes + Send),
    ) -> Result<Vec<Sealed>> {
        tokio::time::timeout(BATCH_TIMEOUT, transact::transact(&self.pool, needs, plan))
            .await
            .unwrap_or_else(|_| {
                Err(StoreError::Unavailable("the server does not answer".to_owned()))
            })
    }

    async fn migrate(&self) -> Result<usize> {
        // A connection of its own: the wait for another broker's migration may exceed the statement
        // timeout, and a failure on the way must not leave the lock with a pooled connection.
        let mut connection = self.connect.connect().await.map_err(failed)?;
        let applied = migrations::apply(&mut connection).await;
        if let Err(err) = connection.close().await {
            tracing::debug!(%err, "closing the migration's connection failed");
        }
        applied
    }

    async fn ping(&self) -> Result<()> {
        sqlx::query("SELECT 1").execute(&self.pool).await.map_err(failed).map(|_| ())
    }

    async fn close(&self) {
        self.pool.close().await;
    }

    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
        log::ensure_tenant(&self.pool, tenant, log_id, at).await
    }

    async fn list_tenants(&self) -> Result<Vec<TenantId>> {
        log::list_tenants(&self.pool).await
    }

    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        reads::settle_fact(&self.pool, name, value).await
    }

    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        reads::find_key(&self.pool, hash).await
    }

    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>> {
        reads::list_keys(&self.pool, tenant).await
    }

    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>> {
        reads::list_agents(&self.pool, tenant).await
    }

    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
        reads::count_open(&self.pool, tenant).await
    }

    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>> {
        reads::find_handoff(&self.pool, key).await
    }

    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        reads::list_handoffs(&self.pool, tenant, filter, after, limit).await
    }

    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>> {
        reads::find_task(&self.pool, key).await
    }

    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        reads::list_tasks(&self.pool, tenant, filter, after, limit).await
    }

    async fn find_content(&self, tenant: &TenantId, id: ContentId) -> Result<Option<Vec<u8>>> {
        reads::find_content(&self.pool, tenant, id).await
    }

    async fn find_checkpoint(
        &self,
        run: &RunKey,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>> {
        reads::find_checkpoint(&self.pool, run, seq).await
    }

    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<Sealed>> {
        log::find_receipt(&self.pool, key).await
    }

    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        log::list_records(&self.pool, tenant, task, from, limit, contents).await
    }

    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        log::find_head(&self.pool, tenant).await
    }

    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        log::list_unrecorded(&self.pool, tenant).await
    }

    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        status: Option<&str>,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        reads::list_dead_letters(&self.pool, tenant, status, after, limit).await
    }

    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>> {
        reads::find_dead_letter(&self.pool, key).await
    }

    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Receiver>> {
        claims::list_due_receivers(&self.pool, mode, now, limit).await
    }

    async fn claim(
        &self,
        receiver: &Receiver,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<Claim>> {
        claims::claim(&self.pool, receiver, broker, now, until, limit).await
    }

    async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        claims::beat(&self.pool, broker, now).await
    }

    async fn release_dead(&self, cutoff: Micros, now: Micros) -> Result<u64> {
        claims::release_dead(&self.pool, cutoff, now).await
    }

    async fn release_own(&self, broker: &str, now: Micros) -> Result<u64> {
        claims::release_own(&self.pool, broker, now).await
    }

    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        claims::list_overdue(&self.pool, now, limit).await
    }

    async fn depths(&self) -> Result<Depths> {
        claims::depths(&self.pool).await
    }
}
