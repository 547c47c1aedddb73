//! The fidelity check (specification §10.2): each fact of what was replaced must be found in what replaced it. What is
//! missing is appended with the words around it, the most needed kinds first; where there is no room, lines of the
//! summary that hold no fact of their own make some.

use std::collections::HashSet;
use std::ops::Range;

use super::facts::{Fact, FactKind, facts, holds, plain};
use super::sentences::sentences;
use super::tokens_of;
use crate::domain::window::Tokenizer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fidelity {
    /// The summary, with what was appended.
    pub summary: String,
    /// Different facts of what was replaced.
    pub facts: u64,
    /// Those that the summary holds.
    pub kept: u64,
    /// Those of them that were appended.
    pub appended: u64,
}

/// Bytes around a figure that go along with it, on either side.
const AROUND: usize = 60;

/// A sentence of this many bytes is appended whole.
const SHORT: usize = 240;

/// What stands above the appended facts.
const ALSO: &str = "Also stated:";

impl Fidelity {
    /// Checks a summary and appends what it lacks, in so many tokens in all.
    #[must_use]
    pub fn check(replaced: &str, summary: &str, room: u64, tokenizer: Tokenizer) -> Self {
        let all = distinct(replaced);
        let held = plain(summary);
        let missing: Vec<&Fact<'_>> = all.iter().filter(|fact| !holds(&held, fact)).collect();
        if missing.is_empty() {
            let facts = count(all.len());
            return Self { summary: summary.to_owned(), facts, kept: facts, appended: 0 };
        }
        let lines = appendix(replaced, &missing);
        let cost = |text: &str| tokens_of(text, tokenizer) + 2;
        let wanted: u64 = lines.iter().map(|line| cost(line)).sum::<u64>() + cost(ALSO);
        let spent = tokens_of(summary, tokenizer);
        let kept = match (spent + wanted).saturating_sub(room) {
            0 => summary.to_owned(),
            over => without(summary, over, tokenizer),
        };
        let mut left = room.saturating_sub(tokens_of(&kept, tokenizer) + cost(ALSO));
        let mut text = kept;
        let mut begun = false;
        // What was taken out of the summary may have held facts: they are missing now as well.
        let held = plain(&text);
        let missing: Vec<&Fact<'_>> = all.iter().filter(|fact| !holds(&held, fact)).collect();
        for line in appendix(replaced, &missing) {
            let tokens = cost(&line);
            if tokens > left {
                continue;
            }
            left -= tokens;
            if !begun {
                text.push('\n');
                text.push_str(ALSO);
                begun = true;
            }
            text.push_str("\n- ");
            text.push_str(&line);
        }
        let measured = Self::of(&all, &text);
        let before = plain(summary);
        let already = all.iter().filter(|fact| holds(&before, fact)).count();
        let appended = measured.kept.saturating_sub(count(already));
        Self { appended, ..measured }
    }

    /// Measures a summary as it is.
    #[must_use]
    pub fn measure(replaced: &str, summary: &str) -> Self {
        Self::of(&distinct(replaced), summary)
    }

    fn of(all: &[Fact<'_>], summary: &str) -> Self {
        let held = plain(summary);
        let kept = all.iter().filter(|fact| holds(&held, fact)).count();
        Self {
            summary: summary.to_owned(),
            facts: count(all.len()),
            kept: count(kept),
            appended: 0,
        }
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The facts of a text, each once.
fn distinct(text: &str) -> Vec<Fact<'_>> {
    let mut seen = HashSet::new();
    let mut all = facts(text);
    all.retain(|fact| seen.insert((fact.kind.is_statement(), plain(fact.text))));
    all
}

/// The lines to append for missing facts: a line a sentence, the sentences with the most needed facts first.
fn appendix(replaced: &str, missing: &[&Fact<'_>]) -> Vec<String> {
    let mut by_sentence: Vec<(FactKind, Range<usize>)> = Vec::new();
    let all = sentences(replaced);
    for sentence in all {
        let within: Vec<&&Fact<'_>> = missing
            .iter()
            .filter(|fact| fact.at.start >= sentence.start && fact.at.end <= sentence.end)
            .collect();
        let Some(kind) = within.iter().map(|fact| fact.kind).min() else { continue };
        let whole = within.iter().any(|fact| fact.kind.is_statement());
        let from = within.iter().map(|fact| fact.at.start).min().unwrap_or(sentence.start);
        let to = within.iter().map(|fact| fact.at.end).max().unwrap_or(sentence.end);
        let at = if whole || sentence.len() <= SHORT {
            sentence
        } else {
            around(replaced, from..to, &sentence)
        };
        by_sentence.push((kind, at));
    }
    by_sentence.sort_by_key(|(kind, at)| (*kind, at.start));
    by_sentence.into_iter().map(|(_, at)| replaced[at].trim().to_owned()).collect()
}

/// A place with the words around it, within a sentence, cut between words where there are spaces.
fn around(text: &str, at: Range<usize>, sentence: &Range<usize>) -> Range<usize> {
    let low = text.ceil_char_boundary(at.start.saturating_sub(AROUND).max(sentence.start));
    let high = text.floor_char_boundary((at.end + AROUND).min(sentence.end));
    let from = match text[low..at.start].find(' ') {
        Some(space) if low > sentence.start => low + space + 1,
        _ => low,
    };
    let to = match text[at.end..high].rfind(' ') {
        Some(space) if high < sentence.end => at.end + space,
        _ => high,
    };
    from..to
}

/// A summary without lines that hold no facts, the last first, until so many tokens are gone; then without the lines with
/// the fewest.
fn without(summary: &str, over: u64, tokenizer: Tokenizer) -> String {
    let lines: Vec<&str> = summary.split('\n').collect();
    let mut by_facts: Vec<(usize, usize)> =
        lines.iter().enumerate().map(|(at, line)| (facts(line).len(), at)).collect();
    by_facts.sort_by_key(|(facts, at)| (*facts, usize::MAX - at));
    let mut gone = HashSet::new();
    let mut freed = 0;
    for (_, at) in by_facts {
        if freed >= over {
            break;
        }
        freed += tokens_of(lines[at], tokenizer) + 1;
        gone.insert(at);
    }
    let kept: Vec<&str> = lines
        .iter()
        .enumerate()
        .filter(|(at, _)| !gone.contains(at))
        .map(|(_, line)| *line)
        .collect();
    kept.join("\n")
}
