//! Words that are split over neighbouring texts of one page, put together.

use super::page::Page;
use crate::safety::lexicon::Lexicon;
use crate::safety::reading::is_letter;
use crate::safety::sequence::SequenceMatch;
use crate::safety::words::KnownWord;

/// Longest word that is put together, in bytes.
const MAX_WORD: usize = 60;

/// Most texts that one word is put together of.
const MAX_PARTS: usize = 24;

/// A page without the seams that split a word.
#[derive(Debug)]
pub(super) struct GluedPage {
    pub text: String,
    /// The places of the seams in `text`.
    seams: Vec<usize>,
}

impl GluedPage {
    /// The same place on the page.
    fn on_page(&self, at: usize) -> usize {
        at + self.seams.partition_point(|seam| *seam <= at)
    }

    /// A match that a seam stood in, by its place on the page; `None` of all others, which the page itself shows.
    pub(super) fn across(&self, fire: SequenceMatch) -> Option<SequenceMatch> {
        let next = self.seams.partition_point(|seam| *seam <= fire.start);
        let covers = self.seams.get(next).is_some_and(|seam| *seam < fire.end);
        let (start, end) = (fire.start, fire.end.max(1) - 1);
        covers.then(|| SequenceMatch {
            start: self.on_page(start),
            end: self.on_page(end) + 1,
            ..fire
        })
    }
}

/// A page with the words put together that the lexicon knows, or whose script has no borders of words; `None` if there
/// is none.
pub(super) fn glued(page: &Page, lexicon: &Lexicon) -> Option<GluedPage> {
    let mut dropped = Vec::new();
    let mut first = 0;
    while first + 1 < page.pieces.len() {
        let last = word_until(page, lexicon, first);
        dropped.extend(first + 1..=last);
        first = last.max(first + 1);
    }
    if dropped.is_empty() {
        return None;
    }
    let (mut text, mut seams) = (String::with_capacity(page.text.len()), Vec::new());
    let mut from = 0;
    for index in dropped {
        let seam = page.pieces[index].start - 1;
        text.push_str(&page.text[from..seam]);
        seams.push(text.len());
        from = seam + 1;
    }
    text.push_str(&page.text[from..]);
    Some(GluedPage { text, seams })
}

/// The last of the pieces that the word at the end of piece `first` goes on to, or `first`.
fn word_until(page: &Page, lexicon: &Lexicon, first: usize) -> usize {
    let mut word = last_word(page.piece(first)).to_owned();
    let mut until = first;
    if word.is_empty() || ends(lexicon.knows(&word), &word) {
        return until;
    }
    let mut stem = false;
    for next in first + 1..page.pieces.len().min(first + MAX_PARTS) {
        let piece = page.piece(next);
        let part = first_word(piece);
        if part.is_empty() || word.len() + part.len() > MAX_WORD {
            break;
        }
        let borderless = word.ends_with(has_no_case) && part.starts_with(has_no_case);
        word.push_str(part);
        let known = lexicon.knows(&word);
        // A word that only begins like a stem is not a longer match than that stem.
        if borderless || known.exact || known.stem && !stem {
            until = next;
        }
        if part.len() < piece.len() || ends(known, &word) {
            break;
        }
        stem = known.stem;
    }
    until
}

/// Whether no letters behind a word make one that the lexicon knows. Letters beyond ASCII may be read as others.
fn ends(known: KnownWord, word: &str) -> bool {
    word.is_ascii() && !known.begins
}

fn first_word(text: &str) -> &str {
    let end = text.bytes().position(|byte| !is_letter(byte)).unwrap_or(text.len());
    &text[..end]
}

fn last_word(text: &str) -> &str {
    let start = text.bytes().rposition(|byte| !is_letter(byte)).map_or(0, |at| at + 1);
    let word = &text[start..];
    if word.len() > MAX_WORD { "" } else { word }
}

/// Whether a letter is of a script without capitals, most of which set no spaces between words or attach particles.
fn has_no_case(letter: char) -> bool {
    !letter.is_ascii() && letter.is_alphabetic() && !letter.is_lowercase() && !letter.is_uppercase()
}
