//! Invisible characters: one table, from Unicode's own properties.
//!
//! `table.rs` has it as ranges, and a test here makes it from `icu_properties`: the verifier does without that crate and the
//! twenty below it.
//!
//! All code that compares, scans or shows untrusted text uses this table. Texts that look the same may differ in
//! such characters alone, and a word may contain them without a visible gap.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

mod table;

/// A bit for each code point of all planes, in the order of code points.
static TABLE: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut bits = vec![0_u64; (char::MAX as usize + 1).div_ceil(64)];
    for (first, last) in table::RANGES {
        set(&mut bits, *first..=*last);
    }
    bits
});

fn set(table: &mut [u64], range: RangeInclusive<u32>) {
    let (first, last) = (*range.start(), *range.end());
    for word in first / 64..=last / 64 {
        let from = first.max(64 * word) % 64;
        let until = last.min(64 * word + 63) % 64;
        table[word as usize] |= !0 << from & !0 >> (63 - until);
    }
}

/// Whether a character is invisible: default-ignorable (UAX 44), a control other than tab and line feed, a format
/// character, a separator of lines or paragraphs, or unassigned in any plane.
#[must_use]
pub fn is_unseen(character: char) -> bool {
    match character {
        ' '..='~' | '\t' | '\n' => false,
        _ => {
            let code = character as usize;
            TABLE[code / 64] >> (code % 64) & 1 == 1
        }
    }
}

/// Whether a character is invisible after `before`: joiners and variation selectors are allowed where scripts and
/// emoji need them, after a visible non-ASCII character.
#[must_use]
pub fn is_hidden(character: char, before: char) -> bool {
    match character {
        // A heart, its selector of colour, a joiner, a fire.
        '\u{200d}' if before == '\u{fe0f}' => false,
        '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => before.is_ascii() || is_unseen(before),
        _ => is_unseen(character),
    }
}

/// The characters of a text, each with whether it is hidden at its position.
pub fn each(text: &str) -> impl Iterator<Item = (char, bool)> + '_ {
    let mut before = '\n';
    text.chars().map(move |character| {
        let hidden = is_hidden(character, before);
        before = character;
        (character, hidden)
    })
}

/// The visible text, at most `most` characters.
#[must_use]
pub fn shown(text: &str, most: usize) -> String {
    each(text).filter(|(_, hidden)| !hidden).map(|(character, _)| character).take(most).collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
    use icu_properties::{CodePointMapData, CodePointSetData};
    use regex::Regex;

    use super::*;

    /// The file of the table, made from Unicode's properties.
    fn generated() -> String {
        let mut bits = vec![0_u64; (char::MAX as usize + 1).div_ceil(64)];
        for range in CodePointSetData::new::<DefaultIgnorableCodePoint>().iter_ranges() {
            set(&mut bits, range);
        }
        for range in CodePointMapData::<GeneralCategory>::new().iter_ranges() {
            if matches!(
                range.value,
                GeneralCategory::Control
                    | GeneralCategory::Format
                    | GeneralCategory::Unassigned
                    | GeneralCategory::LineSeparator
                    | GeneralCategory::ParagraphSeparator
            ) {
                set(&mut bits, range.range);
            }
        }
        let is_set = |code: u32| bits[code as usize / 64] >> (code % 64) & 1 == 1;
        let mut text = String::from(
            "//! Generated from `icu_properties` by a test of `unseen.rs`; `HANDOFFD_WRITE_DOCS=1` writes it anew.\n\n\
             /// The first and the last code point of each run of invisible characters.\n\
             #[rustfmt::skip]\n\
             #[expect(clippy::unreadable_literal, reason = \"code points\")]\n\
             pub(super) const RANGES: &[(u32, u32)] = &[\n",
        );
        let mut code = 0;
        let mut on_line = 0;
        while code <= u32::from(char::MAX) {
            if !is_set(code) {
                code += 1;
                continue;
            }
            let first = code;
            while code < u32::from(char::MAX) && is_set(code + 1) {
                code += 1;
            }
            text.push_str(if on_line == 0 { "    " } else { " " });
            write!(text, "({first:#x}, {code:#x}),").expect("a string takes all");
            on_line = (on_line + 1) % 6;
            if on_line == 0 {
                text.push('\n');
            }
            code += 1;
        }
        text.push_str(if on_line == 0 { "];\n" } else { "\n];\n" });
        text
    }

    #[test]
    fn the_table_is_made_from_unicodes_properties() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/unseen/table.rs");
        let made = generated();
        if std::env::var_os("HANDOFFD_WRITE_DOCS").is_some() {
            std::fs::write(path, &made).expect("a writable table");
        }
        let kept = std::fs::read_to_string(path).expect("the table is there");
        assert_eq!(kept, made, "HANDOFFD_WRITE_DOCS=1 writes the table of this version of Unicode");
    }

    /// A table by other authors, of a version of Unicode of their own.
    #[test]
    fn the_table_holds_what_unicode_says_over_all_planes() {
        let unseen =
            Regex::new(r"^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]$").unwrap();
        let assigned = Regex::new(r"^\P{Cn}$").unwrap();
        let mut buffer = [0; 4];
        let mut count = 0;
        for character in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let one = &*character.encode_utf8(&mut buffer);
            if matches!(character, '\t' | '\n') {
                assert!(!is_unseen(character));
            } else if unseen.is_match(one) {
                assert!(is_unseen(character), "{:X}", u32::from(character));
                count += 1;
            } else if assigned.is_match(one) {
                assert!(!is_unseen(character), "{:X}", u32::from(character));
            }
        }
        assert!(count > 4_000, "{count}");
        for character in ['\u{e0200}', '\u{fff0}', '\u{1bca5}', '\u{ffff}', '\u{10ffff}', '\u{378}']
        {
            assert!(is_unseen(character), "{:X}", u32::from(character));
        }
    }

    #[test]
    fn joiners_and_selectors_stay_where_scripts_and_emoji_need_them() {
        for text in ["می\u{200c}خواهم", "👩\u{200d}👧", "❤\u{fe0f}", "👁\u{fe0f}\u{200d}🗨\u{fe0f}"]
        {
            assert_eq!(shown(text, usize::MAX), text);
        }
        assert_eq!(shown("a\u{200d}b\u{fe0f}c\u{1d173}\u{1}\u{e0041}d", usize::MAX), "abcd");
        assert_eq!(shown("a\u{fe0f}\u{fe01}\u{fe02}", usize::MAX), "a", "no bytes in selectors");
        assert_eq!(shown("abc\u{200b}def", 4), "abcd");
    }
}
