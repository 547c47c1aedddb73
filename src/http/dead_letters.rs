//! `/dead-letters`: handoffs kept from delivery until a person decides.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Masked, Open, Operator, forbidden};
use super::escalations::reason_of;
use super::explanation::{ExplanationView, explained};
use super::extract::{Id, Json, Params, page_size, parameter, read_cursor, time_parameter};
use super::open;
use super::problem::{BadBody, Busy, FailureView, Problem, view, wrong};
use super::views::Page;
use super::withheld::closed_to_metadata;
use handoffd_broker::dead_letters::{
    BulkDecision, BulkOutcome, DeadLetterDesk, DeadLetterSelection, MAX_BULK,
};
use handoffd_broker::directory::Principal;
use handoffd_broker::intake::Appeal;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::ids::{AgentId, HandoffId, Micros};
use handoffd_store::store::{DeadLetterFilter, DeadLetterRow};

/// The list in its cursors.
const LIST: &str = "dead-letters";

/// A dead letter: a handoff kept for a person.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterView {
    /// The handoff's id, and the dead letter's.
    pub handoff_id: String,
    /// UUID of the handoff's task.
    pub task_id: String,
    /// Id of the agent that sent it.
    pub from_agent: String,
    /// To whom, where that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_agent: Option<String>,
    /// Code of the primary reason: an error's, or the end of the handoff that had no decision in time.
    pub reason: String,
    /// Everything that the gate found.
    pub failures: Vec<FailureView>,
    /// `OPEN`, `RELEASED` or `DISCARDED`.
    #[schema(value_type = open::DeadLetterStatus)]
    pub status: String,
    /// When it was kept, RFC 3339.
    pub created_at: String,
    /// When it was decided on, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<String>,
    /// By whom: a key's id. The words are with the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<String>,
    /// The message; only on the dead letter's own page. It may carry an attack: show it as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<super::views::StoredMessage>)]
    pub message: Option<Value>,
    /// Why the safety rules refuse it, where `explain` asks; computed anew each time and kept nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Box<ExplanationView>>,
}

impl From<&DeadLetterRow> for DeadLetterView {
    fn from(row: &DeadLetterRow) -> Self {
        Self {
            handoff_id: row.handoff_id.to_string(),
            task_id: row.task_id.to_string(),
            from_agent: row.source.to_string(),
            to_agent: row.target.as_ref().map(ToString::to_string),
            reason: row.reason.clone(),
            failures: row.failures.iter().map(view).collect(),
            status: row.status.as_str().to_owned(),
            created_at: row.created_at.rfc3339(),
            resolved_at: row.resolved_at.map(Micros::rfc3339),
            resolved_by: row.resolved_by.clone(),
            message: None,
            explanation: None,
        }
    }
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// `OPEN`, `RELEASED` or `DISCARDED`.
    status: Option<String>,
    /// Only of this task.
    task_id: Option<String>,
    /// With this primary reason.
    reason: Option<String>,
    /// Only from this sender.
    from_agent: Option<String>,
    /// Only to this receiver.
    to_agent: Option<String>,
    /// Only kept at this time or later, RFC 3339.
    from: Option<String>,
    /// Only kept before this time, RFC 3339.
    to: Option<String>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// List dead letters, newest first.
#[utoipa::path(
    get, path = "/dead-letters", tag = "dead letters", operation_id = "listDeadLetters",
    params(ListParams),
    responses(
        (status = 200, description = "One page", body = Page<DeadLetterView>),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key"),
    )
)]
pub(super) async fn list(
    State(api): State<Api>,
    Masked(Auditor(principal)): Masked<Auditor>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<Page<DeadLetterView>>, Problem> {
    let limit = page_size(params.limit)?;
    let status = |text: &str| {
        DeadLetterStatus::parse(text)
            .ok_or_else(|| Problem::invalid("status can be: OPEN, RELEASED, DISCARDED"))
    };
    let filter = DeadLetterFilter {
        status: params.status.as_deref().map(status).transpose()?,
        task_id: parameter("taskId", params.task_id.as_deref())?,
        reason: params.reason,
        source: parameter("fromAgent", params.from_agent.as_deref())?,
        target: parameter("toAgent", params.to_agent.as_deref())?,
        from: time_parameter("from", params.from.as_deref())?,
        until: time_parameter("to", params.to.as_deref())?,
    };
    let newest = async || {
        let all = DeadLetterFilter::default();
        let rows = api.store.list_dead_letters(&principal.tenant, &all, None, 1).await?;
        Ok(rows.first().map(|row| (row.created_at, row.handoff_id.to_string())))
    };
    let after = read_cursor(&api, LIST, params.cursor.as_deref(), newest).await?;
    let rows =
        api.store.list_dead_letters(&principal.tenant, &filter, after.as_ref(), limit + 1).await?;
    Ok(axum::Json(Page::new(
        LIST,
        rows,
        limit,
        |row| (row.created_at, row.handoff_id.to_string()),
        |row| DeadLetterView::from(row),
    )))
}

/// Query of one.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainParams {
    /// `true` adds why the safety rules refuse it, in words of the message; operators and admins only.
    explain: Option<bool>,
}

/// Read one dead letter with its message.
#[utoipa::path(
    get, path = "/dead-letters/{handoffId}", tag = "dead letters", operation_id = "getDeadLetter",
    params(("handoffId" = String, Path, description = "The handoff's UUID"), ExplainParams),
    responses(
        (status = 200, description = "The dead letter", body = DeadLetterView),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "An agent's key, or `explain` with an auditor's"),
        (status = 404, description = "No such dead letter"),
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Masked(Auditor(principal)): Masked<Auditor>,
    Id(id): Id<HandoffId>,
    Params(params): Params<ExplainParams>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    let explain = params.explain.unwrap_or_default();
    if explain && !principal.rights().reads_contents() {
        return Err(closed_to_metadata());
    }
    if explain && !principal.rights().operates() {
        return Err(forbidden("an operator"));
    }
    let key = (principal.tenant.clone(), id);
    let row =
        api.store.find_dead_letter(&key).await?.ok_or_else(|| Problem::not_found("dead letter"))?;
    let mut view = DeadLetterView::from(&row);
    if let Some(content) = api.store.find_handoff(&key).await?.and_then(|found| found.content_id) {
        view.message = api.contents.find_json(&principal.tenant, content).await?;
    }
    if explain {
        view.explanation = Some(Box::new(explained(&api, &row, &mut view.message).await?));
    }
    Ok(axum::Json(view))
}

/// The most entries of `waive`.
const MAX_WAIVE: usize = 1_000;
/// Default of decisions a second.
const DEFAULT_RATE: u32 = 50;

/// A decision to release a dead letter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseBody {
    /// Why, 1 to 2 000 characters; kept with the record.
    reason: String,
    /// The findings to waive: each by its pointer, as `CODE:pointer`, or as `rule:name`.
    #[serde(default)]
    waive: Vec<String>,
}

/// The end of a dead letter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiscardBody {
    /// Why, 1 to 2 000 characters; kept with the record.
    reason: String,
}

/// Deliver a dead letter after all. The gate judges it afresh; only the findings named in `waive` are
/// let pass. Any other finding keeps the dead letter, and is the answer.
#[utoipa::path(
    post, path = "/dead-letters/{handoffId}/release", tag = "dead letters", operation_id = "releaseDeadLetter",
    params(("handoffId" = String, Path, description = "The handoff's UUID")),
    request_body = ReleaseBody,
    responses(
        (status = 200, description = "Released: it is on its way", body = DeadLetterView),
        (status = 403, description = "Not an operator, or the gate still forbids it"),
        (status = 404, description = "No such dead letter"),
        (status = 409, description = "Decided before, erased, or the task has ended"),
        BadBody,
        (status = 422, description = "Refused again, with what was found; or an entry names no finding"),
        Busy,
    )
)]
pub(super) async fn release(
    State(api): State<Api>,
    Operator(principal): Operator,
    Id(id): Id<HandoffId>,
    Json(said): Json<ReleaseBody>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    let appeal = appeal_of(&said.reason, said.waive, true)?;
    let decided = desk(&api).release(&principal, id, &appeal).await?;
    if decided.refused.is_empty() {
        Ok(axum::Json(DeadLetterView::from(&decided.row)))
    } else {
        Err(Problem::refusal(decided.refused, false))
    }
}

fn desk(api: &Api) -> DeadLetterDesk<'_> {
    DeadLetterDesk { intake: &api.intake, contents: &api.contents }
}

fn appeal_of(reason: &str, waive: Vec<String>, strict: bool) -> Result<Appeal, Problem> {
    if waive.len() > MAX_WAIVE {
        return Err(wrong("/waive", "1 000 entries at most"));
    }
    Ok(Appeal { reason: reason_of(reason)?.to_owned(), waive, strict, dry_run: false })
}

/// Never deliver a dead letter.
#[utoipa::path(
    post, path = "/dead-letters/{handoffId}/discard", tag = "dead letters", operation_id = "discardDeadLetter",
    params(("handoffId" = String, Path, description = "The handoff's UUID")),
    request_body = DiscardBody,
    responses(
        (status = 200, description = "Discarded", body = DeadLetterView),
        (status = 403, description = "Not an operator"),
        (status = 404, description = "No such dead letter"),
        (status = 409, description = "Decided before"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn discard(
    State(api): State<Api>,
    Masked(Operator(principal)): Masked<Operator>,
    Id(id): Id<HandoffId>,
    Json(said): Json<DiscardBody>,
) -> Result<axum::Json<DeadLetterView>, Problem> {
    let reason = reason_of(&said.reason)?;
    let decided = api.intake.discard(&principal, id, reason, false).await?;
    Ok(axum::Json(DeadLetterView::from(&decided.row)))
}

/// Which dead letters to decide on: those open that fit all that is said.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BulkFilter {
    /// With this primary reason.
    reason: Option<String>,
    /// Only from this sender.
    #[schema(value_type = Option<String>)]
    source: Option<AgentId>,
    /// Only to this receiver.
    #[schema(value_type = Option<String>)]
    target: Option<AgentId>,
    /// Kept at this time or later, RFC 3339.
    from: Option<String>,
    /// Kept before this time, RFC 3339.
    to: Option<String>,
    /// Only these handoffs, by their UUIDs.
    #[schema(value_type = Option<Vec<String>>)]
    ids: Option<Vec<HandoffId>>,
}

/// Decide on many dead letters, 1 000 at most.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkBody {
    /// Which; at least one condition.
    filter: BulkFilter,
    /// Why, 1 to 2 000 characters; kept with each record.
    reason: String,
    /// For a release: the findings to waive, as for one; an entry that matches no finding of a dead
    /// letter has no effect on it.
    #[serde(default)]
    waive: Vec<String>,
    /// Decisions a second, 1 to 1 000.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000)]
    rate_per_second: Option<u32>,
    /// Say what would happen, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// The result for one dead letter.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkItem {
    /// UUID of the dead letter's handoff.
    pub handoff_id: String,
    /// `released`, `discarded`, `refused` or `failed`; in a dry run `would release`, `would discard`, `would refuse` or
    /// `would fail`.
    pub result: String,
    /// The failures for which it stays a dead letter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureView>,
    /// Why it could not be decided on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The results for all dead letters.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkView {
    /// True where the request asked for a trial: nothing was changed.
    pub dry_run: bool,
    /// How many the filter found.
    pub matched: usize,
    /// How many went as wished.
    pub done: usize,
    /// How many the gate refused again.
    pub refused: usize,
    /// How many could not be decided on.
    pub failed: usize,
    /// More fit the filter than one call takes, or the broker is stopping: call again.
    pub more: bool,
    /// One entry for each dead letter.
    pub items: Vec<BulkItem>,
}

/// Release many: each is judged afresh, at the given rate.
#[utoipa::path(
    post, path = "/dead-letters/release", tag = "dead letters", operation_id = "releaseDeadLetters",
    request_body = BulkBody,
    responses(
        (status = 200, description = "The result of each", body = BulkView),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn release_many(
    State(api): State<Api>,
    Operator(principal): Operator,
    Json(said): Json<BulkBody>,
) -> Result<axum::Json<BulkView>, Problem> {
    let mut appeal = appeal_of(&said.reason, said.waive.clone(), false)?;
    appeal.dry_run = said.dry_run;
    Box::pin(bulk(&api, &principal, said, BulkDecision::Release(appeal))).await
}

/// Discard many.
#[utoipa::path(
    post, path = "/dead-letters/discard", tag = "dead letters", operation_id = "discardDeadLetters",
    request_body = BulkBody,
    responses(
        (status = 200, description = "The result of each", body = BulkView),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The body does not fit"),
        Busy,
    )
)]
pub(super) async fn discard_many(
    State(api): State<Api>,
    Open(Operator(principal)): Open<Operator>,
    Json(said): Json<BulkBody>,
) -> Result<axum::Json<BulkView>, Problem> {
    let reason = reason_of(&said.reason)?;
    if !said.waive.is_empty() {
        return Err(wrong("/waive", "only a release waives findings"));
    }
    let decision = BulkDecision::Discard { reason: reason.to_owned(), dry_run: said.dry_run };
    Box::pin(bulk(&api, &principal, said, decision)).await
}

fn moment(pointer: &str, text: Option<&str>) -> Result<Option<Micros>, Problem> {
    text.map(|text| {
        Micros::parse_rfc3339(text)
            .ok_or_else(|| wrong(pointer, "must be a time such as 2026-11-21T06:18:41Z"))
    })
    .transpose()
}

/// The open dead letters that a filter selects.
fn selection(filter: BulkFilter) -> Result<DeadLetterSelection, Problem> {
    let BulkFilter { reason, source, target, from, to, ids } = filter;
    if ids.as_ref().is_some_and(|ids| ids.len() > MAX_BULK) {
        return Err(wrong("/filter/ids", "1 000 at most"));
    }
    let from = moment("/filter/from", from.as_deref())?;
    let until = moment("/filter/to", to.as_deref())?;
    let all = reason.is_none() && source.is_none() && target.is_none() && ids.is_none();
    if all && from.is_none() && until.is_none() {
        return Err(wrong("/filter", "say which: at least one condition"));
    }
    let status = Some(DeadLetterStatus::Open);
    let filter = DeadLetterFilter { status, task_id: None, reason, source, target, from, until };
    Ok(DeadLetterSelection { filter, ids })
}

async fn bulk(
    api: &Api,
    principal: &Principal,
    said: BulkBody,
    decision: BulkDecision,
) -> Result<axum::Json<BulkView>, Problem> {
    let rate = said.rate_per_second.unwrap_or(DEFAULT_RATE);
    if !(1..=1_000).contains(&rate) {
        return Err(wrong("/ratePerSecond", "between 1 and 1 000"));
    }
    let selection = selection(said.filter)?;
    let outcome =
        desk(api).decide_many(principal, &selection, &decision, rate, &api.stopping).await?;
    Ok(axum::Json(BulkView::new(outcome, &decision, said.dry_run)))
}

impl BulkView {
    fn new(outcome: BulkOutcome, decision: &BulkDecision, dry_run: bool) -> Self {
        let done = match (decision, dry_run) {
            (BulkDecision::Release(_), false) => "released",
            (BulkDecision::Discard { .. }, false) => "discarded",
            (BulkDecision::Release(_), true) => "would release",
            (BulkDecision::Discard { .. }, true) => "would discard",
        };
        let BulkOutcome { matched, more, items } = outcome;
        let mut view = Self { dry_run, matched, more, ..Self::default() };
        for (id, result) in items {
            let (count, result, failures, error) = match result {
                Ok(refused) if refused.is_empty() => (&mut view.done, done, Vec::new(), None),
                Ok(refused) => {
                    let word = if dry_run { "would refuse" } else { "refused" };
                    (&mut view.refused, word, refused.iter().map(self::view).collect(), None)
                }
                Err(err) => {
                    let word = if dry_run { "would fail" } else { "failed" };
                    (&mut view.failed, word, Vec::new(), Some(Problem::from(err).detail))
                }
            };
            *count += 1;
            let (handoff_id, result) = (id.to_string(), result.to_owned());
            view.items.push(BulkItem { handoff_id, result, failures, error });
        }
        view
    }
}
