//! Undoing disguises that are not a matter of single characters: escapes, encodings, spaced-out
//! letters, shifted alphabets, text written backwards.
//!
//! Each function gives views to be matched. What it costs is bounded by the length of the text, and
//! what it gives by that length too, so that views of views stay linear as long as their depth is.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use super::normalize::View;
use super::reading::Reading;
use crate::domain::unseen::is_unseen;

/// Shortest encoded segment that is decoded, in characters.
pub const MIN_ENCODED: usize = 16;

/// Shortest line that an encoder may have broken an encoded segment at.
const MIN_BROKEN: usize = 40;

/// Rounds of unescaping what unescaping brought to light.
const ROUNDS: usize = 4;

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

/// How much around a telling word is turned back: bytes before and after it.
pub const AROUND: (usize, usize) = (300, 500);

/// The text with escapes of letters undone, as often as that brings more to light: percent-encoding,
/// HTML character references, `\u0069` and `\x69`. `None` where there are none. With it, whether once
/// was enough: then its changes are all there are.
#[must_use]
pub fn unescaped(text: &str) -> Option<(View, bool)> {
    let mut view = unescape(text)?;
    let mut once = true;
    for _ in 1..ROUNDS {
        let Some(next) = unescape(&view.text) else { break };
        view = next.over(&view);
        once = false;
    }
    Some((view, once))
}

fn unescape(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut marks = vec![(0, 0)];
    let mut kept = 0;
    for at in memchr::memchr3_iter(b'%', b'&', b'\\', bytes) {
        if at < kept {
            continue;
        }
        let Some((character, length)) = escape(&bytes[at..]) else { continue };
        out.push_str(&text[kept..at]);
        marks.push((out.len(), at));
        out.push(character);
        kept = at + length;
        marks.push((out.len(), kept));
    }
    if kept == 0 {
        return None;
    }
    out.push_str(&text[kept..]);
    Some(View::new(out, marks))
}

/// The character an escape stands for, and the escape's length.
fn escape(bytes: &[u8]) -> Option<(char, usize)> {
    match (bytes[0], bytes.get(1)?) {
        (b'%', _) => percent(bytes),
        (b'&', b'#') => {
            let (digits, radix, lead) = match bytes.get(2)? {
                b'x' | b'X' => (&bytes[3..], 16, 3),
                _ => (&bytes[2..], 10, 2),
            };
            let length = digits.iter().take(7).take_while(|byte| byte.is_ascii_hexdigit()).count();
            let code = number(&digits[..length], radix)?;
            let end = usize::from(digits.get(length) == Some(&b';'));
            Some((char::from_u32(code).filter(|c| *c != '\0')?, lead + length + end))
        }
        (b'&', _) => {
            const NAMED: [(&[u8], char); 12] = [
                (b"&lt;", '<'),
                (b"&gt;", '>'),
                (b"&amp;", '&'),
                (b"&quot;", '"'),
                (b"&apos;", '\''),
                (b"&nbsp;", ' '),
                (b"&shy;", '\u{ad}'),
                (b"&zwj;", '\u{200d}'),
                (b"&zwnj;", '\u{200c}'),
                (b"&Tab;", '\t'),
                (b"&NewLine;", '\n'),
                (b"&colon;", ':'),
            ];
            NAMED
                .iter()
                .find(|(name, _)| bytes.starts_with(name))
                .map(|(name, character)| (*character, name.len()))
        }
        (b'\\', b'x') => {
            let code = number(bytes.get(2..4)?, 16)?;
            char::from_u32(code).filter(char::is_ascii).map(|character| (character, 4))
        }
        (b'\\', b'u') if bytes.get(2) == Some(&b'{') => {
            let digits = &bytes[3..bytes.len().min(9)];
            let length = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            (digits.get(length) == Some(&b'}')).then_some(())?;
            Some((char::from_u32(number(&digits[..length], 16)?)?, length + 4))
        }
        (b'\\', b'u') => {
            let unit = number(bytes.get(2..6)?, 16)?;
            if (0xd800..0xdc00).contains(&unit) && bytes.get(6..8) == Some(b"\\u") {
                let low = number(bytes.get(8..12)?, 16)?.checked_sub(0xdc00)?;
                let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low & 0x3ff);
                return Some((char::from_u32(code)?, 12));
            }
            Some((char::from_u32(unit)?, 6))
        }
        (b'\\', b'\\' | b'/' | b'"') => Some((char::from(bytes[1]), 2)),
        _ => None,
    }
}

/// One character in percent-encoded UTF-8.
fn percent(bytes: &[u8]) -> Option<(char, usize)> {
    let octet = |index: usize| -> Option<u8> {
        let digits = bytes.get(3 * index..3 * index + 3)?;
        (digits[0] == b'%').then_some(())?;
        number(&digits[1..], 16).map(|code| code as u8)
    };
    let first = octet(0)?;
    let length = match first {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf8 => 4,
        _ => return None,
    };
    let mut octets = [first; 4];
    for (index, slot) in octets.iter_mut().enumerate().take(length).skip(1) {
        *slot = octet(index)?;
    }
    let text = std::str::from_utf8(&octets[..length]).ok()?;
    text.chars().next().filter(|c| *c != '\0').map(|character| (character, 3 * length))
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u32, |code, digit| {
        code.checked_mul(radix)?.checked_add(char::from(*digit).to_digit(radix)?)
    })
}

/// Segments of base64 (either alphabet, also broken into lines), base32 or hexadecimal digits of at
/// least [`MIN_ENCODED`] characters that decode to readable text. `reading` is that text, read.
#[must_use]
pub(super) fn encoded(text: &str, reading: &Reading) -> Vec<View> {
    let bytes = text.as_bytes();
    let mut views = Vec::new();
    let mut done = 0;
    while let Some(start) = reading.encoded_from(done) {
        let mut end = reading.encoded_until(start);
        let mut lines: Vec<_> = std::iter::once(start..end).collect();
        while lines.last().is_some_and(|line| line.len() >= MIN_BROKEN)
            && let Some(next) = after_break(bytes, end)
        {
            end = reading.encoded_until(next);
            lines.push(next..end);
        }
        done = end;
        let whole: Vec<u8> = lines.iter().flat_map(|line| &bytes[line.clone()]).copied().collect();
        if let Some(text) = decode(&whole) {
            views.push(View::opaque(text, start));
            continue;
        }
        // A path or a query may hold one.
        let mut part_start = 0;
        for part in whole.split(|byte| matches!(byte, b'/' | b'-' | b'_' | b'+')) {
            if part.len() >= MIN_ENCODED
                && part.len() < whole.len()
                && let Some(text) = decode(part)
            {
                views.push(View::opaque(text, start + part_start));
            }
            part_start += part.len() + 1;
        }
    }
    views
}

/// Where an encoded segment goes on after the end of a line, at most a few bytes further.
fn after_break(bytes: &[u8], end: usize) -> Option<usize> {
    let rest = &bytes[end..bytes.len().min(end + 8)];
    let rest = rest
        .strip_prefix(b"\\n")
        .or_else(|| rest.strip_prefix(b"\r\n"))
        .or_else(|| rest.strip_prefix(b"\n"))?;
    let next = bytes.len().min(end + 8) - rest.len();
    let next = next + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    bytes.get(next).is_some_and(|byte| is_encoded(*byte)).then_some(next)
}

const fn is_encoded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

fn decode(segment: &[u8]) -> Option<String> {
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let digits = segment.strip_prefix(b"0x").unwrap_or(segment);
    if digits.iter().all(u8::is_ascii_hexdigit) {
        let even = &digits[..digits.len() & !1];
        if let Some(text) = hex::decode(even).ok().and_then(readable) {
            return Some(text);
        }
    }
    if let Some(text) = base32(segment).and_then(readable) {
        return Some(text);
    }
    let plain: Vec<u8> = segment
        .iter()
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => *other,
        })
        .collect();
    let length = if plain.len() % 4 == 1 { plain.len() - 1 } else { plain.len() };
    BASE64.decode(&plain[..length]).ok().and_then(readable)
}

/// RFC 4648 §6, of one case; a last group that is cut short gives what it can.
fn base32(segment: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(segment.len() * 5 / 8);
    let (mut bits, mut held) = (0_u32, 0);
    let lower = segment[0].is_ascii_lowercase();
    for byte in segment {
        let value = match byte {
            b'A'..=b'Z' if !lower => byte - b'A',
            b'a'..=b'z' if lower => byte - b'a',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u32::from(value);
        held += 5;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(out)
}

fn readable(bytes: Vec<u8>) -> Option<String> {
    // Controls too, which may split a word.
    let text = String::from_utf8(bytes).ok()?;
    text.contains(|one: char| !is_unseen(one)).then_some(text)
}

/// What was pulled apart, put together; each run is a view of its own.
#[derive(Debug, Default)]
pub(super) struct ClosedUp {
    /// Letters that stand alone (`i g n o r e`, `i. g, n.o-r e`) and words broken over short lines. Spaces
    /// are only where gaps of two widths tell words apart.
    pub letters: Vec<View>,
    /// The same where one thing stands between any two bytes (`w.w.w...e.x.a.m.p.l.e`), and lines of one
    /// length: with the signs between the letters, just as it was before.
    pub signs: Vec<View>,
}

/// `reading` is that text, read.
#[must_use]
pub(super) fn closed_up(text: &str, reading: &Reading) -> ClosedUp {
    let bytes = text.as_bytes();
    let mut views = ClosedUp::default();
    letter_spaced(bytes, reading, &mut views);
    short_lines(bytes, &mut views.letters);
    even_lines(text, &mut views.signs);
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
        // The end of the word before is no part of it.
        from += usize::from(from > 0 && is_letter(bytes[from]) && is_letter(bytes[from - 1]));
        let end = spaced_run(bytes, from, &mut views.letters);
        at = end.max(at + MIN_SPACED);
        at = evenly_spaced(bytes, from, at, &mut views.signs).max(at);
    }
}

/// Takes out what stands between any two bytes, of each run that begins within `from..until` and holds more
/// than letters; gives the end of the last.
fn evenly_spaced(bytes: &[u8], from: usize, until: usize, views: &mut Vec<View>) -> usize {
    let letter = |at: usize| bytes.get(at).is_some_and(|byte| is_letter(*byte));
    let alone = |at: &usize| letter(*at) && !letter(at + 1) && !(*at > 0 && letter(at - 1));
    let mut done = from;
    while let Some(first) = (done..until.min(bytes.len())).find(alone) {
        let gap = bytes[first + 1..].iter().take(MAX_BETWEEN).take_while(|byte| is_gap(**byte));
        // A sign beside the letter looks like a part of what stands between.
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
    // The beginning of what follows is no part of it.
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
        // White space wider than most gaps stands between words.
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

/// Lines of one length, as a text is cut that no one is to read, put together with what of it stands on the
/// line before and on the one after.
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

const fn is_gap(byte: u8) -> bool {
    byte.is_ascii_punctuation() || byte.is_ascii_whitespace()
}

/// What stands around `at`, its letters shifted back by `shift`.
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

/// What stands around `at`, backwards.
#[must_use]
pub fn reversed(text: &str, at: usize) -> View {
    let (from, part) = around(text, at);
    View::opaque(part.chars().rev().collect(), from)
}

fn around(text: &str, at: usize) -> (usize, &str) {
    let from = text.floor_char_boundary(at.saturating_sub(AROUND.0));
    let to = text.ceil_char_boundary((at + AROUND.1).min(text.len()));
    (from, &text[from..to])
}
