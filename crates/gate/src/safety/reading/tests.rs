use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Reading {
    let mut reading = Reading::default();
    reading.read("what was read before, of another length");
    reading.read(text);
    reading
}

/// Start, end and letters of each word.
fn words(text: &str) -> Vec<(usize, usize, Vec<u8>)> {
    let mut reading = read(text);
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(word) = reading.word(text.as_bytes(), at) {
        let letters = reading.letters(&word, usize::MAX).to_vec();
        assert_eq!(word.key(), (hash(&letters), head(&letters)), "{text:?}");
        assert_eq!(word.length as usize, letters.len());
        words.push((word.start, word.end, letters));
        at = word.end;
    }
    words
}

/// The result of [`words`], computed byte by byte.
fn plain_words(text: &str) -> Vec<(usize, usize, Vec<u8>)> {
    let text = text.as_bytes();
    let letter = |at: usize| text.get(at).map(|byte| READ[usize::from(*byte)]);
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while letter(at).is_some_and(|read| read <= b' ') {
            let next = text.get(at + 1);
            at += if text[at] == b'\\' && matches!(next, Some(b'n' | b'r' | b't')) { 2 } else { 1 };
        }
        let start = at;
        let mut letters = Vec::new();
        loop {
            if let Some(read) = letter(at).filter(|read| *read > b' ') {
                letters.push(read);
                at += 1;
            } else if !letters.is_empty() && text[at.min(text.len())..].starts_with(b"-\n") {
                at += 2;
            } else {
                break;
            }
        }
        if letters.is_empty() {
            return words;
        }
        words.push((start, at, letters));
    }
}

fn is_encoded(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

#[test]
fn words_are_cut_at_borders_and_put_together_over_lines() {
    let of = |text| words(text).into_iter().map(|word| String::from_utf8(word.2).expect("ASCII"));
    let read: Vec<_> = of("1gn0re\\nall -- previ-\nous,in$truc-\n-\ntions-").collect();
    assert_eq!(read, ["ignore", "all", "previous", "instructions"]);
    assert_eq!(of("").count(), 0);
    assert_eq!(of("-\n").count(), 0);
}

/// Texts in which everything that matters to a reading is common.
fn texts() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-zA-Z0-9]{1,20}",
        "[-\\\\\n nrt@$+/_.é]{1,4}",
        Just("-\n".to_owned()),
        Just("\\n".to_owned()),
        "[a-z0-9+/_-]{15,130}",
        "([a-z] ){1,12}",
        any::<String>(),
    ];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn words_are_those_of_a_pass_byte_by_byte(text in texts()) {
        prop_assert_eq!(words(&text), plain_words(&text));
    }

    #[test]
    fn encoded_segments_are_those_of_a_pass_byte_by_byte(text in texts()) {
        let reading = read(&text);
        let bytes = text.as_bytes();
        let mut at = 0;
        for segment in bytes.split(|byte| !is_encoded(*byte)) {
            let end = at + segment.len();
            if segment.len() >= MIN_ENCODED {
                prop_assert_eq!(reading.encoded_from(at), Some(at));
                prop_assert_eq!(reading.encoded_until(at), end);
            }
            let next = reading.encoded_from(end);
            let window = |from: &usize| {
                let window = bytes.get(*from..from + MIN_ENCODED);
                window.is_some_and(|window| window.iter().all(|byte| is_encoded(*byte)))
            };
            prop_assert_eq!(next, (end..bytes.len()).find(window));
            at = end + 1;
        }
    }

    #[test]
    fn letters_alone_are_found_as_by_a_look_at_each_eight_bytes(text in texts(), from in 0..9_usize) {
        let reading = read(&text);
        let alone = |eight: &[u8]| {
            eight.iter().any(u8::is_ascii_alphanumeric)
                && !eight.windows(2).any(|two| two.iter().all(u8::is_ascii_alphanumeric))
        };
        let bytes = text.as_bytes().get(from..).unwrap_or_default();
        let plain = bytes.chunks(8).position(alone).map(|at| from + 8 * at);
        let found = reading.next_alone(from);
        prop_assert_eq!(Some(found).filter(|at| *at < text.len()), plain);
    }
}
