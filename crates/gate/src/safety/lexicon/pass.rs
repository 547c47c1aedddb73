//! The pass over a text: its words, one after another, through the tree of entries.

use std::ops::Range;

use super::anywhere::spelled;
use super::{EntrySense, Lexicon, LexiconMatch, MAX_ENTRY, MAX_WORDS, Meaning, WordMatch, path};
use crate::safety::reading::{READ, Reading, ReadingWord};

/// How far from a word another one beside it is looked for, in bytes.
const BESIDE: usize = 16;

/// Digits of a number that names a thing, such as an account.
const NUMBER: u32 = 4;

impl Lexicon {
    /// Tells `found` of every word in that stretch of `text`, in the order of their ends. `reading` is
    /// that text, read.
    pub(in crate::safety) fn read(
        &self,
        text: &str,
        reading: &mut Reading,
        stretch: Range<usize>,
        mut found: impl FnMut(LexiconMatch),
    ) {
        let bytes = text.as_bytes();
        let mut anywhere = Vec::new();
        if !reading.bytes()[stretch.clone()].is_ascii() {
            anywhere = self.anywhere.each(reading.bytes(), stretch.clone());
            anywhere.retain(|(_, at)| begins_a_word(text, at));
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
            while let Some((entry, at)) = anywhere.first()
                && at.start < word.end
            {
                anywhere = &anywhere[1..];
                let Range { start, end } = *at;
                let EntrySense { sense, languages } = entry.sense;
                // One that began words ago comes late where a shorter one of this word ends before it.
                let ago = word.start.saturating_sub(start) as u32;
                let from = (from + start.saturating_sub(word.start) as u32).saturating_sub(ago);
                let to = from + entry.length();
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
                // A longer word is in no entry, but may begin like a stem.
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

    /// The meaning of a word by its form; `sign` is the last `@` or `$` in it.
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
    pub(in crate::safety) fn read_closed_up(
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

/// Letters that Arabic, Persian and Hebrew set before a word without a space, as they are read.
const PARTICLES: [char; 20] = [
    'و', 'ف', 'ب', 'ل', 'ك', 'س', 'ا', 'أ', 'ن', 'ت', 'ي', 'ה', 'ו', 'ב', 'ל', 'מ', 'ש', 'כ', 'ת',
    'נ',
];

/// Most of these before a word.
const MOST_PARTICLES: usize = 3;

/// An entry of so few letters is a word by itself, and no part of one.
const FEW_LETTERS: usize = 3;

/// Whether an entry is at the beginning of a word, in scripts that set spaces between words and attach particles to them. Other
/// scripts have no such borders.
fn begins_a_word(text: &str, at: &Range<usize>) -> bool {
    let (Some(within), Some(before), Some(behind)) =
        (text.get(at.clone()), text.get(..at.start), text.get(at.end..))
    else {
        return true;
    };
    let particles = match within.chars().next() {
        Some('\u{590}'..='\u{6ff}') => MOST_PARTICLES,
        Some('\u{900}'..='\u{9ff}') => 0,
        _ => return true,
    };
    let letter =
        |one: &char| matches!(one, '\u{590}'..='\u{6ff}' | '\u{900}'..='\u{9ff}') && !is_sign(*one);
    let mut attached = before.chars().rev().take_while(letter);
    let (few, rest) = (attached.by_ref().take(particles), within.chars().filter(letter).count());
    let all_particles = few.collect::<Vec<_>>().iter().all(|one| PARTICLES.contains(one));
    all_particles
        && attached.next().is_none()
        && (rest > FEW_LETTERS || !behind.chars().next().is_some_and(|next| letter(&next)))
}

/// Whether a character of these scripts is a mark of punctuation or a digit.
const fn is_sign(one: char) -> bool {
    matches!(one, '\u{60c}' | '\u{61b}' | '\u{61f}' | '\u{66a}'..='\u{66d}' | '\u{6d4}' | '\u{660}'..='\u{669}'
        | '\u{6f0}'..='\u{6f9}' | '\u{964}'..='\u{96f}' | '\u{9e6}'..='\u{9ef}' | '\u{5be}' | '\u{5c0}' | '\u{5c3}')
}

/// An entry that is under way after a word: as far as its node, from a first byte on, which has a place
/// in the reading.
#[derive(Debug, Clone, Copy, Default)]
struct EntryProgress {
    node: u32,
    from: u32,
    start: usize,
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
