//! `/agents` (specification §4.1).

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Open, Operator};
use super::extract::{Id, Ids, Json, NoBody, typed};
use super::problem::{BadBody, Busy, Problem, WarningView};
use super::shape::no_idle_nulls;
use super::withheld::closed_to_metadata;
use handoffd_broker::administration::agents::ChangedAgent;
use handoffd_broker::directory::{Agents, Principal};
use handoffd_broker::vault::SecretKind;
use handoffd_domain::agent::{Agent, AgentSpec, DeliverySpec, OrbitConfig};
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;
use handoffd_store::store::AgentRow;

/// Path prefix under which Orbit's clients find agents (seed 003).
pub const ALIAS: &str = "/api/v1";

/// An agent as shown: never with its secrets. Another agent sees neither `metadata` nor `callbackUrl`, and of
/// `delivery` the mode alone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentView {
    #[serde(flatten)]
    agent: Agent,
    /// The allowlist in Orbit's spelling; the same as `handoffTargets`.
    #[serde(rename = "handoff_targets")]
    orbit_targets: Vec<String>,
    /// The allowlist where Orbit keeps it.
    config: OrbitConfig,
    /// Entries of the allowlist that match no agent; they are kept, and ignored at run time.
    unknown_targets: Vec<String>,
    /// When it was registered, RFC 3339.
    created_at: String,
    /// When it last changed, RFC 3339.
    updated_at: String,
    /// Settings that do not hold in full; only in the answers to changes, and only if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningView>,
}

/// A new agent, with its key and secrets, which are shown this once.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedAgentView {
    #[serde(flatten)]
    agent: AgentView,
    /// Its key for this API.
    api_key: String,
    /// Secret that its messages are signed with; shown once.
    signing_secret: String,
    /// The broker signs its deliveries with it.
    webhook_secret: String,
}

/// The tenant's agents, by id.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentsView {
    /// All agents of the tenant.
    #[schema(value_type = Vec<AgentView>)]
    items: Vec<Value>,
}

fn view(row: &AgentRow, agents: &Agents) -> AgentView {
    let targets = &row.agent.handoff_targets;
    AgentView {
        orbit_targets: targets.iter().map(ToString::to_string).collect(),
        config: OrbitConfig { handoff_targets: Some(targets.clone()) },
        unknown_targets: agents.roster.unknown_targets(&row.agent),
        created_at: row.created_at.rfc3339(),
        updated_at: row.updated_at.rfc3339(),
        warnings: Vec::new(),
        agent: row.agent.clone(),
    }
}

/// An agent after its change, as its operator sees it.
fn view_changed(changed: &ChangedAgent) -> AgentView {
    let warnings = changed.warnings.iter().map(WarningView::from).collect();
    AgentView { warnings, ..view(&changed.row, &changed.agents) }
}

/// An agent as that caller may see it: to another agent its addresses and its owner's data are not
/// shown, for a URL may itself be a secret.
fn view_for(principal: &Principal, row: &AgentRow, agents: &Agents) -> Value {
    let mut value = serde_json::to_value(view(row, agents)).unwrap_or_default();
    let other = principal.agent.as_ref().is_some_and(|caller| *caller != row.agent.agent_id);
    if other && let Some(object) = value.as_object_mut() {
        object.remove("metadata");
        object.remove("callbackUrl");
        object.insert("delivery".to_owned(), json!({ "mode": row.agent.delivery.mode }));
    }
    value
}

/// Register an agent; its key and secrets are shown this once.
#[utoipa::path(
    post, path = "/agents", tag = "agents", operation_id = "createAgent",
    request_body(content = AgentSpec, description = "An agent", content_type = "application/json"),
    responses(
        (status = 201, description = "The agent, with `apiKey`, `signingSecret` and `webhookSecret`", body = CreatedAgentView),
        (status = 403, description = "Not an operator"),
        (status = 409, description = "The id is taken"),
        BadBody,
        (status = 422, description = "The agent does not fit"),
        Busy,
    )
)]
pub(super) async fn create(
    State(api): State<Api>,
    Operator(principal): Operator,
    Json(spec): Json<AgentSpec>,
) -> Result<(StatusCode, axum::Json<CreatedAgentView>), Problem> {
    let registered = api.administration().register_agent(&principal, spec).await?;
    let shown = CreatedAgentView {
        agent: view_changed(&registered.agent),
        api_key: registered.key.to_string(),
        signing_secret: registered.signing.to_string(),
        webhook_secret: registered.webhook.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(shown)))
}

/// List the tenant's agents.
#[utoipa::path(
    get, path = "/agents", tag = "agents", operation_id = "listAgents",
    responses(
        (status = 200, description = "All agents, by id", body = AgentsView),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
) -> Result<axum::Json<AgentsView>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let items: Vec<Value> = agents
        .roster
        .iter()
        .filter_map(|agent| agents.row(&agent.agent_id))
        .map(|row| view_for(&principal, row, &agents))
        .collect();
    Ok(axum::Json(AgentsView { items }))
}

/// Read one agent.
#[utoipa::path(
    get, path = "/agents/{agentId}", tag = "agents", operation_id = "getAgent",
    params(("agentId" = String, Path, description = "The agent's id")),
    responses(
        (status = 200, description = "The agent, without its secrets; `unknownTargets` lists allowlist entries that fit no agent", body = AgentView),
        (status = 404, description = "No such agent"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Id(id): Id<AgentId>,
) -> Result<axum::Json<Value>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let row = agents.row(&id).ok_or_else(|| Problem::not_found("agent"))?;
    Ok(axum::Json(view_for(&principal, row, &agents)))
}

/// A change of an agent that the caller may make: an operator any, an agent of its own `state` alone.
pub struct AgentEdit {
    principal: Principal,
    id: AgentId,
    spec: AgentSpec,
}

impl FromRequest<Api> for AgentEdit {
    type Rejection = Problem;
    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Open(Caller(principal)) = Open::from_request_parts(&mut parts, api).await?;
        let Id(id) = Id::<AgentId>::from_request_parts(&mut parts, api).await?;
        let Json(patch) =
            Json::<serde_json::Map<_, _>>::from_request(Request::from_parts(parts, body), api)
                .await?;
        no_idle_nulls::<AgentSpec>("", &patch)?;
        if let Some(Value::Object(delivery)) = patch.get("delivery") {
            no_idle_nulls::<DeliverySpec>("/delivery", delivery)?;
        }
        if !principal.rights().reads_contents() && !switches(&patch) {
            return Err(closed_to_metadata());
        }
        let runs = principal.rights().operates() || !principal.rights().reads_contents();
        let spec: AgentSpec = typed(patch.into())?;
        let own_state = principal.agent.as_ref() == Some(&id)
            && spec == AgentSpec { state: spec.state, ..AgentSpec::default() };
        if own_state || runs {
            return Ok(Self { principal, id, spec });
        }
        Err(Problem::new(
            Code::Forbidden,
            "only an operator may do this; an agent may change its own `state`",
        ))
    }
}

/// Whether a change only pauses an agent, resumes it, or switches its endpoint on: no address and no rule of it.
fn switches(patch: &serde_json::Map<String, Value>) -> bool {
    patch.iter().all(|(name, value)| match name.as_str() {
        "state" | "pause" => true,
        "delivery" => value.as_object().is_some_and(|delivery| {
            delivery.iter().all(|(name, value)| name == "disabled" && *value == false)
        }),
        _ => false,
    })
}

/// Change an agent: a list replaces, `[]` clears, an absent member leaves alone. An agent may change
/// its own `state`.
#[utoipa::path(
    patch, path = "/agents/{agentId}", tag = "agents", operation_id = "patchAgent",
    params(("agentId" = String, Path, description = "The agent's id")),
    request_body(content = AgentSpec, description = "The members to change", content_type = "application/json"),
    responses(
        (status = 200, description = "The agent as it is now", body = AgentView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such agent"),
        BadBody,
        (status = 422, description = "The change does not fit"),
        Busy,
    )
)]
pub(super) async fn patch(
    State(api): State<Api>,
    AgentEdit { principal, id, spec }: AgentEdit,
) -> Result<axum::Json<AgentView>, Problem> {
    let changed = api.administration().change_agent(&principal, id, spec).await?;
    Ok(axum::Json(view_changed(&changed)))
}

/// Remove an agent; its keys stop working.
#[utoipa::path(
    delete, path = "/agents/{agentId}", tag = "agents", operation_id = "deleteAgent",
    params(("agentId" = String, Path, description = "The agent's id")),
    responses(
        (status = 204, description = "Gone"),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such agent"),
        Busy,
    )
)]
pub(super) async fn delete(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<AgentId>,
    _: NoBody,
) -> Result<StatusCode, Problem> {
    api.administration().remove_agent(&principal, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A replaced secret: one of the two, by its kind.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RotatedView {
    /// Signs the agent's messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    signing_secret: Option<String>,
    /// The broker signs its deliveries to the agent with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_secret: Option<String>,
    /// Until when the old one counts too, RFC 3339.
    old_valid_until: String,
}

/// How to replace a secret.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateBody {
    /// How long the old one stays valid, in seconds: a year at most.
    #[serde(default)]
    #[schema(maximum = 31_536_000)]
    overlap_seconds: Option<u64>,
}

/// Replace an agent's signing or webhook secret; the old one stays valid for a while.
#[utoipa::path(
    post, path = "/agents/{agentId}/secrets/{kind}/rotate", tag = "agents", operation_id = "rotateSecret",
    params(
        ("agentId" = String, Path, description = "The agent's id"),
        ("kind" = String, Path, description = "`signing` or `webhook`"),
    ),
    request_body(content = RotateBody, description = "How long the old secret stays valid", content_type = "application/json"),
    responses(
        (status = 200, description = "The new secret, shown this once", body = RotatedView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such agent or secret"),
        (status = 409, description = "Changed meanwhile"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn rotate_secret(
    State(api): State<Api>,
    Operator(principal): Operator,
    Ids(id, kind): Ids<AgentId, String>,
    Json(body): Json<RotateBody>,
) -> Result<axum::Json<RotatedView>, Problem> {
    let kind = match kind.as_str() {
        "signing" => SecretKind::Signing,
        "webhook" => SecretKind::Webhook,
        _ => return Err(Problem::not_found("secret")),
    };
    let rotated = api
        .administration()
        .rotate_agent_secret(&principal, id, kind, body.overlap_seconds)
        .await?;
    let secret = Some(rotated.secret.to_string());
    let old_valid_until = rotated.old_valid_until.rfc3339();
    let shown = RotatedView { old_valid_until, ..RotatedView::default() };
    Ok(axum::Json(match kind {
        SecretKind::Signing => RotatedView { signing_secret: secret, ..shown },
        SecretKind::Webhook => RotatedView { webhook_secret: secret, ..shown },
    }))
}
