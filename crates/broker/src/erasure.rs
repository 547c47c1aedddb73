//! Erasure of a data subject, from the request to the certificate.
//!
//! 1. A person's request inserts a row and a record (`ERASURE_REQUESTED`), or a hold refuses it.
//! 2. Data is removed in pages, each in one commit with the record that lists it (`ERASED`).
//! 3. Once no row holds data, the cold tier and then the database's files are cleaned.
//! 4. A record states the end (`ERASURE_COMPLETED`).
//!
//! Every step can be repeated. After a stop or a crash, the sweep of any broker on that database continues. Data
//! committed after an erasure began is not part of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::archive::{ArchiveError, Archivist};
use crate::directory::Directory;
use crate::ledger::Ledger;
use crate::ledger::command::Call;
use crate::ledger::commands::{EraseNext, FinishErasure, Queued};
use crate::ledger::reply::{ErasureReply, LedgerError};
use crate::metrics::Metrics;
use handoffd_domain::ids::{ContentId, ErasureId, Micros, TenantId};
use handoffd_evidence::record::Actor;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::erasure::{
    ErasureKey, ErasureRow, ErasureStatus, PageNeed, ScrubOutcome,
};
use handoffd_store::store::{Store, StoreError};

/// Attempts of one step while the store is unavailable or the ledger full, and the pause between them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// Storage of contents outside the database.
///
/// A content's salt always stays in its row of `contents`, never in a segment, and personal data never leaves the
/// database. So `salt IS NULL` in a row with a segment marks an erased content; its commitment reveals nothing, and
/// the remaining work is to rewrite the segment without the frame.
#[async_trait]
pub trait ColdTier: Send + Sync {
    /// Rewrites every segment of the tenant with a content whose row has no salt, and removes the old segments
    /// and those without rows; returns the number of removed contents. May be repeated.
    ///
    /// # Errors
    /// [`StoreError`] where that fails now; the erasure waits and retries.
    async fn forget_erased(&self, tenant: &TenantId) -> Result<u64, StoreError>;
}

#[async_trait]
impl ColdTier for Archivist {
    async fn forget_erased(&self, tenant: &TenantId) -> Result<u64, StoreError> {
        self.forget(tenant).await.map_err(|err| match err {
            ArchiveError::Store(err) => err,
            err => StoreError::Unavailable(err.to_string()),
        })
    }
}

/// Reasons for which an erasure paused. A later sweep resumes it.
#[derive(Debug, thiserror::Error)]
pub enum ErasureInterrupted {
    /// The ledger refused: a hold, or the store is unavailable.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The files could not be cleaned.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the broker stops")]
    Stopping,
}

#[derive(Debug, Clone, Copy)]
pub struct ErasureSettings {
    /// Most data in one commit.
    pub page: i64,
    /// Interval of the sweep for unfinished erasures.
    pub period: Duration,
    /// Time without progress after which another broker's sweep resumes an erasure.
    pub patience: Duration,
}

/// The collaborators of an [`Eraser`].
pub struct EraserContext {
    /// Store for reads and file cleaning.
    pub store: Arc<Store>,
    pub ledger: Ledger,
    /// Says whether a legal hold is not what the log commits to.
    pub directory: Arc<Directory>,
    /// Contents outside the database.
    pub cold: Arc<dyn ColdTier>,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Counters of erased data.
    pub metrics: Arc<Metrics>,
    /// Page size and intervals.
    pub settings: ErasureSettings,
    /// Tracker of running erasures: they outlive their request.
    pub tracker: TaskTracker,
    /// Cancels erasures between two pages.
    pub stopping: CancellationToken,
}

/// Runs erasures. Clones share the list of running ones.
#[derive(Clone)]
pub struct Eraser {
    parts: Arc<EraserContext>,
    under_way: Arc<Mutex<HashMap<ErasureKey, watch::Receiver<()>>>>,
}

impl Eraser {
    /// An eraser without running erasures.
    #[must_use]
    pub fn new(parts: EraserContext) -> Self {
        Self { parts: Arc::new(parts), under_way: Arc::default() }
    }

    /// Runs an erasure in the background, unless it is already running here. The returned channel closes at its
    /// end, successful or not: the row has the outcome.
    #[must_use]
    pub fn start(&self, key: ErasureKey) -> watch::Receiver<()> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ending) = under_way.get(&key) {
            return ending.clone();
        }
        let (running, ending) = watch::channel(());
        under_way.insert(key.clone(), ending.clone());
        let eraser = self.clone();
        self.parts.tracker.spawn(async move {
            match eraser.parts.carry_out(&key).await {
                Ok(row) => tracing::info!(
                    erasure_id = %row.id, data = row.data, contents = row.contents,
                    "erasure completed"
                ),
                Err(err) => tracing::warn!(erasure_id = %key.1, error = %err, "erasure paused"),
            }
            eraser.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            drop(running);
        });
        ending
    }

    /// Resumes unfinished erasures until the broker stops. `alone` states that no other broker uses this
    /// database, so that every unfinished erasure is resumed at the start.
    pub async fn sweep(self, alone: bool) {
        let ErasureSettings { period, patience, .. } = self.parts.settings;
        let mut first = alone;
        loop {
            let now = self.parts.clock.now();
            let patience = i64::try_from(patience.as_micros()).unwrap_or(i64::MAX);
            let cutoff = if first { i64::MAX } else { now.0.saturating_sub(patience) };
            match self.parts.store.list_unfinished_erasures(Micros(cutoff)).await {
                Ok(keys) => {
                    first = false;
                    for key in keys {
                        let _ = self.start(key);
                    }
                }
                Err(err) => tracing::warn!(error = %err, "unfinished erasures could not be read"),
            }
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                () = self.parts.stopping.cancelled() => return,
            }
        }
    }
}

impl EraserContext {
    async fn carry_out(&self, key: &ErasureKey) -> Result<ErasureRow, ErasureInterrupted> {
        held_on(&self.directory, &key.0).await?;
        let head = self.store.find_head(&key.0).await?;
        let upto = head.map_or(0, |head| head.size);
        let mut erased = 0;
        let row = loop {
            let row = self.say(&key.0, || self.next(key.1, upto)).await?;
            self.metrics.personal_data_erased.inc_by(counted(row.data, &mut erased));
            if row.status != ErasureStatus::Running {
                break row;
            }
            fault::at(Step::ErasePage);
        };
        if row.status == ErasureStatus::Completed {
            return Ok(row);
        }
        fault::at(Step::EraseRows);
        // Personal data alone never left the database: that needs no archive.
        if row.contents > 0 {
            self.cold.forget_erased(&key.0).await?;
        }
        fault::at(Step::EraseForgotten);
        match self.store.scrub().await? {
            ScrubOutcome::Rewritten => {}
            ScrubOutcome::Freed => {
                tracing::debug!(erasure_id = %key.1, "freed space was not rewritten");
            }
            ScrubOutcome::Left => {
                tracing::warn!(erasure_id = %key.1, "this role may not vacuum: freed space is left to autovacuum");
            }
        }
        fault::at(Step::EraseScrubbed);
        let row = self.say(&key.0, || FinishErasure { id: key.1 }).await?;
        fault::at(Step::EraseDone);
        self.metrics.erasures.inc();
        Ok(row)
    }

    fn next(&self, id: ErasureId, upto: i64) -> EraseNext {
        EraseNext {
            id,
            page: PageNeed { upto, limit: self.settings.page },
            content_id: ContentId(clock::time_ordered_id(self.clock.now())),
            salt: clock::random(),
        }
    }

    /// Sends one command; retries while the store is unavailable.
    async fn say<C: Queued<Reply = ErasureReply>>(
        &self,
        tenant: &TenantId,
        command: impl Fn() -> C,
    ) -> Result<ErasureRow, ErasureInterrupted> {
        let mut tries = 0;
        loop {
            if self.stopping.is_cancelled() {
                return Err(ErasureInterrupted::Stopping);
            }
            let call =
                Call { tenant: tenant.clone(), at: self.clock.now(), actor: Actor::broker() };
            match self.ledger.handle(call, command()).await {
                Ok(ErasureReply { row, .. }) => return Ok(row),
                // A hold that shared the batch may be about another's task: looked at once more.
                Err(LedgerError::Held { .. }) if tries == 0 => tries += 1,
                Err(LedgerError::Unavailable | LedgerError::Overloaded) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(err) => return Err(err.into()),
            }
        }
    }
}

/// Refuses to erase anything of a tenant if one of its legal holds differs from the log: it is unknown which data it
/// held.
///
/// # Errors
/// [`LedgerError::Held`], or the store does not answer.
pub async fn held_on(directory: &Directory, tenant: &TenantId) -> Result<(), LedgerError> {
    let unavailable = |_| LedgerError::Unavailable;
    match directory.withheld_hold(tenant).await.map_err(unavailable)? {
        Some((id, why)) => Err(LedgerError::Held {
            id,
            reason: format!(
                "its row is not what the log commits to ({why}); nothing is erased until that is mended"
            ),
        }),
        None => Ok(()),
    }
}

/// The increase since the last count. The first count of a resumed erasure includes earlier pages, and is taken as
/// this broker knows it.
fn counted(total: i64, so_far: &mut i64) -> u64 {
    let more = total.saturating_sub(*so_far);
    *so_far = total;
    u64::try_from(more).unwrap_or(0)
}
