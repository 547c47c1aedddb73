//! `AgentCapabilityProfile`: an agent as clients of Jazz know it, and as the API registers it (docs/doors/jazz.md). Pure.

use serde_json::{Map, Value, json};

use handoffd_domain::agent::{Agent, is_type_name};
use handoffd_domain::strategy::StrategyShares;
use handoffd_domain::unseen;

/// Characters of an agent's own words that stand in a prompt.
const SHOWN: usize = 200;

/// An agent's profile. `tags` are its domains.
pub(super) fn of_agent(agent: &Agent) -> Value {
    json!({
        "agentId": agent.agent_id,
        "agentName": agent.name,
        "specialization": agent.specialization.as_deref().unwrap_or_default(),
        "capabilities": agent.capabilities,
        "description": agent.description,
        "examples": agent.examples,
        "acceptsHandoffs": agent.accepts_handoffs,
        "tags": agent.domains,
    })
}

/// A profile as the body that changes an agent. Tags that are not said stay.
pub(super) fn to_change(profile: &Value) -> Value {
    let specialization = &profile["specialization"];
    let mut change = json!({
        "name": profile["agentName"],
        "specialization": if specialization == "" { &Value::Null } else { specialization },
        "capabilities": profile["capabilities"],
        "description": profile["description"],
        "examples": profile["examples"],
        "acceptsHandoffs": profile["acceptsHandoffs"],
    });
    if let Some(tags) = profile.get("tags") {
        change["domains"] = tags.clone();
    }
    change
}

/// A profile as the body that registers an agent. Its type is its specialization, by which models ask for it.
pub(super) fn to_agent(profile: &Value) -> Value {
    let mut agent = to_change(profile);
    agent["agentId"] = profile["agentId"].clone();
    if let Some(name) = profile["specialization"].as_str().filter(|name| is_type_name(name)) {
        agent["agentType"] = name.into();
    }
    agent
}

/// One line on an agent for a prompt, whatever its owner wrote.
pub(super) fn line(agent: &Agent) -> String {
    let shown = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        unseen::shown(&words.join(" "), SHOWN)
    };
    let special = agent.specialization.as_deref().map(shown).filter(|name| !name.is_empty());
    let special = special.map(|name| format!(" ({name})")).unwrap_or_default();
    let told = shown(&agent.description);
    let told = if told.is_empty() { told } else { format!(": {told}") };
    format!("- {}{special}{told}", shown(&agent.name))
}

/// The shares of strategies that an agent has of its own (`metadata.jazz.strategies`).
///
/// # Errors
/// What is wrong with them.
pub(super) fn shares(agent: &Agent) -> Result<Option<StrategyShares>, String> {
    let Some(own) = agent.metadata.get("jazz").and_then(|own| own.get("strategies")) else {
        return Ok(None);
    };
    let shares: StrategyShares =
        serde_json::from_value(own.clone()).map_err(|err| err.to_string())?;
    shares.check().map(Some)
}

/// An agent's metadata with other shares of strategies; null takes them away.
pub(super) fn with_shares(metadata: &Map<String, Value>, shares: &Value) -> Map<String, Value> {
    let mut metadata = metadata.clone();
    let mut own = metadata.get("jazz").and_then(Value::as_object).cloned().unwrap_or_default();
    if shares.is_null() {
        own.remove("strategies");
    } else {
        own.insert("strategies".to_owned(), shares.clone());
    }
    if own.is_empty() {
        metadata.remove("jazz");
    } else {
        metadata.insert("jazz".to_owned(), Value::Object(own));
    }
    metadata
}

#[cfg(test)]
mod tests {
    use handoffd_domain::agent::AgentSpec;

    use super::*;

    fn profile() -> Value {
        json!({
            "agentId": "t", "agentName": "test-specialist", "specialization": "testing",
            "capabilities": ["run-tests"], "description": "Runs\nall tests", "examples": ["Run unit tests"],
            "acceptsHandoffs": true, "tags": ["quality"],
        })
    }

    fn registered(profile: &Value) -> Agent {
        let spec: AgentSpec = serde_json::from_value(to_agent(profile)).unwrap();
        spec.apply(&Agent::new("t".parse().unwrap())).unwrap()
    }

    #[test]
    fn a_profile_that_was_registered_is_read_as_it_was() {
        let agent = registered(&profile());
        assert_eq!(of_agent(&agent), profile());
        assert_eq!(agent.agent_type, "testing");
        let mut plain = profile();
        plain["specialization"] = "".into();
        let agent = registered(&plain);
        assert_eq!((of_agent(&agent), agent.agent_type.as_str()), (plain, "t"));
    }

    #[test]
    fn a_line_is_one_line() {
        assert_eq!(line(&registered(&profile())), "- test-specialist (testing): Runs all tests");
        assert_eq!(line(&Agent::new("bare".parse().unwrap())), "- bare");
    }

    #[test]
    fn shares_of_an_agents_own_are_set_read_and_taken_away() {
        let mut agent = registered(&profile());
        agent.metadata.insert("team".to_owned(), json!("x"));
        assert_eq!(shares(&agent), Ok(None));
        agent.metadata =
            with_shares(&agent.metadata, &json!({ "first_match": 1, "least_busy": 3 }));
        let own = shares(&agent).unwrap().unwrap();
        assert_eq!((own.first_match, own.relevance, own.least_busy), (1, 0, 3));
        agent.metadata = with_shares(&agent.metadata, &json!({ "relevance": 0 }));
        assert!(shares(&agent).is_err());
        agent.metadata = with_shares(&agent.metadata, &Value::Null);
        assert_eq!(Value::Object(agent.metadata), json!({ "team": "x" }));
    }
}
