//! The tools: their table (`tools.json`), and which of them a caller is offered (specification §11.1).

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};

use handoffd_broker::reader::Rights;
use handoffd_domain::agent::Agent;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::handoff_tool::{ContractTool, Style, reachable, tools};
use handoffd_domain::roster::Roster;
use handoffd_gate::schema::DocumentSchema;

/// For whom a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Audience {
    /// Agents that may hand off to at least one agent.
    Sender,
    /// Agents that take handoffs.
    Receiver,
    /// Agents that take handoffs from their inbox.
    Inbox,
    /// Agents, operators and admins.
    Participant,
    /// Every caller.
    Reader,
    /// Auditors, operators and admins.
    Auditor,
    /// Operators and admins.
    Operator,
}

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ToolSpec {
    pub(super) name: String,
    title: String,
    pub(super) audience: Audience,
    description: String,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    destructive: bool,
    #[serde(default)]
    idempotent: bool,
    pub(super) input_schema: Value,
}

/// A row with its schema compiled.
pub(super) struct KnownTool {
    pub(super) spec: ToolSpec,
    /// Checks arguments.
    pub(super) schema: DocumentSchema,
}

/// The table, in the order in which tools are listed.
static TABLE: LazyLock<Vec<KnownTool>> = LazyLock::new(|| {
    let specs: Vec<ToolSpec> = serde_json::from_str(include_str!("tools.json"))
        .expect("the table is compiled in and tested");
    let known = |spec: ToolSpec| {
        let schema = DocumentSchema::new(&spec.input_schema).expect("its schemas are tested");
        KnownTool { spec, schema }
    };
    specs.into_iter().map(known).collect()
});

/// The row of a name.
pub(super) fn find(name: &str) -> Option<&'static KnownTool> {
    TABLE.iter().find(|known| known.spec.name == name)
}

impl ToolSpec {
    fn tool(&self) -> Tool {
        // A tool reaches the agents of this broker, and nothing else.
        let hints = ToolAnnotations::from_raw(
            None,
            Some(self.read_only),
            (!self.read_only).then_some(self.destructive),
            (!self.read_only).then_some(self.idempotent),
            Some(false),
        );
        Tool::new(self.name.clone(), self.description.clone(), object(self.input_schema.clone()))
            .with_title(self.title.clone())
            .with_annotations(hints)
    }
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(members) => Arc::new(members),
        _ => Arc::default(),
    }
}

/// Tools that show contents or are decided by them: a key that reads none is not offered them.
const OF_CONTENTS: [&str; 2] = ["answer", "release"];

/// The tools that a role sees, without looking at an agent.
pub(super) fn of_role(rights: Rights) -> Vec<Tool> {
    let metadata = !rights.reads_contents();
    let offered = |audience: Audience| match audience {
        Audience::Reader => true,
        Audience::Auditor => !rights.is_agent(),
        Audience::Operator => rights.runs(),
        Audience::Participant => rights.takes_part(),
        Audience::Sender | Audience::Receiver | Audience::Inbox => false,
    };
    TABLE
        .iter()
        .filter(|known| offered(known.spec.audience))
        .filter(|known| !metadata || !OF_CONTENTS.contains(&known.spec.name.as_str()))
        .map(|known| known.spec.tool())
        .collect()
}

/// The tools of an agent: `hand_off` and `find_agents` if its allowlist reaches an agent, with the tools that its
/// contracts name beside `hand_off`; the receiver's where it takes handoffs.
pub(super) fn of_agent(agent: &Agent, roster: &Roster, contracts: &[ContractTool]) -> Vec<Tool> {
    let reached = reachable(agent, roster);
    let mut offered = Vec::new();
    for KnownTool { spec, .. } in &*TABLE {
        let wanted = match spec.audience {
            Audience::Sender => spec.name == "save_checkpoint" || !reached.is_empty(),
            Audience::Receiver => agent.accepts_handoffs,
            Audience::Inbox => agent.accepts_handoffs && agent.delivery.mode == DeliveryMode::Pull,
            Audience::Participant | Audience::Reader => true,
            Audience::Auditor | Audience::Operator => false,
        };
        if !wanted {
            continue;
        }
        if spec.name == "hand_off" {
            offered.push(hand_off(spec, &reached));
            offered.extend(of_contracts(agent, roster, contracts));
        } else {
            offered.push(spec.tool());
        }
    }
    offered
}

/// `hand_off` with the targets that the allowlist permits: a model cannot choose another.
fn hand_off(spec: &ToolSpec, reached: &[&Agent]) -> Tool {
    let mut schema = spec.input_schema.clone();
    let types: BTreeSet<&str> = reached.iter().map(|agent| agent.agent_type.as_str()).collect();
    let able: BTreeSet<&str> =
        reached.iter().flat_map(|agent| &agent.capabilities).map(String::as_str).collect();
    let ids = reached.iter().map(|agent| agent.agent_id.to_string());
    let names: Vec<String> = ids
        .chain(types.iter().filter(|name| !name.is_empty()).map(|name| format!("type:{name}")))
        .chain(able.iter().map(|name| format!("capability:{name}")))
        .collect();
    let target = &mut schema["properties"]["target"];
    target["enum"] = json!(names);
    if let Some(members) = target.as_object_mut() {
        members.remove("minLength");
        members.remove("maxLength");
    }
    let mut tool = spec.tool();
    tool.input_schema = object(schema);
    tool
}

/// Arguments of `hand_off` that a contract's tool takes, too: which task, what was done, what it cost.
pub(super) const OF_HAND_OFF: [&str; 12] = [
    "completed",
    "remaining",
    "parentHandoffId",
    "taskId",
    "executionId",
    "spentUsd",
    "budgetUsd",
    "priority",
    "returnTo",
    "provenance",
    "requestId",
    "waitSeconds",
];

/// The tools that contracts name, as `GET /agents/{id}/handoff-tool` gives them; a name of the table is not taken twice.
fn of_contracts(agent: &Agent, roster: &Roster, contracts: &[ContractTool]) -> Vec<Tool> {
    let text = |tool: &Value, name: &str| tool[name].as_str().unwrap_or_default().to_owned();
    let Some(KnownTool { spec: ToolSpec { input_schema: own, .. }, .. }) = find("hand_off") else {
        return Vec::new();
    };
    tools(agent, roster, contracts, Style::Mcp)
        .into_iter()
        .filter(|tool| {
            let name = text(tool, "name");
            find(&name).is_none() && contracts.iter().any(|contract| contract.name == name)
        })
        .map(|mut tool| {
            let (name, title) = (text(&tool, "name"), text(&tool, "title"));
            let hints =
                ToolAnnotations::from_raw(None, Some(false), Some(false), Some(false), Some(false));
            let mut schema = tool["inputSchema"].take();
            for argument in OF_HAND_OFF {
                schema["properties"][argument] = own["properties"][argument].clone();
            }
            Tool::new(name, text(&tool, "description"), object(schema))
                .with_title(title)
                .with_annotations(hints)
        })
        .collect()
}

/// The contract's tool of a name, where the agent may call it.
pub(super) fn contract_tool<'a>(
    name: &str,
    agent: &Agent,
    roster: &Roster,
    contracts: &'a [ContractTool],
) -> Option<(&'a ContractTool, Value)> {
    let offered =
        of_contracts(agent, roster, contracts).into_iter().find(|tool| tool.name == name)?;
    // As in the list: of several contracts that name it, the first whose target is reached.
    let reached = reachable(agent, roster);
    let contract = contracts.iter().find(|contract| {
        contract.name == name
            && reached.iter().any(|other| {
                other.agent_id.as_str() == contract.target || other.agent_type == contract.target
            })
    })?;
    Some((contract, offered.schema_as_json_value()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::answer::ARGUMENTS;
    use super::*;
    use handoffd_store::store::Role;

    #[test]
    fn the_linter_knows_every_tool_of_the_door() {
        let tools: Vec<serde_json::Value> =
            serde_json::from_str(include_str!("tools.json")).unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, handoffd_gate::contract::BUILTIN_TOOLS);
    }

    fn agent(id: &str, targets: &[&str]) -> Agent {
        let mut agent = Agent::new(id.parse().unwrap());
        agent.agent_type = "clerk".to_owned();
        agent.capabilities = vec!["sums".to_owned()];
        agent.handoff_targets = targets.iter().map(|target| target.parse().unwrap()).collect();
        agent
    }

    fn names(tools: &[Tool]) -> Vec<&str> {
        tools.iter().map(|tool| &*tool.name).collect()
    }

    #[test]
    fn every_tool_has_a_schema_that_says_what_each_argument_is() {
        for KnownTool { spec, .. } in &*TABLE {
            assert!(jsonschema::meta::is_valid(&spec.input_schema), "{}", spec.name);
            assert_eq!(spec.input_schema["additionalProperties"], false, "{}", spec.name);
            assert!(
                spec.description.len() < 500 && spec.description.ends_with('.'),
                "{}",
                spec.name
            );
            for required in spec.input_schema["required"].as_array().into_iter().flatten() {
                assert!(spec.input_schema["properties"].get(required.as_str().unwrap()).is_some());
            }
        }
        let arguments = find("hand_off").unwrap().spec.input_schema["properties"].clone();
        for (member, argument) in ARGUMENTS {
            assert!(arguments.get(argument).is_some(), "{member}: {argument}");
        }
    }

    #[test]
    fn a_role_sees_its_tools_in_the_order_of_the_table() {
        let auditor =
            ["check_handoff", "get_handoff", "get_trace", "list_dead_letters", "list_escalations"];
        assert_eq!(names(&of_role(Role::Auditor.into())), auditor);
        let operator = [
            "check_handoff",
            "get_handoff",
            "answer",
            "cancel_task",
            "get_trace",
            "list_dead_letters",
            "release",
            "discard",
            "list_escalations",
            "resolve",
        ];
        assert_eq!(names(&of_role(Role::Operator.into())), operator);
        assert_eq!(names(&of_role(Role::Admin.into())), operator);
        let without_contents = operator.into_iter().filter(|name| !OF_CONTENTS.contains(name));
        let without_contents: Vec<&str> = without_contents.collect();
        assert_eq!(names(&of_role(Role::OperatorMetadata.into())), without_contents);
    }

    #[test]
    fn an_agent_sees_what_its_allowlist_permits_and_no_more() {
        let mut hook = agent("hook", &[]);
        hook.delivery.mode = DeliveryMode::Webhook;
        let mut deaf = agent("deaf", &["nobody"]);
        deaf.accepts_handoffs = false;
        let roster = Roster::new(
            vec![agent("a", &["b"]), agent("b", &[]), hook.clone(), deaf.clone()],
            &HashMap::new(),
        );
        let of = |agent: &Agent| of_agent(agent, &roster, &[]);
        let reads = [
            "check_handoff",
            "get_handoff",
            "answer",
            "cancel_task",
            "save_checkpoint",
            "get_trace",
        ];
        assert_eq!(names(&of(&deaf)), reads);
        let receives = ["accept", "reject", "ask", "heartbeat", "complete", "fail"];
        assert_eq!(names(&of(&hook)), [&reads[..], &receives[..]].concat());
        let sender = of(&agent("a", &["b"]));
        assert_eq!(names(&sender)[..2], ["find_agents", "hand_off"]);
        let target = &sender[1].schema_as_json_value()["properties"]["target"];
        assert_eq!(target["enum"], json!(["b", "type:clerk", "capability:sums"]));
        assert!(names(&sender).contains(&"take_next"));
    }

    #[test]
    fn a_contracts_tool_stands_beside_hand_off_and_leads_to_its_target() {
        let roster = Roster::new(vec![agent("a", &["b"]), agent("b", &[])], &HashMap::new());
        let tool = |name: &str, target: &str| ContractTool {
            name: name.to_owned(),
            contract: "k".to_owned(),
            intent: None,
            target: target.to_owned(),
        };
        let named =
            [tool("ask_b", "c"), tool("ask_b", "b"), tool("complete", "b"), tool("to_c", "c")];
        let from = agent("a", &["b"]);
        let offered = of_agent(&from, &roster, &named);
        assert_eq!(names(&offered)[1..4], ["hand_off", "ask_b", "check_handoff"]);
        let (contract, schema) = contract_tool("ask_b", &from, &roster, &named).unwrap();
        assert_eq!(
            (contract.target.as_str(), &schema["required"][0]),
            ("b", &json!("task_summary"))
        );
        for name in ["complete", "to_c", "transfer_to_agent"] {
            assert!(contract_tool(name, &from, &roster, &named).is_none(), "{name}");
        }
    }
}
