//! Bodies, ids and pages, each with an error that says what is wrong.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::BytesMut;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Api;
use super::auth::identified;
use super::coding;
use super::fair::{Holder, Place, Pool};
use super::problem::{Problem, wrong};
pub(crate) use super::shape::typed;
use handoffd_broker::intake::Body;
use handoffd_domain::content_coding::{Coding, Undecoded};
use handoffd_domain::failure::Code;
use handoffd_domain::ids::Micros;
use handoffd_domain::json;
use handoffd_domain::lenient::{Lenient, UnreadableParts};
use handoffd_domain::trace_context::TraceContext;
use handoffd_gate::with_nul;
use handoffd_store::store::Cursor;

/// The body's bytes: `application/json`, within the size limit, sent in time. A large one is read
/// when its turn comes, and keeps its share of the budget for as long as this lives.
pub struct JsonBytes {
    pub bytes: Bytes,
    share: Option<Arc<Place>>,
}

impl JsonBytes {
    /// For work that may outlive the request.
    #[must_use]
    pub fn into_body(self) -> Body {
        let guard = self.share.map(|share| share as Arc<dyn std::any::Any + Send + Sync>);
        Body { bytes: self.bytes, guard }
    }
}

/// Bodies up to this size need no share.
const SMALL: usize = 64 * 1024;

impl FromRequest<Api> for JsonBytes {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "send the body with `Content-Type: application/json`",
            ));
        }
        let (bytes, share) = read(request, api).await?;
        Ok(Self { bytes, share: share.map(Arc::new) })
    }
}

/// No body: an operation that takes none refuses what it would ignore. `{}` and `null` say nothing, and pass.
pub struct NoBody;

impl FromRequest<Api> for NoBody {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let (bytes, _share) = read(request, api).await?;
        match bytes.trim_ascii() {
            b"" | b"{}" | b"null" => Ok(Self),
            _ => Err(Problem::invalid("this operation takes no body")),
        }
    }
}

/// A body of one JSON document, or of one a line (`application/x-ndjson`).
pub struct JsonOrLines {
    bytes: Bytes,
    /// Whether it has a document a line.
    pub lines: bool,
    _share: Option<Place>,
}

impl JsonOrLines {
    /// The documents, in order; empty lines are left out.
    #[must_use]
    pub fn documents(&self) -> Vec<Bytes> {
        if !self.lines {
            return vec![self.bytes.clone()];
        }
        let lines = self.bytes.split(|byte| *byte == b'\n');
        let filled = lines.filter(|line| !line.trim_ascii().is_empty());
        filled.map(|line| self.bytes.slice_ref(line)).collect()
    }
}

impl FromRequest<Api> for JsonOrLines {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        let lines = ["application/x-ndjson", "application/ndjson", "application/jsonl"]
            .iter()
            .any(|one| kind.eq_ignore_ascii_case(one));
        if !lines && !is_json(request.headers()) {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "send a chunk as `application/json`, or a line for each as `application/x-ndjson`",
            ));
        }
        let (bytes, share) = read(request, api).await?;
        Ok(Self { bytes, lines, _share: share })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(|kind| kind.trim().to_ascii_lowercase())
        .is_some_and(|kind| {
            kind == "application/json"
                || (kind.starts_with("application/") && kind.ends_with("+json"))
        })
}

/// Reads a body to its end, decoded, within the size limit and the time for it.
pub(super) async fn read(request: Request, api: &Api) -> Result<(Bytes, Option<Place>), Problem> {
    let limit = api.config.server.max_body_bytes;
    let too_large =
        || Problem::new(Code::PayloadTooLarge, format!("a body may have {limit} bytes at most"));
    let coding = coding::of_request(request.headers())?;
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let patience = Duration::from_millis(api.config.server.body_timeout_ms);
    // A coded body says nothing of its size.
    let size = declared.filter(|_| coding.is_none());
    let room = Room {
        pool: &api.pools.large_bodies,
        who: api.pools.holder(identified(request.extensions())),
        limit,
        patience: patience / 3,
    };
    let reading = room.collect(request.into_body(), size);
    let Ok(read) = tokio::time::timeout(patience, reading).await else {
        return Err(Problem {
            status: StatusCode::REQUEST_TIMEOUT,
            ..Problem::invalid("the body took too long to arrive")
        });
    };
    let read = match (read, coding) {
        (Ok((bytes, share)), Some(coding)) if !bytes.is_empty() => {
            room.decode(coding, bytes, share).await
        }
        (read, _) => read,
    };
    read.map_err(|unread| match unread {
        BodyError::TooLarge => too_large(),
        BodyError::Broken => Problem::invalid("the body could not be read to its end"),
        BodyError::NotCoded => Problem::invalid("the body is not what its Content-Encoding says"),
        BodyError::Stalled => Problem {
            status: StatusCode::REQUEST_TIMEOUT,
            ..Problem::invalid(
                "the body stalled, and lost its place to others: send it at a stretch",
            )
        },
        BodyError::NoRoom(refused) => *refused,
    })
}

/// The limits and the owner of a body that is read.
struct Room<'a> {
    pool: &'a Arc<Pool>,
    who: Holder,
    /// The largest body, in bytes.
    limit: usize,
    /// For how long a body waits for its place.
    patience: Duration,
}

/// How long a body that has a place may send less than [`SMALL`]: then another gets the place.
const STALL: Duration = Duration::from_secs(5);

/// Reasons for which a body is not read.
enum BodyError {
    TooLarge,
    Broken,
    NotCoded,
    /// It has a place, and does not come.
    Stalled,
    /// By the pool: 503 or 429.
    NoRoom(Box<Problem>),
}

impl Room<'_> {
    /// Decodes a body. A large body needs a share of the budget, and a thread of its own.
    async fn decode(
        &self,
        coding: Coding,
        bytes: Bytes,
        share_before: Option<Place>,
    ) -> Result<(Bytes, Option<Place>), BodyError> {
        let limit = self.limit;
        match coding.decode(&bytes, SMALL.min(limit)) {
            Ok(decoded) => return Ok((decoded.into(), None)),
            Err(Undecoded::Malformed) => return Err(BodyError::NotCoded),
            Err(Undecoded::TooLarge) => {}
        }
        let taken = match share_before {
            Some(taken) => taken,
            None => self.share(limit).await?,
        };
        let decoding = tokio::task::spawn_blocking(move || (coding.decode(&bytes, limit), taken));
        match decoding.await {
            Ok((Ok(decoded), taken)) => Ok((decoded.into(), Some(taken))),
            Ok((Err(Undecoded::TooLarge), _)) => Err(BodyError::TooLarge),
            Ok((Err(Undecoded::Malformed), _)) => Err(BodyError::NotCoded),
            Err(_) => Err(BodyError::Broken),
        }
    }

    /// Collects a body. It takes its share of the budget once more than a small body has arrived, so that a client that
    /// only announces a large body delays no other client, and loses its share if too little follows.
    async fn collect(
        &self,
        body: axum::body::Body,
        declared: Option<usize>,
    ) -> Result<(Bytes, Option<Place>), BodyError> {
        let mut chunks = body.into_data_stream();
        let mut read = BytesMut::new();
        let mut taken: Option<Place> = None;
        // Since it has its place: when it was last far enough, and how far it was.
        let mut pace: Option<(tokio::time::Instant, usize)> = None;
        loop {
            let next = match pace {
                None => chunks.next().await,
                Some((since, _)) => tokio::time::timeout_at(since + STALL, chunks.next())
                    .await
                    .map_err(|_| BodyError::Stalled)?,
            };
            let Some(chunk) = next else { break };
            let chunk = chunk.map_err(|_| BodyError::Broken)?;
            if read.len() + chunk.len() > self.limit {
                return Err(BodyError::TooLarge);
            }
            if taken.is_none() && read.len() + chunk.len() > SMALL {
                taken = Some(self.share(declared.unwrap_or(self.limit)).await?);
                pace = Some((tokio::time::Instant::now(), read.len()));
            }
            read.extend_from_slice(&chunk);
            if let Some((since, length)) = &mut pace
                && read.len() - *length >= SMALL
            {
                (*since, *length) = (tokio::time::Instant::now(), read.len());
            }
        }
        Ok((read.freeze(), taken))
    }

    async fn share(&self, length: usize) -> Result<Place, BodyError> {
        let kib = length.div_ceil(1024).min(self.pool.size());
        let place = self.pool.wait_for(self.who, kib, self.patience).await;
        place.map_err(|refused| BodyError::NoRoom(Box::new(refused)))
    }
}

/// A body as strict JSON of a type. An empty body counts as `{}`.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let value = json_body(request, api).await?;
        match with_nul(&value) {
            nuls if nuls.is_empty() => typed(value).map(Self),
            nuls => Err(Problem::refusal(nuls, false)),
        }
    }
}

/// As [`Json`], with a document in which a text may have U+0000: a pattern of a JSON Schema names the characters that it
/// refuses.
pub struct SchemaJson<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for SchemaJson<T> {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        typed(json_body(request, api).await?).map(Self)
    }
}

/// The value of a JSON body; an empty body is an empty object.
async fn json_body(request: Request, api: &Api) -> Result<Value, Problem> {
    let json = is_json(request.headers());
    let (bytes, _share) = read(request, api).await?;
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    if !json {
        return Err(Problem::new(
            Code::UnsupportedMediaType,
            "send the body with `Content-Type: application/json`",
        ));
    }
    parse(bytes).await
}

/// A receiver's words with its verdict: a JSON object, read leniently, since the verdict is part of the request's path.
pub struct Said {
    pub members: serde_json::Map<String, Value>,
    /// The parts of it that could not be kept as they came.
    pub unreadable: UnreadableParts,
}

impl FromRequest<Api> for Said {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let json = is_json(request.headers());
        // A door has read the body before, and says what it could not keep.
        let before = request.extensions().get::<UnreadableParts>().cloned();
        let (bytes, _share) = read(request, api).await?;
        if bytes.is_empty() {
            return Ok(Self {
                members: serde_json::Map::new(),
                unreadable: before.unwrap_or_default(),
            });
        }
        if !json {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "send the body with `Content-Type: application/json`",
            ));
        }
        let whole = bytes.clone();
        let said = heavy(whole.len(), move || {
            Lenient::read(&whole).map(|read| {
                let twice = read.repeats(FENCING_TOKEN);
                (Self { members: read.members, unreadable: read.unreadable }, twice)
            })
        });
        match said.await? {
            Some((_, true)) => Err(wrong(
                "/fencingToken",
                "differs from another fencing token in this request, or is stated twice",
            )),
            Some((said, false)) => match before {
                Some(unreadable) => Ok(Self { unreadable, ..said }),
                None => Ok(said),
            },
            // The strict reader says where it is broken.
            None => match parse(bytes).await? {
                Value::Object(members) => {
                    Ok(Self { members, unreadable: UnreadableParts::default() })
                }
                _ => Err(Problem::invalid("the body must be a JSON object")),
            },
        }
    }
}

/// The member of a verdict that has to be clear.
const FENCING_TOKEN: &str = "fencingToken";

/// A body as text: JSON or YAML.
pub struct Text(pub String);

impl FromRequest<Api> for Text {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        const YAML: [&str; 4] =
            ["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"];
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !is_json(request.headers()) && !YAML.iter().any(|yaml| kind.eq_ignore_ascii_case(yaml)) {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "send the body with `Content-Type: application/json` or `application/yaml`",
            ));
        }
        let (bytes, _share) = read(request, api).await?;
        String::from_utf8(bytes.to_vec())
            .map(Self)
            .map_err(|_| Problem::invalid("the body is not UTF-8"))
    }
}

/// Work on a large body goes to a thread of its own, so that it does not hold up what is small.
pub(crate) async fn heavy<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    if size <= SMALL {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        Problem::new(Code::Internal, "the broker failed; the request id tells the operator more")
    })
}

/// Strict JSON, as for messages.
pub(crate) async fn parse(bytes: Bytes) -> Result<Value, Problem> {
    heavy(bytes.len(), move || json::parse(&bytes)).await?.map_err(|fault| {
        if fault.is_malformed() {
            Problem::malformed(fault.into_failure())
        } else {
            Problem::refusal(vec![fault.into_failure()], false)
        }
    })
}

/// One path segment as an id: what cannot be one names nothing.
pub struct Id<T>(pub T);

impl<T: FromStr> FromRequestParts<Api> for Id<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, api)
            .await
            .map_err(|_| Problem::not_found("resource"))?;
        if text.contains('\0') {
            // No id has a NUL, and Postgres takes none in a text.
            return Err(Problem::not_found("resource"));
        }
        text.parse().map(Self).map_err(|_| Problem::not_found("resource"))
    }
}

/// Two path segments as ids.
pub struct Ids<A, B>(pub A, pub B);

impl<A: FromStr, B: FromStr> FromRequestParts<Api> for Ids<A, B> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let Path((first, second)) = Path::<(String, String)>::from_request_parts(parts, api)
            .await
            .map_err(|_| Problem::not_found("resource"))?;
        if first.contains('\0') || second.contains('\0') {
            return Err(Problem::not_found("resource"));
        }
        match (first.parse(), second.parse()) {
            (Ok(first), Ok(second)) => Ok(Self(first, second)),
            _ => Err(Problem::not_found("resource")),
        }
    }
}

/// A query string as a type; unknown parameters are errors.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Api> for Params<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        Query::<T>::from_request_parts(parts, api)
            .await
            .map(|Query(params)| Self(params))
            .map_err(|err| Problem::invalid(err.body_text()))
    }
}

/// The largest page.
pub const MAX_PAGE: i64 = 500;
const DEFAULT_PAGE: i64 = 50;

/// `limit` as asked, within bounds.
pub(crate) fn page_size(limit: Option<i64>) -> Result<i64, Problem> {
    match limit {
        None => Ok(DEFAULT_PAGE),
        Some(limit) if (1..=MAX_PAGE).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::invalid(format!("limit must be between 1 and {MAX_PAGE}"))),
    }
}

/// A cursor as text: the name of its list, and a row's time and id, in base64url.
#[must_use]
pub fn write_cursor(list: &str, cursor: &Cursor) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{}:{}", cursor.0.0, cursor.1))
}

/// Reads back a cursor that this broker gave out for this list, of rows of which `newest` finds the newest.
///
/// # Errors
/// No cursor, one of another list, or one ahead of every row.
pub(crate) async fn read_cursor(
    api: &Api,
    list: &str,
    text: Option<&str>,
    newest: impl AsyncFnOnce() -> Result<Option<Cursor>, Problem>,
) -> Result<Option<Cursor>, Problem> {
    let cursor = text.map(|text| parse_cursor(list, text)).transpose()?;
    // Rows carry the broker's time: only a cursor of another time has to be held against them.
    if let Some(cursor) = cursor.as_ref().filter(|cursor| cursor.0 > api.now()) {
        let newest = newest().await?;
        if newest.as_ref().is_none_or(|newest| cursor > newest) {
            let head = newest.map(|newest| write_cursor(list, &newest)).unwrap_or_default();
            return Err(Problem::ahead("cursor", head));
        }
    }
    Ok(cursor)
}

/// Versions up to 0.3.0 gave out cursors without the name of a list. They are taken for any list.
fn parse_cursor(list: &str, text: &str) -> Result<Cursor, Problem> {
    let plain = plain_cursor(text)?;
    let (place, id) = plain.rsplit_once(':').ok_or_else(bad_cursor)?;
    let at = of_list(list, place)?;
    let id: uuid::Uuid = id.parse().map_err(|_| bad_cursor())?;
    Ok((Micros(at.parse().map_err(|_| bad_cursor())?), id.to_string()))
}

/// A row's id as a cursor of a list.
pub(crate) fn write_id(list: &str, id: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{id}"))
}

/// The id in a cursor of a list.
pub(crate) fn read_id<T: FromStr>(list: &str, cursor: &str) -> Result<T, Problem> {
    let plain = plain_cursor(cursor)?;
    of_list(list, &plain)?.parse().map_err(|_| bad_cursor())
}

/// The text in a cursor's base64url.
pub(crate) fn plain_cursor(text: &str) -> Result<String, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad_cursor())?;
    String::from_utf8(bytes).map_err(|_| bad_cursor())
}

/// The place in the text of a cursor: all after its list's name, or all where it names none.
pub(crate) fn of_list<'a>(list: &str, plain: &'a str) -> Result<&'a str, Problem> {
    match plain.split_once(':') {
        Some((name, place)) if name == list => Ok(place),
        Some((name, _)) if name.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            Err(Problem::invalid(format!("cursor is one of {name}, and this list is {list}")))
        }
        _ => Ok(plain),
    }
}

pub(crate) fn bad_cursor() -> Problem {
    Problem::invalid("cursor is not one that this broker gave out")
}

/// A query parameter as an id or a status.
pub(crate) fn parameter<T: FromStr>(name: &str, text: Option<&str>) -> Result<Option<T>, Problem> {
    text.map(|text| text.parse().map_err(|_| Problem::invalid(format!("{name} is malformed"))))
        .transpose()
}

/// A query parameter as a time.
pub(crate) fn time_parameter(name: &str, text: Option<&str>) -> Result<Option<Micros>, Problem> {
    let why = || Problem::invalid(format!("{name} must be a time such as 2026-11-21T06:18:41Z"));
    text.map(|text| Micros::parse_rfc3339(text).ok_or_else(why)).transpose()
}

/// The value of a preference in `Prefer` (RFC 7240), without its quotes, empty where it has none; the first counts.
///
/// # Errors
/// A header that is not visible ASCII.
pub(crate) fn preference<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a str>, Problem> {
    for value in headers.get_all("prefer") {
        let text = value.to_str().map_err(|_| Problem::invalid("Prefer is malformed"))?;
        let mut quoted = false;
        let mut parts = text.split(|c| {
            quoted ^= c == '"';
            !quoted && matches!(c, ',' | ';')
        });
        let pairs = &mut parts.by_ref().map(|one| one.split_once('=').unwrap_or((one, "")));
        if let Some((_, value)) = pairs.find(|(own, _)| own.trim().eq_ignore_ascii_case(name)) {
            return Ok(Some(value.trim().trim_matches('"')));
        }
    }
    Ok(None)
}

/// The time of `Prefer: wait=N`, 60 seconds at most.
///
/// # Errors
/// A time that is not in whole seconds.
pub(crate) fn preferred_wait(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let Some(seconds) = preference(headers, "wait")? else { return Ok(None) };
    let seconds: u64 =
        seconds.parse().map_err(|_| Problem::invalid("Prefer: wait takes whole seconds"))?;
    Ok(Some(Duration::from_secs(seconds.min(60))))
}

/// `Idempotency-Key`, bare or quoted.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::invalid("one Idempotency-Key a request: this one has several"));
    }
    let text = value.to_str().unwrap_or_default().trim();
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    if bare.is_empty() || bare.len() > 255 || bare.contains('"') {
        return Err(Problem::invalid(
            "Idempotency-Key must be 1 to 255 visible ASCII characters, bare or in double quotes",
        ));
    }
    Ok(Some(bare.to_owned()))
}

/// A request's own trace context, from its headers `traceparent` and `tracestate`; what cannot be read
/// counts as absent.
#[must_use]
pub fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let texts = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"));
    TraceContext::of_headers(texts("traceparent"), texts("tracestate"))
}
