//! The words that rules speak of, by concept and language, and the one pass that finds them.
//!
//! The pass goes over a text as `Reading` has it, every run of white space and punctuation as one space.
//! So words may be split over lines or set in any markup, and distances between words, counted in that
//! reading, are not stretched by padding. Each word is looked up by its hash, first in a small filter that
//! rules most words out, then among the words that begin or continue an entry; so a word costs the same
//! whatever it is. Entries of languages without spaces between words are looked up at each character.

use std::collections::{BTreeMap, BTreeSet};

use aho_corasick::MatchError;

use super::normalize;
use super::reading::{READ, hash, head, is_letter};
use super::words::{KnownWord, NumberMap, Vocabulary};

mod anywhere;
mod build;
mod pass;
mod unspaced;

use anywhere::SubstringMatcher;
use build::{EntryTree, GatheredSense, SenseTable, only, reading, shifted};
use unspaced::UnspacedMatcher;

/// More concepts than this are too many for a `ConceptSet`.
pub const MAX_CONCEPTS: usize = 384;

/// Longest entry as read, in bytes.
const MAX_ENTRY: usize = 60;

/// Most entries that may be under way at once: as many as the longest has words.
pub(super) const MAX_WORDS: usize = 10;

/// Languages without spaces between words, or whose words take attached particles: entries are found
/// anywhere.
const UNSPACED: [&str; 9] = ["ar", "bn", "fa", "he", "hi", "ja", "ko", "th", "zh"];

/// A set of languages, a bit each, in the order of their codes.
pub type Languages = u32;

/// A set of concepts, a bit each, in the order of their names.
pub(super) type ConceptSet = [u64; MAX_CONCEPTS / 64];

/// The concepts whose words are told by their form and not by an entry; a lexicon that has none of these names does
/// not look for them.
const FORMS: [&str; 3] = ["mail-address", "amount", "number"];

/// A word of the lexicon at its place in a text.
#[derive(Debug, Clone, Copy)]
pub struct WordMatch {
    /// The concepts it can mean, as the number of that set in the lexicon.
    pub sense: u16,
    pub languages: Languages,
    /// First byte in the text.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
    /// The offset of its first byte in the reading.
    pub from: u32,
    /// The offset behind its last byte in the reading.
    pub to: u32,
}

#[derive(Debug, Clone, Copy)]
pub enum LexiconMatch {
    Word(WordMatch),
    /// A word after a shift of the alphabet by so many letters, and its first byte.
    Shifted(u8, usize),
    /// A word written backwards, and its first byte.
    Backwards(usize),
}

/// The meaning of an entry, and its languages.
#[derive(Debug, Clone, Copy, Default)]
struct EntrySense {
    sense: u16,
    languages: Languages,
}

#[derive(Debug, Clone)]
enum Meaning {
    Concepts(EntrySense),
    /// Only if the text contains exactly this, whose first letter is at the offset.
    Exact(EntrySense, Box<str>, usize),
    Shift(u8),
    Backwards,
}

/// Words by concept, compiled.
#[derive(Debug)]
pub struct Lexicon {
    names: BTreeMap<String, u16>,
    /// Codes of the languages, in order.
    languages: Vec<String>,
    vocabulary: Vocabulary,
    /// (node, word) to node, of the tree whose paths are the entries' words; node 0 is the root.
    paths: NumberMap,
    /// For each word, the node it leads to from the root.
    roots: Vec<Option<u32>>,
    /// The index of the first meaning of the entries that end at each node.
    nodes: Vec<u32>,
    meanings: Vec<Meaning>,
    /// Entries of languages without spaces, found anywhere.
    anywhere: UnspacedMatcher,
    /// All words without borders, for text whose spaces cannot be trusted.
    closed_up: SubstringMatcher,
    senses: Vec<ConceptSet>,
    /// The meaning of each of [`FORMS`], if the lexicon has one.
    forms: [Option<EntrySense>; FORMS.len()],
}

/// Why a lexicon cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum LexiconError {
    /// Too many concepts or languages.
    #[error("not under {MAX_CONCEPTS} concepts, or over {} languages", Languages::BITS)]
    Size,
    /// An entry that nothing could match, too long a one, or too short a stem.
    #[error(
        "the entry {0:?} is empty, a stem of under four bytes, or over {MAX_ENTRY} bytes or {MAX_WORDS} words"
    )]
    Entry(String),
    /// The automaton cannot be built.
    #[error("the words do not compile: {0}")]
    Build(#[from] aho_corasick::BuildError),
    /// The automaton cannot be run.
    #[error("the words cannot be searched: {0}")]
    Search(#[from] MatchError),
}

/// Concept, then language, then entries. An entry matches whole words; one ending in
/// `*`, words that begin so; one beginning with `=`, exactly that text, punctuation and all.
pub type Words = BTreeMap<String, BTreeMap<String, Vec<String>>>;

impl Lexicon {
    /// Compiles words; `anchors` (separated by `|`) are those that are also looked for under a shift of
    /// the alphabet and backwards.
    ///
    /// # Errors
    /// [`LexiconError`].
    pub fn new(words: &Words, anchors: &str) -> Result<Self, LexiconError> {
        if words.len() >= MAX_CONCEPTS {
            return Err(LexiconError::Size);
        }
        let mut names = BTreeMap::new();
        let mut spaced: BTreeMap<String, GatheredSense> = BTreeMap::new();
        let mut anywhere: BTreeMap<String, GatheredSense> = BTreeMap::new();
        let mut exact: Vec<(EntrySense, String)> = Vec::new();
        let mut senses = SenseTable::default();
        let codes: BTreeSet<&String> = words.values().flat_map(BTreeMap::keys).collect();
        let codes: Vec<String> = codes.into_iter().cloned().collect();
        if codes.len() > Languages::BITS as usize {
            return Err(LexiconError::Size);
        }
        let mut tree = EntryTree::default();
        for (index, (concept, languages)) in words.iter().enumerate() {
            names.insert(concept.clone(), index as u16);
            for (language, entries) in languages {
                let place = codes.partition_point(|code| code < language);
                let sense = GatheredSense { concepts: only(index), languages: 1 << place };
                let unspaced = UNSPACED.contains(&language.as_str());
                for entry in entries {
                    let read = reading(entry.strip_prefix('=').unwrap_or(entry), entry)?;
                    if let Some(literal) = entry.strip_prefix('=') {
                        let lead = literal.bytes().take_while(|b| !is_letter(*b)).count();
                        let sense = senses.entry(sense);
                        tree.add(&read, Meaning::Exact(sense, literal.into(), lead))?;
                        exact.push((sense, literal.replace(' ', "")));
                    } else if unspaced && !read.is_ascii() {
                        anywhere.entry(read).or_default().add(sense);
                    } else {
                        spaced.entry(read).or_default().add(sense);
                    }
                }
            }
        }
        let mut numbered =
            |gathered: BTreeMap<String, GatheredSense>| -> BTreeMap<String, EntrySense> {
                gathered.into_iter().map(|(read, sense)| (read, senses.entry(sense))).collect()
            };
        let (spaced, anywhere) = (numbered(spaced), numbered(anywhere));
        let borderless = spaced
            .iter()
            .chain(&anywhere)
            .map(|(read, sense)| (read.replace([' ', '*'], ""), *sense))
            .filter(|(read, _)| read.len() > 2);
        let borderless: BTreeMap<String, EntrySense> = borderless.collect();
        let closed_up = SubstringMatcher::new(borderless, exact)?;
        for (read, sense) in &spaced {
            tree.add(read, Meaning::Concepts(*sense))?;
        }
        for anchor in anchors.split('|').filter(|anchor| !anchor.is_empty()) {
            for shift in 1..26 {
                let shifted: String = anchor.chars().map(|c| shifted(c, shift)).collect();
                tree.add(&shifted, Meaning::Shift(shift))?;
            }
            let backwards: String = anchor.chars().rev().collect();
            tree.add(&backwards, Meaning::Backwards)?;
        }
        tree.vocabulary.compile();
        let mut meanings = Vec::new();
        let mut nodes = Vec::with_capacity(tree.nodes.len() + 1);
        for node in tree.nodes {
            nodes.push(meanings.len() as u32);
            meanings.extend(node);
        }
        nodes.push(meanings.len() as u32);
        let root = |word| tree.paths.get(&path(0, word)).copied();
        let forms = FORMS.map(|name| {
            let concepts = names.get(name).map(|index| only(usize::from(*index)))?;
            Some(senses.entry(GatheredSense { concepts, languages: Languages::MAX }))
        });
        Ok(Self {
            names,
            languages: codes,
            roots: (0..tree.vocabulary.len()).map(root).collect(),
            vocabulary: tree.vocabulary,
            paths: NumberMap::new(&tree.paths),
            nodes,
            meanings,
            anywhere: UnspacedMatcher::new(anywhere),
            closed_up,
            senses: senses.sets,
            forms,
        })
    }

    /// The number of a concept.
    #[must_use]
    pub fn concept(&self, name: &str) -> Option<usize> {
        self.names.get(name).map(|index| usize::from(*index))
    }

    /// The sets of concepts that words have, by [`WordMatch::sense`].
    pub(super) fn senses(&self) -> &[ConceptSet] {
        &self.senses
    }

    /// The bit of a language.
    pub(super) fn language(&self, code: &str) -> Option<Languages> {
        self.languages.binary_search_by(|known| known.as_str().cmp(code)).ok().map(|at| 1 << at)
    }

    /// How a word is known, whatever it means.
    pub(super) fn knows(&self, word: &str) -> KnownWord {
        let folded = normalize::fold(word);
        let word = folded.as_ref().map_or(word, |view| view.text.as_str());
        let letters: Vec<u8> = word.bytes().map(|byte| READ[usize::from(byte)]).collect();
        self.vocabulary.knows((hash(&letters), head(&letters)), &letters)
    }

    fn meanings(&self, node: u32) -> &[Meaning] {
        let (from, to) = (self.nodes[node as usize], self.nodes[node as usize + 1]);
        &self.meanings[from as usize..to as usize]
    }
}

/// A step in the tree of entries, as a key.
const fn path(node: u32, word: u32) -> u64 {
    (node as u64) << 32 | word as u64
}
