//! Words of pages: untrusted text made visible, times, durations and money.

use std::borrow::Cow;
use std::fmt::Write as _;

use handoffd_domain::ids::Micros;
use handoffd_domain::unseen;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Untrusted text for display: characters that are invisible or change the direction of text become `⟨U+202E⟩`. The
/// templates escape HTML.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (character, hidden) in unseen::each(text) {
        let control = character.is_control() && !matches!(character, '\n' | '\t');
        if hidden || control {
            let _ = write!(out, "⟨U+{:04X}⟩", u32::from(character));
        } else {
            out.push(character);
        }
    }
    out
}

/// A text with a capital at its begin, if that is a letter of ASCII.
pub(super) fn sentence(text: &str) -> String {
    let mut shown = visible(text);
    if let Some(first) = shown.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    shown
}

/// The first `most` characters of a text, with an ellipsis where there are more.
pub(super) fn short(text: &str, most: usize) -> String {
    let mut characters = text.char_indices();
    match characters.nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
    }
}

/// The first eight characters of a UUID; another id as a whole.
pub(super) fn short_id(id: &str) -> String {
    if id.len() == 36 { id[..id.floor_char_boundary(8)].to_owned() } else { id.to_owned() }
}

/// Microseconds since the epoch; `None` for anything but RFC 3339.
pub(super) fn micros(text: &str) -> Option<i64> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(at.unix_timestamp_nanos() / 1_000).ok()
}

/// A day, or a time without an offset, as its first moment in UTC in RFC 3339, as the API takes it; any other text as it is.
pub(super) fn moment(text: &str) -> Cow<'_, str> {
    let typed = text.trim();
    let (day, hour) = typed.split_once([' ', 'T']).unwrap_or((typed, "00:00"));
    let hour = match hour.len() {
        5 => Cow::from(format!("{hour}:00")),
        _ => Cow::from(hour),
    };
    let whole = format!("{day}T{hour}Z");
    if micros(&whole).is_some() { whole.into() } else { text.into() }
}

/// Whole minutes as the milliseconds that the API takes. Any other text stays as it is, and the API refuses it.
pub(super) fn minutes(text: &str) -> Cow<'_, str> {
    let millis = text.trim().parse::<u64>().ok().and_then(|minutes| minutes.checked_mul(60_000));
    millis.map_or(text.into(), |millis| millis.to_string().into())
}

/// A duration in its one or two largest units.
pub(super) fn duration(micros: i64) -> String {
    const UNITS: [(&str, i64); 4] =
        [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    let millis = micros.max(0) / 1_000;
    let Some(index) = UNITS.iter().position(|(_, size)| millis >= *size) else {
        return format!("{millis} ms");
    };
    let (name, size) = UNITS[index];
    if name == "s" && millis < 10_000 {
        return format!("{}.{} s", millis / 1_000, millis % 1_000 / 100);
    }
    let whole = millis / size;
    match UNITS.get(index + 1).map(|(next, small)| (next, millis % size / small)) {
        Some((next, rest)) if rest > 0 && whole < 10 => format!("{whole} {name} {rest} {next}"),
        _ => format!("{whole} {name}"),
    }
}

/// A time against the present, in words.
pub(super) fn relative(at: &str, now: Micros) -> String {
    let Some(then) = micros(at) else { return visible(at) };
    let apart = now.0 - then;
    match apart.abs() {
        0..5_000_000 => "now".to_owned(),
        _ if apart > 0 => format!("{} ago", coarse(apart)),
        _ => format!("in {}", coarse(-apart)),
    }
}

/// The largest unit of a duration alone.
fn coarse(micros: i64) -> String {
    let words = duration(micros);
    words.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// US dollars as the API writes them, with at least two decimals.
pub(super) fn money(digits: &str) -> String {
    if digits.is_empty() {
        return String::new();
    }
    if digits.contains(['e', 'E']) {
        return format!("$ {digits}");
    }
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    format!("$ {}.{decimals:0<2}", grouped(whole))
}

/// Digits in groups of three, by narrow spaces.
pub(super) fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("−", rest));
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{sign}{digits}");
    }
    let mut out = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A code such as `PENDING_HANDOFF` in words: "Pending handoff".
pub(super) fn words(code: &str) -> String {
    let mut lower = code.replace(['_', '-'], " ").to_lowercase();
    if let Some(first) = lower.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    visible(&lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_numbers_and_times_read_as_such() {
        assert_eq!(visible("a\u{202e}b\u{0}\n"), "a⟨U+202E⟩b⟨U+0000⟩\n");
        assert_eq!(duration(1_500), "1 ms");
        assert_eq!(duration(2_345_000), "2.3 s");
        assert_eq!(duration(3_661_000_000), "1 h 1 min");
        assert_eq!(duration(-5), "0 ms");
        assert_eq!(
            grouped("9007199254740993"),
            "9\u{202f}007\u{202f}199\u{202f}254\u{202f}740\u{202f}993"
        );
        assert_eq!(money("0.1"), "$ 0.10");
        assert_eq!(money("1234.5678"), "$ 1\u{202f}234.5678");
        assert_eq!(words("PENDING_HANDOFF"), "Pending handoff");
        let now = Micros(micros("2026-11-21T06:00:00Z").unwrap());
        assert_eq!(relative("2026-11-21T05:00:00Z", now), "1 h ago");
        assert_eq!(relative("2026-11-21T06:10:30Z", now), "in 10 min");
        assert_eq!(short("abcdef", 3), "abc…");
        assert_eq!(moment("2026-11-28"), "2026-11-28T00:00:00Z");
        assert_eq!(moment(" 2026-11-28 09:30"), "2026-11-28T09:30:00Z");
        assert_eq!(moment("2026-11-28T09:30:05"), "2026-11-28T09:30:05Z");
        assert_eq!(minutes("15"), "900000");
        for other in ["", "a", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(minutes(other), other);
        }
        for other in ["", "2026-11-28T01:00:00Z", "yesterday!", "2026-1-028", "2026-02-30", "9:30"]
        {
            assert_eq!(moment(other), other);
        }
    }
}
