//! Entries of languages without spaces between words, found anywhere in a text.
//!
//! Each entry is found by its first character beyond ASCII and what comes behind that: a filter tells of most places of a text
//! that no entry is there, by two look-ups a character. Only where it does not, entries are compared. (An automaton over
//! all bytes took 90 to 180 instructions a byte here, five sixths of them on characters that begin no entry.)

use std::collections::BTreeMap;
use std::ops::Range;

use super::EntrySense;
use crate::safety::reading::SPREAD;
use crate::safety::words::NumberMap;

/// Bits of the filter, as a power of two: 16 KiB.
const FILTER: u32 = 17;

/// Any character, or none, behind another.
const ANYTHING: u32 = u32::MAX;

/// The highest bit of each of eight bytes.
const HIGH: u64 = 0x8080_8080_8080_8080;

#[derive(Debug)]
pub(super) struct UnspacedMatcher {
    /// A bit for each character that begins entries with what comes behind it; always right where it has none.
    filter: Box<[u64]>,
    /// (character, what comes behind it) to its entries.
    index: NumberMap,
    entries: Vec<Vec<UnspacedEntry>>,
}

#[derive(Debug)]
pub(super) struct UnspacedEntry {
    pub(super) sense: EntrySense,
    /// As read.
    key: Box<[u8]>,
    /// Bytes before its first character beyond ASCII.
    lead: usize,
}

impl UnspacedEntry {
    /// Bytes as read.
    pub(super) const fn length(&self) -> u32 {
        self.key.len() as u32
    }
}

impl UnspacedMatcher {
    /// For entries as read, each of which has a character beyond ASCII.
    pub(super) fn new(entries: BTreeMap<String, EntrySense>) -> Self {
        let mut filter = vec![0; 1 << (FILTER - u64::BITS.ilog2())].into_boxed_slice();
        let mut gathered: Vec<Vec<UnspacedEntry>> = Vec::new();
        let mut places = BTreeMap::new();
        for (key, sense) in entries {
            let key = key.into_bytes().into_boxed_slice();
            let Some(lead) = key.iter().position(|byte| !byte.is_ascii()) else { continue };
            let (first, length) = symbol(&key[lead..]);
            let behind = &key[lead + length..];
            let behind = if behind.is_empty() { ANYTHING } else { symbol(behind).0 };
            let pair = pair(first, behind);
            let (word, bit) = place(pair);
            filter[word] |= bit;
            let at = *places.entry(pair).or_insert(gathered.len() as u32);
            if at as usize == gathered.len() {
                gathered.push(Vec::new());
            }
            gathered[at as usize].push(UnspacedEntry { sense, key, lead });
        }
        Self { filter, index: NumberMap::new(&places), entries: gathered }
    }

    /// The entries whose first character beyond ASCII is in a stretch of a text, as it is read, any run of borders for a
    /// space; in the order of their ends, of those that end together the longest first.
    pub(super) fn each(
        &self,
        read: &[u8],
        stretch: Range<usize>,
    ) -> Vec<(&UnspacedEntry, Range<usize>)> {
        let mut matches = Vec::new();
        let mut at = stretch.start;
        while let Some(next) = beyond_ascii(&read[..stretch.end], at) {
            let (first, length) = symbol(&read[next..]);
            at = next + length;
            let behind = read.get(at..).filter(|rest| !rest.is_empty()).map(|rest| symbol(rest).0);
            for pair in [pair(first, ANYTHING), pair(first, behind.unwrap_or(ANYTHING))] {
                let (word, bit) = place(pair);
                if self.filter[word] & bit != 0 {
                    self.compare(pair, read, next, &mut matches);
                }
                if behind.is_none() {
                    break;
                }
            }
        }
        matches.sort_by_key(|(_, at)| (at.end, at.start));
        matches
    }

    /// Compares the entries of a pair with a text that has it at `at`.
    #[cold]
    fn compare<'m>(
        &'m self,
        pair: u64,
        read: &[u8],
        at: usize,
        found: &mut Vec<(&'m UnspacedEntry, Range<usize>)>,
    ) {
        let Some(index) = self.index.get(pair) else { return };
        for entry in &self.entries[index as usize] {
            let (lead, rest) = entry.key.split_at(entry.lead);
            if let Some(start) = backwards(lead, read, at)
                && let Some(end) = onwards(rest, read, at)
            {
                found.push((entry, start..end));
            }
        }
    }
}

/// The place of the first byte beyond ASCII from `at` on.
#[inline]
fn beyond_ascii(read: &[u8], mut at: usize) -> Option<usize> {
    while let Some(eight) = read.get(at..).and_then(<[u8]>::first_chunk) {
        let high = u64::from_le_bytes(*eight) & HIGH;
        if high != 0 {
            return Some(at + (high.trailing_zeros() / u8::BITS) as usize);
        }
        at += size_of::<u64>();
    }
    read.get(at..)?.iter().position(|byte| !byte.is_ascii()).map(|more| at + more)
}

/// The character with which bytes begin, any border as a space, and its length. Bytes that are cut within a character are one.
#[inline]
fn symbol(bytes: &[u8]) -> (u32, usize) {
    match *bytes {
        [first @ ..0x80, ..] => (u32::from(first.max(b' ')), 1),
        [first @ ..0xe0, second, ..] => (u32::from_be_bytes([0, 0, first, second]), 2),
        [first @ ..0xf0, second, third, ..] => (u32::from_be_bytes([0, first, second, third]), 3),
        [first, second, third, fourth, ..] => {
            (u32::from_be_bytes([first, second, third, fourth]), 4)
        }
        [first, ..] => (u32::from(first), 1),
        [] => (u32::from(b' '), 0),
    }
}

const fn pair(first: u32, behind: u32) -> u64 {
    (first as u64) << 32 | behind as u64
}

/// Which word of the filter, and which bit of it.
const fn place(pair: u64) -> (usize, u64) {
    let hash = pair.wrapping_mul(SPREAD);
    let bit = hash >> (u64::BITS - FILTER);
    ((bit >> 6) as usize, 1 << (bit & 63))
}

/// The place behind an entry that begins at `at`.
fn onwards(entry: &[u8], read: &[u8], mut at: usize) -> Option<usize> {
    for want in entry {
        let have = *read.get(at)?;
        if have.max(b' ') != *want {
            return None;
        }
        at += 1;
        while *want == b' ' && read.get(at).is_some_and(|next| *next <= b' ') {
            at += 1;
        }
    }
    Some(at)
}

/// The place where an entry begins that ends before `at`.
fn backwards(entry: &[u8], read: &[u8], mut at: usize) -> Option<usize> {
    for want in entry.iter().rev() {
        at = at.checked_sub(1)?;
        if read[at].max(b' ') != *want {
            return None;
        }
        while *want == b' ' && at > 0 && read[at - 1] <= b' ' {
            at -= 1;
        }
    }
    Some(at)
}
