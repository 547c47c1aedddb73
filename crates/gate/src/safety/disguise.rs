//! Undoing disguises that are not a matter of single characters: escapes, encodings, spaced-out
//! letters, shifted alphabets, text written backwards.
//!
//! Each function returns views to be matched. The length of the text bounds the cost and the size of the views, so that views of
//! views stay linear as long as their depth is bounded.

mod encoded;
mod escapes;
mod joined;
mod selectors;
mod spaced;
mod turned;

pub(in crate::safety) use encoded::encoded;
pub use escapes::{Unescaped, unescaped};
pub(in crate::safety) use joined::joined;
pub(in crate::safety) use selectors::selected;
pub(in crate::safety) use spaced::closed_up;
pub use turned::{AROUND, reversed, shifted_back, undoes, words_reversed};

/// Shortest encoded segment that is decoded, in characters.
pub const MIN_ENCODED: usize = 16;

const fn is_encoded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

const fn is_gap(byte: u8) -> bool {
    byte.is_ascii_punctuation() || byte.is_ascii_whitespace()
}
