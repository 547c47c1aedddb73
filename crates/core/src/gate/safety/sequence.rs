//! Concepts in order: `override 30 prior 24 instruction` is a word of the first concept, within 30
//! bytes of the reading one of the second, within 24 more one of the third.
//!
//! A slot names one concept or several with `/` between them. Before it, `^` asks for the beginning of a
//! clause, `^^` for that of a line and `^^^` for that of a line near the beginning of the text; after it, `"`
//! asks for a quotation to follow and `:` for a colon.
//! The machine keeps the latest way to each slot of each sequence, and a bit for each slot that was reached
//! not long ago, so that a word costs as much as there are slots that wait for it.

use std::collections::BTreeMap;

use super::lexicon::{Languages, Lexicon, MAX_CONCEPTS, MAX_WORDS, WordMatch};
use super::normalize::fold;
use super::reading::Reading;

/// Gap where none is given, in bytes of the reading.
const GAP: u32 = 32;

/// What the end of a sentence between two words adds to their distance.
const SENTENCE: u32 = 16;

/// What the end of a line adds.
const LINE: u32 = 4;

/// What an empty line adds.
const PARAGRAPH: u32 = 40;

/// Words further apart than this need no look at what stands between them.
const FAR: usize = 400;

/// That a slot was reached is remembered for one to two times this, in bytes of the reading: longer than
/// the widest gap and the longest entry.
const EPOCH: u32 = 512;

/// What counts as the beginning of a text, in bytes: a heading, and the first line.
const BEGINNING: usize = 160;

/// What may stand between a negation and the word whose sense it turns, in bytes.
const NEGATED: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Anywhere,
    Clause,
    Line,
    Beginning,
}

/// What a negation before the first word of a sequence does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrecedingNegation {
    /// Nothing.
    Anything,
    /// The sequence does not begin.
    NoNegation,
    /// Only then it begins, and counts once a word of it is of another language than the negation.
    Negation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FollowingMark {
    Anything,
    Quotation,
    Colon,
}

#[derive(Debug, Clone)]
struct SequenceSlot {
    concepts: u128,
    gap: u32,
    at: At,
    then: FollowingMark,
}

/// A sequence cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sequence {0:?} cannot be read: {1:?} is no concept")]
pub struct SequenceError(String, String);

#[derive(Debug, Clone)]
struct SequenceStep {
    slot: SequenceSlot,
    rule: u16,
    first: bool,
    last: bool,
    after: PrecedingNegation,
}

/// All sequences of all rules.
#[derive(Debug, Default)]
pub struct SequenceMachine {
    steps: Vec<SequenceStep>,
    /// For each concept, the steps that take it.
    takes: Vec<StepSet>,
    /// Those that begin a sequence.
    firsts: StepSet,
    /// Over how many words a sequence can reach.
    pub(super) reach: u32,
    negation: u128,
    lead: u128,
    /// Words through which a negation reaches the next, and the languages they do so in.
    carriers: BTreeMap<String, Languages>,
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
}

#[derive(Debug, Clone, Copy, Default)]
struct StepProgress {
    start: usize,
    end: usize,
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

/// What a scan remembers; kept from text to text, so that a short one costs nothing to begin.
#[derive(Debug, Default)]
pub struct ScanMemory {
    /// How far each step got; means something where the step after it waits.
    progress: Vec<StepProgress>,
    waiting: Vec<WaitingSteps>,
    /// Readings that are free.
    pub(super) readings: Vec<Reading>,
}

/// Which of 64 steps wait for a word.
#[derive(Debug, Clone, Copy, Default)]
struct WaitingSteps {
    all: u64,
    /// Those whose step before was reached in this epoch.
    lately: u64,
}

impl SequenceMachine {
    /// For words of this lexicon. `negation` and `lead` (words that may stand before an imperative) are
    /// concepts with a meaning of their own, where the lexicon has them.
    #[must_use]
    pub fn new(lexicon: &Lexicon) -> Self {
        let concept = |name| lexicon.concept(name).unwrap_or(0);
        Self {
            takes: vec![StepSet::default(); MAX_CONCEPTS],
            firsts: StepSet::default(),
            reach: 0,
            negation: concept("negation"),
            lead: concept("lead"),
            carriers: BTreeMap::new(),
            steps: Vec::new(),
        }
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
            let rest = word.trim_start_matches('^');
            let at = match word.len() - rest.len() {
                0 => At::Anywhere,
                1 => At::Clause,
                2 => At::Line,
                _ => At::Beginning,
            };
            let (then, names) = match (rest.strip_suffix('"'), rest.strip_suffix(':')) {
                (Some(names), _) => (FollowingMark::Quotation, names),
                (None, Some(names)) => (FollowingMark::Colon, names),
                (None, None) => (FollowingMark::Anything, rest),
            };
            let mut concepts = 0;
            for name in names.split('/') {
                concepts |= lexicon
                    .concept(name)
                    .ok_or_else(|| SequenceError(text.to_owned(), name.to_owned()))?;
            }
            slots.push(SequenceSlot { concepts, gap, at, then });
            gap = GAP;
        }
        // Two bytes of the reading are a word and its border at least.
        let reach = slots.iter().map(|slot| slot.gap / 2 + MAX_WORDS as u32).sum();
        self.reach = self.reach.max(reach);
        if plain {
            self.chain(rule, slots.clone(), PrecedingNegation::Negation);
        }
        self.chain(
            rule,
            slots,
            if plain { PrecedingNegation::NoNegation } else { PrecedingNegation::Anything },
        );
        Ok(())
    }

    fn chain(&mut self, rule: usize, slots: Vec<SequenceSlot>, after: PrecedingNegation) {
        let last = slots.len().saturating_sub(1);
        for (index, slot) in slots.into_iter().enumerate() {
            let step = self.steps.len();
            for (bit, takes) in self.takes.iter_mut().enumerate() {
                if slot.concepts >> bit & 1 == 1 {
                    takes.push(step);
                }
            }
            let (first, last) = (index == 0, index == last);
            if first {
                self.firsts.push(step);
            }
            self.steps.push(SequenceStep { slot, rule: rule as u16, first, last, after });
        }
    }

    /// Begins a text; in one that was closed up, any word may begin a clause.
    #[must_use]
    pub fn begin<'a>(
        &'a self,
        text: &'a str,
        closed_up: bool,
        memory: &'a mut ScanMemory,
    ) -> SequenceRun<'a> {
        memory.progress.resize(self.steps.len(), StepProgress::default());
        memory.waiting.resize(word_and_bit(self.steps.len()).0 + 1, WaitingSteps::default());
        let mut run = SequenceRun {
            machine: self,
            text,
            memory,
            closed_up,
            epoch: EPOCH,
            broken: (usize::MAX, 0),
            negation: None,
            led: None,
            work: 0,
        };
        run.forget();
        run.forget();
        run
    }
}

/// The machine on its way through one text.
#[derive(Debug)]
pub struct SequenceRun<'a> {
    machine: &'a SequenceMachine,
    text: &'a str,
    memory: &'a mut ScanMemory,
    closed_up: bool,
    /// Where this epoch ends.
    epoch: u32,
    /// What breaks add between the word that ends here and the one at hand.
    broken: (usize, u32),
    negation: Option<Negation>,
    led: Option<u32>,
    /// Steps tried and bytes looked at, for the proof that both grow with the text only.
    pub work: u64,
}

impl SequenceRun<'_> {
    /// Takes a word; words come in the order of their ends. `fired` is told of each sequence it completes.
    pub fn take(&mut self, hit: &WordMatch, mut fired: impl FnMut(SequenceMatch)) {
        self.broken.0 = usize::MAX;
        if hit.from > self.epoch {
            self.epoch = hit.from + EPOCH;
            self.forget();
        }
        let machine = self.machine;
        let mut left = hit.concepts;
        while left != 0 {
            let concept = left.trailing_zeros() as usize;
            left &= left - 1;
            // Later steps first: what a word reached does not wait for that same word.
            for (word, takes) in machine.takes[concept].0.iter().rev() {
                let mut waiting = takes & self.memory.waiting[*word].all;
                while waiting != 0 {
                    let bit = waiting.ilog2();
                    waiting ^= 1 << bit;
                    self.work += 1;
                    self.step(word * u64::BITS as usize + bit as usize, hit, &mut fired);
                }
            }
        }
        if hit.concepts & machine.negation != 0 {
            self.negation = Some(Negation { end: hit.end, languages: hit.languages });
        }
        if hit.concepts & machine.lead != 0 {
            self.led = Some(hit.to);
        }
    }

    fn step(&mut self, index: usize, hit: &WordMatch, fired: &mut impl FnMut(SequenceMatch)) {
        let step = &self.machine.steps[index];
        let (start, negated) = if step.first {
            let negated = match step.after {
                PrecedingNegation::Anything => 0,
                PrecedingNegation::NoNegation | PrecedingNegation::Negation => self.negated(hit),
            };
            if (step.after == PrecedingNegation::Negation) != (negated != 0) {
                return;
            }
            (hit.start, negated)
        } else {
            let before = self.memory.progress[index - 1];
            if hit.from < before.to {
                return;
            }
            let distance = hit.from - before.to;
            if distance > step.slot.gap
                || distance + self.breaks(before.end, hit.start) > step.slot.gap
            {
                return;
            }
            (before.start, before.negated & hit.languages)
        };
        if !self.stands(step.slot.at, hit) || !self.followed(step.slot.then, hit) {
            return;
        }
        if step.last {
            if negated == 0 {
                fired(SequenceMatch { rule: step.rule, start });
            }
        } else {
            self.memory.progress[index] = StepProgress { start, end: hit.end, to: hit.to, negated };
            let (word, bit) = word_and_bit(index + 1);
            let waiting = &mut self.memory.waiting[word];
            waiting.all |= bit;
            waiting.lately |= bit;
        }
    }

    /// The languages in which a negation turns the sense of a word: it stands before it in its clause, with
    /// nothing but words that carry it on between them. Where words have no borders none is told from the
    /// end of another word.
    fn negated(&self, hit: &WordMatch) -> Languages {
        let Some(negation) = self.negation.filter(|_| !self.closed_up) else { return 0 };
        if negation.end >= hit.start || hit.start - negation.end > NEGATED {
            return 0;
        }
        // A line's end, a stop, a dash and a bracket all end a clause.
        let between = self.text.get(negation.end..hit.start).unwrap_or(".");
        let words = between.split([' ', '\t', '*', '_']).filter(|word| !word.is_empty());
        words.fold(negation.languages & hit.languages, |languages, word| {
            let carried = self.machine.carriers.get(&word.to_lowercase());
            languages & carried.copied().unwrap_or(0)
        })
    }

    /// Begins an epoch: only what was reached in the last one still waits.
    fn forget(&mut self) {
        for waiting in &mut self.memory.waiting {
            *waiting = WaitingSteps { all: waiting.lately, lately: 0 };
        }
        for (word, firsts) in &self.machine.firsts.0 {
            self.memory.waiting[*word].all |= firsts;
        }
    }

    /// What the ends of lines, sentences and paragraphs between two places add to their distance.
    fn breaks(&mut self, from: usize, until: usize) -> u32 {
        if self.broken.0 == from {
            return self.broken.1;
        }
        let between = self.text.as_bytes().get(from..until).unwrap_or_default();
        let mut added = 0;
        if between.len() > FAR {
            added = PARAGRAPH;
        } else {
            self.work += between.len() as u64 / 8;
            let mut previous = b'a';
            for (at, byte) in between.iter().enumerate() {
                match byte {
                    b'.' | b'!' | b'?'
                        if between.get(at + 1).is_none_or(u8::is_ascii_whitespace) =>
                    {
                        added += SENTENCE;
                    }
                    b'\n' if previous == b'\n' => added += PARAGRAPH,
                    b'\n' => added += LINE,
                    _ => {}
                }
                if !matches!(byte, b' ' | b'\r' | b'\t') {
                    previous = *byte;
                }
            }
        }
        self.broken = (from, added);
        added
    }

    fn stands(&self, at: At, hit: &WordMatch) -> bool {
        if at == At::Anywhere || self.closed_up {
            return true;
        }
        if at == At::Beginning && hit.start > BEGINNING {
            return false;
        }
        if at == At::Clause && self.led.is_some_and(|to| hit.from.saturating_sub(to) <= 1) {
            return true;
        }
        let before = &self.text.as_bytes()[hit.start.saturating_sub(12)..hit.start];
        for (back, byte) in before.iter().rev().enumerate() {
            match byte {
                b' ' | b'\t' | b'*' | b'_' | b'#' | b'>' | b'"' | b'\'' | b'`' | b'(' | b'['
                | b'{' | b'<' | b'-' | b'=' | b'|' => {}
                b'\n' | b'\r' => return true,
                b'n' | b'r'
                    if before.len() > back + 1 && before[before.len() - back - 2] == b'\\' =>
                {
                    return true;
                }
                b'.' | b'!' | b'?' | b':' | b';' | b',' | b']' | b'}' | b')' => {
                    return at == At::Clause;
                }
                _ => {
                    let signs = &before[before.len() - back..];
                    let until = &self.text.as_bytes()[..hit.start - back];
                    let dash = ["—", "–", "―"].iter().any(|dash| until.ends_with(dash.as_bytes()));
                    return at == At::Clause
                        && (dash
                            || signs.windows(3).any(|three| three == b" - ")
                            || signs.iter().any(|byte| {
                                matches!(byte, b'"' | b'>' | b'|' | b'`' | b'(' | b'[')
                            }));
                }
            }
        }
        hit.start <= 12
    }

    fn followed(&self, then: FollowingMark, hit: &WordMatch) -> bool {
        if then == FollowingMark::Anything {
            return true;
        }
        let after = &self.text.as_bytes()[hit.end..(hit.end + 6).min(self.text.len())];
        for byte in after {
            match byte {
                b' ' | b'*' => {}
                b':' => {
                    if then == FollowingMark::Colon {
                        return true;
                    }
                }
                b'"' | b'\'' | b'`' | b'<' | 0xe2 | 0xc2 => {
                    return then == FollowingMark::Quotation;
                }
                b'\\' | b',' if then == FollowingMark::Quotation => {}
                _ => return false,
            }
        }
        false
    }
}
