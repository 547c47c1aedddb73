//! Exact counts by a model's own tokenizer. A vocabulary is unpacked at its first use (30 to 100 ms, some 25 MB):
//! [`load`] does that ahead of the first message.

use super::estimate;
use handoffd_domain::window::Tokenizer;

/// The tokenizer's name in its library.
const fn encoding(tokenizer: Tokenizer) -> Option<&'static str> {
    match tokenizer {
        Tokenizer::O200k => Some("o200k_base"),
        Tokenizer::Cl100k => Some("cl100k_base"),
        Tokenizer::Estimate => None,
    }
}

/// Tokens of a text. Special tokens count as the text that they are: a sender's words are never control.
#[must_use]
pub fn count(text: &str, tokenizer: Tokenizer) -> u64 {
    match encoding(tokenizer).and_then(tiktoken::get_encoding) {
        Some(exact) => exact.count(text) as u64,
        None => estimate::tokens(text.as_bytes()),
    }
}

/// Unpacks a tokenizer's vocabulary, once a process.
pub fn load(tokenizer: Tokenizer) {
    let _ = encoding(tokenizer).and_then(tiktoken::get_encoding);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_published_vocabularies() {
        // By OpenAI's own tiktoken.
        for (text, o200k, cl100k) in [
            ("hello world", 2, 2),
            ("antidisestablishmentarianism", 6, 6),
            ("2 + 2 = 4", 7, 7),
            ("<|endoftext|>", 7, 7),
        ] {
            assert_eq!(count(text, Tokenizer::O200k), o200k, "{text}");
            assert_eq!(count(text, Tokenizer::Cl100k), cl100k, "{text}");
        }
        assert_eq!(count("お誕生日おめでとう", Tokenizer::Cl100k), 9);
        assert_eq!(count("お誕生日おめでとう", Tokenizer::O200k), 8);
        assert_eq!(count("", Tokenizer::O200k), 0);
    }
}
