//! Role `operator-metadata` (docs/roles.md): each route of the API is open, masked or closed to it, and no answer of any
//! door has a word of an agent.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Caller, command, within};
use crate::mcp::Mcp;
use crate::message::Message;
use crate::spoken::{self, Spoken, WORD, story};

/// The access of the role to a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Needs no key; a claim's own token opens it.
    Public,
    /// Answers as to an operator: there are no contents in the answer.
    Open,
    /// Answers without contents.
    Masked,
    /// 403, in words that name the role.
    Closed,
}
use Class::{Closed, Masked, Open, Public};

/// The class of each operation. A new route needs one: `Closed` unless its handler asks for `Open<…>` or `Masked<…>`. A GET
/// that is open or masked is walked by itself where its path names tasks, handoffs and the like; a parameter that is new is
/// added in `walked`, and a request that changes something in the test below the walk.
const CLASSES: [(Class, &str); 4] = [
    (
        Public,
        "getEventSchema getHandoffSchema getSw4rmContextSchema listEventSchemas listSchemas livez readClaim readyz",
    ),
    (
        Open,
        "cancelTasks discardDeadLetters getAllowlist getCheckpointNote getConsistencyProof getContract getHandoffTargets \
        getAgent getInclusionProof getLogCheckpoint getLogTile getPayloadSchema getReceiver getSubscription getTaskCost getTile getTrace getTreeHead \
        lintContracts listAgents listCaps listContracts listCosts listPayloadSchemaVersions listPayloadSchemas listPublishedHeads listReceivers listRecords \
        listSubscriptions listTransports listTreeKeys metrics patchAgent resolveEscalations testDelivery watchTask changeSubscription",
    ),
    (
        Masked,
        "cancelTask discardDeadLetter explainTask getDeadLetter getEscalation getHandoff getTask listAttempts listAttention \
        listCheckpoints listDeadLetters listEscalations listEvents listHandoffs listRefusals listSubscriptionDeliveries listTasks \
        resolveEscalation restoreCheckpoint topUpTask",
    ),
    (
        Closed,
        "acceptHandoff addHandoffTarget answerHandoff appendChunks askHandoff comparePayloadSchema completeHandoff completeTask \
        createAgent createKey createSubscription deleteAgent deleteCap deleteSubscription endSession eraseDataSubject failHandoff \
        getBlame getCheckpoint getDataSubject getErasure getHandoffTool getHistory getLegalHold getPrompt getQuestionPrompt \
        getResultPrompt heartbeatHandoff listChunks listErasures listKeys listLegalHolds listSessions matchAgents placeLegalHold pollInbox putCap \
        putCheckpoint putContract putHandoffTargets putPayloadSchema rejectHandoff releaseDeadLetter releaseDeadLetters \
        releaseLegalHold removeHandoffTarget replaySubscription revokeKey rotateSecret rotateSubscriptionSecret searchUser \
        submitHandoff takeOverHandoff validateHandoff whatIf",
    ),
];

/// Method, path, id and class of each operation of the API's own document.
fn operations() -> Vec<(Method, String, String, Class)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut classes: BTreeMap<&str, Class> = BTreeMap::new();
    for (class, ids) in CLASSES {
        for id in ids.split_whitespace() {
            assert_eq!(classes.insert(id, class), None, "{id} has two classes");
        }
    }
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(id) = operation["operationId"].as_str() else { continue };
            let class =
                classes.remove(id).unwrap_or_else(|| panic!("{id} needs a class: see CLASSES"));
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            all.push((method, path.clone(), id.to_owned(), class));
        }
    }
    assert!(classes.is_empty(), "no such operations: {classes:?}");
    all
}

/// The addresses of a path with each task, handoff and so on of the story in it.
fn walked(path: &str, tale: &Spoken, log: &str) -> Vec<String> {
    let ids = |of: &dyn Fn(&Message) -> String| tale.messages().map(of).to_vec();
    let runs = |message: &Message| message["fromAgent"]["executionId"].as_str().unwrap().to_owned();
    let mut all = vec![path.to_owned()];
    for (name, values) in [
        ("{taskId}", ids(&Message::task)),
        ("{handoffId}", ids(&Message::id)),
        ("{executionId}", vec![runs(&tale.completed)]),
        ("{agentId}", vec!["a".to_owned(), "c".to_owned()]),
        ("{escalationId}", vec![tale.escalation.clone()]),
        ("{subscriptionId}", vec![tale.subscription.clone()]),
        ("{logId}", vec![log.to_owned()]),
        ("{path}", vec!["0/000.p/1".to_owned(), "entries/000.p/1".to_owned()]),
        ("{target}", vec!["b".to_owned()]),
        ("{contractId}", vec!["none".to_owned()]),
        ("{schemaId}", vec!["none".to_owned()]),
        ("{version}", vec!["2.1".to_owned()]),
        ("{type}", vec!["handoff.rejected".to_owned()]),
        ("{kind}", vec!["webhook".to_owned()]),
        ("{window}", vec!["P1D".to_owned()]),
        ("{holdId}", vec!["case-7".to_owned()]),
        ("{keyId}", vec!["key_none".to_owned()]),
        ("{sessionId}", ids(&Message::id)),
        ("{subjectId}", vec!["jana".to_owned()]),
        ("{erasureId}", ids(&Message::id)),
        ("{token}", vec!["none".to_owned()]),
    ] {
        if path.contains(name) {
            all = all
                .iter()
                .flat_map(|one| values.iter().map(|value| one.replace(name, value)))
                .collect();
        }
    }
    assert!(!all[0].contains('{'), "{path} has a parameter without a value: see walked");
    all
}

/// No header and no part of the body has the word.
fn silent(what: &str, answer: &Answer) {
    assert!(!answer.text.contains(WORD), "{what}: {}", answer.text);
    for (name, value) in &answer.headers {
        assert!(!String::from_utf8_lossy(value.as_bytes()).contains(WORD), "{what}: {name}");
    }
}

/// The address with each set of parameters under which it is asked: those it needs, or under which it shows more.
fn asked(path: &str) -> Vec<String> {
    let queries: &[&str] = match path {
        "/audit/proofs/consistency" => &["?from=1"],
        "/audit/proofs/inclusion" => &["?leafIndex=0"],
        "/events" => &["?limit=500", "?format=cloudevents&limit=500"],
        _ if path.starts_with("/handoffs/") && path.matches('/').count() == 2 => {
            &["", "?include=message,verdict,questions"]
        }
        _ if path.ends_with("/trace") => &["", "?limit=500"],
        _ => &[""],
    };
    queries.iter().map(|query| format!("{path}{query}")).collect()
}

async fn log_of(caller: &Caller) -> String {
    caller.get("/audit/tree-head").await.expect(200).body["logId"].as_str().unwrap().to_owned()
}

both! {
    with [spoken::SETTINGS[0], spoken::SETTINGS[1]]
    async fn each_route_is_open_masked_or_closed_and_says_no_word(broker: Broker) {
        let tale = story(broker).await;
        let key = broker.person("operator-metadata").await;
        let log = log_of(&key).await;
        let mut spoken = 0;
        for (method, path, id, class) in operations() {
            if id == "watchTask" {
                continue;
            }
            for path in walked(&path, &tale, &log) {
                let what = format!("{method} {path} ({id}, {class:?})");
                if class == Closed {
                    let answer = key.send(method.clone(), &path, &[], &json!({})).await.refused(403, "FORBIDDEN");
                    let detail = answer.body["detail"].as_str().unwrap();
                    assert!(detail.contains("role operator-metadata") || detail.contains("only an a"), "{what}: {detail}");
                    continue;
                }
                if method != Method::GET {
                    continue;
                }
                for path in asked(&path) {
                    let answer = key.get(&path).await;
                    assert!([200, 404].contains(&answer.status), "{what}: {} {}", answer.status, answer.text);
                    silent(&what, &answer);
                    let whole = broker.admin.get(&path).await;
                    assert_eq!(whole.status, answer.status, "{what}");
                    spoken += usize::from(class == Masked && whole.text.contains(WORD));
                }
            }
        }
        assert!(spoken >= 18, "an admin reads the word at {spoken} masked addresses");
        let trace = broker.trace(&tale.completed).await.to_string();
        assert!(trace.contains(WORD), "an admin reads the word in a trace");
        let closed = format!("{}/trace?format=bundle", tale.completed.task_path());
        assert!(key.get(&closed).await.refused(403, "FORBIDDEN").text.contains("operator-metadata"));
        let closed = format!("/dead-letters/{}?explain=true", tale.dead.id());
        assert!(key.get(&closed).await.refused(403, "FORBIDDEN").text.contains("operator-metadata"));
    }

    with [spoken::SETTINGS[0], spoken::SETTINGS[1]]
    async fn it_does_what_needs_no_contents_and_nothing_else(broker: Broker) {
        let tale = story(broker).await;
        let key = broker.person("operator-metadata").await;
        let because = json!({ "reason": "the queue is full" });
        let done = |answer: Answer| {
            let answer = answer.expect(200);
            silent("an action", &answer);
            answer.body
        };
        for state in ["PAUSED", "RUNNABLE"] {
            let body = if state == "PAUSED" { json!({ "state": state, "pause": "hold" }) } else { json!({ "state": state }) };
            assert_eq!(done(key.patch("/agents/b", &body).await)["state"], state);
        }
        done(key.patch("/agents/c", &json!({ "delivery": { "disabled": false } })).await);
        for closed in [
            json!({ "state": "PAUSED", "description": "x" }), json!({ "delivery": { "url": "https://example.com/" } }),
            json!({ "callbackUrl": "https://example.com/" }), json!({ "handoffTargets": [] }),
        ] {
            key.patch("/agents/c", &closed).await.refused(403, "FORBIDDEN");
        }
        done(key.send(Method::POST, "/agents/c/delivery/test", &[], &Value::Null).await);
        let one = format!("/subscriptions/{}", tale.subscription);
        assert_eq!(done(key.patch(&one, &json!({ "enabled": true })).await)["enabled"], true);
        key.patch(&one, &json!({ "url": "https://example.com/" })).await.refused(403, "FORBIDDEN");
        let up = json!({ "addUSD": 1.5, "reason": "more work" });
        done(key.post(&format!("{}/budget", tale.open.task_path()), &up).await);
        done(key.post("/dead-letters/discard", &json!({ "filter": { "ids": [tale.dead.id()] }, "reason": "r", "dryRun": true })).await);
        let discarded = done(key.post(&format!("/dead-letters/{}/discard", tale.dead.id()), &because).await);
        assert_eq!(discarded["status"], "DISCARDED");
        let resolve = format!("/escalations/{}/resolve", tale.escalation);
        key.post(&resolve, &json!({ "action": "complete", "reason": "r" })).await.refused(403, "FORBIDDEN");
        let reassign = json!({ "action": "reassign", "agentId": "c", "reason": "b is away" });
        let resolved = done(key.post(&resolve, &reassign).await);
        assert_eq!(resolved["escalation"]["status"], "RESOLVED");
        let canceled = done(key.post(&format!("{}/cancel", tale.open.task_path()), &because).await);
        assert_eq!(canceled["status"], "CANCELED");
        done(key.post("/tasks/cancel", &json!({ "filter": { "ids": [tale.streamed.task()] }, "reason": "r" })).await);
        // The record says who it was, in a word that this version's verifier reads.
        let records = broker.trace(&tale.open).await["records"].clone();
        let last = records.as_array().unwrap().iter().find(|one| one["kind"] == "TASK_CANCELED").unwrap();
        assert_eq!(last["actor"]["role"], "operator-metadata", "{last}");
    }

    with [spoken::SETTINGS[0], spoken::SETTINGS[1]]
    async fn streams_doors_and_commands_say_no_word(broker: Broker) {
        let tale = story(broker).await;
        let key = broker.person("operator-metadata").await;
        for message in [&tale.completed, &tale.escalated] {
            let mut stream = key.request(Method::GET, &format!("{}/events", message.task_path())).send().await.unwrap();
            assert_eq!(stream.status(), 200);
            let mut text = String::new();
            while !["handoff.completed", "handoff.escalated"].iter().any(|end| text.contains(end)) {
                let piece = within("an event", stream.chunk()).await.unwrap().unwrap();
                text.push_str(&String::from_utf8_lossy(&piece));
            }
            assert!(!text.contains(WORD) && text.contains("agent.handoff.occurred"), "{text}");
        }
        let mcp = Mcp::of(&key);
        let tools = ["check_handoff", "get_handoff", "cancel_task", "get_trace", "list_dead_letters", "discard", "list_escalations", "resolve"];
        assert_eq!(mcp.tools().await, tools);
        for message in tale.messages() {
            let arguments = json!({ "handoffId": message.id(), "waitSeconds": 0 });
            let shown = mcp.tool("check_handoff", arguments).await.to_string();
            assert!(!shown.contains(WORD), "{shown}");
            for more in [json!({}), json!({ "include": "prompt" })] {
                let mut arguments = more;
                arguments["handoffId"] = message.id().into();
                let shown = mcp.tool("get_handoff", arguments).await.to_string();
                assert!(!shown.contains(WORD), "{shown}");
            }
            let shown = mcp.tool("get_trace", json!({ "taskId": message.task() })).await.to_string();
            assert!(!shown.contains(WORD), "{shown}");
        }
        for list in ["list_dead_letters", "list_escalations"] {
            let shown = mcp.tool(list, json!({})).await.to_string();
            assert!(!shown.contains(WORD), "{shown}");
        }
        // Doors of agents are closed.
        for (method, path) in [
            (Method::POST, "/a2a/b".to_owned()),
            (Method::GET, format!("/adapters/sw4rm/handoffs/{}", tale.completed.id())),
        ] {
            let answer = key.request(method, &path).json(&json!({})).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{path}");
            let text = answer.text().await.unwrap();
            assert!(text.contains("operator-metadata") && !text.contains(WORD), "{path}: {text}");
        }
        let mut settings = broker.settings.clone();
        settings.push(("HANDOFFD_URL".to_owned(), broker.admin.base.clone()));
        settings.push(("HANDOFFD_API_KEY".to_owned(), key.key.clone().unwrap()));
        let (task, id, dead) = (tale.completed.task(), tale.completed.id(), tale.dead.id());
        let commands: [&[&str]; 10] = [
            &["handoffs", "show", &id], &["handoffs", "list"], &["tasks", "show", &task], &["tasks", "list"], &["trace", &task],
            &["why", &task], &["attention", "list"], &["dead-letters", "show", &dead], &["events", "list"], &["escalations", "list"],
        ];
        for words in commands {
            for form in ["text", "json"] {
                let words = [&["--output", form], words].concat();
                let out = command(&settings, &words).await;
                let text = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
                assert!(!text.contains(WORD) && out.status.success(), "{words:?}: {text}");
            }
        }
    }
}
