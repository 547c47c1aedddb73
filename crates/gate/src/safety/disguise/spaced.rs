//! Closes up text that was pulled apart: letters and words with signs between them, short lines, lines of one length.

use super::super::normalize::View;
use super::super::reading::Reading;
use super::super::sequence::SEAM;
use super::is_gap;

/// Fewest letters in a row, each standing alone, that count as spaced out.
const MIN_SPACED: usize = 8;

/// Longest gap between spaced-out letters, in bytes.
const MAX_GAP: usize = 5;

/// Most bytes that stand between any two of an evenly spaced text.
const MAX_BETWEEN: usize = 3;

/// Lines this short, and so many of them in a row, are read as one word.
const SHORT_LINES: (usize, usize) = (16, 4);

/// Fewest lines of one length that are put together, and fewest characters that they have with the ends of
/// their neighbours.
const MIN_EVEN: usize = 3;
const MIN_WHOLE: usize = 15;

/// The closed-up runs of a text; each run is a view of its own.
#[derive(Debug, Default)]
pub(in crate::safety) struct ClosedUp {
    /// Letters that stand alone (`i g n o r e`, `i. g, n.o-r e`). Spaces are only where gaps of two widths tell words apart.
    pub letters: Vec<View>,
    /// Short lines without their spaces, over which words may be broken.
    pub lines: Vec<View>,
    /// The same text if one sign is between any two bytes (`w.w.w...e.x.a.m.p.l.e`), and lines of one
    /// length: with the signs between the letters, just as it was before.
    pub signs: Vec<View>,
}

/// `reading` is that text, read.
#[must_use]
pub(in crate::safety) fn closed_up(text: &str, reading: &Reading) -> ClosedUp {
    let bytes = text.as_bytes();
    let mut views = ClosedUp::default();
    letter_spaced(bytes, reading, &mut views);
    if memchr::memchr(b'\n', bytes).is_none() {
        return views;
    }
    let mut start = 0;
    for end in memchr::memchr_iter(SEAM, bytes).chain([bytes.len()]) {
        let (lines, signs) = (views.lines.len(), views.signs.len());
        short_lines(&bytes[start..end], &mut views.lines);
        even_lines(&text[start..end], &mut views.signs);
        views.lines[lines..].iter_mut().for_each(|view| view.moved(start));
        views.signs[signs..].iter_mut().for_each(|view| view.moved(start));
        start = end + 1;
    }
    views
}

fn letter_spaced(bytes: &[u8], reading: &Reading, views: &mut ClosedUp) {
    let mut at = 0;
    loop {
        // A stretch that any run covers.
        at = reading.next_alone(at);
        if at + 2 * MIN_SPACED > bytes.len() {
            return;
        }
        let mut from = at;
        while from > 0
            && at - from < 4 * MIN_SPACED
            && (is_gap(bytes[from - 1]) || !is_letter(bytes[from]) && is_letter(bytes[from - 1]))
        {
            from -= 1;
        }
        // The end of the word before does not belong to the run.
        from += usize::from(from > 0 && is_letter(bytes[from]) && is_letter(bytes[from - 1]));
        let end = spaced_run(bytes, from, &mut views.letters);
        at = end.max(at + MIN_SPACED);
        at = evenly_spaced(bytes, from, at, &mut views.signs).max(at);
    }
}

/// Removes the signs between any two bytes, from each run that begins within `from..until` and holds more than letters; returns
/// the end of the last run.
fn evenly_spaced(bytes: &[u8], from: usize, until: usize, views: &mut Vec<View>) -> usize {
    let letter = |at: usize| bytes.get(at).is_some_and(|byte| is_letter(*byte));
    let alone = |at: &usize| letter(*at) && !letter(at + 1) && !(*at > 0 && letter(at - 1));
    let mut done = from;
    while let Some(first) = (done..until.min(bytes.len())).find(alone) {
        let gap = bytes[first + 1..].iter().take(MAX_BETWEEN).take_while(|byte| is_gap(**byte));
        // A sign beside the letter looks like a part of the gap.
        let runs = (1..=gap.count()).map(|width| even_run(bytes, (done, first), width));
        let longest = runs.max_by_key(|run| run.letters).filter(|run| run.letters >= MIN_SPACED);
        let Some(EvenRun { start, end, step, .. }) = longest else {
            done = first + 1;
            continue;
        };
        done = end + 1;
        let kept = || (start..=end).step_by(step);
        if kept().any(|at| bytes[at].is_ascii_punctuation()) {
            let text = kept().map(|at| char::from(bytes[at])).collect();
            views.push(View::new(text, kept().enumerate().collect()));
        }
    }
    done
}

/// A run of which every `step`th byte is kept, from the one at `start` until that at `end`.
struct EvenRun {
    start: usize,
    end: usize,
    step: usize,
    letters: usize,
}

/// The run around the letter at `first`, between any two bytes of which stand the same `width` bytes. It
/// begins at `from` at the earliest.
fn even_run(bytes: &[u8], (from, first): (usize, usize), width: usize) -> EvenRun {
    let letter = |at: usize| bytes.get(at).is_some_and(|byte| is_letter(*byte));
    let between = &bytes[first + 1..][..width];
    let step = width + 1;
    let mut run = EvenRun { start: first, end: first, step, letters: 1 };
    while bytes[run.end + 1..].starts_with(between)
        && bytes.get(run.end + step).is_some_and(u8::is_ascii)
    {
        run.end += step;
        run.letters += usize::from(letter(run.end));
    }
    if run.letters < MIN_SPACED {
        return run;
    }
    // The beginning of the next word does not belong to the run.
    if letter(run.end) && letter(run.end + 1) {
        run.end -= step;
        run.letters -= 1;
    }
    while run.start >= from + step
        && bytes[from..run.start].ends_with(between)
        && matches!(bytes[run.start - step], b' '..=b'~')
    {
        run.start -= step;
    }
    run
}

/// Closes up the run that begins at `from`; gives its end.
fn spaced_run(bytes: &[u8], from: usize, views: &mut Vec<View>) -> usize {
    // Each letter's place, and the gap before it.
    let mut letters: Vec<(usize, usize)> = Vec::new();
    let mut at = from;
    let mut gap = 0;
    while at < bytes.len() {
        if is_letter(bytes[at]) {
            if bytes.get(at + 1).is_some_and(|next| is_letter(*next)) {
                break;
            }
            letters.push((at, gap));
            gap = 0;
        } else if is_gap(bytes[at]) && gap < MAX_GAP {
            gap += 1;
        } else {
            break;
        }
        at += 1;
    }
    if letters.len() >= MIN_SPACED {
        // White space wider than most gaps separates words.
        let usual = letters[1..].iter().map(|(_, gap)| *gap).min().unwrap_or(1);
        let mut marks = Vec::with_capacity(letters.len());
        let mut text = String::with_capacity(2 * letters.len());
        for (place, gap) in letters {
            let between = &bytes[place - gap.min(place)..place];
            if gap > usual && between.iter().all(u8::is_ascii_whitespace) {
                text.push(' ');
            }
            marks.push((text.len(), place));
            text.push(char::from(bytes[place]));
        }
        views.push(View::new(text, marks));
    }
    at
}

fn short_lines(bytes: &[u8], views: &mut Vec<View>) {
    let (length, count) = SHORT_LINES;
    let mut first = 0;
    let mut lines = 0;
    let mut line = 0;
    for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
        if end - line <= length && end < bytes.len() {
            if lines == 0 {
                first = line;
            }
            lines += 1;
        } else {
            if lines >= count {
                views.push(without_spaces(bytes, first, end.min(line + length)));
            }
            lines = 0;
        }
        line = end + 1;
    }
}

/// Joins lines of one length, as a text is cut so that people cannot read it, with the rest of the text on the line before and
/// on the line after.
fn even_lines(text: &str, views: &mut Vec<View>) {
    let (longest, _) = SHORT_LINES;
    let ascii = text.is_ascii();
    let (mut first, mut lines, mut width) = (0, 0, 0);
    let mut line = 0;
    for end in memchr::memchr_iter(b'\n', text.as_bytes()).chain([text.len()]) {
        let this = match end - line {
            long if long > 4 * longest => usize::MAX,
            bytes if ascii => bytes - usize::from(text[line..end].ends_with('\r')),
            _ => text[line..end].trim_end_matches('\r').chars().count(),
        };
        let last = end == text.len();
        let more = this == width;
        if !more || last {
            let end = if more { end } else { line };
            let whole = lines + usize::from(more);
            if whole >= MIN_EVEN
                && (1..=longest).contains(&width)
                && (whole + 2) * width >= MIN_WHOLE
            {
                views.push(joined(text, first, end, width));
            }
            (first, lines, width) = (line, 0, this);
        }
        lines += 1;
        line = end + 1;
    }
}

/// Lines of `width` characters, from `first` until `last`, without their ends; the line before ends, and
/// the one at `last` begins, with as much as they have.
fn joined(text: &str, first: usize, last: usize, width: usize) -> View {
    let break_of = if text[..first].ends_with("\r\n") { 2 } else { 1 };
    let before = text[..first].char_indices().rev().take(width + break_of).last();
    let from = before.map_or(first, |(at, _)| at);
    let to = text[last..].char_indices().nth(width).map_or(text.len(), |(at, _)| last + at);
    let mut marks = Vec::new();
    let mut out = String::with_capacity(to - from);
    let mut at = from;
    for line in text[from..to].split('\n') {
        marks.push((out.len(), at));
        out.push_str(line.trim_end_matches('\r'));
        at += line.len() + 1;
    }
    View::new(out, marks)
}

fn without_spaces(bytes: &[u8], from: usize, to: usize) -> View {
    let mut text = Vec::new();
    let mut marks = Vec::new();
    for (at, byte) in bytes.iter().enumerate().take(to).skip(from) {
        if !byte.is_ascii_whitespace() && *byte != b'-' {
            if at == from || bytes[at - 1].is_ascii_whitespace() || bytes[at - 1] == b'-' {
                marks.push((text.len(), at));
            }
            text.push(*byte);
        }
    }
    View::new(String::from_utf8_lossy(&text).into_owned(), marks)
}

const fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}
