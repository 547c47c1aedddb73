use super::*;

fn agent() -> Agent {
    Agent::new("triage".parse().unwrap())
}

fn spec(json: &str) -> AgentSpec {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_list_replaces_an_empty_list_clears_an_absent_one_leaves_alone() {
    let first = spec(r#"{"handoff_targets":["billing","type:returns","billing"]}"#)
        .apply(&agent())
        .unwrap();
    assert_eq!(
        first.handoff_targets.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["billing", "type:returns"]
    );
    let kept = spec(r#"{"description":"x"}"#).apply(&first).unwrap();
    assert_eq!(kept.handoff_targets, first.handoff_targets);
    let cleared = spec(r#"{"handoffTargets":[]}"#).apply(&kept).unwrap();
    assert!(cleared.handoff_targets.is_empty());
}

#[test]
fn orbits_own_create_body_is_understood() {
    let made = spec(
        r#"{"name":"Triage Router","description":"d","model":"m","instructions":"i","handoff_targets":["agent_a"]}"#,
    )
    .apply(&agent())
    .unwrap();
    assert_eq!(made.name, "Triage Router");
    assert_eq!(made.metadata["model"], "m");
}

#[test]
fn what_cannot_work_is_refused_with_its_pointer() {
    for (json, pointer) in [
        (r#"{"delivery":{"mode":"webhook"}}"#, "/delivery/url"),
        (r#"{"delivery":{"mode":"a2a","format":"sw4rm"}}"#, "/delivery/format"),
        (r#"{"delivery":{"mode":"webhook","url":"ftp://x/"}}"#, "/delivery/url"),
        (r#"{"delivery":{"mode":"webhook","url":"http://u:p@x/"}}"#, "/delivery/url"),
        (r#"{"delivery":{"mode":"pull","timeoutMs":1}}"#, "/delivery/timeoutMs"),
        (r#"{"agentType":"a b"}"#, "/agentType"),
        (r#"{"callbackUrl":"not a url"}"#, "/callbackUrl"),
        (r#"{"card":{"inputModes":[]}}"#, "/card/inputModes"),
        (r#"{"card":{"outputModes":["text"]}}"#, "/card/outputModes"),
        (r#"{"card":{"outputModes":["*/plain"]}}"#, "/card/outputModes"),
    ] {
        assert_eq!(spec(json).apply(&agent()).unwrap_err().0, pointer, "{json}");
    }
    assert!(serde_json::from_str::<AgentSpec>(r#"{"handoffTarget":[]}"#).is_err());
    assert!(serde_json::from_str::<AgentSpec>(r#"{"agentVersion":"one"}"#).is_err());
}

#[test]
fn a_card_reads_the_media_types_it_names() {
    let made = spec(r#"{"card":{"inputModes":["text/plain","image/*"]}}"#).apply(&agent());
    let card = made.unwrap().card.unwrap();
    assert!(card.reads("text/plain; charset=utf-8") && card.reads("IMAGE/png"));
    assert!(!card.reads("text/html") && !card.reads("imagery/png"));
    assert_eq!(card.output_modes, Card::default().output_modes);
    assert!(spec(r#"{"card":{"inputModes":["*/*"]}}"#).apply(&agent()).is_ok());
}

#[test]
fn null_clears_what_may_be_empty() {
    let with = spec(r#"{"supervisorId":"boss"}"#).apply(&agent()).unwrap();
    assert!(with.supervisor_id.is_some());
    assert!(spec(r#"{"supervisorId":null}"#).apply(&with).unwrap().supervisor_id.is_none());
}

#[test]
fn an_agent_survives_the_store() {
    let agent = spec(r#"{"handoffTargets":["type:x"],"delivery":{"mode":"webhook","url":"https://x.example/h"}}"#)
        .apply(&agent())
        .unwrap();
    let text = serde_json::to_string(&agent).unwrap();
    assert_eq!(serde_json::from_str::<Agent>(&text).unwrap(), agent);
}
