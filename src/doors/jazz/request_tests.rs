use std::sync::LazyLock;

use handoffd_gate::schema::Schemas;
use proptest::prelude::*;

use super::*;
use crate::doors::message::{Ids, MessageContext, build};
use crate::doors::state::tests::page;

static MESSAGES: LazyLock<Schemas> = LazyLock::new(Schemas::new);

fn context(
    mapped: RequestMapping,
    handoff: Option<String>,
) -> (Map<String, Value>, MessageContext) {
    let mut ids = Ids::derived(DOOR, "a", "r", [7; 16]);
    ids.handoff = handoff.unwrap_or(ids.handoff);
    let context = MessageContext {
        agent: "a".to_owned(),
        version: "1.0.0".to_owned(),
        ids,
        timestamp: "2026-11-24T10:00:00Z".to_owned(),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned(),
        tracestate: None,
        funds: None,
        parent_task: None,
        door: DOOR,
        extension: mapped.extension,
        members: mapped.members,
    };
    (mapped.arguments, context)
}

/// The message of a request, as a submission makes it.
fn message(request: &HandoffRequest, parent: Option<&str>) -> Value {
    let mut mapped = request.mapped(parent);
    mapped.extension.insert("requestId".to_owned(), request.id.as_str().into());
    let (arguments, context) = context(mapped, uuid_of(&request.id));
    build(&arguments, context)
}

fn request(value: Value) -> HandoffRequest {
    check(Form::Handoff, &value).unwrap();
    serde_json::from_value(value).unwrap()
}

fn whole() -> Value {
    json!({
        "id": "0E1F2A3B-4C5D-4E6F-8A9B-0C1D2E3F4A5B", "fromAgentId": "a", "toAgentId": "type:b",
        "reason": "I cannot run tests", "task": "Run the tests",
        "context": {
            "originalRequest": "Deploy it", "conversationHistory": [
                { "role": "user", "content": "Deploy it" },
                { "role": "tool", "name": "git", "tool_call_id": "c1", "content": "clean" },
            ],
            "completedWork": { "branch": "main", "files": ["a.ts"] }, "requiredCapabilities": ["run-tests"],
            "metadata": { "originalRequest": "another", "n": 1 }, "userId": "u", "correlationId": "conv-123",
            "mood": "calm",
        },
        "timestamp": "2026-11-24T09:59:58.123Z", "conversationId": "conv-123", "maxIterations": 7, "urgency": 3,
    })
}

#[test]
fn each_field_has_its_place_in_the_message() {
    let message = message(&request(whole()), None);
    MESSAGES.check(&message).unwrap();
    for (pointer, value) in [
        ("/handoffId", json!("0e1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b")),
        ("/toAgent", json!({ "agentId": "type:b" })),
        ("/taskDescription", json!("Run the tests")),
        ("/completedSubtasks/0/result", json!({ "branch": "main" })),
        ("/currentState/files/0", json!("a.ts")),
        ("/conversationHistoryVerbatim/1/name", json!("git")),
        ("/extensions/originalRequest", json!("Deploy it")),
        ("/extensions/jazz/context", json!({ "mood": "calm" })),
        ("/extensions/jazz/request", json!({ "urgency": 3 })),
        ("/capabilitiesRequired", json!(["run-tests"])),
        ("/returnTo", json!("source")),
        ("/userId", json!("u")),
        ("/correlationId", json!("conv-123")),
        ("/conversationId", json!("conv-123")),
        ("/maxIterations", json!(7)),
        ("/timestamp", json!("2026-11-24T09:59:58.123Z")),
    ] {
        assert_eq!(message.pointer(pointer), Some(&value), "{pointer}");
    }
}

#[test]
fn a_request_without_work_is_not_begun_whether_it_follows_another_or_not() {
    let mut plain = whole();
    plain["context"] =
        json!({ "originalRequest": "", "conversationHistory": [], "requiredCapabilities": [] });
    let plain = request(plain);
    let first = message(&plain, None);
    MESSAGES.check(&first).unwrap();
    assert_eq!(first["taskDescription"], INITIAL);
    assert_eq!(HandoffRequest::of_page(&page(json!({ "message": first }))), plain);
    let parent = "0190b5a0-0000-7000-8000-000000000001";
    let next = message(&plain, Some(parent));
    MESSAGES.check(&next).unwrap();
    let found = (&next["taskDescription"], &next["parentHandoffId"]);
    assert_eq!(found, (&json!(INITIAL), &json!(parent)));
    assert_eq!(HandoffRequest::of_page(&page(json!({ "message": next }))), plain);
}

#[test]
fn a_message_of_another_door_is_a_request_too() {
    let message = json!({
        "handoffId": "h", "fromAgent": { "agentId": "a" }, "toAgent": { "agentType": "clerk" }, "taskDescription": "Go on",
        "currentState": { "x": 1 }, "taskSummary": "Go", "timestamp": "2026-11-24T10:00:00Z",
        "conversationHistoryVerbatim": [],
    });
    let view = json!({
        "handoffId": "h", "toAgent": { "agentId": "b" }, "conversationId": "c", "message": message,
    });
    let told = serde_json::to_value(HandoffRequest::of_page(&page(view))).unwrap();
    let expected = json!({
        "id": "h", "fromAgentId": "a", "toAgentId": "b", "reason": "", "task": "Go on",
        "context": {
            "originalRequest": "Go", "conversationHistory": [], "completedWork": { "x": 1 }, "requiredCapabilities": [],
        },
        "timestamp": "2026-11-24T10:00:00Z", "conversationId": "c",
    });
    assert_eq!(told, expected);
}

#[test]
fn what_does_not_fit_is_named_by_its_place() {
    for (pointer, value) in [
        ("/id", json!("")),
        ("/id", json!(7)),
        ("/task", json!("")),
        ("/timestamp", json!("yesterday")),
        ("/maxIterations", json!(0)),
        ("/context/conversationHistory/0/content", json!(null)),
        ("/context/requiredCapabilities", json!("x")),
        ("/context/completedWork", json!([])),
        ("/conversationId", json!("x".repeat(257))),
    ] {
        let mut wrong = whole();
        *wrong.pointer_mut(pointer).unwrap() = value.clone();
        let problem = check(Form::Handoff, &wrong).unwrap_err();
        assert!(problem.failures.iter().any(|one| one.pointer == pointer), "{pointer} {value}");
    }
    let tool = json!({ "specialist_type": "", "task": "", "reason": "", "contxt": {} });
    let found = check(Form::Tool, &tool).unwrap_err();
    let mut pointers: Vec<_> = found.failures.iter().map(|one| one.pointer.as_str()).collect();
    pointers.sort_unstable();
    assert_eq!(pointers, ["/contxt", "/reason", "/specialist_type", "/task"]);
}

#[test]
fn an_id_is_the_handoffs_own_where_it_is_a_uuid_of_the_rfc() {
    for id in ["0190b5a0-0000-7000-8000-000000000001", "0E1F2A3B-4C5D-4E6F-8A9B-0C1D2E3F4A5B"] {
        assert_eq!(uuid_of(id), Some(id.to_lowercase()));
    }
    for id in
        ["", "h-1", "00000000-0000-0000-0000-000000000000", "0190b5a0000070008000000000000001"]
    {
        assert_eq!(uuid_of(id), None, "{id}");
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        any::<i32>().prop_map(Value::from)
    ]
}

fn values() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::vec(("[a-z]{1,8}", value()), 0..4)
        .prop_map(|pairs| pairs.into_iter().collect())
}

proptest! {
    #[test]
    fn whatever_a_client_says_is_a_message_of_the_schema_and_comes_back_as_it_was(
        id in "[ -~]{1,40}", (reason, task) in ("\\PC{0,40}", "\\PC{1,600}"), original in "\\PC{0,40}",
        turns in prop::collection::vec(("(user|assistant|tool)", "\\PC{0,40}"), 0..8),
        work in prop::option::of(values()), metadata in prop::option::of(values()), more in values(),
        required in prop::collection::vec("[a-z]{1,8}", 0..3), user in prop::option::of("[a-z]{1,8}"), most in prop::option::of(1_u64..99),
    ) {
        prop_assume!(task != INITIAL);
        let turns: Vec<Value> = turns.iter().map(|(role, text)| json!({ "role": role, "content": text })).collect();
        let mut body = json!({
            "id": id, "fromAgentId": "a", "toAgentId": "b", "reason": reason, "task": task, "timestamp": "2026-11-24T09:00:00.5Z",
            "conversationId": "c", "context": {
                "originalRequest": original, "conversationHistory": turns, "requiredCapabilities": required,
            },
        });
        let context = body["context"].as_object_mut().unwrap();
        for (name, value) in [("completedWork", work.map(Value::Object)), ("metadata", metadata.map(Value::Object)), ("userId", user.map(Value::from))] {
            if let Some(value) = value {
                context.insert(name.to_owned(), value);
            }
        }
        if let Some(most) = most {
            body["maxIterations"] = most.into();
        }
        for (name, value) in more {
            body.as_object_mut().unwrap().entry(format!("x-{name}")).or_insert(value);
        }
        let asked = request(body);
        let made = message(&asked, None);
        let checked = MESSAGES.check(&made);
        prop_assert!(checked.is_ok(), "{checked:?} {made}");
        prop_assert_eq!(HandoffRequest::of_page(&page(json!({ "message": made }))), asked);
    }
}
