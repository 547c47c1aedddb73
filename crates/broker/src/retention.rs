//! The end of retention: contents, personal data and checkpoints older than `retention.delete_after_days` are
//! deleted; records stay.
//!
//! 1. The mark states that this run may delete data (`unclean`).
//! 2. Pages of the log are read in order. Expired data of a page is deleted in one commit with the `ERASED` record
//!    that lists it, as with an erasure: so the verifier accounts for each gap at any moment. Data of active tasks and
//!    data under a legal hold stays.
//! 3. Segments with deleted contents are rewritten, then the database's files are cleaned.
//! 4. The mark states the position reached, and that all is clean.
//!
//! Every step can be repeated. An interrupted run leaves the mark unclean at its position: the next run reads the
//! same pages, finds most data deleted, and cleans. A lease limits each tenant to one broker; two at once would do no
//! harm, since a page is loaded and deleted in one transaction.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::archive::{cutoff, repeat};
use crate::directory::Directory;
use crate::erasure::{ColdTier, held_on};
use crate::ledger::Ledger;
use crate::ledger::command::Call;
use crate::ledger::commands::PurgeNext;
use crate::ledger::reply::{LedgerError, Purged};
use crate::metrics::RetentionMetrics;
use handoffd_domain::ids::{ContentId, Micros, TenantId};
use handoffd_evidence::record::Actor;
use handoffd_store::clock::{self, Clock};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::cold::{ArchiveMark, ExclusiveLease, PurgeMark};
use handoffd_store::store::erasure::{PurgeNeed, PurgePage, ScrubOutcome};
use handoffd_store::store::{Needs, Store, StoreError, Writes};

/// Time between two renewals of the lease at most: longer than a page or a rewritten file takes.
const LEASE: Duration = Duration::from_mins(10);

/// Interval between checks of held data.
const RESCAN: Duration = Duration::from_hours(24);

/// Attempts of one page while the store is unavailable, the ledger full, or a hold intervenes; and the pause between
/// them.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// Counts of one run for one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeCounts {
    /// Purged contents of records.
    pub contents: i64,
    pub personal_data: i64,
    pub checkpoints: i64,
    /// Records with expired data that is held.
    pub held: i64,
    /// Contents removed from the archive's segments.
    pub forgotten: u64,
}

impl PurgeCounts {
    const fn is_none(&self) -> bool {
        self.contents == 0 && self.personal_data == 0 && self.checkpoints == 0
    }
}

/// Reasons for which a run stopped early. The next run continues.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// Another broker is purging this tenant.
    #[error("another broker purges tenant {0}")]
    Busy(String),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store or the archive is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Purges expired data.
pub struct Purger {
    /// Store for reads and file cleaning.
    pub store: Arc<Store>,
    pub ledger: Ledger,
    /// Says whether a legal hold is not what the log commits to.
    pub directory: Arc<Directory>,
    /// Contents outside the database.
    pub cold: Arc<dyn ColdTier>,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Counters of purged data.
    pub metrics: RetentionMetrics,
    /// Most records in one commit.
    pub page: i64,
}

impl Purger {
    /// Runs once for one tenant. `whole` also checks held data of earlier runs.
    ///
    /// # Errors
    /// [`PurgeError`]; completed pages stay purged.
    pub async fn run(
        &self,
        tenant: &TenantId,
        before: Micros,
        whole: bool,
    ) -> Result<PurgeCounts, PurgeError> {
        held_on(&self.directory, tenant).await?;
        let owner = clock::random_id().to_string();
        let lease = ExclusiveLease { name: format!("retention/{tenant}"), owner };
        self.hold(tenant, &lease).await?;
        let outcome = self.purge(tenant, before, whole, &lease).await;
        if let Err(err) = self.store.release_lease(&lease).await {
            tracing::debug!(error = %err, "the retention lease could not be released; it expires by itself");
        }
        outcome
    }

    /// Counts the data that a run would purge, without purging.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn preview(
        store: &Store,
        tenant: &TenantId,
        before: Micros,
        limit: i64,
    ) -> Result<PurgeCounts, StoreError> {
        let (mut taken, mut from) = (PurgeCounts::default(), 0);
        let mut checkpoints = std::collections::BTreeSet::new();
        loop {
            let mut needs = Needs::default();
            needs.erasure.purges.insert(tenant.clone(), PurgeNeed { from, before, limit });
            let mut page = PurgePage::default();
            let look = &mut |mut state: handoffd_store::store::BatchState| {
                page = state.erasure.purges.remove(tenant).unwrap_or_default();
                Writes::default()
            };
            store.transact(&needs, look).await?;
            taken.contents += count(page.contents.len());
            taken.personal_data += count(page.data.len());
            taken.held += page.held;
            // A task's stand in every page that has a record of it: here none of them goes.
            checkpoints.extend(page.checkpoints);
            taken.checkpoints = count(checkpoints.len());
            // A page with more checkpoints than one commit takes would be asked for again.
            let next = if page.next > from { page.next } else { from + limit };
            if page.ends {
                return Ok(taken);
            }
            from = next;
        }
    }

    async fn hold(&self, tenant: &TenantId, lease: &ExclusiveLease) -> Result<(), PurgeError> {
        let now = self.clock.now();
        if self.store.take_lease(lease, now, later(now, LEASE)).await? {
            Ok(())
        } else {
            Err(PurgeError::Busy(tenant.to_string()))
        }
    }

    async fn purge(
        &self,
        tenant: &TenantId,
        before: Micros,
        whole: bool,
        lease: &ExclusiveLease,
    ) -> Result<PurgeCounts, PurgeError> {
        let mark = self.store.find_purge_mark(tenant).await?;
        let now = self.clock.now();
        let whole = whole || mark.unclean || now >= mark.scan.rescan_at;
        let ArchiveMark { done_below, scanned_to, rescan_at } = mark.scan;
        let mut from = if whole { done_below } else { scanned_to };
        let mut first_held = (!whole && done_below < scanned_to).then_some(done_below);
        let (mut taken, mut cleaned) = (PurgeCounts::default(), mark.unclean);
        loop {
            self.hold_on(tenant, lease, mark).await?;
            let page = self.page(tenant, PurgeNeed { from, before, limit: self.page }).await?;
            taken.contents += page.contents;
            taken.personal_data += page.data;
            taken.checkpoints += page.checkpoints;
            taken.held += page.held;
            cleaned |= page.cleaned;
            first_held = first_held.or(page.first_held);
            from = page.next;
            if page.contents + page.data + page.checkpoints > 0 {
                fault::at(Step::PurgePage);
            }
            if page.ends {
                break;
            }
        }
        self.metrics.contents.inc_by(taken.contents.unsigned_abs());
        self.metrics.personal_data.inc_by(taken.personal_data.unsigned_abs());
        self.metrics.checkpoints.inc_by(taken.checkpoints.unsigned_abs());
        if whole {
            self.metrics.held.set(taken.held);
        }
        if cleaned || !taken.is_none() {
            self.hold_on(tenant, lease, mark).await?;
            taken.forgotten = self.cold.forget_erased(tenant).await?;
            fault::at(Step::PurgeForgotten);
            if self.store.scrub().await? == ScrubOutcome::Left {
                tracing::warn!(%tenant, "this role may not vacuum: freed space is left to autovacuum");
            }
            fault::at(Step::PurgeScrubbed);
        }
        let scan = ArchiveMark {
            done_below: first_held.unwrap_or(from),
            scanned_to: scanned_to.max(from),
            rescan_at: if whole { later(now, RESCAN) } else { rescan_at },
        };
        // Forgetting and scrubbing take their time: who lost the lease over them leaves the mark to its new owner.
        self.keep(tenant, lease, PurgeMark { scan, unclean: false }).await?;
        Ok(taken)
    }

    /// Stores the mark as unclean, which only the lease's holder can, and renews the lease: a run that lost it ends here.
    async fn hold_on(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        mark: PurgeMark,
    ) -> Result<(), PurgeError> {
        self.keep(tenant, lease, PurgeMark { unclean: true, ..mark }).await?;
        self.hold(tenant, lease).await
    }

    /// Stores the mark, which is the lease holder's.
    async fn keep(
        &self,
        tenant: &TenantId,
        lease: &ExclusiveLease,
        mark: PurgeMark,
    ) -> Result<(), PurgeError> {
        if self.store.keep_purge_mark(tenant, lease, mark).await? {
            Ok(())
        } else {
            Err(PurgeError::Busy(tenant.to_string()))
        }
    }

    async fn page(&self, tenant: &TenantId, need: PurgeNeed) -> Result<Purged, PurgeError> {
        let mut tries = 0;
        loop {
            let at = self.clock.now();
            let next = PurgeNext {
                need,
                content_id: ContentId(clock::time_ordered_id(at)),
                salt: clock::random(),
            };
            let call = Call { tenant: tenant.clone(), at, actor: Actor::broker() };
            let command = next;
            match self.ledger.handle(call, command).await {
                Ok(page) => return Ok(page),
                Err(LedgerError::Unavailable | LedgerError::Overloaded) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(err) => return Err(err.into()),
            }
        }
    }

    /// Runs for every tenant until the broker stops.
    pub async fn sweep(self, after_days: u32, interval: Duration, stopping: CancellationToken) {
        repeat(interval, &stopping, || self.run_all(after_days)).await;
    }

    /// Runs once for every tenant; `false` where one run failed.
    async fn run_all(&self, after_days: u32) -> bool {
        let now = self.clock.now();
        let tenants = match self.store.list_tenants().await {
            Ok(tenants) => tenants,
            Err(err) => {
                self.metrics.failures.inc();
                tracing::warn!(error = %err, "expired data could not be searched");
                return false;
            }
        };
        let mut well = true;
        for tenant in tenants {
            match self.run(&tenant, cutoff(now, after_days), false).await {
                Ok(taken) if taken.is_none() => {}
                Ok(taken) => {
                    let PurgeCounts { contents, personal_data, checkpoints, .. } = taken;
                    tracing::info!(%tenant, contents, personal_data, checkpoints, "expired data purged");
                }
                // Another broker does it, or one that died holding the lease did.
                Err(PurgeError::Busy(_)) => well = false,
                Err(err) => {
                    well = false;
                    self.metrics.failures.inc();
                    tracing::warn!(%tenant, error = %err, "expired data was not purged completely; the next run retries");
                }
            }
        }
        if well {
            self.metrics.last_run.set(now.0 / 1_000_000);
        }
        well
    }
}

fn count(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

fn later(at: Micros, by: Duration) -> Micros {
    Micros(at.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}
