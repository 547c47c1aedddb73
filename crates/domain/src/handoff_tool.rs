//! Tool definitions for language models: what an agent's model may call to hand a task off (seeds 003 and
//! 004). Targets are enumerated from the allowlist, so a model cannot name another.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::agent::{Agent, Target};
use super::roster::Roster;
use super::unseen;

/// Whose form of a tool definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

/// A tool that a contract names as its trigger (seed 002 §3.3): its call is a handoff along that edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractTool {
    pub name: String,
    pub contract: String,
    /// When to call it, in the contract's words.
    pub intent: Option<String>,
    /// The agent's id or type that it leads to.
    pub target: String,
}

/// `transfer_to_agent` and `handoff_to_specialist`, and the tools that contracts of the agent's edges name,
/// each name once; or nothing if the agent reaches no other.
#[must_use]
pub fn tools(
    agent: &Agent,
    roster: &Roster,
    contracts: &[ContractTool],
    style: Style,
) -> Vec<Value> {
    let reached = reachable(agent, roster);
    if reached.is_empty() {
        return Vec::new();
    }
    let mut taken = BTreeSet::from([TRANSFER, SPECIALIST]);
    let mut tools = vec![transfer(&reached, style), specialist(&reached, style)];
    for tool in contracts {
        let leads = reached
            .iter()
            .any(|other| other.agent_id.as_str() == tool.target || other.agent_type == tool.target);
        if leads && taken.insert(&tool.name) {
            tools.push(by_contract(tool, style));
        }
    }
    tools
}

/// The names of the two tools that every agent with targets gets.
const TRANSFER: &str = "transfer_to_agent";
const SPECIALIST: &str = "handoff_to_specialist";
/// Characters of a task's summary, by the message schema.
const SUMMARY: usize = 500;

fn by_contract(tool: &ContractTool, style: Style) -> Value {
    let words: Vec<&str> = tool.intent.as_deref().unwrap_or_default().split_whitespace().collect();
    let when: String = words.join(" ").chars().filter(|c| !c.is_control()).take(SHOWN).collect();
    let when = if when.is_empty() { when } else { format!(" When: {when}") };
    let told = format!(
        "Hand the task over to {}, which goes on with it in your place, under the contract {}.{when}",
        tool.target, tool.contract
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "task_summary": {
                "type": "string", "minLength": 1, "maxLength": SUMMARY,
                "description": "The receiver's task, understandable by itself",
            },
            "reason": {
                "type": "string", "minLength": 1, "description": "Why the task is the receiver's",
            },
            "constraints": {
                "type": "array", "items": { "type": "string", "pattern": "^[^:]+:" },
                "description": "Policy, budget or deadline to keep to, each as key:value",
            },
            "context": {
                "type": "object", "description": "The facts that the receiver needs",
            },
        },
        "required": ["task_summary", "reason"],
        "additionalProperties": false,
    });
    shaped(style, &tool.name, &format!("Transfer to {}", tool.target), &told, &schema)
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
                "description": "The work that is done, and the work that is left",
            },
        },
        "required": ["target_agent_id", "reason"],
        "additionalProperties": false,
    });
    let told = format!(
        "Hand the task over to another agent, which goes on with it in your place. Agents:\n{list}"
    );
    shaped(style, TRANSFER, "Transfer to an agent", &told, &schema)
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
                "type": "string", "minLength": 1, "description": "The specialist's task",
            },
            "reason": {
                "type": "string", "minLength": 1,
                "description": "Why this needs a specialist",
            },
            "context": {
                "type": "object", "description": "The facts that the specialist needs",
            },
        },
        "required": ["specialist_type", "task", "reason"],
        "additionalProperties": false,
    });
    if !able.is_empty() {
        schema["properties"]["required_capabilities"] = json!({
            "type": "array", "items": { "type": "string", "enum": able }, "uniqueItems": true,
            "description": "The capabilities that the specialist needs",
        });
    }
    let told = format!(
        "Hand the task over to a specialist where it needs knowledge or tools that you do not have, or where \
         the user asks for one. Say what was done and what is left. Specialists:\n{list}"
    );
    shaped(style, SPECIALIST, "Hand off to a specialist", &told, &schema)
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
            assert!(tools(&agent("self", "x", targets), &roster, &[], Style::Mcp).is_empty());
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
        let tools = tools(&from, &roster, &[], Style::Anthropic);
        assert_eq!(names(&tools, "/name"), ["transfer_to_agent", "handoff_to_specialist"]);
        let schema = &tools[0]["input_schema"]["properties"];
        assert_eq!(schema["target_agent_id"]["enum"], json!(["a", "b"]));
        assert!(tools[0]["description"].as_str().unwrap().ends_with("- a\n- b: Adds up figures\n"));
        let schema = &tools[1]["input_schema"]["properties"];
        assert_eq!(schema["specialist_type"]["enum"], json!(["clerk"]));
        assert_eq!(schema["required_capabilities"]["items"]["enum"], json!(["sums"]));
    }

    #[test]
    fn f3_9_a_contracts_tool_is_offered_once_where_its_target_is_reached() {
        let all = vec![agent("b", "clerk", &[]), agent("c", "poet", &[])];
        let roster = Roster::new(all, &HashMap::new());
        let from = agent("a", "x", &["b"]);
        let tool = |name: &str, target: &str| ContractTool {
            name: name.to_owned(),
            contract: "the-contract".to_owned(),
            intent: Some("figures\nto add".to_owned()),
            target: target.to_owned(),
        };
        let named = [
            tool("transfer_to_b", "b"),
            tool("transfer_to_c", "c"),
            tool("transfer_to_b", "clerk"),
            tool("to_clerks", "clerk"),
            tool("transfer_to_agent", "b"),
        ];
        let tools = tools(&from, &roster, &named, Style::Mcp);
        let expected = ["transfer_to_agent", "handoff_to_specialist", "transfer_to_b", "to_clerks"];
        assert_eq!(names(&tools, "/name"), expected);
        let told = tools[2]["description"].as_str().unwrap();
        assert!(told.contains("the-contract") && told.ends_with("When: figures to add"), "{told}");
    }

    #[test]
    fn each_style_is_its_makers_form_of_the_same_schema() {
        let roster = Roster::new(vec![agent("b", "clerk", &[])], &HashMap::new());
        let from = agent("a", "x", &["b"]);
        let named = [ContractTool {
            name: "transfer_to_b".to_owned(),
            contract: "a-to-b".to_owned(),
            intent: None,
            target: "b".to_owned(),
        }];
        let [openai, anthropic, mcp] = [Style::OpenAi, Style::Anthropic, Style::Mcp]
            .map(|style| tools(&from, &roster, &named, style));
        assert_eq!(names(&openai, "/type"), ["function"; 3]);
        assert_eq!(names(&openai, "/function/name"), names(&mcp, "/name"));
        for place in 0..3 {
            let schema = &openai[place]["function"]["parameters"];
            assert!(jsonschema::meta::is_valid(schema), "{schema}");
            assert_eq!(schema, &anthropic[place]["input_schema"]);
            assert_eq!(schema, &mcp[place]["inputSchema"]);
        }
    }
}
