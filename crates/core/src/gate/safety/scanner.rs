//! Scores each text of a message against the rules, and reports where.

use std::sync::Arc;

use serde_json::Value;

use super::fields::{TextLocation, each_text};
use super::rules::{FieldClass, Rule, Rules};
use super::sequence::{ScanMemory, SequenceMatch};
use super::views::look;
use crate::domain::unseen;

/// The score at which the rules that matched a text are reported.
pub const THRESHOLD: f32 = 1.0;

/// What adding and subtracting weights may have lost.
const SLACK: f32 = 1e-3;

/// At most this many findings are reported for one message.
pub const MAX_FINDINGS: usize = 100;

/// Rules add up within so many bytes of a text: weak signs far apart mean nothing.
const WINDOW: usize = 1_200;

/// Shortest text that any rule could match, in bytes.
const MIN_TEXT: usize = 5;

/// Length of an excerpt in characters, and how many of them stand before the match.
const EXCERPT: (usize, usize) = (80, 16);

/// One rule that fired on one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafetyFinding {
    /// The rule's id.
    pub rule: String,
    /// The rule's family.
    pub family: String,
    /// JSON pointer of the text; for a key, of the member it names.
    pub pointer: String,
    /// Where the match starts, in bytes from the start of the text (for encoded text: where the encoded
    /// segment starts).
    pub offset: usize,
    /// At most 80 characters of the original text around the match, without control and unseen characters. For
    /// the dead letter; not for logs.
    pub excerpt: String,
}

/// Compiled rules, ready to scan. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Scanner {
    rules: Arc<Rules>,
}

impl Scanner {
    /// A scanner with the rules that are compiled in.
    #[must_use]
    pub fn builtin() -> Self {
        Self { rules: Rules::builtin() }
    }

    /// A scanner with other rules.
    #[must_use]
    pub fn with_rules(rules: Rules) -> Self {
        Self { rules: Arc::new(rules) }
    }

    /// The rules in use.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.rules.all()
    }

    /// The version of the rules in use.
    #[must_use]
    pub fn version(&self) -> &str {
        self.rules.version()
    }

    /// Scans every string of a message, keys included. Empty when no place scored [`THRESHOLD`]; at most
    /// [`MAX_FINDINGS`], in the order of the fields.
    #[must_use]
    pub fn scan(&self, message: &Value) -> Vec<SafetyFinding> {
        self.scan_beside(message, &mut |_, _| {})
    }

    /// The same; `beside` sees each text on the way.
    pub fn scan_beside(
        &self,
        message: &Value,
        beside: &mut dyn FnMut(&TextLocation<'_, '_>, &str),
    ) -> Vec<SafetyFinding> {
        let mut findings = Vec::new();
        let mut memory = ScanMemory::default();
        each_text(message, &mut |place, text, class| {
            beside(place, text);
            self.judge(text, class, &mut memory, &mut findings, || place.pointer());
        });
        findings
    }

    /// Scans one text as a field of `class`; the findings have an empty pointer.
    #[must_use]
    pub fn scan_text(&self, text: &str, class: FieldClass) -> Vec<SafetyFinding> {
        let mut findings = Vec::new();
        self.judge(text, class, &mut ScanMemory::default(), &mut findings, String::new);
        findings
    }

    fn judge(
        &self,
        text: &str,
        class: FieldClass,
        memory: &mut ScanMemory,
        findings: &mut Vec<SafetyFinding>,
        pointer: impl Fn() -> String,
    ) {
        if text.len() < MIN_TEXT || findings.len() >= MAX_FINDINGS {
            return;
        }
        let rules = self.rules.all();
        let mut fires = look(&self.rules, text, memory).fires;
        if fires.is_empty() {
            return;
        }
        for (rule, offset) in enough(&self.rules, &mut fires, class) {
            if findings.len() >= MAX_FINDINGS {
                return;
            }
            findings.push(SafetyFinding {
                rule: rules[rule].id.clone(),
                family: rules[rule].family.clone(),
                pointer: pointer(),
                offset,
                excerpt: excerpt(text, offset),
            });
        }
    }

    /// The ids of all rules that match a text in any of its views, whatever the score.
    #[must_use]
    pub fn matching_rules(&self, text: &str) -> Vec<&str> {
        let mut ids: Vec<&str> = Vec::new();
        for fire in look(&self.rules, text, &mut ScanMemory::default()).fires {
            let id = self.rules()[usize::from(fire.rule)].id.as_str();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// How much work a text makes: steps of the rules tried and bytes read in all views. It grows with
    /// the text's length only, whatever is in it.
    #[must_use]
    pub fn work(&self, text: &str) -> u64 {
        look(&self.rules, text, &mut ScanMemory::default()).work
    }
}

/// The rules that together reach [`THRESHOLD`] somewhere in a text, each once, with its first place there.
fn enough(rules: &Rules, fires: &mut Vec<SequenceMatch>, class: FieldClass) -> Vec<(usize, usize)> {
    let marks = fires.iter().filter(|fire| rules.is_mark(fire.rule));
    let mut marks: Vec<SequenceMatch> = marks.copied().collect();
    marks.sort_unstable_by_key(|fire| (fire.rule, fire.start));
    let marked = |rule: u16, at: usize| {
        let from = (rule, at.saturating_sub(WINDOW));
        let next = marks.partition_point(|mark| (mark.rule, mark.start) < from);
        marks.get(next).is_some_and(|mark| mark.rule == rule && mark.start <= at + WINDOW)
    };
    fires.retain(|fire| !rules.unless(fire.rule).is_some_and(|mark| marked(mark, fire.start)));
    let rules = rules.all();
    fires.retain(|fire| rules[usize::from(fire.rule)].weight(class) > 0.0);
    fires.sort_unstable_by_key(|fire| (fire.start, fire.rule));
    fires.dedup();
    let mut count = vec![0_u32; rules.len()];
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut score = 0.0;
    let mut first = 0;
    for next in 0..fires.len() {
        let fire = fires[next];
        let rule = usize::from(fire.rule);
        count[rule] += 1;
        if count[rule] == 1 {
            score += rules[rule].weight(class);
        }
        while fire.start - fires[first].start > WINDOW {
            let left = usize::from(fires[first].rule);
            count[left] -= 1;
            if count[left] == 0 {
                score -= rules[left].weight(class);
            }
            first += 1;
        }
        if score + SLACK >= THRESHOLD {
            for fire in &fires[first..=next] {
                let rule = usize::from(fire.rule);
                if found.iter().all(|(known, _)| *known != rule) {
                    found.push((rule, fire.start));
                }
            }
        }
    }
    found.sort_by_key(|(rule, offset)| (*offset, *rule));
    found
}

fn excerpt(text: &str, offset: usize) -> String {
    let (length, before) = EXCERPT;
    let offset = text.floor_char_boundary(offset);
    let start =
        text[..offset].char_indices().rev().take(before).last().map_or(offset, |(at, _)| at);
    unseen::each(&text[start..])
        .take(length)
        .map(|(character, hidden)| if hidden || character.is_control() { ' ' } else { character })
        .collect()
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod doors;
