//! Concepts in order: `override 30 prior 24 instruction` is a word of the first concept, within 30
//! bytes of the reading one of the second, within 24 more one of the third.
//!
//! A slot names one concept or several with `/` between them. Before it, `^` asks for the beginning of a
//! clause, `^^` for that of a line and `^^^` for that of a line near the beginning of the text; after it, `"`
//! asks for a quotation to follow and `:` for a colon. `+` before a slot asks for nothing but spaces between it and the
//! slot before: one clause goes on. `~` asks for nothing but words and commas between them: one sentence goes on. `!`
//! asks for a word before it in its clause.
//! Sequences that begin alike share their first steps: the machine is a tree. It keeps the latest way to each step,
//! and a bit for each step whose step before was reached not long ago, so that a word costs as much as there are
//! steps that wait for it.

use std::collections::BTreeMap;

use super::lexicon::{ConceptSet, Languages, Lexicon, MAX_CONCEPTS, MAX_WORDS, WordMatch};
use super::normalize::fold;
use super::reading::Reading;

mod possible;
mod run;

use possible::{PossibleSteps, SlottedSequence, Telling};
pub use run::SequenceRun;

/// Gap where none is given, in bytes of the reading.
const GAP: u32 = 32;

/// The byte between the texts of neighbouring fields that are read as one. Begins a line, and is not
/// counted as distance.
pub(super) const SEAM: u8 = b'\x0c';

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    /// Another word is before it in its clause.
    Within,
    Anywhere,
    Clause,
    Line,
    Beginning,
}

impl At {
    /// Whether a slot takes a word that begins `place`, at most.
    fn allows(self, place: Self) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Within => place == Self::Anywhere,
            _ => place >= self,
        }
    }
}

/// The effect of a negation before the first word of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PrecedingNegation {
    Anything,
    /// The sequence does not begin.
    NoNegation,
    /// Only then it begins, and counts once a word of it is of another language than the negation.
    Negation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FollowingMark {
    Anything,
    Quotation,
    Colon,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SequenceSlot {
    gap: u32,
    link: Link,
    at: At,
    then: FollowingMark,
}

/// The text that a link allows between a slot and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Link {
    Anything,
    /// Spaces and emphasis.
    Spaces,
    /// Words and commas of one sentence, outside of quotations.
    Sentence,
}

/// A sequence cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sequence {0:?} cannot be read: {1:?} is not a concept")]
pub struct SequenceError(String, String);

/// A sequence as it was added.
#[derive(Debug)]
struct Sequence {
    rule: u16,
    after: PrecedingNegation,
    slots: Vec<(ConceptSet, SequenceSlot)>,
}

impl Sequence {
    fn slotted(&self) -> SlottedSequence {
        SlottedSequence {
            slots: self.slots.iter().map(|(concepts, _)| *concepts).collect(),
            gaps: self.slots.iter().map(|(_, slot)| slot.gap).sum(),
            steps: Vec::new(),
        }
    }
}

/// One slot of the sequences that are alike up to it. A word reads each step that waits for its concepts, so a step has
/// only what that reading needs.
#[derive(Debug)]
struct SequenceStep {
    slot: SequenceSlot,
    /// The step before; none where sequences begin.
    before: Option<u16>,
    after: PrecedingNegation,
    /// Those that wait for the next word once this one was reached.
    next: StepSet,
    /// Sequences that end here.
    ends: Vec<SequenceEnd>,
}

/// The end of a sequence.
#[derive(Debug, Clone, Copy)]
struct SequenceEnd {
    /// In the order in which sequences were added.
    sequence: u16,
    rule: u16,
}

/// All sequences of all rules.
#[derive(Debug, Default)]
pub struct SequenceMachine {
    /// Those that were added; [`Self::compile`] makes steps of them.
    sequences: Vec<Sequence>,
    /// A step has a higher number than the one before it.
    steps: Vec<SequenceStep>,
    /// For each sense of the lexicon, the steps that take a word of it.
    takes: Vec<SenseSteps>,
    /// Those that begin a sequence.
    firsts: StepSet,
    conditions: StepConditions,
    telling: Telling,
    /// How many of 10 000 words of ordinary text are words of a concept, where there are any.
    common: BTreeMap<usize, u32>,
    /// Over how many words a sequence can reach.
    pub(super) reach: u32,
    /// Words through which a negation reaches the next, and the languages they do so in.
    carriers: BTreeMap<String, Languages>,
}

/// Sets of steps, a bit a step, by which a word rules steps out before it reads them.
#[derive(Debug, Default)]
struct StepConditions {
    /// Steps whose slot asks for a place ([`SequenceSlot::at`]).
    placed: Vec<u64>,
    /// For each place of a word, in the order of [`At`], the steps whose slot does not allow it.
    misplaced: [Vec<u64>; 5],
    /// First steps that a word begins only behind a negation.
    negated: Vec<u64>,
    /// First steps that a word begins only without one.
    plain: Vec<u64>,
}

impl StepConditions {
    fn of(steps: &[SequenceStep]) -> Self {
        let set = |holds: &dyn Fn(&SequenceStep) -> bool| {
            let mut bits = vec![0; word_and_bit(steps.len()).0 + 1];
            for (index, _) in steps.iter().enumerate().filter(|(_, step)| holds(step)) {
                let (word, bit) = word_and_bit(index);
                bits[word] |= bit;
            }
            bits
        };
        let begins =
            |after| set(&move |step: &SequenceStep| step.before.is_none() && step.after == after);
        let misplaced = [At::Within, At::Anywhere, At::Clause, At::Line, At::Beginning]
            .map(|place| set(&move |step: &SequenceStep| !step.slot.at.allows(place)));
        Self {
            placed: set(&|step| step.slot.at != At::Anywhere),
            misplaced,
            negated: begins(PrecedingNegation::Negation),
            plain: begins(PrecedingNegation::NoNegation),
        }
    }

    /// Whether a negation before its word matters to some of these steps.
    fn ask_for_negation(&self, steps: &StepSet) -> bool {
        steps.0.iter().any(|(word, bits)| bits & (self.negated[*word] | self.plain[*word]) != 0)
    }
}

/// The steps of a word of one sense.
#[derive(Debug, Default)]
struct SenseSteps {
    steps: StepSet,
    /// Which words of bits have any of them ([`StepSet::words`]).
    words: u64,
    /// Whether a negation before the word matters to some of the steps.
    asks_for_negation: bool,
    negation: bool,
    lead: bool,
}

/// A set of steps, 64 to a word of bits; words without any are left out.
#[derive(Debug, Default, Clone)]
struct StepSet(Vec<(usize, u64)>);

impl StepSet {
    /// Adds a step behind all others.
    fn push(&mut self, step: usize) {
        let (word, bit) = word_and_bit(step);
        match self.0.last_mut() {
            Some((last, bits)) if *last == word => *bits |= bit,
            _ => self.0.push((word, bit)),
        }
    }

    /// Which words of bits it has, a bit each; the last bit is for all further ones.
    fn words(&self) -> u64 {
        self.0.iter().fold(0, |words, (word, _)| words | summary(*word))
    }

    /// Adds them to a row of bits.
    fn add_to(&self, row: &mut [u64]) {
        for (word, bits) in &self.0 {
            row[*word] |= bits;
        }
    }
}

/// The concepts of a set, by number.
fn concepts(set: &ConceptSet) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(word, bits)| {
        let first = word * u64::BITS as usize;
        (0..u64::BITS as usize).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first + bit)
    })
}

/// The bit of a word of bits.
const fn summary(word: usize) -> u64 {
    1 << if word < 63 { word } else { 63 }
}

const fn word_and_bit(step: usize) -> (usize, u64) {
    (step / u64::BITS as usize, 1 << (step % u64::BITS as usize))
}

/// A sequence that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceMatch {
    /// Index of the rule.
    pub rule: u16,
    /// First byte of its first word.
    pub start: usize,
    /// The byte behind its last word.
    pub end: usize,
    /// Whether it is what the rule asks for to count in full ([`super::rules::Rule::certain`]).
    pub certain: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct StepProgress {
    /// First byte of the first word, and the one behind the last.
    start: u32,
    end: u32,
    /// The end of the last word in the reading.
    to: u32,
    /// Of a negated sequence: the languages that the negation and all its words have in common.
    negated: Languages,
}

/// A negation in the text: where it ends, and its languages.
#[derive(Debug, Clone, Copy)]
struct Negation {
    end: usize,
    languages: Languages,
}

/// The memory of a scan; kept from text to text, so that a short one costs nothing to begin.
#[derive(Debug, Default)]
pub struct ScanMemory {
    /// How far each step got; means something where a step after it waits.
    progress: Vec<StepProgress>,
    waiting: Vec<WaitingSteps>,
    /// Sequences that the word at hand completes.
    completed: Vec<(u16, SequenceMatch)>,
    /// The words of the text at hand, and the steps that they make possible.
    words: Vec<WordMatch>,
    possible: PossibleSteps,
    /// Readings that are free.
    pub(super) readings: Vec<Reading>,
}

impl ScanMemory {
    /// One with which no step is ruled out before it is tried.
    #[cfg(test)]
    pub(super) fn that_tries_all() -> Self {
        let mut memory = Self::default();
        memory.possible.compare = true;
        memory
    }

    /// An empty list of words, with memory that was used before.
    pub(super) fn free_words(&mut self) -> Vec<WordMatch> {
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        words
    }

    /// Takes a list of words back.
    pub(super) fn keep_words(&mut self, words: Vec<WordMatch>) {
        self.words = words;
    }
}

/// Which of 64 steps wait for a word.
#[derive(Debug, Clone, Copy, Default)]
struct WaitingSteps {
    all: u64,
    /// Those whose step before was reached in this epoch.
    lately: u64,
}

impl SequenceMachine {
    /// Makes what a word of each sense does; after the last sequence was added. `negation` and `lead` (words that may
    /// stand before an imperative) are concepts with a meaning of their own, where the lexicon has them.
    pub(super) fn compile(&mut self, lexicon: &Lexicon) {
        let [negation, lead] = ["negation", "lead"].map(|name| lexicon.concept(name));
        let holds = |set: &ConceptSet, concept: Option<usize>| {
            concept.is_some_and(|bit| set[bit / 64] >> (bit % 64) & 1 == 1)
        };
        let mut by_concept = vec![StepSet::default(); MAX_CONCEPTS];
        let (all_concepts, slotted) = self.grow();
        for (index, set) in all_concepts.iter().enumerate() {
            concepts(set).for_each(|concept| by_concept[concept].push(index));
        }
        let conditions = StepConditions::of(&self.steps);
        let takes = lexicon.senses().iter().map(|set| {
            let mut words: BTreeMap<usize, u64> = BTreeMap::new();
            for (word, bits) in concepts(set).flat_map(|concept| &by_concept[concept].0) {
                *words.entry(*word).or_default() |= bits;
            }
            let steps = StepSet(words.into_iter().collect());
            let asks_for_negation = conditions.ask_for_negation(&steps);
            let (negation, lead) = (holds(set, negation), holds(set, lead));
            SenseSteps { words: steps.words(), steps, asks_for_negation, negation, lead }
        });
        self.takes = takes.collect();
        self.conditions = conditions;
        let mut common = vec![0; MAX_CONCEPTS];
        self.common.iter().for_each(|(concept, often)| common[*concept] = *often);
        self.telling = Telling::new(&slotted, lexicon.senses(), &common, self.steps.len());
    }

    /// Makes the tree of steps, all first ones before all second ones, and so on; gives the concepts of each, and the
    /// sequences with their steps.
    fn grow(&mut self) -> (Vec<ConceptSet>, Vec<SlottedSequence>) {
        let sequences = std::mem::take(&mut self.sequences);
        let mut all_concepts = Vec::new();
        let mut reached: Vec<Option<u16>> = vec![None; sequences.len()];
        let mut slotted: Vec<SlottedSequence> = sequences.iter().map(Sequence::slotted).collect();
        let longest = sequences.iter().map(|sequence| sequence.slots.len()).max().unwrap_or(0);
        for depth in 0..longest {
            let mut known = BTreeMap::new();
            for (number, (sequence, reached)) in sequences.iter().zip(&mut reached).enumerate() {
                let Some((concepts, slot)) = sequence.slots.get(depth) else { continue };
                let (before, after) = (*reached, sequence.after);
                let step = *known.entry((before, after, concepts, slot)).or_insert_with(|| {
                    let step = self.steps.len();
                    match before {
                        Some(before) => self.steps[usize::from(before)].next.push(step),
                        None => self.firsts.push(step),
                    }
                    let (slot, next, ends) = (*slot, StepSet::default(), Vec::new());
                    self.steps.push(SequenceStep { slot, before, after, next, ends });
                    all_concepts.push(*concepts);
                    step as u16
                });
                if depth + 1 == sequence.slots.len() {
                    let end = SequenceEnd { sequence: number as u16, rule: sequence.rule };
                    self.steps[usize::from(step)].ends.push(end);
                }
                slotted[number].steps.push(usize::from(step));
                *reached = Some(step);
            }
        }
        (all_concepts, slotted)
    }

    /// Says how many of 10 000 words of ordinary text are words of each concept: the rarest slot of a sequence tells of it.
    pub(super) fn expect(&mut self, common: &BTreeMap<String, u32>, lexicon: &Lexicon) {
        let of = |(name, often): (&String, &u32)| Some((lexicon.concept(name)?, *often));
        self.common = common.iter().filter_map(of).collect();
    }

    /// Lets negations of each language reach through these words of it: "do not *ever* ignore".
    pub(super) fn carry(&mut self, words: &BTreeMap<String, Vec<String>>, lexicon: &Lexicon) {
        for (language, words) in words {
            for word in words {
                let languages = lexicon.language(language).unwrap_or(0);
                let word = fold(word).map_or_else(|| word.clone(), |view| view.text);
                *self.carriers.entry(word).or_default() |= languages;
            }
        }
    }

    /// Adds a sequence of the rule with this index. `plain` ones do not count after a negation.
    ///
    /// # Errors
    /// [`SequenceError`] if a word of it is neither a number nor a concept.
    pub fn add(
        &mut self,
        rule: usize,
        text: &str,
        plain: bool,
        lexicon: &Lexicon,
    ) -> Result<(), SequenceError> {
        let mut slots = Vec::new();
        let mut gap = GAP;
        for word in text.split_ascii_whitespace() {
            if let Ok(number) = word.parse() {
                gap = number;
                continue;
            }
            let link = match word.as_bytes()[0] {
                b'+' => Link::Spaces,
                b'~' => Link::Sentence,
                _ => Link::Anything,
            };
            let word = word.trim_start_matches(['+', '~']);
            let rest = word.trim_start_matches(['^', '!']);
            let at = match &word[..word.len() - rest.len()] {
                "" => At::Anywhere,
                "!" => At::Within,
                "^" => At::Clause,
                "^^" => At::Line,
                _ => At::Beginning,
            };
            let (then, names) = match (rest.strip_suffix('"'), rest.strip_suffix(':')) {
                (Some(names), _) => (FollowingMark::Quotation, names),
                (None, Some(names)) => (FollowingMark::Colon, names),
                (None, None) => (FollowingMark::Anything, rest),
            };
            let mut concepts = ConceptSet::default();
            for name in names.split('/') {
                let unknown = || SequenceError(text.to_owned(), name.to_owned());
                let concept = lexicon.concept(name).ok_or_else(unknown)?;
                concepts[concept / 64] |= 1 << (concept % 64);
            }
            slots.push((concepts, SequenceSlot { gap, link, at, then }));
            gap = GAP;
        }
        // Two bytes of the reading are a word and its border at least.
        let reach = slots.iter().map(|(_, slot)| slot.gap / 2 + MAX_WORDS as u32).sum();
        self.reach = self.reach.max(reach);
        // No slot is before the first.
        if let Some((_, first)) = slots.first_mut() {
            (first.gap, first.link) = (0, Link::Anything);
        }
        let rule = rule as u16;
        let after = if plain {
            let (after, slots) = (PrecedingNegation::Negation, slots.clone());
            self.sequences.push(Sequence { rule, after, slots });
            PrecedingNegation::NoNegation
        } else {
            PrecedingNegation::Anything
        };
        self.sequences.push(Sequence { rule, after, slots });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
