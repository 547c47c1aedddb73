//! Texts of others, made safe for a terminal.
//!
//! Names, reasons and messages come from agents. A control character in one could move the cursor, rewrite
//! the lines above, or set the clipboard; a mark of direction could turn a line around. None is printed:
//! each is written out.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

use handoffd_domain::unseen;

/// A text on one line, with every character that is not plainly seen written as `\n` or `\u{…}`.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |one, out| out.extend(one.escape_default()))
}

/// The text with every character that a terminal may obey or leave out escaped: what is not shown, line
/// breaks and tabs, and private characters, which each font shows as it likes.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let obeyed = |(one, hidden): (char, bool)| {
        hidden || matches!(one, '\n' | '\t' | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
    };
    if !unseen::each(text).any(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for each in unseen::each(text) {
        if obeyed(each) { escape(each.0, &mut out) } else { out.push(each.0) }
    }
    Cow::Owned(out)
}

/// JSON in which such characters stand as escapes: the same document, and nothing that a terminal obeys.
pub(super) fn json(value: &Value, pretty: bool) -> String {
    let text = if pretty {
        serde_json::to_string_pretty(value).unwrap_or_default()
    } else {
        value.to_string()
    };
    // Outside of strings there are none but the line breaks of the layout.
    let escaped = escaped(&text, |one, out| {
        if one == '\n' {
            return out.push(one);
        }
        for unit in one.encode_utf16(&mut [0; 2]) {
            // Writing into memory cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    });
    escaped.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [&str; 9] = [
        "\u{1b}[2J\u{1b}[H",
        "\u{9b}31m",
        "\u{7}",
        "a\r\nb",
        "\u{202e}cod",
        "\u{200b}",
        "\u{e0041}",
        "\u{2028}",
        "\u{7f}\u{0}",
    ];

    fn is_quiet(text: &str) -> bool {
        text.chars().all(|one| {
            !one.is_control() && !matches!(one, '\u{200b}' | '\u{202e}' | '\u{2028}' | '\u{e0041}')
        })
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for text in HOSTILE {
            assert!(is_quiet(&plain(text)), "{text:?}: {}", plain(text));
        }
        assert_eq!(plain("a\u{1b}[31mred\n"), r"a\u{1b}[31mred\n");
        assert_eq!(plain("Größe 7 ✓ 名前"), "Größe 7 ✓ 名前");
    }

    #[test]
    fn json_says_the_same_and_nothing_that_a_terminal_obeys() {
        for text in HOSTILE {
            let value = serde_json::json!({ text: [text] });
            let said = json(&value, false);
            assert!(is_quiet(&said), "{said:?}");
            assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), value);
            let said = json(&value, true);
            assert!(is_quiet(&said.replace('\n', "")), "{said:?}");
            assert_eq!(serde_json::from_str::<Value>(&said).unwrap(), value);
        }
    }
}
