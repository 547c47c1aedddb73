//! The protocol's operations on tasks, whichever binding they came by (A2A 1.0 §3.1).

use std::cmp::Reverse;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::client::HandoffQuery;
use super::super::mcp::hand_off_schema;
use super::super::message::Ids;
use super::super::state::Standing;
use super::super::submission::{ANOTHER_REQUEST, Submission};
use super::call::Call;
use super::error::{A2aError, ErrorKind, Refused, unread, violations};
use super::request::{ListTasksRequest, Message, SendMessageRequest, TaskRequest, history_length};
use super::task::Shown;
use super::{DOOR, message, push};
use crate::http::problem::{Problem, WarningView};
use handoffd_broker::config::RepeatedMessage;
use handoffd_domain::a2a::{TaskState, is_task_id};
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::RETURNED;
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::question::Question;
use handoffd_store::store::HandoffFilter;

/// The longest id of a context, in bytes.
const CONTEXT_MAX: usize = 256;
/// Under which contexts that clients name are told from their messages, where ids are derived from both.
const CONTEXTS: &str = "a2a-context";
/// Under which an answer's idempotency key is derived from its task and message.
const ANSWERS: &str = "a2a-answer";
/// Under which the id of a push configuration without one is derived from its message.
const CONFIGURATIONS: &str = "a2a-push";
/// Seconds of one wait at the API.
const STEP: u64 = 50;
/// Seconds that a cancellation waits for the handoff's end.
const CANCEL_WAIT: u64 = 10;
/// Rows of one page of the API.
const API_PAGE: i64 = 500;
/// The newest handoffs that a list reads.
const NEWEST: usize = 2_000;
/// Handoffs of a task that are read at once.
const STORE_PAGE: i64 = 500;

/// A message that is on its way.
#[derive(Default)]
pub(super) struct Sent {
    /// The handoff's id.
    pub(super) id: String,
    /// The task as it was committed; none where the message answers a question, or an earlier request made the handoff.
    pub(super) committed: Option<Standing>,
    /// Whether an earlier request brought the same message.
    repeated: bool,
    /// `warnings` of the API's answer.
    pub(super) warnings: Vec<WarningView>,
    /// Most messages of the history to show.
    pub(super) history: Option<usize>,
    /// The client does not wait.
    pub(super) at_once: bool,
}

/// Takes a message: a new handoff, or the answer to a question of an open one.
pub(super) async fn accept(call: &Call, request: SendMessageRequest) -> Result<Sent, Refused> {
    let message = Message::of(&request)?;
    let configuration = request.configuration.clone().unwrap_or_default();
    let history = history_length(configuration.history_length)?;
    message::check_types(&message, &call.card)?;
    let task = message.task_id.as_deref().filter(|id| !id.is_empty());
    let push = match configuration.task_push_notification_config {
        Some(config) => {
            // Before the handoff is committed: what is refused has no effect.
            let derived =
                |kind: &str| Ids::named(kind, own_agent(call), &message.message_id).handoff;
            let push = push::PushConfig::read(config)?.or_id(derived(CONFIGURATIONS));
            let place = task.map_or_else(|| derived(DOOR), str::to_owned);
            push.check(call, &place).await?;
            Some(push)
        }
        None => None,
    };
    let sent = match task {
        Some(id) => answer(call, id, &message, &request.message).await?,
        None => submit(call, &message, &request, &configuration.accepted_output_modes).await?,
    };
    if let Some(push) = push
        && !(sent.repeated && push::is_made(call, &sent.id, &push).await?)
    {
        push::create(call, &sent.id, push, true).await?;
    }
    Ok(Sent { history, at_once: configuration.return_immediately, ..sent })
}

/// The client's agent; empty for a person.
fn own_agent(call: &Call) -> &str {
    call.principal.agent.as_ref().map_or("", AgentId::as_str)
}

/// Whether the same message again is the same request.
fn repeats_count_once(call: &Call) -> bool {
    call.api.config.doors.a2a.repeated_message == RepeatedMessage::SameTask
}

/// `SendMessage`.
pub(super) async fn send(call: &Call, request: SendMessageRequest) -> Result<Value, Refused> {
    let sent = accept(call, request).await?;
    let mut standing = match sent.committed {
        Some(committed) => committed,
        None => call.read(&sent.id, 0).await?,
    };
    while !sent.at_once && !standing.state().is_settled() && !call.api.stopping.is_cancelled() {
        standing = call.read(&sent.id, STEP).await?;
    }
    if let Some(reply) = standing.reply().filter(|_| !sent.at_once && standing.is_reply()) {
        return Ok(json!({ "message": reply }));
    }
    standing.warn(sent.warnings);
    Ok(json!({ "task": standing.task(call.shown(sent.history)) }))
}

/// Submits a handoff, unless an earlier request made it.
async fn submit(
    call: &Call,
    message: &Message,
    request: &SendMessageRequest,
    output_modes: &[String],
) -> Result<Sent, Refused> {
    let Some(agent) = &call.principal.agent else {
        let why = "only an agent, with its own key, may send messages";
        return Err(Problem::new(Code::Forbidden, why).into());
    };
    let context = message.context_id.as_deref().filter(|id| !id.is_empty());
    if context.is_some_and(|id| id.len() > CONTEXT_MAX) {
        let why = format!("has at most {CONTEXT_MAX} bytes");
        return Err(A2aError::invalid("message.contextId", why));
    }
    let context = context.map(|id| task_of(agent.as_str(), id));
    let context = context.as_deref();
    let mut arguments = message::arguments(call.target(), message, context)?;
    let schema =
        hand_off_schema().ok_or_else(|| A2aError::new(ErrorKind::Internal, "no schema"))?;
    let failures = schema.check(&Value::Object(arguments.clone()));
    if !failures.is_empty() {
        return Err(violations("message", &Problem::refusal(failures, false)));
    }
    if let Some(task) = context.filter(|_| !arguments.contains_key("parentHandoffId"))
        && let Some(parent) = parent(call, task, agent.as_str()).await?
    {
        arguments.insert("parentHandoffId".to_owned(), parent.into());
    }
    let mut extension = Map::new();
    extension.insert("message".to_owned(), Value::Object(request.message.clone()));
    let more = [
        ("metadata", request.metadata.clone().map(Value::Object)),
        ("acceptedOutputModes", (!output_modes.is_empty()).then(|| output_modes.into())),
        ("extensions", (!call.extensions.is_empty()).then(|| call.extensions.clone().into())),
    ];
    extension.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    let own =
        call.agents.roster.find(agent).ok_or_else(|| Refused::from(Problem::not_found("agent")))?;
    let submission = Submission {
        api: &call.api,
        client: &call.client,
        door: DOOR,
        tenant: &call.principal.tenant,
        agent: agent.as_str(),
        version: own.agent_version.to_string(),
        arguments: &arguments,
        request: repeats_count_once(call).then_some(message.message_id.as_str()),
        digest: message::digest(&request.message, request.metadata.as_ref()),
        extension,
        handoff: None,
        members: Map::new(),
    };
    let submitted = submission.submit().await?;
    let committed = submitted.page.map(Standing::alone);
    Ok(Sent {
        id: submitted.id,
        repeated: committed.is_none(),
        committed,
        warnings: submitted.answer.map(|answer| answer.warnings).unwrap_or_default(),
        ..Sent::default()
    })
}

/// The broker's task of a context. A context that the client names itself is that client's alone: another's of the same name
/// is another task.
fn task_of(agent: &str, context: &str) -> String {
    if is_task_id(context) { context.to_owned() } else { Ids::named(CONTEXTS, agent, context).task }
}

/// The handoff by which a context came to the client itself, where it is a receiver in it: what the client hands on follows that.
async fn parent(call: &Call, task: &str, agent: &str) -> Result<Option<String>, Refused> {
    let (task, to) = (Some(task), Some(agent));
    let query = HandoffQuery { task, to, limit: API_PAGE, ..HandoffQuery::default() };
    let found = call.client.handoffs(query).await?.items.into_iter();
    let reached = found.filter(|one| one.reason.as_deref() != Some(RETURNED));
    let reached = reached.filter_map(|one| Some((one.accepted_at?, one.handoff_id)));
    Ok(reached.max_by(|one, other| one.0.cmp(&other.0)).map(|(_, id)| id))
}

/// Answers the open question of a task. A message that answered a question before answers that one again, which changes
/// nothing.
async fn answer(
    call: &Call,
    id: &str,
    message: &Message,
    raw: &Map<String, Value>,
) -> Result<Sent, Refused> {
    let standing = call.read(id, 0).await?;
    let context = message.context_id.as_deref().filter(|id| !id.is_empty());
    let own = [standing.context(), standing.broker_task()];
    if context.is_some_and(|context| !own.contains(&context)) {
        return Err(A2aError::invalid("message.contextId", "is not the context of that task"));
    }
    let request = format!("{}\u{1f}{}", standing.id(), message.message_id);
    let key =
        repeats_count_once(call).then(|| Ids::named(ANSWERS, own_agent(call), &request).handoff);
    // Read after the question: a twin of this message that answers in between leaves this one the same number.
    let earlier = match &key {
        Some(key) => answered_under(call, &standing, key).await?,
        None => None,
    };
    let state = standing.state();
    if earlier.is_none() && state != TaskState::InputRequired {
        let why = if state.is_terminal() {
            "the task has ended: send a message without taskId to go on in its context"
        } else {
            "the agent is at work and asked nothing: a task takes a message where it is in TASK_STATE_INPUT_REQUIRED"
        };
        return Err(A2aError::new(ErrorKind::UnsupportedOperation, why));
    }
    let repeated = earlier.is_some();
    let (handoff, number) = earlier.unwrap_or_else(|| {
        let page = standing.last();
        (page.handoff_id.clone(), json!(page.asked.as_ref().map(|asked| asked.number)))
    });
    let body = json!({ "answer": message::answer(message, raw), "number": number });
    let answered = call.client.answer(&handoff, &body, key).await.map_err(|refused| {
        if refused.code() == Some(Code::Conflict)
            && refused.status == StatusCode::UNPROCESSABLE_ENTITY
        {
            // The key is known with another answer.
            Refused::from(Problem::new(Code::Conflict, ANOTHER_REQUEST))
        } else {
            refused.into()
        }
    })?;
    Ok(Sent { id: id.to_owned(), repeated, warnings: answered.warnings, ..Sent::default() })
}

/// The handoff of the task, and the number of its question, that an earlier request with this key answered.
async fn answered_under(
    call: &Call,
    standing: &Standing,
    key: &str,
) -> Result<Option<(String, Value)>, Refused> {
    let Ok(task) = standing.broker_task().parse() else { return Ok(None) };
    let filter = HandoffFilter { task_id: Some(task), ..HandoffFilter::default() };
    let is_under = |asked: &Question| {
        let answer = asked.answer.as_ref();
        answer.is_some_and(|answer| answer.request.key.as_deref() == Some(key))
    };
    let mut after = None;
    loop {
        let (store, tenant) = (&call.api.store, &call.principal.tenant);
        let page = store.list_handoffs(tenant, &filter, after.as_ref(), STORE_PAGE).await;
        let page = page.map_err(Call::away)?;
        for handoff in &page {
            if let Some(place) = handoff.questions.iter().position(is_under) {
                return Ok(Some((handoff.id.to_string(), (place + 1).into())));
            }
        }
        let Some(last) = page.last() else { return Ok(None) };
        after = Some((last.created_at, last.id.to_string()));
    }
}

/// `GetTask`.
pub(super) async fn get(call: &Call, request: TaskRequest) -> Result<Value, Refused> {
    let history = history_length(request.history_length)?;
    let standing = call.read(&request.id, 0).await?;
    Ok(standing.task(call.shown(history)))
}

/// `CancelTask`: withdraws the broker's task, and with it everything that is open in the context.
pub(super) async fn cancel(call: &Call, request: TaskRequest) -> Result<Value, Refused> {
    let standing = call.read(&request.id, 0).await?;
    let not_now = |why: &str| A2aError::new(ErrorKind::TaskNotCancelable, why);
    if standing.state().is_terminal() {
        return Err(not_now("the task has ended"));
    }
    let body = json!({ "reason": "canceled by the client that sent it", "graceMs": 0 });
    match call.client.cancel_task(standing.broker_task(), &body).await {
        Ok(_) => {}
        Err(refused) => match refused.code() {
            Some(Code::Conflict) => return Err(not_now("the task has ended")),
            Some(Code::Forbidden) => {
                return Err(not_now(
                    "another agent began this context: the client cannot withdraw it",
                ));
            }
            _ => return Err(unread(refused)),
        },
    }
    let mut standing = call.read(&request.id, 0).await?;
    if !standing.state().is_terminal() {
        standing = call.read(&request.id, CANCEL_WAIT).await?;
    }
    Ok(standing.task(call.shown(None)))
}

/// `ListTasks`: the client's newest handoffs to this agent, the last that changed first.
pub(super) async fn list(call: &Call, request: ListTasksRequest) -> Result<Value, Refused> {
    let (size, state) = (request.size()?, request.state()?);
    let history = history_length(request.history_length)?;
    let after = request.status_timestamp_after.as_deref().filter(|text| !text.is_empty());
    let after = after
        .map(|text| {
            instant(text).ok_or_else(|| {
                A2aError::invalid("statusTimestampAfter", "must be a time, RFC 3339")
            })
        })
        .transpose()?;
    let from = request.page_token.as_deref().filter(|token| !token.is_empty());
    let from = from.map(place_of).transpose()?;
    let context = request.context_id.as_deref().filter(|id| !id.is_empty());
    // Contexts that their clients name are the clients' own: a person sees them by the broker's id.
    let context = context.map(|id| task_of(own_agent(call), id));
    let mut found = handoffs(call, context.as_deref()).await?;
    let newest = found.iter().map(key).max();
    if let Some(from) = &from
        && newest.as_ref().is_none_or(|newest| from > newest)
    {
        let head = newest.map(|(since, id)| format!("{since}~{id}")).unwrap_or_default();
        let why = format!("is ahead of the last place, {head}");
        return Err(A2aError::invalid("pageToken", &why));
    }
    found.retain(|one| {
        state.is_none_or(|state| one.state() == state)
            && after.as_deref().is_none_or(|after| one.since() >= after)
    });
    found.sort_by_key(|one| Reverse(key(one)));
    let total = found.len();
    let begin = from.map_or(0, |from| found.partition_point(|one| key(one) >= from));
    let page: Vec<&Standing> = found.iter().skip(begin).take(size).collect();
    let more = begin + page.len() < total;
    let next = page.last().filter(|_| more).map(|last| format!("{}~{}", last.since(), last.id()));
    let shown = Shown {
        history,
        artifacts: request.include_artifacts.unwrap_or(false),
        extension: call.knows_extension(),
    };
    let mut tasks = Vec::with_capacity(page.len());
    for one in &page {
        // The pages of the API leave these out: message, result, question.
        let whole = call.read(one.id(), 0).await?;
        tasks.push(whole.task(shown));
    }
    Ok(json!({
        "tasks": tasks, "nextPageToken": next.unwrap_or_default(), "pageSize": size, "totalSize": total,
    }))
}

/// A time in the form of the API, which sorts as a text.
fn instant(text: &str) -> Option<String> {
    let read = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339);
    let micros = i64::try_from(read.ok()?.unix_timestamp_nanos() / 1_000).ok()?;
    Some(Micros(micros).rfc3339())
}

/// The place of a task in the list: when it changed last, and its id.
fn key(one: &Standing) -> (String, String) {
    (one.since().to_owned(), one.id().to_owned())
}

/// Reads a page's token.
fn place_of(token: &str) -> Result<(String, String), Refused> {
    let wrong = || A2aError::invalid("pageToken", "is none that an earlier page gave");
    let (since, id) = token.split_once('~').ok_or_else(wrong)?;
    Ok((instant(since).ok_or_else(wrong)?, id.to_owned()))
}

/// The caller's newest handoffs to the agent.
async fn handoffs(call: &Call, context: Option<&str>) -> Result<Vec<Standing>, Refused> {
    let from = call.principal.agent.as_ref().map(AgentId::as_str);
    let (to, limit) = (Some(call.target()), API_PAGE);
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    // A page of the API may have few rows and still a cursor: it looks at a bounded number of handoffs.
    while found.len() < NEWEST {
        let cursor_id = cursor.as_deref();
        let query = HandoffQuery {
            task: context,
            from,
            to,
            limit,
            cursor: cursor_id,
            ..HandoffQuery::default()
        };
        let page = call.client.handoffs(query).await?;
        found.extend(page.items.into_iter().map(Standing::alone));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    found.truncate(NEWEST);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_time_and_an_id() {
        let place = place_of("2026-11-23T10:00:00.000001Z~h").unwrap();
        assert_eq!(place, ("2026-11-23T10:00:00.000001Z".to_owned(), "h".to_owned()));
        for token in ["", "x", "x~h", "~h"] {
            assert_eq!(place_of(token).unwrap_err().kind, ErrorKind::InvalidParams, "{token}");
        }
    }
}
