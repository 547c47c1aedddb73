//! Escapes of letters, undone: percent-encoding, character references, `\u0069`, quoted-printable, tags within words,
//! strings put together in code.

use super::super::normalize::{View, is_plain};
use super::{MIN_ENCODED, is_encoded};

/// Longest tag or comment that is taken out, in bytes.
const MAX_TAG: usize = 240;

/// Rounds of unescaping what unescaping brought to light.
const ROUNDS: usize = 4;

/// A text with its escapes undone.
pub struct Unescaped {
    pub view: View,
    /// The places of escapes in the view, in order.
    pub changes: Vec<usize>,
    /// Whether they stood for nothing but characters that folding keeps.
    pub plain: bool,
}

/// The text with escapes of letters undone, as often as that brings more to light: percent-encoding,
/// HTML character references, `\u0069` and `\x69`. `None` where there are none.
#[must_use]
pub fn unescaped(text: &str) -> Option<Unescaped> {
    let mut view = unescape(text)?;
    let mut changes: Vec<usize> = view.changes().collect();
    let mut plain = view.insertions().all(is_plain);
    for _ in 1..ROUNDS {
        let Some(next) = unescape(&view.text) else { break };
        plain &= next.insertions().all(is_plain);
        changes = changes.into_iter().map(|at| next.place_of(at)).chain(next.changes()).collect();
        changes.sort_unstable();
        changes.dedup();
        view = next.over(&view);
    }
    Some(Unescaped { view, changes, plain })
}

fn unescape(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut marks = vec![(0, 0)];
    let mut kept = 0;
    let mut escapes = memchr::memchr3_iter(b'%', b'&', b'\\', bytes).peekable();
    let mut joints = memchr::memchr3_iter(b'<', b'=', b'+', bytes).peekable();
    loop {
        let at = match (escapes.peek(), joints.peek()) {
            (Some(one), Some(other)) if one < other => escapes.next(),
            (_, Some(_)) => joints.next(),
            (_, None) => escapes.next(),
        };
        let Some(at) = at else { break };
        if at < kept {
            continue;
        }
        let found = match bytes[at] {
            b'<' => inline_tag(&bytes[at..]).map(|length| (at, None, length)),
            // The end of a segment of base64 is none of a line.
            b'=' if encoded_before(bytes, at) => None,
            b'=' => quoted_printable(&bytes[at..]).map(|(letter, length)| (at, letter, length)),
            b'+' => concatenation(bytes, at).map(|(start, length)| (start, None, length)),
            _ => escape(&bytes[at..]).map(|(letter, length)| (at, Some(letter), length)),
        };
        let Some((at, character, length)) = found.filter(|(at, ..)| *at >= kept) else { continue };
        out.push_str(&text[kept..at]);
        marks.push((out.len(), at));
        out.extend(character);
        kept = at + length;
        marks.push((out.len(), kept));
    }
    if kept == 0 {
        return None;
    }
    out.push_str(&text[kept..]);
    Some(View::new(out, marks))
}

/// The length of a tag that changes how a text looks and not where it is: `<b>`, `</span>`, or of a comment.
fn inline_tag(bytes: &[u8]) -> Option<usize> {
    const NAMES: [&[u8]; 24] = [
        b"b", b"i", b"u", b"s", b"a", b"em", b"strong", b"span", b"font", b"sub", b"sup", b"wbr",
        b"mark", b"small", b"big", b"code", b"del", b"ins", b"tt", b"bdi", b"bdo", b"abbr", b"kbd",
        b"zwj",
    ];
    let bytes = &bytes[..bytes.len().min(MAX_TAG)];
    if bytes.starts_with(b"<!--") {
        return memchr::memmem::find(bytes, b"-->").map(|at| at + 3);
    }
    let open = 1 + usize::from(bytes.get(1) == Some(&b'/'));
    let name = bytes.get(open..)?;
    let length = name.iter().take(7).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let known = NAMES.iter().any(|one| name[..length].eq_ignore_ascii_case(one));
    let bordered = matches!(name.get(length), Some(b' ' | b'>' | b'/' | b'\n' | b'\t'));
    let end = memchr::memchr2(b'<', b'>', &bytes[1..])? + 1;
    (known && bordered && bytes[end] == b'>').then_some(end + 1)
}

/// A character of quoted-printable text (RFC 2045 §6.7), or the break of a line that is none; with its length.
fn quoted_printable(bytes: &[u8]) -> Option<(Option<char>, usize)> {
    if bytes.starts_with(b"=\n") {
        return Some((None, 2));
    }
    if bytes.starts_with(b"=\r\n") {
        return Some((None, 3));
    }
    let upper = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
    bytes.get(1..3)?.iter().all(upper).then_some(())?;
    let (character, length) = octets(bytes, b'=')?;
    (!character.is_ascii_control()).then_some((Some(character), length))
}

/// Whether a segment that may be encoded ends at a place.
fn encoded_before(bytes: &[u8], at: usize) -> bool {
    let padded = usize::from(at > 0 && bytes[at - 1] == b'=');
    let digits = bytes[..at - padded].iter().rev();
    digits.take(MIN_ENCODED).take_while(|byte| is_encoded(**byte)).count() == MIN_ENCODED
}

/// The signs that join two pieces of text in code, such as `" + "`: their position and length.
fn concatenation(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    const SPACES: usize = 8;
    let space = |byte: &&u8| byte.is_ascii_whitespace();
    let before = bytes[..at].iter().rev().take(SPACES).take_while(space).count();
    let after = bytes[at + 1..].iter().take(SPACES).take_while(space).count();
    let start = at.checked_sub(before + 1)?;
    let end = at + 1 + after;
    let quote = bytes[start];
    let joins = matches!(quote, b'"' | b'\'' | b'`') && bytes.get(end) == Some(&quote);
    joins.then_some((start, end + 1 - start))
}

/// The character that an escape encodes, and the escape's length.
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
    octets(bytes, b'%')
}

/// One character in UTF-8, each octet as `sign` and two hexadecimal digits.
fn octets(bytes: &[u8], sign: u8) -> Option<(char, usize)> {
    let octet = |index: usize| -> Option<u8> {
        let digits = bytes.get(3 * index..3 * index + 3)?;
        (digits[0] == sign).then_some(())?;
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
