//! The meaning of a receiver's answer: the table of the product specification, section 3.
//!
//! Pure: status, `Retry-After` and body go in, an [`AttemptOutcome`] comes out. A failed delivery is an outcome, not
//! an error. Only an explicit verdict counts as one: an HTML page that a proxy serves with 200 is a failed attempt.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use handoffd_domain::lenient::{self, Lenient};

/// Longest pause that a receiver can request with `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Longest stored rejection reason, in characters; the rest is truncated.
pub const REASON_MAX_CHARS: usize = 2_000;

/// Fields of an answer beside its verdict; stored with the verdict's record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerFields {
    /// The answer's `details`, if present.
    pub details: Option<Value>,
    /// The answer's `metadata`, if present (seed 001).
    pub metadata: Option<Value>,
    /// The note of the parts of these and of the reason that could not be kept unchanged.
    pub unreadable: Option<Value>,
}

impl AnswerFields {
    /// The record content of these fields; `None` where the answer had none of them.
    #[must_use]
    pub fn into_content(self) -> Option<serde_json::Map<String, Value>> {
        let named = [
            ("details", self.details),
            ("metadata", self.metadata),
            (lenient::OWN, self.unreadable),
        ];
        let fields: serde_json::Map<_, _> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        (!fields.is_empty()).then_some(fields)
    }
}

/// The end of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptOutcome {
    /// The receiver accepted the handoff.
    Accepted(AnswerFields),
    /// The receiver rejected the handoff.
    Rejected {
        /// The answer's `reason` or `rejection_reason`, at most [`REASON_MAX_CHARS`] characters.
        reason: Option<String>,
        /// The answer's other fields.
        fields: AnswerFields,
    },
    /// Status 202: the receiver has the handoff and sends its verdict by callback.
    Received,
    /// Status 429 or 503: the receiver is alive and overloaded.
    Busy {
        /// The receiver's `Retry-After`, at most [`RETRY_AFTER_MAX`].
        retry_after: Option<Duration>,
        /// Whether the answer is the receiver's, who saw the request; a transport's server that limits requests took
        /// nothing.
        reached: bool,
    },
    /// Status 410: the endpoint is permanently gone.
    Gone,
    /// The transport between broker and receiver is away, slow, full, or refuses the broker. The receiver's health is
    /// unknown: the handoff waits, and no attempt is used up.
    Away(AttemptFailure),
    /// The attempt brought no usable answer.
    Failed(AttemptFailure),
}

impl AttemptOutcome {
    /// The outcome as a metric's label, in traces and in the attempt's row.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Rejected { .. } => "rejected",
            Self::Received => "received",
            Self::Busy { .. } => "busy",
            Self::Gone => "gone",
            Self::Away(_) => "away",
            Self::Failed(failure) => failure.class.as_str(),
        }
    }
}

/// Why an attempt brought no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The failure class, used as metric label.
    pub class: FailureClass,
    /// `false` only where no byte of the request can have reached the receiver; a handoff that is not idempotent is
    /// retried only then.
    pub reached: bool,
    /// The HTTP status, where the receiver sent one.
    pub status: Option<u16>,
    /// One sentence for operators. Contains no part of either body, no secret and no URL.
    pub detail: String,
    /// JSON pointer of the agent's setting that causes the failure, where one does.
    pub field: Option<&'static str>,
    /// The server's answer, for the operator who tests a delivery; never logged.
    pub answered: Option<String>,
}

/// An answer as it came, for operators. Its body is text of others and reaches no log.
#[derive(Clone, PartialEq, Eq)]
pub struct RawAnswer {
    pub status: u16,
    /// Without its content codings; of one that decides nothing the beginning.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for RawAnswer {
    /// Omits the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Longest answer of a server that a failure quotes, in characters.
const ANSWERED_MAX_CHARS: usize = 500;

/// Classes of failed attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureClass {
    /// The request could not be built (illegal header value, no signing secret).
    Request,
    /// The egress guard refused the URL or every address of the name.
    Egress,
    /// The name did not resolve.
    Dns,
    /// The connection was refused, reset or unreachable.
    Connect,
    /// The TLS handshake failed, or the certificate is not trusted.
    Tls,
    /// No connection, or no complete answer, within the timeout.
    Timeout,
    /// The status is not in the table.
    Status,
    /// The receiver redirected; the broker never follows.
    Redirect,
    /// The connection broke, or the answer does not match the table.
    Protocol,
    /// The answer exceeds the size limit.
    BodyTooLarge,
    /// The transport's server refused the broker's credentials, or the operation to them.
    Unauthorized,
    /// The queue, stream, subject, exchange or namespace does not exist.
    Missing,
    /// The transport's server refused the message: full, read-only, or against its rules.
    Refused,
}

impl FailureClass {
    /// The value of the metric label and of records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Egress => "egress",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Redirect => "redirect",
            Self::Protocol => "protocol",
            Self::BodyTooLarge => "body_too_large",
            Self::Unauthorized => "unauthorized",
            Self::Missing => "missing",
            Self::Refused => "refused",
        }
    }
}

impl AttemptFailure {
    /// The failure as a code, as records and operators have it.
    pub fn code(&self) -> String {
        format!("DELIVERY_{}", self.class.as_str().to_ascii_uppercase())
    }

    /// A failure before any byte of the request left for the receiver.
    pub fn unreached(class: FailureClass, detail: impl Into<String>) -> Self {
        Self {
            class,
            reached: false,
            status: None,
            detail: detail.into(),
            field: None,
            answered: None,
        }
    }

    /// A failure after the receiver saw the request, or may have seen it.
    pub fn reached(class: FailureClass, status: Option<u16>, detail: impl Into<String>) -> Self {
        Self { reached: true, status, ..Self::unreached(class, detail) }
    }

    /// Names the agent's setting that causes the failure, by its JSON pointer.
    #[must_use]
    pub fn at(self, field: &'static str) -> Self {
        Self { field: Some(field), ..self }
    }

    /// The outcome of an attempt whose earlier request the transport's server may have taken: whatever its repeat came to, the
    /// receiver may have the message.
    #[must_use]
    pub fn after_unknown(outcome: AttemptOutcome) -> AttemptOutcome {
        match outcome {
            AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure) => {
                AttemptOutcome::Away(Self { reached: true, ..failure })
            }
            AttemptOutcome::Busy { .. } => AttemptOutcome::Away(Self::reached(
                FailureClass::Status,
                None,
                "the server limits requests, after one whose outcome is unknown",
            )),
            other => other,
        }
    }

    /// Quotes the server's answer.
    #[must_use]
    pub fn answered(self, answer: &str) -> Self {
        Self { answered: Some(answer.chars().take(ANSWERED_MAX_CHARS).collect()), ..self }
    }
}

/// Whether the outcome for this status depends on the answer's body. If not, an attempt skips reading it.
pub fn body_matters(status: u16) -> bool {
    matches!(status, 200..=299 | 409 | 422)
}

/// Maps an answer to its outcome.
///
/// `retry_after` is the header value as received, `now_s` the time in Unix seconds against which a `Retry-After` date
/// is measured.
pub fn classify(status: u16, retry_after: Option<&str>, body: &[u8], now_s: i64) -> AttemptOutcome {
    let failed = |class, detail: String| {
        AttemptOutcome::Failed(AttemptFailure::reached(class, Some(status), detail))
    };
    match status {
        200..=299 => match (read_verdict(body), status) {
            (Ok(AnswerVerdict::Accepted(fields)), _) => AttemptOutcome::Accepted(fields),
            (Ok(AnswerVerdict::Rejected { reason, fields }), _) => {
                AttemptOutcome::Rejected { reason, fields }
            }
            (_, 202) => AttemptOutcome::Received,
            (Err(VerdictError::Empty), 200 | 204) => {
                AttemptOutcome::Accepted(AnswerFields::default())
            }
            (Err(why), _) => failed(FailureClass::Protocol, format!("{status}, but {why}")),
        },
        300..=399 => {
            failed(FailureClass::Redirect, format!("answered {status}; redirects are not followed"))
        }
        409 | 422 => match read_verdict(body) {
            Ok(AnswerVerdict::Rejected { reason, fields }) => {
                AttemptOutcome::Rejected { reason, fields }
            }
            Ok(AnswerVerdict::Accepted(_)) => failed(
                FailureClass::Status,
                format!("answered {status}, yet the body says accepted"),
            ),
            Err(why) => failed(FailureClass::Status, format!("answered {status}, and {why}")),
        },
        410 => AttemptOutcome::Gone,
        429 | 503 => AttemptOutcome::Busy {
            retry_after: retry_after.and_then(|value| parse_retry_after(value, now_s)),
            reached: true,
        },
        _ => failed(FailureClass::Status, format!("answered {status}")),
    }
}

/// Reads `Retry-After` (RFC 9110, 10.2.3): seconds or an HTTP date, clamped to [`RETRY_AFTER_MAX`]. A date in the past
/// is zero; a malformed value is ignored.
pub fn parse_retry_after(value: &str, now_s: i64) -> Option<Duration> {
    let value = value.trim();
    let wish = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Too many digits for a number is still a long time.
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(value).ok()?;
        let date_s = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
        Duration::from_secs(date_s.saturating_sub(u64::try_from(now_s).unwrap_or(0)))
    };
    Some(wish.min(RETRY_AFTER_MAX))
}

enum AnswerVerdict {
    Accepted(AnswerFields),
    Rejected { reason: Option<String>, fields: AnswerFields },
}

#[derive(Debug, thiserror::Error)]
enum VerdictError {
    #[error("the body is empty")]
    Empty,
    #[error("the body is not a JSON object")]
    NotJson,
    #[error("the body has two verdicts (`status` or `accepted` is stated twice)")]
    Ambiguous,
    #[error("the body contains no verdict (`status` ACCEPTED or REJECTED, or boolean `accepted`)")]
    Silent,
}

/// `accepted` decides if present: seed 001's answers carry a `status` of their own beside it, which is `PENDING` for an
/// acceptance. Without `accepted`, `status` is the verdict. Unreadable members beside them do not undo it.
fn read_verdict(body: &[u8]) -> Result<AnswerVerdict, VerdictError> {
    if body.trim_ascii().is_empty() {
        return Err(VerdictError::Empty);
    }
    let answer = Lenient::read(body).ok_or(VerdictError::NotJson)?;
    if VERDICT_MEMBERS.iter().any(|name| answer.repeats(name)) {
        return Err(VerdictError::Ambiguous);
    }
    let Lenient { mut members, unreadable, .. } = answer;
    let said = VERDICT_MEMBERS.map(|name| members.get(name).filter(|value| !value.is_null()));
    let accepted = match said {
        [Some(Value::Bool(flag)), _] => *flag,
        [None, Some(Value::String(word))] if word.eq_ignore_ascii_case("ACCEPTED") => true,
        [None, Some(Value::String(word))] if word.eq_ignore_ascii_case("REJECTED") => false,
        _ => return Err(VerdictError::Silent),
    };
    let mut take = |name: &str| members.remove(name).filter(|value| !value.is_null());
    let (details, metadata) = (take("details"), take("metadata"));
    if accepted {
        let unreadable = unreadable.within(&["details", "metadata"]).note();
        return Ok(AnswerVerdict::Accepted(AnswerFields { details, metadata, unreadable }));
    }
    let unreadable =
        unreadable.within(&["details", "metadata", "reason", "rejection_reason"]).note();
    let fields = AnswerFields { details, metadata, unreadable };
    let reason = take("reason").or_else(|| take("rejection_reason")).map(reason_text);
    let reason = reason.filter(|reason| !reason.is_empty());
    Ok(AnswerVerdict::Rejected { reason, fields })
}

/// The members of an answer that have its verdict. A repeated one is not a verdict: its values could differ.
const VERDICT_MEMBERS: [&str; 2] = ["accepted", "status"];

/// A reason that is not a string is stored as its JSON text.
fn reason_text(reason: Value) -> String {
    let text = match reason {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match text.char_indices().nth(REASON_MAX_CHARS) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
