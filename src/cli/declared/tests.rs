//! The pure core: files to objects, objects to a plan, a plan to requests that make one of the other.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::check::check;
use super::dump;
use super::files::Declared;
use super::held::Held;
use super::object::{Key, Kind, Object, Objects, default_agent, members};
use super::plan::{Action, plan};
use super::read::read;
use super::requests::{Secrets, needed, requests};
use crate::cli::client::Body;
use handoffd_domain::agent::{Agent, AgentSpec};
use handoffd_domain::event::SubscriptionSpec;
use handoffd_gate::contract::document::Document;
use handoffd_gate::schema::DocumentSchema;

fn object(value: &Value) -> Object {
    read(value).unwrap_or_else(|faults| panic!("{faults:?}: {value}"))
}

fn objects(values: impl IntoIterator<Item = Value>) -> Objects {
    values
        .into_iter()
        .map(|value| object(&value))
        .map(|object| (object.key.clone(), object))
        .collect()
}

/// One object of each kind with every member that its schema names.
fn samples() -> Vec<Value> {
    vec![
        json!({
            "kind": "PayloadSchema", "schemaId": "refund", "version": "1.0.0", "migration": "Send it.",
            "schema": { "type": "object" },
        }),
        json!({
            "kind": "Agent", "agentId": "a", "agentType": "t", "agentVersion": "1.2.0", "name": "n", "description": "d",
            "specialization": "s", "capabilities": ["c"], "domains": ["d"], "examples": ["e"], "permissions": ["p"],
            "acceptsHandoffs": false, "state": "PAUSED", "pause": "refuse", "contextWindowTokens": 8000, "tokenizer": "o200k",
            "contextPolicy": "refuse", "requiredState": ["x"], "schemaVersions": "^2.0.0", "supervisorId": "b",
            "requireSignature": true, "requireCheckpoint": true, "orders": "refuse", "callbackUrl": "http://127.0.0.1:1/c",
            "region": "eu", "transferBasis": "SCC_2021", "card": { "public": true, "inputModes": ["text/plain"], "outputModes": ["text/plain"] },
            "metadata": { "k": null }, "model": "m", "instructions": "i",
            "delivery": {
                "mode": "redis", "timeoutMs": 500, "maxInFlight": 2, "format": "sw4rm", "acceptEncoding": [],
                "config": { "stream": "s" }, "credentials": { "password": { "secretRef": "env:P" } },
            },
        }),
        json!({
            "kind": "Contract", "$schema": "x", "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b",
            "trigger": { "intent": "i", "predicate": "state.x == 1", "tool_call": "go" },
            "payload": {
                "schema": "registry:refund@1.0.0", "required": ["task_summary", "provenance"], "history_strategy": "full",
                "history_turns": 1, "history_bytes": 1, "history_justification": "j", "context_tokens": 5,
                "context_policy": "flag",
            },
            "acceptance_criteria": {
                "required_fields": ["task_summary"], "domain_match": "target.domains contains 'x'", "permission_check": "p",
            },
            "recovery": {
                "on_reject": "source", "on_timeout": "source", "on_error": "source", "timeout_ms": 1000, "max_retries": 0,
                "loop_guard": 3,
            },
            "observability": { "trace_id_field": "payload.trace_id", "audit_event": "a.b", "metrics": ["handoff.rejected"] },
            "idempotency": { "idempotent": true, "dedupe_key": "payload.k", "replay_window_ms": 1 },
            "human_in_the_loop": { "human_target": true, "channel": "c", "timeout_ms": 1, "resume_as": "b", "synthetic_agent": "b" },
            "human_target": true,
            "deprecation": { "since": "2026-01-01T00:00:00Z", "sunset": "2027-01-01T00:00:00Z", "replacement_id": "a-to-c", "reason": "r" },
            "reviewed_by": { "name": "n", "at": "2026-01-01T00:00:00Z", "sha256": "0".repeat(64) },
            "require_checkpoint": true, "orders": "mark", "schemas": { "s": { "type": "object" } },
            "description": "d", "title": "t", "owner": "o", "tags": ["t"], "notes": "n", "review": "r",
        }),
        json!({ "kind": "Cap", "window": "P1D", "agentId": "a", "usd": "1.50", "tokens": 10 }),
        json!({
            "kind": "Subscription", "url": "http://127.0.0.1:1/e", "description": "d", "eventTypes": ["handoff.rejected"],
            "filter": {
                "agentId": "a", "taskId": "0198c0de-0000-7000-8000-000000000000",
                "handoffId": "0198c0de-0000-7000-8000-000000000001",
            },
            "format": "cloudevents", "enabled": false, "region": "eu", "transferBasis": "SCC_2021",
            "authorization": { "secretRef": "file:/run/secrets/a" }, "token": { "secretRef": "env:T" },
        }),
        json!({ "kind": "Allowlist", "agentId": "a", "handoffTargets": ["b", "type:t"] }),
    ]
}

fn schema(kind: Kind) -> Value {
    serde_json::from_str(kind.schema()).unwrap()
}

/// Each object of a value, by pointer, that its schema closes.
fn closed(schema: &Value, root: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let schema = match schema.get("$ref").and_then(Value::as_str) {
        Some(name) if name.starts_with('#') => root.pointer(&name[1..]).unwrap(),
        Some(_) => return,
        None => schema,
    };
    let Some(object) = value.as_object() else { return };
    for branch in schema.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
        closed(branch, root, value, at, found);
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    if schema["additionalProperties"] == false {
        found.push(at.to_owned());
    }
    for (name, below) in properties {
        if let Some(value) = object.get(name) {
            closed(below, root, value, &format!("{at}/{name}"), found);
        }
    }
}

#[test]
fn the_schemas_are_what_the_code_reads() {
    let samples = samples();
    for (kind, sample) in Kind::ALL.into_iter().zip(&samples) {
        let (schema, name) = (schema(kind), kind.name());
        let judge = DocumentSchema::new(&schema).unwrap();
        assert_eq!(judge.check(sample), [], "{name}");
        assert_eq!(object(sample).key.kind, kind);
        let stated: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        for member in stated {
            assert!(sample.get(member).is_some(), "{name}: the sample has no {member}");
            // Of no type that any member has.
            let mut wrong = sample.clone();
            wrong[member] = json!([{ "no": [] }]);
            let open = ["title", "description", "owner", "tags", "notes", "review"];
            if kind == Kind::Contract && open.contains(&member.as_str()) {
                continue;
            }
            assert_ne!(judge.check(&wrong), [], "{name}: {member} takes anything by its schema");
            if member != "$schema" {
                assert!(read(&wrong).is_err(), "{name}: {member} takes anything by the code");
            }
        }
        for member in schema["required"].as_array().unwrap() {
            let mut without = sample.clone();
            without.as_object_mut().unwrap().remove(member.as_str().unwrap());
            assert!(
                read(&without).is_err() && !judge.check(&without).is_empty(),
                "{name}: {member}"
            );
        }
        let mut places = Vec::new();
        closed(&schema, &schema, sample, "", &mut places);
        assert!(!places.is_empty(), "{name}");
        for place in places {
            let mut more = sample.clone();
            more.pointer_mut(&place).unwrap()["nonesuch"] = json!(1);
            let faults = read(&more).expect_err(&format!("{name}: {place} takes nonesuch"));
            assert!(
                faults.iter().any(|(at, why)| at.contains("nonesuch")
                    || why.contains("nonesuch")
                    || why.contains("secretRef")),
                "{faults:?}"
            );
            assert_ne!(judge.check(&more), [], "{name}: {place}");
        }
    }
}

#[test]
fn what_a_file_may_not_say_is_named_with_its_place() {
    let cases = [
        (json!([]), "", "mapping"),
        (json!({}), "/kind", "must be one of"),
        (json!({ "kind": "agent" }), "/kind", "none of"),
        (
            json!({ "kind": "Agent", "agentId": "a", "handoffTargets": [] }),
            "/handoffTargets",
            "Allowlist",
        ),
        (json!({ "kind": "Agent", "agentId": "a", "name": null }), "/name", "leave it out"),
        (
            json!({ "kind": "Agent", "agentId": "a", "delivery": { "url": "http://x" } }),
            "/delivery/mode",
            "missing",
        ),
        (
            json!({ "kind": "Agent", "agentId": "a", "delivery": { "mode": "webhook" } }),
            "/delivery/url",
            "url",
        ),
        (
            json!({ "kind": "Agent", "agentId": "a", "delivery": { "mode": "pull", "disabled": true } }),
            "/delivery/disabled",
            "set by the broker",
        ),
        (
            json!({ "kind": "Agent", "agentId": "a", "delivery": { "mode": "redis", "credentials": { "password": "hunter2" } } }),
            "/delivery/credentials/password",
            "holds no secret",
        ),
        (
            json!({ "kind": "Agent", "agentId": "a", "delivery": { "mode": "redis", "credentials": { "password": { "secretRef": "env:HANDOFFD_X" } } } }),
            "/delivery/credentials/password",
            "setting",
        ),
        (json!({ "kind": "Cap", "window": "P1D", "usd": 1.5 }), "/usd", "text"),
        (json!({ "kind": "Cap", "window": "P1D" }), "", "how much"),
        (
            json!({ "kind": "Allowlist", "agentId": "a", "handoffTargets": ["b", "type:"] }),
            "/handoffTargets/1",
            "type",
        ),
        (
            json!({ "kind": "PayloadSchema", "schemaId": "x", "version": "1.0.0", "schema": { "type": "nonesuch" } }),
            "/schema",
            "",
        ),
        (
            json!({ "kind": "Contract", "id": "x", "version": 1, "source": "a", "target": "b" }),
            "/version",
            "quote",
        ),
        (json!({ "kind": "Subscription", "url": "ftp://x" }), "/url", "http"),
    ];
    for (value, pointer, part) in cases {
        let faults = read(&value).expect_err(&value.to_string());
        let (at, why) = &faults[0];
        assert!(at == pointer && why.contains(part), "{value}: {faults:?}");
        assert!(!why.contains("hunter2"), "{why}");
    }
}

/// Applies the requests of a step to objects as the broker does, by the broker's own code.
fn carried(have: &mut Objects, step: &super::plan::Step) {
    let key = step.key().clone();
    let secrets: Secrets = needed(step).into_keys().map(|name| (name, "x".to_owned())).collect();
    for request in requests(step, &secrets) {
        let body = match &request.body {
            Some(Body::Json(Value::Object(body))) => body.clone(),
            _ => Map::new(),
        };
        let deletes = request.method == reqwest::Method::DELETE;
        match key.kind {
            Kind::Agent if deletes => {
                have.remove(&key);
                have.remove(&Key::new(Kind::Allowlist, &key.name));
            }
            Kind::Agent => {
                let before = have.get(&key).map_or_else(
                    || Agent::new(key.name.parse().unwrap()),
                    |object| {
                        let mut whole = default_agent(&key.name.parse().unwrap());
                        let mut stated = object.body.clone();
                        let delivery = stated.remove("delivery").map(members).unwrap_or_default();
                        whole["delivery"].as_object_mut().unwrap().extend(delivery);
                        whole.extend(stated);
                        serde_json::from_value(Value::Object(whole)).unwrap()
                    },
                );
                let mut spec: AgentSpec = serde_json::from_value(Value::Object(body)).unwrap();
                // As `seal_credentials` does: given ones replace, absent ones of the same mode stay.
                let names = |of: &Agent| of.delivery.credentials_set.clone();
                let sent = spec.delivery.as_mut().and_then(|delivery| delivery.credentials.take());
                let moved = spec
                    .delivery
                    .as_ref()
                    .is_some_and(|one| one.mode.is_some_and(|mode| mode != before.delivery.mode));
                let set = match sent {
                    Some(sent) => sent.0.keys().cloned().collect(),
                    None if moved => Vec::new(),
                    None => names(&before),
                };
                if let Some(delivery) = &mut spec.delivery {
                    delivery.credentials_set = Some(set);
                }
                let next = spec.apply(&before).unwrap();
                let made = super::object::agent(&next, names(&next), true);
                have.insert(key.clone(), made);
            }
            Kind::Subscription if deletes => _ = have.remove(&key),
            Kind::Subscription => {
                let spec: SubscriptionSpec = serde_json::from_value(Value::Object(body)).unwrap();
                let next = match have.get(&key) {
                    Some(object) => {
                        let whole = Value::Object(object.body.clone());
                        let before: SubscriptionSpec = serde_json::from_value(whole).unwrap();
                        spec.apply(&before.make().unwrap()).unwrap()
                    }
                    None => spec.make().unwrap(),
                };
                have.insert(key.clone(), super::object::subscription(&next));
            }
            Kind::Cap => {
                let mut held = have.remove(&key).map(|object| object.body).unwrap_or_default();
                let unit = request.query.iter().find(|(name, _)| name == "unit");
                match (deletes, unit) {
                    (true, None) => continue,
                    (true, Some((_, unit))) => _ = held.remove(unit),
                    (false, _) => held.extend(body),
                }
                let path = &request.path[1];
                let text = |name: &str| held.get(name).and_then(Value::as_str);
                let agent = request.query.iter().find(|(name, _)| name == "agentId");
                let tokens = held.get("tokens").and_then(Value::as_u64);
                let agent = agent.map(|(_, id)| id.as_str());
                let object = super::object::cap(agent, path, text("usd"), tokens);
                have.insert(object.key.clone(), object);
            }
            Kind::Allowlist => {
                let targets = body["handoffTargets"].as_array().unwrap();
                let targets = targets.iter().map(|one| one.as_str().unwrap().to_owned()).collect();
                have.insert(key.clone(), super::object::allowlist(&key.name, targets));
            }
            Kind::PayloadSchema | Kind::Contract => {
                have.insert(key.clone(), step.want.clone().unwrap());
            }
        }
    }
}

fn maybe(member: &'static str, values: Vec<Value>) -> BoxedStrategy<Vec<(String, Value)>> {
    let some = prop::sample::select(values).prop_map(move |value| vec![(member.to_owned(), value)]);
    prop_oneof![Just(Vec::new()), some].boxed()
}

/// An object with some of these members.
fn any_of(fixed: Value, parts: Vec<(&'static str, Vec<Value>)>) -> BoxedStrategy<Option<Value>> {
    let parts: Vec<_> = parts.into_iter().map(|(name, values)| maybe(name, values)).collect();
    let made = parts.prop_map(move |parts| {
        let mut object = fixed.clone();
        object.as_object_mut().unwrap().extend(parts.into_iter().flatten());
        object
    });
    prop_oneof![3 => made.prop_map(Some), 1 => Just(None)].boxed()
}

fn agent_values(id: &str) -> BoxedStrategy<Option<Value>> {
    let delivery = vec![
        json!({ "mode": "pull" }),
        json!({ "mode": "pull", "timeoutMs": 500 }),
        json!({ "mode": "webhook", "url": "http://127.0.0.1:1/x" }),
        json!({ "mode": "webhook", "url": "http://127.0.0.1:1/y", "format": "sw4rm", "maxInFlight": 3, "acceptEncoding": ["gzip"] }),
        json!({ "mode": "redis", "config": { "stream": "s", "maxLength": 5 } }),
        json!({ "mode": "redis", "config": { "stream": "t" }, "credentials": { "password": { "secretRef": "env:P" } } }),
        json!({ "mode": "nats", "config": { "subject": "s" }, "credentials": { "token": { "secretRef": "env:T" } } }),
    ];
    any_of(
        json!({ "kind": "Agent", "agentId": id }),
        vec![
            ("agentType", vec![json!("t"), json!("u")]),
            ("agentVersion", vec![json!("1.0.0"), json!("2.0.0")]),
            ("capabilities", vec![json!([]), json!(["x", "y"])]),
            ("specialization", vec![json!("s")]),
            ("contextWindowTokens", vec![json!(1), json!(2)]),
            ("tokenizer", vec![json!("o200k")]),
            ("orders", vec![json!("refuse")]),
            ("requireCheckpoint", vec![json!(true), json!(false)]),
            ("state", vec![json!("PAUSED"), json!("RUNNABLE")]),
            ("card", vec![json!({ "public": true })]),
            ("metadata", vec![json!({ "a": [1] }), json!({ "b": null })]),
            ("delivery", delivery),
        ],
    )
}

fn world() -> impl Strategy<Value = Objects> {
    let cap = |agent: Option<&str>| {
        let mut fixed = json!({ "kind": "Cap", "window": "P1D" });
        if let Some(agent) = agent {
            fixed["agentId"] = json!(agent);
        }
        let values = prop::sample::select(vec![
            json!({ "usd": "1" }),
            json!({ "usd": "2.5", "tokens": 7 }),
            json!({ "tokens": 8 }),
        ]);
        let made = values.prop_map(move |more| {
            let mut cap = fixed.clone();
            cap.as_object_mut().unwrap().extend(members(more));
            Some(cap)
        });
        prop_oneof![made, Just(None)].boxed()
    };
    let subscription = any_of(
        json!({ "kind": "Subscription", "description": "s", "url": "http://127.0.0.1:1/e" }),
        vec![
            ("eventTypes", vec![json!(["task.completed", "handoff.rejected"]), json!([])]),
            ("filter", vec![json!({ "agentId": "a" }), json!({})]),
            ("format", vec![json!("cloudevents"), json!("standard")]),
            ("enabled", vec![json!(true), json!(false)]),
        ],
    );
    let allowlist = any_of(
        json!({ "kind": "Allowlist", "agentId": "a", "handoffTargets": [] }),
        vec![("handoffTargets", vec![json!(["b"]), json!(["type:t", "b"])])],
    );
    let parts = vec![
        agent_values("a"),
        agent_values("b"),
        cap(None),
        cap(Some("a")),
        subscription,
        allowlist,
    ];
    // `check` refuses an allowlist and a cap of an agent that does not exist.
    let is_whole = |world: &Objects, key: &Key| {
        let of_a = matches!(key.kind, Kind::Allowlist) || key.name == "a/P1D";
        !of_a || world.contains_key(&Key::new(Kind::Agent, "a"))
    };
    parts.prop_map(move |values| {
        let world = objects(values.into_iter().flatten());
        let keys: Vec<Key> = world.keys().filter(|key| is_whole(&world, key)).cloned().collect();
        keys.into_iter().map(|key| (key.clone(), world[&key].clone())).collect::<Objects>()
    })
}

/// The same objects as a broker shows them, always with a `state`.
fn as_held(declared: &Objects) -> Objects {
    let mut held = Objects::new();
    for (key, object) in declared {
        let step = super::plan::Step {
            action: Action::Create,
            have: None,
            want: Some(object.clone()),
            differences: Vec::new(),
        };
        carried(&mut held, &step);
        assert!(held.contains_key(key));
    }
    held
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_holds_already_needs_no_step(world in world()) {
        prop_assert!(!plan(&world, &world, true).is_drift());
        let held = as_held(&world);
        let again = plan(&held, &world, true);
        prop_assert!(!again.is_drift(), "{:?}", again.steps);
    }

    #[test]
    fn the_steps_make_one_of_the_other(before in world(), after in world()) {
        let mut held = as_held(&before);
        for step in plan(&held.clone(), &after, true).steps {
            carried(&mut held, &step);
        }
        let left = plan(&held, &after, true);
        prop_assert!(!left.is_drift(), "{:?}", left.steps);
    }

    #[test]
    fn a_dump_reads_back_as_what_it_was_made_from(world in world()) {
        let held = as_held(&world);
        let read_back = objects(held.values().filter(|one| super::held::is_written(one)).map(|one| {
            Document::parse(&dump::text(one).unwrap()).unwrap().value().clone()
        }));
        let left = plan(&held, &read_back, true);
        prop_assert!(!left.is_drift(), "{:?}", left.steps);
    }
}

fn contract(version: &str) -> Value {
    json!({ "kind": "Contract", "id": "a-to-b", "version": version, "source": "a", "target": "b" })
}

#[test]
fn a_version_is_added_and_never_changed_or_taken_away() {
    let held = objects([contract("1.0.0"), contract("1.1.0")]);
    let older = plan(&held, &objects([contract("1.1.0")]), true);
    assert!(!older.is_drift(), "an earlier version is history: {older:?}");
    let mut other = contract("1.1.0");
    other["description"] = json!("else");
    let changed = plan(&held, &objects([other]), false);
    assert!(
        matches!(&changed.steps[0].action, Action::Conflict(why) if why.contains("new version"))
    );
    let overruled = plan(&held, &objects([contract("1.0.0")]), false);
    assert!(matches!(&overruled.steps[0].action, Action::Conflict(why) if why.contains("1.1.0")));
    let elsewhere = json!({ "kind": "Cap", "window": "P1D", "usd": "1" });
    let kept = plan(&held, &objects([elsewhere]), true);
    assert_eq!(kept.kept.len(), 2);
    assert!(kept.steps.iter().all(|step| step.action == Action::Create));
}

#[test]
fn references_are_looked_up_before_anything_changes() {
    let mut contract = contract("1.0.0");
    contract["payload"] = json!({ "schema": "registry:refund@1.0.0" });
    let want = objects([
        contract.clone(),
        json!({ "kind": "Allowlist", "agentId": "ghost", "handoffTargets": ["b"] }),
        json!({ "kind": "Cap", "agentId": "ghost", "window": "P1D", "usd": "1" }),
    ]);
    let found = check(&Objects::new(), &want, &mut plan(&Objects::new(), &want, false));
    let at: Vec<_> =
        found.faults.iter().map(|(key, (at, _))| (key.to_string(), at.as_str())).collect();
    let wanted = [
        ("Cap ghost/P1D".to_owned(), "/agentId"),
        ("Allowlist ghost".to_owned(), "/agentId"),
        ("Contract a-to-b 1.0.0".to_owned(), "/payload/schema"),
    ];
    assert_eq!(at, wanted);
    // Source and target of the contract, and the allowlist's target.
    assert_eq!(found.warnings.len(), 3, "{:?}", found.warnings);
}

/// A version that was registered between two others is dumped, and read again: by number, 2.0.0 would be refused.
#[test]
fn payload_schemas_go_in_an_order_that_the_broker_takes() {
    let version = |version: &str, schema: Value| json!({ "kind": "PayloadSchema", "schemaId": "s", "version": version, "schema": schema });
    let text = json!({ "type": "string" });
    let want = objects([
        version("1.0.0", json!({ "type": "object", "properties": { "a": text } })),
        version("1.1.0", json!({ "type": "object", "properties": { "a": text, "b": text } })),
        version(
            "2.0.0",
            json!({ "type": "object", "properties": { "a": text }, "minProperties": 1 }),
        ),
    ]);
    let mut steps = plan(&Objects::new(), &want, false);
    let found = check(&Objects::new(), &want, &mut steps);
    assert_eq!(found.faults, []);
    let order: Vec<String> = steps.steps.iter().map(|step| step.key().to_string()).collect();
    assert_eq!(order, ["PayloadSchema s 1.0.0", "PayloadSchema s 2.0.0", "PayloadSchema s 1.1.0"]);
    let alone = objects([
        version("1.0.0", json!({ "type": "object" })),
        version("1.0.1", json!({ "type": "string" })),
    ]);
    let found = check(&Objects::new(), &alone, &mut plan(&Objects::new(), &alone, false));
    assert!(found.faults.iter().any(|(_, (at, _))| at == "/version"), "{found:?}");
}

#[test]
fn files_are_read_with_the_line_of_each_defect() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("a.yaml", "kind: Agent\nagentId: a\nname: A\nfoo: 1\n");
    write("b.yml", "kind: Agent\nagentId: b\n");
    write("c.yaml", "kind: Agent\nagentId: b\n");
    write("d.yaml", "kind: [\n");
    write("e.json", "{\"type\": \"object\"}");
    write("f.json", "{\"kind\": \"Nonesuch\"}");
    write(".hidden.yaml", "kind: [\n");
    let defects = Declared::read(folder.path()).unwrap_err();
    let told: Vec<String> = defects.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].contains("a.yaml:4:") && told[0].contains("foo"), "{told:?}");
    assert!(told[1].contains("c.yaml:1:1") && told[1].contains("declared in"), "{told:?}");
    assert!(told[2].contains("d.yaml:"), "{told:?}");
    assert!(told[3].contains("f.json:1:") && told[3].contains("/kind"), "{told:?}");
    let empty = tempfile::tempdir().unwrap();
    assert!(Declared::read(empty.path()).is_err());
    assert!(Declared::read(Path::new("/no/such/folder")).is_err());
}

#[test]
fn subscriptions_of_one_name_are_told_apart_and_not_dumped() {
    let mut held = Held::default();
    for id in ["1", "2", "3"] {
        let mut one = object(&json!({ "kind": "Subscription", "url": "http://127.0.0.1:1/e" }));
        one.handle = Some(id.to_owned());
        held.put(one);
    }
    assert_eq!((held.objects.len(), held.ambiguous.len()), (3, 1));
    assert!(dump::files(&held).unwrap_err().contains("description"));
}

#[test]
fn names_become_names_of_files_and_variables() {
    let path = |kind, name: &str| dump::path(&Key::new(kind, name)).display().to_string();
    assert_eq!(path(Kind::Agent, "a/../b:c"), "agents/a%2F..%2Fb%3Ac.yaml");
    assert_eq!(path(Kind::Agent, ".a"), "agents/%2Ea.yaml");
    assert_eq!(path(Kind::Cap, "P1D"), "caps/tenant-P1D.yaml");
    assert_eq!(path(Kind::Cap, "a/P1D"), "caps/a-P1D.yaml");
    assert!(path(Kind::Subscription, &"é".repeat(200)).len() < 255);
}

#[test]
fn credentials_of_a_subscription_are_dumped_as_references_and_never_changed() {
    let file = |names: &[&str]| {
        let mut file =
            json!({ "kind": "Subscription", "description": "d", "url": "http://127.0.0.1:1/e" });
        for name in names {
            file[*name] = json!({ "secretRef": "env:T" });
        }
        object(&file)
    };
    let both = file(&["authorization", "token"]);
    let text = dump::text(&both).unwrap();
    assert!(text.contains("env:SECRET_D_AUTHORIZATION"), "{text}");
    assert!(text.contains("env:SECRET_D_TOKEN"), "{text}");
    let again = read(Document::parse_large(&text).unwrap().value()).unwrap();
    assert_eq!(again.body, both.body);
    let all = |one: Object| Objects::from([(one.key.clone(), one)]);
    assert!(!plan(&all(both.clone()), &all(again), false).is_drift());
    for other in [&["token"][..], &[]] {
        let plan = plan(&all(both.clone()), &all(file(other)), false);
        assert_eq!(plan.conflicts().count(), 1, "{other:?}");
    }
    let created = plan(&Objects::new(), &all(both), false);
    let secrets = Secrets::from([("token".to_owned(), "t".to_owned())]);
    let sent = requests(&created.steps[0], &secrets).remove(0);
    let Some(Body::Json(body)) = sent.body else { panic!("no body") };
    assert_eq!((&body["token"], body.get("credentialsSet")), (&json!("t"), None));
}
