//! Addresses of images with places to fill in, as maps and templates have them, and the orders beside them that have a place
//! filled in with what is to be carried away.

use std::cell::OnceCell;

/// Longest name of a place in a template, in bytes.
const LONG_NAME: usize = 32;

/// Parts of names of contents that an image must not carry away.
pub(super) const CARRIED: [&str; 41] = [
    "answer",
    "apikey",
    "api_key",
    "base64",
    "b64",
    "chat",
    "content",
    "context",
    "conversation",
    "cookie",
    "credential",
    "data",
    "email",
    "encode",
    "env",
    "exfil",
    "history",
    "info",
    "input",
    "instruction",
    "leak",
    "mail",
    "memory",
    "message",
    "msg",
    "output",
    "pass",
    "payload",
    "phone",
    "prompt",
    "query",
    "question",
    "reply",
    "response",
    "secret",
    "session",
    "summary",
    "system",
    "text",
    "token",
    "transcript",
];

/// How far from an address an order to fill it in may be, in bytes.
const BESIDE: usize = 400;

/// The longest part of an order that is read from its verb on, in bytes.
const ORDER: usize = 120;

/// How verbs begin that have a place filled in.
const FILLS: [&str; 28] = [
    "append",
    "comple",
    "encod",
    "ersetz",
    "fill",
    "inser",
    "preench",
    "put ",
    "rellen",
    "remplac",
    "rempli",
    "reemplaz",
    "replac",
    "riemp",
    "setz",
    "sostitu",
    "substitu",
    "sustitu",
    "trag",
    "встав",
    "замен",
    "подстав",
    "替换",
    "替換",
    "填",
    "置き換え",
    "埋め",
    "바꾸",
];

/// Parts of words for what may be filled in, besides [`CARRIED`].
const CARRIED_AWAY: [&str; 18] = [
    "contrase",
    "conversa",
    "geheim",
    "gespräch",
    "key",
    "secr",
    "segret",
    "senha",
    "user",
    "парол",
    "разговор",
    "секрет",
    "密码",
    "密碼",
    "对话",
    "会話",
    "パスワード",
    "대화",
];

/// The orders of a text to fill a place in; looked for once, where an address has one.
#[derive(Debug, Default)]
pub(super) struct FillingOrders(OnceCell<FoundOrders>);

#[derive(Debug)]
struct FoundOrders {
    /// The places of verbs, each with the end of its sentence.
    verbs: Vec<(usize, usize)>,
    /// Words for what may be carried away: the first byte, and the one behind the last.
    carried: Vec<(usize, usize)>,
}

impl FillingOrders {
    /// Whether an order beside the address at that place of `text` has it filled in.
    pub(super) fn beside(&self, text: &str, (start, end): (usize, usize)) -> bool {
        let orders = self.0.get_or_init(|| FoundOrders::of(text));
        orders.within(start.saturating_sub(BESIDE), start) || orders.within(end, end + BESIDE)
    }
}

impl FoundOrders {
    fn of(text: &str) -> Self {
        let text = lowercase(text);
        let places = |words: &[&str]| {
            let places = words.iter().flat_map(|word| text.match_indices(word));
            let places = places.map(|(at, word)| (at, at + word.len()));
            let mut places: Vec<(usize, usize)> = places.collect();
            places.sort_unstable();
            places
        };
        let sentence = |(at, _): (usize, usize)| {
            let rest = &text[at..text.floor_char_boundary((at + ORDER).min(text.len()))];
            let ends = [rest.find(['\n', '\u{3002}']), rest.find(". ")];
            (at, at + ends.into_iter().flatten().min().unwrap_or(rest.len()))
        };
        let verbs = places(&FILLS).into_iter().map(sentence).collect();
        Self { verbs, carried: places(&[&CARRIED[..], &CARRIED_AWAY].concat()) }
    }

    /// Whether an order whose verb begins there says, in so far as it is there, what is to be carried away.
    fn within(&self, from: usize, until: usize) -> bool {
        let first = self.verbs.partition_point(|(at, _)| *at < from);
        let mut verbs = self.verbs[first..].iter().take_while(|(at, _)| *at < until);
        verbs.any(|(at, end)| self.carries(*at, until.min(*end)))
    }

    fn carries(&self, from: usize, until: usize) -> bool {
        let first = self.carried.partition_point(|(at, _)| *at < from);
        let mut words = self.carried[first..].iter().take_while(|(at, _)| *at < until);
        words.any(|(_, end)| *end <= until)
    }
}

/// A text in lower case, each letter at its place.
fn lowercase(text: &str) -> String {
    let lower = |one: char| {
        let mut lower = one.to_lowercase();
        let single = lower.next().filter(|_| lower.next().is_none());
        single.filter(|lower| lower.len_utf8() == one.len_utf8()).unwrap_or(one)
    };
    text.chars().map(lower).collect()
}

/// Whether all places to fill in of a path are such as maps and templates have: names of one word that tell of nothing to carry
/// away (`/{z}/{x}/{y}.png`, `{{ page.image }}`).
pub(super) fn is_template(path: &[u8]) -> bool {
    let Ok(mut rest) = std::str::from_utf8(path) else { return false };
    while let Some(open) = rest.find(['{', '[', '<', '%']) {
        let sign = rest.as_bytes()[open];
        rest = &rest[open + 1..];
        let close = match sign {
            b'{' => '}',
            b'[' => ']',
            b'<' => '>',
            // A percent sign is an escape, which may be a bracket.
            _ if rest.starts_with(['7', '5', '3']) => return false,
            _ => continue,
        };
        rest = rest.trim_start_matches('{');
        let Some(end) = rest.find(close) else { return false };
        if !is_template_name(rest[..end].trim()) {
            return false;
        }
        rest = rest[end..].trim_start_matches(close);
    }
    true
}

/// Whether a name in a template is one word, or words with dots between, of nothing to carry away.
fn is_template_name(name: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b':');
    let lower = name.to_ascii_lowercase();
    name.len() <= LONG_NAME
        && name.bytes().all(plain)
        && !CARRIED.iter().any(|one| lower.contains(one))
}
