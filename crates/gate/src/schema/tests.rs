use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(Schemas::new);

fn initial() -> Value {
    serde_json::from_str(include_str!("../../../../tests/vectors/messages/initial.json"))
        .expect("JSON")
}

fn review() -> Value {
    serde_json::from_str(include_str!("../../../../tests/vectors/messages/review.json"))
        .expect("JSON")
}

fn failures(message: &Value) -> Vec<Failure> {
    let failures = SCHEMAS.check(message).expect_err("refused");
    assert!(failures.iter().all(|f| f.code == Code::SchemaInvalid && f.stage == Stage::Schema));
    failures
}

/// The pointers of all failures after setting `pointer` to `value`.
fn pointers_with(mut message: Value, pointer: &str, value: Value) -> Vec<String> {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    match message.pointer_mut(parent).expect("the parent") {
        Value::Array(items) => items[name.parse::<usize>().expect("an index")] = value,
        other => other[name] = value,
    }
    let found = failures(&message);
    found.into_iter().map(|failure| failure.pointer).collect()
}

fn without(mut message: Value, pointer: &str) -> Value {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = message.pointer_mut(parent).and_then(Value::as_object_mut).expect("the parent");
    parent.remove(name).expect("the field");
    message
}

#[test]
fn the_examples_pass_under_the_version_they_claim() {
    let version = SCHEMAS.check(&initial()).expect("2.1");
    assert_eq!(version, SchemaVersion { major: 2, minor: 1, validated_against: "2.1" });
    let version = SCHEMAS.check(&review()).expect("2.0");
    assert_eq!(version, SchemaVersion { major: 2, minor: 0, validated_against: "2.0" });
}

#[test]
fn f5_6_a_known_minors_patch_versions_are_that_minor() {
    for (mut message, minor, known) in [(initial(), 1, "2.1"), (review(), 0, "2.0")] {
        for patch in ["0", "5", "12"] {
            message["schemaVersion"] = json!(format!("{known}.{patch}"));
            let version = SCHEMAS.check(&message).expect(patch);
            assert_eq!((version.minor, version.validated_against), (minor, known));
            let unknown = pointers_with(message.clone(), "/somethingNew", json!(1));
            assert_eq!(unknown, ["/somethingNew"], "held strictly");
        }
    }
}

#[test]
fn f5_7_results_digests_and_turns_are_of_the_seeds_types() {
    for (pointer, value) in [
        ("/completedSubtasks/0/result", json!("done")),
        ("/completedSubtasks/0/result", json!(null)),
        ("/completedSubtasks/0/result", json!([])),
        ("/toolCallHistory/0/inputHash", json!("banana")),
        ("/toolCallHistory/0/inputHash", json!("sha256:")),
        ("/toolCallHistory/0/inputHash", json!("sha256:banana")),
        ("/toolCallHistory/0/inputHash", json!("md5:d41d8cd98f00b204e9800998ecf8427e")),
        ("/conversationHistoryVerbatim/0/role", json!("")),
        ("/conversationHistoryVerbatim/0/role", json!(7)),
        ("/conversationHistoryVerbatim/0/timestamp", json!("yesterday")),
        ("/conversationHistoryVerbatim/0/metadata", json!("x")),
        ("/conversationHistoryVerbatim/0/tool_call_id", json!(1)),
    ] {
        let mut newer = review();
        newer["schemaVersion"] = json!("2.1");
        assert_eq!(pointers_with(newer, pointer, value.clone()), [pointer], "{value}");
        assert_eq!(pointers_with(review(), pointer, value.clone()), [pointer], "{value}");
    }
    let mut message = review();
    message["completedSubtasks"][0]["result"] = json!({});
    message["conversationHistoryVerbatim"][0] = json!({
        "role": "tool", "name": "query_database", "tool_call_id": "call_abc123",
        "content": "{}", "timestamp": "2025-01-15T10:30:05Z", "metadata": {}
    });
    assert!(SCHEMAS.check(&message).is_ok());
}

#[test]
fn f5_3_a_traceparent_is_read_by_w3cs_rules() {
    let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    for text in [
        format!("00-{trace}-{parent}-01"),
        format!("01-{trace}-{parent}-01"),
        format!("cc-{trace}-{parent}-01-what-the-future-will-be-like"),
        format!("fe-{trace}-{parent}-00"),
        // Its form is good; that its trace cannot be gone on with, the answer says.
        format!("00-{}-{parent}-01", "0".repeat(32)),
    ] {
        let mut message = review();
        message["traceparent"] = json!(text);
        assert!(SCHEMAS.check(&message).is_ok(), "{text}");
    }
    for text in [
        format!("ff-{trace}-{parent}-01"),
        format!("00-{trace}-{parent}-01-more"),
        format!("cc-{trace}-{parent}-01.more"),
        format!("00-{}-{parent}-01", trace.to_uppercase()),
        "none".to_owned(),
    ] {
        assert_eq!(pointers_with(review(), "/traceparent", json!(text)), ["/traceparent"]);
    }
}

#[test]
fn a103_each_required_field_that_is_missing_fails_at_its_own_pointer() {
    for message in [initial(), review()] {
        let required = [
            "schemaVersion",
            "handoffId",
            "taskId",
            "parentHandoffId",
            "fromAgent",
            "toAgent",
            "timestamp",
            "taskDescription",
            "completedSubtasks",
            "remainingSubtasks",
            "currentState",
            "relevantContext",
            "constraints",
            "costTracking",
            "conversationHistorySummary",
            "conversationHistoryVerbatim",
            "toolCallHistory",
            "traceparent",
        ];
        for name in required {
            let pointer = format!("/{name}");
            let found = failures(&without(message.clone(), &pointer));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].pointer, pointer);
            assert!(found[0].message.contains(name), "{found:?}");
        }
        let document: Value = serde_json::from_str(document("2.1").expect("2.1")).expect("JSON");
        assert_eq!(document["required"], json!(required));
    }
}

#[test]
fn a103_nested_required_fields_fail_at_their_own_pointers() {
    for pointer in [
        "/fromAgent/agentId",
        "/fromAgent/agentVersion",
        "/fromAgent/executionId",
        "/toAgent/agentType",
        "/toAgent/agentVersion",
        "/completedSubtasks/0/subtaskId",
        "/completedSubtasks/0/result",
        "/completedSubtasks/0/completedAt",
        "/remainingSubtasks/1/description",
        "/relevantContext/0/relevanceScore",
        "/costTracking/costSpentSoFarUSD",
        "/costTracking/costBudgetRemainingUSD",
        "/costTracking/tokenSpent",
        "/costTracking/tokenSpent/prompt",
        "/conversationHistoryVerbatim/0/role",
        "/conversationHistoryVerbatim/0/content",
        "/toolCallHistory/0/inputHash",
    ] {
        let found = failures(&without(review(), pointer));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].pointer, pointer);
    }
}

#[test]
fn an_empty_message_names_every_required_field() {
    assert_eq!(failures(&json!({})).len(), 18);
}

#[test]
fn wrong_values_fail_at_their_pointers() {
    for (pointer, value) in [
        ("/handoffId", json!("3f2b8c1e-5a4d-1e6f-9b7a-1c2d3e4f5a6b")),
        ("/taskId", json!("7d9e0f1a2b3c4d5e8f60718293a4b5c6")),
        ("/parentHandoffId", json!(7)),
        ("/timestamp", json!("2026-06-12 08:00")),
        ("/taskDescription", json!("")),
        ("/fromAgent/agentId", json!("-no")),
        ("/fromAgent/agentVersion", json!("2.1")),
        ("/toAgent/agentVersion", json!("newest")),
        ("/toAgent/agentVersion", json!("")),
        ("/completedSubtasks/0/completedAt", json!("yesterday")),
        ("/relevantContext/0/relevanceScore", json!(1.01)),
        ("/constraints/1", json!("no colon")),
        ("/costTracking/costSpentSoFarUSD", json!(-0.01)),
        ("/costTracking/costBudgetRemainingUSD", json!(1e10)),
        ("/costTracking/tokenSpent/prompt", json!(1.5)),
        ("/costTracking/tokenSpent/completion", json!(-1)),
        ("/conversationHistoryVerbatim/0/content", json!(null)),
        ("/traceparent", json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7")),
        ("/signature", json!("hmac-sha256:abc")),
    ] {
        assert_eq!(pointers_with(review(), pointer, value.clone()), [pointer], "{pointer} {value}");
    }
}

#[test]
fn the_optional_fields_of_2_1_are_checked() {
    for (pointer, value) in [
        ("/historyStrategy", json!("all")),
        ("/priority", json!("critical")),
        ("/taskSummary", json!("x".repeat(501))),
        ("/maxIterations", json!(0)),
        ("/checkpoint", json!([])),
        ("/receiverList/0", json!("not an id")),
        ("/receiverList/1", json!({})),
        ("/receiverList/1/agentVersion", json!("=>1")),
        ("/personalDataPayload/subjects/0/subjectId", json!("")),
        ("/personalDataPayload/subjects/0/data", json!("x")),
        ("/capabilitiesRequired/0", json!(1)),
        ("/extensions", json!("x")),
    ] {
        assert_eq!(
            pointers_with(initial(), pointer, value.clone()),
            [pointer],
            "{pointer} {value}"
        );
    }
}

#[test]
fn in_2_1_a_target_is_a_role_an_agent_or_a_capability() {
    for target in [json!({"agentId": "a"}), json!({"capability": "c"}), json!({"agentType": "t"})] {
        let mut message = initial();
        message["toAgent"] = target;
        assert!(SCHEMAS.check(&message).is_ok());
    }
    let found = pointers_with(initial(), "/toAgent", json!({"agentVersion": "*"}));
    assert_eq!(found, ["/toAgent"]);
}

#[test]
fn a_2_0_message_may_be_signed() {
    let mut message = review();
    message["signature"] = json!(format!("hmac-sha256:{}", "aB".repeat(32)));
    assert!(SCHEMAS.check(&message).is_ok());
}

#[test]
fn an_unknown_top_level_field_is_named_with_the_nearest_known_name() {
    for (name, pointer, hint) in [
        ("task_description", "/task_description", "did you mean `taskDescription`?"),
        ("taskID", "/taskID", "did you mean `taskId`?"),
        ("remainingSubTask", "/remainingSubTask", "did you mean `remainingSubtasks`?"),
        ("checkpoint", "/checkpoint", "is a field of schema 2.1"),
        ("a/b~c", "/a~1b~0c", "is not a field of schema 2.0."),
    ] {
        let mut message = review();
        message[name] = json!({"x": "do not repeat me"});
        let found = failures(&message);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pointer, pointer);
        assert!(found[0].message.contains(hint), "{}", found[0].message);
        assert!(!found[0].message.contains("repeat"));
    }
}

#[test]
fn members_of_nested_objects_are_open() {
    let mut message = review();
    message["fromAgent"]["team"] = json!("legal");
    message["costTracking"]["currency"] = json!("USD");
    message["conversationHistoryVerbatim"][0]["name"] = json!("x");
    assert!(SCHEMAS.check(&message).is_ok());
}

#[test]
fn a_newer_minor_is_held_to_the_newest_known_one_with_new_fields_let_through() {
    let mut message = without(initial(), "/receiverList");
    message["schemaVersion"] = json!("2.9");
    message["somethingNew"] = json!(true);
    let version = SCHEMAS.check(&message).expect("let through");
    assert_eq!(version, SchemaVersion { major: 2, minor: 9, validated_against: "2.2" });
    assert_eq!(failures(&without(message.clone(), "/taskId"))[0].pointer, "/taskId");
    assert_eq!(pointers_with(message, "/priority", json!("?")), ["/priority"]);
}

#[test]
fn other_majors_and_malformed_versions_fail_at_the_version() {
    for version in [
        json!("3.0"),
        json!("1.9"),
        json!("0.0"),
        json!("2"),
        json!("2."),
        json!("2.x"),
        json!("v2.0"),
        json!("02.0"),
        json!("2.0.0.0"),
        json!("2.99999999999"),
        json!(""),
        json!("+2.+0"),
        json!("2.0.07"),
        json!(2.0),
        json!(null),
    ] {
        let found = pointers_with(review(), "/schemaVersion", version.clone());
        assert!(found.iter().all(|pointer| pointer == "/schemaVersion"), "{version}: {found:?}");
    }
}

#[test]
fn private_content_and_long_values_are_not_repeated() {
    let mut message = initial();
    message["personalDataPayload"]["jana@example.com"] = json!(1);
    message["personalDataPayload"]["subjects"][0]["subjectId"] = json!(["secret"]);
    message["checkpoint"] = json!("secret");
    message["priority"] = json!("secret".repeat(30));
    for failure in failures(&message) {
        let text = format!("{} {}", failure.pointer, failure.message);
        assert!(!text.contains("jana") && !text.contains("secret"), "{text}");
    }
}

#[test]
fn failures_are_capped_whatever_the_message() {
    let mut message = review();
    message["constraints"] = Value::Array(vec![json!("x"); 500]);
    assert_eq!(failures(&message).len(), MAX_FAILURES);
    message["constraints"] = Value::Array(vec![json!(0); 1_000_000]);
    let found = failures(&message);
    assert_eq!(found.len(), MAX_FAILURES);
    assert_eq!(found[0].pointer, "/constraints");
}

#[test]
fn documents_are_served_by_version_and_describe_every_property() {
    fn described(schema: &Value, path: &str) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}/{name}");
            assert!(property["description"].is_string(), "{path}");
            described(property, &path);
            described(&property["items"], &path);
        }
    }
    for version in VERSIONS {
        let text = document(version).expect("known");
        assert_eq!(document(&format!("{version}.0")), Some(text));
        let schema: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(schema["$id"], json!(format!("urn:handoffd:schema:handoff:{version}")));
        described(&schema, "");
    }
    assert_eq!(document("2.1.5"), document("2.1"));
    for unknown in ["2", "2.9", "3.0", "", ".0", "2.0.0.0", "2.1.x"] {
        assert_eq!(document(unknown), None, "{unknown}");
    }
}

#[test]
fn a_small_document_is_explained_in_the_same_words() {
    let schema = json!({
        "type": "object", "required": ["target"], "additionalProperties": false,
        "properties": { "target": { "type": "string" }, "wait": { "type": "integer" }, "a/b": { "type": "object", "required": ["c"] } },
    });
    let schema = DocumentSchema::new(&schema).expect("a schema");
    assert_eq!(schema.check(&json!({ "target": "b", "wait": 1 })), []);
    let found = |document: Value| -> Vec<(String, String)> {
        let found = schema.check(&document).into_iter();
        found.map(|failure| (failure.pointer, failure.message)).collect()
    };
    let said = |pointer: &str, message: &str| (pointer.to_owned(), message.to_owned());
    assert_eq!(found(json!({})), [said("/target", "`target` is missing.")]);
    let unknown = found(json!({ "target": "b", "wiat": 1 }));
    assert_eq!(unknown, [said("/wiat", "`wiat` is unknown here; did you mean `wait`?")]);
    assert_eq!(found(json!({ "target": "b", "a/b": {} })), [said("/a~1b/c", "`c` is missing.")]);
    assert_eq!(found(json!({ "target": 7 }))[0].0, "/target");
    assert_eq!(found(json!([]))[0].0, "");
    assert!(DocumentSchema::new(&json!({ "type": "nothing" })).is_err());
}

proptest! {
    #[test]
    fn checking_never_panics(name in any::<String>(), text in any::<String>(), depth in 0_usize..3) {
        let mut message = review();
        message[name.as_str()] = json!(text);
        if depth > 0 { message["schemaVersion"] = json!(text); }
        if depth > 1 { message["toAgent"] = json!({"agentVersion": text}); }
        let _ = SCHEMAS.check(&message);
        let _ = SCHEMAS.check(&json!(text));
    }
}
