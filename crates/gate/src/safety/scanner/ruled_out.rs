//! Steps that are ruled out before they are tried change no finding.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use super::super::rules::Rules;
use super::super::sequence::ScanMemory;
use super::super::views::look;

/// Entries of the lexicon, and the words of the rules' examples.
static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let file: Value = serde_json::from_str(include_str!("../../../assets/safety-rules.json"))
        .expect("the rules are JSON");
    let mut words = Vec::new();
    let languages = file["lexicon"].as_object().into_iter().flat_map(|all| all.values());
    for entries in
        languages.flat_map(|all| all.as_object().into_iter().flat_map(|one| one.values()))
    {
        let entries = entries.as_array().into_iter().flatten().filter_map(Value::as_str);
        words.extend(entries.map(|entry| entry.trim_matches(['*', '=']).to_owned()));
    }
    let examples = file["rules"].as_array().into_iter().flatten();
    for example in
        examples.flat_map(|rule| rule["examples"]["match"].as_array().into_iter().flatten())
    {
        let words_of = example.as_str().unwrap_or_default().split_ascii_whitespace();
        words.extend(words_of.map(str::to_owned));
        // Whole examples are drawn as often as entries of concepts, so that many drawn texts hold one.
        words.extend(std::iter::repeat_n(example.as_str().unwrap_or_default().to_owned(), 8));
    }
    words
});

/// Text between two words.
const BETWEEN: [&str; 8] = [
    " ",
    " ",
    ", ",
    ". ",
    "\n",
    " lorem ipsum dolor sit amet consetetur ",
    ". Dolor sit amet, consetetur sadipscing elitr sed diam nonumy eirmod tempor invidunt ut labore. ",
    "\n\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx 1234567 ",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_fires_is_the_same_where_no_step_is_ruled_out(
        parts in proptest::collection::vec((any::<Index>(), 0..BETWEEN.len()), 1..80)
    ) {
        let mut text = String::new();
        for (word, between) in parts {
            let word: &String = word.get(WORDS.as_slice());
            text.push_str(word);
            text.push_str(BETWEEN[between]);
        }
        let rules = Rules::builtin();
        let ruled_out = look(&rules, &text, &mut ScanMemory::default(), 0..0);
        let tried = look(&rules, &text, &mut ScanMemory::that_tries_all(), 0..0);
        prop_assert_eq!(ruled_out.fires, tried.fires, "{}", text);
    }
}
