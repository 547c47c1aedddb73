//! What a receiver's answer means: the table of the product specification, section 3.
//!
//! Pure: status, `Retry-After` and body go in, an [`AttemptOutcome`] comes out. A delivery that
//! fails is an outcome, not an error. The rule behind the table: nothing counts as a verdict that
//! does not say so. An HTML page served with 200 by some proxy is a failed attempt.

use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::Value;

/// Longest pause that a receiver can ask for with `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// Longest rejection reason that is kept, in characters; the rest is cut off.
pub const REASON_MAX_CHARS: usize = 2_000;

/// What an answer says beside its verdict; kept with the verdict's record.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// The answer's `details`, if any.
    pub details: Option<Value>,
    /// The answer's `metadata`, if any (seed 001).
    pub metadata: Option<Value>,
}

impl Said {
    /// As the record's content has it; nothing where nothing was said.
    #[must_use]
    pub fn into_content(self) -> Option<serde_json::Map<String, Value>> {
        let named = [("details", self.details), ("metadata", self.metadata)];
        let said: serde_json::Map<_, _> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        (!said.is_empty()).then_some(said)
    }
}

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptOutcome {
    /// The receiver took the handoff.
    Accepted(Said),
    /// The receiver refused the handoff.
    Rejected {
        /// The answer's `reason` or `rejection_reason`, at most [`REASON_MAX_CHARS`] long.
        reason: Option<String>,
        /// What else it says.
        said: Said,
    },
    /// 202: received, the verdict follows by callback.
    Received,
    /// 429 or 503: alive, but not now.
    Busy {
        /// The receiver's `Retry-After`, at most [`RETRY_AFTER_MAX`].
        retry_after: Option<Duration>,
    },
    /// 410: the endpoint is gone for good.
    Gone,
    /// No usable answer.
    Failed(AttemptFailure),
}

/// Why an attempt brought no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptFailure {
    /// The kind of failure, for metrics and rules.
    pub class: FailureClass,
    /// `false` only where no byte of the request can have reached the receiver; only then may a
    /// handoff that is not idempotent be tried again.
    pub reached: bool,
    /// The HTTP status, where one came.
    pub status: Option<u16>,
    /// One sentence for people. Holds nothing of either body, no secret and no URL.
    pub detail: String,
}

/// Kinds of failed attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureClass {
    /// The request could not be built (illegal header value, no signing secret).
    Request,
    /// The egress guard refused the URL or every address behind the name.
    Egress,
    /// The name did not resolve.
    Dns,
    /// No connection: refused, reset or unreachable.
    Connect,
    /// The TLS handshake failed, or the certificate is not trusted.
    Tls,
    /// No connection, or no complete answer, in time.
    Timeout,
    /// A status outside the table.
    Status,
    /// A redirect, which is never followed.
    Redirect,
    /// The connection broke, or the answer says nothing that the table knows.
    Protocol,
    /// The answer is larger than is read.
    BodyTooLarge,
}

impl FailureClass {
    /// The word used for metric labels and records.
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
        }
    }
}

impl AttemptFailure {
    /// A failure before any byte of the request can have left for the receiver.
    pub fn unreached(class: FailureClass, detail: impl Into<String>) -> Self {
        Self { class, reached: false, status: None, detail: detail.into() }
    }

    /// A failure after, or perhaps after, the receiver saw the request.
    pub fn reached(class: FailureClass, status: Option<u16>, detail: impl Into<String>) -> Self {
        Self { class, reached: true, status, detail: detail.into() }
    }
}

/// Does the body matter for this status? If not, an attempt need not read it.
pub fn body_matters(status: u16) -> bool {
    matches!(status, 200..=299 | 409 | 422)
}

/// What the answer means.
///
/// `retry_after` is that header's value as received, `now_s` the time in Unix seconds against which
/// a `Retry-After` date is measured.
pub fn classify(status: u16, retry_after: Option<&str>, body: &[u8], now_s: i64) -> AttemptOutcome {
    let failed = |class, detail: String| {
        AttemptOutcome::Failed(AttemptFailure::reached(class, Some(status), detail))
    };
    match status {
        200..=299 => match (read_verdict(body), status) {
            (Ok(Verdict::Accepted(said)), _) => AttemptOutcome::Accepted(said),
            (Ok(Verdict::Rejected { reason, said }), _) => {
                AttemptOutcome::Rejected { reason, said }
            }
            (_, 202) => AttemptOutcome::Received,
            (Err(NoVerdict::Empty), 200 | 204) => AttemptOutcome::Accepted(Said::default()),
            (Err(why), _) => failed(FailureClass::Protocol, format!("{status}, but {why}")),
        },
        300..=399 => {
            failed(FailureClass::Redirect, format!("answered {status}; redirects are not followed"))
        }
        409 | 422 => match read_verdict(body) {
            Ok(Verdict::Rejected { reason, said }) => AttemptOutcome::Rejected { reason, said },
            Ok(Verdict::Accepted(_)) => failed(
                FailureClass::Status,
                format!("answered {status}, yet the body says accepted"),
            ),
            Err(why) => failed(FailureClass::Status, format!("answered {status}, and {why}")),
        },
        410 => AttemptOutcome::Gone,
        429 | 503 => AttemptOutcome::Busy {
            retry_after: retry_after.and_then(|value| parse_retry_after(value, now_s)),
        },
        _ => failed(FailureClass::Status, format!("answered {status}")),
    }
}

/// Reads `Retry-After` (RFC 9110, 10.2.3): seconds or an HTTP date, clamped to
/// [`RETRY_AFTER_MAX`]. A date in the past is zero; anything else that is malformed is no wish.
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

enum Verdict {
    Accepted(Said),
    Rejected { reason: Option<String>, said: Said },
}

#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error("there is no body")]
    Empty,
    #[error("the body is no JSON object, or names a field twice")]
    NotJson,
    #[error("the body holds no verdict (`status` ACCEPTED or REJECTED, or boolean `accepted`)")]
    Silent,
}

/// The fields of an answer that mean something. Others are let through; a repeated one of these is
/// an error, since it would say two things at once.
#[derive(Deserialize)]
struct AnswerBody {
    status: Option<Value>,
    accepted: Option<Value>,
    reason: Option<Value>,
    rejection_reason: Option<Value>,
    details: Option<Value>,
    metadata: Option<Value>,
}

/// `accepted` decides where it is there: seed 001's answers carry a `status` of their own beside it, which is
/// `PENDING` for an acceptance. Without it `status` is the verdict.
fn read_verdict(body: &[u8]) -> Result<Verdict, NoVerdict> {
    let body = body.trim_ascii();
    if body.is_empty() {
        return Err(NoVerdict::Empty);
    }
    // Derived structs can also be read from arrays, which is not meant here.
    if body[0] != b'{' {
        return Err(NoVerdict::NotJson);
    }
    let answer: AnswerBody = serde_json::from_slice(body).map_err(|_| NoVerdict::NotJson)?;
    let accepted = match (&answer.accepted, &answer.status) {
        (Some(Value::Bool(flag)), _) => *flag,
        (None, Some(Value::String(word))) if word.eq_ignore_ascii_case("ACCEPTED") => true,
        (None, Some(Value::String(word))) if word.eq_ignore_ascii_case("REJECTED") => false,
        _ => return Err(NoVerdict::Silent),
    };
    let said = Said { details: answer.details, metadata: answer.metadata };
    if accepted {
        return Ok(Verdict::Accepted(said));
    }
    let reason = answer.reason.or(answer.rejection_reason).map(reason_text);
    Ok(Verdict::Rejected { reason, said })
}

/// A reason that is not a string is kept as its JSON text rather than lost.
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
