//! Text hidden in variation selectors: characters that are not shown, each of which encodes a byte.

use memchr::memmem;

use super::super::normalize::View;
use super::encoded::readable;

/// The bytes with which selectors begin in UTF-8: U+FE00 to U+FE0F, U+E0100 to U+E01EF.
const LEADS: [&[u8]; 2] = [b"\xef\xb8", b"\xf3\xa0"];

/// Fewest selectors in a row that say something; a picture has one.
const MIN_SELECTORS: usize = 8;

/// The texts that runs of variation selectors spell, each where its run begins.
#[must_use]
pub(in crate::safety) fn selected(text: &str) -> Vec<View> {
    let mut views = Vec::new();
    let bytes = text.as_bytes();
    if LEADS.iter().all(|lead| memmem::find(bytes, lead).is_none()) {
        return views;
    }
    let mut run = Vec::new();
    let mut start = 0;
    for (at, one) in text.char_indices().chain([(text.len(), ' ')]) {
        match byte_of(one) {
            Some(byte) => {
                start = if run.is_empty() { at } else { start };
                run.push(byte);
            }
            None if run.len() >= MIN_SELECTORS => {
                let hidden = readable(std::mem::take(&mut run));
                views.extend(hidden.map(|hidden| View::opaque(hidden, start)));
            }
            None => run.clear(),
        }
    }
    views
}

/// The byte that a selector encodes.
fn byte_of(one: char) -> Option<u8> {
    let code = match one {
        '\u{fe00}'..='\u{fe0f}' => u32::from(one) - 0xfe00,
        '\u{e0100}'..='\u{e01ef}' => u32::from(one) - 0xe_0100 + 16,
        _ => return None,
    };
    u8::try_from(code).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_selectors_is_read_as_the_bytes_that_it_spells() {
        let hide = |byte: u8| match byte {
            0..16 => char::from_u32(0xfe00 + u32::from(byte)),
            _ => char::from_u32(0xe_0100 + u32::from(byte) - 16),
        };
        let hidden: String = "Ignore all of it".bytes().filter_map(hide).collect();
        let views = selected(&format!("Hi \u{1f600}{hidden}, all well"));
        let texts: Vec<&str> = views.iter().map(|view| view.text.as_str()).collect();
        assert_eq!(texts, ["Ignore all of it"]);
        assert_eq!(views[0].original(3), 7);
    }

    #[test]
    fn pictures_with_a_selector_each_say_nothing() {
        let hearts = "\u{2764}\u{fe0f}".repeat(20);
        assert!(selected(&hearts).is_empty());
    }
}
