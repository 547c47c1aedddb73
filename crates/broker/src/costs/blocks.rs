//! Sums of whole blocks of the log, as many as fit.

use std::ops::Range;
use std::sync::Arc;

use handoffd_domain::ids::{Micros, TenantId};
use handoffd_evidence::costs::CostTable;
use moka::future::Cache;

/// Lines of remembered sums, all blocks together: some 16 MB.
const MAX_LINES: u64 = 65_536;

/// The sums of one block, all of its days, edges and agents.
pub(super) struct Block {
    pub(super) sums: CostTable,
    first: Micros,
    last: Micros,
}

impl Default for Block {
    fn default() -> Self {
        Self { sums: CostTable::default(), first: Micros(i64::MAX), last: Micros(i64::MIN) }
    }
}

impl Block {
    /// Notes the time of one of its records.
    pub(super) fn note(&mut self, at: Micros) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }

    /// Whether each of its records is within the window.
    pub(super) fn is_within(&self, window: Range<Micros>) -> bool {
        window.start <= self.first && self.last < window.end
    }
}

/// Remembered blocks by tenant and first record.
pub(super) struct Blocks {
    cache: Cache<(TenantId, i64), Arc<Block>>,
    size: i64,
}

impl Blocks {
    /// Blocks of `size` records, at least one.
    pub(super) fn new(size: i64) -> Self {
        let weight = |block: &Arc<Block>| u32::try_from(block.sums.size()).unwrap_or(u32::MAX);
        let cache = Cache::builder()
            .max_capacity(MAX_LINES)
            .weigher(move |_, block| weight(block).saturating_add(1))
            .build();
        Self { cache, size: size.max(1) }
    }

    /// The end of the block that has `place`: the first record of the next one.
    pub(super) const fn end(&self, place: i64) -> i64 {
        (place / self.size + 1) * self.size
    }

    /// Whether a block begins at `place`, all of which a log of `size` records has.
    pub(super) const fn is_whole(&self, place: i64, size: i64) -> bool {
        place % self.size == 0 && place + self.size <= size
    }

    pub(super) async fn find(&self, tenant: &TenantId, first: i64) -> Option<Arc<Block>> {
        self.cache.get(&(tenant.clone(), first)).await
    }

    pub(super) async fn remember(&self, tenant: &TenantId, first: i64, block: Arc<Block>) {
        self.cache.insert((tenant.clone(), first), block).await;
    }
}
