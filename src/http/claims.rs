//! `GET /claims/{token}`: the body of a handoff that its transport could not carry (specification §12).

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::Api;
use super::extract::Id;
use super::problem::Problem;
use handoffd_broker::archive::ContentState;
use handoffd_broker::claim_check::ClaimCheck;
use handoffd_domain::agent::Agent;
use handoffd_domain::group;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::personal;
use handoffd_gate::sw4rm::{self, DeliveryFacts};

/// Read a handoff's body by a claim check. The link is the key: it came with the handoff, and expires.
#[utoipa::path(
    get, path = "/claims/{token}", tag = "inbox", operation_id = "readClaim", security(()),
    params(("token" = String, Path, description = "As the link has it")),
    responses(
        (status = 200, description = "The bytes that its signature covers: the message, or the request of SW4RM for a receiver that asks for that form", content_type = "application/json", body = super::views::StoredMessage),
        (status = 404, description = "The link was not made by this broker, or has expired; or the message was erased"),
    )
)]
pub(super) async fn read(
    State(api): State<Api>,
    Id(token): Id<String>,
) -> Result<Response, Problem> {
    let absent = || Problem::not_found("claim, or it has expired");
    let check = ClaimCheck::read(&token, &api.intake.vault, api.now()).ok_or_else(absent)?;
    let handoff = api
        .store
        .find_handoff(&(check.tenant.clone(), check.handoff_id))
        .await?
        .ok_or_else(absent)?;
    if handoff.status == HandoffStatus::DeadLettered {
        return Err(absent());
    }
    let agents = api.intake.directory.agents(&check.tenant).await?;
    let receiver = &agents.row(&handoff.target).ok_or_else(absent)?.agent;
    let body = sent_body(&api, &handoff, receiver).await?.ok_or_else(absent)?;
    let body = group::as_branch(body, handoff.id);
    let body = api.intake.gate.schemas.delivered(body, receiver).map_err(|_| absent())?;
    let facts = DeliveryFacts {
        receiver: handoff.target.as_str(),
        handoff_id: &handoff.id.to_string(),
        task_id: &handoff.task_id.to_string(),
        attempt: check.attempt.into(),
        fencing_token: check.fencing_token,
    };
    let body = sw4rm::in_format(receiver.delivery.format, body, &facts);
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The bytes that a receiver is sent, with the personal data to which it is entitled; `None` where they are gone.
async fn sent_body(
    api: &Api,
    handoff: &Handoff,
    receiver: &Agent,
) -> Result<Option<Bytes>, Problem> {
    let Some(content) = handoff.sent_id.or(handoff.content_id) else { return Ok(None) };
    let body: Bytes = match api.contents.find(&handoff.tenant, content).await? {
        ContentState::Whole(stored) => stored.into(),
        ContentState::Gone | ContentState::Purged => return Ok(None),
        ContentState::Unavailable(_) => return Err(Problem::archive_away()),
    };
    if !receiver.is_entitled() {
        return Ok(Some(body));
    }
    let key = (handoff.tenant.clone(), handoff.origin.unwrap_or(handoff.id));
    let data = api.store.list_personal_data(&key).await?;
    if data.is_empty() {
        return Ok(Some(body));
    }
    Ok(Some(personal::whole(&body, &data, handoff.sent_id.is_some()).into()))
}
