//! Remarks: short sentences that show no form of a statement and state something all the same ("That dog bites strangers.").
//! Its surroundings tell one, not its words: it is short, its words are rare in the rest of the history, and it ends a turn or
//! is one.

use std::collections::{HashMap, HashSet};

use super::facts::{plain, statement};
use super::sentences::sentences;
use super::{ReplacedTurn, tokens_of};
use handoffd_domain::window::Tokenizer;

/// The share of a summary's room that remarks may take, in percent.
const SHARE: u64 = 25;

/// Tokens of a line's number and role.
const LINE: u64 = 5;

/// Bytes of a sentence up to which brevity counts in full, and from which it counts for nothing.
const BRIEF: (usize, usize) = (45, 110);

/// The largest rarity of a common word. Rarity is 1 for a word of one sentence alone, and 0 for a word of all sentences.
const COMMON: f64 = 0.4;

/// The sum of rarities from which on further rare words add nothing to a sentence's score.
const ENOUGH: f64 = 2.4;

/// The place of a sentence counts for this much: a turn of its own, the last one of a turn.
const TURN: f64 = 0.45;
const END: f64 = 0.15;

/// A figure, a quotation or a bracket takes this much away: figures have a form, and a citation states nothing of its own.
const CITED: f64 = 0.3;

/// The least score of a remark; 2 is a brief sentence of rare words.
const LEAST: f64 = 1.0;

/// Signs of a citation or an explanation.
const QUOTING: &str = "\"“”„«»()（）「」《》";

/// The remarks of a history, in [`plain`] form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remarks(HashSet<String>);

/// A sentence among those of a history.
struct Sentence<'t> {
    text: &'t str,
    words: Vec<String>,
    /// [`TURN`], [`END`], or 0 within a turn.
    position: f64,
}

impl Remarks {
    /// The remarks of the turns that a summary replaces, the most telling first, as far as their share of the room goes. Outputs of
    /// tools have none.
    #[must_use]
    pub fn of(turns: &[ReplacedTurn], room: u64, tokenizer: Tokenizer) -> Self {
        let all = spoken(turns);
        let mut frequency: HashMap<&str, u32> = HashMap::new();
        for one in &all {
            let different: HashSet<&str> = one.words.iter().map(String::as_str).collect();
            for word in different {
                *frequency.entry(word).or_default() += 1;
            }
        }
        let mut scored: Vec<(f64, usize)> = all
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some((score(one, &frequency, all.len())?, at)))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut left = room.saturating_mul(SHARE) / 100;
        let mut chosen = HashSet::new();
        for (_, at) in scored {
            let text = all[at].text;
            let tokens = tokens_of(text, tokenizer) + LINE;
            if tokens > left {
                break;
            }
            if chosen.insert(plain(text)) {
                left -= tokens;
            }
        }
        Self(chosen)
    }

    /// Whether a sentence is one of them.
    #[must_use]
    pub fn contains(&self, sentence: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&plain(sentence))
    }

    /// How many of them a line of a summary has, behind its number and role or the sign of an appended line.
    #[must_use]
    pub fn in_line(&self, line: &str) -> usize {
        if self.0.is_empty() {
            return 0;
        }
        let text = match line.strip_prefix("- ") {
            Some(appended) => appended,
            None => line.split_once(": ").map_or(line, |(_, text)| text),
        };
        sentences(text).into_iter().filter(|at| self.contains(&text[at.clone()])).count()
    }
}

/// The sentences of speakers: those that end as a sentence does, and those that are a turn.
fn spoken(turns: &[ReplacedTurn]) -> Vec<Sentence<'_>> {
    let mut all = Vec::new();
    for turn in turns {
        if matches!(turn.role.as_str(), "tool" | "function" | "system" | "developer") {
            continue;
        }
        let places = sentences(&turn.text);
        let last = places.len().saturating_sub(1);
        for (place, at) in places.into_iter().enumerate() {
            let text = &turn.text[at];
            let position = match place {
                _ if last == 0 => TURN,
                place if place == last => END,
                _ => 0.0,
            };
            if last == 0 || text.ends_with(['.', '!', '?', '。', '！', '？', '…']) {
                all.push(Sentence { text, words: words(text), position });
            }
        }
    }
    all
}

/// The score of a sentence as a remark; `None` where it is long, a statement by its form, or like all the others.
fn score(one: &Sentence<'_>, frequency: &HashMap<&str, u32>, sentences: usize) -> Option<f64> {
    let bytes = one.text.len();
    if bytes >= BRIEF.1 || one.words.is_empty() {
        return None;
    }
    if statement(one.text).is_some_and(|stated| stated.rank() <= 1) {
        return None;
    }
    let brevity = ((BRIEF.1 - bytes) as f64 / (BRIEF.1 - BRIEF.0) as f64).min(1.0);
    let total = (sentences.max(2) as f64).ln();
    let rare = |word: &String| {
        let often = frequency.get(word.as_str()).copied().unwrap_or(1);
        let rarity = 1.0 - f64::from(often).ln() / total;
        ((rarity - COMMON) / (1.0 - COMMON)).max(0.0)
    };
    let news = (one.words.iter().map(rare).sum::<f64>() / ENOUGH).min(1.0);
    let quoting = one.text.contains(|c: char| c.is_ascii_digit() || QUOTING.contains(c));
    let score = brevity + news + one.position - if quoting { CITED } else { 0.0 };
    (score >= LEAST).then_some(score)
}

/// The words of a text in lower case; of scripts without spaces, pairs of characters.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in text.split(|c: char| !c.is_alphabetic()).filter(|run| !run.is_empty()) {
        if run.chars().all(|c| c as u32 >= 0x2E80) {
            let signs: Vec<char> = run.chars().collect();
            words.extend(signs.windows(2).map(|pair| pair.iter().collect::<String>()));
        } else {
            words.push(run.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(at: usize, role: &str, text: &str) -> ReplacedTurn {
        ReplacedTurn { at, role: role.to_owned(), text: text.to_owned() }
    }

    fn of(turns: &[ReplacedTurn], room: u64) -> Remarks {
        Remarks::of(turns, room, Tokenizer::Estimate)
    }

    /// Turns of three long sentences of the same words; in some of them a remark.
    fn history(role: &str) -> Vec<ReplacedTurn> {
        let long = "The committee has looked at the paragraphs of the report and will look at the other paragraphs of the report later on. ";
        let mut turns: Vec<ReplacedTurn> =
            (0..30).map(|at| turn(at, role, &long.repeat(3))).collect();
        turns[3].text.push_str("That dog bites strangers.");
        turns[9].text.insert_str(long.len(), "Der Dienstag bleibt. ");
        turns[14].text = "文件的事交给我吧。".to_owned();
        turns
    }

    const REMARKS: [&str; 3] =
        ["That dog bites strangers.", "Der Dienstag bleibt.", "文件的事交给我吧。"];

    #[test]
    fn a_short_sentence_of_rare_words_is_a_remark() {
        let remarks = of(&history("user"), 1_000);
        for remark in REMARKS {
            assert!(remarks.contains(remark), "{remark}");
        }
        assert_eq!(
            remarks.0.len(),
            REMARKS.len(),
            "no long sentence, and no sentence twice: {remarks:?}"
        );
        assert_eq!(remarks.in_line("4 user: That dog bites strangers. It rains."), 1);
        assert_eq!(remarks.in_line("- 文件的事交给我吧。"), 1);
    }

    #[test]
    fn outputs_of_tools_and_statements_by_form_are_not_remarks() {
        assert_eq!(of(&history("tool"), 1_000), Remarks::default());
        let mut turns = history("user");
        turns[3].text.push_str(" Do not feed the dog.");
        assert!(!of(&turns, 1_000).contains("Do not feed the dog."), "its form tells it");
    }

    #[test]
    fn remarks_take_no_more_than_their_share_of_the_room() {
        let remarks = of(&history("user"), 40);
        assert!(remarks.0.len() < REMARKS.len(), "{remarks:?}");
        let cost = |remark: &String| tokens_of(remark, Tokenizer::Estimate) + LINE;
        assert!(remarks.0.iter().map(cost).sum::<u64>() <= 40 * SHARE / 100);
    }
}
