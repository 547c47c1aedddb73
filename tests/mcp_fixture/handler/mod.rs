//! The fixtures of the MCP conformance suite: tools, prompts, resources, completion and subscriptions.
//!
//! The suite's descriptions of its scenarios specify each fixture. `rmcp` reads and writes the protocol, as it does for the broker's
//! own handler.

#![expect(
    deprecated,
    reason = "the suite asks for sampling, roots and logging, which 2026-07-28 still has"
)]

mod input;
mod library;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::request::Parts;
use handoffd::clock::random_id;
use handoffd::directory::Principal;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, CompleteRequestParams,
    CompleteResult, GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, RequestStateCodec, RequestStateError,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::sync::broadcast;

/// Changes that a slow subscription may fall behind.
const CHANGES_KEPT: usize = 16;

/// A list that a tool changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Tools,
    Prompts,
}

/// The state that all requests share.
struct Shared {
    changes: broadcast::Sender<Change>,
    /// `tools/list` has one tool more.
    more_tools: AtomicBool,
    /// `prompts/list` has one prompt more.
    more_prompts: AtomicBool,
    /// Seals the state that a client carries from one round to the next.
    states: RequestStateCodec,
}

/// The handler behind the door.
#[derive(Clone)]
pub(crate) struct Fixture(Arc<Shared>);

impl Fixture {
    /// A handler with a key of its own for request states.
    ///
    /// # Errors
    /// The key is too short; two random ids are long enough.
    pub(crate) fn new() -> Result<Self, RequestStateError> {
        let key = [random_id().into_bytes(), random_id().into_bytes()].concat();
        Ok(Self(Arc::new(Shared {
            changes: broadcast::channel(CHANGES_KEPT).0,
            more_tools: AtomicBool::new(false),
            more_prompts: AtomicBool::new(false),
            states: RequestStateCodec::try_new(key)?,
        })))
    }

    /// Adds an entry to a list or takes it away again; returns how many subscriptions the change reaches.
    fn change(&self, what: Change) -> usize {
        let list = match what {
            Change::Tools => &self.0.more_tools,
            Change::Prompts => &self.0.more_prompts,
        };
        list.fetch_xor(true, Ordering::Relaxed);
        // Without a subscription no client is notified.
        self.0.changes.send(what).unwrap_or_default()
    }
}

/// The agent that the door has authenticated.
fn agent(context: &RequestContext<RoleServer>) -> Result<&str, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    let principal = parts.and_then(|parts| parts.extensions.get::<Principal>());
    let agent = principal.and_then(|principal| principal.agent.as_ref());
    agent
        .map(handoffd_domain::ids::AgentId::as_str)
        .ok_or_else(|| ErrorData::internal_error("the request has no agent", None))
}

/// The capabilities that the request declares for its client.
fn capabilities(context: &RequestContext<RoleServer>) -> ClientCapabilities {
    context.client_capabilities().unwrap_or_default()
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("mcp-fixture", "1"))
    }

    /// `rmcp` compares the headers that repeat arguments with this schema.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::list(true).into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let more = self.0.more_tools.load(Ordering::Relaxed);
        Ok(ListToolsResult::with_all_items(tools::list(more)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let agent = agent(&context)?;
        if let Some(answer) = input::call(&self.0.states, agent, &request, &capabilities(&context))
        {
            return answer;
        }
        let reached = match request.name.as_ref() {
            "test_trigger_tool_change" => self.change(Change::Tools),
            "test_trigger_prompt_change" => self.change(Change::Prompts),
            _ => return tools::call(&request.name, &context).await,
        };
        Ok(tools::said(format!("Subscriptions: {reached}")))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let more = self.0.more_prompts.load(Ordering::Relaxed);
        Ok(ListPromptsResult::with_all_items(library::prompts(more)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        input::prompt(&request, &capabilities(&context))
            .unwrap_or_else(|| library::prompt(&request))
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(library::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(library::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        library::read(&request.uri)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        library::complete(&request)
    }

    /// `rmcp` removes each category that the capabilities do not declare.
    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.changes.subscribe();
        let (accepted, sink) = (subscription.accepted(), subscription.sink());
        loop {
            let change = tokio::select! {
                change = changes.recv() => change,
                () = subscription.cancelled() => return Ok(()),
            };
            let sent = match change {
                Ok(Change::Tools) if accepted.tools_list_changed == Some(true) => {
                    sink.notify_tool_list_changed().await
                }
                Ok(Change::Prompts) if accepted.prompts_list_changed == Some(true) => {
                    sink.notify_prompt_list_changed().await
                }
                _ => continue,
            };
            if sent.is_err() {
                return Ok(());
            }
        }
    }
}
