//! The facts of a text that a summary must not lose (seed 000 §6.4): figures by their form, statements by their words, in
//! English, German and Chinese.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

pub use super::fact_kind::FactKind;
use super::sentences::sentences;
pub use super::statements::{Statement, statement};

/// A fact and where its text has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<'t> {
    pub kind: FactKind,
    pub text: &'t str,
    /// The byte range of the fact in the text.
    pub at: Range<usize>,
}

/// A month's name or its short form.
const MONTH: &str = "(?:Jan(?:uary|uar)?|Jänner|Feb(?:ruary|ruar)?|Mar(?:ch)?|März|Apr(?:il)?|May|Mai|June?|Juni?|July?|Juli?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Okt(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Dez(?:ember)?)";

/// Figures by their form, in the order in which they are looked for: what an earlier one takes is not taken again.
static FIGURES: LazyLock<Vec<(FactKind, Regex)>> = LazyLock::new(|| {
    let currency = "(?:EUR|USD|GBP|CHF|CNY|RMB|JPY|US\\$|€|\\$|£|¥|￥)";
    let number = "\\d(?:[\\d.,'’]*\\d)?";
    let patterns = [
        (FactKind::Id, "(?:https?://|mailto:)[^\\s\"'<>，。；、）)]+".to_owned()),
        (FactKind::Id, "[\\w.+-]+@[\\w-]+(?:\\.[\\w-]+)+".to_owned()),
        (FactKind::Date, "\\d{4}-\\d{2}-\\d{2}(?:[T ]\\d{2}:\\d{2}(?::\\d{2}(?:\\.\\d+)?)?(?:Z|[+-]\\d{2}:?\\d{2})?)?".to_owned()),
        (FactKind::Date, "\\d{4}\\s?年(?:\\s?\\d{1,2}\\s?月(?:\\s?\\d{1,2}\\s?[日号])?)?|\\d{1,2}\\s?月\\s?\\d{1,2}\\s?[日号]".to_owned()),
        (FactKind::Date, format!("\\d{{1,2}}(?:\\.|st|nd|rd|th)?\\s+{MONTH}(?-u:\\b)\\.?(?:,?\\s+\\d{{4}})?")),
        (FactKind::Date, format!("(?-u:\\b){MONTH}\\.?\\s+\\d{{1,2}}(?:st|nd|rd|th)?(?:,?\\s+\\d{{4}})?(?-u:\\b)")),
        (FactKind::Date, "\\d{1,2}[./]\\d{1,2}[./]\\d{2,4}".to_owned()),
        (FactKind::Date, "(?-u:\\b)\\d{1,2}:\\d{2}(?::\\d{2})?(?-u:\\b)".to_owned()),
        (FactKind::Amount, format!("{currency}\\s?{number}(?:\\s?(?:million|billion|Mio\\.?|Mrd\\.?|万|亿))?")),
        (FactKind::Amount, format!("{number}\\s?(?:{currency}|(?:[百千万亿]+)?(?:元|欧元|美元)|euros?|dollars?|Euro|Dollar|percent|Prozent|%|％)")),
        // Letters and digits in one word, or joined by signs: a contract's number, an account, a version, a hash.
        (FactKind::Id, "(?-u:\\b)(?:[A-Za-z]+[-_/.#]?\\d|\\d+[-_/#]?[A-Za-z])[A-Za-z0-9]*(?:[-_/.][A-Za-z0-9]+)*(?-u:\\b)".to_owned()),
        (FactKind::Id, "(?-u:\\b)\\d+(?:[-_/]\\d+)+(?-u:\\b)".to_owned()),
        (FactKind::Id, "(?-u:\\b)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?-u:\\b)".to_owned()),
        (FactKind::Number, number.to_owned()),
    ];
    let compiled =
        patterns.into_iter().filter_map(|(kind, text)| Some((kind, Regex::new(&text).ok()?)));
    compiled.collect()
});

/// The figures of a text, each place once.
#[must_use]
pub fn figures(text: &str) -> Vec<Fact<'_>> {
    let mut found: Vec<Fact<'_>> = Vec::new();
    let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
    for (kind, pattern) in FIGURES.iter() {
        for one in pattern.find_iter(text) {
            let at = one.range();
            // Places taken do not overlap: the last that begins before the end is the only one to ask.
            let overlaps =
                taken.range(..at.end).next_back().is_some_and(|(_, end)| *end > at.start);
            if !overlaps {
                taken.insert(at.start, at.end);
                found.push(Fact { kind: *kind, text: one.as_str(), at });
            }
        }
    }
    found.sort_by_key(|fact| fact.at.start);
    found
}

/// All facts of a text: of each sentence what it states, and its figures.
#[must_use]
pub fn facts(text: &str) -> Vec<Fact<'_>> {
    let mut found = figures(text);
    for at in sentences(text) {
        let sentence = &text[at.clone()];
        if let Some(stated) = statement(sentence) {
            found.push(Fact { kind: stated.kind, text: sentence, at });
        }
    }
    found.sort_by_key(|fact| (fact.at.start, fact.kind));
    found
}

/// A text made comparable: white space as one space, lower case.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !plain.is_empty() {
            plain.push(' ');
        }
        plain.extend(word.chars().flat_map(char::to_lowercase));
    }
    plain
}

/// Whether a text in [`plain`] form contains a fact: a statement word for word, a figure with no letter or digit next to it.
#[must_use]
pub fn holds(plain_text: &str, fact: &Fact<'_>) -> bool {
    let wanted = plain(fact.text);
    let wanted = wanted.trim_end_matches(['.', '。', '!', '！', ',', '，']);
    if wanted.is_empty() {
        return true;
    }
    if fact.kind.is_statement() {
        return memchr::memmem::find(plain_text.as_bytes(), wanted.as_bytes()).is_some();
    }
    let joins = |c: char| c.is_ascii_alphanumeric();
    memchr::memmem::find_iter(plain_text.as_bytes(), wanted.as_bytes()).any(|at| {
        let (before, after) = (&plain_text[..at], &plain_text[at + wanted.len()..]);
        let first = wanted.chars().next().is_some_and(joins);
        let last = wanted.chars().next_back().is_some_and(joins);
        let begins = !first || !before.chars().next_back().is_some_and(joins);
        let mut next = after.chars();
        let ends = !last
            || match next.next() {
                Some('.' | ',') => !next.next().is_some_and(|c| c.is_ascii_digit()),
                other => !other.is_some_and(joins),
            };
        begins && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures_of(text: &str) -> Vec<(FactKind, &str)> {
        figures(text).into_iter().map(|fact| (fact.kind, fact.text)).collect()
    }

    #[test]
    fn a58_figures_are_found_by_their_form_in_three_languages() {
        use FactKind::{Amount, Date, Id, Number};
        assert_eq!(
            figures_of(
                "Invoice INV-2026-0417 of 12 May 2026 over EUR 4,200.00 is 17 days late (5%)."
            ),
            [
                (Id, "INV-2026-0417"),
                (Date, "12 May 2026"),
                (Amount, "EUR 4,200.00"),
                (Number, "17"),
                (Amount, "5%")
            ]
        );
        assert_eq!(
            figures_of(
                "Am 3. Oktober 2026 um 14:30 zahlte Konto DE89370400440532013000 genau 1.250,50 Euro."
            ),
            [
                (Date, "3. Oktober 2026"),
                (Date, "14:30"),
                (Id, "DE89370400440532013000"),
                (Amount, "1.250,50 Euro")
            ]
        );
        assert_eq!(
            figures_of("合同HT-2026-88将于2026年10月3日到期，金额为25万元。"),
            [(Id, "HT-2026-88"), (Date, "2026年10月3日"), (Amount, "25万元")]
        );
        assert_eq!(
            figures_of(
                "Write to a.b@example.org or see https://example.org/x?id=3, ref 2026-10-03T08:00:00Z, 192.168.0.1, UNCAPPED_INDEMNITY"
            ),
            [
                (Id, "a.b@example.org"),
                (Id, "https://example.org/x?id=3,"),
                (Date, "2026-10-03T08:00:00Z"),
                (Number, "192.168.0.1"),
                (Id, "UNCAPPED_INDEMNITY")
            ]
        );
    }

    #[test]
    fn a58_statements_are_found_by_their_words() {
        for (sentence, kind) in [
            ("The reply must not name the client.", Some(FactKind::Constraint)),
            ("Die Summe darf nicht überschritten werden.", Some(FactKind::Constraint)),
            ("报价不得超过预算。", Some(FactKind::Constraint)),
            ("Warning: the vendor was insolvent before.", Some(FactKind::Flag)),
            ("Es besteht ein Risiko der Verjährung.", Some(FactKind::Flag)),
            ("The start date is still open.", Some(FactKind::OpenDecision)),
            ("付款方式待定。", Some(FactKind::OpenDecision)),
            ("We agreed on arbitration because courts are slow.", Some(FactKind::Decision)),
            ("The weather was fine.", None),
        ] {
            assert_eq!(statement(sentence).map(|stated| stated.kind), kind, "{sentence}");
        }
    }

    #[test]
    fn a_figure_is_held_as_a_whole_word_only() {
        let held = |text: &str, fact: &str| {
            let fact = Fact { kind: FactKind::Number, text: fact, at: 0..0 };
            holds(&plain(text), &fact)
        };
        assert!(held("due in 17 days", "17") && held("it is 17.", "17") && held("共17天", "17"));
        assert!(!held("due in 170 days", "17") && !held("17.5 hours", "17") && !held("A17", "17"));
    }
}
