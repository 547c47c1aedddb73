//! `GET /attention`: all that waits for a person or another agent.

use std::time::Duration;

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Masked};
use super::extract::{Params, bad_cursor, of_list, page_size, parameter, plain_cursor};
use super::open;
use super::problem::{Busy, Problem};
use super::why::{NextEventView, RemedyView};
use super::withheld::hide_words;
use handoffd_broker::attention::{self, BrokerSituation};
use handoffd_domain::attention::{Attention, AttentionKind, Place, Severity};
use handoffd_domain::ids::{AgentId, Micros};

/// The list in its cursors.
const LIST: &str = "attention";

/// One cause, with all that it holds up.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttentionView {
    /// The cause as a code.
    pub kind: AttentionKind,
    /// How soon a person should look.
    #[schema(value_type = open::AttentionSeverity)]
    pub severity: Severity,
    /// The cause in one sentence.
    pub sentence: String,
    /// When the oldest wait began, RFC 3339.
    pub since: String,
    /// Handoffs, tasks or decisions that the item covers; 0 for an endpoint, a cap or a subscription by itself.
    pub count: i64,
    /// Most attempts that ended at one of the deliveries.
    pub attempts: i32,
    /// Why the last attempt failed, or the reason of a decision: a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The next event that comes without a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextEventView>,
    /// The agent that is waited for, or whose messages wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// UUID of the oldest task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// UUID of the oldest handoff.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoff_id: Option<String>,
    /// UUID of the oldest dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_id: Option<String>,
    /// UUID of the oldest escalation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub escalation_id: Option<String>,
    /// UUID of the subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<String>,
    /// Requests that end the wait; an operator's key may make them.
    pub remedies: Vec<RemedyView>,
}

impl From<Attention> for AttentionView {
    fn from(item: Attention) -> Self {
        Self {
            kind: item.kind,
            severity: item.severity,
            sentence: item.sentence,
            since: item.since.rfc3339(),
            count: item.count,
            attempts: item.attempts,
            last_error: item.last_error,
            next: item.next.map(NextEventView::from),
            agent_id: item.agent.map(|id| id.to_string()),
            task_id: item.task.map(|id| id.to_string()),
            handoff_id: item.handoff.map(|id| id.to_string()),
            dead_letter_id: item.dead_letter.map(|id| id.to_string()),
            escalation_id: item.escalation.map(|id| id.to_string()),
            subscription_id: item.subscription.map(|id| id.to_string()),
            remedies: item.remedies.into_iter().map(RemedyView::from).collect(),
        }
    }
}

/// Items by severity, on all pages.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeverityCounts {
    pub critical: usize,
    pub warning: usize,
    pub notice: usize,
}

/// One page of the items that need attention.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttentionPageView {
    /// Time of the look, RFC 3339.
    pub at: String,
    pub counts: SeverityCounts,
    /// The most urgent first, of equal urgency the oldest first.
    pub items: Vec<AttentionView>,
    /// Continues the list; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AttentionParams {
    /// Only what waits for this agent, or its messages.
    agent_id: Option<String>,
    /// Only items of this kind.
    kind: Option<String>,
    /// Only items of this severity: `critical`, `warning` or `notice`.
    severity: Option<String>,
    /// Only items whose oldest wait is at least this old, in milliseconds.
    #[param(minimum = 0)]
    min_age_ms: Option<i64>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Items a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List what waits for a person or another agent, as the state tells it now. Handoffs and tasks with one cause are one item.
#[utoipa::path(
    get, path = "/attention", tag = "tasks", operation_id = "listAttention",
    params(AttentionParams),
    responses(
        (status = 200, description = "One page", body = AttentionPageView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
        Busy,
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Auditor(principal)): Masked<Auditor>,
    Params(params): Params<AttentionParams>,
) -> Result<axum::Json<AttentionPageView>, Problem> {
    let limit = page_size(params.limit)?;
    let agent: Option<AgentId> = parameter("agentId", params.agent_id.as_deref())?;
    let kind: Option<AttentionKind> = word("kind", params.kind)?;
    let severity: Option<Severity> = word("severity", params.severity)?;
    let after = params.cursor.as_deref().map(read_place).transpose()?;
    let (tenant, now) = (&principal.tenant, api.now());
    let agents = api.intake.directory.agents(tenant).await?;
    let mut items = attention::items(&api.store, &agents, tenant, &situation(&api), now).await?;
    if !principal.rights().reads_contents() {
        for item in &mut items {
            hide_words(&mut item.sentence, &mut item.last_error);
        }
    }
    let latest = Micros(now.0.saturating_sub(params.min_age_ms.unwrap_or(0).saturating_mul(1_000)));
    items.retain(|item| {
        agent.as_ref().is_none_or(|agent| item.is_about(agent))
            && kind.is_none_or(|kind| item.kind == kind)
            && severity.is_none_or(|severity| item.severity == severity)
            && item.since <= latest
    });
    let counts = counts(&items);
    items.retain(|item| after.as_ref().is_none_or(|after| item.place() > *after));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    Ok(axum::Json(AttentionPageView {
        at: now.rfc3339(),
        counts,
        next_cursor: items.last().filter(|_| more).map(|item| write_place(&item.place())),
        items: items.into_iter().map(AttentionView::from).collect(),
    }))
}

fn situation(api: &Api) -> BrokerSituation<'_> {
    BrokerSituation {
        broker: &api.broker,
        defaults: &api.intake.rules.caps,
        published: &api.published,
        publish_every: Duration::from_secs(api.config.audit.publish_interval_s),
    }
}

/// A query parameter as one of a list of words.
fn word<T: DeserializeOwned>(name: &str, text: Option<String>) -> Result<Option<T>, Problem> {
    let read = |text| serde_json::from_value(serde_json::Value::String(text));
    let malformed = |_| Problem::invalid(format!("{name} is malformed"));
    text.map(read).transpose().map_err(malformed)
}

fn counts(items: &[Attention]) -> SeverityCounts {
    let mut counts = SeverityCounts::default();
    for item in items {
        match item.severity {
            Severity::Critical => counts.critical += 1,
            Severity::Warning => counts.warning += 1,
            Severity::Notice => counts.notice += 1,
        }
    }
    counts
}

/// A place in the list as a cursor.
fn write_place(place: &Place) -> String {
    let text = serde_json::to_string(&(place.severity, place.since.0, &place.text));
    URL_SAFE_NO_PAD.encode(format!("{LIST}:{}", text.unwrap_or_default()))
}

fn read_place(cursor: &str) -> Result<Place, Problem> {
    let plain = plain_cursor(cursor)?;
    let (severity, since, text) =
        serde_json::from_str(of_list(LIST, &plain)?).map_err(|_| bad_cursor())?;
    Ok(Place { severity, since: Micros(since), text })
}
