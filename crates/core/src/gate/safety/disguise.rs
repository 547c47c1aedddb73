//! Undoing disguises that are not a matter of single characters: escapes, encodings, spaced-out
//! letters, shifted alphabets, text written backwards.
//!
//! Each function gives views to be matched. What it costs is bounded by the length of the text, and
//! what it gives by that length too, so that views of views stay linear as long as their depth is.

mod encoded;
mod escapes;
mod joined;
mod selectors;
mod spaced;
mod turned;

pub(in crate::gate::safety) use encoded::encoded;
pub use escapes::{Unescaped, unescaped};
pub(in crate::gate::safety) use joined::joined;
pub(in crate::gate::safety) use selectors::selected;
pub(in crate::gate::safety) use spaced::closed_up;
pub use turned::{AROUND, reversed, shifted_back, undoes, words_reversed};

/// Shortest encoded segment that is decoded, in characters.
pub const MIN_ENCODED: usize = 16;

const fn is_encoded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

const fn is_gap(byte: u8) -> bool {
    byte.is_ascii_punctuation() || byte.is_ascii_whitespace()
}
