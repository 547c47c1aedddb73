//! Binary data that a text embeds (ruling B21): a `data:` URI, or a long run of base64. By reference is the rule.

/// Texts below this many bytes embed nothing that counts: an icon, a signature, a key.
pub const MIN_BYTES: usize = 1_024;

/// Names embedded data (an image, an encoded file) in words for the sender; `None` for most texts.
#[must_use]
pub fn find(text: &str) -> Option<&'static str> {
    if text.len() < MIN_BYTES {
        return None;
    }
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest.as_bytes(), b"data:") {
        rest = &rest[at + 5..];
        let head = &rest.as_bytes()[..rest.len().min(128)];
        let is_media = |head: &[u8]| head.contains(&b'/') && !head.contains(&b' ');
        if let Some(comma) = memchr::memchr(b',', head)
            && is_media(&head[..comma])
            && rest.len() - comma > MIN_BYTES / 2
        {
            return Some("a data: URI");
        }
    }
    has_base64(text.as_bytes()).then_some("base64 data")
}

/// Whether a run of base64, line breaks within it let through, is longer than [`MIN_BYTES`] and looks like coded bytes: lower
/// and upper case and digits each have a tenth of it at least. A run that long has one of every [`MIN_BYTES`] places, so
/// that a look there is enough: prose costs a few bytes a look.
fn has_base64(text: &[u8]) -> bool {
    let coded = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_\r\n".contains(byte);
    let mut at = MIN_BYTES - 1;
    while let Some(byte) = text.get(at) {
        if !coded(byte) {
            at += MIN_BYTES;
            continue;
        }
        let start = text[..at].iter().rposition(|byte| !coded(byte)).map_or(0, |last| last + 1);
        let end = text[at..].iter().position(|byte| !coded(byte)).map_or(text.len(), |n| at + n);
        let run = &text[start..end];
        let count = |class: fn(&u8) -> bool| run.iter().filter(|byte| class(byte)).count();
        let breaks = count(|byte| matches!(byte, b'\r' | b'\n'));
        let classes = [
            count(u8::is_ascii_lowercase),
            count(u8::is_ascii_uppercase),
            count(u8::is_ascii_digit),
        ];
        let length = run.len() - breaks;
        if length >= MIN_BYTES && classes.iter().all(|count| count * 10 >= length) {
            return true;
        }
        at = end + MIN_BYTES;
    }
    false
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn coded(bytes: usize) -> String {
        // Noise of a fixed seed.
        let mut state = 9_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(bytes)
        .collect();
        base64::engine::general_purpose::STANDARD.encode(noise)
    }

    #[test]
    fn b21_embedded_binary_is_found_and_long_text_is_not() {
        assert_eq!(find(&coded(3_000)), Some("base64 data"));
        let wrapped: Vec<String> = coded(3_000)
            .as_bytes()
            .chunks(76)
            .map(|line| String::from_utf8(line.to_vec()).unwrap())
            .collect();
        assert_eq!(find(&wrapped.join("\n")), Some("base64 data"));
        let uri = format!("see data:image/png;base64,{}", coded(2_000));
        assert_eq!(find(&uri), Some("a data: URI"));
        let within = format!("{} {} {}", "words ".repeat(300), coded(1_000), "words ".repeat(300));
        assert_eq!(find(&within), Some("base64 data"));
        assert_eq!(find(&coded(300)), None, "a key is not a file");
        assert_eq!(find(&"The data: see page 4, then the annex. ".repeat(100)), None);
        assert_eq!(find(&"abcdefgh".repeat(1_000)), None);
        assert_eq!(find(&"0123456789abcdef".repeat(1_000)), None, "a list of hashes");
    }
}
