//! Words written as one, each with a capital (`IgnorePreviousInstructions`), taken apart.

use super::super::normalize::View;
use super::super::reading::Reading;
use super::MIN_ENCODED;

/// Fewest words in one; names of fewer are everywhere in code.
const MIN_JOINED: usize = 3;

/// Longest name that is taken apart, in bytes.
const MAX_JOINED: usize = 400;

/// Most digits in a name.
const MOST_DIGITS: usize = 2;

/// Fewest letters that the words of a name have on average.
const MEAN_LETTERS: usize = 4;

/// The words of a text that are written as one, apart, each such name on a line of its own; `None` where there are none.
/// `reading` is that text, read.
#[must_use]
pub(in crate::safety) fn joined(text: &str, reading: &Reading) -> Option<View> {
    let bytes = text.as_bytes();
    let mut apart = String::new();
    let mut marks = Vec::new();
    let mut done = 0;
    while let Some(start) = reading.encoded_from(done) {
        done = reading.encoded_until(start);
        let mut from = start;
        for name in bytes[start..done].split(|byte| !byte.is_ascii_alphanumeric()) {
            if is_joined(name) {
                take_apart(name, from, &mut apart, &mut marks);
            }
            from += name.len() + 1;
        }
    }
    (!apart.is_empty()).then(|| View::new(apart, marks))
}

/// Whether a run of letters is several words; what was encoded has digits among its letters and capitals everywhere.
fn is_joined(name: &[u8]) -> bool {
    let length = (MIN_ENCODED..=MAX_JOINED).contains(&name.len());
    let digits = || name.iter().filter(|byte| byte.is_ascii_digit()).count();
    let words = || beginnings(name).count() + 1;
    length && digits() <= MOST_DIGITS && (MIN_JOINED..=name.len() / MEAN_LETTERS).contains(&words())
}

fn take_apart(name: &[u8], from: usize, apart: &mut String, marks: &mut Vec<(usize, usize)>) {
    let mut word = 0;
    for next in beginnings(name).chain([name.len()]) {
        marks.push((apart.len(), from + word));
        apart.extend(name[word..next].iter().map(|byte| char::from(*byte)));
        apart.push(if next == name.len() { '\n' } else { ' ' });
        word = next;
    }
}

/// The places after the first at which words begin in a name: at a capital behind a small letter, or before one.
fn beginnings(name: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let small = |at: usize| name.get(at).is_some_and(u8::is_ascii_lowercase);
    (1..name.len())
        .filter(move |at| name[*at].is_ascii_uppercase() && (small(at - 1) || small(at + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(text: &str) -> Option<String> {
        let mut reading = Reading::default();
        reading.read(text);
        joined(text, &reading).map(|view| view.text)
    }

    #[test]
    fn words_that_are_written_as_one_are_read_apart() {
        let text = "see IgnorePreviousInstructions, readHTTPResponseBody and getUserPasswordHash2";
        let words =
            "Ignore Previous Instructions\nread HTTP Response Body\nget User Password Hash2\n";
        assert_eq!(apart(text).as_deref(), Some(words));
    }

    #[test]
    fn short_names_and_names_of_two_words_are_left() {
        assert_eq!(apart("getUserName ConfigurationManager aGVsbG8 incomprehensibilities"), None);
    }

    #[test]
    fn offsets_lead_back_into_the_name() {
        let text = "x = IgnorePreviousInstructions()";
        let mut reading = Reading::default();
        reading.read(text);
        let view = joined(text, &reading).expect("a name of three words");
        let at = view.original(view.text.find("Instructions").expect("a word of it"));
        assert!(text[at..].starts_with("Instructions()"));
    }
}
