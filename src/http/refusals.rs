//! `/refusals`: messages that the broker refused.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Caller, Masked};
use super::extract::{Params, page_size, parameter, read_cursor, time_parameter};
use super::problem::Problem;
use super::views::Page;
use handoffd_store::store::refusals::{Finding, RefusalFilter, RefusalRow};

/// The list in its cursors.
const LIST: &str = "refusals";

/// A place at which a refused message failed. The sentence went to its sender, and is in the record's content.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusalFindingView {
    /// The stage of the gate that found it.
    stage: String,
    /// The answer code of the finding.
    code: String,
    /// JSON pointer into the message; a segment that is not a plain name is `*`.
    pointer: String,
    /// The contract's clause or the safety rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

/// A refused message: ids, codes and places. The message's own claims are shown as it claims them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusalView {
    /// UUID of the refusal.
    refusal_id: String,
    /// When it was refused, RFC 3339.
    refused_at: String,
    /// Id of the agent that submitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_agent: Option<String>,
    /// To whom, where that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_agent: Option<String>,
    /// The task that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<String>,
    /// The handoff that it would have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    handoff_id: Option<String>,
    /// The reason: a code.
    code: String,
    /// The first place with this reason: JSON pointer into the message.
    pointer: String,
    /// Everything that was found; 32 at most.
    failures: Vec<RefusalFindingView>,
}

impl From<&Finding> for RefusalFindingView {
    fn from(finding: &Finding) -> Self {
        let Finding { stage, code, pointer, rule } = finding.clone();
        Self { stage, code, pointer, rule }
    }
}

impl From<&RefusalRow> for RefusalView {
    fn from(row: &RefusalRow) -> Self {
        Self {
            refusal_id: row.id.to_string(),
            refused_at: row.created_at.rfc3339(),
            from_agent: row.source.as_ref().map(ToString::to_string),
            to_agent: row.target.as_ref().map(ToString::to_string),
            task_id: row.task_id.map(|id| id.to_string()),
            handoff_id: row.handoff_id.map(|id| id.to_string()),
            code: row.code.clone(),
            pointer: row.pointer.clone(),
            failures: row.findings.iter().map(RefusalFindingView::from).collect(),
        }
    }
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only messages of this sender.
    from_agent: Option<String>,
    /// Only messages to this receiver.
    to_agent: Option<String>,
    /// Only messages that name this task.
    task_id: Option<String>,
    /// Only for this reason: a code.
    code: Option<String>,
    /// Only where the reason was found at this JSON pointer.
    pointer: Option<String>,
    /// Only at this time or later, RFC 3339.
    from: Option<String>,
    /// Only before this time, RFC 3339.
    to: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List refused messages, newest first. An agent sees its own. Refusals are kept as long as events are.
#[utoipa::path(
    get, path = "/refusals", tag = "handoffs", operation_id = "listRefusals",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<RefusalView>),
        (status = 400, description = "A malformed parameter"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Caller(principal)): Masked<Caller>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<RefusalView>>, Problem> {
    let limit = page_size(params.limit)?;
    let source = parameter("fromAgent", params.from_agent.as_deref())?;
    let own = principal.reader().limit().cloned();
    if let (Some(own), Some(source)) = (&own, &source)
        && own != source
    {
        return Ok(axum::Json(Page::default()));
    }
    let filter = RefusalFilter {
        source: own.or(source),
        target: parameter("toAgent", params.to_agent.as_deref())?,
        task_id: parameter("taskId", params.task_id.as_deref())?,
        code: params.code,
        pointer: params.pointer,
        from: time_parameter("from", params.from.as_deref())?,
        until: time_parameter("to", params.to.as_deref())?,
    };
    let newest = async || {
        // An agent's places are those of its own list.
        let all = RefusalFilter {
            source: principal.reader().limit().cloned(),
            ..RefusalFilter::default()
        };
        let rows = api.store.list_refusals(&principal.tenant, &all, None, 1).await?;
        Ok(rows.first().map(|row| (row.created_at, row.id.to_string())))
    };
    let after = read_cursor(&api, LIST, params.cursor.as_deref(), newest).await?;
    let rows =
        api.store.list_refusals(&principal.tenant, &filter, after.as_ref(), limit + 1).await?;
    let position = |row: &RefusalRow| (row.created_at, row.id.to_string());
    Ok(axum::Json(Page::new(LIST, rows, limit, position, |row| RefusalView::from(row))))
}
