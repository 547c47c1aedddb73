//! `/handoffs/{handoffId}/chunks`: a handoff in pieces, in and out (specification §10.5).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{AgentCaller, Caller};
use super::extract::{Id, JsonOrLines, Params, page_size};
use super::open;
use super::problem::{BadBody, Busy, ChunksTaken, Problem, WarningView};
use super::views::StreamView;
use handoffd_broker::archive::ContentState;
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::stream::append::{StoppedChunks, next_seq};
use handoffd_broker::reader::WordAccess;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::HandoffId;
use handoffd_domain::stream::StreamStatus;
use handoffd_evidence::commitment::hash_text;
use handoffd_store::store::HandoffKey;
use handoffd_store::store::streams::ChunkRow;

/// How often a wait looks for what other brokers may have committed.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Silence on a stream before a comment is sent, so that nothing on the way takes it for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Chunks read at once for Server-Sent Events.
const STREAM_PAGE: i64 = 64;

const ACCEL: header::HeaderName = header::HeaderName::from_static("x-accel-buffering");

/// A chunk of a handoff's message.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ChunkBody {
    /// Its number, from 1 without gaps.
    pub seq: i64,
    /// Items for arrays, and texts for texts, by the JSON pointer of the value to which they are added.
    #[schema(nullable = false)]
    pub append: Option<ChunkAppend>,
    /// Values by their JSON pointers.
    #[schema(nullable = false)]
    pub set: Option<ChunkSet>,
    /// The message is whole: the broker runs the whole gate over it.
    #[schema(nullable = false)]
    pub close: Option<bool>,
    /// There will be no message: the task goes back to the sender's checkpoint.
    #[schema(nullable = false)]
    pub abort: Option<bool>,
    /// Why it is aborted, in words.
    #[schema(nullable = false)]
    pub reason: Option<String>,
    /// The handoff; needed with a signature.
    #[schema(nullable = false)]
    pub handoff_id: Option<String>,
    /// As a message's: HMAC-SHA256 over the RFC 8785 form of the chunk without it.
    #[schema(nullable = false)]
    pub signature: Option<String>,
}

/// Items by the JSON pointer of the array or text that they are added to: free.
#[derive(ToSchema)]
pub struct ChunkAppend {}

/// Values by JSON pointer: free.
#[derive(ToSchema)]
pub struct ChunkSet {}

/// The answer to chunks.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChunksView {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// Chunks that this request added.
    pub taken: usize,
    /// Chunks that were there already, with the same content.
    pub replayed: usize,
    /// The number of the next chunk.
    pub expected_seq: i64,
    /// Status of the handoff after these chunks.
    #[schema(value_type = open::HandoffStatus)]
    pub status: String,
    /// Stream of the handoff after these chunks.
    pub stream: StreamView,
    /// The parts of the chunks that do not hold in full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningView>,
}

/// Add chunks to a handoff whose message comes in pieces: one as JSON, many as NDJSON, in order. The chunks before the first
/// refused one are kept.
#[utoipa::path(
    post, path = "/handoffs/{handoffId}/chunks", tag = "handoffs", operation_id = "appendChunks",
    params(("handoffId" = String, Path, description = "The handoff's UUID")),
    request_body(
        content(
            (ChunkBody = "application/json"),
            (ChunkBody = "application/x-ndjson"),
        ),
        description = "A chunk, or a line for each",
    ),
    responses(
        (status = 200, description = "The chunks are committed", body = ChunksView),
        (status = 401, description = "No valid key, or a wrong signature"),
        (status = 403, description = "Not the sender's key"),
        (status = 404, description = "No such handoff"),
        (status = 409, description = "Not the next number (`expectedSeq`), a number with another content, or the stream has ended"),
        BadBody,
        (status = 422, description = "The gate refuses a chunk, or the message that it closes"),
        Busy,
    )
)]
pub(super) async fn append(
    State(api): State<Api>,
    caller: AgentCaller,
    Id(id): Id<HandoffId>,
    body: JsonOrLines,
) -> Result<axum::Json<ChunksView>, Problem> {
    let appended = api
        .intake
        .append_chunks(&caller.principal, &api.contents, id, body.documents())
        .await
        .map_err(|stopped| at_line(*stopped, body.lines))?;
    let Some(handoff) = appended.handoff else {
        return Err(Problem::invalid("send a chunk, or a line for each"));
    };
    Ok(axum::Json(ChunksView {
        handoff_id: handoff.id.to_string(),
        taken: appended.taken,
        replayed: appended.replayed,
        expected_seq: next_seq(&handoff),
        status: handoff.status.as_str().to_owned(),
        stream: handoff.stream.as_ref().map(StreamView::from).unwrap_or_default(),
        warnings: appended.warnings.iter().map(WarningView::from).collect(),
    }))
}

/// The refusal of a chunk, with how far the request came.
fn at_line(stopped: StoppedChunks, lines: bool) -> Problem {
    let StoppedChunks { refusal, expected_seq, taken, place } = stopped;
    let line = lines.then_some(place + 1);
    let chunks = Some(Box::new(ChunksTaken { expected_seq, taken, line }));
    Problem { chunks, ..refusal.into() }
}

/// Which chunks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChunkParams {
    /// The first number; 1 unless said.
    #[param(minimum = 1)]
    from: Option<i64>,
    /// Seconds to wait for a chunk when there is none, up to 60.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
    /// Chunks a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// One number of a stream.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChunkView {
    /// Number of the chunk in its stream, from 1.
    pub seq: i64,
    /// When it was committed, RFC 3339.
    pub committed_at: String,
    /// `sha256:…`: the commitment in its record; absent of the broker's own end of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commitment: Option<String>,
    /// Items by the JSON pointer of the value to which they are added.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChunkAppend>)]
    pub append: Option<Value>,
    /// Values by JSON pointer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ChunkSet>)]
    pub set: Option<Value>,
    /// The message is whole: it passed the gate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub close: bool,
    /// There will be no message: stop.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub abort: bool,
    /// Why it was aborted: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its content was erased, or is past its time.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

impl ChunkView {
    fn of(row: &ChunkRow, content: Option<ContentState>) -> Self {
        let gone = matches!(&content, Some(state) if !matches!(state, ContentState::Whole(_)));
        let mut document: Value = match content {
            Some(ContentState::Whole(bytes)) => serde_json::from_slice(&bytes).unwrap_or_default(),
            _ => Value::Null,
        };
        let mut member = |name: &str| document.get_mut(name).map(Value::take);
        // A refused close ends the stream, and leaves the receiver's parts as they are.
        let aborted = row.ends == Some(StreamStatus::Aborted);
        Self {
            seq: row.seq,
            committed_at: row.created_at.rfc3339(),
            commitment: row.commitment.map(|hash| hash_text(&hash)),
            append: member("append").filter(|_| !aborted),
            set: member("set").filter(|_| !aborted),
            close: row.ends == Some(StreamStatus::Closed),
            abort: aborted,
            reason: row.reason.clone(),
            gone,
        }
    }

    const fn event(&self) -> &'static str {
        if self.close {
            "closed"
        } else if self.abort {
            "aborted"
        } else {
            "chunk"
        }
    }
}

/// A page of a stream.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChunkPage {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// The chunks, in order.
    pub items: Vec<ChunkView>,
    /// Give it as `from` to go on.
    pub next: i64,
    /// The stream as it is now.
    pub stream: StreamView,
}

/// Read the chunks of a handoff: a page as JSON, or, with `Accept: text/event-stream`, each as it comes as Server-Sent Events
/// (`chunk`, then `closed` or `aborted`, after which the stream ends).
#[utoipa::path(
    get, path = "/handoffs/{handoffId}/chunks", tag = "handoffs", operation_id = "listChunks",
    params(
        ("handoffId" = String, Path, description = "The handoff's UUID"), ChunkParams,
        ("Last-Event-ID" = Option<String>, Header, description = "Of Server-Sent Events: go on behind this number; browsers send it by themselves"),
    ),
    responses(
        (status = 200, description = "The chunks; of Server-Sent Events `id` is the number and `data` the chunk", content(
            (ChunkPage = "application/json"), (String = "text/event-stream"),
        )),
        (status = 400, description = "A malformed parameter, or a place ahead of the next chunk: `head` is its number"),
        (status = 403, description = "A dead letter: its text reaches no agent"),
        (status = 404, description = "No such handoff, or not the caller's"),
        (status = 409, description = "The handoff's message came whole"),
        Busy,
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<HandoffId>,
    Params(params): Params<ChunkParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let limit = page_size(params.limit)?;
    let from = params.from.unwrap_or(1);
    if from < 1 {
        return Err(Problem::invalid("from is a number from 1"));
    }
    let handoff = readable(&api, &principal, id).await?;
    let head = handoff.stream.as_ref().map_or(0, |stream| stream.seq);
    let key = (handoff.tenant.clone(), handoff.id);
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        return events(api, principal, key, (from, head), &headers);
    }
    if from > head + 1 {
        return Err(Problem::ahead("from", head + 1));
    }
    let wait = Duration::from_secs(params.wait.unwrap_or(0).min(60));
    page(&api, &principal, handoff, (from, limit), wait).await
}

/// A page of chunks; waits for one where there is none.
async fn page(
    api: &Api,
    principal: &Principal,
    mut handoff: Handoff,
    (from, limit): (i64, i64),
    wait: Duration,
) -> Result<Response, Problem> {
    let (id, key) = (handoff.id, (handoff.tenant.clone(), handoff.id));
    let deadline = tokio::time::Instant::now() + wait;
    let mut watch = api.intake.ledger.watch_stream(key.clone());
    loop {
        let items = read(api, &key, from - 1, limit).await?;
        let over = !handoff.is_streaming();
        let late = tokio::time::Instant::now() >= deadline || api.stopping.is_cancelled();
        if !items.is_empty() || over || late {
            handoff = readable(api, principal, id).await?;
            let next = items.last().map_or(from, |last| last.seq + 1);
            let stream = handoff.stream.as_ref().map(StreamView::from).unwrap_or_default();
            let page = ChunkPage { handoff_id: id.to_string(), items, next, stream };
            return Ok(axum::Json(page).into_response());
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = api.stopping.cancelled() => {}
        }
        handoff = readable(api, principal, id).await?;
    }
}

/// A handoff in pieces that the caller may read: its parties and people. A dead letter is for people alone.
async fn readable(api: &Api, principal: &Principal, id: HandoffId) -> Result<Handoff, Problem> {
    let handoff = super::handoffs::find(api, principal, id).await?;
    match principal.reader().words_of(&handoff) {
        WordAccess::Open => {}
        WordAccess::OfOthers => return Err(Problem::not_found("handoff")),
        WordAccess::DeadLetter => {
            let why = "the handoff is a dead letter: its text reaches no agent";
            return Err(Problem::new(Code::Forbidden, why));
        }
    }
    if handoff.stream.is_none() {
        let why = "the handoff's message came whole: it has no stream";
        return Err(Problem::new(Code::Conflict, why));
    }
    Ok(handoff)
}

async fn read(
    api: &Api,
    key: &HandoffKey,
    after: i64,
    limit: i64,
) -> Result<Vec<ChunkView>, Problem> {
    let chunks = api.contents.list_chunks(key, after, limit).await?;
    if chunks.iter().any(|(_, state)| matches!(state, Some(ContentState::Unavailable(_)))) {
        return Err(Problem::archive_away());
    }
    let now = api.now();
    let view = |(row, content): (ChunkRow, Option<ContentState>)| {
        let lag = now.since(row.created_at).as_secs_f64();
        api.metrics.chunk_seconds.with_label_values(&["pull"]).observe(lag);
        ChunkView::of(&row, content)
    };
    Ok(chunks.into_iter().map(view).collect())
}

fn events(
    api: Api,
    principal: Principal,
    key: HandoffKey,
    (from, head): (i64, i64),
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let after = match headers.get("last-event-id") {
        None if from > head + 1 => return Err(Problem::ahead("from", head + 1)),
        None => from - 1,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok());
            number
                .filter(|number| *number >= 0)
                .ok_or_else(|| Problem::invalid("Last-Event-ID is not a number of a stream"))?
        }
    };
    if after > head.max(from - 1) {
        return Err(Problem::ahead("Last-Event-ID", head));
    }
    let place = api.pools.streams.enter_as(api.pools.holder(Some(&principal)), 1)?;
    let reading = ChunkReading { api, principal, key, after, ready: VecDeque::new(), ended: false };
    let sse = Sse::new(reading.events(place)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    // A proxy that collects answers before it passes them on would defeat the purpose.
    let headers = [(header::CACHE_CONTROL, "no-cache"), (ACCEL, "no")];
    Ok((headers, sse).into_response())
}

/// Chunks as Server-Sent Events, under way.
struct ChunkReading {
    api: Api,
    principal: Principal,
    key: HandoffKey,
    after: i64,
    ready: VecDeque<SseEvent>,
    ended: bool,
}

impl ChunkReading {
    /// Ends with the stream of the handoff; or when the broker stops, or the store fails: the client comes again with the
    /// last id.
    fn events(self, place: super::fair::Place) -> impl Stream<Item = Result<SseEvent, Infallible>> {
        futures_util::stream::unfold((self, place), |(mut reading, place)| async move {
            let event = reading.next().await?;
            Some((Ok(event), (reading, place)))
        })
    }

    async fn next(&mut self) -> Option<SseEvent> {
        let api = self.api.clone();
        let mut watch = api.intake.ledger.watch_stream(self.key.clone());
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.ended || api.stopping.is_cancelled() {
                return None;
            }
            self.fill().await.ok()?;
            if self.ready.is_empty() && !self.ended {
                tokio::select! {
                    () = watch.changed() => {}
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                    () = api.stopping.cancelled() => {}
                }
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Problem> {
        // The right to read may have ended meanwhile. Asked before: an end that is committed in between is read next time.
        let handoff = readable(&self.api, &self.principal, self.key.1).await?;
        let items = read(&self.api, &self.key, self.after, STREAM_PAGE).await?;
        let open = handoff.is_streaming();
        self.ended = items.is_empty() && !open;
        for item in items {
            self.after = item.seq;
            self.ended |= item.close || item.abort;
            let data = serde_json::to_string(&item).unwrap_or_default();
            let event = SseEvent::default().id(item.seq.to_string()).event(item.event()).data(data);
            self.ready.push_back(event);
        }
        Ok(())
    }
}
