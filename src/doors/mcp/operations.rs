//! The tools that are neither `hand_off` nor a contract's: each is a request of the API, or a few.

use serde_json::{Value, json};

use super::super::front::{ApiAnswer, ApiRequest};
use super::answer::{self, ToolAnswer, without_words};
use super::call::ToolCall;
use super::hand_off::wait_of;
use super::wait::Turn;
use super::{receive, wait};
use crate::http::problem::Problem;
use handoffd_domain::handoff_tool::reachable;
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
                self.list("dead-letters", &["status", "reason", "fromAgent", "toAgent", "cursor"])
                    .await
            }
            "list_escalations" => self.list("escalations", &["status", "taskId", "cursor"]).await,
            "release" => {
                self.decide("dead-letters", "handoffId", "release", &["reason", "waive"]).await
            }
            "discard" => self.decide("dead-letters", "handoffId", "discard", &["reason"]).await,
            "resolve" => {
                let body = ["action", "agentId", "reason"];
                self.decide("escalations", "escalationId", "resolve", &body).await
            }
            verb => receive::verdict(self, verb).await,
        };
        answer.unwrap_or_else(|refused| refused)
    }

    async fn success(&self, request: ApiRequest) -> Result<ApiAnswer, ToolAnswer> {
        self.ask(request).await.success().map_err(|refused| ToolAnswer::refused(&refused))
    }

    async fn find_agents(&self) -> Result<ToolAnswer, ToolAnswer> {
        let query: Vec<(&str, &str)> = ["task", "capability"]
            .iter()
            .filter_map(|name| Some((*name, self.text(name)?)))
            .collect();
        let found = self.success(ApiRequest::get(&["agents", "match"]).with(&query)).await?;
        let most = self.arguments.get("limit").and_then(Value::as_u64).unwrap_or(SHOWN_AGENTS);
        let mut items = found.json["items"].as_array().cloned().unwrap_or_default();
        // An agent sees only the agents to which it may hand off.
        if let Some(id) = &self.principal.agent {
            let agents = self.api.intake.directory.agents(&self.principal.tenant).await;
            let agents = agents.map_err(|err| ToolAnswer::problem(&Problem::from(err)))?;
            let own = agents.roster.find(id);
            let reached = own.map(|agent| reachable(agent, &agents.roster)).unwrap_or_default();
            items.retain(|item| {
                reached
                    .iter()
                    .any(|agent| item["agentId"].as_str() == Some(agent.agent_id.as_str()))
            });
        }
        items.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        let text = match items.len() {
            0 => "No agent that you may hand off to fits. Do the task yourself, or ask a person."
                .to_owned(),
            1 => "One agent fits.".to_owned(),
            many => format!("{many} agents fit, best first."),
        };
        Ok(ToolAnswer::done(text, json!({ "agents": items, "rankedBy": found.json["rankedBy"] })))
    }

    async fn check_handoff(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let seconds = wait_of(&self.arguments);
        let refused = |refused: ApiAnswer| ToolAnswer::refused(&refused);
        let now = wait::read(self, id, Turn::Sender, 0).await.map_err(refused)?;
        // A receiver that asked waits for the answer; everybody else for the sender's turn.
        let turn = if self.receives(&now.view) { Turn::Receiver } else { Turn::Sender };
        let standing = wait::for_turn(self, id, turn, seconds).await.map_err(refused)?;
        Ok(wait::outcome(self, standing, false).await)
    }

    async fn answer(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let body = self.given(&["answer", "number"]);
        let done = self.success(ApiRequest::post(&["handoffs", id, "answer"], body)).await?;
        let text = "Answered: the receiver works on. Call check_handoff for the result.";
        Ok(ToolAnswer::done(text, without_words(done.json)))
    }

    /// Asks the sender, then waits for the answer.
    async fn question(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let body = self.given(&["fencingToken", "question", "schema", "answerWithinMs"]);
        self.success(ApiRequest::post(&["handoffs", id, "ask"], body)).await?;
        let seconds = wait_of(&self.arguments);
        let standing = wait::for_turn(self, id, Turn::Receiver, seconds).await;
        let standing = standing.map_err(|refused| ToolAnswer::refused(&refused))?;
        Ok(wait::outcome(self, standing, false).await)
    }

    async fn get_handoff(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("handoffId").unwrap_or_default();
        let found = self.success(ApiRequest::get(&["handoffs", id])).await?;
        let text = if self.text("include") == Some("prompt") {
            self.success(ApiRequest::get(&["handoffs", id, "prompt"])).await?.text
        } else {
            answer::state(&found.json)
        };
        Ok(ToolAnswer::done(text, without_words(found.json)))
    }

    async fn cancel_task(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("taskId").unwrap_or_default();
        let body = self.given(&["reason", "graceMs"]);
        let done = self.success(ApiRequest::post(&["tasks", id, "cancel"], body)).await?;
        Ok(ToolAnswer::done("The task is withdrawn.", done.json))
    }

    async fn save_checkpoint(&self) -> Result<ToolAnswer, ToolAnswer> {
        let fresh = || clock::random_id().to_string();
        let task = self.text("taskId").map_or_else(fresh, str::to_owned);
        let run = self.text("executionId").map_or_else(fresh, str::to_owned);
        let state = self.arguments.get("state").cloned().unwrap_or_default();
        let saved =
            self.success(ApiRequest::put(&["tasks", &task, "checkpoints", &run], state)).await?;
        Ok(ToolAnswer::done("Saved. Give taskId and executionId to hand_off.", saved.json))
    }

    /// The trace without what agents wrote: who, when, how it ended, what it cost.
    async fn get_trace(&self) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text("taskId").unwrap_or_default();
        let mut trace = self.success(ApiRequest::get(&["tasks", id, "trace"])).await?.json;
        for handoff in trace["handoffs"].as_array_mut().into_iter().flatten() {
            *handoff = without_words(handoff.take());
        }
        let records = trace["records"].as_array().map_or(0, Vec::len);
        let handoffs = trace["handoffs"].as_array().map_or(0, Vec::len);
        let holds = trace["verification"]["ok"] == true;
        let text = format!(
            "Task {id}: {}, {handoffs} handoffs, {records} records; the log {}.",
            trace["status"].as_str().unwrap_or("never begun"),
            if holds { "verifies" } else { "does NOT verify" }
        );
        let structured = json!({
            "taskId": trace["taskId"], "status": trace["status"], "handoffs": trace["handoffs"],
            "records": records, "cost": trace["cost"], "verification": trace["verification"],
        });
        Ok(ToolAnswer::done(text, structured))
    }

    /// One page of a list.
    async fn list(&self, resource: &str, filters: &[&str]) -> Result<ToolAnswer, ToolAnswer> {
        let limit = self.arguments.get("limit").map(ToString::to_string);
        let mut query: Vec<(&str, &str)> =
            filters.iter().filter_map(|name| Some((*name, self.text(name)?))).collect();
        query.extend(limit.as_deref().map(|limit| ("limit", limit)));
        let page = self.success(ApiRequest::get(&[resource]).with(&query)).await?;
        let count = page.json["items"].as_array().map_or(0, Vec::len);
        let more = page.text_at("/nextCursor").is_some();
        let text =
            format!("{count} entries{}.", if more { "; nextCursor leads to more" } else { "" });
        Ok(ToolAnswer::done(text, page.json))
    }

    /// A person's decision on one entry.
    async fn decide(
        &self,
        resource: &str,
        id: &str,
        verb: &str,
        body: &[&str],
    ) -> Result<ToolAnswer, ToolAnswer> {
        let id = self.text(id).unwrap_or_default();
        let done = self.success(ApiRequest::post(&[resource, id, verb], self.given(body))).await?;
        Ok(ToolAnswer::done("Decided, and recorded with your reason.", done.json))
    }
}
