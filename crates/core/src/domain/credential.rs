//! Well-known forms of credentials: keys of clouds and services, tokens, private keys, passwords in URLs. The forms
//! are data, `config/credentials.json`.
//!
//! A vector search skips to the first word by which a form begins; from there an automaton finds all of them, and
//! only there a form's pattern is tried, at that very place. Text in base64 is searched as what it decodes to. What was
//! tried is not tried again from within, so the time grows with the text alone.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use aho_corasick::{AhoCorasick, Input, MatchKind, packed};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use memchr::memchr;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const BUILTIN: &str = include_str!("../../../../config/credentials.json");

/// A secret with fewer different characters is a placeholder (`AKIAXXXXXXXXXXXXXXXX`).
const MIN_DISTINCT: usize = 6;

/// The shortest credential with the words of its form, in bytes, but for a password in a URL, which has a colon.
const SHORTEST: usize = 20;

/// Fewest characters of base64 that are decoded.
const MIN_BASE64: usize = 20;

/// Base64 that goes on in the next line has at least so many characters in each before.
const MIN_BASE64_LINE: usize = 60;

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
        if text.len() < SHORTEST && memchr(b':', text.as_bytes()).is_none() {
            return Vec::new();
        }
        if let Some(whole) = member.and_then(|member| self.named(text, member)) {
            return vec![whole];
        }
        let mut found = self.plain(text);
        self.encoded(text, &mut found);
        // Where two forms see one credential, the one that begins first counts.
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
                || small.chars().all(|one| matches!(one, '.' | '*' | 'x'));
        }
        let distinct = secret.bytes().collect::<std::collections::BTreeSet<_>>().len();
        let letters = secret.bytes().any(|byte| byte.is_ascii_alphabetic());
        let digits = secret.bytes().any(|byte| byte.is_ascii_digit());
        distinct < MIN_DISTINCT
            || entry.mixed && !(letters && digits)
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

/// The location of a credential in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialMatch {
    /// JSON pointer of the string; for a member's name, of its object.
    pub pointer: String,
    /// Display name, with its article.
    pub name: &'static str,
}

/// Most credentials reported for one document.
pub const MAX_SIGHTINGS: usize = 20;

/// The credentials in a document at `root` (a JSON pointer), including its keys.
#[must_use]
pub fn sightings(root: &str, value: &Value) -> Vec<CredentialMatch> {
    let mut found = Vec::new();
    look(&mut root.to_owned(), None, value, &mut found);
    found
}

fn look(
    pointer: &mut String,
    member: Option<&str>,
    value: &Value,
    found: &mut Vec<CredentialMatch>,
) {
    let forms = CredentialForms::builtin();
    let length = pointer.len();
    match value {
        Value::String(text) => note(found, || pointer.clone(), &forms.find(text, member)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                push_segment(pointer, &index.to_string());
                look(pointer, None, item, found);
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, below) in members {
                note(found, || pointer.clone(), &forms.find(name, None));
                push_segment(pointer, name);
                look(pointer, Some(name), below, found);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the matches of a string. A pointer never repeats a credential that is a member's name further up.
pub fn note(
    sightings: &mut Vec<CredentialMatch>,
    pointer: impl Fn() -> String,
    found: &[Credential<'static>],
) {
    for one in found.iter().take(MAX_SIGHTINGS.saturating_sub(sightings.len())) {
        let pointer = pointer();
        let pointer = CredentialForms::builtin().redact(&pointer, None).unwrap_or(pointer);
        sightings.push(CredentialMatch { pointer, name: one.name });
    }
}

/// Replaces the credentials in a document, including its keys; returns whether there were any.
pub fn redact(member: Option<&str>, value: &mut Value) -> bool {
    let forms = CredentialForms::builtin();
    match value {
        Value::String(text) => match forms.redact(text, member) {
            Some(safe) => {
                *text = safe;
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| redact(None, item) | any),
        Value::Object(members) => {
            let mut any = false;
            for (name, below) in members.iter_mut() {
                any |= redact(Some(name), below);
            }
            let names: Vec<String> =
                members.keys().filter(|name| !forms.find(name, None).is_empty()).cloned().collect();
            for name in names {
                any = true;
                if let (Some(safe), Some(below)) =
                    (forms.redact(&name, None), members.remove(&name))
                {
                    // Two names may have become one.
                    let mut free = safe.clone();
                    let mut number = 2;
                    while members.contains_key(&free) {
                        free = format!("{safe} {number}");
                        number += 1;
                    }
                    members.insert(free, below);
                }
            }
            any
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn push_segment(pointer: &mut String, name: &str) {
    pointer.push('/');
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
}

/// What each byte stands for in base64, in either alphabet; more than 63 where it is none of its characters.
static VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 64 {
        let byte = match value {
            0..26 => b'A' + value,
            26..52 => b'a' + value - 26,
            52..62 => b'0' + value - 52,
            62 => b'+',
            _ => b'/',
        };
        values[byte as usize] = value;
        value += 1;
    }
    values[b'-' as usize] = values[b'+' as usize];
    values[b'_' as usize] = values[b'/' as usize];
    values
};

fn is_base64(byte: u8) -> bool {
    VALUES[usize::from(byte)] < 64
}

/// Whether a byte of a token of base64 is in a part of it, where the token is a path.
const fn is_part(byte: u8) -> bool {
    !matches!(byte, b'/' | b'-' | b'_' | b'+')
}

/// Whether a byte stands in text: no control character but white space.
const fn is_text(byte: u8) -> bool {
    !byte.is_ascii_control() || matches!(byte, b'\n' | b'\r' | b'\t')
}

/// Whether a token decodes to the beginning of a text, as far as its first characters tell. Most tokens are none, and
/// it shows in the first few.
fn begins_text(token: &[u8]) -> bool {
    // Bytes of a character in UTF-8 that are still to come.
    let mut rest = 0;
    for quad in token.chunks_exact(4).take(MIN_BASE64 / 4) {
        let [a, b, c, d] =
            [quad[0], quad[1], quad[2], quad[3]].map(|byte| VALUES[usize::from(byte)]);
        if (a | b | c | d) > 63 {
            // The break of a line.
            break;
        }
        for byte in [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d] {
            rest = match (byte, rest) {
                (0x80..=0xBF, 1..) => rest - 1,
                (..0x80, 0) if is_text(byte) => 0,
                (0xC2..=0xDF, 0) => 1,
                (0xE0..=0xEF, 0) => 2,
                (0xF0..=0xF4, 0) => 3,
                _ => return false,
            };
        }
    }
    true
}

/// The first run of at least `MIN_BASE64` bytes of a kind that begins at `from` or after a byte of another kind: where
/// it begins. Looks from the end of what could be the shortest: most runs are shorter, so few bytes are looked at.
fn next_run(bytes: &[u8], from: usize, kind: impl Fn(u8) -> bool) -> Option<usize> {
    let (mut start, mut at) = (from, from + MIN_BASE64);
    while at <= bytes.len() && at > start {
        if kind(bytes[at - 1]) {
            at -= 1;
        } else {
            start = at;
            at += MIN_BASE64;
        }
    }
    (at == start).then_some(start)
}

/// The next token of base64 that begins at `from` or at the beginning of a later word, with the breaks of its lines.
/// Written out, for it looks at every text.
fn next_base64(bytes: &[u8], from: usize) -> Option<Range<usize>> {
    let until = |mut at: usize| {
        while at < bytes.len() && VALUES[usize::from(bytes[at])] < 64 {
            at += 1;
        }
        at
    };
    let start = next_run(bytes, from, is_base64)?;
    let (mut line, mut end) = (start, until(start + MIN_BASE64));
    while end - line >= MIN_BASE64_LINE && (end - line).is_multiple_of(4) {
        let rest = &bytes[end..];
        let more = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n"));
        let Some(next) = more.map(|more| bytes.len() - more.len()) else { break };
        let next_end = until(next);
        // Rather than the words after it.
        if next_end == next || bytes.get(next_end) == Some(&b' ') {
            break;
        }
        (line, end) = (next, next_end);
    }
    Some(start..end)
}

/// Whether a byte beside a token belongs to a longer word.
fn joined(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// So many characters of a token, not all alike. Made here, so that no file holds what looks like one.
    fn made(count: usize) -> String {
        "A7bC2dE9fG4hJ6kL3mN5pQ8rS".chars().cycle().take(count).collect()
    }

    fn hex(count: usize) -> String {
        "0a1b2c3d4e5f67".chars().cycle().take(count).collect()
    }

    fn ids(text: &str) -> Vec<&'static str> {
        CredentialForms::builtin().find(text, None).into_iter().map(|one| one.id).collect()
    }

    /// (form, text around it before, the credential, text after)
    fn samples() -> Vec<(&'static str, String, String, String)> {
        let base32: String = "ABCDEFGH234567QR".to_owned();
        let key = format!("{}\n{}", made(64), made(40));
        let of = |id, before: &str, secret: String| {
            (id, before.to_owned(), secret, " and more".to_owned())
        };
        vec![
            of("aws-access-key", "key: ", format!("AKIA{base32}")),
            of("aws-access-key", "", format!("ASIA{base32}")),
            of("aws-secret-key", "aws_secret_access_key = ", made(40)),
            of("aws-secret-key", "\"SecretAccessKey\": \"", made(40)),
            of("gcp-api-key", "https://maps.example/?key=", format!("AIza{}", made(35))),
            of("gcp-oauth-token", "token ", format!("ya29.{}", made(60))),
            of("gcp-oauth-secret", "", format!("GOCSPX-{}", made(28))),
            of("azure-storage-key", "AccountName=a;AccountKey=", format!("{}==", made(86))),
            of(
                "azure-shared-access-key",
                "Endpoint=sb://a/;SharedAccessKey=",
                format!("{}=", made(43)),
            ),
            of(
                "azure-shared-access-signature",
                "https://a.example/b?sv=1&sig=",
                format!("{}%3D", made(43)),
            ),
            of("azure-client-secret", "", format!("abc8Q~{}", made(34))),
            of("github-token", "git clone with ", format!("ghp_{}", made(36))),
            of("github-token", "", format!("github_pat_{}_{}", made(22), made(59))),
            of("gitlab-token", "(", format!("glpat-{}", made(20))),
            of("slack-token", "", format!("xoxb-123456789012-123456789012-{}", made(24))),
            of(
                "slack-webhook",
                "https://hooks.slack.com/services/",
                format!("T01234567/B01234567/{}", made(24)),
            ),
            of("stripe-key", "", format!("sk_live_{}", made(24))),
            of("webhook-secret", "", format!("whsec_{}", made(32))),
            of("anthropic-key", "x-api-key: ", format!("sk-ant-api03-{}", made(80))),
            of("openai-key", "", format!("sk-proj-{}", made(48))),
            of("openai-key", "", format!("sk-{}", made(48))),
            of("hugging-face-token", "", format!("hf_{}", "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh")),
            of("npm-token", "//registry/:_authToken=", format!("npm_{}", made(36))),
            of("pypi-token", "", format!("pypi-AgE{}", made(60))),
            of("sendgrid-key", "", format!("SG.{}.{}", made(22), made(43))),
            of("digitalocean-token", "", format!("dop_v1_{}", hex(64))),
            of("databricks-token", "", format!("dapi{}", hex(32))),
            of("shopify-token", "", format!("shpat_{}", hex(32))),
            of("vault-token", "", format!("hvs.{}", made(24))),
            of("handoffd-key", "key ", format!("hd_{}", made(43))),
            of("jwt", "session=", format!("eyJ{}.eyJ{}.{}", made(20), made(40), made(43))),
            of("bearer-token", "Authorization: Bearer ", made(32)),
            of("basic-credentials", "Authorization: Basic ", format!("{}==", made(22))),
            of(
                "private-key",
                "file:\n",
                format!("-----BEGIN RSA PRIVATE KEY-----\n{key}\n-----END RSA PRIVATE KEY-----"),
            ),
            of(
                "private-key",
                "file: ",
                format!("-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----", made(64)),
            ),
            (
                "url-password",
                "postgres://admin:".to_owned(),
                "secret".to_owned(),
                "@db.internal/x".to_owned(),
            ),
            (
                "url-password",
                "see redis://:".to_owned(),
                "p4ss:word".to_owned(),
                "@cache:6379/0".to_owned(),
            ),
        ]
    }

    #[test]
    fn f5_12_each_form_is_found_where_it_stands_and_replaced_there() {
        let forms = CredentialForms::builtin();
        for (id, before, secret, after) in samples() {
            let text = format!("{before}{secret}{after}");
            let found = forms.find(&text, None);
            let [one] = found.as_slice() else { panic!("{id} in {text}: {found:?}") };
            assert_eq!((one.id, &text[one.place.clone()]), (id, &*secret), "{text}");
            assert_eq!(forms.redact(&text, None), Some(format!("{before}[REDACTED:{id}]{after}")));
            let again = forms.redact(&format!("{before}[REDACTED:{id}]{after}"), None);
            assert_eq!(again, None, "what was replaced is no credential: {before}");
        }
        assert!(forms.forms.iter().all(|form| form.pattern().is_some()), "each pattern compiles");
        let known: Vec<_> = samples().iter().map(|sample| sample.0).collect();
        for form in &forms.forms {
            assert!(known.contains(&form.entry.id.as_str()), "{} has no sample", form.entry.id);
        }
    }

    #[test]
    fn f5_12_in_base64_each_form_is_found_and_replaced_as_a_whole() {
        use base64::engine::general_purpose::{
            STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD,
        };
        let forms = CredentialForms::builtin();
        for (id, before, secret, after) in samples() {
            let text = format!("{before}{secret}{after}");
            for token in [
                STANDARD.encode(&text),
                STANDARD_NO_PAD.encode(&text),
                URL_SAFE.encode(&text),
                URL_SAFE_NO_PAD.encode(&text),
            ] {
                let alone = forms.find(&token, None);
                let [one] = alone.as_slice() else { panic!("{id} in {token}: {alone:?}") };
                assert_eq!((one.id, one.place.clone()), (id, 0..token.len()), "{text}");
                let around = |inside: &str| format!("a file: {inside}\nand {{\"k\":\"{inside}\"}}");
                let safe = forms.redact(&around(&token), None);
                assert_eq!(safe, Some(around(&format!("[REDACTED:{id}]"))));
            }
        }
        let (id, before, secret, after) = samples().swap_remove(9);
        let text = format!("{}{before}{secret}{after}", "the file begins here\n".repeat(9));
        let token = STANDARD.encode(&text);
        let lines: Vec<_> =
            token.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
        for broken in [lines.join("\n"), lines.join("\r\n")] {
            assert_eq!(forms.redact(&broken, None), Some(format!("[REDACTED:{id}]")), "{broken}");
        }
        let token = URL_SAFE_NO_PAD.encode(format!("ghp_{}", made(36)));
        let path = format!("https://a.example/v1/{token}/x");
        assert_eq!(ids(&path), ["github-token"], "{path}");
    }

    #[test]
    fn f5_12_base64_of_other_than_ascii_characters_is_text() {
        use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
        let key = format!("ghp_{}", made(36));
        for before in ["Schlüssel: ", "鍵は", "🔑 ", "k🔑鍵ü ", "\u{7ff}\u{ffff}\u{10ffff}"]
        {
            for lead in 0..16 {
                let text =
                    format!("{}{before}{key}", "x ".repeat(lead / 2) + &" ".repeat(lead % 2));
                for token in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    assert_eq!(ids(&token), ["github-token"], "{text}");
                    let path = format!("a/{}/{token}", "b".repeat(MIN_BASE64));
                    if token.bytes().all(is_part) {
                        assert_eq!(ids(&path), ["github-token"], "{path}");
                    }
                }
            }
        }
    }

    #[test]
    fn f5_12_base64_without_a_credential_is_none() {
        use base64::engine::general_purpose::STANDARD;
        for text in [
            STANDARD
                .encode("The supplier limits its liability to the fees of the last twelve months."),
            STANDARD.encode("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            STANDARD.encode("postgres://user:password@localhost/db"),
            STANDARD.encode((0..=255).collect::<Vec<u8>>()),
            "usr/share/doc/postgresql-15/contrib/extension".to_owned(),
            "A".repeat(10_000),
            "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7b".to_owned(),
            "x".repeat(MIN_BASE64 - 1),
            "-".repeat(4_001),
        ] {
            assert_eq!(ids(&text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn f5_12_no_form_but_a_password_in_a_url_is_shorter_than_what_is_skipped() {
        for (id, before, secret, after) in samples() {
            let text = format!("{before}{secret}{after}");
            for window in text.as_bytes().windows(SHORTEST - 1) {
                let window = std::str::from_utf8(window).unwrap();
                let found = CredentialForms::builtin().search(window, 0);
                assert!(found.iter().all(|one| one.id == "url-password"), "{id}: {window}");
            }
        }
    }

    #[test]
    fn f5_12_a_members_name_tells_what_its_value_is() {
        let forms = CredentialForms::builtin();
        let found = forms.find(&made(40), Some("aws_secret_access_key")).first().map(|one| one.id);
        assert_eq!(found, Some("aws-secret-key"));
        assert_eq!(forms.find(&made(40), Some("commit")), []);
    }

    #[test]
    fn f5_12_stand_ins_and_ordinary_text_are_no_credentials() {
        let jwt = "eyJhbGciOi (the header of a JWT) . eyJ";
        for text in [
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "Authorization: Bearer <token>",
            "Authorization: Bearer $TOKEN",
            "Authorization: Bearer ${GITHUB_TOKEN_OF_THE_RUNNER}",
            "the bearer acknowledgementsandrepresentations of this letter",
            "Authorization: Basic <credentials>",
            "Basic understanding of the matter",
            "postgres://user:password@localhost/db",
            "postgres://$USER:$PASSWORD@host/db",
            "postgres://user:<password>@host/db",
            "postgres://user:****@host/db",
            "cvs://:pserver:anoncvs@sources.example:/cvs/src",
            "http://Benutzer:Passwort@Server:Port/",
            "https://example.org:8443/path?at=a@b.example",
            "http://localhost:8080/@scope/name",
            "mailto:a@b.example, https://a.example: see b@c.example",
            "sk-learn, sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
            "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7b\n-----END PUBLIC KEY-----",
            "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7b\n-----END CERTIFICATE-----",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "MAKIAVELLIANPRINCIPLES2024 and hf_transfer_is_enabled, npm_config_registry",
            "0af7651916cd43dd8448eb211c80319c, 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
            jwt,
        ] {
            assert_eq!(ids(text), Vec::<&str>::new(), "{text}");
        }
    }

    #[test]
    fn f5_12_a_long_text_does_not_grow_past_its_limit() {
        let text = format!("{} AKIA{}", "x".repeat(479), "ABCDEFGH234567QR");
        let safe = CredentialForms::builtin().redact(&text, None).unwrap();
        assert_eq!(safe.chars().count(), 500);
        assert!(!safe.contains("AKIA"), "{safe}");
    }

    proptest! {
        #[test]
        fn f5_12_the_runs_are_the_parts_that_are_long_enough(path in "([a-c0]{0,30}[-_+/]){0,6}[a-c0]{0,30}") {
            let bytes = path.as_bytes();
            let (mut runs, mut done) = (Vec::new(), 0);
            while let Some(start) = next_run(bytes, done, is_part) {
                done = (start..bytes.len()).find(|at| !is_part(bytes[*at])).unwrap_or(bytes.len());
                runs.push(&bytes[start..done]);
            }
            let parts = bytes.split(|byte| !is_part(*byte)).filter(|part| part.len() >= MIN_BASE64);
            prop_assert_eq!(runs, parts.collect::<Vec<_>>());
        }

        #[test]
        fn f5_12_what_is_text_in_base64_begins_as_text(text in "\\PC{15,40}", cut in 0..9_usize) {
            let token = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&text);
            prop_assert!(begins_text(token.as_bytes()));
            // The end of a character without its beginning.
            let broken = [&[b'a'; 9][..cut], "é".as_bytes().get(1..).unwrap(), &[b'a'; 15]].concat();
            let token = base64::engine::general_purpose::STANDARD_NO_PAD.encode(broken);
            prop_assert!(!begins_text(token.as_bytes()));
        }

        #[test]
        fn f5_12_nothing_panics_and_what_was_replaced_stays_so(
            before in any::<String>(), at in 0..37_usize, after in "[ .,;\\n]{1,4}"
        ) {
            let samples = samples();
            let (_, lead, secret, end) = &samples[at.min(samples.len() - 1)];
            let text = format!("{before} {lead}{secret}{end}{after}{before}");
            let safe = CredentialForms::builtin().redact(&text, None);
            prop_assert!(safe.is_some_and(|safe| !safe.contains(&**secret) || secret.len() < 12));
        }
    }
}
