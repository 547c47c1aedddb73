//! Witnessing: tree heads are published to places outside the database, so that whoever could rewrite
//! the database cannot rewrite what was said of it. A log that was cut, or written anew, fails against
//! any head that is kept elsewhere.
//!
//! `places.rs` reads the settings and knows the places; `kept.rs` is the folder, which the broker also
//! checks its database against at each start; `cosign.rs` asks C2SP tlog-witnesses. What is published
//! is only ever the continuation of what was: a log that is not is reported and published nowhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::domain::ids::TenantId;
use crate::evidence::merkle::Hash;
use crate::evidence::receipt::Notary;
use crate::metrics::WitnessMetrics;
use crate::store::{Result, Store};
use crate::tree::{self, Cosigned};

mod cosign;
mod kept;
mod places;

pub use kept::{KeptFault, check};
pub use places::{BadPlace, Place, places};

/// A tree head on its way out.
#[derive(Debug, Clone)]
pub struct Head {
    /// Whose log.
    pub tenant: TenantId,
    /// Which log.
    pub log_id: String,
    /// How many records it has.
    pub size: u64,
    /// The root of its tree.
    pub root: Hash,
    /// The signed note that says so.
    pub note: String,
}

/// Why a place did not take a tree head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// It cannot be reached or written: later it may.
    #[error("{0}")]
    Away(String),
    /// It knows another history of the log.
    #[error("{0}")]
    Refused(String),
}

/// What a publisher works with.
pub struct Parts {
    /// Where the logs are.
    pub store: Arc<dyn Store>,
    /// Signs.
    pub notary: Arc<Notary>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: WitnessMetrics,
    /// Where cosigned heads are left for those who ask.
    pub cosigned: Arc<Cosigned>,
    /// Where to publish.
    pub places: Vec<Place>,
    /// Size and root that each log is known to have had, from [`check`].
    pub known: HashMap<String, (u64, Hash)>,
}

/// Publishes tree heads.
pub struct Publisher {
    parts: Parts,
    targets: Vec<Target>,
    /// The newest size and root of each log that was published: what comes must continue it.
    published: Mutex<HashMap<String, (u64, Hash)>>,
}

/// A place, and the size of each log that it has.
struct Target {
    place: Place,
    has: Mutex<HashMap<String, u64>>,
}

impl Publisher {
    /// Over its parts.
    #[must_use]
    pub fn new(mut parts: Parts) -> Self {
        let places = std::mem::take(&mut parts.places).into_iter();
        let targets = places.map(|place| Target { place, has: Mutex::default() }).collect();
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

    /// Publishes the head of every log that moved. What fails is told and tried again next time.
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
    }

    /// The heads of all logs that continue what was published of them.
    async fn heads(&self) -> Result<Vec<Head>> {
        let (mut heads, mut records) = (Vec::new(), 0);
        for tenant in self.parts.store.list_tenants().await? {
            let Some(found) = self.parts.store.find_head(&tenant).await? else { continue };
            records += found.tree.size();
            if found.tree.size() == 0 {
                continue;
            }
            let head = Head {
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

    /// Whether a head's log still begins with the tree that was published last.
    async fn continues(&self, head: &Head) -> Result<bool> {
        let mut published = self.published.lock().await;
        if let Some((size, root)) = published.get(&head.log_id) {
            let well = head.size >= *size
                && tree::root(&*self.parts.store, &head.tenant, *size).await? == Some(*root);
            if !well {
                self.parts.metrics.forks.inc();
                tracing::error!(
                    log = head.log_id,
                    published = size,
                    now = head.size,
                    "this log is not the continuation of what was published of it: it was cut or rewritten"
                );
                return Ok(false);
            }
        }
        published.insert(head.log_id.clone(), (head.size, head.root));
        Ok(true)
    }

    /// Gives a place the heads that it does not have.
    async fn serve(&self, target: &Target, heads: &[Head]) {
        let kind = target.place.kind();
        let count =
            |outcome| self.parts.metrics.published.with_label_values(&[kind, outcome]).inc();
        let mut has = target.has.lock().await;
        for head in heads {
            if has.get(&head.log_id) == Some(&head.size) {
                continue;
            }
            match target.place.put(&self.parts, head).await {
                Ok(()) => {
                    count("published");
                    has.insert(head.log_id.clone(), head.size);
                    let now = self.parts.clock.now().0 / 1_000_000;
                    self.parts.metrics.last.with_label_values(&[kind]).set(now);
                }
                Err(PutError::Refused(why)) => {
                    count("refused");
                    tracing::error!(log = head.log_id, place = %target.place, why, "a tree head was refused");
                }
                Err(PutError::Away(why)) => {
                    count("failed");
                    tracing::warn!(place = %target.place, why, "tree heads could not be published; they will be");
                    return;
                }
            }
        }
    }
}
