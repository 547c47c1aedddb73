//! Words by number: exact ones by their hash, stems by their first bytes, most words ruled out by a
//! filter.

use std::collections::BTreeMap;

use super::reading::{SPREAD, head};

/// Words of 64 bits in the filter, as a power of two: 32 KiB, in which one word of prose in a hundred
/// passes that is none of the lexicon's.
const FILTER: u32 = 12;

/// Most numbers one word can have: its own, and those of stems it begins with.
const MAX_IDS: usize = 4;

/// The rest of a word, and what it is.
type StemEntry = (Box<[u8]>, u32);

/// All words of the lexicon's entries.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// How entries begin: with one word that is all of it, or with a first and a second.
    begins: WordFilter,
    exact: BTreeMap<u64, u32>,
    index: NumberMap,
    /// By their heads.
    by_beginning: BTreeMap<u32, Vec<StemEntry>>,
    beginnings: NumberMap,
    stems: Vec<Vec<StemEntry>>,
    words: Vec<Box<[u8]>>,
    /// The same in the order of their letters, each after its [`first_letters`].
    sorted: Vec<(u64, Box<[u8]>)>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct WordNumbers {
    ids: [u32; MAX_IDS],
    count: usize,
}

/// How the lexicon knows a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownWord {
    pub exact: bool,
    pub stem: bool,
    /// Whether it begins a word or a stem, or is one.
    pub begins: bool,
}

impl WordNumbers {
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
        let free = self.words.len() as u32;
        let id = *self.exact.entry(hash).or_insert(free);
        if id == free {
            self.words.push(word.into());
        }
        (*self.words[id as usize] == *word).then_some(id)
    }

    /// The number of a stem; `None` if it is too short.
    pub(super) fn add_stem(&mut self, stem: &[u8]) -> Option<u32> {
        let beginning = (stem.len() >= Self::STEM).then(|| head(stem))?;
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
        self.index = NumberMap::new(&self.exact);
        let mut beginnings = BTreeMap::new();
        for (beginning, stems) in &self.by_beginning {
            beginnings.insert(u64::from(*beginning), self.stems.len() as u32);
            self.stems.push(stems.clone());
        }
        self.beginnings = NumberMap::new(&beginnings);
        let words = self.words.iter();
        self.sorted = words.map(|word| (first_letters(word), word.clone())).collect();
        self.sorted.sort_unstable();
    }

    /// The numbers of a word with these letters; `key` is its hash and its head.
    pub(super) fn look(&self, (hash, head): (u64, u32), letters: &[u8]) -> WordNumbers {
        let mut seen = WordNumbers::default();
        if let Some(id) = self.index.get(hash)
            && same(&self.words[id as usize], letters)
        {
            seen.push(id);
        }
        if let Some(at) = self.beginnings.get(u64::from(head)) {
            for (stem, id) in &self.stems[at as usize] {
                if letters.starts_with(stem) {
                    seen.push(*id);
                }
            }
        }
        seen
    }

    /// Whether it is a word of some entry, whether some stem begins it, and whether it begins either.
    pub(super) fn knows(&self, key: (u64, u32), letters: &[u8]) -> KnownWord {
        let word = self.index.get(key.0).map(|id| &self.words[id as usize]);
        let exact = word.is_some_and(|word| same(word, letters));
        let stem = self.look(key, letters).count > usize::from(exact);
        KnownWord { exact, stem, begins: self.begins_with(letters) }
    }

    /// Whether a word or a stem begins with these letters.
    fn begins_with(&self, letters: &[u8]) -> bool {
        let first = first_letters(letters);
        let from = self.sorted.partition_point(|(known, _)| *known < first);
        // Only the high bits are compared, those of the given letters: sorted words with one beginning are neighbours.
        let free = u64::BITS.saturating_sub(u8::BITS * letters.len() as u32);
        let same = |known: &u64| (known ^ first).checked_shr(free).unwrap_or(0) == 0;
        let mut words = self.sorted[from..].iter().take_while(|(known, _)| same(known));
        words.any(|(_, word)| word.starts_with(letters))
    }

    /// How many numbers there are.
    pub(super) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    /// Marks how an entry begins: with one word that is all of it (its hash; of a stem, its head), or
    /// with a first (its hash) and a second (its head).
    pub(super) fn begin(&mut self, first: u64, second: Option<u32>) {
        self.begins.mark(second.map_or(first, |second| pair(first, second)));
    }

    /// Whether the word with this hash and head may be an entry by itself, and whether one may begin with
    /// the word of the hash `last` and this one after it. Always right where it says no.
    #[inline]
    pub(super) fn may_begin(&self, last: u64, (hash, head): (u64, u32)) -> (bool, bool) {
        let alone = self.begins.has(hash) | self.begins.has(u64::from(head));
        (alone, self.begins.has(pair(last, head)))
    }
}

/// The first eight letters of a word as a number that sorts as they do.
fn first_letters(word: &[u8]) -> u64 {
    let mut first = [0; size_of::<u64>()];
    let length = word.len().min(first.len());
    first[..length].copy_from_slice(&word[..length]);
    u64::from_be_bytes(first)
}

/// Whether two words of one hash are the same: up to eight letters are their hash.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.len() <= size_of::<u64>() || one == other)
}

const fn pair(first: u64, second: u32) -> u64 {
    first.wrapping_mul(SPREAD).rotate_left(29) ^ second as u64
}

/// A set of numbers that is always right where it says no: two bits of one word of 64 for each.
#[derive(Debug)]
struct WordFilter(Box<[u64; 1 << FILTER]>);

impl Default for WordFilter {
    #[expect(clippy::large_stack_arrays, reason = "once, when the rules are loaded")]
    fn default() -> Self {
        Self(Box::new([0; 1 << FILTER]))
    }
}

impl WordFilter {
    /// Which word, and which bits of it.
    const fn place(key: u64) -> (usize, u64, u64) {
        let hash = key.wrapping_mul(SPREAD);
        ((hash >> (u64::BITS - FILTER)) as usize, hash >> 40 & 63, hash >> 46 & 63)
    }

    fn mark(&mut self, key: u64) {
        let (word, one, other) = Self::place(key);
        self.0[word] |= 1 << one | 1 << other;
    }

    #[inline]
    fn has(&self, key: u64) -> bool {
        let (word, one, other) = Self::place(key);
        (self.0[word] >> one & self.0[word] >> other) & 1 != 0
    }
}

/// A map from numbers to numbers that does not change: open addressing, half full at most. A look-up
/// touches little memory, so that the map stays in a near cache; the keys themselves are only read where a
/// tag fits.
#[derive(Debug, Default)]
pub(super) struct NumberMap {
    /// Part of the key's hash, and the value; a free one has the value [`FREE`].
    slots: Vec<(u32, u32)>,
    keys: Vec<u64>,
    shift: u32,
}

const FREE: u32 = u32::MAX;

impl NumberMap {
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
