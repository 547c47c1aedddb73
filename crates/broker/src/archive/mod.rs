//! The cold tier: contents of old records move from the database into segments in a folder or a
//! bucket, and are read from there as if they had never moved. Records themselves stay.
//!
//! `archivist.rs` moves, `forget.rs` forgets, `sweeper.rs` has it run, `contents.rs` reads, `objects.rs` is the place of segments, a folder or a bucket (`bucket.rs`, with the feature `s3`). The format of a segment is
//! `evidence::segment`; what the database knows of places is `store::cold`.

use std::sync::Arc;

use crate::config::Config;
use crate::metrics::ArchiveMetrics;
use handoffd_store::clock::Clock;
use handoffd_store::store::Store;

mod archivist;
#[cfg(feature = "s3")]
mod bucket;
mod contents;
mod error;
mod forget;
mod objects;
mod sweeper;

pub use archivist::{ArchiveCounts, ArchiveRun, ArchiveSettings, Archivist};
pub use contents::{ContentState, Contents, opened, unavailable};
pub use error::ArchiveError;
pub use objects::Bucket;
pub(crate) use sweeper::repeat;
pub use sweeper::{cutoff, sweep};

/// One archive, opened at its first use.
#[derive(Debug, Clone)]
pub struct Archive {
    objects: Arc<objects::Objects>,
    cache_bytes: usize,
    settings: ArchiveSettings,
}

impl Archive {
    /// The archive named by the settings. `environment` holds the credentials of a bucket (`AWS_…`).
    ///
    /// # Errors
    /// [`ArchiveError::Config`] where the settings are invalid.
    pub fn new(
        config: &Config,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ArchiveError> {
        Ok(Self {
            objects: Arc::new(objects::Objects::new(config, environment)?),
            cache_bytes: config.retention.cache_bytes,
            settings: ArchiveSettings {
                records: config.retention.segment_records,
                bytes: config.retention.segment_bytes,
            },
        })
    }

    /// A reader of hot and cold contents.
    #[must_use]
    pub fn contents(&self, store: Arc<Store>) -> Contents {
        Contents::new(store, Arc::clone(&self.objects), self.cache_bytes)
    }

    /// An archiver for that store's contents.
    #[must_use]
    pub fn archivist(
        &self,
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        metrics: ArchiveMetrics,
    ) -> Archivist {
        let objects = Arc::clone(&self.objects);
        Archivist { store, objects, clock, metrics, settings: self.settings }
    }
}
