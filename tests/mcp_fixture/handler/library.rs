//! The suite's prompts, resources and completions.

use rmcp::ErrorData;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ContentBlock, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Prompt, PromptArgument, PromptMessage,
    ReadResourceResponse, ReadResourceResult, Reference, Resource, ResourceContents,
    ResourceTemplate, Role,
};
use serde_json::{Value, json};

use super::input;
use super::tools::PNG;

const STATIC_TEXT: &str = "test://static-text";
const STATIC_BINARY: &str = "test://static-binary";
const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";
/// The completions of `arg1`.
const WORDS: [&str; 5] = ["paris", "park", "party", "test", "testing"];

/// All prompts in their order; `more` adds the one that `test_trigger_prompt_change` brings.
pub(super) fn prompts(more: bool) -> Vec<Prompt> {
    let argument =
        |name| PromptArgument::new(name).with_description("Any text").with_required(true);
    let mut all = vec![
        Prompt::new("test_simple_prompt", Some("A text"), None),
        Prompt::new(
            WITH_ARGUMENTS,
            Some("A text with two arguments"),
            Some(vec![argument("arg1"), argument("arg2")]),
        ),
        Prompt::new(
            "test_prompt_with_embedded_resource",
            Some("A resource and a text"),
            Some(vec![argument("resourceUri")]),
        ),
        Prompt::new("test_prompt_with_image", Some("An image and a text"), None),
        Prompt::new(input::PROMPT, Some("A prompt that asks the user first"), None),
    ];
    if more {
        all.push(Prompt::new("test_changing_prompt", Some("Is there since a change"), None));
    }
    all
}

/// A prompt of texts and other content, all from the user.
pub(super) fn messages(content: Vec<ContentBlock>) -> GetPromptResponse {
    let messages = content.into_iter().map(|block| PromptMessage::new(Role::User, block));
    GetPromptResult::new(messages.collect()).into()
}

pub(super) fn prompt(request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let given = request.arguments.as_ref().and_then(|all| all.get(name));
        given.and_then(Value::as_str).ok_or_else(|| {
            ErrorData::invalid_params(format!("the argument {name} is missing"), None)
        })
    };
    let content = match request.name.as_str() {
        "test_simple_prompt" => vec![ContentBlock::text("This is a simple prompt for testing.")],
        WITH_ARGUMENTS => {
            let (one, two) = (argument("arg1")?, argument("arg2")?);
            vec![ContentBlock::text(format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => vec![
            ContentBlock::resource(ResourceContents::text(
                "Embedded resource content for testing.",
                argument("resourceUri")?,
            )),
            ContentBlock::text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![
            ContentBlock::image(PNG, "image/png"),
            ContentBlock::text("Please analyze the image above."),
        ],
        "test_changing_prompt" => vec![ContentBlock::text("This prompt is there since a change.")],
        _ => return Err(ErrorData::invalid_params("unknown prompt", None)),
    };
    Ok(messages(content))
}

pub(super) fn resources() -> Vec<Resource> {
    vec![
        Resource::new(STATIC_TEXT, "static-text")
            .with_description("A text")
            .with_mime_type("text/plain"),
        Resource::new(STATIC_BINARY, "static-binary")
            .with_description("An image")
            .with_mime_type("image/png"),
    ]
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = ResourceTemplate::new("test://template/{id}/data", "template-data");
    vec![template.with_description("Data by id").with_mime_type("application/json")]
}

pub(super) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let by_id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, by_id) {
        (STATIC_TEXT, _) => {
            ResourceContents::text("This is the content of the static text resource.", uri)
        }
        (STATIC_BINARY, _) => ResourceContents::blob(PNG, uri).with_mime_type("image/png"),
        (_, Some(id)) => {
            let data = format!("Data for ID: {id}");
            let text = json!({ "id": id, "templateTest": true, "data": data }).to_string();
            ResourceContents::text(text, uri).with_mime_type("application/json")
        }
        _ => {
            let named = json!({ "uri": uri });
            return Err(ErrorData::resource_not_found("Resource not found", Some(named)));
        }
    };
    Ok(ReadResourceResult::new(vec![contents]).into())
}

pub(super) fn complete(request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let known =
        matches!(&request.r#ref, Reference::Prompt(prompt) if prompt.name == WITH_ARGUMENTS);
    if !known {
        return Err(ErrorData::invalid_params("nothing to complete by that name", None));
    }
    let words = WORDS.iter().filter(|word| word.starts_with(&request.argument.value));
    let found = CompletionInfo::with_all_values(words.map(|word| (*word).to_owned()).collect());
    let found = found.map_err(|why| ErrorData::internal_error(why, None))?;
    Ok(CompleteResult::new(found))
}
