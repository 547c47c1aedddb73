//! Well-known forms of credentials: keys of clouds and services, tokens, private keys, passwords in URLs. The forms
//! are data, `config/credentials.json`.
//!
//! A vector search skips to the first word by which a form begins; from there an automaton finds all of them, and only
//! there a form's pattern is tried, at that very place. Text in base64 is searched as what it decodes to. A text that
//! was tried is not tried again from within, so the time grows with the text alone.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, Input, MatchKind, packed};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use memchr::memchr2;
use regex::Regex;
use serde::{Deserialize, Serialize};

mod base64_token;
mod document;

use base64_token::{
    MIN_BASE64, begins_text, is_base64, is_part, is_text, joined, next_base64, next_run,
};
pub use document::{CredentialMatch, MAX_SIGHTINGS, note, redact, sightings};

const BUILTIN: &str = include_str!("../assets/credentials.json");

/// A secret with fewer different characters is a placeholder (`AKIAXXXXXXXXXXXXXXXX`).
const MIN_DISTINCT: usize = 6;

/// The shortest credential with the words of its form, in bytes, but for a password in a URL, which has a colon, or in a
/// connection string, which has an equals sign.
const SHORTEST: usize = 20;

/// The longest name of a member that may tell what its value is, in bytes.
const MAX_MEMBER: usize = 40;

/// Strings this long may have no room left under their schema's limit.
const LIMITED: usize = 250;

/// Handling of credentials in agents' messages (`redaction.secrets`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretPolicy {
    /// The message passes, and the answer names their pointers.
    #[default]
    Warn,
    /// They are replaced before anything is made of the message.
    Redact,
    /// The message is refused.
    Refuse,
}

/// One form in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FormEntry {
    id: String,
    name: String,
    /// Words with which the pattern begins, after `lead` characters.
    after: Vec<String>,
    #[serde(default)]
    lead: usize,
    /// Pattern matched at the word. The first group, if any, is the credential.
    pattern: String,
    /// Whether no letter or digit may follow.
    #[serde(default)]
    closed: bool,
    /// Whether a letter may precede.
    #[serde(default)]
    within: bool,
    /// Whether the credential must have letters and digits.
    #[serde(default)]
    mixed: bool,
    /// Documentation words in place of a credential.
    #[serde(default)]
    plain: Vec<String>,
    /// Member names (lower-case letters and digits) whose whole value is a credential of the form `value`.
    #[serde(default)]
    member: Vec<String>,
    #[serde(default)]
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormFile {
    #[expect(dead_code, reason = "for readers of the file")]
    version: String,
    /// Words of a placeholder, in lower case.
    placeholders: Vec<String>,
    forms: Vec<FormEntry>,
}

struct CredentialForm {
    entry: FormEntry,
    pattern: OnceLock<Option<Regex>>,
}

impl CredentialForm {
    /// The pattern, compiled at its first use.
    fn pattern(&self) -> Option<&Regex> {
        let compile = || Regex::new(&format!("^(?:{})", self.entry.pattern)).ok();
        self.pattern.get_or_init(compile).as_ref()
    }
}

/// The forms, ready for a search.
pub struct CredentialForms {
    words: AhoCorasick,
    /// Finds the first of the words that hold no other; none where the processor has no vectors for it.
    first: Option<packed::Searcher>,
    /// Bytes of the longest word.
    longest: usize,
    /// For each word, its form.
    owners: Vec<usize>,
    placeholders: Vec<String>,
    forms: Vec<CredentialForm>,
    /// (form, pattern of the whole value), for forms found by member names.
    members: Vec<(usize, Regex)>,
}

impl std::fmt::Debug for CredentialForms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forms").field("forms", &self.forms.len()).finish_non_exhaustive()
    }
}

/// A credential found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential<'f> {
    /// The form's id, as `github-token`.
    pub id: &'f str,
    /// Display name, with its article.
    pub name: &'f str,
    /// Byte range in the text.
    pub place: Range<usize>,
}

impl CredentialForms {
    /// The built-in forms.
    ///
    /// # Panics
    /// Never with the built-in file; this file's tests load it.
    pub fn builtin() -> &'static Self {
        static FORMS: LazyLock<CredentialForms> = LazyLock::new(|| {
            CredentialForms::load(BUILTIN)
                .expect("the compiled-in forms load, as the tests of this file prove")
        });
        &FORMS
    }

    fn load(text: &str) -> Result<Self, String> {
        let file: FormFile = serde_json::from_str(text).map_err(|err| err.to_string())?;
        let (mut words, mut owners, mut members) = (Vec::new(), Vec::new(), Vec::new());
        for (at, entry) in file.forms.iter().enumerate() {
            words.extend(entry.after.iter().cloned());
            owners.extend(entry.after.iter().map(|_| at));
            if let Some(value) = &entry.value {
                members.push((
                    at,
                    Regex::new(&format!("^(?:{value})$")).map_err(|err| err.to_string())?,
                ));
            }
        }
        let holds_another = |word: &String| {
            words.iter().any(|other| other.len() < word.len() && word.contains(other.as_str()))
        };
        let first = packed::Config::new()
            .heuristic_pattern_limits(false)
            .builder()
            .extend(words.iter().filter(|word| !holds_another(word)))
            .build();
        let longest = words.iter().map(String::len).max().unwrap_or_default();
        let words = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&words)
            .map_err(|err| err.to_string())?;
        let forms =
            file.forms.into_iter().map(|entry| CredentialForm { entry, pattern: OnceLock::new() });
        let (forms, placeholders) = (forms.collect(), file.placeholders);
        Ok(Self { words, first, longest, owners, placeholders, forms, members })
    }

    /// The credentials in a text, in order; `member` is the name of the member with this value.
    #[must_use]
    pub fn find<'f>(&'f self, text: &str, member: Option<&str>) -> Vec<Credential<'f>> {
        if let Some(whole) = member.and_then(|member| self.named(text, member)) {
            return vec![whole];
        }
        if text.len() < SHORTEST && memchr2(b':', b'=', text.as_bytes()).is_none() {
            return Vec::new();
        }
        let mut found = self.plain(text);
        self.encoded(text, &mut found);
        // If two forms match one credential, the one that begins first counts.
        found.sort_by_key(|one| (one.place.start, usize::MAX - one.place.end));
        let mut until = 0;
        found.retain(|one| {
            let apart = one.place.start >= until;
            until = until.max(one.place.end);
            apart
        });
        found
    }

    /// The credentials that stand in a text as they are.
    fn plain<'f>(&'f self, text: &str) -> Vec<Credential<'f>> {
        match &self.first {
            None => self.search(text, 0),
            Some(first) => match first.find(text) {
                None => Vec::new(),
                Some(hit) => self.search(text, hit.start().saturating_sub(self.longest)),
            },
        }
    }

    /// Adds the tokens of base64, in either alphabet, that hold a credential: each is one, as a whole.
    fn encoded<'f>(&'f self, text: &str, found: &mut Vec<Credential<'f>>) {
        let bytes = text.as_bytes();
        let mut done = 0;
        while let Some(token) = next_base64(bytes, done) {
            done = token.end;
            let mut add = |first: Credential<'f>, place: Range<usize>| {
                let padding = bytes[place.end..].iter().take(2).take_while(|byte| **byte == b'=');
                let place = place.start..place.end + padding.count();
                found.push(Credential { place, ..first });
            };
            if let Some(first) = self.decoded(&bytes[token.clone()]) {
                add(first, token);
                continue;
            }
            // A path may hold one.
            let mut done = token.start;
            while let Some(start) = next_run(&bytes[..token.end], done, is_part) {
                let rest = &bytes[start + MIN_BASE64..token.end];
                let more = rest.iter().position(|byte| !is_part(*byte)).unwrap_or(rest.len());
                let place = start..start + MIN_BASE64 + more;
                done = place.end;
                if place != token
                    && let Some(first) = self.decoded(&bytes[place.clone()])
                {
                    add(first, place);
                }
            }
        }
    }

    /// The first credential in what a token of base64 decodes to, where that is text.
    fn decoded(&self, token: &[u8]) -> Option<Credential<'_>> {
        const BASE64: GeneralPurpose = GeneralPurpose::new(
            &STANDARD,
            GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true)
                .with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        if !begins_text(token) {
            return None;
        }
        // Without the breaks of its lines, in the standard alphabet.
        let digits = token.iter().filter(|byte| is_base64(**byte)).map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            digit => *digit,
        });
        let mut digits: Vec<u8> = digits.collect();
        if digits.len() % 4 == 1 {
            digits.pop();
        }
        let text = String::from_utf8(BASE64.decode(&digits).ok()?).ok()?;
        if !text.bytes().all(is_text) {
            return None;
        }
        self.plain(&text).into_iter().min_by_key(|one| one.place.start)
    }

    /// The credentials in a text that has no word of a form before `from`.
    fn search<'f>(&'f self, text: &str, from: usize) -> Vec<Credential<'f>> {
        let mut found = Vec::new();
        // How far each form was tried.
        let mut tried: Vec<(usize, usize)> = Vec::new();
        for hit in self.words.find_overlapping_iter(Input::new(text).range(from..)) {
            let owner = self.owners[hit.pattern().as_usize()];
            let CredentialForm { entry, .. } = &self.forms[owner];
            let Some(start) = hit.start().checked_sub(entry.lead) else { continue };
            let known =
                tried.iter().find(|(form, _)| *form == owner).map_or(0, |(_, until)| *until);
            if start < known
                || !entry.within && joined(text[..start.min(text.len())].bytes().next_back())
            {
                continue;
            }
            let Some(groups) =
                text.get(start..).and_then(|rest| self.forms[owner].pattern()?.captures(rest))
            else {
                continue;
            };
            let whole = groups.get(0).map_or(0..0, |whole| whole.range());
            let secret = groups.get(1).map_or(whole.clone(), |secret| secret.range());
            let (whole, secret) =
                (start + whole.start..start + whole.end, start + secret.start..start + secret.end);
            tried.retain(|(form, _)| *form != owner);
            tried.push((owner, whole.end));
            let open = entry.closed && joined(text.as_bytes().get(whole.end).copied());
            if open || self.stands_in(entry, &text[secret.clone()]) {
                continue;
            }
            found.push(Credential { id: &entry.id, name: &entry.name, place: secret });
        }
        found
    }

    fn named<'f>(&'f self, text: &str, member: &str) -> Option<Credential<'f>> {
        if text.is_empty() || !(3..=MAX_MEMBER).contains(&member.len()) {
            return None;
        }
        let plain = || {
            let letters = member.bytes().filter(u8::is_ascii_alphanumeric);
            letters.map(|byte| byte.to_ascii_lowercase())
        };
        let named = |entry: &FormEntry| entry.member.iter().any(|name| plain().eq(name.bytes()));
        let (form, value) =
            self.members.iter().find(|(form, _)| named(&self.forms[*form].entry))?;
        let entry = &self.forms[*form].entry;
        (text.len() < LIMITED && value.is_match(text) && !self.stands_in(entry, text))
            .then(|| Credential { id: &entry.id, name: &entry.name, place: 0..text.len() })
    }

    /// Whether a secret is only a placeholder.
    fn stands_in(&self, entry: &FormEntry, secret: &str) -> bool {
        let small = secret.to_ascii_lowercase();
        let url = !entry.plain.is_empty();
        if url {
            let marked =
                small.starts_with(['$', '<', '{', '[', '*', '%']) || small.contains("[redacted");
            return marked
                || entry.plain.contains(&small)
                || small.chars().all(|one| matches!(one, '.' | '*' | 'x'))
                || entry.mixed && !is_mixed(secret);
        }
        let distinct = secret.bytes().collect::<std::collections::BTreeSet<_>>().len();
        distinct < MIN_DISTINCT
            || entry.mixed && !is_mixed(secret)
            || entry.id != "private-key"
                && self.placeholders.iter().any(|word| small.contains(word.as_str()))
    }

    /// The text with each credential replaced by `[REDACTED:id]`; `None` where it has none.
    #[must_use]
    pub fn redact(&self, text: &str, member: Option<&str>) -> Option<String> {
        let found = self.find(text, member);
        if found.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for one in &found {
            out.push_str(&text[done..one.place.start]);
            out.push_str("[REDACTED:");
            out.push_str(one.id);
            out.push(']');
            done = one.place.end;
        }
        out.push_str(&text[done..]);
        let length = text.chars().count();
        if length >= LIMITED && out.chars().count() > length {
            out = out.chars().take(length).collect();
        }
        Some(out)
    }
}

/// Whether a secret has letters and digits.
fn is_mixed(secret: &str) -> bool {
    secret.bytes().any(|byte| byte.is_ascii_alphabetic())
        && secret.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
