//! `GET /tasks/{taskId}/why`: why a task does not go on.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Auditor, Masked};
use super::extract::Id;
use super::open;
use super::problem::{Busy, Problem};
use super::tasks::find;
use super::withheld::hide_words;
use handoffd_broker::why;
use handoffd_domain::ids::TaskId;
use handoffd_domain::why::{Awaited, NextEvent, Remedy, Wait, WaitCause};

/// Who ends a wait.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AwaitedKind {
    /// An agent, named by `awaitedAgentId`.
    Agent,
    /// An operator or another person.
    Person,
    /// The broker, by itself.
    Broker,
    /// The task has ended.
    Nobody,
}

/// An event that comes without a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextEventView {
    /// When it comes, RFC 3339.
    pub at: String,
    /// The event in words.
    pub event: String,
}

/// A request that ends a wait.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemedyView {
    /// Its effect, in words.
    pub effect: String,
    /// The same by the command line.
    pub command: String,
    /// Method and path of the API.
    pub request: String,
}

/// One reason why a task does not go on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitView {
    /// The reason as a code.
    pub cause: WaitCause,
    /// The reason in one sentence.
    pub sentence: String,
    /// Who ends the wait.
    pub awaited: AwaitedKind,
    /// The agent that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaited_agent_id: Option<String>,
    /// When the wait began, RFC 3339.
    pub since: String,
    /// The handoff that waits, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<String>,
    /// Attempts at its delivery begun so far.
    pub attempts: i32,
    /// Why the last attempt failed, or the handoff ended: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The next event that comes without a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextEventView>,
    /// Requests that end the wait; an operator's key may make them.
    pub remedies: Vec<RemedyView>,
}

/// Why a task does not go on.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyView {
    /// UUID of the task.
    pub task_id: String,
    /// Its status.
    #[schema(value_type = open::TaskStatus)]
    pub status: String,
    /// The first reason's sentence.
    pub sentence: String,
    /// All reasons, the most urgent one first; at least one.
    pub waits: Vec<WaitView>,
}

impl From<NextEvent> for NextEventView {
    fn from(NextEvent { at, event }: NextEvent) -> Self {
        Self { at: at.rfc3339(), event: event.to_owned() }
    }
}

impl From<Remedy> for RemedyView {
    fn from(Remedy { effect, command, request }: Remedy) -> Self {
        Self { effect: effect.to_owned(), command, request }
    }
}

impl From<Wait> for WaitView {
    fn from(wait: Wait) -> Self {
        let (awaited, agent) = match wait.awaited {
            Awaited::Agent(id) => (AwaitedKind::Agent, Some(id.to_string())),
            Awaited::Person => (AwaitedKind::Person, None),
            Awaited::Broker => (AwaitedKind::Broker, None),
            Awaited::Nobody => (AwaitedKind::Nobody, None),
        };
        Self {
            cause: wait.cause,
            sentence: wait.sentence,
            awaited,
            awaited_agent_id: agent,
            since: wait.since.rfc3339(),
            handoff_id: wait.handoff.map(|id| id.to_string()),
            attempts: wait.attempts,
            last_error: wait.last_error,
            next: wait.next.map(NextEventView::from),
            remedies: wait.remedies.into_iter().map(RemedyView::from).collect(),
        }
    }
}

/// Why a task does not go on: who it waits for, since when, what was tried, what comes next, and what ends the wait.
#[utoipa::path(
    get, path = "/tasks/{taskId}/why", tag = "tasks", operation_id = "explainTask",
    params(("taskId" = String, Path, description = "The task's UUID")),
    responses(
        (status = 200, description = "The reasons, the most urgent one first", body = WhyView),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such task"),
        Busy,
    )
)]
pub(super) async fn explain(
    State(api): State<Api>,
    Masked(Auditor(principal)): Masked<Auditor>,
    Id(id): Id<TaskId>,
) -> Result<axum::Json<WhyView>, Problem> {
    let task = find(&api, &principal, id).await?;
    let agents = api.intake.directory.agents(&principal.tenant).await?;
    let mut waits = why::waits(&api.store, &agents, &task, api.now()).await?;
    if !principal.rights().reads_contents() {
        for wait in &mut waits {
            hide_words(&mut wait.sentence, &mut wait.last_error);
        }
    }
    let waits: Vec<WaitView> = waits.into_iter().map(WaitView::from).collect();
    Ok(axum::Json(WhyView {
        task_id: id.to_string(),
        status: task.status.as_str().to_owned(),
        sentence: waits.first().map(|wait| wait.sentence.clone()).unwrap_or_default(),
        waits,
    }))
}
