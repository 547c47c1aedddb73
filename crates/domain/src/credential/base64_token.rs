//! Tokens of base64 in a text: where they begin and end, and whether they decode to text.

use std::ops::Range;

/// Base64 that goes on in the next line has at least so many characters in each before.
pub(super) const MIN_BASE64_LINE: usize = 60;

/// Fewest characters of base64 that are decoded.
pub(super) const MIN_BASE64: usize = 20;

/// The base64 value of each byte, in either alphabet; above 63 for other characters.
static VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 64 {
        let byte = match value {
            0..26 => b'A' + value,
            26..52 => b'a' + value - 26,
            52..62 => b'0' + value - 52,
            62 => b'+',
            _ => b'/',
        };
        values[byte as usize] = value;
        value += 1;
    }
    values[b'-' as usize] = values[b'+' as usize];
    values[b'_' as usize] = values[b'/' as usize];
    values
};

pub(super) fn is_base64(byte: u8) -> bool {
    VALUES[usize::from(byte)] < 64
}

/// Whether a byte of a token of base64 is in a part of it, where the token is a path.
pub(super) const fn is_part(byte: u8) -> bool {
    !matches!(byte, b'/' | b'-' | b'_' | b'+')
}

/// Whether a byte is one of a text: no control character except white space.
pub(super) const fn is_text(byte: u8) -> bool {
    !byte.is_ascii_control() || matches!(byte, b'\n' | b'\r' | b'\t')
}

/// Whether a token decodes to the beginning of a text, as far as its first characters tell. Most tokens are none, and
/// it shows in the first few.
pub(super) fn begins_text(token: &[u8]) -> bool {
    // Bytes of a character in UTF-8 that are still to come.
    let mut rest = 0;
    for quad in token.chunks_exact(4).take(MIN_BASE64 / 4) {
        let [a, b, c, d] =
            [quad[0], quad[1], quad[2], quad[3]].map(|byte| VALUES[usize::from(byte)]);
        if (a | b | c | d) > 63 {
            // The break of a line.
            break;
        }
        for byte in [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d] {
            rest = match (byte, rest) {
                (0x80..=0xBF, 1..) => rest - 1,
                (..0x80, 0) if is_text(byte) => 0,
                (0xC2..=0xDF, 0) => 1,
                (0xE0..=0xEF, 0) => 2,
                (0xF0..=0xF4, 0) => 3,
                _ => return false,
            };
        }
    }
    true
}

/// The start of the first run of at least `MIN_BASE64` bytes of a kind that begins at `from` or after a byte of
/// another kind. Looks from the end of the shortest possible run: most runs are shorter, so few bytes are looked at.
pub(super) fn next_run(bytes: &[u8], from: usize, kind: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut start, mut at) = (from, from + MIN_BASE64);
    while at <= bytes.len() && at > start {
        if kind(bytes[at - 1]) {
            at -= 1;
        } else {
            start = at;
            at += MIN_BASE64;
        }
    }
    (at == start).then_some(start)
}

/// The next token of base64 that begins at `from` or at the beginning of a later word, with the breaks of its lines.
/// Written out, for it looks at every text.
pub(super) fn next_base64(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let until = |mut at: usize| {
        while at < bytes.len() && VALUES[usize::from(bytes[at])] < 64 {
            at += 1;
        }
        at
    };
    let start = next_run(bytes, from, is_base64)?;
    let (mut line, mut end) = (start, until(start + MIN_BASE64));
    while end - line >= MIN_BASE64_LINE && (end - line).is_multiple_of(4) {
        let rest = &bytes[end..];
        let more = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n"));
        let Some(next) = more.map(|more| bytes.len() - more.len()) else { break };
        let next_end = until(next);
        // Rather than the words after it.
        if next_end == next || bytes.get(next_end) == Some(&b' ') {
            break;
        }
        (line, end) = (next, next_end);
    }
    Some(start..end)
}

/// Whether a byte beside a token belongs to a longer word.
pub(super) fn joined(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
