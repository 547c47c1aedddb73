//! Sequences that begin alike share steps, and each of them fires as it does alone.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::lexicon::{Lexicon, LexiconMatch, Words};
use super::super::reading::Reading;
use super::{ScanMemory, SequenceMachine, SequenceMatch};

/// The word of each concept; `not` negates.
const CONCEPTS: [(&str, &str); 4] =
    [("negation", "not"), ("one", "alpha"), ("two", "beta"), ("three", "gamma")];

fn lexicon() -> Lexicon {
    let words: Words = CONCEPTS
        .iter()
        .map(|(concept, word)| {
            let entries = BTreeMap::from([("en".to_owned(), vec![(*word).to_owned()])]);
            ((*concept).to_owned(), entries)
        })
        .collect();
    Lexicon::new(&words, "").expect("four words")
}

/// The sequences that fire in `text`, as rule, first byte and end; the rule of each sequence is its place in the given
/// list.
fn fires(lexicon: &Lexicon, rules: &[(usize, &str, bool)], text: &str) -> Vec<(u16, usize, usize)> {
    let mut machine = SequenceMachine::default();
    for (rule, sequence, plain) in rules {
        machine.add(*rule, sequence, *plain, lexicon).expect("concepts of the lexicon");
    }
    machine.compile(lexicon);
    let (mut memory, mut reading) = (ScanMemory::default(), Reading::default());
    reading.read(text);
    let mut run = machine.begin(text, false, &mut memory);
    let (mut words, mut fired) = (Vec::new(), Vec::new());
    lexicon.read(text, &mut reading, 0..text.len(), |found| {
        if let LexiconMatch::Word(hit) = found {
            words.push(hit);
        }
    });
    run.take_all(&words, |SequenceMatch { rule, start, end, .. }| fired.push((rule, start, end)));
    fired
}

#[test]
fn sequences_that_begin_alike_fire_each_the_latest_first() {
    let rules = [
        (0, "one 10 two", false),
        (1, "one 10 two 10 three", false),
        (2, "one 10 two", false),
        (3, "one 10 three", false),
        (4, "one 10 two", true),
        (5, "one 1 two", false),
        (6, "one 0 two", false),
    ];
    let found = fires(&lexicon(), &rules, "alpha beta gamma");
    let rules: Vec<u16> = found.iter().map(|(rule, ..)| *rule).collect();
    assert_eq!(rules, [5, 4, 2, 0, 3, 1], "{found:?}");
    assert_eq!(found[5], (1, 0, 16));
}

fn sequence() -> impl Strategy<Value = (String, bool)> {
    let slot = (prop::sample::select(vec!["", "^", "!"]), 1..CONCEPTS.len(), 0_u32..24);
    (prop::collection::vec(slot, 1..4), any::<bool>()).prop_map(|(slots, plain)| {
        let slots = slots
            .into_iter()
            .map(|(place, concept, gap)| format!("{gap} {place}{}", CONCEPTS[concept].0));
        (slots.collect::<Vec<_>>().join(" "), plain)
    })
}

proptest! {
    /// Few gaps and concepts, so that many sequences begin alike.
    #[test]
    fn each_sequence_fires_among_others_as_it_does_alone(
        sequences in prop::collection::vec(sequence(), 1..12),
        words in prop::collection::vec(
            prop::sample::select(vec!["alpha ", "beta ", "gamma ", "not ", "and ", "word, ", "end. ", "\n"]),
            0..40,
        ),
    ) {
        let (lexicon, text) = (lexicon(), words.concat());
        let rules: Vec<(usize, &str, bool)> = sequences
            .iter()
            .enumerate()
            .map(|(rule, (sequence, plain))| (rule, sequence.as_str(), *plain))
            .collect();
        let mut together = fires(&lexicon, &rules, &text);
        let mut alone: Vec<_> =
            rules.iter().flat_map(|rule| fires(&lexicon, &[*rule], &text)).collect();
        together.sort_unstable();
        alone.sort_unstable();
        prop_assert_eq!(together, alone);
    }
}
