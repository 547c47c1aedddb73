//! The database itself: migrations, the serving role, connections, facts, upkeep.

use sqlx::{ConnectOptions, Connection};

use super::failure::failed;
use super::servers::Servers;
use super::{
    PING_TIMEOUT, PostgresStore, answered, claims, migrations, probes, reads, roles, seals, within,
};
use crate::store::migrations::{MigrationSet, POSTGRES, POSTGRES_AUDIT};
use crate::store::{Depths, Result, SchemaState, SealChange, StoreError};
use handoffd_domain::ids::Micros;

/// Brings one database up to date. On a connection of its own: the wait for another broker's migration may
/// exceed the statement timeout.
async fn migrate(servers: &Servers, known: MigrationSet) -> Result<usize> {
    let mut connection = servers.current().connect().await.map_err(failed)?;
    let applied = migrations::apply(&mut connection, known).await;
    if let Err(err) = connection.close().await {
        tracing::debug!(%err, "closing the migration's connection failed");
    }
    applied
}

impl PostgresStore {
    pub(in crate::store) async fn inspect(&self) -> Result<SchemaState> {
        answered(async {
            let mut state = SchemaState::default();
            let mut connection = self.pool.acquire().await.map_err(failed)?;
            state.pending = migrations::missing(&mut connection, POSTGRES).await?.len();
            drop(connection);
            let mut connection = self.log.acquire().await.map_err(failed)?;
            if self.apart.is_some() {
                state.pending += migrations::missing(&mut connection, POSTGRES_AUDIT).await?.len();
            }
            if state.pending == 0 {
                state.unguarded = roles::unguarded(&mut connection).await?;
            }
            Ok(state)
        })
        .await
    }

    pub(in crate::store) async fn migrate(&self) -> Result<usize> {
        let mut applied = migrate(&self.servers, POSTGRES).await?;
        if let Some(apart) = &self.apart {
            applied += migrate(&apart.servers, POSTGRES_AUDIT).await?;
            apart.pair().await?;
        }
        Ok(applied)
    }

    pub(in crate::store) async fn grant_serving(&self, role: &str) -> Result<()> {
        let mut connection = self.pool.acquire().await.map_err(failed)?;
        if self.apart.is_none() {
            return roles::grant(&mut connection, role, &[roles::OPERATIONS, roles::LOG]).await;
        }
        roles::grant(&mut connection, role, &[roles::OPERATIONS]).await?;
        let mut connection = self.log.acquire().await.map_err(failed)?;
        roles::grant(&mut connection, role, &[roles::LOG, roles::AUDIT]).await
    }

    pub(in crate::store) fn connections(&self) -> (u32, u32) {
        let idle = u32::try_from(self.pool.num_idle()).unwrap_or(u32::MAX);
        let (writing, unused) = self.sessions.counts();
        (self.pool.size().saturating_sub(idle) + writing, idle + unused)
    }

    pub(in crate::store) async fn ping(&self) -> Result<()> {
        let pinged = within(PING_TIMEOUT, async {
            probes::ping(&self.pool).await?;
            if self.apart.is_some() {
                probes::ping(&self.log).await?;
            }
            Ok(())
        })
        .await;
        if pinged.is_err() {
            self.doubt.raise();
        }
        pinged
    }

    pub(in crate::store) async fn probe_write(&self, broker: &str, now: Micros) -> Result<()> {
        let probed = within(PING_TIMEOUT, claims::probe_write(&self.pool, &self.log, broker, now));
        let probed = probed.await;
        if matches!(probed, Err(StoreError::Unavailable(_))) {
            self.doubt.raise();
        }
        probed
    }

    pub(in crate::store) async fn close(&self) {
        self.sessions.close().await;
        self.log_sessions().close().await;
        self.pool.close().await;
        self.log.close().await;
    }

    pub(in crate::store) async fn settle_fact(&self, name: &str, value: &[u8]) -> Result<Vec<u8>> {
        answered(reads::settle_fact(&self.pool, name, value)).await
    }

    pub(in crate::store) async fn change_seals(
        &self,
        change: SealChange<'_>,
        facts: &[(&str, Vec<u8>)],
    ) -> Result<u64> {
        answered(seals::change(&self.pool, change, facts)).await
    }

    pub(in crate::store) async fn depths(&self, idle_since: Micros) -> Result<Depths> {
        answered(claims::depths(&self.pool, &self.log, idle_since)).await
    }

    pub(in crate::store) async fn tend(&self) -> Result<bool> {
        answered(self.statistics.tend(&self.pool)).await?;
        Ok(true)
    }
}
