//! `/subscriptions`: who is told of events. Operators subscribe to anything; an agent to a handoff that it sends.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::Api;
use super::auth::{Masked, Open, Participant};
use super::events::position;
use super::extract::{Id, Json, NoBody, Params, page_size, typed};
use super::problem::{BadBody, Busy, Problem, WarningView, wrong};
use super::shape::no_idle_nulls;
use super::withheld::closed_to_metadata;
use handoffd_broker::administration::subscriptions::{ChangedSubscription, NewSubscription, owns};
use handoffd_broker::vault::EndpointCredentials;
use handoffd_domain::event::{Subscriber, SubscriptionSpec};
use handoffd_domain::ids::SubscriptionId;

pub mod views;

use views::{
    EventDeliveriesView, EventDeliveryView, ProgressView, ReplayBody, RotateSubscriptionBody,
    RotatedSecretView, SubscriptionBody, SubscriptionView, SubscriptionsView,
};

fn view(api: &Api, changed: &ChangedSubscription) -> SubscriptionView {
    SubscriptionView {
        progress: changed.cursor.as_ref().map(ProgressView::from),
        warnings: changed.warnings.iter().map(WarningView::from).collect(),
        ..SubscriptionView::new(&changed.row, &api.intake.vault)
    }
}

/// Most characters of a header's value that an endpoint asks for.
pub(crate) const MAX_CREDENTIAL: usize = 4_096;

/// The credentials that the endpoint asks for, out of a body.
///
/// # Errors
/// 422 for a text that a header cannot have.
fn credentials(new: &mut SubscriptionBody) -> Result<EndpointCredentials, Problem> {
    let checked = |name: &str, value: Option<String>| match value {
        Some(text)
            if !(1..=MAX_CREDENTIAL).contains(&text.len())
                || HeaderValue::from_str(&text).is_err() =>
        {
            let why =
                format!("must be a text of 1 to {MAX_CREDENTIAL} bytes that a header can have");
            Err(wrong(&format!("/{name}"), why))
        }
        value => Ok(value),
    };
    Ok(EndpointCredentials {
        authorization: checked("authorization", new.authorization.take())?,
        token: checked("token", new.token.take())?,
    })
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
    Json(mut new): Json<SubscriptionBody>,
) -> Result<(StatusCode, axum::Json<SubscriptionView>), Problem> {
    let credentials = credentials(&mut new)?;
    let from = match new.since.take() {
        None => None,
        Some(since) => Some(position(&api, &principal.tenant, &since).await?),
    };
    let subscription = new.spec().make().map_err(|(pointer, why)| wrong(&pointer, why))?;
    let new = NewSubscription { subscription, credentials, from };
    let (made, secret) = api.administration().subscribe(&principal, new).await?;
    let view = SubscriptionView { secret: Some(secret.to_string()), ..view(&api, &made) };
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
    let administration = api.administration();
    let row = administration.subscription(&principal, id).await?;
    let found = administration.with_cursor(row, Vec::new()).await?;
    Ok(axum::Json(view(&api, &found)))
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
    no_idle_nulls::<SubscriptionSpec>("", &patch)?;
    let spec: SubscriptionSpec = typed(patch.into())?;
    let switch = SubscriptionSpec { enabled: spec.enabled, ..SubscriptionSpec::default() };
    if !principal.rights().reads_contents() && spec != switch {
        return Err(closed_to_metadata());
    }
    let changed = api.administration().change_subscription(&principal, id, spec).await?;
    Ok(axum::Json(view(&api, &changed)))
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
    api.administration().unsubscribe(&principal, id).await?;
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
    let rotated = api
        .administration()
        .rotate_subscription_secret(&principal, id, body.overlap_seconds)
        .await?;
    Ok(axum::Json(RotatedSecretView {
        old_valid_until: rotated.old_valid_until.rfc3339(),
        secret: rotated.secret.to_string(),
    }))
}

/// Send a subscription again the events since a cursor or a time, as far as they are kept.
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
    let administration = api.administration();
    administration.subscription(&principal, id).await?;
    let to = position(&api, &principal.tenant, &body.since).await?;
    let replayed = administration.replay_events(&principal, id, to).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(view(&api, &replayed))))
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
    api.administration().subscription(&principal, id).await?;
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
