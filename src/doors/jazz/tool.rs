//! The tool `handoff_to_specialist`, and handoffs that are published as events (seed 004, "Handoff Tool", "Combining
//! Patterns").

use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::state::Standing;
use super::super::submission::Refusal;
use super::answer::{self, ProblemContext, chosen, detail, named, refused};
use super::call::{Call, Choice, SubmissionOptions, read_body};
use super::handoffs::{WaitingRequest, received};
use super::request::{
    Form, HandoffContext, HandoffRequest, PublishRequest, ToolCall, check, digest,
};
use super::router::SpecialistQuery;
use super::{Jazz, observed, words};
use crate::http::Api;
use crate::http::extract::{Params, typed};
use crate::http::problem::{Problem, WarningView};
use crate::http::views::HandoffView;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::strategy::RoutingStrategy;
use handoffd_store::clock;

/// Which tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolParams {
    /// Those with this tag.
    tag: Option<String>,
}

/// The tools of the calling agent: none if its allowlist is empty, so that its model never sees the choice.
pub(super) async fn list(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let answered = async {
        let (parts, _) = request.into_parts();
        match tools(&api, &door, &parts).await {
            Ok(tools) => answer::json(StatusCode::OK, tools),
            Err(problem) => problem.into_response(),
        }
    };
    observed(&api, "list_tools", answered).await
}

async fn tools(api: &Api, door: &Jazz, parts: &Parts) -> Result<Value, Problem> {
    let call = Call::enter(api, door, parts).await?;
    let Params(params) = Params::<ToolParams>::from_request_parts(&mut parts.clone(), api).await?;
    let tagged = params.tag.as_deref().is_none_or(|tag| words::TAGS.contains(&tag));
    Ok(if tagged && !call.available().is_empty() { json!([words::tool()]) } else { json!([]) })
}

/// A call of the tool.
pub(super) async fn call(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let answered = async {
        match received(&api, &door, request).await {
            Ok(WaitingRequest { call, asked, body, seconds, _share }) => {
                called(&call, &asked, body, seconds).await
            }
            Err(problem) => problem.into_response(),
        }
    };
    Box::pin(observed(&api, words::TOOL, answered)).await
}

/// The failure of a tool, as the pattern has it.
fn failure(error: &str) -> Value {
    json!({ "success": false, "result": null, "error": error })
}

async fn called(call: &Call, asked: &ProblemContext, body: Value, seconds: u64) -> Response {
    let digest = digest(&body);
    let given = check(Form::Tool, &body).and_then(|()| typed::<ToolCall>(body));
    let (given, own) = match given.and_then(|given| Ok((given, call.agent()?))) {
        Ok(found) => found,
        Err(problem) => {
            let told = failure(&problem.detail);
            return refused(problem.into(), asked, told);
        }
    };
    let execution = &given.execution;
    let wanted = SpecialistRequest {
        kind: &given.specialist_type,
        task: &given.task,
        required: given.required_capabilities.as_deref(),
        conversation: execution.conversation_id.as_deref(),
        request: execution.request_id.as_deref(),
        by: words::TOOL,
    };
    let completed = |mut request: HandoffRequest| {
        request.from_agent_id = execution.agent_id.clone().unwrap_or(request.from_agent_id);
        request.reason.clone_from(&given.reason);
        request.context = HandoffContext {
            original_request: execution.user_input.clone(),
            conversation_history: execution.conversation_history.clone(),
            completed_work: given.context.clone(),
            user_id: execution.user_id.clone(),
            ..request.context
        };
        request
    };
    match wanted.dispatch(call, own, digest, None, completed).await {
        Ok(Dispatched { id, strategy, page, .. }) => {
            let standing = match call.standing_of(&id, page, seconds).await {
                Ok(standing) => standing,
                Err(refusal) => {
                    let refusal = Refusal::from(refusal);
                    let told = failure(&detail(&refusal));
                    return named(refused(refusal, asked, told), &id);
                }
            };
            call.take(&standing).await;
            let (status, told) = tool_result(call, &standing, &given);
            named(chosen(answer::json(status, told), strategy), &id)
        }
        Err(NotDispatched::Nobody(strategy)) => {
            let told = failure(&words::no_specialist(&given.specialist_type));
            chosen(answer::json(StatusCode::OK, told), Some(strategy))
        }
        Err(NotDispatched::Refused { refusal, name, strategy }) => {
            let why = detail(&refusal);
            let told =
                failure(&name.map_or_else(|| why.clone(), |name| words::failed(&name, &why)));
            chosen(refused(*refusal, asked, told), strategy)
        }
    }
}

/// The tool's answer for a handoff, and its status.
fn tool_result(call: &Call, standing: &Standing, given: &ToolCall) -> (StatusCode, Value) {
    let result = call.told(standing);
    let name = result["agentName"].as_str().unwrap_or_default();
    if !standing.succeeded() {
        let why = result["error"].as_str().unwrap_or_default();
        return if standing.is_open() {
            (StatusCode::ACCEPTED, failure(&words::open(name, why)))
        } else {
            (StatusCode::OK, failure(&words::failed(name, why)))
        };
    }
    let told = json!({
        "success": true,
        "result": {
            "specialist_name": name,
            "specialist_response": result["result"],
            "handoff_summary": words::completed(name, &given.specialist_type, &given.task),
            "conversation_summary": result["conversationSummary"],
            "iterations": result["iterations"],
        },
    });
    (StatusCode::OK, told)
}

/// A handoff to a specialist that the router chose.
struct Dispatched {
    id: String,
    /// Its page as it was committed, where this request made it.
    page: Option<Box<HandoffView>>,
    /// `warnings` of the API's answer; none where an earlier request made the handoff.
    warnings: Vec<WarningView>,
    /// Absent where the message cannot be read any more.
    strategy: Option<RoutingStrategy>,
    /// The specialist's id.
    receiver: String,
    /// An earlier request made it.
    replayed: bool,
}

/// The reason for a missing handoff.
enum NotDispatched {
    /// The router finds no specialist.
    Nobody(RoutingStrategy),
    Refused {
        refusal: Box<Refusal>,
        /// The specialist's name, where one was chosen.
        name: Option<String>,
        strategy: Option<RoutingStrategy>,
    },
}

impl From<Refusal> for NotDispatched {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refusal: Box::new(refusal), name: None, strategy: None }
    }
}

fn count_refused(call: &Call, strategy: RoutingStrategy) {
    let outcomes = &call.api.metrics.strategy_outcomes;
    outcomes.with_label_values(&[strategy.as_str(), "refused"]).inc();
}

/// The search of a client that names no agent.
struct SpecialistRequest<'a> {
    kind: &'a str,
    task: &'a str,
    required: Option<&'a [String]>,
    conversation: Option<&'a str>,
    request: Option<&'a str>,
    /// The operation.
    by: &'static str,
}

impl SpecialistRequest<'_> {
    /// The conversation's strategy, and whom it chooses.
    async fn specialist<'c>(
        &self,
        call: &'c Call,
        own: &Agent,
    ) -> Result<(RoutingStrategy, Option<&'c Agent>), Refusal> {
        let key = match self.conversation.or(self.request) {
            Some(key) => format!("{}\u{1f}{}\u{1f}{key}", call.principal.tenant, own.agent_id),
            None => clock::random_id().to_string(),
        };
        let strategy = call.strategy(own, &key);
        let wanted =
            SpecialistQuery { kind: self.kind, required: self.required.unwrap_or_default() };
        let found = call.specialist(strategy, wanted, self.task).await?;
        if found.is_none() {
            let outcomes = &call.api.metrics.strategy_outcomes;
            outcomes.with_label_values(&[strategy.as_str(), "none"]).inc();
        }
        Ok((strategy, found))
    }

    /// The request to the chosen specialist.
    fn request(&self, call: &Call, own: &Agent, specialist: &Agent) -> HandoffRequest {
        // By default the specialist must have the ability that was requested; a tag is not an ability.
        let kind = specialist.can(self.kind).then(|| self.kind.to_owned());
        let required = self.required.map_or_else(|| kind.into_iter().collect(), <[String]>::to_vec);
        let id = self.request.map_or_else(String::new, str::to_owned);
        // A conversation without a name is this handoff's alone.
        let conversation = self.conversation.or(self.request).map(str::to_owned);
        HandoffRequest {
            id,
            from_agent_id: own.agent_id.to_string(),
            to_agent_id: specialist.agent_id.to_string(),
            reason: String::new(),
            task: self.task.to_owned(),
            context: HandoffContext {
                required_capabilities: required,
                correlation_id: self.conversation.map(str::to_owned),
                ..HandoffContext::default()
            },
            timestamp: call.api.now().rfc3339(),
            conversation_id: conversation.unwrap_or_else(|| clock::random_id().to_string()),
            max_iterations: None,
            more: serde_json::Map::new(),
        }
    }

    /// Commits the handoff to the specialist that the router chooses; for a repeated request, finds the one that is there.
    async fn dispatch(
        &self,
        call: &Call,
        own: &Agent,
        digest: String,
        priority: Option<&str>,
        complete: impl FnOnce(HandoffRequest) -> HandoffRequest,
    ) -> Result<Dispatched, NotDispatched> {
        if let Some(request) = self.request
            && let Some(earlier) = call.earlier(request, &digest).await?
        {
            return Ok(Dispatched {
                id: earlier.id().to_owned(),
                page: None,
                warnings: Vec::new(),
                strategy: RoutingStrategy::of_message(earlier.message()),
                receiver: earlier.receiver().to_owned(),
                replayed: true,
            });
        }
        let (strategy, specialist) = self.specialist(call, own).await?;
        let specialist = specialist.ok_or(NotDispatched::Nobody(strategy))?;
        let request = complete(self.request(call, own, specialist));
        let choice = Choice { strategy, kind: self.kind, by: self.by };
        let besides = SubmissionOptions { digest, choice: Some(choice), priority };
        match call.submit(&request, besides).await {
            Ok(committed) => Ok(Dispatched {
                warnings: committed.warnings().to_vec(),
                id: committed.id,
                page: committed.page,
                strategy: Some(strategy),
                receiver: specialist.agent_id.to_string(),
                replayed: committed.answer.is_none(),
            }),
            Err(refusal) => {
                count_refused(call, strategy);
                let name = Some(specialist.name.clone());
                let (refusal, strategy) = (Box::new(refusal), Some(strategy));
                Err(NotDispatched::Refused { refusal, name, strategy })
            }
        }
    }
}

/// `publishHandoffRequest`: commits a handoff to a specialist, and does not wait.
pub(super) async fn publish(
    State(api): State<Api>,
    Extension(door): Extension<Jazz>,
    request: Request,
) -> Response {
    let answered = async {
        let (parts, body) = request.into_parts();
        let place = ProblemContext::of(&parts);
        let done = async {
            let call = Call::enter(&api, &door, &parts).await?;
            let (body, _share) = read_body(&api, Request::from_parts(parts, body)).await?;
            published(&call, body).await
        };
        done.await.unwrap_or_else(|refusal| refused(refusal, &place, Value::Null))
    };
    Box::pin(observed(&api, "publish", answered)).await
}

async fn published(call: &Call, body: Value) -> Result<Response, Refusal> {
    let digest = digest(&body);
    check(Form::Publish, &body)?;
    let given: PublishRequest = typed(body)?;
    let own = call.agent()?;
    let asked = SpecialistRequest {
        kind: &given.specialist_type,
        task: &given.task,
        required: None,
        conversation: given.conversation_id.as_deref(),
        request: given.request_id.as_deref(),
        by: "publish",
    };
    let completed = |mut request: HandoffRequest| {
        request.reason = given.reason.clone().unwrap_or_default();
        request.context.original_request.clone_from(&given.task);
        request.context.completed_work.clone_from(&given.context);
        request.context.user_id.clone_from(&given.user_id);
        request
    };
    match asked.dispatch(call, own, digest, given.priority.as_deref(), completed).await {
        Ok(Dispatched { id, strategy, receiver, replayed, warnings, .. }) => {
            let mut told = json!({
                "handoffId": id,
                "specialist": { "agentId": receiver, "agentName": call.name_of(&receiver) },
                "strategy": strategy,
                "replayed": replayed,
            });
            if !warnings.is_empty() {
                told["warnings"] = json!(warnings);
            }
            Ok(named(chosen(answer::json(StatusCode::ACCEPTED, told), strategy), &id))
        }
        Err(NotDispatched::Nobody(_)) => {
            let why = words::no_specialist(&given.specialist_type);
            Err(Problem::new(Code::NoCapableAgent, why).into())
        }
        Err(NotDispatched::Refused { refusal, .. }) => Err(*refusal),
    }
}
