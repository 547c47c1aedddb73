//! The fidelity check (specification §10.2): each fact of the replaced turns must be found in the summary. A missing
//! one is appended with the words around it, the most needed kinds first. If the room is used up, the check removes
//! lines of the summary that hold no fact.

use std::collections::HashSet;
use std::ops::Range;

use super::facts::{Fact, FactKind, Statement, facts, figures, holds, plain, statement};
use super::remarks::Remarks;
use super::sentences::sentences;
use super::tokens_of;
use handoffd_domain::window::{SentenceClass, SentenceCounts, Tokenizer};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fidelity {
    /// The summary, with what was appended.
    pub summary: String,
    /// Different facts of the replaced turns.
    pub facts: u64,
    /// Those that the summary holds.
    pub kept: u64,
    /// Those of them that were appended.
    pub appended: u64,
    /// All sentences of the replaced turns by class, and how many of each the summary holds word for word.
    pub sentences: SentenceCounts,
}

/// Under this share of the statements of the replaced turns, in percent, the summary says how many it lacks.
pub const FLOOR: u64 = 80;

/// Bytes around a figure that go along with it, on either side.
const AROUND: usize = 60;

/// A sentence of this many bytes is appended whole.
const SHORT: usize = 240;

/// The line above the appended facts.
const ALSO: &str = "Also stated:";

impl Fidelity {
    /// Checks a summary and appends what it lacks, in so many tokens in all.
    #[must_use]
    pub fn check(
        replaced: &str,
        remarks: &Remarks,
        summary: &str,
        room: u64,
        tokenizer: Tokenizer,
    ) -> Self {
        let all = distinct(replaced);
        let held = plain(summary);
        let missing: Vec<&Fact<'_>> = all.iter().filter(|fact| !holds(&held, fact)).collect();
        let lines = appendix(replaced, remarks, &held, &missing);
        if lines.is_empty() {
            let facts = count(all.len());
            let sentences = counted(replaced, &held);
            return Self {
                summary: summary.to_owned(),
                facts,
                kept: facts,
                appended: 0,
                sentences,
            };
        }
        let cost = |text: &str| tokens_of(text, tokenizer) + 2;
        let wanted: u64 = lines.iter().map(|line| cost(line)).sum::<u64>() + cost(ALSO);
        let spent = tokens_of(summary, tokenizer);
        let kept = match (spent + wanted).saturating_sub(room) {
            0 => summary.to_owned(),
            over => without(summary, remarks, over, tokenizer),
        };
        let mut left = room.saturating_sub(tokens_of(&kept, tokenizer) + cost(ALSO));
        let mut text = kept;
        let mut begun = false;
        // A line that was taken out of the summary may have held facts: they are missing now as well.
        let held = plain(&text);
        let missing: Vec<&Fact<'_>> = all.iter().filter(|fact| !holds(&held, fact)).collect();
        for line in appendix(replaced, remarks, &held, &missing) {
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
        let measured = Self::of(&all, replaced, &text);
        let before = plain(summary);
        let already = all.iter().filter(|fact| holds(&before, fact)).count();
        let appended = measured.kept.saturating_sub(count(already));
        Self { appended, ..measured }
    }

    /// Measures a summary as it is.
    #[must_use]
    pub fn measure(replaced: &str, summary: &str) -> Self {
        Self::of(&distinct(replaced), replaced, summary)
    }

    /// The same with so many tokens less, what is needed least first.
    #[must_use]
    pub fn shortened(
        &self,
        replaced: &str,
        remarks: &Remarks,
        over: u64,
        tokenizer: Tokenizer,
    ) -> Self {
        let mut summary = without(&self.summary, remarks, over, tokenizer);
        if summary.len() >= self.summary.len() {
            summary.clear();
        }
        let appended = self.appended;
        let shorter = Self::measure(replaced, &summary);
        Self { appended: appended.min(shorter.kept), ..shorter }
    }

    /// The statements of the replaced turns, and those that the summary holds.
    #[must_use]
    pub fn stated(&self) -> (u64, u64) {
        let stated = self.sentences.0.iter().filter(|(class, _)| class.is_statement());
        stated.fold((0, 0), |(of, kept), (_, count)| (of + count.of, kept + count.kept))
    }

    /// Whether too few of them are held.
    #[must_use]
    pub fn is_under_floor(&self) -> bool {
        let (of, kept) = self.stated();
        kept * 100 < of * FLOOR
    }

    fn of(all: &[Fact<'_>], replaced: &str, summary: &str) -> Self {
        let held = plain(summary);
        let kept = all.iter().filter(|fact| holds(&held, fact)).count();
        Self {
            summary: summary.to_owned(),
            facts: count(all.len()),
            kept: count(kept),
            appended: 0,
            sentences: counted(replaced, &held),
        }
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// All sentences of a text by class, and those that another text, made plain, holds as they stand. Each sentence counts
/// once.
fn counted(text: &str, held: &str) -> SentenceCounts {
    let mut seen = HashSet::new();
    let mut counts = SentenceCounts::default();
    for at in sentences(text) {
        let sentence = &text[at.clone()];
        if !seen.insert(plain(sentence)) {
            continue;
        }
        let class = match statement(sentence) {
            Some(stated) => class_of(stated.kind),
            None if !figures(sentence).is_empty() => SentenceClass::Figures,
            None => SentenceClass::Other,
        };
        let fact = Fact { kind: FactKind::Constraint, text: sentence, at };
        let count = counts.0.entry(class).or_default();
        count.of += 1;
        count.kept += u64::from(holds(held, &fact));
    }
    counts
}

/// The class of a sentence that states this.
const fn class_of(kind: FactKind) -> SentenceClass {
    match kind {
        FactKind::Constraint => SentenceClass::Constraint,
        FactKind::Flag => SentenceClass::Warning,
        FactKind::Change => SentenceClass::Change,
        FactKind::Commitment => SentenceClass::Commitment,
        FactKind::Decision => SentenceClass::Decision,
        FactKind::OpenDecision => SentenceClass::Question,
        FactKind::Reason => SentenceClass::Reason,
        _ => SentenceClass::Figures,
    }
}

/// How much a missing fact is needed: lower is needed more.
fn rank(fact: &Fact<'_>) -> u8 {
    match fact.kind {
        FactKind::Amount | FactKind::Date | FactKind::Id => 2,
        FactKind::Number => 6,
        _ => statement(fact.text).map_or(7, Statement::rank),
    }
}

/// The facts of a text, each once.
fn distinct(text: &str) -> Vec<Fact<'_>> {
    let mut seen = HashSet::new();
    let mut all = facts(text);
    all.retain(|fact| seen.insert((fact.kind.is_statement(), plain(fact.text))));
    all
}

/// How much a missing remark is needed: as a plain statement.
const REMARK: u8 = 1;

/// The lines to append for missing facts and remarks: a line a sentence, the sentences with the most needed facts first.
fn appendix(replaced: &str, remarks: &Remarks, held: &str, missing: &[&Fact<'_>]) -> Vec<String> {
    let mut by_sentence: Vec<(u8, Range<usize>)> = Vec::new();
    let mut appended = HashSet::new();
    let all = sentences(replaced);
    for sentence in all {
        let within: Vec<&&Fact<'_>> = missing
            .iter()
            .filter(|fact| fact.at.start >= sentence.start && fact.at.end <= sentence.end)
            .collect();
        let text = &replaced[sentence.clone()];
        let as_fact = Fact { kind: FactKind::Constraint, text, at: sentence.clone() };
        let lacks =
            remarks.contains(text) && !holds(held, &as_fact) && appended.insert(plain(text));
        let remark = lacks.then_some(REMARK);
        let Some(kind) = within.iter().map(|fact| rank(fact)).chain(remark).min() else { continue };
        let whole = remark.is_some() || within.iter().any(|fact| fact.kind.is_statement());
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
fn without(summary: &str, remarks: &Remarks, over: u64, tokenizer: Tokenizer) -> String {
    let lines: Vec<&str> = summary.split('\n').collect();
    let worth = |line: &str| -> u64 {
        let of_facts: u64 =
            facts(line).iter().map(|fact| 1 << (7 - u64::from(rank(fact).min(7)))).sum();
        of_facts + remarks.in_line(line) as u64 * (1 << (7 - u64::from(REMARK)))
    };
    let mut by_facts: Vec<(u64, usize)> =
        lines.iter().enumerate().map(|(at, line)| (worth(line), at)).collect();
    by_facts.sort_by_key(|(worth, at)| (*worth, usize::MAX - at));
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
