//! One call of a tool: in whose name, with which arguments, and what it asks of the API.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::{Map, Value};

use super::super::client::ApiClient;
use super::answer::ToolAnswer;
use crate::http::Api;
use crate::http::problem::Problem;
use crate::http::views::HandoffView;
use handoffd_broker::directory::Principal;
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::AgentId;

/// A call under way.
pub(super) struct ToolCall<'a> {
    pub(super) api: &'a Api,
    pub(super) client: ApiClient,
    pub(super) principal: &'a Principal,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) arguments: Map<String, Value>,
}

impl ToolCall<'_> {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).and_then(Value::as_str)
    }

    pub(super) fn agent(&self) -> Result<&str, ToolAnswer> {
        self.principal.agent.as_ref().map(AgentId::as_str).ok_or_else(|| {
            let why = "only an agent, with its own key, may do this";
            ToolAnswer::problem(&Problem::new(Code::Forbidden, why))
        })
    }

    /// The caller's agent as registered.
    pub(super) async fn registered(&self) -> Result<Arc<Agent>, ToolAnswer> {
        let id = self.principal.agent.as_ref();
        let agents = self.api.intake.directory.agents(&self.principal.tenant).await;
        let agents = agents.map_err(|err| ToolAnswer::problem(&Problem::from(err)))?;
        let found = id.and_then(|id| agents.roster.find(id)).cloned().map(Arc::new);
        found.ok_or_else(|| ToolAnswer::problem(&Problem::not_found("agent")))
    }

    /// Whether the caller is the receiver of a handoff.
    pub(super) fn receives(&self, view: &HandoffView) -> bool {
        self.principal.agent.as_ref().is_some_and(|own| own.as_str() == view.to_agent.agent_id)
    }
}
