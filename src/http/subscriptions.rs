//! `/subscriptions`: who is told of events. Operators subscribe to anything; an agent to a handoff that it sends.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::Api;
use super::agents::{overlap, refused_endpoint};
use super::auth::{Masked, Open, Participant, closed_to_metadata};
use super::events::position;
use super::extract::{Id, Json, NoBody, Params, page_size, typed};
use super::groups;
use super::handoffs;
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use super::shape::no_idle_nulls;
use handoffd_broker::directory::Principal;
use handoffd_broker::ledger::command::content;
use handoffd_broker::ledger::commands::{
    ChangeSubscription, CreateSubscription, SubscriptionChange,
};
use handoffd_broker::vault::{AgentSecrets, EndpointCredentials, SecretKind};
use handoffd_core::domain::canonical;
use handoffd_core::domain::event::{Position, Subscriber, Subscription, SubscriptionSpec};
use handoffd_core::domain::failure::{Code, Failure, Stage};
use handoffd_core::domain::ids::{AgentId, Micros, SubscriptionId, TenantId};
use handoffd_core::domain::residency::CrossingParty;
use handoffd_core::domain::warning::{Warning, WarningCode};
use handoffd_core::evidence::record::RecordContent;
use handoffd_store::clock;
use handoffd_store::store::events::{CursorKey, SubscriptionRow};

pub mod views;

use views::{
    EventDeliveriesView, EventDeliveryView, ProgressView, ReplayBody, RotateSubscriptionBody,
    RotatedSecretView, SubscriptionBody, SubscriptionView, SubscriptionsView,
};

/// Longest wait of a replay for the cursor of events that are under way, which is written at least every 250 ms.
const CURSOR_WAIT: Duration = Duration::from_secs(5);
/// Pause between two looks at that cursor.
const CURSOR_LOOK: Duration = Duration::from_millis(20);

/// The warning on a subscriber in another region; a refusal where the policy refuses it.
fn crossed(api: &Api, subscription: &Subscription) -> Result<Option<Warning>, Problem> {
    let residency = api.config.residency.rules();
    let basis = subscription.transfer_basis.as_deref();
    let crossing = residency.crossing(CrossingParty::Receiver, subscription.region, basis);
    if let Some(crossing) = crossing.as_ref().filter(|one| residency.refuses(one)) {
        let why = format!("{crossing}: refused");
        let failure = Failure::new(Stage::Route, Code::Forbidden, "/region", why);
        return Err(Problem::refusal(vec![failure], false));
    }
    Ok(crossing.map(|crossing| {
        let said = format!("{crossing}; the record of this change says so");
        Warning::new(WarningCode::ResidencyCrossing, "/region", said)
    }))
}

fn sealing<E>(_: E) -> Problem {
    Problem::new(Code::Internal, "a secret could not be sealed")
}

/// The content to which the record of a change commits.
fn said(id: SubscriptionId, what: &Value, now: Micros) -> RecordContent {
    let said = json!({ "subscriptionId": id.to_string(), "change": what });
    content(&canonical::to_vec(&said), now)
}

async fn changed(
    api: &Api,
    principal: &Principal,
    id: SubscriptionId,
    change: SubscriptionChange,
    what: &Value,
) -> Result<SubscriptionView, Problem> {
    let content = said(id, what, api.now());
    let change = ChangeSubscription { id, change, content };
    let changed = api.carry_out(principal, api.now(), change).await?;
    // It may be told at once: its line is no longer held, or it stands elsewhere.
    api.intake.ledger.look_for_events();
    let row = changed.ok_or_else(|| Problem::not_found("subscription"))?;
    shown(api, &row).await
}

async fn shown(api: &Api, row: &SubscriptionRow) -> Result<SubscriptionView, Problem> {
    let key = (row.tenant.clone(), Subscriber::Subscription(row.id));
    let mut view = SubscriptionView::new(row, &api.intake.vault);
    view.progress = api.store.find_cursor(&key).await?.as_ref().map(ProgressView::from);
    Ok(view)
}

/// Names a filter by an agent that is not registered: no event concerns it.
async fn filtered_by_nobody(
    api: &Api,
    tenant: &TenantId,
    subscription: &Subscription,
) -> Result<Option<Warning>, Problem> {
    let Some(agent) = &subscription.filter.agent_id else { return Ok(None) };
    let agents = api.intake.directory.agents(tenant).await?;
    let why =
        "names nobody; the subscription stands, and is told nothing until such an agent exists";
    let unknown = agents.row(agent).is_none();
    Ok(unknown.then(|| Warning::new(WarningCode::UnknownAgent, "/filter/agentId", why)))
}

/// The view of a changed subscription, with its warnings.
fn warned(api: &Api, view: SubscriptionView, others: &[Option<Warning>]) -> SubscriptionView {
    let warnings = refused_endpoint(api, "/url", &view.url);
    let warnings = warnings.iter().chain(others.iter().flatten());
    SubscriptionView { warnings: warnings.map(WarningView::from).collect(), ..view }
}

async fn find(
    api: &Api,
    principal: &Principal,
    id: SubscriptionId,
) -> Result<SubscriptionRow, Problem> {
    let found = api.store.find_subscription(&(principal.tenant.clone(), id)).await?;
    found.filter(|row| owns(principal, row)).ok_or_else(|| Problem::not_found("subscription"))
}

/// Whether a subscription is the caller's: operators see all, an agent sees its own.
fn owns(principal: &Principal, row: &SubscriptionRow) -> bool {
    principal.reader().sees_all()
        || (principal.agent.is_some() && row.subscription.owner == principal.agent)
}

/// Most subscriptions of one agent.
pub(crate) const MAX_OWN: usize = 200;
/// Most characters of a header's value that an endpoint asks for.
pub(crate) const MAX_CREDENTIAL: usize = 4_096;

/// The owner of a new subscription; a refusal where an agent may not subscribe to that.
async fn owner_of(
    api: &Api,
    principal: &Principal,
    subscription: &Subscription,
) -> Result<Option<AgentId>, Problem> {
    let Some(agent) = principal.agent.clone().filter(|_| !principal.rights().operates()) else {
        return Ok(None);
    };
    let filter = &subscription.filter;
    let Some(handoff) = filter.handoff_id else {
        let why = "an agent subscribes to one handoff that it sends: filter.handoffId names it";
        return Err(Problem::new(Code::Forbidden, why));
    };
    match handoffs::find(api, principal, handoff).await {
        Ok(sent) if sent.source == agent => {}
        Ok(_) => {
            let why = "an agent subscribes to handoffs that it sends";
            return Err(Problem::new(Code::Forbidden, why));
        }
        // A group is seen by its sender alone.
        Err(_) if groups::sees(api, principal, handoff).await? => {}
        Err(problem) => return Err(problem),
    }
    // No operator will open the way for it.
    if let Some(why) = (api.endpoints)(&subscription.url) {
        return Err(wrong("/url", why));
    }
    let rows = api.store.list_subscriptions(&principal.tenant).await?;
    let own = rows.iter().filter(|row| row.subscription.owner.as_ref() == Some(&agent)).count();
    if own >= MAX_OWN {
        let why = format!("an agent may have {MAX_OWN} subscriptions: delete some first");
        return Err(Problem::new(Code::Conflict, why));
    }
    Ok(Some(agent))
}

/// Takes what the endpoint asks for out of a body, where it can stand in a header.
fn credentials(new: &mut serde_json::Map<String, Value>) -> Result<EndpointCredentials, Problem> {
    let mut take = |name: &str| match new.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text))
            if (1..=MAX_CREDENTIAL).contains(&text.len())
                && HeaderValue::from_str(&text).is_ok() =>
        {
            Ok(Some(text))
        }
        Some(_) => {
            let why =
                format!("must be a text of 1 to {MAX_CREDENTIAL} bytes that a header can have");
            Err(wrong(&format!("/{name}"), why))
        }
    };
    Ok(EndpointCredentials { authorization: take("authorization")?, token: take("token")? })
}

/// Subscribe to events. They are posted, signed after Standard Webhooks, from this moment on, or from `since` on.
#[utoipa::path(
    post, path = "/subscriptions", tag = "events", operation_id = "createSubscription",
    request_body(content = SubscriptionBody, description = "`url` is needed", content_type = "application/json"),
    responses(
        (status = 201, description = "The subscription, with its secret, shown this once", body = SubscriptionView),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        BadBody,
        (status = 422, description = "The subscription does not fit"),
        Busy,
    )
)]
pub(super) async fn create(
    State(api): State<Api>,
    Participant(principal): Participant,
    Json(mut new): Json<serde_json::Map<String, Value>>,
) -> Result<(StatusCode, axum::Json<SubscriptionView>), Problem> {
    let credentials = credentials(&mut new)?;
    let from = match new.remove("since") {
        None | Some(Value::Null) => None,
        Some(Value::String(since)) => Some(position(&api, &principal.tenant, &since).await?),
        Some(_) => return Err(wrong("/since", "must be a cursor of the feed or an RFC 3339 time")),
    };
    let spec: SubscriptionSpec = typed(Value::Object(new))?;
    let mut subscription = spec.make().map_err(|(pointer, why)| wrong(&pointer, why))?;
    subscription.owner = owner_of(&api, &principal, &subscription).await?;
    let others = [
        filtered_by_nobody(&api, &principal.tenant, &subscription).await?,
        crossed(&api, &subscription)?,
    ];
    let now = api.now();
    let id = SubscriptionId(clock::time_ordered_id(now));
    let (owner, kind) = (Subscriber::Subscription(id), SecretKind::Webhook);
    let mut secrets = AgentSecrets::default();
    let secret =
        secrets.rotate(&api.intake.vault, &principal.tenant, &owner, kind, now).map_err(sealing)?;
    if credentials != EndpointCredentials::default() {
        secrets
            .keep_credentials(&api.intake.vault, &principal.tenant, &owner, &credentials)
            .map_err(sealing)?;
    }
    let mut what = json!({ "created": subscription });
    if let Some(from) = from {
        what["since"] = from.to_string().into();
    }
    let content = said(id, &what, now);
    let row = SubscriptionRow {
        tenant: principal.tenant.clone(),
        id,
        subscription,
        secrets: secrets.to_text(),
        created_at: now,
        updated_at: now,
    };
    let create = CreateSubscription { row, from, content };
    let row = api.carry_out(&principal, api.now(), create).await?;
    let mut view = warned(&api, shown(&api, &row).await?, &others);
    view.secret = Some(secret.to_string());
    Ok((StatusCode::CREATED, axum::Json(view)))
}

/// List the tenant's subscriptions, without their secrets.
#[utoipa::path(
    get, path = "/subscriptions", tag = "events", operation_id = "listSubscriptions",
    responses(
        (status = 200, description = "The subscriptions", body = SubscriptionsView),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Open(Participant(principal)): Open<Participant>,
) -> Result<axum::Json<SubscriptionsView>, Problem> {
    let rows = api.store.list_subscriptions(&principal.tenant).await?;
    let own = rows.iter().filter(|row| owns(&principal, row));
    let items = own.map(|row| SubscriptionView::new(row, &api.intake.vault)).collect();
    Ok(axum::Json(SubscriptionsView { items }))
}

/// Read one subscription, and how far it has been told.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}", tag = "events", operation_id = "getSubscription",
    params(("subscriptionId" = String, Path, description = "The subscription's UUID")),
    responses(
        (status = 200, description = "The subscription", body = SubscriptionView),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        (status = 404, description = "No such subscription"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Open(Participant(principal)): Open<Participant>,
    Id(id): Id<SubscriptionId>,
) -> Result<axum::Json<SubscriptionView>, Problem> {
    let row = find(&api, &principal, id).await?;
    shown(&api, &row).await.map(axum::Json)
}

/// Change a subscription: absent members stay; `enabled: true` switches it on again.
#[utoipa::path(
    patch, path = "/subscriptions/{subscriptionId}", tag = "events", operation_id = "changeSubscription",
    params(("subscriptionId" = String, Path, description = "The subscription's UUID")),
    request_body(content = SubscriptionBody, description = "As on creation, each member optional", content_type = "application/json"),
    responses(
        (status = 200, description = "The subscription as it is now", body = SubscriptionView),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        (status = 404, description = "No such subscription"),
        BadBody,
        (status = 422, description = "The change does not fit"),
        Busy,
    )
)]
pub(super) async fn patch(
    State(api): State<Api>,
    Open(Participant(principal)): Open<Participant>,
    Id(id): Id<SubscriptionId>,
    Json(patch): Json<serde_json::Map<String, Value>>,
) -> Result<axum::Json<SubscriptionView>, Problem> {
    no_idle_nulls::<SubscriptionSpec>(&patch)?;
    let spec: SubscriptionSpec = typed(patch.into())?;
    let switch = SubscriptionSpec { enabled: spec.enabled, ..SubscriptionSpec::default() };
    if !principal.rights().reads_contents() && spec != switch {
        return Err(closed_to_metadata());
    }
    let row = find(&api, &principal, id).await?;
    let next = spec.apply(&row.subscription).map_err(|(pointer, why)| wrong(&pointer, why))?;
    if !principal.reader().sees_all() {
        // Another address and another handoff are another subscription.
        if next.url != row.subscription.url
            || next.filter.handoff_id != row.subscription.filter.handoff_id
        {
            let why = "an agent's subscription keeps its url and its handoff: make another";
            return Err(Problem::new(Code::Forbidden, why));
        }
    }
    let others = [filtered_by_nobody(&api, &principal.tenant, &next).await?, crossed(&api, &next)?];
    let what = json!({ "updated": next });
    let change = SubscriptionChange::Patch(Box::new(spec));
    let view = changed(&api, &principal, id, change, &what).await?;
    Ok(axum::Json(warned(&api, view, &others)))
}

/// End a subscription.
#[utoipa::path(
    delete, path = "/subscriptions/{subscriptionId}", tag = "events", operation_id = "deleteSubscription",
    params(("subscriptionId" = String, Path, description = "The subscription's UUID")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        (status = 404, description = "No such subscription"),
        Busy,
    )
)]
pub(super) async fn delete(
    State(api): State<Api>,
    Participant(principal): Participant,
    Id(id): Id<SubscriptionId>,
    _: NoBody,
) -> Result<StatusCode, Problem> {
    find(&api, &principal, id).await?;
    let content = said(id, &json!("deleted"), api.now());
    let change = ChangeSubscription { id, change: SubscriptionChange::Delete, content };
    api.carry_out(&principal, api.now(), change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replace a subscription's secret; deliveries carry both signatures for a while.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/secret/rotate", tag = "events", operation_id = "rotateSubscriptionSecret",
    params(("subscriptionId" = String, Path, description = "The subscription's UUID")),
    request_body(content = RotateSubscriptionBody, content_type = "application/json"),
    responses(
        (status = 200, description = "The secret, shown this once", body = RotatedSecretView),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        (status = 404, description = "No such subscription"),
        (status = 409, description = "Changed meanwhile"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn rotate_secret(
    State(api): State<Api>,
    Participant(principal): Participant,
    Id(id): Id<SubscriptionId>,
    Json(body): Json<RotateSubscriptionBody>,
) -> Result<axum::Json<RotatedSecretView>, Problem> {
    let row = find(&api, &principal, id).await?;
    let overlap = overlap(&api, body.overlap_seconds)?;
    let until = api.now().plus(overlap);
    let (owner, kind) = (Subscriber::Subscription(id), SecretKind::Webhook);
    let mut secrets = AgentSecrets::parse(&row.secrets);
    let secret = secrets
        .rotate(&api.intake.vault, &principal.tenant, &owner, kind, until)
        .map_err(sealing)?;
    let change = SubscriptionChange::Secrets { from: row.secrets, to: secrets.to_text() };
    changed(&api, &principal, id, change, &json!("secret rotated")).await?;
    Ok(axum::Json(RotatedSecretView {
        old_valid_until: until.rfc3339(),
        secret: secret.to_string(),
    }))
}

/// Tell a subscription again of what happened since a cursor or a time, as far as it is kept.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/replay", tag = "events", operation_id = "replaySubscription",
    params(("subscriptionId" = String, Path, description = "The subscription's UUID")),
    request_body(content = ReplayBody, content_type = "application/json"),
    responses(
        (status = 202, description = "The subscription; it is told from there on, in order", body = SubscriptionView),
        (status = 400, description = "`since` is neither a cursor that the feed has come to, nor a time"),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        (status = 404, description = "No such subscription"),
        (status = 422, description = "The body does not fit, or `since` is ahead of the subscription's cursor"),
        Busy,
    )
)]
pub(super) async fn replay(
    State(api): State<Api>,
    Participant(principal): Participant,
    Id(id): Id<SubscriptionId>,
    Json(body): Json<ReplayBody>,
) -> Result<(StatusCode, axum::Json<SubscriptionView>), Problem> {
    find(&api, &principal, id).await?;
    let to: Position = position(&api, &principal.tenant, &body.since).await?;
    let key = (principal.tenant.clone(), Subscriber::Subscription(id));
    if !told(&api, &key, to).await? {
        return Err(wrong(
            "/since",
            "is ahead of what the subscription was told: a replay goes back",
        ));
    }
    let what = json!({ "replayedFrom": to.to_string() });
    let change = SubscriptionChange::Replay(to);
    let view = changed(&api, &principal, id, change, &what).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(view)))
}

/// Whether a subscription was told of the events up to a position. While events are under way the cursor follows what
/// the endpoint has answered a moment later, so an endpoint that asks at once for what it has just heard waits for it.
async fn told(api: &Api, key: &CursorKey, to: Position) -> Result<bool, Problem> {
    let began = tokio::time::Instant::now();
    loop {
        let Some(cursor) = api.store.find_cursor(key).await? else {
            return Ok(true);
        };
        if cursor.position >= to {
            return Ok(true);
        }
        if cursor.lease_until <= api.now() || began.elapsed() >= CURSOR_WAIT {
            return Ok(false);
        }
        tokio::time::sleep(CURSOR_LOOK).await;
    }
}

/// Query of the attempts.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeliveriesParams {
    /// Only attempts with a lower number: the last one of the page before.
    before: Option<i64>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// The last attempts at telling a subscription, newest first.
#[utoipa::path(
    get, path = "/subscriptions/{subscriptionId}/deliveries", tag = "events", operation_id = "listSubscriptionDeliveries",
    params(("subscriptionId" = String, Path, description = "The subscription's UUID"), DeliveriesParams),
    responses(
        (status = 200, description = "One page", body = EventDeliveriesView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An auditor, or not the agent's to subscribe to"),
        (status = 404, description = "No such subscription"),
    )
)]
pub(super) async fn deliveries(
    State(api): State<Api>,
    Masked(Participant(principal)): Masked<Participant>,
    Id(id): Id<SubscriptionId>,
    Params(params): Params<DeliveriesParams>,
) -> Result<axum::Json<EventDeliveriesView>, Problem> {
    let limit = page_size(params.limit)?;
    find(&api, &principal, id).await?;
    let key = (principal.tenant.clone(), Subscriber::Subscription(id));
    if let Some(before) = params.before {
        let newest = api.store.list_event_deliveries(&key, None, 1).await?;
        let next = newest.first().map_or(1, |row| row.number + 1);
        if before > next {
            return Err(Problem::ahead("before", next));
        }
    }
    let rows = api.store.list_event_deliveries(&key, params.before, limit).await?;
    let items = rows.into_iter().map(EventDeliveryView::from).collect();
    Ok(axum::Json(EventDeliveriesView { items }))
}
