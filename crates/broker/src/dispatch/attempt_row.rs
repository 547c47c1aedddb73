//! The part of an attempt that operators read: which attempts are kept, and which of their words.
//!
//! Pure. An answer is text of others: it is in the row alone, and in no record, metric or log line.

use crate::transport::AttemptOutcome;
use handoffd_domain::redaction::RedactionPolicy;

/// Longest kept part of an answer, in bytes.
pub(super) const ANSWER_BYTES: usize = 4 * 1024;

/// Bytes of an answer that are looked at for values to redact; the rest is not parsed.
const READ_BYTES: usize = 64 * 1024;

/// Longest kept sentence on a failure, and longest value of a header, in bytes.
const SENTENCE_BYTES: usize = 1_000;

/// Most headers that are kept.
const HEADERS: usize = 40;

/// Replaces the value of a header that proves something.
const HIDDEN: &str = "[REDACTED:secret]";

/// Parts of the names of headers whose values are secret.
const SECRET_PARTS: [&str; 9] = [
    "authorization",
    "cookie",
    "signature",
    "token",
    "secret",
    "password",
    "credential",
    "api-key",
    "apikey",
];

/// A link that opens the message without a key.
const CLAIM_CHECK: &str = "handoff-claim-check";

/// A number, which every party of the handoff reads.
const FENCING_TOKEN: &str = "handoff-fencing-token";

/// Whether an attempt is kept. The ordinary one is not: the first, which the receiver took at once. So the last attempt of a
/// handoff with several is there, and a handoff without trouble writes no row.
pub(super) fn is_kept(attempt: i32, outcome: &AttemptOutcome, overdue: bool) -> bool {
    let taken = matches!(outcome, AttemptOutcome::Accepted(_) | AttemptOutcome::Received);
    attempt > 1 || overdue || !taken
}

/// Headers with the values that operators may read.
pub(super) fn shown_headers(headers: Vec<(String, String)>) -> Vec<(String, String)> {
    let shown = |(name, value): (String, String)| {
        let value = if is_secret(&name) { HIDDEN.to_owned() } else { cut(value, SENTENCE_BYTES) };
        (name, value)
    };
    headers.into_iter().take(HEADERS).map(shown).collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == CLAIM_CHECK
        || name != FENCING_TOKEN && SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// The beginning of an answer, [`ANSWER_BYTES`] at most; `None` where nothing of it may be kept. Bytes that are not
/// UTF-8, and NUL, which Postgres does not store, become U+FFFD.
pub(super) fn shown_answer(body: &[u8], policy: &RedactionPolicy) -> Option<String> {
    let body = &body[..body.len().min(READ_BYTES)];
    let text = policy.redact_answer(&String::from_utf8_lossy(body))?;
    let text = cut(text, ANSWER_BYTES).replace('\0', "\u{fffd}");
    Some(cut(text, ANSWER_BYTES)).filter(|text| !text.is_empty())
}

/// The broker's sentence on a failure, bounded.
pub(super) fn shown_error(detail: &str) -> String {
    cut(detail.replace('\0', "\u{fffd}"), SENTENCE_BYTES)
}

/// Cuts a text before the character that exceeds so many bytes.
fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{AnswerFields, AttemptFailure, FailureClass};

    #[test]
    fn values_that_prove_something_are_replaced() {
        let secret = [
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "webhook-signature",
            "X-API-Key",
            "apikey",
            "x-a2a-notification-token",
            "X-Client-Secret",
            "Handoff-Claim-Check",
        ];
        let plain = ["webhook-id", "Handoff-Fencing-Token", "traceparent", "content-type"];
        let all = secret.iter().chain(&plain).map(|name| ((*name).to_owned(), "v1,abc".to_owned()));
        let shown = shown_headers(all.collect());
        for (name, value) in &shown {
            assert_eq!(value == HIDDEN, secret.contains(&name.as_str()), "{name}: {value}");
        }
        assert_eq!(shown.len(), secret.len() + plain.len());
        let many = vec![("a".to_owned(), "ü".repeat(SENTENCE_BYTES)); HEADERS + 1];
        let shown = shown_headers(many);
        assert_eq!((shown.len(), shown[0].1.len()), (HEADERS, SENTENCE_BYTES));
    }

    #[test]
    fn an_answer_is_cut_before_a_character() {
        let policy = RedactionPolicy::default();
        let shown = |body: &[u8]| shown_answer(body, &policy);
        assert_eq!(shown(b""), None);
        assert_eq!(shown(b"down for repair").as_deref(), Some("down for repair"));
        for (text, bytes) in [("a", ANSWER_BYTES), ("é", ANSWER_BYTES), ("€", ANSWER_BYTES - 1)]
        {
            let answer = shown(text.repeat(ANSWER_BYTES).as_bytes()).unwrap();
            assert_eq!(answer.len(), bytes, "{text}");
            assert!(answer.chars().all(|c| text.starts_with(c)), "{text}");
        }
        // Each replaced byte becomes three.
        let text = shown(&[0xff; ANSWER_BYTES]).unwrap();
        assert_eq!(text.len(), ANSWER_BYTES - 1);
        let text = shown(&[0; ANSWER_BYTES]).unwrap();
        assert!(text.len() <= ANSWER_BYTES && text.chars().all(|c| c == '\u{fffd}'));
    }

    #[test]
    fn the_first_attempt_is_kept_unless_the_receiver_took_it() {
        let accepted = AttemptOutcome::Accepted(AnswerFields::default());
        let rejected = AttemptOutcome::Rejected { reason: None, fields: AnswerFields::default() };
        let failed = AttemptOutcome::Failed(AttemptFailure::unreached(FailureClass::Dns, "no"));
        for (attempt, outcome, overdue, kept) in [
            (1, &accepted, false, false),
            (1, &AttemptOutcome::Received, false, false),
            (1, &AttemptOutcome::Received, true, true),
            (3, &accepted, false, true),
            (1, &rejected, false, true),
            (1, &failed, false, true),
            (1, &AttemptOutcome::Gone, false, true),
        ] {
            assert_eq!(is_kept(attempt, outcome, overdue), kept, "{attempt} {outcome:?} {overdue}");
        }
    }
}
