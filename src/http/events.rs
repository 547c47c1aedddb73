//! `/events` and `/tasks/{taskId}/events`: the feed, by page and as a live stream; and the schemas.

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
use super::auth::{Caller, Masked, Open};
use super::extract::{Id, Params, page_size, parameter};
use super::open;
use super::problem::{Busy, Problem};
use super::schemas::JsonSchema;
use super::sorted::Sorted;
use super::tasks;
use super::withheld::mask;
use handoffd_broker::directory::Principal;
use handoffd_broker::feed::{FeedPage, schema};
use handoffd_domain::event::{EventFilter, EventFormat, EventType, Position};
use handoffd_domain::failure::Code;
use handoffd_domain::ids::{Micros, TaskId, TenantId};

/// How often a wait looks for what other brokers may have committed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Silence on a stream before a comment is sent, so that nothing on the way takes it for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The `Last-Event-ID` of a stream that begins behind everything that is committed.
pub(crate) const NOW: &str = "now";

/// Events read at once for a stream.
const STREAM_PAGE: usize = 100;

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FeedParams {
    /// `nextCursor` of the page before, or a time, RFC 3339; from the oldest kept event on unless said.
    since: Option<String>,
    /// Types, separated by commas; all unless said.
    types: Option<String>,
    /// Only events that this agent has a part in.
    agent_id: Option<String>,
    /// Only events of this task.
    task_id: Option<String>,
    /// Seconds to wait for an event when there is none, up to 60.
    #[param(minimum = 0, maximum = 60)]
    wait: Option<u64>,
    /// Events a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
    /// How events are written: `standard` unless said, or `cloudevents`.
    #[param(value_type = Option<String>)]
    format: Option<EventFormat>,
}

/// A page of the feed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedView {
    /// The events, in order; see `/schemas/events/{type}`.
    #[schema(value_type = Vec<Event>)]
    pub items: Vec<Value>,
    /// Give it as `since` to go on. A page may be empty and still move on.
    pub next_cursor: String,
}

/// An event, in the format that was asked for. Its component is made from the files under `schemas/events/`.
pub struct Event;

impl utoipa::PartialSchema for Event {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        utoipa::openapi::Object::new().into()
    }
}

impl ToSchema for Event {}

/// An event as CloudEvents 1.0 writes it.
#[derive(ToSchema)]
pub struct CloudEvent {
    /// Always `1.0`.
    pub specversion: String,
    /// The event's id, the same at every delivery.
    pub id: String,
    /// The broker and the tenant.
    pub source: String,
    /// Type of the event, such as `handoff.accepted`.
    #[schema(value_type = open::EventType, rename = "type")]
    pub kind: String,
    /// When it happened, RFC 3339.
    pub time: String,
    /// Always `application/json`.
    pub datacontenttype: String,
    /// URL of the schema of `data`.
    pub dataschema: String,
    /// Its place in the tenant's feed.
    pub cursor: String,
    /// The data of the same event in the standard format.
    pub data: EventData,
    /// The task, and the handoff where there is one.
    #[schema(nullable = false)]
    pub subject: Option<String>,
    /// The handoff's trace context, W3C `traceparent`.
    #[schema(nullable = false)]
    pub traceparent: Option<String>,
}

/// The data of an event: free; the type's schema at /schemas/events/{type} describes it.
#[derive(ToSchema)]
pub struct EventData {}

/// The types of events, with their schemas.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventSchemasView {
    /// One entry for each event type.
    pub items: Vec<EventSchemaRef>,
}

/// The place of the schema of a type of event.
#[derive(Debug, Serialize, ToSchema)]
pub struct EventSchemaRef {
    /// The type.
    #[serde(rename = "type")]
    #[schema(value_type = open::EventType)]
    pub kind: String,
    /// The path of its schema.
    pub href: String,
}

/// How far the clocks of a client and of the brokers may be apart.
const CLOCKS_APART: Duration = Duration::from_mins(1);

/// A place of the feed that exists.
///
/// # Errors
/// One that the feed has not come to: a reader from there on would hear nothing for long, and miss what comes before.
async fn reached(
    api: &Api,
    tenant: &TenantId,
    name: &str,
    position: Position,
) -> Result<Position, Problem> {
    let size = api.store.find_head(tenant).await?.map_or(0, |head| head.size);
    if position.leaf_index >= size {
        return Err(Problem::ahead(name, Position::behind(size - 1)));
    }
    Ok(position)
}

/// A cursor, or a time as the place from which on everything is behind it.
pub(super) async fn position(
    api: &Api,
    tenant: &TenantId,
    since: &str,
) -> Result<Position, Problem> {
    if let Ok(position) = since.parse::<Position>() {
        return reached(api, tenant, "since", position).await;
    }
    let time = time::OffsetDateTime::parse(since, &time::format_description::well_known::Rfc3339)
        .map_err(|_| {
        Problem::invalid("since is neither a cursor of the feed nor an RFC 3339 time")
    })?;
    let micros = i64::try_from(time.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX);
    let now = api.now();
    if micros > now.plus(CLOCKS_APART).0 {
        return Err(Problem::ahead("since", now.rfc3339()));
    }
    Ok(api.feed.position_at(tenant, Micros(micros)).await?)
}

fn types(text: Option<&str>) -> Result<Vec<EventType>, Problem> {
    text.unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| name.parse().map_err(Problem::invalid))
        .collect()
}

/// Read the feed of events, oldest first; an agent sees those it has a part in.
#[utoipa::path(
    get, path = "/events", tag = "events", operation_id = "listEvents",
    params(FeedParams),
    responses(
        (status = 200, description = "One page", body = FeedView),
        (status = 400, description = "A malformed parameter, or `since` ahead of the feed: `head` is its end"),
        Busy,
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Params(params): Params<FeedParams>,
) -> Result<axum::Json<FeedView>, Problem> {
    let limit = usize::try_from(page_size(params.limit)?).unwrap_or(usize::MAX);
    let filter = filter_of(&principal, &params)?;
    if params.format == Some(EventFormat::A2a) {
        return Err(Problem::invalid("format can be: standard, cloudevents"));
    }
    let tenant = &principal.tenant;
    let mut after = match &params.since {
        Some(since) => position(&api, tenant, since).await?,
        None => Position::START,
    };
    let wait = Duration::from_secs(params.wait.unwrap_or(0).min(60));
    let deadline = tokio::time::Instant::now() + wait;
    // Registered before the store is asked, so that no event falls between.
    let mut watch = api.intake.ledger.watch_events(tenant.clone());
    loop {
        let page = api.feed.page(tenant, &filter, after, limit).await?;
        after = page.next;
        if !page.items.is_empty() || tokio::time::Instant::now() >= deadline {
            return feed_view(&api, &page, params.format.unwrap_or_default()).await;
        }
        tokio::select! {
            () = watch.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = api.stopping.cancelled() => {
                return feed_view(&api, &page, EventFormat::default()).await;
            }
        }
    }
}

/// The events that a caller asks for; an agent asks for its own.
fn filter_of(principal: &Principal, params: &FeedParams) -> Result<EventFilter, Problem> {
    let asked = parameter("agentId", params.agent_id.as_deref())?;
    let own = principal.reader().limit().cloned();
    if let (Some(own), Some(asked)) = (&own, &asked)
        && own != asked
    {
        return Err(Problem::new(Code::Forbidden, "an agent reads its own events"));
    }
    Ok(EventFilter {
        types: types(params.types.as_deref())?,
        agent_id: own.or(asked),
        task_id: parameter("taskId", params.task_id.as_deref())?,
        handoff_id: None,
    })
}

async fn feed_view(
    api: &Api,
    page: &FeedPage,
    format: EventFormat,
) -> Result<axum::Json<FeedView>, Problem> {
    let mut items = Vec::with_capacity(page.items.len());
    for row in &page.items {
        items.push(api.feed.render(row, format, None).await?);
    }
    Ok(axum::Json(FeedView { items, next_cursor: page.next.to_string() }))
}

/// Watch a task: its events so far, and each as it happens, as Server-Sent Events.
#[utoipa::path(
    get, path = "/tasks/{taskId}/events", tag = "events", operation_id = "watchTask",
    params(
        ("taskId" = String, Path, description = "The task's UUID"),
        ("Last-Event-ID" = Option<String>, Header, description = "Go on behind this event; browsers send it by themselves. `now`: behind what is committed"),
    ),
    responses(
        (status = 200, description = "A stream; `id` is the event's cursor, `event` its type, `data` the event in the standard format", body = String, content_type = "text/event-stream"),
        (status = 400, description = "`Last-Event-ID` is not a cursor, or the feed has not reached it: `head` is the last"),
        (status = 404, description = "No such task, or not the caller's"),
        Busy,
    )
)]
pub(super) async fn watch_task(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Id(id): Id<TaskId>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let task = tasks::find(&api, &principal, id).await?;
    let after = match headers.get("last-event-id") {
        None => Position::START,
        Some(value) if value == NOW => {
            let head = api.store.find_head(&principal.tenant).await?;
            Position::behind(head.map_or(0, |head| head.size) - 1)
        }
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            let position = text
                .parse()
                .map_err(|_| Problem::invalid("Last-Event-ID is not a cursor of the feed"))?;
            reached(&api, &principal.tenant, "Last-Event-ID", position).await?
        }
    };
    let place = api.pools.streams.enter_as(api.pools.holder(Some(&principal)), 1)?;
    let filter = EventFilter { task_id: Some(task.id), ..EventFilter::default() };
    let masked = !principal.rights().reads_contents();
    let (tenant, ready) = (principal.tenant, VecDeque::new());
    let stream = EventStream { api, tenant, filter, after, ready, masked };
    let sse = Sse::new(stream.events(place)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    // A proxy that collects answers before it passes them on would defeat the purpose.
    let headers = [(header::CACHE_CONTROL, "no-cache"), (ACCEL, "no")];
    Ok((headers, sse).into_response())
}

const ACCEL: header::HeaderName = header::HeaderName::from_static("x-accel-buffering");

/// A stream under way.
struct EventStream {
    api: Api,
    tenant: TenantId,
    filter: EventFilter,
    after: Position,
    ready: VecDeque<SseEvent>,
    /// Whether its reader reads no contents.
    masked: bool,
}

impl EventStream {
    /// Ends when the broker stops, or the store fails: the client comes again with the last id.
    fn events(self, place: super::fair::Place) -> impl Stream<Item = Result<SseEvent, Infallible>> {
        futures_util::stream::unfold((self, place), |(mut watching, place)| async move {
            let event = watching.next().await?;
            Some((Ok(event), (watching, place)))
        })
    }

    async fn next(&mut self) -> Option<SseEvent> {
        let api = self.api.clone();
        let mut watch = api.intake.ledger.watch_events(self.tenant.clone());
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if api.stopping.is_cancelled() {
                return None;
            }
            self.read().await.ok()?;
            if self.ready.is_empty() {
                tokio::select! {
                    () = watch.changed() => {}
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                    () = api.stopping.cancelled() => {}
                }
            }
        }
    }

    async fn read(&mut self) -> Result<(), Problem> {
        let feed = &self.api.feed;
        let page = feed.page(&self.tenant, &self.filter, self.after, STREAM_PAGE).await?;
        self.after = page.next;
        for row in &page.items {
            let mut told = feed.render(row, EventFormat::Standard, None).await?;
            if self.masked {
                mask(&mut told);
            }
            let event = SseEvent::default()
                .id(row.position.to_string())
                .event(row.event.kind.as_str())
                .data(told.to_string());
            self.ready.push_back(event);
        }
        Ok(())
    }
}

/// The types of events that this broker tells of.
#[utoipa::path(
    get, path = "/schemas/events", tag = "schemas", operation_id = "listEventSchemas",
    security(()),
    responses(
        (status = 200, description = "The types", body = EventSchemasView),
        (status = 400, description = "An unknown query parameter"),
    )
)]
pub async fn event_schemas() -> Sorted<EventSchemasView> {
    let items = EventType::ALL.iter().map(|kind| EventSchemaRef {
        kind: kind.to_string(),
        href: format!("/schemas/events/{kind}"),
    });
    Sorted(EventSchemasView { items: items.collect() })
}

/// The schema of one type of event, in the standard format: JSON Schema 2020-12.
#[utoipa::path(
    get, path = "/schemas/events/{type}", tag = "schemas", operation_id = "getEventSchema",
    security(()),
    params(("type" = String, Path, description = "e.g. `handoff.rolled_back`")),
    responses(
        (status = 200, description = "The schema", body = JsonSchema, content_type = "application/schema+json"),
        (status = 404, description = "No such type"),
    )
)]
pub async fn event_schema(Id(kind): Id<EventType>) -> Response {
    ([(header::CONTENT_TYPE, "application/schema+json")], schema(kind)).into_response()
}
