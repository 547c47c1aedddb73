//! A submission by a door: the message from its arguments, one commit, and the same handoff when the request is repeated.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::client::{ApiClient, ApiRefusal, PageQuery};
use super::message::{Funds, Ids, MessageContext, build};
use super::state::message_of;
use crate::http::Api;
use crate::http::extract::trace_context;
use crate::http::problem::{Problem, WarningView};
use crate::http::views::{HandoffView, SubmittedView};
use handoffd_domain::failure::Code;
use handoffd_domain::ids::TenantId;
use handoffd_domain::trace_context::TraceParent;
use handoffd_store::clock;

/// The refusal of an id that an earlier request has.
pub(super) const ANOTHER_REQUEST: &str =
    "this id was used for a request that said something else: take another";

/// A handoff that is committed.
pub(super) struct Committed {
    /// Its id.
    pub(super) id: String,
    /// The API's answer; none if the request repeated an earlier one.
    pub(super) answer: Option<SubmittedView>,
    /// The handoff's own page with its message, as it was committed; none where the request repeated an earlier one.
    pub(super) page: Option<Box<HandoffView>>,
}

impl Committed {
    /// The gate's warnings; none if the request repeated an earlier one.
    pub(super) fn warnings(&self) -> &[WarningView] {
        self.answer.as_ref().map_or(&[], |answer| &answer.warnings)
    }
}

/// Why a submission was refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// By the API.
    Api(ApiRefusal),
    /// By the door itself.
    Door(Box<Problem>),
}

impl Refusal {
    /// Whether the broker failed, rather than the request.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Self::Api(refusal) => refusal.status.is_server_error(),
            Self::Door(problem) => problem.status.is_server_error(),
        }
    }
}

impl From<ApiRefusal> for Refusal {
    fn from(refusal: ApiRefusal) -> Self {
        Self::Api(refusal)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Door(Box::new(problem))
    }
}

/// A submission in an agent's name.
pub(super) struct Submission<'a> {
    pub(super) api: &'a Api,
    pub(super) client: &'a ApiClient,
    /// The door's name.
    pub(super) door: &'static str,
    pub(super) tenant: &'a TenantId,
    /// The sender.
    pub(super) agent: &'a str,
    /// The sender's registered version.
    pub(super) version: String,
    /// As `hand_off` has them.
    pub(super) arguments: &'a Map<String, Value>,
    /// The sender's own id of the request; the same one again is the same handoff.
    pub(super) request: Option<&'a str>,
    /// The digest by which a repeated request is known.
    pub(super) digest: String,
    /// Members of the protocol without a field in the message.
    pub(super) extension: Map<String, Value>,
    /// The handoff's id, where the sender's own is one; else derived from `request`.
    pub(super) handoff: Option<String>,
    /// Members of the message that the arguments do not give.
    pub(super) members: Map<String, Value>,
}

impl Submission<'_> {
    /// Submits it.
    ///
    /// # Errors
    /// The API's refusal, or the door's own.
    pub(super) async fn submit(mut self) -> Result<Committed, Refusal> {
        let mut ids = self.request.map_or_else(random_ids, |request| {
            let vault = &self.api.intake.vault;
            let run = vault.run_id(self.tenant, self.door, self.agent, request);
            Ids::derived(self.door, self.agent, request, run)
        });
        if let Some(own) = self.handoff.take() {
            ids.handoff = own;
        }
        let digest = std::mem::take(&mut self.digest);
        if let Some(request) = self.request {
            if may_be_known(self.api, self.tenant, &ids.handoff).await?
                && let Some(earlier) = self.earlier(&ids.handoff, &digest).await?
            {
                return Ok(earlier);
            }
            self.extension.insert("requestId".to_owned(), request.into());
            self.extension.insert("argumentsDigest".to_owned(), digest.as_str().into());
        }
        let context = self.context(ids.clone()).await;
        let message = build(self.arguments, context);
        match self.client.submit(&message).await {
            Ok(submitted) => Ok(Committed {
                id: submitted.answer.handoff_id.clone(),
                answer: Some(submitted.answer),
                page: submitted.committed.map(|mut page| {
                    page.message = Some(message);
                    page
                }),
            }),
            // The same request came twice at once, and the other one was first.
            Err(refused) if self.request.is_some() && refused.code() == Some(Code::Conflict) => {
                self.earlier(&ids.handoff, &digest).await?.ok_or_else(|| refused.into())
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// The handoff that an earlier request with this id made.
    async fn earlier(&self, id: &str, digest: &str) -> Result<Option<Committed>, Refusal> {
        let query = PageQuery { include: Some("message"), ..PageQuery::default() };
        let found = match self.client.handoff(id, query).await {
            Err(refused) if refused.code() == Some(Code::NotFound) => return Ok(None),
            found => found?,
        };
        refuse_another(self.api, self.tenant, &found, self.door, digest).await?;
        Ok(Some(Committed { id: id.to_owned(), answer: None, page: None }))
    }

    async fn context(&mut self, ids: Ids) -> MessageContext {
        let text = |name: &str| self.arguments.get(name).and_then(Value::as_str);
        let (mut funds, mut parent_task) = (None, None);
        // An unreadable value counts as unknown here: the gate names its fault.
        if let Some(parent) = text("parentHandoffId") {
            if let Ok(found) = self.client.handoff(parent, PageQuery::default()).await {
                funds = Some(Funds::from(&found.cost_tracking));
                parent_task = Some(found.task_id);
            }
        } else if let Some(task) = text("taskId") {
            funds = self.client.task(task).await.ok().map(|task| Funds::from(&task));
        }
        let trace = trace_context(self.client.caller().headers());
        let traceparent = trace
            .as_ref()
            .map(|trace| trace.parent)
            .or_else(|| TraceParent::new(clock::random(), clock::random(), 1));
        MessageContext {
            agent: self.agent.to_owned(),
            version: std::mem::take(&mut self.version),
            ids,
            timestamp: self.api.now().rfc3339(),
            traceparent: traceparent.map(|parent| parent.to_string()).unwrap_or_default(),
            tracestate: trace.map(|trace| trace.state).filter(|state| !state.is_empty()),
            funds,
            parent_task,
            door: self.door,
            extension: std::mem::take(&mut self.extension),
            members: std::mem::take(&mut self.members),
        }
    }
}

/// Whether a handoff of one receiver may have this id: the cheapest way to know that a request came for the first time.
pub(super) async fn may_be_known(api: &Api, tenant: &TenantId, id: &str) -> Result<bool, Problem> {
    let Ok(id) = id.parse() else { return Ok(true) };
    Ok(api.store.find_handoff(&(tenant.clone(), id)).await?.is_some())
}

/// Refuses a request whose id an earlier one has that said something else. `view` is that one's page. A dead letter's page
/// withholds its message from agents: the door reads it from the store, and shows nothing of it.
///
/// # Errors
/// 409; the store cannot be read.
pub(super) async fn refuse_another(
    api: &Api,
    tenant: &TenantId,
    view: &HandoffView,
    door: &str,
    digest: &str,
) -> Result<(), Problem> {
    let mut message = Cow::Borrowed(message_of(view));
    if message.is_null()
        && let Ok(id) = view.handoff_id.parse()
        && let Some(handoff) = api.store.find_handoff(&(tenant.clone(), id)).await?
        && let Some(content) = handoff.content_id
    {
        message = Cow::Owned(api.contents.find_json(tenant, content).await?.unwrap_or_default());
    }
    if is_another(&message, door, digest) {
        return Err(Problem::new(Code::Conflict, ANOTHER_REQUEST));
    }
    Ok(())
}

/// Whether a committed message is of another request than the one with this digest; another request is also what another
/// door, or none, took in. An erased message, or one in an archive that does not answer, cannot be compared: its id alone
/// counts.
fn is_another(message: &Value, door: &str, digest: &str) -> bool {
    let before = message.pointer(&format!("/extensions/{door}/argumentsDigest"));
    message["handoffId"].is_string() && before.and_then(Value::as_str) != Some(digest)
}

fn random_ids() -> Ids {
    let id = || clock::random_id().to_string();
    Ids { handoff: id(), task: id(), execution: id() }
}

#[cfg(test)]
mod tests {
    use handoffd_broker::archive::unavailable;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_message_of_the_same_door_and_digest_is_the_same_request() {
        let of = |extensions: Value| json!({ "handoffId": "h", "extensions": extensions });
        let own = json!({ "jazz": { "argumentsDigest": "sha256:1" } });
        for (message, another) in [
            (of(own), false),
            (of(json!({ "jazz": { "argumentsDigest": "sha256:2" } })), true),
            (of(json!({ "mcp": { "argumentsDigest": "sha256:1" } })), true),
            (of(json!({ "jazz": {} })), true),
            (json!({ "handoffId": "h" }), true),
            (Value::Null, false),
            (unavailable(), false),
        ] {
            assert_eq!(is_another(&message, "jazz", "sha256:1"), another, "{message}");
        }
    }
}
