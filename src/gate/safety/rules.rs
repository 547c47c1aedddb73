//! The rules: data in `config/safety-rules.json`, compiled once, byte-wise and ASCII-case-insensitive
//! (Unicode case folding would cost a thousandfold, and the text is folded beforehand).
//!
//! One Aho-Corasick pass over a text finds the trigger words of all rules; a rule's pattern runs only
//! where its triggers occur. All patterns in one regex set are no alternative: words that start many
//! of them at once multiply the automaton's states until it gives up, and ten megabytes of such words
//! cost 23 s on one core; one pattern at a time cannot be driven there.

use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;

/// The rules that are compiled in.
const BUILTIN: &str = include_str!("../../../config/safety-rules.json");

/// Most trigger groups of one rule.
const MAX_GROUPS: usize = 2;

/// Most rules, so that one word of 128 bits holds the trigger groups seen.
const MAX_RULES: usize = 128 / MAX_GROUPS;

/// What kind of field a text stands in: the same words weigh differently in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldClass {
    /// A verbatim turn of the user.
    UserTurn,
    /// What tools, subtasks and outside sources gave back.
    ToolOutput,
    /// Fields whose purpose is to instruct: task descriptions, open subtasks, constraints.
    Task,
    /// Everything else, keys included.
    Data,
    /// In a rule only: all of the above.
    Any,
}

/// One rule, as it stands in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Unique name, shown in findings.
    pub id: String,
    /// What kind of attack it points to.
    pub family: String,
    /// The classes of fields it is tried on.
    pub applies: Vec<FieldClass>,
    /// What one match adds to the score of a text, over 0 to 1; 1 is enough by itself.
    pub weight: f32,
    /// Whether it is tried on closed-up letters only, where words have no spaces between them.
    #[serde(default)]
    pub squashed: bool,
    /// Words without which the patterns cannot match: of each group (one or two), at least one word must
    /// occur. Lower-case ASCII, matched as parts of words.
    pub triggers: Vec<Vec<String>>,
    /// Regular expressions (any of them), ASCII, with `{{fragment}}` replaced from the file.
    pub patterns: Vec<String>,
    /// Texts that prove the patterns.
    pub examples: Examples,
}

/// Texts that a rule must and must not match.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Examples {
    /// Each matches.
    #[serde(rename = "match")]
    pub matching: Vec<String>,
    /// None matches.
    pub no_match: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    fragments: BTreeMap<String, String>,
    rules: Vec<Rule>,
}

/// Why rules could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// Not JSON of the expected shape.
    #[error("the rules are not of the expected form: {0}")]
    Form(#[from] serde_json::Error),
    /// A pattern does not compile.
    #[error("a pattern does not compile: {0}")]
    Pattern(#[from] regex::Error),
    /// The trigger words cannot be compiled.
    #[error("the triggers do not compile: {0}")]
    Triggers(#[from] aho_corasick::BuildError),
    /// Too many rules, or a rule with no or too many trigger groups.
    #[error("at most {MAX_RULES} rules with one or two groups of triggers each")]
    Size,
}

/// Rules, compiled.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    /// For each rule, its patterns as one alternation.
    patterns: Vec<Regex>,
    triggers: AhoCorasick,
    /// For each trigger word, the bits of the groups it belongs to.
    trigger_bits: Vec<u128>,
    /// For each rule, the bits of all its groups.
    needed: Vec<u128>,
}

impl Rules {
    /// The rules that are compiled in.
    ///
    /// # Panics
    ///
    /// Never with the file that is compiled in; the tests of this file load it.
    #[must_use]
    pub fn builtin() -> Self {
        Self::load(BUILTIN).expect("the compiled-in rules load, as the tests of this file prove")
    }

    /// Loads and compiles rules from JSON text of the shape of `config/safety-rules.json`.
    ///
    /// # Errors
    ///
    /// [`RulesError`] if the text has another shape or a pattern does not compile.
    pub fn load(text: &str) -> Result<Self, RulesError> {
        let file: File = serde_json::from_str(text)?;
        if file.rules.len() > MAX_RULES {
            return Err(RulesError::Size);
        }
        let mut patterns = Vec::with_capacity(file.rules.len());
        let mut needed = Vec::with_capacity(file.rules.len());
        let mut words: BTreeMap<&str, u128> = BTreeMap::new();
        for (index, rule) in file.rules.iter().enumerate() {
            let sources: Vec<String> = rule
                .patterns
                .iter()
                .map(|pattern| format!("(?:{})", expand(pattern, &file.fragments)))
                .collect();
            let mut builder = RegexBuilder::new(&sources.join("|"));
            patterns.push(builder.unicode(false).case_insensitive(true).build()?);
            if rule.triggers.is_empty() || rule.triggers.len() > MAX_GROUPS {
                return Err(RulesError::Size);
            }
            let mut all = 0;
            for (group, triggers) in rule.triggers.iter().enumerate() {
                let bit = 1_u128 << (index * MAX_GROUPS + group);
                all |= bit;
                for word in triggers {
                    *words.entry(word).or_default() |= bit;
                }
            }
            needed.push(all);
        }
        let triggers =
            AhoCorasick::builder().ascii_case_insensitive(true).build(words.keys().copied())?;
        let trigger_bits = words.into_values().collect();
        Ok(Self { rules: file.rules, patterns, triggers, trigger_bits, needed })
    }

    /// All rules, in the order of the file.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that match a text and apply to `class`, each once, with the byte offset of its first
    /// match. `closed_up` says whether the text is closed-up letters. [`FieldClass::Any`] asks for all.
    pub fn matching<'r>(
        &'r self,
        text: &'r str,
        class: FieldClass,
        closed_up: bool,
    ) -> impl Iterator<Item = (usize, usize)> + 'r {
        let seen = self.triggers_in(text);
        self.rules.iter().enumerate().filter_map(move |(index, rule)| {
            let applies = class == FieldClass::Any
                || rule.applies.iter().any(|one| *one == class || *one == FieldClass::Any);
            let triggered = seen & self.needed[index] == self.needed[index];
            if !applies || !triggered || (rule.squashed && !closed_up) {
                return None;
            }
            Some((index, self.patterns[index].find(text.as_bytes())?.start()))
        })
    }

    /// The bits of all trigger groups that have a word in `text`.
    fn triggers_in(&self, text: &str) -> u128 {
        let mut seen = 0;
        let every = self.needed.iter().fold(0, |all, bits| all | bits);
        for found in self.triggers.find_overlapping_iter(text) {
            seen |= self.trigger_bits[found.pattern().as_usize()];
            if seen == every {
                break;
            }
        }
        seen
    }
}

/// Replaces `{{name}}` by the fragment of that name (fragments may use fragments before them in the
/// alphabet of the file; two rounds are enough for the ones there are).
fn expand(pattern: &str, fragments: &BTreeMap<String, String>) -> String {
    let mut out = pattern.to_owned();
    for _ in 0..2 {
        for (name, fragment) in fragments {
            out = out.replace(&format!("{{{{{name}}}}}"), fragment);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gate::safety::Scanner;

    #[test]
    fn every_example_of_every_rule_holds() {
        let scanner = Scanner::builtin();
        let mut wrong = Vec::new();
        for rule in scanner.rules() {
            assert!(!rule.examples.matching.is_empty(), "{} has no example", rule.id);
            assert!(!rule.examples.no_match.is_empty(), "{} has no counter-example", rule.id);
            for (texts, expected) in
                [(&rule.examples.matching, true), (&rule.examples.no_match, false)]
            {
                for text in texts {
                    if scanner.matching_rules(text).contains(&rule.id.as_str()) != expected {
                        wrong.push(format!("{} {expected}: {text}", rule.id));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn ids_are_unique_and_weights_lie_between_0_and_1() {
        let rules = Rules::builtin();
        let ids: BTreeSet<&str> = rules.all().iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids.len(), rules.all().len());
        assert!(rules.all().iter().all(|rule| rule.weight > 0.0 && rule.weight <= 1.0));
        assert!(rules.all().iter().all(|rule| !rule.applies.is_empty()));
    }

    #[test]
    fn no_fragment_is_left_unexpanded() {
        let rules = Rules::builtin();
        assert!(rules.patterns.iter().all(|regex| !regex.as_str().contains("{{")));
    }

    #[test]
    fn bad_rules_are_refused() {
        assert!(matches!(Rules::load("[]"), Err(RulesError::Form(_))));
        let broken = r#"{"fragments":{},"rules":[{"id":"a","family":"f","applies":["any"],"weight":1,
            "triggers":[["x"]],"patterns":["("],"examples":{"match":[],"no_match":[]}}]}"#;
        assert!(matches!(Rules::load(broken), Err(RulesError::Pattern(_))));
        let idle = broken.replace(r#"[["x"]]"#, "[]").replace(r#""(""#, r#""x""#);
        assert!(matches!(Rules::load(&idle), Err(RulesError::Size)));
    }
}
