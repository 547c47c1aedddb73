use std::collections::HashMap;
use std::sync::LazyLock;

use super::*;

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(Schemas::new);

/// Schema 2.1, with a field that 2.0 lacks.
fn message() -> Value {
    let text = include_str!("../../../../tests/vectors/messages/initial.json");
    serde_json::from_str(text).unwrap()
}

fn resolve(source: &Agent, to: &Address, required: &[String], roster: &Roster) -> ResolvedReceiver {
    let message = message();
    super::resolve(source, to, required, roster, &ReceiverForms::new(&SCHEMAS, &message), None)
}

fn agent(id: &str, kind: &str, version: &str, capabilities: &[&str]) -> Agent {
    let mut agent = Agent::new(id.parse().unwrap());
    agent.agent_type = kind.to_owned();
    agent.agent_version = version.parse().unwrap();
    agent.capabilities = capabilities.iter().map(|&c| c.to_owned()).collect();
    agent
}

fn source(targets: &[&str]) -> Agent {
    let mut source = agent("src", "src", "1.0.0", &[]);
    source.handoff_targets = targets.iter().map(|t| t.parse().unwrap()).collect();
    source
}

fn roster(agents: Vec<Agent>) -> Roster {
    Roster::new(agents, &HashMap::from([("r1".parse().unwrap(), 5)]))
}

fn to(id: Option<&str>, kind: Option<&str>, version: Option<&str>, cap: Option<&str>) -> Address {
    Address {
        agent_id: id.map(|id| id.parse().unwrap()),
        agent_type: kind.map(str::to_owned),
        agent_version: version.map(str::to_owned),
        capability: cap.map(str::to_owned),
    }
}

fn team() -> Roster {
    roster(vec![
        agent("r1", "risk", "1.6.0", &["score"]),
        agent("r2", "risk", "1.6.0", &["score"]),
        agent("r3", "risk", "2.0.0", &["score", "explain"]),
        agent("old", "risk", "1.0.0", &[]),
    ])
}

fn codes(found: &ResolvedReceiver) -> Vec<Code> {
    found.failures.iter().map(|failure| failure.code).collect()
}

#[test]
fn the_highest_version_in_range_then_the_fewest_in_flight() {
    let source = source(&["type:risk"]);
    let pick = |range| {
        resolve(&source, &to(None, Some("risk"), Some(range), None), &[], &team())
            .target
            .unwrap()
            .agent_id
            .to_string()
    };
    assert_eq!(pick(">=1.5.0"), "r3");
    assert_eq!(pick(">=1.5.0, <2"), "r2", "r1 has more in flight");
    assert_eq!(pick("~1.0"), "old");
}

#[test]
fn an_empty_list_lets_nobody_through_with_orbits_words() {
    let found = resolve(&source(&[]), &to(Some("r1"), None, None, None), &[], &team());
    assert_eq!(codes(&found), [Code::Forbidden]);
    assert_eq!(found.failures[0].message, NOT_ON_ALLOWLIST);
    assert_eq!(found.violation.unwrap().allowlist_size, 0);
    let unknown = resolve(&source(&[]), &to(Some("ghost"), None, None, None), &[], &team());
    assert_eq!(codes(&unknown), [Code::Forbidden, Code::NoCapableAgent]);
}

#[test]
fn of_a_type_only_listed_agents_are_chosen() {
    let found = resolve(&source(&["r1"]), &to(None, Some("risk"), None, None), &[], &team());
    assert_eq!(found.target.unwrap().agent_id.as_str(), "r1");
}

#[test]
fn f5_10_a_listed_but_unknown_id_is_as_good_as_left_out_and_a_type_is_a_matter_of_the_route() {
    let found = resolve(
        &source(&["ghost", "type:spirit"]),
        &to(Some("ghost"), None, None, None),
        &[],
        &team(),
    );
    assert_eq!(codes(&found), [Code::Forbidden, Code::NoCapableAgent]);
    assert_eq!(found.failures[0].message, NOT_ON_ALLOWLIST);
    let found =
        resolve(&source(&["type:spirit"]), &to(None, Some("spirit"), None, None), &[], &team());
    assert_eq!(codes(&found), [Code::NoCapableAgent]);
}

#[test]
fn by_capability_all_required_ones_and_the_refusal_names_what_is_missing() {
    let source = source(&["type:risk"]);
    let by = |cap: &str, required: &[&str]| {
        let required: Vec<String> = required.iter().map(|&c| c.to_owned()).collect();
        resolve(&source, &to(None, None, None, Some(cap)), &required, &team())
    };
    assert_eq!(by("score", &["explain"]).target.unwrap().agent_id.as_str(), "r3");
    let found = by("score", &["fly"]);
    assert!(found.failures[0].message.starts_with("Missing capability: fly"));
    assert_eq!(codes(&by("fly", &[])), [Code::NoCapableAgent]);
}

#[test]
fn a_specialization_is_a_capability_too() {
    let mut pilot = agent("pilot", "crew", "1.0.0", &["land"]);
    pilot.specialization = Some("flying".to_owned());
    let crew = roster(vec![pilot, agent("cook", "crew", "2.0.0", &["land"])]);
    let by = |cap: Option<&str>, required: &[&str]| {
        let required: Vec<String> = required.iter().map(|&c| c.to_owned()).collect();
        let to = to(cap.is_none().then_some("pilot"), None, None, cap);
        resolve(&source(&["type:crew"]), &to, &required, &crew)
    };
    assert_eq!(by(Some("flying"), &["land"]).target.unwrap().agent_id.as_str(), "pilot");
    assert_eq!(by(None, &["flying"]).target.unwrap().agent_id.as_str(), "pilot");
    assert_eq!(codes(&by(None, &["cooking"])), [Code::NoCapableAgent]);
}

#[test]
fn who_is_busy_paused_or_gone_is_not_routed_to() {
    for (change, words) in [
        ((|a: &mut Agent| a.state = AgentState::Busy) as fn(&mut Agent), "Agent busy: only"),
        (|a| (a.state, a.pause) = (AgentState::Paused, Pause::Refuse), "paused"),
        (|a| (a.state, a.delivery.disabled) = (AgentState::Paused, true), "disabled"),
        (|a| a.accepts_handoffs = false, "accepts no handoffs"),
        (|a| a.delivery.disabled = true, "disabled"),
    ] {
        let mut only = agent("only", "solo", "1.0.0", &[]);
        change(&mut only);
        let found = resolve(
            &source(&["only"]),
            &to(Some("only"), None, None, None),
            &[],
            &roster(vec![only]),
        );
        assert_eq!(codes(&found), [Code::NoCapableAgent]);
        assert!(found.failures[0].message.contains(words), "{}", found.failures[0].message);
    }
}

/// Finding O8 of 0.3.0.
#[test]
fn a_paused_agent_that_holds_takes_what_names_it_and_nothing_else() {
    let mut only = agent("only", "solo", "1.0.0", &["sing"]);
    only.state = AgentState::Paused;
    let roster = roster(vec![only]);
    let source = source(&["only", "type:solo"]);
    let plain = message();
    let find = |message: &Value, to: &Address| {
        let readers = ReceiverForms::new(&SCHEMAS, message);
        super::resolve(&source, to, &[], &roster, &readers, None)
    };
    let by_id = to(Some("only"), None, None, None);
    assert!(find(&plain, &by_id).target.is_some());
    for other in [to(None, Some("solo"), None, None), to(None, None, None, Some("sing"))] {
        let found = find(&plain, &other);
        assert_eq!(codes(&found), [Code::NoCapableAgent]);
        assert_eq!(found.failures[0].rule.as_deref(), Some(PAUSED));
    }
    for (member, value) in [
        ("preferredAgents", serde_json::json!(["other"])),
        ("extensions", serde_json::json!({ "sw4rm": {} })),
    ] {
        let mut message = plain.clone();
        message[member] = value;
        assert!(find(&message, &by_id).target.is_none(), "{member}");
    }
}

#[test]
fn to_oneself_needs_no_list() {
    let found = resolve(&source(&[]), &to(Some("src"), None, None, None), &[], &team());
    assert_eq!(found.target.unwrap().agent_id.as_str(), "src");
}

#[test]
fn f5_5_a_type_is_routed_to_who_can_read_and_an_agent_that_cannot_is_named() {
    let mut old = agent("old-reader", "risk", "9.0.0", &[]);
    old.schema_versions = Some("2.0".parse().unwrap());
    let team = roster(vec![old, agent("reader", "risk", "1.0.0", &[])]);
    let source = source(&["type:risk"]);
    let found = resolve(&source, &to(None, Some("risk"), None, None), &[], &team);
    assert_eq!(found.target.unwrap().agent_id.as_str(), "reader");
    let found = resolve(&source, &to(Some("old-reader"), None, None, None), &[], &team);
    assert_eq!(codes(&found), [Code::NoCapableAgent]);
    assert_eq!(found.failures[0].pointer, "/schemaVersion");
    let why = &found.failures[0].message;
    assert!(why.contains("takes schema versions 2.0, and /") && why.ends_with("in 2.0"), "{why}");
}

#[test]
fn f5_6_a_pre_release_takes_only_what_asks_for_one() {
    let team = roster(vec![
        agent("next", "risk", "2.0.0-rc.1", &["score"]),
        agent("now", "risk", "1.0.0", &["score"]),
    ]);
    let source = source(&["type:risk"]);
    let pick = |id, kind, range, capability| {
        let found = resolve(&source, &to(id, kind, range, capability), &[], &team);
        found.target.map_or("nobody".to_owned(), |agent| agent.agent_id.to_string())
    };
    assert_eq!(pick(None, Some("risk"), None, None), "now");
    assert_eq!(pick(None, Some("risk"), Some("*"), None), "now");
    assert_eq!(pick(None, Some("risk"), Some(">=1.0.0"), None), "now");
    assert_eq!(pick(None, None, None, Some("score")), "now");
    assert_eq!(pick(None, Some("risk"), Some(">=2.0.0-rc.0"), None), "next");
    assert_eq!(pick(None, Some("risk"), Some("^1 || 2.0.0-rc.1"), None), "next");
    assert_eq!(pick(Some("next"), None, None, None), "next");
    assert_eq!(pick(Some("next"), None, Some("*"), None), "next");
    assert_eq!(pick(Some("next"), None, Some("^1"), None), "nobody");
    assert_eq!(pick(None, Some("risk"), Some("1.0"), None), "now");
    assert_eq!(pick(None, Some("risk"), Some("1.0.1"), None), "nobody", "a bare version is exact");
}
