//! The transports that agents may be registered with, and a test of one agent's delivery (specification §12).

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Open, Operator};
use super::extract::{Id, NoBody};
use super::problem::Problem;
use super::withheld::marker;
use handoffd_domain::ids::AgentId;
use handoffd_domain::transport::TransportDescription;

/// The transports of this broker.
#[derive(Debug, Serialize, ToSchema)]
pub struct TransportsView {
    /// One description for each value of `delivery.mode` that this broker serves.
    items: Vec<&'static TransportDescription>,
}

/// The result of a test of a delivery.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryTestView {
    /// Whether the test reached the agent's endpoint, or its queue.
    delivered: bool,
    /// The step that was done, or the one that failed.
    detail: String,
    /// Class of the failure, as in `handoff_delivery_attempts_total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    /// JSON pointer of the agent's setting that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    /// The server's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
    /// How long it took, in milliseconds.
    duration_ms: u64,
}

/// List the transports, with the fields of their settings and credentials.
#[utoipa::path(
    get, path = "/transports", tag = "agents", operation_id = "listTransports",
    responses(
        (status = 200, description = "One description for each delivery mode", body = TransportsView),
    )
)]
pub(super) async fn list(State(api): State<Api>, _: Open<Caller>) -> axum::Json<TransportsView> {
    axum::Json(TransportsView { items: api.delivery_types.descriptions() })
}

/// Send a marked test to an agent, by the transport that its handoffs take. It is not a handoff: nothing is recorded.
#[utoipa::path(
    post, path = "/agents/{agentId}/delivery/test", tag = "agents", operation_id = "testDelivery",
    params(("agentId" = String, Path, description = "The agent's id")),
    responses(
        (status = 200, description = "The result: `delivered` is false if it failed, with the setting that is wrong and the server's answer", body = DeliveryTestView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such agent"),
    )
)]
pub(super) async fn test(
    State(api): State<Api>,
    Open(Operator(principal)): Open<Operator>,
    Id(id): Id<AgentId>,
    _: NoBody,
) -> Result<axum::Json<DeliveryTestView>, Problem> {
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let row = agents.row(&id).ok_or_else(|| Problem::not_found("agent"))?;
    let test = api.delivery_types.test(row).await;
    Ok(axum::Json(DeliveryTestView {
        delivered: test.delivered,
        detail: test.detail,
        failure: test.failure,
        field: test.field,
        answered: test
            .answered
            .map(|words| if principal.rights().reads_contents() { words } else { marker(&words) }),
        duration_ms: u64::try_from(test.took.as_millis()).unwrap_or(u64::MAX),
    }))
}
