//! Tool definitions for language models: what an agent's model may call to hand a task off (seeds 003 and
//! 004). Targets are enumerated from the allowlist, so a model cannot name another.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::agent::{Agent, Target};
use super::roster::Roster;
use super::unseen;

/// Whose form of a tool definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// OpenAI's chat completions: `{type: "function", function: {name, description, parameters}}`.
    OpenAi,
    /// Anthropic's messages: `{name, description, input_schema}`.
    Anthropic,
    /// The Model Context Protocol's `tools/list`: `{name, title, description, inputSchema}`.
    Mcp,
}

/// Characters of an agent's own description that are shown to a model: it is data, and the prompt is
/// not its place to be long.
const SHOWN: usize = 200;

/// The agents that this one may hand off to and that take handoffs, by id; not itself, which would be
/// no handoff.
#[must_use]
pub fn reachable<'a>(agent: &Agent, roster: &'a Roster) -> Vec<&'a Agent> {
    let mut found: Vec<&Agent> = Vec::new();
    for target in &agent.handoff_targets {
        match target {
            Target::Agent(id) => found.extend(roster.find(id)),
            Target::Type(name) => found.extend(roster.of_type(name)),
        }
    }
    found.retain(|other| other.accepts_handoffs && other.agent_id != agent.agent_id);
    found.sort_by(|a, b| a.agent_id.cmp(&b.agent_id));
    found.dedup_by(|a, b| a.agent_id == b.agent_id);
    found
}

/// `transfer_to_agent` and `handoff_to_specialist`, or nothing where the agent reaches nobody.
#[must_use]
pub fn tools(agent: &Agent, roster: &Roster, style: Style) -> Vec<Value> {
    let reached = reachable(agent, roster);
    if reached.is_empty() {
        return Vec::new();
    }
    vec![transfer(&reached, style), specialist(&reached, style)]
}

fn transfer(reached: &[&Agent], style: Style) -> Value {
    let ids: Vec<&str> = reached.iter().map(|agent| agent.agent_id.as_str()).collect();
    let list: String = reached.iter().map(|agent| line(agent.agent_id.as_str(), agent)).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "target_agent_id": {
                "type": "string", "enum": ids, "description": "The agent that shall go on",
            },
            "reason": {
                "type": "string", "minLength": 1, "description": "Why it is that agent's",
            },
            "summary": {
                "type": "string",
                "description": "What was done so far, and what is left to do",
            },
        },
        "required": ["target_agent_id", "reason"],
        "additionalProperties": false,
    });
    let told = format!(
        "Hand the task over to another agent, which goes on with it in your place. Agents:\n{list}"
    );
    shaped(style, "transfer_to_agent", "Transfer to an agent", &told, &schema)
}

fn specialist(reached: &[&Agent], style: Style) -> Value {
    let types: BTreeSet<&str> = reached.iter().map(|agent| agent.agent_type.as_str()).collect();
    let able: BTreeSet<&str> =
        reached.iter().flat_map(|agent| &agent.capabilities).map(String::as_str).collect();
    let list: String = types
        .iter()
        .filter_map(|name| reached.iter().find(|agent| agent.agent_type == **name))
        .map(|agent| line(&agent.agent_type, agent))
        .collect();
    let mut schema = json!({
        "type": "object",
        "properties": {
            "specialist_type": {
                "type": "string", "enum": types, "description": "The kind of specialist needed",
            },
            "task": {
                "type": "string", "minLength": 1, "description": "What the specialist shall do",
            },
            "reason": {
                "type": "string", "minLength": 1,
                "description": "Why this needs a specialist",
            },
            "context": {
                "type": "object", "description": "What the specialist needs to know",
            },
        },
        "required": ["specialist_type", "task", "reason"],
        "additionalProperties": false,
    });
    if !able.is_empty() {
        schema["properties"]["required_capabilities"] = json!({
            "type": "array", "items": { "type": "string", "enum": able }, "uniqueItems": true,
            "description": "What the specialist must be able to do",
        });
    }
    let told = format!(
        "Hand the task over to a specialist where it needs knowledge or tools that you do not have, or where \
         the user asks for one. Say what was done and what is left. Specialists:\n{list}"
    );
    shaped(style, "handoff_to_specialist", "Hand off to a specialist", &told, &schema)
}

/// One line on an agent, whatever its owner wrote.
fn line(name: &str, agent: &Agent) -> String {
    let words: Vec<&str> = agent.description.split_whitespace().collect();
    let told = unseen::shown(&words.join(" "), SHOWN);
    if told.is_empty() { format!("- {name}\n") } else { format!("- {name}: {told}\n") }
}

fn shaped(style: Style, name: &str, title: &str, description: &str, schema: &Value) -> Value {
    match style {
        Style::OpenAi => json!({
            "type": "function",
            "function": { "name": name, "description": description, "parameters": schema },
        }),
        Style::Anthropic => json!({
            "name": name, "description": description, "input_schema": schema,
        }),
        Style::Mcp => json!({
            "name": name, "title": title, "description": description, "inputSchema": schema,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn agent(id: &str, kind: &str, targets: &[&str]) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.agent_type = kind.to_owned();
        agent.handoff_targets = targets.iter().map(|target| target.parse().unwrap()).collect();
        agent
    }

    fn names(tools: &[Value], pointer: &str) -> Vec<String> {
        let found = tools.iter().filter_map(|tool| tool.pointer(pointer)?.as_str());
        found.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn nobody_to_hand_off_to_is_no_tool() {
        let mut deaf = agent("deaf", "clerk", &[]);
        deaf.accepts_handoffs = false;
        let roster = Roster::new(vec![deaf, agent("self", "x", &[])], &HashMap::new());
        for targets in [&[][..], &["nobody"], &["type:nothing"], &["self"], &["deaf"]] {
            assert!(tools(&agent("self", "x", targets), &roster, Style::Mcp).is_empty());
        }
    }

    #[test]
    fn targets_are_those_of_the_allowlist_each_once() {
        let mut able = agent("b", "clerk", &[]);
        able.capabilities = vec!["sums".to_owned()];
        able.description = "Adds\nup\u{7} figures".to_owned();
        let all = vec![able, agent("a", "clerk", &[]), agent("c", "poet", &[])];
        let roster = Roster::new(all, &HashMap::new());
        let from = agent("router", "router", &["type:clerk", "b", "unknown"]);
        let tools = tools(&from, &roster, Style::Anthropic);
        assert_eq!(names(&tools, "/name"), ["transfer_to_agent", "handoff_to_specialist"]);
        let schema = &tools[0]["input_schema"]["properties"];
        assert_eq!(schema["target_agent_id"]["enum"], json!(["a", "b"]));
        assert!(tools[0]["description"].as_str().unwrap().ends_with("- a\n- b: Adds up figures\n"));
        let schema = &tools[1]["input_schema"]["properties"];
        assert_eq!(schema["specialist_type"]["enum"], json!(["clerk"]));
        assert_eq!(schema["required_capabilities"]["items"]["enum"], json!(["sums"]));
    }

    #[test]
    fn each_style_is_its_makers_form_of_the_same_schema() {
        let roster = Roster::new(vec![agent("b", "clerk", &[])], &HashMap::new());
        let from = agent("a", "x", &["b"]);
        let [openai, anthropic, mcp] =
            [Style::OpenAi, Style::Anthropic, Style::Mcp].map(|style| tools(&from, &roster, style));
        assert_eq!(names(&openai, "/type"), ["function"; 2]);
        assert_eq!(names(&openai, "/function/name"), names(&mcp, "/name"));
        for place in 0..2 {
            let schema = &openai[place]["function"]["parameters"];
            assert!(jsonschema::meta::is_valid(schema), "{schema}");
            assert_eq!(schema, &anthropic[place]["input_schema"]);
            assert_eq!(schema, &mcp[place]["inputSchema"]);
        }
    }
}
