//! `/schemas/payloads`: the registry of payload schemas (seed 000 §14.3).

use axum::extract::State;
use axum::http::StatusCode;
use semver::Version;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Auditor, Caller, Open, Operator};
use super::extract::{Id, Ids, SchemaJson};
use super::open;
use super::problem::{BadBody, Busy, FailureView, Problem, view};
use super::sorted::Sorted;
use handoffd_broker::administration::payload_schemas::{SchemaVersion, latest};
use handoffd_domain::failure::Failure;
use handoffd_domain::ids::TenantId;
use handoffd_gate::contract::evolution::{Assessment, Bump, Change, Side};
use handoffd_store::store::schemas::PayloadSchemaRow;

/// The most changes of one comparison that are told; what breaks goes first.
const MAX_TOLD: usize = 200;

/// A JSON Schema 2020-12 document.
#[derive(Serialize, ToSchema)]
pub struct JsonSchema {}

/// A version of a payload schema.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayloadSchemaMeta {
    /// Its id.
    pub schema_id: String,
    /// Its version.
    pub version: String,
    /// SHA-256 over the schema's canonical form (RFC 8785), in hexadecimal.
    pub sha256: String,
    /// When it was registered, RFC 3339.
    pub created_at: String,
    /// The key that registered it.
    pub created_by: String,
    /// The senders' steps to move to this version; absent if none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub migration: Option<String>,
}

/// A version of a payload schema, with the schema.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayloadSchemaView {
    /// Its id.
    pub schema_id: String,
    /// Its version.
    pub version: String,
    /// SHA-256 over the schema's canonical form (RFC 8785), in hexadecimal.
    pub sha256: String,
    /// When it was registered, RFC 3339.
    pub created_at: String,
    /// The key that registered it.
    pub created_by: String,
    /// The senders' steps to move to this version; absent if none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub migration: Option<String>,
    /// The schema.
    #[schema(value_type = JsonSchema)]
    pub schema: Value,
    /// The changes; only in the answer that registered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<ComparisonView>,
}

/// The changes of a version.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonView {
    /// The version that it was held against; null where it is the first.
    #[schema(required)]
    pub against: Option<String>,
    /// By how much the version number has to rise; null where nothing changes.
    #[schema(required, value_type = Option<open::VersionStep>)]
    pub needs: Option<&'static str>,
    /// The lowest number that it may have.
    pub next_version: String,
    /// Messages that senders send today may be refused.
    pub breaks_senders: bool,
    /// Receivers may get what they do not know.
    pub breaks_receivers: bool,
    /// The changes, what breaks first; 200 at most.
    pub changes: Vec<SchemaChangeView>,
    /// How many changes there are in all.
    pub changes_in_all: usize,
}

/// One change of a schema.
#[derive(Debug, Serialize, ToSchema)]
pub struct SchemaChangeView {
    /// RFC 6901 pointer into the schema.
    pub pointer: String,
    /// Kind of change that was found.
    #[schema(value_type = open::SchemaChange)]
    pub kind: &'static str,
    /// By how much it makes the version number rise.
    #[schema(value_type = open::VersionStep)]
    pub needs: &'static str,
    /// The side that the change breaks.
    #[schema(value_type = Vec<open::BrokenSide>)]
    pub breaks: Vec<&'static str>,
    /// The meaning of the change, in a sentence for people.
    pub reason: String,
}

/// The changes of a candidate version, and whether it could be registered.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateView {
    /// It could be registered.
    pub accepted: bool,
    /// Why it could not.
    pub failures: Vec<FailureView>,
    /// The version that it was held against; null where it is the first.
    #[schema(required)]
    pub against: Option<String>,
    /// By how much the version number has to rise; null where nothing changes.
    #[schema(required, value_type = Option<open::VersionStep>)]
    pub needs: Option<&'static str>,
    /// The lowest number that it may have.
    pub next_version: String,
    /// Messages that senders send today may be refused.
    pub breaks_senders: bool,
    /// Receivers may get what they do not know.
    pub breaks_receivers: bool,
    /// The changes, what breaks first; 200 at most.
    pub changes: Vec<SchemaChangeView>,
    /// How many changes there are in all.
    pub changes_in_all: usize,
}

/// The payload schemas of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct PayloadSchemasView {
    /// Each in its highest version, by id.
    pub items: Vec<PayloadSchemaEntry>,
}

/// A payload schema in its highest version.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayloadSchemaEntry {
    /// Its id.
    pub schema_id: String,
    /// Its highest version.
    pub version: String,
    /// SHA-256 over that schema's canonical form (RFC 8785), in hexadecimal.
    pub sha256: String,
    /// When that version was registered, RFC 3339.
    pub created_at: String,
    /// The key that registered it.
    pub created_by: String,
    /// The senders' steps to move to that version; absent if none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub migration: Option<String>,
    /// How many versions there are.
    pub versions: usize,
}

/// The versions of a payload schema.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayloadSchemaVersionsView {
    /// Its id.
    pub schema_id: String,
    /// The highest release.
    pub version: String,
    /// In the order in which they were registered.
    pub items: Vec<PayloadSchemaMeta>,
}

/// A version to register.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutBody {
    /// The schema: JSON Schema 2020-12, at most 128 KiB, that refers only to itself.
    #[schema(value_type = JsonSchema)]
    schema: Value,
    /// The senders' steps to move to this version, 1 to 2 000 characters; needed if it asks for more
    /// than the version before.
    migration: Option<String>,
}

/// A version to compare.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompareBody {
    /// The schema.
    #[schema(value_type = JsonSchema)]
    schema: Value,
    /// The version that it would get; without, it is held against the highest release.
    version: Option<String>,
    /// The steps that senders would have to take.
    migration: Option<String>,
}

impl From<&PayloadSchemaRow> for PayloadSchemaMeta {
    fn from(row: &PayloadSchemaRow) -> Self {
        Self {
            schema_id: row.id.clone(),
            version: row.version.clone(),
            sha256: hex::encode(row.sha256),
            created_at: row.created_at.rfc3339(),
            created_by: row.created_by.clone(),
            migration: row.migration.clone(),
        }
    }
}

impl PayloadSchemaView {
    fn of(row: &PayloadSchemaRow, comparison: Option<ComparisonView>) -> Self {
        let PayloadSchemaMeta { schema_id, version, sha256, created_at, created_by, migration } =
            row.into();
        let schema = serde_json::from_str(&row.doc).unwrap_or_default();
        Self { schema_id, version, sha256, created_at, created_by, migration, schema, comparison }
    }
}

impl PayloadSchemaEntry {
    /// A schema by the row of its highest version.
    fn of(row: &PayloadSchemaRow, versions: usize) -> Self {
        let PayloadSchemaMeta { schema_id, version, sha256, created_at, created_by, migration } =
            row.into();
        Self { schema_id, version, sha256, created_at, created_by, migration, versions }
    }
}

impl From<&Assessment> for ComparisonView {
    /// The view of a comparison, breaking changes first.
    fn from(assessment: &Assessment) -> Self {
        let mut changes: Vec<&Change> = assessment.changes.iter().collect();
        changes.sort_by_key(|change| std::cmp::Reverse(change.kind.needs()));
        let breaks = |side| changes.iter().any(|change| change.breaks.contains(&side));
        Self {
            against: assessment.against.as_ref().map(Version::to_string),
            needs: assessment.needs.map(Bump::as_str),
            next_version: assessment.next.to_string(),
            breaks_senders: breaks(Side::Senders),
            breaks_receivers: breaks(Side::Receivers),
            changes: changes.iter().take(MAX_TOLD).map(|change| (*change).into()).collect(),
            changes_in_all: assessment.changes.len(),
        }
    }
}

impl From<&Change> for SchemaChangeView {
    fn from(change: &Change) -> Self {
        Self {
            pointer: change.pointer.clone(),
            kind: change.kind.as_str(),
            needs: change.kind.needs().as_str(),
            breaks: change.breaks.iter().map(|side| side.as_str()).collect(),
            reason: change.reason.clone(),
        }
    }
}

impl CandidateView {
    fn of(assessment: &Assessment, failures: &[Failure]) -> Self {
        let ComparisonView {
            against,
            needs,
            next_version,
            breaks_senders,
            breaks_receivers,
            changes,
            changes_in_all,
        } = assessment.into();
        Self {
            accepted: failures.is_empty(),
            failures: failures.iter().map(view).collect(),
            against,
            needs,
            next_version,
            breaks_senders,
            breaks_receivers,
            changes,
            changes_in_all,
        }
    }
}

async fn rows(api: &Api, tenant: &TenantId, id: &str) -> Result<Vec<PayloadSchemaRow>, Problem> {
    let rows = api.store.list_payload_schemas(tenant, Some(id)).await?;
    if rows.is_empty() { Err(Problem::not_found("payload schema")) } else { Ok(rows) }
}

/// Register a version of a payload schema. Versions are kept: the same again changes nothing. The number
/// must say what changes: words a patch, an optional property a minor, what breaks senders or receivers a
/// major; what goes was deprecated in a release before.
#[utoipa::path(
    put, path = "/schemas/payloads/{schemaId}/{version}", tag = "schemas", operation_id = "putPayloadSchema",
    params(
        ("schemaId" = String, Path, description = "The schema's id, kebab-case"),
        ("version" = String, Path, description = "A semantic version without build metadata"),
    ),
    request_body = PutBody,
    responses(
        (status = 200, description = "It was there already", body = PayloadSchemaView),
        (status = 201, description = "Registered, with what it changes", body = PayloadSchemaView),
        (status = 403, description = "Not an operator"),
        (status = 409, description = "This version has another content, or its number does not say what changes: every fault with its pointer"),
        BadBody,
        (status = 422, description = "No schema, id or version"),
        Busy,
    )
)]
pub(super) async fn put(
    State(api): State<Api>,
    Operator(principal): Operator,
    Ids(id, version): Ids<String, String>,
    SchemaJson(body): SchemaJson<PutBody>,
) -> Result<(StatusCode, Sorted<PayloadSchemaView>), Problem> {
    let PutBody { schema, migration } = body;
    let put = SchemaVersion { schema, migration };
    let stored = api.administration().put_payload_schema(&principal, (&id, &version), put).await?;
    let code = if stored.assessment.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    let comparison = stored.assessment.as_ref().map(ComparisonView::from);
    Ok((code, Sorted(PayloadSchemaView::of(&stored.row, comparison))))
}

/// Say what a version would change, and whether it could be registered so; writes nothing.
#[utoipa::path(
    post, path = "/schemas/payloads/{schemaId}/compare", tag = "schemas", operation_id = "comparePayloadSchema",
    params(("schemaId" = String, Path, description = "The schema's id")),
    request_body = CompareBody,
    responses(
        (status = 200, description = "The changes that it would make", body = CandidateView),
        (status = 403, description = "An agent's key"),
        BadBody,
        (status = 422, description = "No schema, id or version"),
    )
)]
pub(super) async fn compare(
    State(api): State<Api>,
    Auditor(principal): Auditor,
    Id(id): Id<String>,
    SchemaJson(body): SchemaJson<CompareBody>,
) -> Result<Sorted<CandidateView>, Problem> {
    let CompareBody { schema, version, migration } = body;
    let compared = api
        .administration()
        .compare_payload_schema(
            &principal,
            (&id, version.as_deref()),
            SchemaVersion { schema, migration },
        )
        .await?;
    Ok(Sorted(CandidateView::of(&compared.assessment, &compared.failures)))
}

/// List the payload schemas, each with its highest version, by id.
#[utoipa::path(
    get, path = "/schemas/payloads", tag = "schemas", operation_id = "listPayloadSchemas",
    responses(
        (status = 200, description = "The schemas", body = PayloadSchemasView),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
) -> Result<Sorted<PayloadSchemasView>, Problem> {
    let rows = api.store.list_payload_schemas(&principal.tenant, None).await?;
    let versions = |id: &str| rows.iter().filter(|one| one.id == id).count();
    let items = latest(&rows).into_iter().map(|row| PayloadSchemaEntry::of(row, versions(&row.id)));
    Ok(Sorted(PayloadSchemasView { items: items.collect() }))
}

/// List the versions of a payload schema, in the order in which they were registered.
#[utoipa::path(
    get, path = "/schemas/payloads/{schemaId}", tag = "schemas", operation_id = "listPayloadSchemaVersions",
    params(("schemaId" = String, Path, description = "The schema's id")),
    responses(
        (status = 200, description = "The versions", body = PayloadSchemaVersionsView),
        (status = 404, description = "No such schema"),
    )
)]
pub(super) async fn versions(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Id(id): Id<String>,
) -> Result<Sorted<PayloadSchemaVersionsView>, Problem> {
    let rows = rows(&api, &principal.tenant, &id).await?;
    let version = latest(&rows).first().map(|row| row.version.clone()).unwrap_or_default();
    let items = rows.iter().map(PayloadSchemaMeta::from).collect();
    Ok(Sorted(PayloadSchemaVersionsView { schema_id: id, version, items }))
}

/// Read one version of a payload schema.
#[utoipa::path(
    get, path = "/schemas/payloads/{schemaId}/{version}", tag = "schemas", operation_id = "getPayloadSchema",
    params(
        ("schemaId" = String, Path, description = "The schema's id"),
        ("version" = String, Path, description = "The version"),
    ),
    responses(
        (status = 200, description = "The version, with its schema", body = PayloadSchemaView),
        (status = 404, description = "No such schema or version"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Ids(id, version): Ids<String, String>,
) -> Result<Sorted<PayloadSchemaView>, Problem> {
    let rows = rows(&api, &principal.tenant, &id).await?;
    let found = rows.iter().find(|row| row.version == version);
    found
        .map(|row| Sorted(PayloadSchemaView::of(row, None)))
        .ok_or_else(|| Problem::not_found("payload schema version"))
}
