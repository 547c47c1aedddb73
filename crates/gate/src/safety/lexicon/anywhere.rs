//! Words found anywhere in text whose spaces cannot be trusted.

use std::collections::BTreeMap;

use aho_corasick::Anchored;
use aho_corasick::automaton::Automaton as _;
use aho_corasick::nfa::contiguous::NFA;

use super::{EntrySense, LexiconError};
use crate::safety::reading::READ;

/// An automaton that finds patterns anywhere.
#[derive(Debug)]
pub(super) struct SubstringMatcher {
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

impl SubstringMatcher {
    /// For entries as read, and for some that the text must have to the letter.
    pub(super) fn new(
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
    pub(super) fn each_closed_up(
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
pub(super) fn spelled(literal: &str, text: &[u8]) -> bool {
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
