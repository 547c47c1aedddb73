//! Folding: look-alike, compatibility and invisible characters.
//!
//! A copy to be matched, with a way back to byte offsets of the original. Plain ASCII text costs one
//! check; folding touches only what is not, and takes each character of the scripts that need
//! work from a table made once. Follows UAX 15 (NFKD) and UTS 39 (confusable skeletons).

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use handoffd_domain::unseen::is_unseen;

/// Characters whose folding takes work, and which are looked up: everything up to the Han scripts, the
/// scripts between those and Hangul, compatibility forms, letters for mathematics, letters in frames.
const TABLED: [Range<u32>; 5] =
    [0x80..0x2e80, 0xa4d0..0xac00, 0xf900..0x1_0000, 0x1_d400..0x1_d800, 0x1_f100..0x1_f200];

/// A copy of a text (or of a part of it) made for matching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The text that the rules match.
    pub text: String,
    /// (offset in `text`, offset in the original), ascending; between two marks both run in step.
    marks: Vec<(usize, usize)>,
    /// Whether an offset in `text` means nothing beyond its mark (decoded text).
    opaque: bool,
}

impl View {
    /// A copy whose stretches run in step with the original's, from mark to mark.
    pub(super) const fn new(text: String, marks: Vec<(usize, usize)>) -> Self {
        Self { text, marks, opaque: false }
    }

    /// The text of a piece that begins at `at`, as a whole.
    pub(super) fn opaque(text: String, at: usize) -> Self {
        Self { text, marks: vec![(0, at)], opaque: true }
    }

    /// Every other of its marks from the second on, in `text`: where its maker put something else.
    pub(super) fn changes(&self) -> impl Iterator<Item = usize> + '_ {
        self.marks.iter().skip(1).step_by(2).map(|(here, _)| *here)
    }

    /// The pieces that its maker put between two stretches of the original.
    pub(super) fn insertions(&self) -> impl Iterator<Item = &str> + '_ {
        let pairs = self.marks.get(1..).unwrap_or_default().as_chunks::<2>().0;
        pairs.iter().map(|[(from, _), (to, _)]| self.text.get(*from..*to).unwrap_or_default())
    }

    /// This view of a part of a text, as one of the text: the part begins `by` bytes further.
    pub(super) fn moved(&mut self, by: usize) {
        for mark in &mut self.marks {
            mark.1 += by;
        }
    }

    /// This view of another view, as one of the original.
    pub(super) fn over(mut self, inner: &Self) -> Self {
        for mark in &mut self.marks {
            mark.1 = inner.original(mark.1);
        }
        self
    }

    /// The place in this view of a place in the original; for a piece that was taken out, the place behind it.
    pub(super) fn place_of(&self, original: usize) -> usize {
        let after = self.marks.partition_point(|(_, there)| *there <= original);
        let (here, there) = after.checked_sub(1).map_or((0, 0), |at| self.marks[at]);
        let next = self.marks.get(after).map_or(self.text.len(), |(next, _)| *next);
        (here + original - there).min(next)
    }

    /// The byte offset in the original that an offset in this view came from.
    #[must_use]
    pub fn original(&self, offset: usize) -> usize {
        let after = self.marks.partition_point(|(here, _)| *here <= offset);
        let (here, there) = after.checked_sub(1).map_or((0, 0), |at| self.marks[at]);
        if self.opaque { there } else { there + (offset - here) }
    }
}

/// The reading of tag characters, which mirror ASCII and are not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tags {
    /// Each is read as what it mirrors: a text may be written in them.
    Read,
    /// They are dropped as everything unseen: a text may be split by them.
    Dropped,
}

/// Whether folding leaves a text as it is: nothing but ASCII that is shown, and white space.
#[must_use]
pub fn is_plain(text: &str) -> bool {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    words
        .iter()
        .all(|word| is_shown(u64::from_ne_bytes(*word)) || word.iter().copied().all(is_kept))
        && rest.iter().copied().all(is_kept)
}

/// Whether each of eight bytes is of the ASCII that is shown, told of all of them at once. May say no of a word with
/// none but such bytes; never yes of another.
const fn is_shown(word: u64) -> bool {
    const EACH: u64 = u64::MAX / 0xff;
    let below_space = word.wrapping_sub(EACH * 0x20) & !word;
    let delete = word ^ (EACH * 0x7f);
    let is_delete = delete.wrapping_sub(EACH) & !delete;
    (below_space | is_delete | word) & (EACH * 0x80) == 0
}

/// Whether a byte is a character that folding keeps.
const fn is_kept(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\x0c' | b'\r')
}

/// The text with everything folded that is not plain ASCII: compatibility forms and accents reduced,
/// unseen characters dropped, tag characters read as the ASCII they mirror, look-alikes of ASCII letters
/// replaced. `None` where [`is_plain`].
#[must_use]
pub fn fold(text: &str) -> Option<View> {
    (!is_plain(text)).then(|| folded(text, Tags::Read))
}

/// The same without tag characters, and without pictures, which may split a word. `None` where the text has no tag
/// characters and no picture between two letters.
#[must_use]
pub fn fold_without_tags(text: &str) -> Option<View> {
    let bytes = text.as_bytes();
    let tagged =
        memmem::find_iter(bytes, b"\xf3\xa0").any(|at| matches!(bytes[at + 2], 0x80 | 0x81));
    let letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    let glued = || {
        let pictures = memchr::memchr2_iter(0xf0, 0xe2, bytes)
            .filter(|at| *at > 0 && letter(at - 1))
            .filter_map(|at| text.get(at..)?.chars().next().map(|one| (at, one)));
        let mut pictures = pictures.filter(|(_, one)| is_picture(*one));
        pictures.any(|(at, one)| {
            let rest = text[at + one.len_utf8()..]
                .trim_start_matches(|next| is_picture(next) || is_unseen(next));
            rest.starts_with(|next: char| next.is_ascii_alphabetic())
        })
    };
    (tagged || glued()).then(|| folded(text, Tags::Dropped))
}

fn folded(text: &str, tags: Tags) -> View {
    let mut out = String::with_capacity(text.len());
    let mut marks: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        // A stretch that runs in step with the last one needs no mark.
        let last = marks.last().copied().unwrap_or_default();
        if out.len() - last.0 != at - last.1 {
            marks.push((out.len(), at));
        }
        let end = TABLE.kept_until(text.as_bytes(), at);
        if end > at {
            out.push_str(&text[at..end]);
            at = end;
        } else if let Some(letter) = TABLE.ascii_at(text.as_bytes(), at) {
            out.push(letter);
            at += 2;
        } else if let Some(character) = text[at..].chars().next() {
            match character {
                '\u{e0020}'..='\u{e007e}' if tags == Tags::Read => {
                    out.extend(char::from_u32(u32::from(character) - 0xe_0000));
                }
                _ if tags == Tags::Dropped && is_picture(character) => {}
                _ => TABLE.fold(character, &mut out),
            }
            at += character.len_utf8();
        }
    }
    View { text: out, marks, opaque: false }
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

/// The folded form of each character of [`TABLED`].
struct Table {
    /// All of it, one after the other.
    text: String,
    /// For each range, where its characters' parts begin.
    starts: [Vec<u32>; TABLED.len()],
    /// Of the characters of one and two bytes in UTF-8, a bit for each that folding keeps.
    kept: [u64; TWO_BYTES / 64],
    /// For each of them the one character of ASCII that it becomes; 0 where it becomes something else.
    ascii: [u8; TWO_BYTES],
}

/// Characters of one or two bytes in UTF-8.
const TWO_BYTES: usize = 0x800;

impl Table {
    fn new() -> Self {
        let mut table = Self {
            text: String::new(),
            starts: Default::default(),
            kept: [0; TWO_BYTES / 64],
            ascii: [0; TWO_BYTES],
        };
        for (range, starts) in TABLED.into_iter().zip(&mut table.starts) {
            for code in range {
                let from = table.text.len();
                starts.push(from as u32);
                let Some(character) = char::from_u32(code) else { continue };
                fold_char(character, &mut table.text);
                match (code as usize, &table.text.as_bytes()[from..]) {
                    (TWO_BYTES.., _) => {}
                    (code, [byte @ ..0x80]) => table.ascii[code] = *byte,
                    (code, _) if table.text[from..].chars().eq([character]) => {
                        table.kept[code / 64] |= 1 << (code % 64);
                    }
                    _ => {}
                }
            }
            starts.push(table.text.len() as u32);
        }
        table
    }

    /// The end of the characters from `at` on that folding keeps; it may keep more of them.
    fn kept_until(&self, bytes: &[u8], mut at: usize) -> usize {
        loop {
            if let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk)
                && is_shown(u64::from_ne_bytes(*eight))
            {
                at += size_of::<u64>();
                continue;
            }
            match bytes[at..] {
                [byte, ..] if is_kept(byte) => at += 1,
                [first @ 0xc2..0xe0, second, ..]
                    if self.keeps(usize::from(first & 0x1f) << 6 | usize::from(second & 0x3f)) =>
                {
                    at += 2;
                }
                // Han, Hangul and Kana, without the places in Kana that are not assigned or mark a voice.
                [0xe4..=0xe9 | 0xeb..=0xec, ..]
                | [0xe3, 0x81, 0x81..=0xbf, ..]
                | [0xe3, 0x82, 0x80..=0x96 | 0x9b..=0xbf, ..]
                | [0xe3, 0x83, ..] => at += 3,
                _ => return at,
            }
        }
    }

    /// The character of ASCII that one of two bytes at `at` becomes.
    #[inline]
    fn ascii_at(&self, bytes: &[u8], at: usize) -> Option<char> {
        match bytes[at..] {
            [first @ 0xc2..0xe0, second, ..] => {
                let code = usize::from(first & 0x1f) << 6 | usize::from(second & 0x3f);
                Some(char::from(self.ascii[code])).filter(|letter| *letter != '\0')
            }
            _ => None,
        }
    }

    const fn keeps(&self, code: usize) -> bool {
        self.kept[code / 64] >> (code % 64) & 1 == 1
    }

    fn fold(&self, character: char, out: &mut String) {
        let code = u32::from(character);
        for (range, starts) in TABLED.iter().zip(&self.starts) {
            if range.contains(&code) {
                let at = (code - range.start) as usize;
                match self.text.as_bytes()[starts[at] as usize..starts[at + 1] as usize] {
                    [byte @ ..0x80] => out.push(char::from(byte)),
                    _ => out.push_str(&self.text[starts[at] as usize..starts[at + 1] as usize]),
                }
                return;
            }
        }
        fold_char(character, out);
    }
}

fn fold_char(character: char, out: &mut String) {
    match character {
        '\u{2028}' | '\u{2029}' => out.push('\n'),
        _ if character.is_whitespace() => out.push(' '),
        _ if is_unseen(character) => {}
        // Full stops of Chinese, Japanese and Hindi.
        '\u{3002}' | '\u{ff61}' | '\u{964}' => out.push_str(". "),
        // The comma of Chinese and Japanese, the blank of Braille, and the marks that begin a question or a call in Spanish.
        '\u{3001}' | '\u{2800}' | '\u{a1}' | '\u{bf}' => out.push(' '),
        // Letters in Braille.
        '\u{2801}'..='\u{28ff}' => {
            let dots = u32::from(character) - 0x2800;
            let letter = BRAILLE.iter().position(|one| u32::from(*one) == dots);
            out.extend(letter.map(|at| char::from(b'a' + at as u8)));
        }
        // Small capitals, and letters on filled and coloured grounds.
        '\u{1f1e6}'..='\u{1f1ff}' => out.push(letter_from(character, '\u{1f1e6}')),
        '\u{1f150}'..='\u{1f169}' => out.push(letter_from(character, '\u{1f150}')),
        '\u{1f170}'..='\u{1f189}' => out.push(letter_from(character, '\u{1f170}')),
        _ if small_capital(character).is_some() => out.extend(small_capital(character)),
        // Pictures stand between words.
        _ if is_picture(character) => out.push(' '),
        // Marks of tone and voice.
        '\u{302a}'..='\u{302f}' | '\u{3099}' | '\u{309a}' => {}
        // Scripts without look-alikes of ASCII, kept as they are: cheap, and common.
        '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7af}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{1f200}'.. => {
            out.push(character);
        }
        // A compatibility form is read as its parts are.
        _ => {
            for part in std::iter::once(character).nfkd().filter(|part| !is_combining_mark(*part)) {
                if part == character {
                    push_look_alike(part, out);
                } else {
                    fold_char(part, out);
                }
            }
        }
    }
}

/// The dots of the letters of Braille, a to z, a bit each.
const BRAILLE: [u8; 26] = [
    0x01, 0x03, 0x09, 0x19, 0x11, 0x0b, 0x1b, 0x13, 0x0a, 0x1a, 0x05, 0x07, 0x0d, 0x1d, 0x15, 0x0f,
    0x1f, 0x17, 0x0e, 0x1e, 0x25, 0x27, 0x3a, 0x2d, 0x3d, 0x35,
];

/// The letter of a character in a row of letters that begins at `first`.
const fn letter_from(character: char, first: char) -> char {
    (b'a' + (character as u32 - first as u32) as u8) as char
}

const fn small_capital(character: char) -> Option<char> {
    Some(match character {
        'ᴀ' => 'a',
        'ʙ' => 'b',
        'ᴄ' => 'c',
        'ᴅ' => 'd',
        'ᴇ' => 'e',
        'ꜰ' => 'f',
        'ɢ' => 'g',
        'ʜ' => 'h',
        'ɪ' => 'i',
        'ᴊ' => 'j',
        'ᴋ' => 'k',
        'ʟ' => 'l',
        'ᴍ' => 'm',
        'ɴ' => 'n',
        'ᴏ' => 'o',
        'ᴘ' => 'p',
        'ꞯ' => 'q',
        'ʀ' => 'r',
        'ꜱ' => 's',
        'ᴛ' => 't',
        'ᴜ' => 'u',
        'ᴠ' => 'v',
        'ᴡ' => 'w',
        'ʏ' => 'y',
        'ᴢ' => 'z',
        _ => return None,
    })
}

/// Whether a character is a picture: of the blocks of symbols and emoji.
const fn is_picture(character: char) -> bool {
    matches!(character, '\u{2600}'..='\u{27bf}' | '\u{1f000}'..='\u{1f0ff}' | '\u{1f300}'..='\u{1faff}')
}

/// The ASCII look-alike of a letter: a capital first as itself, then either as its small form, then as its
/// capital; else its small form.
fn push_look_alike(character: char, out: &mut String) {
    if character.is_ascii() {
        out.push(character);
        return;
    }
    let lower: String = character.to_lowercase().collect();
    let upper: String = character.to_uppercase().collect();
    let capital: String = unicode_security::skeleton(&upper).collect();
    let capital = match capital.as_bytes() {
        // The skeleton of a capital I is a small l.
        b"l" => Some('I'),
        [letter] if letter.is_ascii_alphabetic() => Some(char::from(*letter)),
        _ => None,
    };
    let small = || {
        let small: String = unicode_security::skeleton(&lower).collect();
        (small.is_ascii() && !small.is_empty()).then_some(small)
    };
    match (character.is_uppercase(), capital) {
        (true, Some(letter)) => out.push(letter),
        (_, capital) => match (small(), capital) {
            (Some(small), _) => out.push_str(&small),
            (None, Some(letter)) => out.push(letter),
            (None, None) => out.push_str(&lower),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folded(text: &str) -> String {
        fold(text).map_or_else(|| text.to_owned(), |view| view.text)
    }

    #[test]
    fn plain_is_told_of_eight_bytes_as_of_one() {
        let kept = |text: &str| text.bytes().all(is_kept);
        for around in ["aaaaaaaaaaaaaaaaaaa", "~~~~~~~~~~~~~~~~~~~", "                   "] {
            for at in 0..around.len() {
                for character in (0..0x180).filter_map(char::from_u32) {
                    let text = format!("{}{character}{}", &around[..at], &around[at..]);
                    assert_eq!(is_plain(&text), kept(&text), "{character:?} at {at} of {around:?}");
                }
            }
        }
    }

    /// The scan reads on where a fold changed nothing, without folding anew.
    #[test]
    fn each_character_is_kept_only_where_folding_gives_it_back_and_folding_twice_changes_nothing() {
        let mut changed = Vec::new();
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let one = character.to_string();
            let once = folded(&one);
            if folded(&once) != once {
                changed.push((character, once.clone(), folded(&once)));
            }
            let end = TABLE.kept_until(one.as_bytes(), 0);
            assert!(end == 0 || (end == one.len() && once == one), "{character:?}: {once:?}");
        }
        assert_eq!(changed, []);
    }

    #[test]
    fn ascii_is_not_copied() {
        assert_eq!(fold("Ignore nothing."), None);
    }

    #[test]
    fn look_alikes_and_compatibility_forms_become_ascii() {
        assert_eq!(folded("іgnоrе рrеvіоus"), "ignore previous"); // Cyrillic
        assert_eq!(folded("Іgnοre Αll"), "Ignore All"); // Cyrillic and Greek capitals
        assert_eq!(folded("ｉｇｎｏｒｅ　ａｌｌ"), "ignore all");
        assert_eq!(folded("𝐢𝐠𝐧𝐨𝐫𝐞 𝒶𝓁𝓁"), "ignore all");
        assert_eq!(folded("ìgnóré"), "ignore");
        assert_eq!(folded("igno\u{301}re"), "ignore");
    }

    #[test]
    fn a_capital_is_read_as_what_it_looks_like_itself() {
        assert_eq!(folded("Υου mυst ιgnore Νοte"), "You must ignore Note"); // Greek
        // In the scripts of the lexicon both cases of a letter are read as one.
        for letter in '\u{410}'..='\u{42f}' {
            let (capital, small) = (letter.to_string(), letter.to_lowercase().to_string());
            assert_eq!(folded(&capital).to_lowercase(), folded(&small).to_lowercase(), "{letter}");
        }
    }

    #[test]
    fn invisible_characters_disappear_and_tags_are_read() {
        assert_eq!(folded("ig\u{200b}no\u{ad}re\u{2060} \u{202e}all\u{202c}"), "ignore all");
        assert_eq!(folded("x\u{e0069}\u{e0067}\u{e006e}"), "xign");
        assert_eq!(folded("a\u{a0}b\u{2028}c"), "a b\nc");
    }

    #[test]
    fn a_mark_that_begins_a_question_is_no_letter_of_its_first_word() {
        assert_eq!(folded("¿Puedes? ¡Ignora!"), " Puedes?  Ignora!");
    }

    #[test]
    fn other_scripts_stay_readable() {
        assert_eq!(folded("这些价格 한국어 かな"), "这些价格 한국어 かな");
    }

    #[test]
    fn offsets_lead_back_to_the_original() {
        let text = "é\u{200b}x іgnоrе";
        let view = fold(text).expect("folded");
        assert_eq!(view.text, "ex ignore");
        let at = view.original(view.text.find("ignore").expect("found"));
        assert!(text[at..].starts_with("іgn"));
    }

    proptest! {
        #[test]
        fn a_view_of_any_text_leads_back_into_it(text in any::<String>()) {
            if let Some(view) = fold(&text) {
                for (offset, _) in view.text.char_indices() {
                    prop_assert!(view.original(offset) <= text.len() + view.text.len());
                }
            }
        }
    }
}
