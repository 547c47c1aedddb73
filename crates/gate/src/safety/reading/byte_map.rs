//! A bit for each byte of a text, in which the next one and the next gap are found 64 bytes at a time.

use super::BLOCK;

/// One bit for each byte of a text, and at least a block of none behind them.
#[derive(Debug, Default)]
pub(super) struct ByteMap(pub(super) Vec<u64>);

impl ByteMap {
    pub(super) fn begin(&mut self, length: usize) {
        self.0.clear();
        self.0.reserve(length / BLOCK + 2);
    }

    pub(super) fn clear(&mut self, at: usize) {
        self.0[at / BLOCK] &= !(1 << (at % BLOCK));
    }

    /// The first place from `at` on with a bit.
    #[inline]
    pub(super) fn next(&self, at: usize) -> Option<usize> {
        let mut block = at / BLOCK;
        let mut bits = self.0.get(block)? & (!0 << (at % BLOCK));
        while bits == 0 {
            block += 1;
            bits = *self.0.get(block)?;
        }
        Some(block * BLOCK + bits.trailing_zeros() as usize)
    }

    /// The first place from `at` on without one.
    #[inline]
    pub(super) fn next_gap(&self, at: usize) -> usize {
        let mut block = at / BLOCK;
        let mut gaps = !self.0[block] & (!0 << (at % BLOCK));
        while gaps == 0 {
            block += 1;
            gaps = !self.0[block];
        }
        block * BLOCK + gaps.trailing_zeros() as usize
    }

    /// The bits of a block at which runs begin.
    pub(super) fn starts(&self, block: usize) -> u64 {
        let bits = self.0[block];
        let before = block.checked_sub(1).map_or(0, |before| self.0[before] >> (BLOCK - 1));
        bits & !(bits << 1 | before)
    }

    /// The 64 places from `at` on.
    pub(super) fn from(&self, at: usize) -> u64 {
        let (block, bit) = (at / BLOCK, at % BLOCK);
        let low = self.0.get(block).map_or(0, |bits| bits >> bit);
        let high = self.0.get(block + 1).map_or(0, |bits| bits << 1 << (BLOCK - 1 - bit));
        low | high
    }
}
