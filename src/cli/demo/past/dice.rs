//! Numbers that follow from a seed: the past is the same in each demo, but for its dates.

use std::fmt::Write as _;

/// A generator after Steele, Lea and Flood ("SplitMix").
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        let drawn = self.next() % u64::from(end.max(1));
        u32::try_from(drawn).unwrap_or(0)
    }

    /// So many hexadecimal digits, not all of them 0.
    pub(super) fn hex(&mut self, digits: usize) -> String {
        let mut out = String::from("1");
        while out.len() < digits {
            let _ = write!(out, "{:016x}", self.next());
        }
        out.truncate(digits);
        out
    }

    /// A UUID of version 4.
    pub(super) fn id(&mut self) -> String {
        let high = u128::from(self.next()) << 64;
        let bytes = (high | u128::from(self.next())).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same() {
        let (mut one, mut other) = (Dice::of(41), Dice::of(41));
        assert_eq!((one.id(), one.hex(32)), (other.id(), other.hex(32)));
        assert_eq!(one.hex(16).len(), 16);
        assert!((0..100).all(|_| one.below(7) < 7));
        assert_eq!(one.below(0), 0);
    }
}
