//! The lexicon in the making: entries as the pass reads them, gathered by meaning and put into a tree.

use std::collections::BTreeMap;

use super::{ConceptSet, EntrySense, Languages, LexiconError, MAX_ENTRY, MAX_WORDS, Meaning, path};
use crate::safety::normalize;
use crate::safety::reading::{READ, hash, head};
use crate::safety::words::Vocabulary;

/// The same while entries are gathered.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GatheredSense {
    pub(super) concepts: ConceptSet,
    pub(super) languages: Languages,
}

impl GatheredSense {
    pub(super) fn add(&mut self, other: Self) {
        for (own, other) in self.concepts.iter_mut().zip(other.concepts) {
            *own |= other;
        }
        self.languages |= other.languages;
    }
}

/// The sets of concepts that words have, by number.
#[derive(Debug, Default)]
pub(super) struct SenseTable {
    pub(super) sets: Vec<ConceptSet>,
    numbers: BTreeMap<ConceptSet, u16>,
}

impl SenseTable {
    pub(super) fn entry(&mut self, gathered: GatheredSense) -> EntrySense {
        let GatheredSense { concepts, languages } = gathered;
        let free = self.sets.len() as u16;
        let sense = *self.numbers.entry(concepts).or_insert(free);
        if sense == free {
            self.sets.push(concepts);
        }
        EntrySense { sense, languages }
    }
}

/// The set of one concept.
pub(super) fn only(index: usize) -> ConceptSet {
    let mut set = ConceptSet::default();
    set[index / 64] = 1 << (index % 64);
    set
}

/// The tree of the entries' words in the making.
#[derive(Default)]
pub(super) struct EntryTree {
    pub(super) vocabulary: Vocabulary,
    pub(super) paths: BTreeMap<u64, u32>,
    pub(super) nodes: Vec<Vec<Meaning>>,
}

impl EntryTree {
    /// Adds an entry as read: words with a space between them, the last perhaps with `*`.
    pub(super) fn add(&mut self, read: &str, meaning: Meaning) -> Result<(), LexiconError> {
        if self.nodes.is_empty() {
            self.nodes.push(Vec::new());
        }
        let mut words = read.split(' ');
        let first = words.next().map_or(0, |word| match word.strip_suffix('*') {
            Some(stem) => u64::from(head(stem.as_bytes())),
            None => hash(word.as_bytes()),
        });
        let second = words.next().map(|word| head(word.trim_end_matches('*').as_bytes()));
        self.vocabulary.begin(first, second);
        let mut node = 0;
        for word in read.split(' ') {
            let id = match word.strip_suffix('*') {
                Some(stem) => self.vocabulary.add_stem(stem.as_bytes()),
                None => self.vocabulary.add(hash(word.as_bytes()), word.as_bytes()),
            };
            let id = id.ok_or_else(|| LexiconError::Entry(read.to_owned()))?;
            let free = self.nodes.len() as u32;
            node = *self.paths.entry(path(node, id)).or_insert(free);
            if node == free {
                self.nodes.push(Vec::new());
            }
        }
        self.nodes[node as usize].push(meaning);
        Ok(())
    }
}

/// An entry as the pass reads it: words with one space between them, the last perhaps with `*`.
pub(super) fn reading(text: &str, entry: &str) -> Result<String, LexiconError> {
    let wrong = || LexiconError::Entry(entry.to_owned());
    let folded = normalize::fold(text).map_or_else(|| text.to_owned(), |view| view.text);
    let (stem, open) = folded.strip_suffix('*').map_or((&*folded, ""), |stem| (stem, "*"));
    let read: Vec<u8> = stem.bytes().map(|byte| READ[usize::from(byte)].max(b' ')).collect();
    let read = String::from_utf8(read).map_err(|_| wrong())?;
    let words: Vec<&str> = read.split_ascii_whitespace().collect();
    let read = words.join(" ");
    let short = !open.is_empty() && words.last().is_none_or(|word| word.len() < Vocabulary::STEM);
    if words.is_empty() || words.len() > MAX_WORDS || read.len() > MAX_ENTRY || short {
        return Err(wrong());
    }
    Ok(read + open)
}

pub(super) fn shifted(letter: char, shift: u8) -> char {
    match letter {
        'a'..='z' => char::from((letter as u8 - b'a' + shift) % 26 + b'a'),
        other => other,
    }
}
