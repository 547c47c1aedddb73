//! One attempt at delivery by webhook: sign, POST, read the answer, classify it.
//!
//! The request follows Standard Webhooks 1.0.1 and the product specification, section 3. Every end of an attempt is an
//! [`AttemptOutcome`]; no behaviour of a receiver causes an error or a panic here.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER,
};
use reqwest::{Method, Response};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::attempt_row::ANSWER_BYTES;
use super::conventions;
use crate::egress::GuardedClient;
use crate::egress::exchange::{codings, denied, failure_of, read_body};
use crate::transport::answer::{body_matters, classify, parse_retry_after};
use crate::transport::standard_webhooks::{
    HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP, WebhookSecret, signature,
};
use crate::transport::{
    AttemptFailure, AttemptOutcome, Encoded, FailureClass, RawAnswer, VerdictClock,
};
use handoffd_store::fault::{self, Step};

/// Longest wait for the beginning of a body that decides nothing.
const BEGINNING_WAIT: Duration = Duration::from_secs(1);

/// Sends webhooks through the guarded client. Clones share connections.
#[derive(Debug, Clone)]
pub struct WebhookClient {
    client: GuardedClient,
}

/// One attempt, ready to be signed and sent.
pub struct WebhookRequest {
    /// The URL as the receiver registered it; the egress guard checks it at each attempt.
    pub url: String,
    /// The JSON document, byte for byte as signed; sent unless `encoded` is set.
    pub body: Bytes,
    /// The same document in a content coding that the receiver accepts; sent instead of `body`. The signature still
    /// covers `body`, because HTTP servers decode before an application sees a byte.
    pub encoded: Option<Encoded>,
    /// `webhook-id`: the same for every attempt at this delivery, so that receivers can drop repeats.
    pub id: String,
    /// `webhook-timestamp`: the time of this attempt in Unix seconds.
    pub timestamp_s: i64,
    /// Signing secrets, at least one; two during a rotation.
    pub secrets: Vec<WebhookSecret>,
    pub headers: HandoffHeaders,
    /// Bounds the whole attempt, from resolution to the last byte of the answer.
    pub timeout: Duration,
    /// The remaining time for the verdict; it can end an attempt before `timeout` does.
    pub verdict: VerdictClock,
}

/// Headers besides those of Standard Webhooks; each is sent if set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandoffHeaders {
    /// `traceparent`, W3C Trace Context.
    pub traceparent: Option<String>,
    /// `tracestate`, W3C Trace Context.
    pub tracestate: Option<String>,
    pub handoff_id: Option<String>,
    pub task_id: Option<String>,
    /// `Handoff-Attempt`, from 1.
    pub attempt: Option<u32>,
    /// `Handoff-Fencing-Token`, which verdict callbacks carry back.
    pub fencing_token: Option<i64>,
    /// `Handoff-Chunk`: the number of a chunk in its stream, from 1.
    pub chunk: Option<i64>,
    /// `Handoff-Test`: the request is a test, and no handoff.
    pub test: bool,
    /// `Authorization`, as the subscriber gave it.
    pub authorization: Option<String>,
    /// `X-A2A-Notification-Token`, as the subscriber gave it.
    pub notification_token: Option<String>,
}

/// The outcome of a request that asks for no verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Answered {
        /// HTTP status of the answer.
        status: u16,
        /// The answer's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// No answer came.
    Failed(AttemptFailure),
}

/// Duration of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From the start of signing to the outcome.
    pub elapsed: Duration,
    /// From the start of signing to the first byte of the body that left; `None` where none left.
    pub sent: Option<Duration>,
    /// Whether the deadline of the verdict ended the attempt.
    pub overdue: bool,
}

impl fmt::Debug for WebhookRequest {
    /// Omits the body and the URL's path and query: content and capability URLs stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookRequest")
            .field("id", &self.id)
            .field("timestamp_s", &self.timestamp_s)
            .field("body_bytes", &self.body.len())
            .field("headers", &self.headers)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Sends an attempt to its receiver: over the network, or over a test's replacement.
#[async_trait]
pub trait Post: Send + Sync {
    /// Makes one attempt. Dropping the future abandons the attempt, which the receiver may have seen.
    async fn send(&self, request: WebhookRequest) -> Posted;
}

/// An attempt that was made.
#[derive(Debug, Clone)]
pub struct Posted {
    pub outcome: AttemptOutcome,
    pub timing: Timing,
    /// The receiver's answer, where one came.
    pub answer: Option<RawAnswer>,
}

#[async_trait]
impl Post for WebhookClient {
    async fn send(&self, request: WebhookRequest) -> Posted {
        let started = Instant::now();
        let first_byte = Arc::new(FirstByteSent::default());
        let limit = AttemptLimit::new(&request, started, Arc::clone(&first_byte));
        let mut overdue = false;
        let (outcome, answer) = match self.attempt(request, started, &limit, &mut overdue).await {
            Ok((outcome, answer)) => (outcome, Some(answer)),
            Err(failure) => {
                conventions::broke(&failure);
                (AttemptOutcome::Failed(failure), None)
            }
        };
        let sent = first_byte.left.get().map(|left| left.duration_since(started));
        let timing = Timing { elapsed: started.elapsed(), sent, overdue };
        Posted { outcome, timing, answer }
    }
}

impl WebhookClient {
    /// A client that sends under the policy of `client`.
    pub fn new(client: GuardedClient) -> Self {
        Self { client }
    }

    /// Posts a document that asks for no verdict: only the answer's status counts, and its body is not read.
    pub async fn notify(
        &self,
        request: WebhookRequest,
        content_type: &'static str,
    ) -> (Notice, Duration) {
        let started = Instant::now();
        let notice = match self.post(request, content_type, started).await {
            Ok(notice) => notice,
            Err(failure) => Notice::Failed(failure),
        };
        (notice, started.elapsed())
    }

    async fn post(
        &self,
        request: WebhookRequest,
        content_type: &'static str,
        started: Instant,
    ) -> Result<Notice, AttemptFailure> {
        let mut headers = signed_headers(&request)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        let sending = self
            .client
            .request(Method::POST, &request.url)
            .map_err(denied)?
            .headers(headers)
            .body(request.encoded.map_or(request.body, |encoded| encoded.bytes))
            .send();
        let Ok(result) = timeout_at(started + request.timeout, sending).await else {
            let why = "no answer in time";
            return Err(AttemptFailure::reached(FailureClass::Timeout, None, why));
        };
        let response = result.map_err(|error| failure_of(&error))?;
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| parse_retry_after(value.to_str().ok()?, request.timestamp_s));
        Ok(Notice::Answered { status: response.status().as_u16(), retry_after })
    }

    async fn attempt(
        &self,
        request: WebhookRequest,
        started: Instant,
        limit: &AttemptLimit,
        overdue: &mut bool,
    ) -> Result<(AttemptOutcome, RawAnswer), AttemptFailure> {
        let headers = signed_headers(&request)?;
        let sending = self
            .client
            .request(Method::POST, &request.url)
            .map_err(denied)?
            .headers(headers)
            .body(reqwest::Body::wrap(ObservedBody::new(
                request.encoded.map_or(request.body, |encoded| encoded.bytes),
                Arc::clone(&limit.first_byte),
            )))
            .send();
        let mut response = match limit.within(sending).await {
            Ok(result) => result.map_err(|error| failure_of(&error))?,
            Err(ended) => {
                *overdue = ended.by_verdict;
                return Err(AttemptFailure::reached(
                    FailureClass::Timeout,
                    None,
                    "no answer in time",
                ));
            }
        };
        fault::at(Step::SendAnswered);
        let status = response.status().as_u16();
        conventions::answered(status);
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = if body_matters(status) {
            match limit.within(read_body(response)).await {
                Ok(body) => body?,
                Err(ended) => {
                    *overdue = ended.by_verdict;
                    return Err(AttemptFailure::reached(
                        FailureClass::Timeout,
                        Some(status),
                        format!("answered {status}, but its body did not end in time"),
                    ));
                }
            }
        } else {
            let mut beginning = Vec::new();
            // The status decides, whatever comes of the body and however late.
            let reading = timeout(BEGINNING_WAIT, read_beginning(&mut response, &mut beginning));
            let _ = limit.within(reading).await;
            beginning
        };
        let now_s = request.timestamp_s.saturating_add_unsigned(started.elapsed().as_secs());
        let outcome = classify(status, retry_after.as_deref(), &body, now_s);
        Ok((outcome, RawAnswer { status, body }))
    }
}

/// Reads the first bytes of a body that decides nothing, for operators; none where it is in a content coding.
async fn read_beginning(response: &mut Response, into: &mut Vec<u8>) {
    if !codings(response.headers()).is_empty() {
        return;
    }
    while into.len() < ANSWER_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        let room = ANSWER_BYTES - into.len();
        into.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
}

/// The time at which the first byte of a request's body left, and the tasks that wait for it.
#[derive(Debug, Default)]
struct FirstByteSent {
    left: OnceLock<Instant>,
    arrived: Notify,
}

/// A request body that records its first poll: at that time the connection exists and the headers are written.
struct ObservedBody {
    rest: Option<Bytes>,
    first_byte: Arc<FirstByteSent>,
}

impl ObservedBody {
    fn new(body: Bytes, first_byte: Arc<FirstByteSent>) -> Self {
        Self { rest: (!body.is_empty()).then_some(body), first_byte }
    }
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.first_byte.left.set(Instant::now()).is_ok() {
            self.first_byte.arrived.notify_one();
        }
        Poll::Ready(self.rest.take().map(|all| Ok(Frame::data(all))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.as_ref().map_or(0, |rest| rest.len() as u64))
    }
}

/// The limits of an attempt: its timeout, and the deadline of the verdict.
struct AttemptLimit {
    attempt: Instant,
    verdict: VerdictClock,
    started: Instant,
    first_byte: Arc<FirstByteSent>,
}

/// An attempt that exceeded a limit.
struct LimitExceeded {
    by_verdict: bool,
}

impl AttemptLimit {
    fn new(request: &WebhookRequest, started: Instant, first_byte: Arc<FirstByteSent>) -> Self {
        Self { attempt: started + request.timeout, verdict: request.verdict, started, first_byte }
    }

    /// The deadline of the verdict, once its time runs.
    fn verdict(&self) -> Option<Instant> {
        match self.verdict {
            VerdictClock::Running(left) => Some(self.started + left),
            VerdictClock::FromFirstByte(all) => self.first_byte.left.get().map(|left| *left + all),
            VerdictClock::Stopped => None,
        }
    }

    async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, LimitExceeded> {
        let mut work = std::pin::pin!(work);
        loop {
            let verdict = self.verdict();
            let until = verdict.map_or(self.attempt, |verdict| verdict.min(self.attempt));
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = sleep_until(until) => {
                    return Err(LimitExceeded { by_verdict: verdict.is_some_and(|at| at <= until) });
                }
                () = self.first_byte.arrived.notified(), if verdict.is_none() => {}
            }
        }
    }
}

fn signed_headers(request: &WebhookRequest) -> Result<HeaderMap, AttemptFailure> {
    if request.secrets.is_empty() {
        return Err(AttemptFailure::unreached(
            FailureClass::Request,
            "the webhook has no secret to sign with",
        ));
    }
    let signature = signature(&request.secrets, &request.id, request.timestamp_s, &request.body);
    let values = named_headers(&request.id, request.timestamp_s, signature, &request.headers);
    let mut headers = HeaderMap::with_capacity(values.len() + 4);
    let json = HeaderValue::from_static("application/json");
    headers.insert(ACCEPT, json.clone());
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(CONTENT_TYPE, json);
    if let Some(encoded) = &request.encoded {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoded.coding.as_str()));
    }
    for (name, value) in values {
        let Some(value) = value else { continue };
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            AttemptFailure::unreached(
                FailureClass::Request,
                format!("the value for the header {name} is not legal in HTTP"),
            )
        })?;
        value.set_sensitive(matches!(name, "authorization" | "x-a2a-notification-token"));
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

/// The headers of a webhook by name, but those that HTTP itself needs.
pub(super) fn named_headers(
    id: &str,
    timestamp_s: i64,
    signature: String,
    more: &HandoffHeaders,
) -> [(&'static str, Option<String>); 13] {
    [
        (HEADER_ID, Some(id.to_owned())),
        (HEADER_TIMESTAMP, Some(timestamp_s.to_string())),
        (HEADER_SIGNATURE, Some(signature)),
        ("traceparent", more.traceparent.clone()),
        ("tracestate", more.tracestate.clone()),
        ("handoff-id", more.handoff_id.clone()),
        ("handoff-task-id", more.task_id.clone()),
        ("handoff-attempt", more.attempt.map(|n| n.to_string())),
        ("handoff-fencing-token", more.fencing_token.map(|token| token.to_string())),
        ("handoff-chunk", more.chunk.map(|seq| seq.to_string())),
        ("handoff-test", more.test.then(|| "true".to_owned())),
        ("authorization", more.authorization.clone()),
        ("x-a2a-notification-token", more.notification_token.clone()),
    ]
}

#[cfg(test)]
#[path = "webhook_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "webhook_tls_tests.rs"]
mod tls_tests;
