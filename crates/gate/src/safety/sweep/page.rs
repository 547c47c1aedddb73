//! Short texts of one class, and the ends of long ones, that are read together.

use super::glue;
use crate::safety::cache::TextScan;
use crate::safety::rules::Rules;
use crate::safety::sequence::{SEAM, ScanMemory, SequenceMatch};
use crate::safety::views::look;

#[derive(Debug, Default)]
pub(in crate::safety) struct Page {
    pub text: String,
    pub pieces: Vec<Piece>,
    /// The sequences that fired in the texts whose ends are here, by their place on the page.
    pub fires: Vec<SequenceMatch>,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::safety) struct Piece {
    /// Its start on the page.
    pub start: usize,
    pub text: u32,
    /// Its place among the texts that run on.
    pub ordinal: u32,
    /// Its start in its text.
    pub offset: usize,
    /// Whether it is all of its text.
    pub whole: bool,
}

impl Page {
    pub(super) fn push(&mut self, piece: Piece, text: &str) {
        if !self.pieces.is_empty() {
            self.text.push(char::from(SEAM));
        }
        self.pieces.push(Piece { start: self.text.len(), ..piece });
        self.text.push_str(text);
    }

    /// Keeps what fired within a part of the text that was pushed last.
    pub(super) fn keep(&mut self, fires: &[SequenceMatch], part: std::ops::Range<usize>) {
        let Some(piece) = self.pieces.last() else { return };
        let within = |fire: &&SequenceMatch| part.start <= fire.start && fire.end <= part.end;
        self.fires.extend(fires.iter().filter(within).map(|fire| {
            let onto = |at: usize| at - part.start + piece.start;
            SequenceMatch { start: onto(fire.start), end: onto(fire.end.max(fire.start)), ..*fire }
        }));
    }

    /// Scans it, and then once more with the words put together that its seams split.
    pub(super) fn scan(&self, rules: &Rules, memory: &mut ScanMemory) -> TextScan {
        let mut seen = look(rules, &self.text, memory, 0..0);
        let Some(page) = glue::glued(self, &rules.lexicon) else { return TextScan::of(seen) };
        let over = look(rules, &page.text, memory, 0..usize::MAX);
        seen.work += over.work;
        let glued = over.fires.into_iter().filter_map(|fire| page.across(fire)).collect();
        TextScan { seen, glued }
    }

    /// The piece that holds a place.
    pub(super) fn index(&self, at: usize) -> usize {
        self.pieces.partition_point(|piece| piece.start <= at).max(1) - 1
    }

    /// Whether a piece is one word, and nothing that begins in it goes on to `end` in the next.
    pub(super) fn is_word(&self, index: usize, end: usize) -> bool {
        let (piece, until) = (self.pieces[index], self.end(index));
        let text = self.text.get(piece.start..until).unwrap_or_default();
        piece.whole && end <= until && !text.contains(' ') && text.is_ascii()
    }

    /// The text of a piece.
    pub(super) fn piece(&self, index: usize) -> &str {
        &self.text[self.pieces[index].start..self.end(index)]
    }

    /// The end of a piece.
    pub(super) fn end(&self, index: usize) -> usize {
        self.pieces.get(index + 1).map_or(self.text.len(), |next| next.start - 1)
    }
}
