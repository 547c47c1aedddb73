//! Encoded segments, decoded: base64, base32, hexadecimal and binary digits, base85, and what was packed before.

use std::io::Read as _;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

use flate2::read::{GzDecoder, ZlibDecoder};

use super::super::normalize::View;
use super::super::reading::Reading;
use super::{MIN_ENCODED, is_encoded, is_gap};
use handoffd_domain::unseen::is_unseen;

/// Shortest line that an encoder may have broken an encoded segment at.
const MIN_BROKEN: usize = 40;

/// Fewest octets of binary digits that are decoded.
const MIN_OCTETS: usize = 6;

/// Fewest decimal digits in a row that may be hexadecimal digits: shorter ones are a number (a time in nanoseconds, an id).
/// Their octets would be ASCII, so that one number in some hundred thousand would spell a rule's words.
const MIN_DECIMAL: usize = 40;

/// Shortest segment of base85 that is decoded, in characters, and most bytes around the sign that tells of one.
const MIN_BASE85: usize = 25;
const MAX_BASE85: usize = 4_096;

/// Most bytes that a packed segment may become, as a multiple of its length, and beside that.
const UNPACKED: (u64, u64) = (8, 4_096);

/// Segments of base64 (either alphabet, also broken into lines), base32 or hexadecimal digits of at
/// least [`MIN_ENCODED`] characters that decode to readable text. `reading` is that text, read.
#[must_use]
pub(in crate::safety) fn encoded(text: &str, reading: &Reading) -> Vec<View> {
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
    spaced_bits(bytes, &mut views);
    base85(bytes, &mut views);
    views
}

/// The position at which an encoded segment continues after the end of a line, at most a few bytes further.
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

fn decode(segment: &[u8]) -> Option<String> {
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    if segment.len() >= 8 * MIN_OCTETS
        && segment.iter().all(|digit| matches!(digit, b'0' | b'1'))
        && let Some(text) = readable(of_bits(segment))
    {
        return Some(text);
    }
    let digits = segment.strip_prefix(b"0x").unwrap_or(segment);
    let number = segment.len() < MIN_DECIMAL && segment.iter().all(u8::is_ascii_digit);
    if !number && digits.iter().all(u8::is_ascii_hexdigit) {
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
    let lower = segment[0].is_ascii_lowercase();
    let value = |byte: u8| match byte {
        b'A'..=b'Z' if !lower => Some(byte - b'A'),
        b'a'..=b'z' if lower => Some(byte - b'a'),
        b'2'..=b'7' => Some(byte - b'2' + 26),
        _ => None,
    };
    // Most segments are of another alphabet: nothing is allocated for them.
    if !segment.iter().all(|byte| value(*byte).is_some()) {
        return None;
    }
    let mut out = Vec::with_capacity(segment.len() * 5 / 8);
    let (mut bits, mut held) = (0_u32, 0);
    for value in segment.iter().filter_map(|byte| value(*byte)) {
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

pub(super) fn readable(bytes: Vec<u8>) -> Option<String> {
    if let [0x1f, 0x8b, ..] | [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] = bytes.as_slice() {
        return readable(unpacked(&bytes)?);
    }
    // Controls too, which may split a word.
    let text = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text,
        Ok(text) => of_utf16(text.as_bytes()).unwrap_or(text),
        Err(wrong) => of_utf16(wrong.as_bytes())?,
    };
    text.contains(|one: char| !is_unseen(one)).then_some(text)
}

/// The content of a gzip or zlib stream, up to the bound of [`UNPACKED`].
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let (times, beside) = UNPACKED;
    let most = times * bytes.len() as u64 + beside;
    let mut out = Vec::new();
    let read = if bytes[0] == 0x1f {
        GzDecoder::new(bytes).take(most).read_to_end(&mut out)
    } else {
        ZlibDecoder::new(bytes).take(most).read_to_end(&mut out)
    };
    // A truncated stream is read as far as it goes. A stream within a stream is not read.
    let _ = read;
    let packed = matches!(out.as_slice(), [0x1f, 0x8b, ..] | [0x78, ..]);
    (!out.is_empty() && !packed).then_some(out)
}

/// Text in UTF-16 of either order: of most units one byte is zero, or there is a byte order mark.
fn of_utf16(bytes: &[u8]) -> Option<String> {
    let zeros = |odd: usize| bytes.iter().skip(odd).step_by(2).filter(|byte| **byte == 0).count();
    let half = bytes.len() / 4;
    let little = bytes.starts_with(&[0xff, 0xfe]) || zeros(1) > half;
    let big = bytes.starts_with(&[0xfe, 0xff]) || zeros(0) > half;
    if bytes.len() < 8 || !little && !big {
        return None;
    }
    let unit =
        |two: &[u8; 2]| if little { u16::from_le_bytes(*two) } else { u16::from_be_bytes(*two) };
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(unit).collect();
    Some(String::from_utf16_lossy(&units))
}

fn of_bits(digits: &[u8]) -> Vec<u8> {
    let octet = |bits: &[u8; 8]| bits.iter().fold(0, |octet, bit| octet << 1 | (bit & 1));
    digits.as_chunks::<8>().0.iter().map(octet).collect()
}

/// Octets of binary digits with one sign between any two: `01001001 01100111`.
fn spaced_bits(bytes: &[u8], views: &mut Vec<View>) {
    let octet = |at: usize| -> Option<u8> {
        let digits: &[u8; 8] = bytes.get(at..at + 8)?.first_chunk()?;
        let bits = digits.iter().all(|digit| matches!(digit, b'0' | b'1'));
        bits.then(|| of_bits(digits)[0])
    };
    let mut done = 0;
    for at in memchr::memmem::find_iter(bytes, b"01") {
        // A letter's octet begins so; that of a space is one of those behind it.
        if at < done || at > 0 && bytes[at - 1].is_ascii_alphanumeric() {
            continue;
        }
        let mut out = Vec::new();
        let mut next = at;
        while let Some(one) = octet(next) {
            out.push(one);
            next += 8 + usize::from(bytes.get(next + 8).is_some_and(|sign| is_gap(*sign)));
        }
        done = next.max(at + 1);
        if out.len() >= MIN_OCTETS
            && let Some(text) = readable(out)
        {
            views.push(View::opaque(text, at));
        }
    }
}

/// Segments of base85, in the alphabets of RFC 1924 and of Ascii85, that hold readable text. Signs that prose does not
/// have tell of them.
fn base85(bytes: &[u8], views: &mut Vec<View>) {
    let tells = memchr::memchr3_iter(b'^', b'|', b'~', bytes);
    let tells = tells.chain(memchr::memchr3_iter(b'`', b'{', b'}', bytes));
    let mut covered: Vec<(usize, usize)> = Vec::new();
    let part = |byte: &u8| byte.is_ascii_graphic();
    // Each is found by both sets of signs.
    let mut budget = 2 * bytes.len();
    for at in tells {
        if covered.iter().rev().take(4).any(|(from, to)| (*from..*to).contains(&at)) {
            continue;
        }
        let from =
            at - bytes[..at].iter().rev().take(MAX_BASE85).take_while(|byte| part(byte)).count();
        let to = at + bytes[at..].iter().take(MAX_BASE85).take_while(|byte| part(byte)).count();
        covered.push((from, to));
        let Some(left) = budget.checked_sub(to - from) else { return };
        budget = left;
        if to - from < MIN_BASE85 {
            continue;
        }
        let token = bytes[from..to].trim_ascii();
        let token = token.strip_prefix(b"<~").unwrap_or(token);
        let token = token.strip_suffix(b"~>").unwrap_or(token);
        let trimmed = |byte: &u8| matches!(byte, b'"' | b'\'' | b',' | b'.');
        let start = token.iter().take_while(|byte| trimmed(byte)).count();
        let end = token.len() - token.iter().rev().take_while(|byte| trimmed(byte)).count();
        let inner = token.get(start..end).unwrap_or_default();
        let decoded = [(token, true), (token, false), (inner, true), (inner, false)]
            .into_iter()
            .find_map(|(digits, rfc)| of_base85(digits, rfc).filter(|text| is_prose(text)));
        if let Some(text) = decoded {
            views.push(View::opaque(text, from));
        }
    }
}

/// Digits of base85 as text: after RFC 1924, or of Ascii85.
fn of_base85(digits: &[u8], rfc: bool) -> Option<String> {
    const RFC1924: &[u8; 85] =
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let value = |digit: u8| -> Option<u32> {
        if rfc {
            RFC1924.iter().position(|one| *one == digit).map(|at| at as u32)
        } else {
            (b'!'..=b'u').contains(&digit).then(|| u32::from(digit - b'!'))
        }
    };
    let mut out = Vec::with_capacity(digits.len());
    for group in digits.chunks(5) {
        if group.len() < 2 {
            return None;
        }
        let mut word = 0_u32;
        for index in 0..5 {
            let digit = group.get(index).map_or(Some(84), |digit| value(*digit))?;
            word = word.checked_mul(85)?.checked_add(digit)?;
        }
        out.extend_from_slice(&word.to_be_bytes()[..group.len() - 1]);
    }
    String::from_utf8(out).ok()
}

/// Whether a text is mostly letters and spaces.
fn is_prose(text: &str) -> bool {
    let letters = text.chars().filter(|one| one.is_alphanumeric() || *one == ' ').count();
    10 * letters >= 8 * text.chars().count()
}
