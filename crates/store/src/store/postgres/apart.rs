//! A separate database for the log (`audit.database_url`), committed with the operations in two phases.
//!
//! A batch writes its records to the log database and everything else to the operations. The log's part is prepared;
//! then the operations commit, with a row that names the prepared part, and that commit is the decision; then the
//! log's part is committed. Callers are answered only after that. Any broker resolves a part that another left
//! prepared: with the row, it is committed; without, the row is inserted first, as given up, so that the first
//! broker's own insert can no longer succeed ([why so](../../../docs/decisions/0009-a-separate-audit-database.md)).
//!
//! The row is written before the log's part is prepared. So a broker that finds the part prepared and inserts its own
//! row waits at the key until the first broker's transaction has ended: a slow broker is waited for and never
//! overtaken, and no clock is involved.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::call::Call;
use super::failure::failed;
use super::reads::settle_fact;
use super::servers::Servers;
use super::session::{Sessions, Tx};
use super::statistics::PlanCaching;
use crate::clock::random_id;
use crate::fault::{self, Step};
use crate::store::{Result, StoreError};
use handoffd_domain::ids::TenantId;

/// Name of the fact by which an operational database identifies its log database.
const FACT: &str = "audit-database";

/// Prefix of all prepared transactions of all installations.
const NAME: &str = "handoffd";

/// Most decisions deleted at once.
const TIDIED: i64 = 10_000;

/// Checks of a prepared part that another broker is resolving, and the pause between them.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// `undefined_object`: no prepared transaction has that name (any more).
const NOT_PREPARED: &str = "42704";

/// `object_not_in_prerequisite_state`: another session is resolving it.
const BUSY: &str = "55000";

/// The two databases of an installation with a separate log.
#[derive(Debug, Clone)]
pub(super) struct SeparateLog {
    /// Pool of the operational database.
    main: PgPool,
    /// Pool of the log database.
    pub(super) log: PgPool,
    /// The write path's connections to the log database.
    pub(super) sessions: Arc<Sessions>,
    /// Servers of the log database.
    pub(super) servers: Arc<Servers>,
    installation: Arc<OnceCell<Uuid>>,
}

impl SeparateLog {
    pub(super) fn new(
        main: PgPool,
        log: PgPool,
        sessions: Arc<Sessions>,
        servers: Arc<Servers>,
    ) -> Self {
        Self { main, log, sessions, servers, installation: Arc::default() }
    }

    /// Rejects a server without prepared transactions, a database without a log, and one of another installation.
    pub(super) async fn check(&self) -> Result<()> {
        let prepared: i32 =
            sqlx::query_scalar("SELECT current_setting('max_prepared_transactions')::integer")
                .fetch_one(&self.log)
                .await
                .map_err(failed)?;
        if prepared == 0 {
            return Err(StoreError::Refused(
                "the server of audit.database_url has max_prepared_transactions = 0: set it to at least \
                 ledger.workers for each broker (64 does no harm), and restart that server"
                    .to_owned(),
            ));
        }
        if has(&self.log, "tenants").await? {
            return Err(StoreError::Refused(
                "audit.database_url names an operational database: the log's is one of its own"
                    .to_owned(),
            ));
        }
        let log = self.of_log().await?;
        match (self.of_main().await?, log) {
            (Some(main), Some(log)) if main != log => Err(strangers()),
            (None, Some(_)) => Err(strangers()),
            _ => Ok(()),
        }
    }

    /// Pairs the two databases permanently: only an operational database that never had a log, with an audit
    /// database that has none.
    pub(super) async fn pair(&self) -> Result<()> {
        // In this order: the other one's is never there alone.
        let log = self.of_log().await?;
        let main = match (self.of_main().await?, log) {
            (Some(main), _) => main,
            (None, Some(_)) => return Err(strangers()),
            (None, None) => {
                if has_log(&self.main).await? {
                    return Err(StoreError::Refused(
                        "the log of this installation is in its operational database, and stays there: \
                         audit.database_url is for an installation that begins with it"
                            .to_owned(),
                    ));
                }
                self.expect_empty().await?;
                let kept = settle_fact(&self.main, FACT, random_id().as_bytes()).await?;
                installation(&kept)?
            }
        };
        if log.is_none() {
            self.expect_empty().await?;
            sqlx::query(
                "INSERT INTO audit.identity (one, installation) VALUES (true, $1) \
                 ON CONFLICT DO NOTHING",
            )
            .bind(main.to_string())
            .execute(&self.log)
            .await
            .map_err(failed)?;
        }
        self.installation().await.map(drop)
    }

    async fn expect_empty(&self) -> Result<()> {
        if has_log(&self.log).await? { Err(strangers()) } else { Ok(()) }
    }

    async fn of_main(&self) -> Result<Option<Uuid>> {
        of_main(&self.main).await
    }

    async fn of_log(&self) -> Result<Option<Uuid>> {
        if !has(&self.log, "audit.identity").await? {
            return Ok(None);
        }
        let kept: Option<String> = sqlx::query_scalar("SELECT installation FROM audit.identity")
            .fetch_optional(&self.log)
            .await
            .map_err(failed)?;
        kept.map(|text| text.parse().map_err(|_| strangers())).transpose()
    }

    /// The installation id stored in both databases.
    async fn installation(&self) -> Result<Uuid> {
        self.installation
            .get_or_try_init(async || match (self.of_main().await?, self.of_log().await?) {
                (Some(main), Some(log)) if main == log => Ok(main),
                _ => Err(strangers()),
            })
            .await
            .copied()
    }

    /// Name prefix of this installation's prepared parts.
    async fn prefix(&self) -> Result<String> {
        Ok(format!("{NAME}-{}-", self.installation().await?.simple()))
    }

    /// Begins the log's part of a batch.
    pub(super) async fn begin(&self) -> Result<Tx> {
        self.sessions.begin(PlanCaching::Fitted).await
    }

    /// Commits both parts of a batch, or neither. After an error they may be committed all the same, as after any
    /// commit whose answer was lost.
    pub(super) async fn commit(
        &self,
        mut main: Tx,
        mut log: Tx,
        mut calls: Vec<Call>,
    ) -> Result<()> {
        let gid = format!("{}{}", self.prefix().await?, random_id().simple());
        let decision = "INSERT INTO two_phase (gid, committed) VALUES ($1, true)";
        calls.push(Call::new(decision).bind(gid.as_str()));
        main.fly(calls).await?;
        fault::at(Step::CommitSealed);
        log.fetch(Call::plain(format!("PREPARE TRANSACTION '{gid}'"))).await?;
        fault::at(Step::ApartPrepared);
        if let Err(err) = main.commit(Vec::new()).await {
            drop(log);
            // The tenants' logs wait for what is prepared: it is ended here, if it can be.
            return match self.resolve(&gid).await {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(err),
            };
        }
        fault::at(Step::ApartDecided);
        match log.fetch(Call::plain(format!("COMMIT PREPARED '{gid}'"))).await {
            Ok(_) => {
                log.done();
                Ok(())
            }
            // On another connection: this one may be what broke.
            Err(_) => self.end(&gid, true).await,
        }
    }

    /// Resolves the prepared part of this name as decided; without a decision, gives it up for good. Returns
    /// whether it is committed.
    pub(super) async fn resolve(&self, gid: &str) -> Result<bool> {
        let mut tx = self.main.begin().await.map_err(failed)?;
        // Waits for a batch that is about to decide, until its transaction has ended.
        sqlx::query(
            "INSERT INTO two_phase (gid, committed) VALUES ($1, false) ON CONFLICT DO NOTHING",
        )
        .bind(gid)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
        let committed: bool = sqlx::query_scalar("SELECT committed FROM two_phase WHERE gid = $1")
            .bind(gid)
            .fetch_one(&mut *tx)
            .await
            .map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        self.end(gid, committed).await?;
        Ok(committed)
    }

    /// Commits or rolls back the prepared part of this name, unless another session did.
    async fn end(&self, gid: &str, committed: bool) -> Result<()> {
        let verb = if committed { "COMMIT" } else { "ROLLBACK" };
        let mut looks = 1;
        loop {
            let sql = AssertSqlSafe(format!("{verb} PREPARED '{gid}'"));
            let Err(err) = sqlx::raw_sql(sql).execute(&self.log).await else { return Ok(()) };
            let code = err.as_database_error().and_then(|err| err.code().map(String::from));
            match code.as_deref() {
                Some(NOT_PREPARED) => return Ok(()),
                Some(BUSY) if looks < LOOKS => looks += 1,
                _ => return Err(failed(err)),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// See [`crate::store::Store::settle_in_doubt`].
    pub(super) async fn settle_in_doubt(&self, seen: &mut BTreeSet<String>) -> Result<u64> {
        let mut standing = self.list_prepared().await?;
        let mut settled = 0;
        for gid in std::mem::take(seen).intersection(&standing.clone()) {
            match self.resolve(gid).await {
                Ok(committed) => {
                    tracing::warn!(
                        gid,
                        committed,
                        "resolved a batch that another broker left prepared"
                    );
                    standing.remove(gid);
                    settled += 1;
                }
                // It stays among those that were seen, and keeps no other from its end.
                Err(err) => tracing::warn!(gid, %err, "a prepared batch cannot be resolved"),
            }
        }
        *seen = standing;
        self.tidy().await?;
        Ok(settled)
    }

    async fn list_prepared(&self) -> Result<BTreeSet<String>> {
        let prefix = self.prefix().await?;
        let found: Vec<String> = sqlx::query_scalar(
            "SELECT gid FROM pg_prepared_xacts \
             WHERE database = current_database() AND starts_with(gid, $1)",
        )
        .bind(&prefix)
        .fetch_all(&self.log)
        .await
        .map_err(failed)?;
        // Anybody may prepare under any name, and these go into statements.
        let own = |gid: &String| Uuid::try_parse(&gid[prefix.len()..]).is_ok();
        Ok(found.into_iter().filter(own).collect())
    }

    /// Deletes decisions that are carried out. A readable decision was made after its part of the log was
    /// prepared, so a part that is no longer prepared has ended. Decisions to give up stay.
    async fn tidy(&self) -> Result<()> {
        let decided: Vec<String> =
            sqlx::query_scalar("SELECT gid FROM two_phase WHERE committed ORDER BY gid LIMIT $1")
                .bind(TIDIED)
                .fetch_all(&self.main)
                .await
                .map_err(failed)?;
        if decided.is_empty() {
            return Ok(());
        }
        let standing = self.list_prepared().await?;
        let done: Vec<String> = decided.into_iter().filter(|gid| !standing.contains(gid)).collect();
        sqlx::query("DELETE FROM two_phase WHERE gid = ANY($1) AND committed")
            .bind(done)
            .execute(&self.main)
            .await
            .map_err(failed)
            .map(drop)
    }

    /// Waits until the log shows every committed operation: until the holder of the log's head has released it.
    pub(super) async fn settled(&self, tenant: &TenantId) -> Result<()> {
        sqlx::query("SELECT 1 FROM audit.log_heads WHERE tenant = $1 FOR SHARE")
            .bind(tenant.as_str())
            .execute(&self.log)
            .await
            .map_err(failed)
            .map(drop)
    }
}

/// Rejects an operational database whose log is elsewhere.
pub(super) async fn expect_here(main: &PgPool) -> Result<()> {
    match of_main(main).await? {
        None => Ok(()),
        Some(_) => Err(StoreError::Refused(
            "the log of this installation is in a database of its own: name it in audit.database_url \
             (HANDOFFD_AUDIT__DATABASE_URL)"
                .to_owned(),
        )),
    }
}

async fn of_main(main: &PgPool) -> Result<Option<Uuid>> {
    if !has(main, "facts").await? {
        return Ok(None);
    }
    let kept: Option<Vec<u8>> = sqlx::query_scalar("SELECT value FROM facts WHERE name = $1")
        .bind(FACT)
        .fetch_optional(main)
        .await
        .map_err(failed)?;
    kept.map(|value| installation(&value)).transpose()
}

fn installation(value: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(value).map_err(|_| strangers())
}

fn strangers() -> StoreError {
    StoreError::Refused(
        "the databases of database.url and audit.database_url do not belong together: an operational \
         database has one audit database, which was empty when `handoffd migrate` joined them"
            .to_owned(),
    )
}

async fn has(pool: &PgPool, table: &str) -> Result<bool> {
    sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(table)
        .fetch_one(pool)
        .await
        .map_err(failed)
}

async fn has_log(pool: &PgPool) -> Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM audit.log_heads)")
        .fetch_one(pool)
        .await
        .map_err(failed)
}
