//! The broker itself: health, metrics, schemas.

use std::sync::atomic::Ordering;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::Instant;

use super::Api;
use super::auth::{Caller, Open, OptionalCaller};
use super::coding::Constant;
use super::extract::Id;
use super::problem::Problem;
use super::schemas::JsonSchema;
use super::sorted::Sorted;
use handoffd_broker::administration::payload_schemas::latest;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::Micros;
use handoffd_gate::schema;
use handoffd_store::store::StoreError;

/// The process runs.
#[utoipa::path(
    get, path = "/livez", tag = "service", operation_id = "livez",
    security(()),
    responses(
        (status = 200, description = "It runs", body = String, content_type = "text/plain"),
        (status = 400, description = "An unknown query parameter"),
    )
)]
pub async fn livez() -> &'static str {
    "ok\n"
}

/// The broker takes requests: the store answers and takes writes, and no stop is under way.
#[utoipa::path(
    get, path = "/readyz", tag = "service", operation_id = "readyz",
    security(()),
    responses(
        (status = 200, description = "Ready", body = String, content_type = "text/plain"),
        (status = 400, description = "An unknown query parameter"),
        (status = 503, description = "Stopping, or the store is away or takes no writes"),
    )
)]
pub(super) async fn readyz(State(api): State<Api>) -> Result<&'static str, Problem> {
    if !api.accepting.load(Ordering::Acquire) {
        return Err(Problem::new(Code::Unavailable, "the broker is stopping"));
    }
    api.store.ping().await?;
    // Known from the last batch; where none succeeded of late, by one small write.
    writable(&api).await.map_err(|_| {
        // The log has the reason once, at the first failure.
        Problem::new(Code::Unavailable, "the store takes no writes; the broker's log says why")
    })?;
    Ok("ok\n")
}

/// Whether the store takes writes.
async fn writable(api: &Api) -> Result<(), StoreError> {
    api.intake.ledger.health().check(&api.store, &api.broker, api.now()).await
}

/// Metrics in Prometheus' text format: all of them for an operator or admin of the installation's own tenant
/// (`auth.tenant`), the pairs of its tenant for any other person, its own pairs for an agent.
#[utoipa::path(
    get, path = "/metrics", tag = "service", operation_id = "metrics",
    responses(
        (status = 200, description = "Metrics", body = String, content_type = "text/plain; version=0.0.4"),
        (status = 404, description = "Metrics have a listener of their own"),
    )
)]
pub(super) async fn metrics(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
) -> Result<Response, Problem> {
    if api.config.server.metrics_listen.is_some() {
        return Err(Problem::not_found("page here: metrics have a listener of their own"));
    }
    if principal.rights().operates() && principal.tenant == api.config.auth.tenant {
        return page(State(api)).await;
    }
    let own = api.metrics.render_own(&principal.tenant, principal.reader().limit());
    Ok(as_page(encoded(own)?))
}

fn encoded<E>(text: Result<String, E>) -> Result<Bytes, Problem> {
    text.map(Bytes::from).map_err(|_| Problem::new(Code::Internal, "the metrics cannot be encoded"))
}

fn as_page(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The last page of metrics. A page takes time and memory: those that ask while one is made share the next.
#[derive(Default)]
pub struct MetricsPage(tokio::sync::Mutex<Option<MadePage>>);

struct MadePage {
    /// When its making began: what happened before is in it.
    began: Instant,
    text: Bytes,
}

/// How long a task waits for its next handoff before it counts as idle, in microseconds: an hour.
const IDLE_US: i64 = 3_600_000_000;

pub(super) async fn page(State(api): State<Api>) -> Result<Response, Problem> {
    let asked = Instant::now();
    let mut made = api.metrics_page.0.lock().await;
    let text = match made.take().filter(|page| page.began >= asked) {
        Some(page) => made.insert(page).text.clone(),
        None => made.insert(make_page(&api).await?).text.clone(),
    };
    drop(made);
    Ok(as_page(text))
}

async fn make_page(api: &Api) -> Result<MadePage, Problem> {
    let began = Instant::now();
    let idle_since = Micros(api.now().0.saturating_sub(IDLE_US));
    match api.store.depths(idle_since).await {
        Ok(depths) => {
            let metrics = &api.metrics;
            metrics.store_up.set(i64::from(writable(api).await.is_ok()));
            metrics.outbox_depth.set(depths.outbox);
            metrics.dead_letters.set(depths.dead_letters);
            metrics.escalations.set(depths.escalations);
            metrics.tasks_idle.set(depths.idle_tasks);
            metrics.opinions_due.set(depths.opinions);
            metrics.log_records.set(depths.records);
            let age = depths.oldest.map_or(0, |at| api.now().since(at).as_secs());
            metrics.outbox_oldest_seconds.set(i64::try_from(age).unwrap_or(i64::MAX));
        }
        Err(_) => api.metrics.store_up.set(0),
    }
    let (busy, idle) = api.store.connections();
    for (state, count) in [("busy", busy), ("idle", idle)] {
        api.metrics.store_connections.with_label_values(&[state]).set(i64::from(count));
    }
    Ok(MadePage { began, text: encoded(api.metrics.render())? })
}

/// Schemas, with where they are.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SchemasView {
    /// One a version of the message's schema, and one a payload schema.
    pub items: Vec<SchemaRef>,
}

/// The place of a schema.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SchemaRef {
    /// `handoff`, or `payloads/{schemaId}`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Path under which the schema is served.
    pub href: String,
}

/// The schemas that this broker knows: of messages, and with a key the tenant's payload schemas, each in
/// its highest version.
#[utoipa::path(
    get, path = "/schemas", tag = "schemas", operation_id = "listSchemas",
    security((), ("bearer" = []), ("apiKey" = [])),
    responses(
        (status = 200, description = "The schemas", body = SchemasView),
    )
)]
pub(super) async fn schemas(
    State(api): State<Api>,
    OptionalCaller(principal): OptionalCaller,
) -> Result<Sorted<SchemasView>, Problem> {
    let mut items: Vec<SchemaRef> = schema::VERSIONS
        .iter()
        .map(|version| SchemaRef {
            name: "handoff".to_owned(),
            version: (*version).to_owned(),
            href: format!("/schemas/handoff/{version}"),
        })
        .collect();
    if let Some(principal) = principal {
        let rows = api.store.list_payload_schemas(&principal.tenant, None).await?;
        items.extend(latest(&rows).into_iter().map(|row| SchemaRef {
            name: format!("payloads/{}", row.id),
            version: row.version.clone(),
            href: format!("/schemas/payloads/{}/{}", row.id, row.version),
        }));
    }
    Ok(Sorted(SchemasView { items }))
}

/// One message schema: JSON Schema 2020-12.
#[utoipa::path(
    get, path = "/schemas/handoff/{version}", tag = "schemas", operation_id = "getHandoffSchema",
    security(()),
    params(("version" = String, Path, description = "e.g. `2.1`")),
    responses(
        (status = 200, description = "The schema", body = JsonSchema, content_type = "application/schema+json"),
        (status = 404, description = "No such version"),
    )
)]
pub(super) async fn handoff_schema(Id(version): Id<String>) -> Result<Response, Problem> {
    let document =
        schema::document(&version).ok_or_else(|| Problem::not_found("schema version"))?;
    Ok(Constant::of(document).answer("application/schema+json"))
}

/// The schema of SW4RM's `HandoffContext`: JSON Schema draft-07 (docs/doors/sw4rm.md).
#[utoipa::path(
    get, path = "/schemas/sw4rm/handoff-context", tag = "schemas", operation_id = "getSw4rmContextSchema",
    security(()),
    responses(
        (status = 200, description = "The schema", body = JsonSchema, content_type = "application/schema+json"),
    )
)]
pub(super) async fn sw4rm_context_schema() -> Response {
    Constant::of(handoffd_gate::sw4rm::CONTEXT_SCHEMA).answer("application/schema+json")
}
