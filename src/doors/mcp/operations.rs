//! The tools that are neither `hand_off` nor a contract's: each is a request of the API, or a few.

use serde_json::{Value, json};

use super::super::client::{PageQuery, PromptOf, Waiting};
use super::answer::{self, ToolAnswer, without_words};
use super::call::ToolCall;
use super::hand_off::wait_of;
use super::wait::Turn;
use super::{receive, wait};
use crate::http::problem::Problem;
use handoffd_domain::handoff_tool::reachable;
use handoffd_domain::lenient::UnreadableParts;
use handoffd_store::clock;

/// Agents that `find_agents` shows unless said.
const SHOWN_AGENTS: u64 = 10;

impl ToolCall<'_> {
    /// A body or query of the arguments with these names, as they are.
    fn given(&self, names: &[&str]) -> Value {
        let given = names
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), self.arguments.get(*name)?.clone())));
        Value::Object(given.collect())
    }

    /// Runs a tool that is neither `hand_off` nor a contract's.
    pub(super) async fn run(&self, tool: &str) -> ToolAnswer {
        let answer = match tool {
            "find_agents" => self.find_agents().await,
            "check_handoff" => self.check_handoff().await,
            "get_handoff" => self.get_handoff().await,
            "answer" => self.answer().await,
            "ask" => self.question().await,
            "cancel_task" => self.cancel_task().await,
            "save_checkpoint" => self.save_checkpoint().await,
            "get_trace" => self.get_trace().await,
            "take_next" => receive::take_next(self).await,
            "list_dead_letters" => {
                let filters = ["status", "reason", "fromAgent", "toAgent", "cursor"];
                self.list(Waiting::DeadLetters, &filters).await
            }
            "list_escalations" => {
                self.list(Waiting::Escalations, &["status", "taskId", "cursor"]).await
            }
            "release" => {
                self.decide(Waiting::DeadLetters, "handoffId", tool, &["reason", "waive"]).await
            }
            "discard" => self.decide(Waiting::DeadLetters, "handoffId", tool, &["reason"]).await,
            "resolve" => {
                let body = ["action", "agentId", "reason"];
                self.decide(Waiting::Escalations, "escalationId", tool, &body).await
            }
            verb => receive::verdict(self, verb).await,
        };
        answer.unwrap_or_else(|refused| refused)
    }

    async fn find_agents(&self) -> Result<ToolAnswer, ToolAnswer> {
        let found = self.client.matching(self.text("task"), self.text("capability")).await?;
        let most = self.arguments.get("limit").and_then(Value::as_u64).unwrap_or(SHOWN_AGENTS);
        let mut items = found.items;
        // An agent sees only the agents to which it may hand off.
        if let Some(id) = &self.principal.agent {
            let agents = self.api.intake.directory.agents(&self.principal.tenant).await;
            let agents = agents.map_err(|err| ToolAnswer::problem(&Problem::from(err)))?;
            let own = agents.roster.find(id);
            let reached = own.map(|agent| reachable(agent, &agents.roster)).unwrap_or_default();
            items.retain(|item| reached.iter().any(|it| it.agent_id.as_str() == item.agent_id));
        }
        items.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let text = match items.len() {
            0 => "No agent that you may hand off to fits. Do the task yourself, or ask a person."
                .to_owned(),
            1 => "One agent fits.".to_owned(),
            many => format!("{many} agents fit, best first."),
        };
        Ok(ToolAnswer::done(text, json!({ "agents": items, "rankedBy": found.ranked_by })))
    }

    async fn check_handoff(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let seconds = wait_of(&self.arguments);
        let now = wait::read(self, id, Turn::Sender, 0).await?;
        // A receiver that asked waits for the answer; everybody else for the sender's turn.
        let turn = if self.receives(&now.view) { Turn::Receiver } else { Turn::Sender };
        let standing = wait::for_turn(self, id, turn, seconds).await?;
        Ok(wait::outcome(self, standing, false).await)
    }

    async fn answer(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let body = self.given(&["answer", "number"]);
        let done = self.client.answer(id, &body, None).await?;
        let text = "Answered: the receiver works on. Call check_handoff for the result.";
        Ok(ToolAnswer::done(text, without_words(json!(done))))
    }

    /// Asks the sender, then waits for the answer.
    async fn question(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let body = self.given(&["fencingToken", "question", "schema", "answerWithinMs"]);
        self.client.say(id, "ask", &body, UnreadableParts::default()).await?;
        let seconds = wait_of(&self.arguments);
        let standing = wait::for_turn(self, id, Turn::Receiver, seconds).await?;
        Ok(wait::outcome(self, standing, false).await)
    }

    async fn get_handoff(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let found = self.client.handoff(id, PageQuery::default()).await?;
        let text = if self.text("include") == Some("prompt") {
            self.client.prompt(id, PromptOf::Message).await?
        } else {
            answer::state(&*found)
        };
        Ok(ToolAnswer::done(text, without_words(json!(found))))
    }

    async fn cancel_task(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("taskId").unwrap_or_default();
        let body = self.given(&["reason", "graceMs"]);
        let done = self.client.cancel_task(id, &body).await?;
        Ok(ToolAnswer::done("The task is withdrawn.", json!(done)))
    }

    async fn save_checkpoint(&self) -> Result<ToolAnswer, ToolAnswer> {
        let fresh = || clock::random_id().to_string();
        let task = self.text("taskId").map_or_else(fresh, str::to_owned);
        let run = self.text("executionId").map_or_else(fresh, str::to_owned);
        let state = self.arguments.get("state").cloned().unwrap_or_default();
        let saved = self.client.save_checkpoint(&task, &run, &state).await?;
        Ok(ToolAnswer::done("Saved. Give taskId and executionId to hand_off.", json!(saved)))
    }

    /// The trace without what agents wrote: who, when, how it ended, what it cost.
    async fn get_trace(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("taskId").unwrap_or_default();
        let trace = self.client.trace(id).await?;
        let records = trace.records();
        let text = format!(
            "Task {id}: {}, {} handoffs, {records} records; the log {}.",
            trace.status.as_deref().unwrap_or("never begun"),
            trace.handoffs.len(),
            if trace.verification.ok { "verifies" } else { "does NOT verify" }
        );
        let handoffs: Vec<Value> = trace.handoffs.into_iter().map(without_words).collect();
        let structured = json!({
            "taskId": trace.task_id, "status": trace.status, "handoffs": handoffs,
            "records": records, "cost": trace.cost, "verification": trace.verification,
        });
        Ok(ToolAnswer::done(text, structured))
    }

    /// One page of a list.
    async fn list(&self, list: Waiting, filters: &[&str]) -> Result<ToolAnswer, ToolAnswer> {
        let limit = self.arguments.get("limit").map(ToString::to_string);
        let mut query: Vec<(&str, &str)> =
            filters.iter().filter_map(|name| Some((*name, self.text(name)?))).collect();
        query.extend(limit.as_deref().map(|limit| ("limit", limit)));
        let page = self.client.waiting(list, &query).await?;
        let (count, more) = (page.items.len(), page.next_cursor.is_some());
        let text =
            format!("{count} entries{}.", if more { "; nextCursor leads to more" } else { "" });
        Ok(ToolAnswer::done(text, json!(page)))
    }

    /// A person's decision on one entry.
    async fn decide(
        &self,
        list: Waiting,
        id: &str,
        verb: &str,
        body: &[&str],
    ) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text(id).unwrap_or_default();
        let done = self.client.decide(list, id, verb, &self.given(body)).await?;
        Ok(ToolAnswer::done("Decided, and recorded with your reason.", done))
    }
}
