//! The rules: data in `config/safety-rules.json`, compiled once.
//!
//! A lexicon gives words of many languages to concepts; a rule names sequences of concepts (or a form
//! of the text) and what they weigh in each kind of field. No rule is a fixed sentence, and none needs a
//! search of its own: one pass over a text serves them all.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::lexicon::{Lexicon, LexiconError, Words};
pub use super::order::Proof;
use super::order::is_certain;
use super::sequence::{SequenceError, SequenceMachine, SequenceMatch};
use super::structure::Form;

/// The rules that are compiled in.
const BUILTIN: &str = include_str!("../../assets/safety-rules.json");

/// The sum of [`Rule::turn`] that marks a user's turn. A jailbreak in words of its own shows signs that are each weak. From
/// 0.85 down a bare override is marked, which a user may say; docs/safety.md has the price of lower sums.
const TURN: f32 = 0.9;

/// The kind of field that holds a text: the same words weigh differently in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldClass {
    /// A verbatim turn of the user.
    UserTurn,
    /// Results of tools, subtasks and outside sources.
    ToolOutput,
    /// Fields whose purpose is to instruct: task descriptions, open subtasks, constraints.
    Task,
    /// Everything else, keys included.
    Data,
    /// In a rule only: all those not named.
    Any,
}

impl FieldClass {
    /// Its name in the rules, for a classifier and in an explanation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserTurn => "user_turn",
            Self::ToolOutput => "tool_output",
            Self::Task => "task",
            Self::Data | Self::Any => "data",
        }
    }
}

/// The action on a place that scores enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// An attack by its wording or form: the handoff is refused.
    Refuse,
    /// An order to an assistant inside a tool's output or data: the place is marked.
    Mark,
}

/// One rule, as in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Unique name, shown in findings.
    pub id: String,
    /// Family of attacks.
    pub family: String,
    /// The weight that it adds to the score of a place, over 0 to 1, by the kind of field; 1 is enough
    /// by itself, a kind that is not named does not have it.
    #[serde(default)]
    pub weight: BTreeMap<FieldClass, f32>,
    /// Its share of the score that marks a place in a tool's output or in data, over 0 to 1; without it, what it
    /// weighs there.
    #[serde(default)]
    pub mark: Option<f32>,
    /// Adds to the score that marks a place in a user's turn, over 0 to 1; a sum of 0.9 marks. A user's attempt to talk a
    /// model out of its bounds is an attack, too.
    #[serde(default)]
    pub turn: Option<f32>,
    /// The proof that makes a match certain. A match without it counts for [`Self::doubtful`].
    #[serde(default)]
    pub certain: Option<Proof>,
    /// The weight that it adds to the score that refuses if its match is not certain.
    #[serde(default)]
    pub doubtful: f32,
    /// The rule refuses only beside a rule without this mark, because ordinary texts name roles, phrases and secrets too.
    #[serde(default)]
    pub supports: bool,
    /// It does not count after a negation ("do not ignore ...").
    #[serde(default)]
    pub plain: bool,
    /// Concept sequences; a match of any one fires the rule.
    #[serde(default)]
    pub near: Vec<String>,
    /// A text form that fires the rule.
    #[serde(default)]
    pub form: Option<Form>,
    /// It does not count near what this other rule, which weighs nothing, matches in the text as it came:
    /// turns in the middle of a document are forged, a transcript consists of them.
    #[serde(default)]
    pub unless: Option<String>,
    /// The id of a rule of weight 0. If a match of that rule covers the beginning of a match of this one, the scan marks the
    /// place and does not refuse the message: a statement about a party of a contract, or a header of a request, is not an order.
    #[serde(default)]
    pub except: Option<String>,
    /// It does not mark where a match of this other rule, which adds nothing, covers its beginning: what is to be done
    /// for a customer is a policy.
    #[serde(default)]
    pub spared: Option<String>,
    /// Test texts of the rule.
    pub examples: RuleExamples,
}

impl Rule {
    /// The weight that it adds in a tier, in a field of this kind.
    #[must_use]
    pub fn adds(&self, tier: Tier, class: FieldClass) -> f32 {
        match (tier, class) {
            (Tier::Refuse, _) => self.weight(class),
            (Tier::Mark, FieldClass::ToolOutput | FieldClass::Data) => {
                self.mark.unwrap_or_else(|| self.weight(class))
            }
            (Tier::Mark, FieldClass::UserTurn) => self.turn.unwrap_or(0.0) / TURN,
            (Tier::Mark, _) => 0.0,
        }
    }

    /// Whether it adds nothing anywhere: it says of a text what it is, for the rules that ask ([`Self::unless`],
    /// [`Self::except`], [`Self::spared`]).
    #[must_use]
    pub fn is_condition(&self) -> bool {
        self.weight(FieldClass::Any) <= 0.0 && self.mark.is_none() && self.turn.is_none()
    }

    /// Its weight in a field of this kind; 0 if it does not apply. For [`FieldClass::Any`]: its
    /// largest weight in any field.
    #[must_use]
    pub fn weight(&self, class: FieldClass) -> f32 {
        if class == FieldClass::Any {
            return self.weight.values().copied().fold(0.0, f32::max);
        }
        self.weight
            .get(&class)
            .or_else(|| self.weight.get(&FieldClass::Any))
            .copied()
            .unwrap_or(0.0)
    }
}

/// Texts that a rule must and must not match.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleExamples {
    /// Texts that the rule matches.
    #[serde(rename = "match")]
    pub matching: Vec<String>,
    /// Texts that the rule does not match.
    pub no_match: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    version: String,
    /// How many of 10 000 words of ordinary text are words of a concept, where there are any.
    #[serde(default)]
    common: BTreeMap<String, u32>,
    /// The rule, which adds nothing, that tells of talk about attacks: what is quoted near it does not refuse.
    #[serde(default)]
    mention: Option<String>,
    /// The rule, which adds nothing, whose words talk of attacks or of something else: they count right before a quotation
    /// and in the line that introduces a block.
    #[serde(default)]
    mention_near: Option<String>,
    /// The rule, which adds nothing, that tells of words said to the reader: where these name an attacker, they report
    /// none.
    #[serde(default)]
    addressed: Option<String>,
    /// Words that are also looked for under a shift of the alphabet and backwards.
    anchors: String,
    lexicon: Words,
    /// By language, the words through which a negation reaches the next.
    #[serde(default)]
    negation_carriers: BTreeMap<String, Vec<String>>,
    rules: Vec<Rule>,
}

/// Why rules cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The text is not JSON of the expected shape.
    #[error("the rules are not of the expected form: {0}")]
    Form(#[from] serde_json::Error),
    /// The lexicon does not compile.
    #[error("the lexicon: {0}")]
    Lexicon(#[from] LexiconError),
    /// A sequence names an unknown concept.
    #[error("rule {0}: {1}")]
    Sequence(String, SequenceError),
    /// A rule without a trigger, or a duplicate name.
    #[error("rule {0} has neither a sequence nor a form, or there are two of that name")]
    Idle(String),
    /// A rule that depends on one that is not there, or that has a weight of its own.
    #[error("rule {0} depends on {1:?}, which is not a rule without a weight")]
    Unless(String, String),
}

#[derive(Debug)]
pub struct Rules {
    version: String,
    rules: Vec<Rule>,
    /// For each rule, the one that it does not count beside ([`Rule::unless`]).
    unless: Vec<Option<u16>>,
    /// For each rule, the one within whose matches it does not refuse ([`Rule::except`]).
    except: Vec<Option<u16>>,
    /// For each rule, the one within whose matches it does not mark ([`Rule::spared`]).
    spared: Vec<Option<u16>>,
    mention: Option<u16>,
    mention_near: Option<u16>,
    addressed: Option<u16>,
    pub(super) lexicon: Lexicon,
    pub(super) machine: SequenceMachine,
}

impl Rules {
    /// The rules that are compiled in; compiled on first use.
    ///
    /// # Panics
    /// Never with the file that is compiled in; the tests of this file load it.
    #[must_use]
    pub fn builtin() -> Arc<Self> {
        static RULES: LazyLock<Arc<Rules>> = LazyLock::new(|| {
            Arc::new(
                Rules::load(BUILTIN)
                    .expect("the compiled-in rules load, as the tests of this file prove"),
            )
        });
        Arc::clone(&RULES)
    }

    /// Loads and compiles rules from JSON text of the shape of `config/safety-rules.json`.
    ///
    /// # Errors
    /// [`RulesError`] if the text has another shape or something in it does not compile.
    pub fn load(text: &str) -> Result<Self, RulesError> {
        let file: RulesFile = serde_json::from_str(text)?;
        let lexicon = Lexicon::new(&file.lexicon, &file.anchors)?;
        let mut machine = SequenceMachine::default();
        machine.carry(&file.negation_carriers, &lexicon);
        for (index, rule) in file.rules.iter().enumerate() {
            let idle = rule.near.is_empty() && rule.form.is_none();
            if idle || file.rules[..index].iter().any(|other| other.id == rule.id) {
                return Err(RulesError::Idle(rule.id.clone()));
            }
            let reach = machine.reach;
            for sequence in &rule.near {
                machine
                    .add(index, sequence, rule.plain, &lexicon)
                    .map_err(|err| RulesError::Sequence(rule.id.clone(), err))?;
            }
            if rule.is_condition() {
                // A rule that only tells what kind of text it is counts if the text is read as a whole.
                machine.reach = reach;
            }
        }
        machine.expect(&file.common, &lexicon);
        machine.compile(&lexicon);
        let place = |rule: &str, other: Option<&String>| {
            let Some(other) = other else { return Ok(None) };
            let named = |one: &Rule| one.id == *other && one.is_condition();
            let place = file.rules.iter().position(named);
            let missing = || RulesError::Unless(rule.to_owned(), other.clone());
            place.map(|at| Some(at as u16)).ok_or_else(missing)
        };
        let each = |other: fn(&Rule) -> Option<&String>| {
            let rules = file.rules.iter();
            rules.map(|rule| place(&rule.id, other(rule))).collect::<Result<Vec<_>, _>>()
        };
        let unless = each(|rule| rule.unless.as_ref())?;
        let except = each(|rule| rule.except.as_ref())?;
        let spared = each(|rule| rule.spared.as_ref())?;
        let mention = place("mention", file.mention.as_ref())?;
        let mention_near = place("mention_near", file.mention_near.as_ref())?;
        let addressed = place("addressed", file.addressed.as_ref())?;
        Ok(Self {
            version: file.version,
            rules: file.rules,
            unless,
            except,
            spared,
            mention,
            mention_near,
            addressed,
            lexicon,
            machine,
        })
    }

    /// Version of the rules file.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// All rules, in file order.
    #[must_use]
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// The weight that a match of each rule adds in a tier, in a field of this kind, certain or not.
    pub(super) fn weights(&self, tier: Tier, class: FieldClass) -> impl Fn(u16, bool) -> f32 + '_ {
        move |rule, certain| {
            let rule = &self.rules[usize::from(rule)];
            let adds = rule.adds(tier, class);
            if certain || tier == Tier::Mark { adds } else { adds.min(rule.doubtful) }
        }
    }

    /// Whether a match of a rule may bear a score of a tier, and does not merely support others. A doubtful one supports.
    pub(super) fn bears(&self, tier: Tier, rule: u16, certain: bool) -> bool {
        let rule = &self.rules[usize::from(rule)];
        tier == Tier::Mark || !rule.supports && (certain || rule.certain.is_none())
    }

    /// Says of each match in a text whether it is certain.
    pub(super) fn prove(&self, fires: &mut [SequenceMatch], text: &str, closed_up: bool) {
        for fire in fires {
            if let Some(proof) = self.rules[usize::from(fire.rule)].certain {
                fire.certain = is_certain(proof, text, (fire.start, fire.end), closed_up);
            }
        }
    }

    /// The rule beside which this one does not count.
    pub(super) fn unless(&self, rule: u16) -> Option<u16> {
        self.unless[usize::from(rule)]
    }

    /// The rule within whose matches this one does not refuse.
    pub(super) fn except(&self, rule: u16) -> Option<u16> {
        self.except[usize::from(rule)]
    }

    /// The rule within whose matches this one does not mark.
    pub(super) fn spared(&self, rule: u16) -> Option<u16> {
        self.spared[usize::from(rule)]
    }

    /// The rule that tells of talk about attacks.
    pub(super) const fn mention(&self) -> Option<u16> {
        self.mention
    }

    /// The rule whose words talk of attacks or of something else.
    pub(super) const fn mention_near(&self) -> Option<u16> {
        self.mention_near
    }

    /// The rule that tells of words said to the reader.
    pub(super) const fn addressed(&self) -> Option<u16> {
        self.addressed
    }

    /// Whether a rule is a condition of others.
    pub(super) fn is_condition(&self, rule: u16) -> bool {
        self.rules[usize::from(rule)].is_condition()
    }

    /// The rules that a form fires.
    pub(super) fn of_form(&self, form: Form) -> impl Iterator<Item = usize> + '_ {
        self.rules
            .iter()
            .enumerate()
            .filter(move |(_, rule)| rule.form == Some(form))
            .map(|(i, _)| i)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::safety::Scanner;

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
        for rule in rules.all() {
            let counts = !rule.weight.is_empty() || rule.mark.is_some() || rule.turn.is_some();
            assert!(counts, "{}", rule.id);
            let mut weights = rule.weight.values().chain(&rule.mark).chain(&rule.turn);
            assert!(weights.all(|weight| (0.0..=1.0).contains(weight)), "{}", rule.id);
        }
    }

    #[test]
    fn bad_rules_are_refused() {
        let with = |lexicon: &str, near: &str, unless: &str| {
            Rules::load(&format!(
                r#"{{"version":"1","anchors":"","lexicon":{{"a":{{"en":["{lexicon}"]}}}},
                    "rules":[{{"id":"r","family":"f","weight":{{"any":1}},"near":[{near}],"unless":{unless},
                    "examples":{{"match":[],"no_match":[]}}}}]}}"#
            ))
        };
        let file = |lexicon: &str, near: &str| with(lexicon, near, "null");
        assert!(matches!(Rules::load("[]"), Err(RulesError::Form(_))));
        assert!(matches!(file("--", r#""a""#), Err(RulesError::Lexicon(_))));
        assert!(matches!(file("word", r#""a 3 b""#), Err(RulesError::Sequence(..))));
        assert!(matches!(file("word", ""), Err(RulesError::Idle(_))));
        assert!(file("word", r#""a 3 a""#).is_ok());
        assert!(
            matches!(with("word", r#""a""#, r#""r""#), Err(RulesError::Unless(..))),
            "it weighs"
        );
        assert!(matches!(with("word", r#""a""#, r#""s""#), Err(RulesError::Unless(..))));
    }
}
