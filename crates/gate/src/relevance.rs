//! Relevance of agents for a task in words: full-text relevance (BM25) over the agents' registrations.
//!
//! BM25 is implemented here: the libraries considered link code under other licences, or lack fields.

use std::collections::{BTreeSet, HashMap};

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

use handoffd_domain::agent::Agent;
use handoffd_domain::ids::AgentId;
use handoffd_domain::unseen::is_unseen;

/// Weight of a word by field: names and abilities describe an agent best, prose and examples mention much besides.
const WEIGHTS: [f64; 3] = [2.0, 2.0, 1.0];

/// BM25's saturation of repeated words and penalty of long texts, at their usual values.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;

/// The most words of a task that are searched for: a whole message is not a question.
const ASKED: usize = 64;

/// Share of the best score below which only everyday words are in common.
const FLOOR: f64 = 0.1;

/// A full-text index over agents.
#[derive(Debug, Default)]
pub struct Relevance {
    ids: Vec<AgentId>,
    /// Weighted length of each agent's text, and the average.
    lengths: Vec<f64>,
    average: f64,
    /// Agents by word, with the word's total weight.
    mentions: HashMap<String, Vec<(usize, f64)>>,
}

impl Relevance {
    /// Indexes names, specializations, capabilities, domains, descriptions and examples. Takes some tens of
    /// microseconds for each agent.
    pub fn of<'a>(agents: impl Iterator<Item = &'a Agent>) -> Self {
        let mut made = Self::default();
        for (place, agent) in agents.enumerate() {
            let mut counts: HashMap<String, f64> = HashMap::new();
            for (texts, weight) in
                [names(agent), abilities(agent), prose(agent)].into_iter().zip(WEIGHTS)
            {
                for word in texts.into_iter().flat_map(words) {
                    *counts.entry(word).or_default() += weight;
                }
            }
            made.ids.push(agent.agent_id.clone());
            made.lengths.push(counts.values().sum());
            for (word, weight) in counts {
                made.mentions.entry(word).or_default().push((place, weight));
            }
        }
        made.average = made.lengths.iter().sum::<f64>() / made.lengths.len().max(1) as f64;
        made
    }

    /// Agents with words in common with the task, most relevant first, with their score (above 0; comparable
    /// within one answer only).
    pub fn rank(&self, task: &str) -> Vec<(f64, &AgentId)> {
        let asked: BTreeSet<String> = words(task).into_iter().take(ASKED).collect();
        let mut scores: HashMap<usize, f64> = HashMap::new();
        for mentions in asked.iter().filter_map(|word| self.mentions.get(word)) {
            let (all, with) = (self.ids.len() as f64, mentions.len() as f64);
            let rarity = ((all - with + 0.5) / (with + 0.5)).ln_1p();
            for (place, weight) in mentions {
                let length = 1.0 - LENGTH + LENGTH * self.lengths[*place] / self.average;
                let score = rarity * weight * (SATURATION + 1.0) / (weight + SATURATION * length);
                *scores.entry(*place).or_default() += score;
            }
        }
        let floor = scores.values().copied().fold(0.0, f64::max) * FLOOR;
        let mut ranked: Vec<_> = scores
            .into_iter()
            .filter(|(_, score)| *score >= floor)
            .map(|(place, score)| (score, &self.ids[place]))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        ranked
    }
}

fn names(agent: &Agent) -> Vec<&str> {
    let mut names = vec![agent.agent_id.as_str(), &agent.agent_type, &agent.name];
    names.extend(agent.specialization.as_deref());
    names
}

fn abilities(agent: &Agent) -> Vec<&str> {
    agent.capabilities.iter().chain(&agent.domains).map(String::as_str).collect()
}

fn prose(agent: &Agent) -> Vec<&str> {
    agent.examples.iter().map(String::as_str).chain([agent.description.as_str()]).collect()
}

/// The words of a text by Unicode's word boundaries (UAX #29; each character of Chinese), case-folded and stemmed.
/// One stemmer serves all languages: both sides only need the same cuts.
fn words(text: &str) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let seen = text.chars().filter(|one| one.is_whitespace() || !is_unseen(*one));
    let folded: String = seen.nfkc().flat_map(char::to_lowercase).collect();
    folded
        .unicode_words()
        .flat_map(|word| word.split(['_', '.', ':']))
        // Of one letter: too little to be told apart.
        .filter(|word| word.chars().nth(1).is_some() || !word.is_ascii())
        .map(|word| stemmer.stem(word).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agent(id: &str, description: &str, examples: &[&str]) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.description = description.to_owned();
        agent.examples = examples.iter().map(ToString::to_string).collect();
        agent
    }

    fn best(agents: &[Agent], task: &str) -> Option<String> {
        let relevance = Relevance::of(agents.iter());
        relevance.rank(task).first().map(|(_, id)| id.to_string())
    }

    fn staff() -> Vec<Agent> {
        vec![
            agent("refunds", "Refunds orders and cancels the payment", &["Refund order 7"]),
            agent("poet", "Writes verse for all the occasions of the year", &[]),
            agent("auditor", "Checks the books against the law", &["Review the annual report"]),
            agent("uebersetzer", "Übersetzt Verträge aus dem Englischen", &[]),
            agent("fanyi", "翻译合同和法律文件", &[]),
        ]
    }

    #[test]
    fn the_best_shares_the_telling_words_in_whatever_form() {
        for (task, id) in [
            ("The customer wants the order refunded", "refunds"),
            ("please write a verse about rain", "poet"),
            ("REVIEWING annual reports", "auditor"),
            ("Wer übersetzt Verträge?", "uebersetzer"),
            ("U\u{308}BERSETZT", "uebersetzer"),
            ("请翻译这份合同", "fanyi"),
        ] {
            assert_eq!(best(&staff(), task).as_deref(), Some(id), "{task}");
        }
    }

    #[test]
    fn who_shares_no_word_or_only_everyday_ones_is_left_out() {
        assert_eq!(best(&staff(), "quantum chromodynamics"), None);
        assert_eq!(best(&staff(), ""), None);
        assert_eq!(best(&[], "refund"), None);
        let (staff, task) = (staff(), "refund the order and cancel the payment");
        let relevance = Relevance::of(staff.iter());
        let ids: Vec<_> = relevance.rank(task).into_iter().map(|(_, id)| id.as_str()).collect();
        assert_eq!(ids, ["refunds"]);
    }

    proptest! {
        #[test]
        fn any_text_is_ranked_alike_twice_and_nobody_twice(task in "\\PC{0,200}", own in "\\PC{0,200}") {
            let mut staff = staff();
            staff.push(agent("any", &own, &[&task]));
            let relevance = Relevance::of(staff.iter());
            let ranked = relevance.rank(&task);
            prop_assert_eq!(&ranked, &relevance.rank(&task));
            let ids: BTreeSet<_> = ranked.iter().map(|(_, id)| id).collect();
            prop_assert_eq!(ids.len(), ranked.len());
            prop_assert!(ranked.iter().all(|(score, _)| *score > 0.0 && score.is_finite()));
        }
    }
}
