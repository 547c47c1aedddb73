//! Witnessing: the broker publishes tree heads to destinations outside the database, so that a rewrite of the
//! database cannot also rewrite them. A truncated or rewritten log fails against any head kept elsewhere.
//!
//! `places.rs` parses the settings and writes to the destinations; `kept.rs` is the folder, against which the
//! broker also checks its database at each start; `cosign.rs` requests cosignatures of C2SP tlog-witnesses. A head is
//! published only if its log continues the last published tree; any other log is reported and not published.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::metrics::WitnessMetrics;
use crate::tree::{self, CosignedHeads, PublishedHeads};
use handoffd_domain::ids::TenantId;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::receipt::Notary;
use handoffd_store::clock::Clock;
use handoffd_store::store::{Result, Store};

mod cosign;
mod kept;
mod places;

pub use kept::{KeptHeadError, check, latest};
pub use places::{DestinationError, HeadDestination, folders, places};

/// A tree head to be published.
#[derive(Debug, Clone)]
pub struct OutgoingHead {
    /// The tenant that owns the log.
    pub tenant: TenantId,
    pub log_id: String,
    /// Number of records.
    pub size: u64,
    /// The root of the log's tree.
    pub root: Hash,
    pub note: String,
}

/// Reasons for which a destination did not take a tree head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// The destination cannot be reached or written. Retry later.
    #[error("{0}")]
    Away(String),
    /// The destination has another history of the log.
    #[error("{0}")]
    Refused(String),
}

/// The collaborators of a [`Publisher`].
pub struct PublisherContext {
    /// Store of the logs.
    pub store: Arc<Store>,
    /// Signs the tree heads.
    pub notary: Arc<Notary>,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Counters of published heads.
    pub metrics: WitnessMetrics,
    /// Cosigned heads for the API.
    pub cosigned: Arc<CosignedHeads>,
    /// How far each destination has each log, for the API.
    pub published: Arc<PublishedHeads>,
    /// Destinations of published heads.
    pub places: Vec<HeadDestination>,
    /// The last known size and root by log, from [`check`].
    pub known: HashMap<String, (u64, Hash)>,
}

/// Publishes tree heads.
pub struct Publisher {
    parts: PublisherContext,
    targets: Vec<DestinationState>,
    /// Size and root of the last published head by log: the next head must continue it.
    published: Mutex<HashMap<String, (u64, Hash)>>,
}

/// A destination, and the size it has of each log.
struct DestinationState {
    place: HeadDestination,
    /// Its place among the destinations.
    number: usize,
    has: Mutex<HashMap<String, u64>>,
}

impl Publisher {
    /// A publisher with its destinations.
    #[must_use]
    pub fn new(mut parts: PublisherContext) -> Self {
        let places = std::mem::take(&mut parts.places).into_iter();
        let targets = places
            .enumerate()
            .map(|(number, place)| DestinationState { place, number, has: Mutex::default() })
            .collect();
        let published = Mutex::new(std::mem::take(&mut parts.known));
        Self { parts, targets, published }
    }

    /// Publishes at once and then every `interval`, until the broker stops.
    pub async fn run(self: Arc<Self>, interval: Duration, stopping: CancellationToken) {
        let publishing = async {
            loop {
                self.publish().await;
                tokio::time::sleep(interval).await;
            }
        };
        tokio::select! {
            () = publishing => {}
            () = stopping.cancelled() => {}
        }
    }

    /// Publishes the head of every log that grew. Failures are logged and retried at the next call.
    pub async fn publish(&self) {
        if self.targets.is_empty() {
            return;
        }
        let heads = match self.heads().await {
            Ok(heads) => heads,
            Err(err) => {
                tracing::warn!(error = %err, "tree heads could not be read");
                return;
            }
        };
        let targets = self.targets.iter().map(|target| self.serve(target, &heads));
        futures_util::future::join_all(targets).await;
        self.count_unpublished(&heads).await;
    }

    /// Of several destinations of a kind, the one that lacks the most counts.
    async fn count_unpublished(&self, heads: &[OutgoingHead]) {
        let mut lacks = BTreeMap::<_, u64>::new();
        for target in &self.targets {
            let has = target.has.lock().await;
            let covered = |head: &OutgoingHead| has.get(&head.log_id).copied().unwrap_or_default();
            let records: u64 =
                heads.iter().map(|head| head.size.saturating_sub(covered(head))).sum();
            let most = lacks.entry(target.place.kind()).or_default();
            *most = records.max(*most);
        }
        for (kind, records) in lacks {
            let gauge = self.parts.metrics.unpublished.with_label_values(&[kind]);
            gauge.set(i64::try_from(records).unwrap_or(i64::MAX));
        }
    }

    /// The heads of all logs that continue their last published tree.
    async fn heads(&self) -> Result<Vec<OutgoingHead>> {
        let (mut heads, mut records) = (Vec::new(), 0);
        for tenant in self.parts.store.list_tenants().await? {
            let Some(found) = self.parts.store.find_head(&tenant).await? else { continue };
            records += found.tree.size();
            if found.tree.size() == 0 {
                continue;
            }
            let head = OutgoingHead {
                size: found.tree.size(),
                root: found.tree.root(),
                note: self.parts.notary.tree_head(&found.log_id, &found.tree),
                log_id: found.log_id,
                tenant,
            };
            if self.continues(&head).await? {
                heads.push(head);
            }
        }
        self.parts.metrics.tree_size.set(i64::try_from(records).unwrap_or(i64::MAX));
        Ok(heads)
    }

    /// Whether a head's log still begins with the last published tree.
    async fn continues(&self, head: &OutgoingHead) -> Result<bool> {
        let mut published = self.published.lock().await;
        if let Some((size, root)) = published.get(&head.log_id) {
            let well = head.size >= *size
                && tree::root(&self.parts.store, &head.tenant, *size).await? == Some(*root);
            if !well {
                self.parts.metrics.forks.inc();
                tracing::error!(
                    log = head.log_id,
                    published = size,
                    now = head.size,
                    "this log does not continue its published tree: it was truncated or rewritten"
                );
                return Ok(false);
            }
        }
        published.insert(head.log_id.clone(), (head.size, head.root));
        Ok(true)
    }

    /// Publishes to one destination the heads it lacks.
    async fn serve(&self, target: &DestinationState, heads: &[OutgoingHead]) {
        let kind = target.place.kind();
        let count =
            |outcome| self.parts.metrics.published.with_label_values(&[kind, outcome]).inc();
        let (place, published) = ((target.number, kind), &self.parts.published);
        let mut has = target.has.lock().await;
        for head in heads {
            if has.get(&head.log_id) == Some(&head.size) {
                published.published(&head.log_id, place, head.size, self.parts.clock.now());
                continue;
            }
            match target.place.put(&self.parts, head).await {
                Ok(()) => {
                    count("published");
                    has.insert(head.log_id.clone(), head.size);
                    let now = self.parts.clock.now();
                    published.published(&head.log_id, place, head.size, now);
                    self.parts.metrics.last.with_label_values(&[kind]).set(now.0 / 1_000_000);
                }
                Err(PutError::Refused(why)) => {
                    count("refused");
                    published.failed(&head.log_id, place, self.parts.clock.now());
                    tracing::error!(log = head.log_id, place = %target.place, why, "a tree head was refused");
                }
                Err(PutError::Away(why)) => {
                    count("failed");
                    for head in heads {
                        published.failed(&head.log_id, place, self.parts.clock.now());
                    }
                    tracing::warn!(place = %target.place, why, "tree heads could not be published; the next run retries");
                    return;
                }
            }
        }
    }
}
