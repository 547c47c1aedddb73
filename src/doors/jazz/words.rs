//! The pattern's texts, word for word (seed 004): the tool, its failures, the guidance for a system prompt. Pure.

use serde_json::{Value, json};

/// The tool's name.
pub(super) const TOOL: &str = "handoff_to_specialist";

/// Words by which the tool is found.
pub(super) const TAGS: [&str; 3] = ["coordination", "handoff", "delegation"];

const DESCRIPTION: &str = "Transfer control to a specialized agent when you encounter a task that requires specific expertise you don't have.

Use this when:
- The task requires specialized knowledge (e.g., testing, deployment, security analysis)
- You recognize a task is outside your core competency
- The user explicitly requests a specialist
- You need deep expertise in a specific domain

Provide clear context about what you've done so far and what you need the specialist to accomplish.";

const GUIDANCE: &str = "## Working with Specialists

You have access to specialized agents through the 'handoff_to_specialist' tool. Use this when:

1. **You lack expertise**: The task requires specialized knowledge you don't have
2. **Efficiency**: A specialist can do it better/faster
3. **User requests**: User explicitly asks for a specialist
4. **Complex operations**: Testing, deployment, security audits, etc.

When handing off:
- Clearly explain what you need the specialist to do
- Provide all relevant context from your conversation
- Explain why you're handing off
- After receiving results, synthesize and present them to the user

Available specialists:
{specialist_list}

You remain the primary interface to the user. Specialists help you accomplish tasks, but you maintain the conversation thread.";

/// The answer of a router that finds no agent.
pub(super) const NONE: &str = "NONE";

/// The tool's definition.
pub(super) fn tool() -> Value {
    let text = |told: &str| json!({ "type": "string", "minLength": 1, "description": told });
    let mut kind = text(
        "The type of specialist needed (e.g., 'testing', 'deployment', 'security', 'data-analysis')",
    );
    kind["maxLength"] = 256.into();
    json!({
        "name": TOOL,
        "description": DESCRIPTION,
        "tags": TAGS,
        "parameters": {
            "type": "object",
            "properties": {
                "specialist_type": kind,
                "task": text("Clear description of what you need the specialist to do"),
                "reason": text("Why you're handing off this task to a specialist"),
                "context": {
                    "type": "object",
                    "description": "Important context or data the specialist needs to know",
                },
                "required_capabilities": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Specific capabilities needed from the specialist",
                },
            },
            "required": ["specialist_type", "task", "reason"],
            "additionalProperties": false,
        },
    })
}

/// The guidance, with the specialists' lines in it.
pub(super) fn guidance(specialists: &[String]) -> String {
    GUIDANCE.replace("{specialist_list}", &specialists.join("\n"))
}

/// The agent's options without a specialist.
pub(super) fn no_specialist(kind: &str) -> String {
    format!(
        "No specialist found for capability: {kind}. Please handle this task yourself or ask the user for guidance."
    )
}

/// Why a handoff brought no result.
pub(super) fn failed(name: &str, why: &str) -> String {
    format!("Handoff to {name} failed: {why}")
}

/// The state of an open handoff.
pub(super) fn open(name: &str, why: &str) -> String {
    format!("Handoff to {name} goes on: {why}")
}

/// The outcome of a handoff.
pub(super) fn completed(name: &str, kind: &str, task: &str) -> String {
    format!("{name} ({kind} specialist) completed the task: {task}")
}

/// The id of the conversation that a specialist begins.
pub(super) fn child_conversation(handoff: &str) -> String {
    format!("handoff-{handoff}")
}

/// The handoff whose specialist began a conversation.
pub(super) fn handoff_of(conversation: &str) -> Option<&str> {
    conversation.strip_prefix("handoff-").filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_parameters_are_a_schema_and_need_three_texts() {
        let tool = tool();
        let parameters = &tool["parameters"];
        assert!(jsonschema::meta::is_valid(parameters));
        assert_eq!(parameters["required"], json!(["specialist_type", "task", "reason"]));
        for name in ["specialist_type", "task", "reason"] {
            assert_eq!(parameters["properties"][name]["minLength"], 1, "{name}");
        }
    }

    #[test]
    fn the_guidance_has_the_list_in_its_place() {
        let told = guidance(&["- a".to_owned(), "- b".to_owned()]);
        assert!(told.contains("Available specialists:\n- a\n- b\n\nYou remain"), "{told}");
        assert!(!told.contains('{'));
    }

    #[test]
    fn a_specialists_conversation_names_its_handoff() {
        assert_eq!(handoff_of(&child_conversation("x")), Some("x"));
        assert_eq!((handoff_of("conv-123"), handoff_of("handoff-")), (None, None));
    }
}
