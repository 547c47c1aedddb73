//! The words that rules speak of, by concept and language, and the one pass that finds them.
//!
//! The pass goes over a text as `Reading` has it, every run of white space and punctuation as one space.
//! So words may be split over lines or set in any markup, and distances between words, counted in that
//! reading, are not stretched by padding. Each word is looked up by its hash, first in a small filter that
//! rules most words out, then among the words that begin or continue an entry; so a word costs the same
//! whatever it is. Languages without spaces between words are searched by an automaton.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use aho_corasick::automaton::Automaton as _;
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, MatchError};

use super::normalize;
use super::reading::{READ, Reading, ReadingWord, hash, head, is_letter};
use super::words::{NumberMap, Vocabulary};

/// More concepts than this are too many for a `ConceptSet`.
pub const MAX_CONCEPTS: usize = 256;

/// Longest entry as read, in bytes.
const MAX_ENTRY: usize = 60;

/// Most entries that may be under way at once: as many as the longest has words.
pub(super) const MAX_WORDS: usize = 10;

/// How far from a word another one beside it is looked for, in bytes.
const BESIDE: usize = 16;

/// Languages without spaces between words, or whose words take attached particles: entries are found
/// anywhere.
const UNSPACED: [&str; 9] = ["ar", "bn", "fa", "he", "hi", "ja", "ko", "th", "zh"];

/// A set of languages, a bit each, in the order of their codes.
pub type Languages = u32;

/// A set of concepts, a bit each, in the order of their names.
pub(super) type ConceptSet = [u64; MAX_CONCEPTS / 64];

/// Digits of a number that names a thing, such as an account.
const NUMBER: u32 = 4;

/// The concepts whose words are told by their form and not by an entry; a lexicon that has none of these names does
/// not look for them.
const FORMS: [&str; 3] = ["mail-address", "amount", "number"];

/// A word of the lexicon where it stands in a text.
#[derive(Debug, Clone, Copy)]
pub struct WordMatch {
    /// The concepts it can mean, as the number of that set in the lexicon.
    pub sense: u16,
    pub languages: Languages,
    /// First byte in the text.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
    /// Where it begins in the reading.
    pub from: u32,
    /// Where it ends in the reading.
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

/// The same while entries are gathered.
#[derive(Debug, Clone, Copy, Default)]
struct GatheredSense {
    concepts: ConceptSet,
    languages: Languages,
}

impl GatheredSense {
    fn add(&mut self, other: Self) {
        for (own, other) in self.concepts.iter_mut().zip(other.concepts) {
            *own |= other;
        }
        self.languages |= other.languages;
    }
}

/// The sets of concepts that words have, by number.
#[derive(Debug, Default)]
struct SenseTable {
    sets: Vec<ConceptSet>,
    numbers: BTreeMap<ConceptSet, u16>,
}

impl SenseTable {
    fn entry(&mut self, gathered: GatheredSense) -> EntrySense {
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
fn only(index: usize) -> ConceptSet {
    let mut set = ConceptSet::default();
    set[index / 64] = 1 << (index % 64);
    set
}

#[derive(Debug, Clone)]
enum Meaning {
    Concepts(EntrySense),
    /// Only where the text has exactly this, whose first letter stands at the offset.
    Exact(EntrySense, Box<str>, usize),
    Shift(u8),
    Backwards,
}

/// Words by concept, compiled.
#[derive(Debug)]
pub struct Lexicon {
    names: BTreeMap<String, u8>,
    /// Codes of the languages, in order.
    languages: Vec<String>,
    vocabulary: Vocabulary,
    /// (node, word) to node, of the tree whose paths are the entries' words; node 0 is the root.
    paths: NumberMap,
    /// For each word, the node it leads to from the root.
    roots: Vec<Option<u32>>,
    /// Where the meanings of the entries that end at each node begin.
    nodes: Vec<u32>,
    meanings: Vec<Meaning>,
    /// Entries of languages without spaces, found anywhere.
    anywhere: SubstringMatcher,
    /// All words without borders, for text whose spaces cannot be trusted.
    closed_up: SubstringMatcher,
    senses: Vec<ConceptSet>,
    /// What each of [`FORMS`] means, where the lexicon has it.
    forms: [Option<EntrySense>; FORMS.len()],
}

/// An automaton that finds patterns anywhere.
#[derive(Debug)]
struct SubstringMatcher {
    nfa: NFA,
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    sense: EntrySense,
    length: u32,
    /// Only where the text has exactly this.
    exact: Option<String>,
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
            names.insert(concept.clone(), index as u8);
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
            anywhere: SubstringMatcher::new(anywhere, Vec::new())?,
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

    fn meanings(&self, node: u32) -> &[Meaning] {
        let (from, to) = (self.nodes[node as usize], self.nodes[node as usize + 1]);
        &self.meanings[from as usize..to as usize]
    }

    /// Tells `found` of every word in that stretch of `text`, in the order of their ends. `reading` is
    /// that text, read.
    pub(super) fn read(
        &self,
        text: &str,
        reading: &mut Reading,
        stretch: Range<usize>,
        mut found: impl FnMut(LexiconMatch),
    ) {
        let bytes = text.as_bytes();
        let mut anywhere = Vec::new();
        if !text.is_ascii() {
            let keep = |pattern: &Pattern, at| anywhere.push((pattern.sense, pattern.length, at));
            self.anywhere.each_spaced(reading.bytes(), keep);
        }
        let mut anywhere = anywhere.as_slice();
        let signs = reading.signs().to_vec();
        let mut signs = &signs[signs.partition_point(|at| *at < stretch.start)..];
        let mut ways = [[EntryProgress::default(); MAX_WORDS]; 2];
        let [mut now, mut next] = ways.each_mut();
        // How many entries are under way.
        let mut count = 0;
        let mut last = ReadingWord::none(stretch.start);
        let mut place = 1_u32;
        while let Some(word) = reading.word(bytes, last.end)
            && word.start < stretch.end
        {
            let (from, to) = (place, place + word.length);
            while let Some((sense, length, at)) = anywhere.first()
                && at.start < word.end
            {
                anywhere = &anywhere[1..];
                let Range { start, end } = *at;
                let EntrySense { sense, languages } = *sense;
                // One that began words ago comes late where a shorter one of this word ends before it.
                let ago = word.start.saturating_sub(start) as u32;
                let from = (from + start.saturating_sub(word.start) as u32).saturating_sub(ago);
                let to = from + length;
                found(LexiconMatch::Word(WordMatch { sense, languages, start, end, from, to }));
            }
            if bytes[word.start].is_ascii_digit() || signs.first().is_some_and(|at| *at < word.end)
            {
                let passed = signs.partition_point(|at| *at < word.end);
                let own = signs[..passed].last().copied().filter(|at| *at >= word.start);
                signs = &signs[passed..];
                if let Some(EntrySense { sense, languages }) = self.form(bytes, &word, own) {
                    let (start, end) = (word.start, word.end);
                    found(LexiconMatch::Word(WordMatch { sense, languages, start, end, from, to }));
                }
            }
            let (alone, pair) = self.vocabulary.may_begin(last.hash, word.key());
            if alone || pair || count > 0 {
                // A longer one is no word of any entry, but may begin like a stem.
                let seen = self.vocabulary.look(word.key(), reading.letters(&word, MAX_ENTRY));
                let mut kept = 0;
                let mut go = |way: EntryProgress| {
                    for id in seen.ids() {
                        let Some(node) = self.paths.get(path(way.node, *id)) else { continue };
                        for meaning in self.meanings(node) {
                            meaning.tell(bytes, way.start..word.end, (way.from, to), &mut found);
                        }
                        if let Some(slot) = next.get_mut(kept) {
                            *slot = EntryProgress { node, ..way };
                            kept += 1;
                        }
                    }
                };
                now[..count].iter().copied().for_each(&mut go);
                if pair {
                    let from = place - 1 - last.length;
                    let first = self.vocabulary.look(last.key(), reading.letters(&last, MAX_ENTRY));
                    for node in first.ids().iter().filter_map(|id| self.roots[*id as usize]) {
                        go(EntryProgress { node, start: last.start, from });
                    }
                }
                if alone {
                    for node in seen.ids().iter().filter_map(|id| self.roots[*id as usize]) {
                        for meaning in self.meanings(node) {
                            meaning.tell(bytes, word.start..word.end, (from, to), &mut found);
                        }
                    }
                }
                count = kept;
                std::mem::swap(&mut now, &mut next);
            }
            last = word;
            place = to + 1;
        }
    }

    /// What a word means by its form; `sign` is the last `@` or `$` in it.
    #[cold]
    fn form(&self, text: &[u8], word: &ReadingWord, sign: Option<usize>) -> Option<EntrySense> {
        let [mail, amount, number] = self.forms;
        let digit = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
        match sign {
            Some(at) if text[at] == b'@' => {
                let named = at > word.start && at + 1 < word.end;
                mail.filter(|_| named && text.get(word.end) == Some(&b'.'))
            }
            Some(at) => amount.filter(|_| digit(at + 1)),
            None => {
                let digits = text[word.start..word.end].iter().all(u8::is_ascii_digit);
                number.filter(|_| digits && word.length >= NUMBER)
            }
        }
    }

    /// The same for a text whose spaces say nothing.
    pub(super) fn read_closed_up(
        &self,
        text: &str,
        reading: &Reading,
        mut found: impl FnMut(WordMatch),
    ) {
        self.closed_up.each_closed_up(text.as_bytes(), reading.bytes(), |sense, start, end| {
            let (from, to) = (start as u32, end as u32);
            let EntrySense { sense, languages } = sense;
            found(WordMatch { sense, languages, start, end, from, to });
        });
    }
}

/// An entry that is under way after a word: as far as its node, from a first byte on, which has a place
/// in the reading.
#[derive(Debug, Clone, Copy, Default)]
struct EntryProgress {
    node: u32,
    from: u32,
    start: usize,
}

/// A step in the tree of entries, as a key.
const fn path(node: u32, word: u32) -> u64 {
    (node as u64) << 32 | word as u64
}

impl Meaning {
    fn tell(
        &self,
        text: &[u8],
        at: Range<usize>,
        (from, to): (u32, u32),
        found: &mut impl FnMut(LexiconMatch),
    ) {
        let (start, end) = (at.start, at.end);
        match self {
            Self::Concepts(EntrySense { sense, languages }) => {
                if is_word(text, at) {
                    let (sense, languages) = (*sense, *languages);
                    found(LexiconMatch::Word(WordMatch { sense, languages, start, end, from, to }));
                }
            }
            Self::Exact(EntrySense { sense, languages }, literal, lead) => {
                let Some(begin) = start.checked_sub(*lead) else { return };
                let before = begin.checked_sub(1).map(|before| text[before]);
                let apart = *lead == 0
                    || before.is_none_or(|before| {
                        !before.is_ascii_alphanumeric() || text[start - lead] == b'.'
                    });
                if apart && spelled(literal, &text[begin..]) && is_word(text, at) {
                    let (sense, languages) = (*sense, *languages);
                    found(LexiconMatch::Word(WordMatch { sense, languages, start, end, from, to }));
                }
            }
            Self::Shift(shift) => found(LexiconMatch::Shifted(*shift, start)),
            Self::Backwards => found(LexiconMatch::Backwards(start)),
        }
    }
}

/// The tree of the entries' words in the making.
#[derive(Default)]
struct EntryTree {
    vocabulary: Vocabulary,
    paths: BTreeMap<u64, u32>,
    nodes: Vec<Vec<Meaning>>,
}

impl EntryTree {
    /// Adds an entry as read: words with a space between them, the last perhaps with `*`.
    fn add(&mut self, read: &str, meaning: Meaning) -> Result<(), LexiconError> {
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

impl SubstringMatcher {
    /// For entries as read, and for some that the text must have to the letter.
    fn new(
        entries: BTreeMap<String, EntrySense>,
        exact: Vec<(EntrySense, String)>,
    ) -> Result<Self, LexiconError> {
        let read = |literal: &str| literal.bytes().map(|byte| READ[usize::from(byte)]).collect();
        let keys: Vec<Vec<u8>> = entries
            .keys()
            .map(|entry| entry.clone().into_bytes())
            .chain(exact.iter().map(|(_, literal)| read(literal)))
            .collect();
        let nfa = NFA::builder().prefilter(false).build(&keys)?;
        nfa.start_state(Anchored::No)?;
        let meanings = entries
            .into_values()
            .map(|sense| (sense, None))
            .chain(exact.into_iter().map(|(sense, literal)| (sense, Some(literal))));
        let patterns = meanings
            .zip(&keys)
            .map(|((sense, exact), key)| Pattern { sense, length: key.len() as u32, exact })
            .collect();
        Ok(Self { nfa, patterns })
    }

    /// Tells of each pattern in a text whose spaces say nothing, as it is read: its sense, start, end.
    fn each_closed_up(
        &self,
        text: &[u8],
        read: &[u8],
        mut found: impl FnMut(EntrySense, usize, usize),
    ) {
        self.each(read.iter().copied().enumerate(), |pattern, end| {
            let start = end - pattern.length as usize;
            if pattern.exact.as_ref().is_none_or(|exact| spelled(exact, &text[start..])) {
                found(pattern.sense, start, end);
            }
        });
    }

    /// Tells of each pattern in a text, as it is read, any run of borders for a space.
    fn each_spaced(&self, read: &[u8], mut found: impl FnMut(&Pattern, Range<usize>)) {
        let repeats = |at: usize| at > 0 && read[at].max(read[at - 1]) <= b' ';
        let mut last = b'a';
        let once = read.iter().enumerate().filter_map(|(at, byte)| {
            let byte = (*byte).max(b' ');
            let repeated = byte == b' ' && last == b' ';
            last = byte;
            (!repeated).then_some((at, byte))
        });
        self.each(once, |pattern, end| {
            let mut start = end;
            for _ in 0..pattern.length {
                start -= 1;
                while repeats(start) {
                    start -= 1;
                }
            }
            found(pattern, start..end);
        });
    }

    /// Tells of each pattern in bytes that come with their places, and the place behind it.
    fn each(
        &self,
        read: impl Iterator<Item = (usize, u8)>,
        mut found: impl FnMut(&Pattern, usize),
    ) {
        let Ok(mut state) = self.nfa.start_state(Anchored::No) else { return };
        for (at, byte) in read {
            state = self.nfa.next_state(Anchored::No, state, byte);
            if self.nfa.is_match(state) {
                for index in 0..self.nfa.match_len(state) {
                    let id = self.nfa.match_pattern(state, index);
                    found(&self.patterns[id.as_usize()], at + 1);
                }
            }
        }
    }
}

/// Whether a text begins with exactly this: any white space for a space, small letters of the entry in
/// either case and as the digits that pass for them.
#[cold]
fn spelled(literal: &str, text: &[u8]) -> bool {
    let capital = literal.bytes().any(|byte| byte.is_ascii_uppercase());
    let mut text = text;
    for want in literal.bytes() {
        let Some((have, rest)) = text.split_first() else { return false };
        let passes = have.is_ascii_digit() && READ[usize::from(*have)] == want;
        text = match want {
            b' ' if have.is_ascii_whitespace() => rest.trim_ascii_start(),
            _ if *have == want || !capital && (have.eq_ignore_ascii_case(&want) || passes) => rest,
            _ => return false,
        };
    }
    true
}

/// Digits pass for letters only beside letters: `1n57ruct10n` is a word, `14` is one only beside another
/// word like that.
fn is_word(text: &[u8], at: Range<usize>) -> bool {
    !text[at.clone()].iter().any(u8::is_ascii_digit) || passes_for_word(text, at)
}

#[cold]
fn passes_for_word(text: &[u8], at: Range<usize>) -> bool {
    let count = |word: &[u8]| {
        let digits = word.iter().filter(|byte| byte.is_ascii_digit()).count();
        let letters =
            word.iter().filter(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii()).count();
        (letters, digits)
    };
    let (letters, digits) = count(&text[at.clone()]);
    if letters > 0 && letters + digits >= 4 {
        return true;
    }
    let passes = |word: &[u8]| {
        let (letters, digits) = count(word);
        letters > 0
            && digits > 0
            && letters + digits >= 3
            && word.iter().all(|byte| !READ[usize::from(*byte)].is_ascii_digit())
    };
    let border = |byte: &u8| !byte.is_ascii_alphanumeric();
    let before = &text[at.start.saturating_sub(BESIDE)..at.start];
    let after = &text[at.end..text.len().min(at.end + BESIDE)];
    let before = before.split_last().and_then(|(_, before)| before.rsplit(border).next());
    let after = after.split_first().and_then(|(_, after)| after.split(border).next());
    before.is_some_and(passes) || after.is_some_and(passes)
}

/// An entry as the pass reads it: words with one space between them, the last perhaps with `*`.
fn reading(text: &str, entry: &str) -> Result<String, LexiconError> {
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

fn shifted(letter: char, shift: u8) -> char {
    match letter {
        'a'..='z' => char::from((letter as u8 - b'a' + shift) % 26 + b'a'),
        other => other,
    }
}
