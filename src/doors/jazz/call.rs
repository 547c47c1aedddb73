//! One call: in whose name, and what it asks of the API.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde_json::{Value, json};

use super::super::client::{ApiClient, ApiRefusal, PageQuery};
use super::super::front::CallerHeaders;
use super::super::message::Ids;
use super::super::state::Standing;
use super::super::submission::{Committed, Refusal, Submission, may_be_known, refuse_another};
use super::request::{HandoffRequest, uuid_of};
use super::router::available;
use super::{DOOR, Jazz, profile, words};
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::extract::{JsonBytes, parse};
use crate::http::problem::Problem;
use crate::http::views::HandoffView;
use handoffd_broker::directory::{Agents, Principal};
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;
use handoffd_domain::strategy::RoutingStrategy;
use handoffd_domain::task::TaskStatus;

/// A call under way.
pub(super) struct Call {
    pub(super) api: Api,
    pub(super) client: ApiClient,
    pub(super) principal: Principal,
    /// The tenant's agents.
    pub(super) agents: Arc<Agents>,
}

/// Keeps a large body's share of the budget for as long as its request is at work.
pub(super) struct BodyShare(
    #[expect(dead_code, reason = "held, not read")] Option<Arc<dyn Any + Send + Sync>>,
);

/// Reads a body: JSON within the size limit, without two members of one name.
pub(super) async fn read_body(api: &Api, request: Request) -> Result<(Value, BodyShare), Problem> {
    let read = JsonBytes::from_request(request, api).await?;
    let value = parse(read.bytes.clone()).await?;
    Ok((value, BodyShare(read.into_body().guard)))
}

/// How a specialist was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice<'a> {
    pub(super) strategy: RoutingStrategy,
    pub(super) kind: &'a str,
    /// The operation by which the client asked.
    pub(super) by: &'static str,
}

/// The facts of a submission besides the request.
#[derive(Debug, Default)]
pub(super) struct SubmissionOptions<'a> {
    /// The digest by which a repeated request is known.
    pub(super) digest: String,
    /// How the receiver was chosen, where the client did not name it.
    pub(super) choice: Option<Choice<'a>>,
    pub(super) priority: Option<&'a str>,
}

impl Call {
    /// Lets a request in: its host, and its key.
    pub(super) async fn enter(api: &Api, door: &Jazz, parts: &Parts) -> Result<Self, Problem> {
        door.names.check(parts)?;
        let mut parts = parts.clone();
        let Caller(principal) = Caller::from_request_parts(&mut parts, api).await?;
        Ok(Self {
            api: api.clone(),
            client: ApiClient::new(&door.front, CallerHeaders::of(&parts, None)),
            agents: api.intake.directory.agents(&principal.tenant).await?,
            principal,
        })
    }

    /// The same call, with the agents as they are now.
    pub(super) async fn refreshed(self) -> Result<Self, Problem> {
        let agents = self.api.intake.directory.agents(&self.principal.tenant).await?;
        Ok(Self { agents, ..self })
    }

    /// The caller's agent.
    ///
    /// # Errors
    /// 403: the caller is none.
    pub(super) fn agent(&self) -> Result<&Agent, Problem> {
        let none = || Problem::new(Code::Forbidden, "only an agent, with its own key, may do this");
        let own = self.principal.agent.as_ref().ok_or_else(none)?;
        self.agents.roster.find(own).ok_or_else(|| Problem::not_found("agent"))
    }

    /// An agent's name; its id if the agent is unknown.
    pub(super) fn name_of<'a>(&'a self, id: &'a str) -> &'a str {
        let parsed: Option<AgentId> = id.parse().ok();
        parsed.and_then(|id| self.agents.roster.find(&id)).map_or(id, |agent| agent.name.as_str())
    }

    /// The agents that the caller may hand off to, or all that take handoffs for a person.
    pub(super) fn available(&self) -> Vec<&Agent> {
        let own = self.principal.agent.as_ref();
        available(&self.agents, own.and_then(|id| self.agents.roster.find(id)))
    }

    /// The broker's id of a handoff that a client names.
    pub(super) fn handoff_id(&self, id: &str) -> String {
        let derived = |own: &AgentId| Ids::named(DOOR, own.as_str(), id).handoff;
        uuid_of(id)
            .or_else(|| self.principal.agent.as_ref().map(derived))
            .unwrap_or_else(|| id.to_owned())
    }

    /// The strategy of a conversation: by the shares of the calling agent, else by the settings'.
    pub(super) fn strategy(&self, own: &Agent, conversation: &str) -> RoutingStrategy {
        let shares = profile::shares(own).unwrap_or_default();
        shares.unwrap_or(self.api.config.doors.jazz.strategies).pick(conversation)
    }

    /// Submits a request: a handoff, or the same one as before where the request is repeated.
    ///
    /// # Errors
    /// The API's refusal, or the door's own.
    pub(super) async fn submit(
        &self,
        request: &HandoffRequest,
        besides: SubmissionOptions<'_>,
    ) -> Result<Committed, Refusal> {
        let parent = self.parent(&request.conversation_id).await;
        let mut mapped = request.mapped(parent.as_deref());
        if let Some(priority) = besides.priority {
            mapped.arguments.insert("priority".to_owned(), priority.into());
        }
        if let Some(Choice { strategy, kind, by }) = besides.choice {
            let choice = [("strategy", strategy.as_str()), ("specialistType", kind), ("by", by)];
            let choice = choice.map(|(name, value)| (name.to_owned(), Value::from(value)));
            mapped.extension.extend(choice);
        }
        let from: Option<AgentId> = request.from_agent_id.parse().ok();
        let from = from.and_then(|id| self.agents.roster.find(&id));
        // An agent that is not registered is refused by the gate, whatever its version.
        let version =
            from.map_or_else(|| "0.0.0".to_owned(), |agent| agent.agent_version.to_string());
        let submission = Submission {
            api: &self.api,
            client: &self.client,
            door: DOOR,
            tenant: &self.principal.tenant,
            agent: &request.from_agent_id,
            version,
            arguments: &mapped.arguments,
            request: (!request.id.is_empty()).then_some(request.id.as_str()),
            digest: besides.digest,
            extension: mapped.extension,
            handoff: uuid_of(&request.id),
            members: mapped.members,
        };
        submission.submit().await
    }

    /// The handoff that an earlier request with this id made, whatever the router would choose now.
    ///
    /// # Errors
    /// 409: the earlier request said something else. The API's refusal.
    pub(super) async fn earlier(
        &self,
        request: &str,
        digest: &str,
    ) -> Result<Option<Standing>, Refusal> {
        let id = self.handoff_id(request);
        if !may_be_known(&self.api, &self.principal.tenant, &id).await? {
            return Ok(None);
        }
        let standing = match self.standing(&id, 0).await {
            Err(refused) if refused.code() == Some(Code::NotFound) => return Ok(None),
            standing => standing?,
        };
        let tenant = &self.principal.tenant;
        refuse_another(&self.api, tenant, &standing.view, DOOR, digest).await?;
        Ok(Some(standing))
    }

    /// The handoff by which the caller came to a conversation, where its name says so: what the caller hands on follows that.
    async fn parent(&self, conversation: &str) -> Option<String> {
        let id = words::handoff_of(conversation).and_then(uuid_of)?;
        let found = self.client.handoff(&id, PageQuery::default()).await.ok()?;
        let receiver = found.to_agent.agent_id;
        self.principal.agent.as_ref().is_some_and(|own| own.as_str() == receiver).then_some(id)
    }

    /// Reads a handoff, after a wait of so many seconds for its end or a question.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn standing(&self, id: &str, seconds: u64) -> Result<Standing, ApiRefusal> {
        let query =
            PageQuery { include: Some("message"), wait: Some(seconds), until: Some("asked") };
        Ok(self.client.succeeded(self.client.handoff(id, query).await?, None).await)
    }

    /// Like [`Self::standing`], for a handoff whose `page` this call has from its commit: without a wait, the page is the
    /// answer.
    pub(super) async fn standing_of(
        &self,
        id: &str,
        page: Option<Box<HandoffView>>,
        seconds: u64,
    ) -> Result<Standing, ApiRefusal> {
        match page.filter(|_| seconds == 0) {
            Some(view) => Ok(Standing::alone(view)),
            None => self.standing(id, seconds).await,
        }
    }

    /// Ends the task of a handoff that came back to the caller with its result: the pattern has no word for it, and what the
    /// caller hands off next is another task. A task that was handed on to the caller is its sender's. A task of a handoff
    /// that came another way stays open: its sender goes on with it there.
    pub(super) async fn take(&self, standing: &Standing) {
        let view = &standing.view;
        let own = self.principal.agent.as_ref().map(AgentId::as_str);
        let came_back = standing.succeeded()
            && standing.message().pointer("/extensions/jazz").is_some()
            && view.parent_handoff_id.is_none()
            && own == Some(view.from_agent.agent_id.as_str());
        if !came_back {
            return;
        }
        let Ok(task) = self.client.task(&view.task_id).await else { return };
        if task.status != TaskStatus::PendingHandoff.as_str() || own != Some(task.holder.as_str()) {
            return;
        }
        // Another call may have ended it meanwhile.
        let output = json!({ "handoffId": view.handoff_id });
        let _ = self.client.complete_task(&view.task_id, &output).await;
    }

    /// The result of a handoff for the client, and its receiver's name.
    pub(super) fn told(&self, standing: &Standing) -> Value {
        let harmless = |words: &str| self.api.intake.is_harmless(words);
        standing.result(self.name_of(standing.receiver()), &self.api.now().rfc3339(), harmless)
    }
}
