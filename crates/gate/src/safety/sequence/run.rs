//! The machine on its way through one text.

use std::cmp::Reverse;

use super::super::lexicon::{Languages, WordMatch};
use super::possible::Possible;
use super::{
    At, FollowingMark, Link, Negation, PrecedingNegation, SEAM, ScanMemory, SequenceMachine,
    SequenceMatch, StepProgress, WaitingSteps, word_and_bit,
};

/// The distance that the end of a sentence between two words adds.
const SENTENCE: u32 = 16;

/// The distance that the end of a line adds.
const LINE: u32 = 4;

/// The distance that an empty line adds.
const PARAGRAPH: u32 = 40;

/// Words further apart than this need no look at the text between them.
const FAR: usize = 400;

/// That a slot was reached is remembered for one to two times this, in bytes of the reading: longer than
/// the widest gap and the longest entry.
const EPOCH: u32 = 512;

/// The length that counts as the beginning of a text, in bytes: a heading, and the first line.
const BEGINNING: usize = 160;

/// The most bytes between a negation and the word whose sense it turns.
const NEGATED: usize = 40;

/// One text, read by the machine.
#[derive(Debug)]
pub struct SequenceRun<'a> {
    machine: &'a SequenceMachine,
    text: &'a str,
    memory: &'a mut ScanMemory,
    closed_up: bool,
    /// The end of this epoch.
    epoch: u32,
    /// The distance that breaks add between the word that ends here and the present one.
    broken: (usize, u32),
    negation: Option<Negation>,
    led: Option<u32>,
    /// Steps tried and bytes looked at, for the proof that both grow with the text only.
    pub work: u64,
}

impl SequenceMachine {
    /// Begins a text; in one that was closed up, any word may begin a clause.
    #[must_use]
    pub fn begin<'a>(
        &'a self,
        text: &'a str,
        closed_up: bool,
        memory: &'a mut ScanMemory,
    ) -> SequenceRun<'a> {
        memory.progress.resize(self.steps.len(), StepProgress::default());
        memory.completed.clear();
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

impl SequenceRun<'_> {
    /// Takes the words of the text, in the order of their ends. `fired` is told of each sequence that they complete.
    pub fn take_all(&mut self, words: &[WordMatch], mut fired: impl FnMut(SequenceMatch)) {
        let mut possible = std::mem::take(&mut self.memory.possible);
        possible.look(self.machine, words);
        for hit in words {
            let takes = &self.machine.takes[usize::from(hit.sense)];
            match possible.around(hit, takes.words) {
                Possible::All => self.take(hit, None, &mut fired),
                Possible::Some(steps) => self.take(hit, Some(steps), &mut fired),
                Possible::Nothing => {}
            }
            if takes.negation {
                self.negation = Some(Negation { end: hit.end, languages: hit.languages });
            }
            if takes.lead {
                self.led = Some(hit.to);
            }
        }
        self.memory.possible = possible;
    }

    /// Takes a word, as far as its steps are `possible`.
    fn take(
        &mut self,
        hit: &WordMatch,
        possible: Option<&[u64]>,
        fired: &mut impl FnMut(SequenceMatch),
    ) {
        self.broken.0 = usize::MAX;
        if hit.from > self.epoch {
            self.epoch = hit.from + EPOCH;
            self.forget();
        }
        let machine = self.machine;
        let takes = &machine.takes[usize::from(hit.sense)];
        let conditions = &machine.conditions;
        let negated = if takes.asks_for_negation { self.negated(hit) } else { 0 };
        let unfit = if negated == 0 { &conditions.negated } else { &conditions.plain };
        let mut place = None;
        // Later steps first: what a word reached does not wait for that same word.
        for (word, takes) in takes.steps.0.iter().rev() {
            let mut waiting = takes & possible.map_or(!0, |possible| possible[*word]);
            if waiting == 0 {
                continue;
            }
            waiting &= self.memory.waiting[*word].all & !unfit[*word];
            if waiting & conditions.placed[*word] != 0 && !self.closed_up {
                let place = *place.get_or_insert_with(|| self.beginning(hit));
                waiting &= !conditions.misplaced[place as usize][*word];
            }
            while waiting != 0 {
                let bit = waiting.ilog2();
                waiting ^= 1 << bit;
                self.work += 1;
                let index = word * u64::BITS as usize + bit as usize;
                self.step(index, hit, negated);
            }
        }
        if self.memory.completed.is_empty() {
            return;
        }
        // Of the sequences that one word completes the latest comes first.
        self.memory.completed.sort_unstable_by_key(|(sequence, _)| Reverse(*sequence));
        self.memory.completed.drain(..).for_each(|(_, complete)| fired(complete));
    }

    /// Tries a step with a word that is at an allowed place. `negated` are the languages in which a negation turns its
    /// sense.
    fn step(&mut self, index: usize, hit: &WordMatch, negated: Languages) {
        let step = &self.machine.steps[index];
        let (start, negated) = if let Some(before) = step.before {
            let before = self.memory.progress[usize::from(before)];
            if hit.from < before.to {
                return;
            }
            let distance = hit.from - before.to;
            if distance > step.slot.gap
                || distance + self.breaks(before.end as usize, hit.start) > step.slot.gap
            {
                return;
            }
            if !self.linked(step.slot.link, before.end as usize, hit.start) {
                return;
            }
            (before.start, before.negated & hit.languages)
        } else {
            (hit.start as u32, if step.after == PrecedingNegation::Anything { 0 } else { negated })
        };
        if !self.followed(step.slot.then, hit) {
            return;
        }
        if negated == 0 {
            let (start, end) = (start as usize, hit.end);
            self.memory.completed.extend(step.ends.iter().map(|ended| {
                let rule = ended.rule;
                (ended.sequence, SequenceMatch { rule, start, end, certain: true })
            }));
        }
        if !step.next.0.is_empty() {
            let end = hit.end as u32;
            self.memory.progress[index] = StepProgress { start, end, to: hit.to, negated };
            for (word, bits) in &step.next.0 {
                let waiting = &mut self.memory.waiting[*word];
                waiting.all |= bits;
                waiting.lately |= bits;
            }
        }
    }

    /// The languages in which a negation turns the sense of a word: the negation is before it in its
    /// clause, and only words that carry it on are between them. In a script without borders of words a
    /// negation looks like the end of another word, so there none counts.
    fn negated(&self, hit: &WordMatch) -> Languages {
        let Some(negation) = self.negation.filter(|_| !self.closed_up) else { return 0 };
        if negation.end >= hit.start || hit.start - negation.end > NEGATED {
            return 0;
        }
        // A line's end, a stop, a dash and a bracket all end a clause.
        let between = self.text.get(negation.end..hit.start).unwrap_or(".");
        let mut languages = negation.languages & hit.languages;
        for word in between.split([' ', '\t', '*', '_']).filter(|word| !word.is_empty()) {
            if languages == 0 {
                break;
            }
            let carriers = &self.machine.carriers;
            let carried = if word.bytes().all(|byte| byte.is_ascii_lowercase()) {
                carriers.get(word)
            } else {
                carriers.get(&word.to_lowercase())
            };
            languages &= carried.copied().unwrap_or(0);
        }
        languages
    }

    /// Whether the text between two places is one that a slot allows.
    fn linked(&mut self, link: Link, from: usize, until: usize) -> bool {
        if link == Link::Anything {
            return true;
        }
        let between = self.text.get(from..until).unwrap_or(".");
        self.work += between.len() as u64 / 8;
        match link {
            Link::Spaces => between.bytes().all(|byte| matches!(byte, b' ' | b'*' | b'_')),
            _ => goes_on(between),
        }
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

    /// The distance that the ends of lines, sentences and paragraphs add between two places.
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

    /// The unit that a word begins, at most.
    fn beginning(&self, hit: &WordMatch) -> At {
        match self.line_or_clause(hit) {
            At::Line if self.near_start(hit.start) => At::Beginning,
            At::Anywhere if self.led.is_some_and(|to| hit.from.saturating_sub(to) <= 1) => {
                At::Clause
            }
            at => at,
        }
    }

    /// Whether a place is near the beginning of its text.
    fn near_start(&self, at: usize) -> bool {
        let before = &self.text.as_bytes()[at.saturating_sub(BEGINNING)..at];
        at <= BEGINNING || before.contains(&SEAM)
    }

    fn line_or_clause(&self, hit: &WordMatch) -> At {
        let before = &self.text.as_bytes()[hit.start.saturating_sub(12)..hit.start];
        for (back, byte) in before.iter().rev().enumerate() {
            match *byte {
                b' ' | b'\t' | b'*' | b'_' | b'#' | b'>' | b'"' | b'\'' | b'`' | b'(' | b'['
                | b'{' | b'<' | b'-' | b'=' | b'|' => {}
                b'\n' | b'\r' | SEAM => return At::Line,
                b'n' | b'r'
                    if before.len() > back + 1 && before[before.len() - back - 2] == b'\\' =>
                {
                    return At::Line;
                }
                b'.' | b'!' | b'?' | b':' | b';' | b',' | b']' | b'}' | b')' => return At::Clause,
                _ => {
                    let signs = &before[before.len() - back..];
                    let until = &self.text.as_bytes()[..hit.start - back];
                    let dash = ["—", "–", "―"].iter().any(|dash| until.ends_with(dash.as_bytes()));
                    let apart = dash
                        || signs.windows(3).any(|three| three == b" - ")
                        || signs
                            .iter()
                            .any(|byte| matches!(byte, b'"' | b'>' | b'|' | b'`' | b'(' | b'['));
                    return if apart { At::Clause } else { At::Anywhere };
                }
            }
        }
        if hit.start <= 12 { At::Line } else { At::Anywhere }
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
                // The words behind a comma are a report ("they say, ..."), not an order to say them.
                b'\\' if then == FollowingMark::Quotation => {}
                _ => return false,
            }
        }
        false
    }
}

/// Whether a sentence goes on over a stretch of it: letters, spaces, commas, signs within words and names, and stops
/// within addresses and numbers.
fn goes_on(between: &str) -> bool {
    let bytes = between.as_bytes();
    let ascii = bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'.' => {
            bytes.get(at + 1).is_some_and(|next| next.is_ascii_lowercase() || next.is_ascii_digit())
        }
        128.. => true,
        _ => byte.is_ascii_alphanumeric() || b" ,*_-'/@$%#".contains(byte),
    });
    ascii && (between.is_ascii() || !between.chars().any(is_sign))
}

/// Whether a character beyond ASCII is a mark of punctuation that ends a sentence's run, or has that function in East
/// Asia; an apostrophe and East Asia's commas do not.
const fn is_sign(character: char) -> bool {
    match character {
        '\u{2019}' | '\u{3001}' | '\u{ff0c}' => false,
        _ => matches!(
            character,
            '\u{80}'..='\u{bf}' | '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}'
                | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff20}' | '\u{964}' | '\u{965}'
        ),
    }
}
