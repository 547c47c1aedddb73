//! Words by number: exact ones by their hash, stems by their first bytes, most words ruled out by a bit.

use std::collections::BTreeMap;

/// Bits of each map that rules words out, as a power of two; 8 KiB, which stay in the nearest cache.
const BITS: u32 = 16;

/// Most numbers one word can have: its own, and those of stems it begins with.
const MAX_IDS: usize = 4;

/// Spreads a hash over the high bits (2^64 divided by the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The rest of a word, and what it is.
type Entry = (Box<[u8]>, u32);

/// The words of all entries.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// Words that may be among them.
    bits: Box<[u64]>,
    /// Words that may be an entry by themselves.
    alone: Box<[u64]>,
    /// Pairs of words that may begin a longer one.
    pairs: Box<[u64]>,
    exact: BTreeMap<u64, u32>,
    index: Index,
    /// By their first [`Self::STEM`] bytes.
    by_beginning: BTreeMap<u32, Vec<Entry>>,
    beginnings: Index,
    stems: Vec<Vec<Entry>>,
    words: Vec<Box<[u8]>>,
}

impl Default for Vocabulary {
    fn default() -> Self {
        Self {
            bits: vec![0; 1 << (BITS - 6)].into_boxed_slice(),
            alone: vec![0; 1 << (BITS - 6)].into_boxed_slice(),
            pairs: vec![0; 1 << (BITS - 6)].into_boxed_slice(),
            exact: BTreeMap::new(),
            index: Index::default(),
            by_beginning: BTreeMap::new(),
            beginnings: Index::default(),
            stems: Vec::new(),
            words: Vec::new(),
        }
    }
}

/// The numbers of one word.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    ids: [u32; MAX_IDS],
    count: usize,
}

impl Seen {
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids[..self.count]
    }

    fn push(&mut self, id: u32) {
        if let Some(slot) = self.ids.get_mut(self.count) {
            *slot = id;
            self.count += 1;
        }
    }
}

impl Vocabulary {
    /// Shortest stem, in bytes.
    pub(super) const STEM: usize = 4;

    /// The number of a word with this hash; `None` if another word has that hash.
    pub(super) fn add(&mut self, hash: u64, word: &[u8]) -> Option<u32> {
        mark(&mut self.bits, hash);
        let free = self.words.len() as u32;
        let id = *self.exact.entry(hash).or_insert(free);
        if id == free {
            self.words.push(word.into());
        }
        (*self.words[id as usize] == *word).then_some(id)
    }

    /// The number of a stem; `None` if it is too short.
    pub(super) fn add_stem(&mut self, stem: &[u8]) -> Option<u32> {
        let beginning = beginning(stem)?;
        mark(&mut self.bits, u64::from(beginning));
        let free = self.words.len() as u32;
        let stems = self.by_beginning.entry(beginning).or_default();
        if let Some((_, id)) = stems.iter().find(|(known, _)| **known == *stem) {
            return Some(*id);
        }
        stems.push((stem.into(), free));
        self.words.push(stem.into());
        Some(free)
    }

    /// Makes what [`Self::look`] goes by; after the last word was added.
    pub(super) fn compile(&mut self) {
        self.index = Index::new(&self.exact);
        let mut beginnings = BTreeMap::new();
        for (beginning, stems) in &self.by_beginning {
            beginnings.insert(u64::from(*beginning), self.stems.len() as u32);
            self.stems.push(stems.clone());
        }
        self.beginnings = Index::new(&beginnings);
    }

    /// The numbers of a word, as read.
    pub(super) fn look(&self, hash: u64, word: &[u8]) -> Seen {
        let mut seen = Seen::default();
        if marked(&self.bits, hash)
            && let Some(id) = self.index.get(hash)
            && *self.words[id as usize] == *word
        {
            seen.push(id);
        }
        if let Some(beginning) = beginning(word)
            && marked(&self.bits, u64::from(beginning))
            && let Some(at) = self.beginnings.get(u64::from(beginning))
        {
            for (stem, id) in &self.stems[at as usize] {
                if word.starts_with(stem) {
                    seen.push(*id);
                }
            }
        }
        seen
    }

    /// Marks how an entry begins: with one word that is all of it, or with a first and a second. Each is
    /// a word's hash, or the first bytes of a stem.
    pub(super) fn begin(&mut self, first: u64, second: Option<u64>) {
        match second {
            Some(second) => mark(&mut self.pairs, pair(first, second)),
            None => mark(&mut self.alone, first),
        }
    }

    /// Whether a word may be an entry by itself; always right where it says no.
    pub(super) fn may_stand_alone(&self, hash: u64, word: &[u8]) -> bool {
        marked(&self.alone, hash)
            || beginning(word).is_some_and(|first| marked(&self.alone, u64::from(first)))
    }

    /// Whether an entry may begin with two words, the first of this hash; always right where it says no.
    pub(super) fn may_begin(&self, first: u64, hash: u64, word: &[u8]) -> bool {
        marked(&self.pairs, pair(first, hash))
            || beginning(word).is_some_and(|second| marked(&self.pairs, pair(first, second.into())))
    }
}

const fn pair(first: u64, second: u64) -> u64 {
    first.wrapping_mul(SPREAD).rotate_left(29) ^ second
}

fn mark(bits: &mut [u64], hash: u64) {
    let bit = spread(hash);
    bits[bit >> 6] |= 1 << (bit & 63);
}

fn marked(bits: &[u64], hash: u64) -> bool {
    let bit = spread(hash);
    bits[bit >> 6] >> (bit & 63) & 1 == 1
}

fn spread(hash: u64) -> usize {
    (hash.wrapping_mul(SPREAD) >> (64 - BITS)) as usize
}

/// A word's first bytes, by which stems are found.
pub(super) fn beginning(word: &[u8]) -> Option<u32> {
    word.first_chunk().map(|first| u32::from_le_bytes(*first))
}

/// A map from numbers to numbers that does not change: open addressing, half full at most. What a look-up
/// touches is small, so that it stays in a near cache; the keys themselves are only read where a tag fits.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Part of the key's hash, and the value; a free one has the value [`FREE`].
    slots: Vec<(u32, u32)>,
    keys: Vec<u64>,
    shift: u32,
}

const FREE: u32 = u32::MAX;

impl Index {
    pub(super) fn new(entries: &BTreeMap<u64, u32>) -> Self {
        let size = (2 * entries.len() + 2).next_power_of_two();
        let shift = 64 - size.trailing_zeros();
        let mut index = Self { slots: vec![(0, FREE); size], keys: vec![0; size], shift };
        for (key, value) in entries {
            let (mut at, tag) = index.first(*key);
            while index.slots[at].1 != FREE {
                at = (at + 1) % size;
            }
            index.slots[at] = (tag, *value);
            index.keys[at] = *key;
        }
        index
    }

    pub(super) fn get(&self, key: u64) -> Option<u32> {
        let (mut at, tag) = self.first(key);
        loop {
            let (known, value) = *self.slots.get(at)?;
            if value == FREE {
                return None;
            }
            if known == tag && self.keys[at] == key {
                return Some(value);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    const fn first(&self, key: u64) -> (usize, u32) {
        let hash = key.wrapping_mul(SPREAD);
        ((hash >> (self.shift & 63)) as usize, (hash >> 16) as u32)
    }
}
