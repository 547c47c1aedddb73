//! Erasure of a data subject, from the request to the certificate.
//!
//! 1. A person's request becomes a row and a record (`ERASURE_REQUESTED`), or is refused by a hold.
//! 2. Pages of data go, each in one commit with the record that lists it (`ERASED`).
//! 3. When the rows hold nothing more, the colder tier and then the database's files are cleaned.
//! 4. A record says that it is done (`ERASURE_COMPLETED`).
//!
//! Every step can be repeated, and where a broker stops or dies in between, the sweep of any broker on
//! that database goes on from there. What is committed after an erasure began is not its business.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::archive::{ArchiveError, Archivist};
use crate::clock::{self, Clock};
use crate::domain::ids::{ContentId, ErasureId, Micros, TenantId};
use crate::evidence::record::Actor;
use crate::fault::{self, Step};
use crate::ledger::Ledger;
use crate::ledger::command::{Command, EraseNext, Kind, LedgerError, Reply};
use crate::metrics::Metrics;
use crate::store::erasure::{ErasureKey, ErasureRow, ErasureStatus, PageNeed, Scrubbed};
use crate::store::{Store, StoreError};

/// Tries of one step while the store is away or the ledger full, and the pause between them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// What keeps contents outside the database.
///
/// What it must know: a content's salt always stays in its row of `contents`, never in a segment, and
/// personal data never leaves the database at all. So an erased content is told by `salt IS NULL` in a
/// row that still names a segment; the commitment that is left tells nothing, and what is left to do is
/// to write the segment anew without the frame.
#[async_trait]
pub trait ColdTier: Send + Sync {
    /// Writes every segment of the tenant anew that still holds a content whose row has no salt, and
    /// lets go of the old one, and of any that no row names; returns how many contents that were. May
    /// be repeated.
    ///
    /// # Errors
    /// When it cannot be done now; the erasure waits and tries again.
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

/// Why an erasure did not get to its end this time. It stays, and is gone on with.
#[derive(Debug, thiserror::Error)]
pub enum Interrupted {
    /// The ledger says no: a hold, or the store is away.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Files could not be cleaned now.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker stops.
    #[error("the broker stops")]
    Stopping,
}

/// How erasures are carried out.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Data in one commit.
    pub page: i64,
    /// How often to look for what was left unfinished.
    pub period: Duration,
    /// For how long an erasure must have stood still before another broker's sweep goes on with it.
    pub patience: Duration,
}

/// What an [`Eraser`] works with.
pub struct Parts {
    /// Reads, and cleans.
    pub store: Arc<dyn Store>,
    /// The write path.
    pub ledger: Ledger,
    /// Contents outside the database.
    pub cold: Arc<dyn ColdTier>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// How.
    pub settings: Settings,
    /// Where erasures run: they go on when the caller has gone.
    pub tracker: TaskTracker,
    /// Ends them between two pages.
    pub stopping: CancellationToken,
}

/// Carries erasures out. Clones share what is under way.
#[derive(Clone)]
pub struct Eraser {
    parts: Arc<Parts>,
    under_way: Arc<Mutex<HashMap<ErasureKey, watch::Receiver<()>>>>,
}

impl Eraser {
    /// Over its parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts), under_way: Arc::default() }
    }

    /// Carries an erasure out in the background, unless that is under way here already. The answer's
    /// sender is dropped when it ended, well or not: the row says which.
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
                    "an erasure is done"
                ),
                Err(err) => tracing::warn!(erasure_id = %key.1, error = %err, "an erasure waits"),
            }
            eraser.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            drop(running);
        });
        ending
    }

    /// Goes on with what was left unfinished, until the broker stops. `alone` says that no other
    /// broker works on this database: then whatever is unfinished at the start is nobody's.
    pub async fn sweep(self, alone: bool) {
        let Settings { period, patience, .. } = self.parts.settings;
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

impl Parts {
    async fn carry_out(&self, key: &ErasureKey) -> Result<ErasureRow, Interrupted> {
        let head = self.store.find_head(&key.0).await?;
        let upto = head.map_or(0, |head| head.size);
        let mut erased = 0;
        let row = loop {
            let row = self.say(&key.0, || Kind::Erase(Box::new(self.next(key.1, upto)))).await?;
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
            Scrubbed::Rewritten => {}
            Scrubbed::Freed => {
                tracing::debug!(erasure_id = %key.1, "freed space was not rewritten");
            }
            Scrubbed::Left => {
                tracing::warn!(erasure_id = %key.1, "this role may not vacuum: freed space is left to autovacuum");
            }
        }
        fault::at(Step::EraseScrubbed);
        let row = self.say(&key.0, || Kind::FinishErasure(key.1)).await?;
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

    /// One step; again where the store is away for a moment.
    async fn say(
        &self,
        tenant: &TenantId,
        kind: impl Fn() -> Kind,
    ) -> Result<ErasureRow, Interrupted> {
        let mut tries = 0;
        loop {
            if self.stopping.is_cancelled() {
                return Err(Interrupted::Stopping);
            }
            let command = Command {
                tenant: tenant.clone(),
                at: self.clock.now(),
                actor: Actor::broker(),
                kind: kind(),
            };
            match self.ledger.handle(command).await {
                Ok(Reply::Erasure { row, .. }) => return Ok(row),
                Ok(other) => {
                    return Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into());
                }
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

/// How many more there are than were counted so far. The first count of a resumed erasure includes what
/// went before, and is counted as far as this broker knows.
fn counted(total: i64, so_far: &mut i64) -> u64 {
    let more = total.saturating_sub(*so_far);
    *so_far = total;
    u64::try_from(more).unwrap_or(0)
}
