//! Shifted alphabets and text written backwards, turned back.

use super::super::normalize::View;

/// How much around a telling word is turned back: bytes before and after it.
pub const AROUND: (usize, usize) = (300, 500);

/// The text around `at`, its letters shifted back by `shift`.
#[must_use]
pub fn shifted_back(text: &str, at: usize, shift: u8) -> View {
    let (from, part) = around(text, at);
    let turn = |byte: u8, first: u8| (byte - first + 26 - shift) % 26 + first;
    let turned = part
        .chars()
        .map(|c| match c {
            'a'..='z' => char::from(turn(c as u8, b'a')),
            'A'..='Z' => char::from(turn(c as u8, b'A')),
            other => other,
        })
        .collect();
    View::new(turned, vec![(0, from)])
}

/// The text around `at`, backwards.
#[must_use]
pub fn reversed(text: &str, at: usize) -> View {
    let (from, part) = around(text, at);
    View::opaque(part.chars().rev().collect(), from)
}

/// The text around `at`, each word of it backwards in its place.
#[must_use]
pub fn words_reversed(text: &str, at: usize) -> View {
    let (from, part) = around(text, at);
    let mut turned = String::with_capacity(part.len());
    let letter = |one: char| one.is_alphanumeric() || one == '\'';
    for piece in part.split_inclusive(|one: char| !letter(one)) {
        let end = piece.trim_end_matches(|one: char| !letter(one)).len();
        turned.extend(piece[..end].chars().rev());
        turned.push_str(&piece[end..]);
    }
    View::new(turned, vec![(0, from)])
}

/// Whether a turn (a shift of the alphabet, or backwards) gives the text that another one was made from.
#[must_use]
pub const fn undoes(turn: Option<u8>, other: Option<u8>) -> bool {
    match (turn, other) {
        (Some(shift), Some(other)) => (shift + other).is_multiple_of(26),
        (None, None) => true,
        _ => false,
    }
}

fn around(text: &str, at: usize) -> (usize, &str) {
    let from = text.floor_char_boundary(at.saturating_sub(AROUND.0));
    let to = text.ceil_char_boundary((at + AROUND.1).min(text.len()));
    (from, &text[from..to])
}
