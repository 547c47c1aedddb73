//! The suite's tools that answer in one round.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, JsonObject,
    LoggingMessageNotificationParam, ProgressNotificationParam, ResourceContents, Tool,
};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use super::{capabilities, input};

/// One red pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// Two samples of silence.
const WAV: &str = "UklGRigAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQQAAAAAAAAA";
/// Between two steps of a tool that reports its progress, as the suite says.
const STEP: Duration = Duration::from_millis(50);

/// The tool with an argument that a header repeats (SEP-2243).
const HEADER: &str = "test_custom_header";
/// The tool whose schema has the keywords of JSON Schema 2020-12 (SEP-2106).
const SCHEMA: &str = "json_schema_2020_12_tool";

const TOOLS: [(&str, &str); 12] = [
    ("test_simple_text", "Answers with a text"),
    ("test_image_content", "Answers with an image"),
    ("test_audio_content", "Answers with a sound"),
    ("test_embedded_resource", "Answers with a resource"),
    ("test_multiple_content_types", "Answers with a text, an image and a resource"),
    ("test_error_handling", "Answers with an error"),
    ("test_tool_with_progress", "Reports its progress before it answers"),
    ("test_missing_capability", "Needs a client that can sample"),
    ("test_streaming_elicitation", "Asks the user on the stream of the call"),
    ("test_logging_tool", "Logs, where the request asks for it"),
    ("test_trigger_tool_change", "Changes the list of tools"),
    ("test_trigger_prompt_change", "Changes the list of prompts"),
];

/// All tools in their order; `more` adds the one that `test_trigger_tool_change` brings.
pub(super) fn list(more: bool) -> Vec<Tool> {
    let changing = more.then_some(("test_changing_tool", "Is there since a change"));
    let none = schema(json!({ "type": "object", "properties": {} }));
    let plain = TOOLS.into_iter().chain(input::TOOLS).chain(changing);
    let mut all: Vec<Tool> =
        plain.map(|(name, description)| Tool::new(name, description, none.clone())).collect();
    all.push(Tool::new(HEADER, "Has an argument that a header repeats", header_arguments()));
    all.push(Tool::new(SCHEMA, "Has a schema of many keywords", rich_arguments()));
    all
}

fn schema(value: Value) -> Arc<JsonObject> {
    let Value::Object(members) = value else { unreachable!("a schema is an object") };
    Arc::new(members)
}

fn header_arguments() -> Arc<JsonObject> {
    schema(json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" } },
        "required": ["region"],
    }))
}

/// The schema that the suite looks for in the list, keyword by keyword.
fn rich_arguments() -> Arc<JsonObject> {
    schema(json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    }))
}

/// An answer of one text.
pub(super) fn said(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

pub(super) async fn call(
    name: &str,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let resource = |uri: &str, kind: &str, text: &str| {
        ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(kind))
    };
    let content = match name {
        "test_simple_text" => {
            vec![ContentBlock::text("This is a simple text response for testing.")]
        }
        "test_image_content" => vec![ContentBlock::image(PNG, "image/png")],
        "test_audio_content" => vec![ContentBlock::audio(WAV, "audio/wav")],
        "test_embedded_resource" => vec![resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )],
        "test_multiple_content_types" => vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ],
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            return Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into());
        }
        "test_tool_with_progress" => progress(context).await?,
        "test_missing_capability" if capabilities(context).sampling.is_none() => {
            let needed = ClientCapabilities::builder().enable_sampling().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        "test_missing_capability" => vec![ContentBlock::text("The client can sample.")],
        "test_logging_tool" => logged(context).await?,
        HEADER | SCHEMA => vec![ContentBlock::text("The arguments came through.")],
        "test_changing_tool" => vec![ContentBlock::text("This tool is there since a change.")],
        _ => return Err(ErrorData::invalid_params("unknown tool", None)),
    };
    Ok(CallToolResult::success(content).into())
}

/// Three steps, each notified where the client gave a token.
async fn progress(context: &RequestContext<RoleServer>) -> Result<Vec<ContentBlock>, ErrorData> {
    let token = context.meta.get_progress_token();
    for step in [0.0, 50.0, 100.0] {
        if step > 0.0 {
            tokio::time::sleep(STEP).await;
        }
        if let Some(token) = &token {
            let told = ProgressNotificationParam::new(token.clone(), step).with_total(100.0);
            context.peer.notify_progress(told).await.map_err(gone)?;
        }
    }
    Ok(vec![ContentBlock::text("The tool reported its progress.")])
}

/// A log message where the request gives a level, and none where it does not.
async fn logged(context: &RequestContext<RoleServer>) -> Result<Vec<ContentBlock>, ErrorData> {
    if let Some(level) = context.meta.log_level() {
        let message = LoggingMessageNotificationParam::new(level, json!("The tool logs."));
        context.peer.notify_logging_message(message).await.map_err(gone)?;
    }
    Ok(vec![ContentBlock::text("The tool logs where it is asked to.")])
}

fn gone(_: ServiceError) -> ErrorData {
    ErrorData::internal_error("the client went away", None)
}
