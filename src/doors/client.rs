//! The API's operations as doors use them: one method for each, with typed arguments, and the API's own views for answers.
//!
//! An answer becomes typed by a parse of its document into the struct that the API wrote it from. The struct is not handed
//! over beside the document, because the document is what counts: a layer between handler and door may write it anew, where
//! the caller's key reads no contents (`http/withheld.rs`). The words of agents (a message, a result) stay JSON.
//!
//! Documents that a door only passes on are [`Value`]s here.

use axum::body::Body;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) use super::front::ApiRefusal;
use super::front::{ApiRequest, CallerHeaders, FrontDoor, read};
use super::state::Standing;
use crate::http::handoffs::CommittedHandoff;
use crate::http::inbox::InboxView;
use crate::http::matching::MatchView;
use crate::http::subscriptions::views::{SubscriptionView, SubscriptionsView};
use crate::http::tasks::CheckpointView;
use crate::http::views::{HandoffView, Page, SubmittedView, TaskView};
use handoffd_domain::lenient::UnreadableParts;

/// The API, called in one caller's name.
#[derive(Clone)]
pub(super) struct ApiClient {
    front: FrontDoor,
    caller: CallerHeaders,
}

/// A handoff that a submission committed.
pub(super) struct Submitted {
    pub(super) answer: SubmittedView,
    /// Its own page as it was committed, without its message; none where an earlier request made it.
    pub(super) committed: Option<Box<HandoffView>>,
}

/// The parts of a handoff's page to read, and the wait before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageQuery {
    /// `include`, as the API has it.
    pub(super) include: Option<&'static str>,
    /// Seconds. Also without a wait (0) the read follows a receiver that handed the task on to the next holder.
    pub(super) wait: Option<u64>,
    /// `until`, as the API has it.
    pub(super) until: Option<&'static str>,
}

/// The handoffs of a list.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HandoffQuery<'a> {
    pub(super) task: Option<&'a str>,
    pub(super) from: Option<&'a str>,
    pub(super) to: Option<&'a str>,
    pub(super) conversation: Option<&'a str>,
    pub(super) cursor: Option<&'a str>,
    pub(super) limit: i64,
}

/// The guarded blocks of a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptOf {
    Message,
    Result,
    Question,
}

/// The lists of entries that wait for a person.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiting {
    DeadLetters,
    Escalations,
}

impl Waiting {
    const fn path(self) -> &'static str {
        match self {
            Self::DeadLetters => "dead-letters",
            Self::Escalations => "escalations",
        }
    }
}

/// A trace as far as doors tell it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TraceParts {
    pub(super) task_id: Value,
    pub(super) status: Option<String>,
    pub(super) handoffs: Vec<Value>,
    records: Vec<IgnoredAny>,
    #[serde(default)]
    pub(super) cost: Value,
    pub(super) verification: Verification,
}

impl TraceParts {
    pub(super) fn records(&self) -> usize {
        self.records.len()
    }
}

/// Whether the log that a trace is read from verifies.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Verification {
    pub(super) ok: bool,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

/// Secrets of a new agent, which are shown once.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IssuedSecrets {
    pub(super) api_key: String,
    pub(super) signing_secret: String,
    pub(super) webhook_secret: String,
}

type Answer<T> = Result<T, ApiRefusal>;

impl ApiClient {
    pub(super) fn new(front: &FrontDoor, caller: CallerHeaders) -> Self {
        Self { front: front.clone(), caller }
    }

    pub(super) const fn caller(&self) -> &CallerHeaders {
        &self.caller
    }

    async fn ask<T: DeserializeOwned>(&self, asked: ApiRequest) -> Answer<T> {
        self.front.ask(&self.caller, asked).await
    }

    /// Submits a message.
    pub(super) async fn submit(&self, message: &Value) -> Answer<Submitted> {
        let asked = ApiRequest::post(&["handoffs"], message);
        let mut answer = self.front.call(&self.caller, asked, None).await?;
        let committed = answer.extensions_mut().remove::<CommittedHandoff>();
        let committed = committed.map(|CommittedHandoff(view)| view);
        Ok(Submitted { answer: read(answer).await?, committed })
    }

    /// A handoff's own page.
    pub(super) async fn handoff(&self, id: &str, query: PageQuery) -> Answer<Box<HandoffView>> {
        let wait = query.wait.map(|seconds| seconds.to_string());
        let asked = ApiRequest::get(&["handoffs", id]).with_some(&[
            ("include", query.include),
            ("wait", wait.as_deref()),
            ("until", query.until),
        ]);
        self.ask(asked).await
    }

    /// A handoff's page with that of its last successor, of which these parts are read. A successor may not be the caller's
    /// to read: then the handoff itself is all there is to tell.
    pub(super) async fn succeeded(
        &self,
        view: Box<HandoffView>,
        include: Option<&'static str>,
    ) -> Standing {
        let query = PageQuery { include, ..PageQuery::default() };
        let successor = match &view.successor_id {
            None => None,
            Some(id) => self.handoff(id, query).await.ok(),
        };
        Standing { view, successor }
    }

    /// One page of handoffs, without their contents.
    pub(super) async fn handoffs(&self, query: HandoffQuery<'_>) -> Answer<Page<HandoffView>> {
        let limit = query.limit.to_string();
        let asked = ApiRequest::get(&["handoffs"]).with_some(&[
            ("taskId", query.task),
            ("fromAgent", query.from),
            ("toAgent", query.to),
            ("conversationId", query.conversation),
            ("limit", Some(&limit)),
            ("cursor", query.cursor),
        ]);
        self.ask(asked).await
    }

    /// A guarded block.
    pub(super) async fn prompt(&self, id: &str, of: PromptOf) -> Answer<String> {
        let segments: &[&str] = match of {
            PromptOf::Message => &["handoffs", id, "prompt"],
            PromptOf::Result => &["handoffs", id, "result", "prompt"],
            PromptOf::Question => &["handoffs", id, "question", "prompt"],
        };
        self.front.text(&self.caller, ApiRequest::get(segments)).await
    }

    /// A receiver's verdict, heartbeat or question. `unreadable`: the parts of its body that could not be kept as they came.
    pub(super) async fn say(
        &self,
        id: &str,
        verb: &str,
        body: &Value,
        unreadable: UnreadableParts,
    ) -> Answer<Box<HandoffView>> {
        self.ask(ApiRequest::post(&["handoffs", id, verb], body).without(unreadable)).await
    }

    /// Answers a receiver's question. `key`: the request's idempotency key.
    pub(super) async fn answer(
        &self,
        id: &str,
        body: &Value,
        key: Option<String>,
    ) -> Answer<Box<HandoffView>> {
        self.ask(ApiRequest::post(&["handoffs", id, "answer"], body).under(key)).await
    }

    pub(super) async fn task(&self, id: &str) -> Answer<TaskView> {
        self.ask(ApiRequest::get(&["tasks", id])).await
    }

    pub(super) async fn complete_task(&self, id: &str, output: &Value) -> Answer<TaskView> {
        self.ask(ApiRequest::post(&["tasks", id, "complete"], json!({ "output": output }))).await
    }

    pub(super) async fn cancel_task(&self, id: &str, body: &Value) -> Answer<TaskView> {
        self.ask(ApiRequest::post(&["tasks", id, "cancel"], body)).await
    }

    pub(super) async fn trace(&self, task: &str) -> Answer<TraceParts> {
        self.ask(ApiRequest::get(&["tasks", task, "trace"])).await
    }

    /// The stream of a task's events behind one of them.
    pub(super) async fn task_events(&self, task: &str, after: &str) -> Answer<Body> {
        let asked = ApiRequest::get(&["tasks", task, "events"]);
        Ok(self.front.call(&self.caller, asked, Some(after)).await?.into_body())
    }

    pub(super) async fn save_checkpoint(
        &self,
        task: &str,
        run: &str,
        state: &Value,
    ) -> Answer<CheckpointView> {
        self.ask(ApiRequest::put(&["tasks", task, "checkpoints", run], state)).await
    }

    /// Claims what waits for an agent, after a wait of so many seconds.
    pub(super) async fn inbox(&self, agent: &str, wait: u64, max: u64) -> Answer<InboxView> {
        let (wait, max) = (wait.to_string(), max.to_string());
        let asked = ApiRequest::get(&["agents", agent, "inbox"]);
        self.ask(asked.with(&[("wait", &wait), ("max", &max)])).await
    }

    /// The agents that could take something, best first.
    pub(super) async fn matching(
        &self,
        task: Option<&str>,
        capability: Option<&str>,
    ) -> Answer<MatchView> {
        let asked = ApiRequest::get(&["agents", "match"]);
        self.ask(asked.with_some(&[("task", task), ("capability", capability)])).await
    }

    pub(super) async fn register_agent(&self, agent: &Value) -> Answer<IssuedSecrets> {
        self.ask(ApiRequest::post(&["agents"], agent)).await
    }

    pub(super) async fn change_agent(&self, id: &str, change: &Value) -> Answer<()> {
        self.ask(ApiRequest::patch(&["agents", id], change)).await.map(|IgnoredAny| ())
    }

    pub(super) async fn subscriptions(&self) -> Answer<SubscriptionsView> {
        self.ask(ApiRequest::get(&["subscriptions"])).await
    }

    pub(super) async fn subscribe(&self, body: &Value) -> Answer<SubscriptionView> {
        self.ask(ApiRequest::post(&["subscriptions"], body)).await
    }

    pub(super) async fn unsubscribe(&self, id: &str) -> Answer<()> {
        let asked = ApiRequest::delete(&["subscriptions", id]);
        self.front.call(&self.caller, asked, None).await.map(|_| ())
    }

    /// One page of the entries that wait for a person.
    pub(super) async fn waiting(
        &self,
        list: Waiting,
        query: &[(&str, &str)],
    ) -> Answer<Page<Value>> {
        self.ask(ApiRequest::get(&[list.path()]).with(query)).await
    }

    /// A person's decision on one entry.
    pub(super) async fn decide(
        &self,
        list: Waiting,
        id: &str,
        verb: &str,
        body: &Value,
    ) -> Answer<Value> {
        self.ask(ApiRequest::post(&[list.path(), id, verb], body)).await
    }
}
