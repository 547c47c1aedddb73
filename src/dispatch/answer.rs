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

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptOutcome {
    /// The receiver took the handoff.
    Accepted {
        /// The answer's `details`, if any.
        details: Option<Value>,
    },
    /// The receiver refused the handoff.
    Rejected {
        /// The answer's `reason` or `rejection_reason`, at most [`REASON_MAX_CHARS`] long.
        reason: Option<String>,
        /// The answer's `details`, if any.
        details: Option<Value>,
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
            (Ok(Verdict::Accepted { details }), _) => AttemptOutcome::Accepted { details },
            (Ok(Verdict::Rejected { reason, details }), _) => {
                AttemptOutcome::Rejected { reason, details }
            }
            (_, 202) => AttemptOutcome::Received,
            (Err(NoVerdict::Empty), 200 | 204) => AttemptOutcome::Accepted { details: None },
            (Err(why), _) => failed(FailureClass::Protocol, format!("{status}, but {why}")),
        },
        300..=399 => {
            failed(FailureClass::Redirect, format!("answered {status}; redirects are not followed"))
        }
        409 | 422 => match read_verdict(body) {
            Ok(Verdict::Rejected { reason, details }) => {
                AttemptOutcome::Rejected { reason, details }
            }
            Ok(Verdict::Accepted { .. }) => failed(
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
    Accepted { details: Option<Value> },
    Rejected { reason: Option<String>, details: Option<Value> },
}

#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error("there is no body")]
    Empty,
    #[error("the body is no JSON object, or names a field twice")]
    NotJson,
    #[error("the body holds no verdict (`status` ACCEPTED or REJECTED, or boolean `accepted`)")]
    Silent,
    #[error("the body contradicts itself: `status` and `accepted` disagree")]
    Contradiction,
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
}

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
    let by_status = match &answer.status {
        Some(Value::String(word)) if word.eq_ignore_ascii_case("ACCEPTED") => Some(true),
        Some(Value::String(word)) if word.eq_ignore_ascii_case("REJECTED") => Some(false),
        Some(_) => return Err(NoVerdict::Silent),
        None => None,
    };
    let by_flag = match &answer.accepted {
        Some(Value::Bool(flag)) => Some(*flag),
        Some(_) => return Err(NoVerdict::Silent),
        None => None,
    };
    match (by_status, by_flag) {
        (Some(word), Some(flag)) if word != flag => Err(NoVerdict::Contradiction),
        (None, None) => Err(NoVerdict::Silent),
        (Some(true), _) | (_, Some(true)) => Ok(Verdict::Accepted { details: answer.details }),
        _ => Ok(Verdict::Rejected {
            reason: answer.reason.or(answer.rejection_reason).map(reason_text),
            details: answer.details,
        }),
    }
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
