//! The SQLite side: one file, one writer, one serving broker.
//!
//! Everything that writes goes through one connection under a lock, so that a batch waits for the
//! batch before it and never for SQLite's own locks; reads have a small pool of their own and,
//! thanks to the write-ahead log, wait for nobody.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::sqlite::SqlitePool;
use tokio::sync::Mutex;

use crate::domain::handoff::{DeliveryMode, Handoff};
use crate::domain::ids::{AgentId, ContentId, Micros, TaskId, TenantId};
use crate::domain::task::Task;
use crate::evidence::record::{LogHead, Sealed};
use crate::store::{
    AgentRow, CheckpointRow, Claim, Cursor, DeadLetterRow, Depths, HandoffFilter, HandoffKey,
    KeyRow, Needs, Receiver, Result, RunKey, State, Store, StoredRecord, TaskFilter, TaskKey,
    Writes,
};

mod append;
mod batch;
mod claims;
mod connection;
mod log;
mod migrations;
mod reads;
mod transact;
mod writes;

#[cfg(test)]
mod rows_tests;
#[cfg(test)]
mod tests;

pub use connection::SqliteOptions;

/// Rows to values.
mod rows {
    crate::store::rows::decoders!(sqlx::sqlite::SqliteRow);
}

/// A store in one SQLite file.
pub struct SqliteStore {
    writer: Mutex<connection::Writer>,
    readers: SqlitePool,
    /// Held while this store serves; see [`SqliteOptions::exclusive`].
    lock: std::sync::Mutex<Option<std::fs::File>>,
}

impl SqliteStore {
    /// Opens the file that `url` names: `sqlite:path` or `sqlite://path`, taken literally.
    ///
    /// # Errors
    /// `Refused` when the URL names no file (an in-memory database would be lost, and is not
    /// supported), or when another broker serves the file; `Unavailable` when the file cannot be
    /// opened.
    pub async fn open(url: &str, options: SqliteOptions) -> Result<Self> {
        connection::open(url, &options).await
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn transact(
        &self,
        needs: &Needs,
        plan: &mut (dyn FnMut(State) -> Writes + Send),
    ) -> Result<Vec<Sealed>> {
        let mut tx = self.begin().await?;
        match transact::run(&mut tx.conn, needs, plan).await {
            Ok(Some(sealed)) => tx.settle(Ok(sealed)).await,
            Ok(None) => {
                tx.abandon().await;
                Ok(Vec::new())
            }
            Err(err) => tx.settle(Err(err)).await,
        }
    }

    async fn migrate(&self) -> Result<usize> {
        let mut tx = self.begin().await?;
        let outcome = migrations::run(&mut tx.conn).await;
        tx.settle(outcome).await
    }

    async fn ping(&self) -> Result<()> {
        reads::ping(&self.readers).await
    }

    async fn close(&self) {
        self.shut().await;
    }

    async fn ensure_tenant(&self, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
        let mut tx = self.begin().await?;
        let outcome = log::ensure_tenant(&mut tx.conn, tenant, log_id, at).await;
        tx.settle(outcome).await
    }

    async fn list_tenants(&self) -> Result<Vec<TenantId>> {
        reads::list_tenants(&self.readers).await
    }

    async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        let mut tx = self.begin().await?;
        let outcome = reads::settle_fact(&mut tx.conn, name, value).await;
        tx.settle(outcome).await
    }

    async fn find_key(&self, hash: &[u8]) -> Result<Option<KeyRow>> {
        reads::find_key(&self.readers, hash).await
    }

    async fn list_keys(&self, tenant: &TenantId) -> Result<Vec<KeyRow>> {
        reads::list_keys(&self.readers, tenant).await
    }

    async fn list_agents(&self, tenant: &TenantId) -> Result<Vec<AgentRow>> {
        reads::list_agents(&self.readers, tenant).await
    }

    async fn count_open(&self, tenant: &TenantId) -> Result<HashMap<AgentId, i64>> {
        reads::count_open(&self.readers, tenant).await
    }

    async fn find_handoff(&self, key: &HandoffKey) -> Result<Option<Handoff>> {
        reads::find_handoff(&self.readers, key).await
    }

    async fn list_handoffs(
        &self,
        tenant: &TenantId,
        filter: &HandoffFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>> {
        reads::list_handoffs(&self.readers, tenant, filter, after, limit).await
    }

    async fn find_task(&self, key: &TaskKey) -> Result<Option<Task>> {
        reads::find_task(&self.readers, key).await
    }

    async fn list_tasks(
        &self,
        tenant: &TenantId,
        filter: &TaskFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<Task>> {
        reads::list_tasks(&self.readers, tenant, filter, after, limit).await
    }

    async fn find_content(&self, tenant: &TenantId, id: ContentId) -> Result<Option<Vec<u8>>> {
        log::find_content(&self.readers, tenant, id).await
    }

    async fn find_checkpoint(
        &self,
        run: &RunKey,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>> {
        reads::find_checkpoint(&self.readers, run, seq).await
    }

    async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<Sealed>> {
        log::find_receipt(&self.readers, key).await
    }

    async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        log::list_records(&self.readers, tenant, task, from, limit, contents).await
    }

    async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        log::find_head(&self.readers, tenant).await
    }

    async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        log::list_unrecorded(&self.readers, tenant).await
    }

    async fn list_dead_letters(
        &self,
        tenant: &TenantId,
        status: Option<&str>,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<DeadLetterRow>> {
        reads::list_dead_letters(&self.readers, tenant, status, after, limit).await
    }

    async fn find_dead_letter(&self, key: &HandoffKey) -> Result<Option<DeadLetterRow>> {
        reads::find_dead_letter(&self.readers, key).await
    }

    async fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Result<Vec<Receiver>> {
        claims::list_due_receivers(&self.readers, mode, now, limit).await
    }

    async fn claim(
        &self,
        receiver: &Receiver,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<Claim>> {
        let mut tx = self.begin().await?;
        let outcome = claims::claim(&mut tx.conn, receiver, broker, now, until, limit).await;
        tx.settle(outcome).await
    }

    async fn beat(&self, broker: &str, now: Micros) -> Result<()> {
        let mut tx = self.begin().await?;
        let outcome = claims::beat(&mut tx.conn, broker, now).await;
        tx.settle(outcome).await
    }

    async fn release_dead(&self, cutoff: Micros, now: Micros) -> Result<u64> {
        let mut tx = self.begin().await?;
        let outcome = claims::release_dead(&mut tx.conn, cutoff, now).await;
        tx.settle(outcome).await
    }

    async fn release_own(&self, broker: &str, now: Micros) -> Result<u64> {
        let mut tx = self.begin().await?;
        let outcome = claims::release_own(&mut tx.conn, broker, now).await;
        tx.settle(outcome).await
    }

    async fn list_overdue(&self, now: Micros, limit: i64) -> Result<Vec<Handoff>> {
        reads::list_overdue(&self.readers, now, limit).await
    }

    async fn depths(&self) -> Result<Depths> {
        reads::depths(&self.readers).await
    }
}
