//! A text's sentences, in any script, without a language's rules: at a line's end, at a full stop, question or
//! exclamation mark that white space follows, and at their full-width forms.

use std::ops::Range;

/// The places of a text's sentences, without the white space around them. A full stop behind a digit or a single letter
/// ends none (`12. Mai`, `z. B.`).
#[must_use]
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    let mut word = 0;
    let mut last = ' ';
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        let end = match c {
            '\n' | '\r' | '。' | '！' | '？' | '；' => true,
            '!' | '?' => next.is_none_or(char::is_whitespace),
            '.' => {
                let short = last.is_ascii_digit() || word <= 1;
                next.is_none_or(char::is_whitespace) && !(short && next.is_some())
            }
            _ => false,
        };
        word = if c.is_alphanumeric() { word + 1 } else { 0 };
        last = c;
        if end {
            push(text, start..at + c.len_utf8(), &mut found);
            start = at + c.len_utf8();
        }
    }
    push(text, start..text.len(), &mut found);
    found
}

fn push(text: &str, at: Range<usize>, found: &mut Vec<Range<usize>>) {
    let raw = &text[at.clone()];
    let trimmed = raw.trim();
    if trimmed.chars().any(char::is_alphanumeric) {
        let from = at.start + (raw.len() - raw.trim_start().len());
        found.push(from..from + trimmed.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_they_do() {
        let text = "It is due on 12. Mai 2026, z. B. early. Is it?\nYes! 合同到期。金额为25万元。 v1.2 is out";
        let all: Vec<&str> = sentences(text).into_iter().map(|at| &text[at]).collect();
        assert_eq!(
            all,
            [
                "It is due on 12. Mai 2026, z. B. early.",
                "Is it?",
                "Yes!",
                "合同到期。",
                "金额为25万元。",
                "v1.2 is out"
            ]
        );
        assert!(sentences(" \n . ").is_empty());
    }
}
