//! `/data-subjects` and `/legal-holds`: access, erasure, holds.

use handoffd_evidence::commitment::{CommitmentSubject, commit, hash_text};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Caller, until};
use crate::message::Message;
use crate::receivers::printed;

/// A handoff with data of a person.
fn about(subject: &str, name: &str) -> Message {
    let subjects = json!([{ "subjectId": subject, "data": { "name": name } }]);
    Message::initial("a", "b").set("/personalDataPayload", json!({ "subjects": subjects }))
}

async fn sent(broker: &Broker, messages: &[Message]) -> (Agent, Agent) {
    let (a, b) = broker.pull_pair().await;
    for message in messages {
        a.submit(message).await.expect(202);
    }
    (a, b)
}

async fn erase(caller: &Caller, path: &str, body: Value) -> crate::harness::Answer {
    caller.send(Method::DELETE, path, &[], &body).await
}

both! {
    async fn an_erasure_takes_everything_and_leaves_a_certificate(broker: Broker) {
        let messages: Vec<_> = (0..5).map(|_| about("customer/7 ü", "Jana Novak")).collect();
        let (a, _) = sent(broker, &messages).await;
        a.submit(&about("customer-8", "Omar")).await.expect(202);
        let path = "/data-subjects/customer%2F7%20%C3%BC";
        let report = broker.admin.get(path).await.expect(200).body;
        assert_eq!(report["data"].as_array().unwrap().len(), 5);
        assert_eq!(report["count"], 5);
        let datum = &report["data"][0];
        assert_eq!(datum["held"]["data"]["name"], "Jana Novak");
        assert_eq!(datum["handoffId"], messages[0]["handoffId"]);
        assert_eq!(datum["deliveredTo"]["agentId"], "b");
        assert!(datum["record"]["recordHash"].as_str().unwrap().starts_with("sha256:"));

        let why = json!({ "reason": "ART_17", "requestedBy": "ticket 4711", "note": "by letter" });
        let done = erase(&broker.admin, path, why).await.expect(200).body;
        assert_eq!((&done["status"], &done["erased"]["personalData"]), (&json!("COMPLETED"), &json!(5)));
        assert!(done["receipt"]["recordHash"].as_str().unwrap().starts_with("sha256:"), "{done}");
        let salt = hex::decode(done["subjectSalt"].as_str().unwrap()).unwrap();
        let named = hash_text(&commit(CommitmentSubject::DataSubject, &salt, "customer/7 ü".as_bytes()));
        assert_eq!(done["subjectCommitment"], named, "who has the id can check whom it was about");

        // Finding E4 of 0.3.0: a certificate with other counts passed.
        let mut certificate = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut certificate, done.to_string().as_bytes()).unwrap();
        let judge = [&["verify", certificate.path().to_str().unwrap()][..]].concat();
        let said = broker.command(&judge).await;
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        let mut forged = done.clone();
        forged["erased"]["personalData"] = json!(50);
        std::fs::write(certificate.path(), forged.to_string()).unwrap();
        let said = broker.command(&judge).await;
        assert_eq!(said.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&said.stdout).contains("/erased/personalData"), "{said:?}");

        let after = broker.admin.get(path).await.expect(200).body;
        assert_eq!((&after["data"], &after["erasures"][0]["status"]), (&json!([]), &json!("COMPLETED")));
        let other = broker.admin.get("/data-subjects/customer-8").await.expect(200).body;
        assert_eq!(other["count"], 1);
        let id = done["erasureId"].as_str().unwrap();
        let again = broker.admin.get(&format!("{path}/erasures/{id}")).await.expect(200).body;
        assert_eq!(again, done);
        broker.admin.get(&format!("/data-subjects/customer-8/erasures/{id}")).await.refused(404, "NOT_FOUND");
        let repeated = erase(&broker.admin, path, json!({})).await.expect(200);
        assert_eq!(repeated.header("idempotency-replayed"), "true");
        assert_eq!(repeated.body, done);

        // A replay of an erased handoff is recognised by its id alone.
        let replayed = a.submit(&messages[0]).await.expect(202);
        assert_eq!(replayed.header("idempotency-replayed"), "true");
        let verified = broker.command(&["verify"]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
        let records = String::from_utf8_lossy(&verified.stdout).into_owned();
        assert!(records.contains("(5 erased)"), "{records}");
        assert!(broker.metric("handoff_personal_data_erased_total").await >= 5);

        // The list of all has the record that certifies it, and no person.
        erase(&broker.admin, "/data-subjects/customer-8?scope=messages", json!({})).await.expect(200);
        let listed = broker.admin.pages("/erasures", 1, "erasureId").await;
        assert_eq!(listed.len(), 2, "{listed:?}");
        let item = &listed[1];
        for member in ["erasureId", "status", "scope", "reason", "subjectCommitment", "held", "erased", "requestedAt", "erasedAt"] {
            assert_eq!(item[member], done[member], "{member}");
        }
        assert_eq!(item["leafIndex"], done["receipt"]["leafIndex"]);
        assert!(item["subjectId"].is_null() && item["subjectSalt"].is_null() && item["record"].is_null(), "{item}");
        a.api.get("/erasures").await.refused(403, "FORBIDDEN");
        let table = printed(broker, &["erasures", "list"]).await;
        assert!(table.contains("PERSONAL DATA") && table.contains(id) && !table.contains("customer-"), "{table}");
        let listed = printed(broker, &["--output", "json", "erasures", "list", "--limit", "1"]).await;
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    }

    async fn a_receiver_entitled_gets_what_is_left(broker: Broker) {
        let two = json!({ "subjects": [
            { "subjectId": "jana", "data": { "name": "Jana" } },
            { "subjectId": "omar", "data": { "name": "Omar" } },
        ] });
        let message = Message::initial("a", "b").set("/personalDataPayload", two);
        let (_, b) = sent(broker, std::slice::from_ref(&message)).await;
        broker.admin.patch("/agents/b", &json!({ "permissions": ["personal-data:read"] })).await.expect(200);
        erase(&broker.admin, "/data-subjects/jana", json!({})).await.expect(200);
        let items = b.claim(1).await;
        let got = &items[0]["message"]["personalDataPayload"]["subjects"];
        assert_eq!(got, &json!([{ "subjectId": "omar", "data": { "name": "Omar" } }]));
    }

    async fn whole_messages_go_where_that_is_asked(broker: Broker) {
        let message = about("jana", "Jana Novak").set("/checkpoint", json!({ "step": "for Jana" }));
        let (_, b) = sent(broker, std::slice::from_ref(&message)).await;
        let token = b.claim_one().await;
        b.say(&message, "reject", token, json!({ "reason": "NO", "details": "Jana again" })).await.expect(200);
        let done = erase(&broker.admin, "/data-subjects/jana?scope=messages", json!({})).await.expect(200).body;
        assert_eq!(done["erased"], json!({ "personalData": 1, "contents": 2, "checkpoints": 1 }));
        let found = broker.admin.get(&format!("{}?include=message", message.path())).await.expect(200);
        assert!(found.body["message"].is_null(), "{}", found.text);
        let task = broker.task(&message).await;
        assert_eq!(task["checkpointState"], json!({ "$erased": true }), "{task}");
        let trace = broker.trace(&message).await;
        assert!(!trace.to_string().contains("Jana") && trace["verification"]["ok"] == true);
    }

    // Finding E6 of 0.3.0: the person stayed in the output, in later hops and in other executions' checkpoints.
    async fn whole_messages_are_those_of_the_whole_task(broker: Broker) {
        let message = about("jana", "Jana Novak").set("/checkpoint", json!({ "step": "for Jana" }));
        let (_, b) = sent(broker, std::slice::from_ref(&message)).await;
        let c = broker.pull("c", &[]).await;
        broker.admin.patch("/agents/b", &json!({ "handoffTargets": ["c"] })).await.expect(200);
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        // Of another execution than any handoff of the task names.
        let run = format!("{}/checkpoints/{}", message.task_path(), handoffd::clock::random_id());
        b.api.put(&run, &json!({ "who": "Jana" })).await;
        let later = message.next("b", "c").set("/conversationHistorySummary", json!("Jana asked again"));
        b.submit(&later).await.expect(202);
        let token = c.claim_one().await;
        c.say(&later, "complete", token, json!({ "result": { "text": "Jana gets it" } })).await.expect(200);
        c.api.post(&format!("{}/complete", later.task_path()), &json!({ "output": { "to": "Jana" } })).await.expect(200);
        // First the narrow erasure, as by a person who learns later that agents wrote about her.
        erase(&broker.admin, "/data-subjects/jana", json!({})).await.expect(200);
        assert!(broker.trace(&message).await.to_string().contains("Jana"));
        let done = erase(&broker.admin, "/data-subjects/jana?scope=messages", json!({})).await.expect(200).body;
        assert_eq!((&done["status"], &done["scope"]), (&json!("COMPLETED"), &json!("messages")), "{done}");
        let trace = broker.trace(&message).await;
        assert!(!trace.to_string().contains("Jana"), "{trace}");
        assert_eq!(trace["verification"]["ok"], true, "{trace}");
        let task = broker.admin.get(&later.task_path()).await.expect(200);
        assert!(!task.text.contains("Jana"), "{}", task.text);
        let saved = broker.admin.get(&format!("{}/checkpoints", message.task_path())).await.expect(200);
        assert!(!saved.text.contains("Jana"), "{}", saved.text);
        let found = broker.admin.get(&format!("{}?include=message", later.path())).await.expect(200);
        assert!(!found.text.contains("Jana"), "{}", found.text);
        let again = erase(&broker.admin, "/data-subjects/jana?scope=messages", json!({})).await.expect(200);
        assert_eq!(again.header("idempotency-replayed"), "true");
        let verified = broker.command(&["verify"]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }

    async fn a_hold_forbids_and_says_why(broker: Broker) {
        let message = about("jana", "Jana");
        sent(broker, std::slice::from_ref(&message)).await;
        let operator = broker.person("operator").await;
        let on_her = json!({ "subjectId": "jana", "reason": "case 12/2026" });
        operator.put("/legal-holds/case-12", &on_her).await.expect(201);
        operator.put("/legal-holds/case-12", &on_her).await.expect(200);
        let refused = erase(&operator, "/data-subjects/jana", json!({})).await.refused(409, "CONFLICT");
        assert!(refused.text.contains("case-12") && refused.text.contains("case 12/2026"));
        let report = operator.get("/data-subjects/jana").await.expect(200).body;
        assert_eq!(report["holds"][0]["holdId"], "case-12");
        let released = erase(&operator, "/legal-holds/case-12", json!({ "reason": "settled" })).await.expect(200).body;
        assert!(released["releasedAt"].is_string() && released["subjectId"].is_null());
        let on_task = json!({ "taskId": message["taskId"], "reason": "audit" });
        operator.put("/legal-holds/task-1", &on_task).await.expect(201);
        erase(&operator, "/data-subjects/jana", json!({})).await.refused(409, "CONFLICT");
        erase(&operator, "/legal-holds/task-1", json!({})).await.expect(200);
        erase(&operator, "/data-subjects/jana", json!({})).await.expect(200);
        let all = operator.get("/legal-holds?limit=1").await.expect(200).body;
        // Opaque; the id itself is what versions up to 0.3.0 gave out (finding O10).
        let next = all["nextCursor"].as_str().unwrap();
        assert!(all["items"][0]["holdId"] == "case-12" && !next.contains("case-12"));
        let former = operator.get("/legal-holds?limit=1&cursor=case-12").await.expect(200).body;
        let rest = operator.get(&format!("/legal-holds?limit=1&cursor={next}")).await.expect(200).body;
        assert_eq!(rest, former);
        assert_eq!(rest["items"][0]["holdId"], "task-1");
        operator.get("/legal-holds?subjectId=").await.refused(400, "INVALID_REQUEST");
        assert!(rest["nextCursor"].is_null());
    }

    async fn a_hold_on_what_is_not_there_says_so_and_holds_what_comes(broker: Broker) {
        let message = about("jana", "Jana");
        let operator = broker.person("operator").await;
        let on_task = json!({ "taskId": message["taskId"], "reason": "audit" });
        let on_her = json!({ "subjectId": "jana", "reason": "audit" });
        for (hold, body, pointer) in [("t", &on_task, "/taskId"), ("s", &on_her, "/subjectId")] {
            let path = format!("/legal-holds/{hold}");
            let placed = operator.put(&path, body).await.expect(201).body;
            assert_eq!(placed["warnings"].as_array().unwrap().len(), 1, "{placed}");
            assert_eq!(placed["warnings"][0]["code"], "NOTHING_HELD");
            assert_eq!(placed["warnings"][0]["pointer"], pointer);
            assert!(operator.get(&path).await.expect(200).body.get("warnings").is_none());
        }
        sent(broker, std::slice::from_ref(&message)).await;
        for (hold, body) in [("t", &on_task), ("s", &on_her)] {
            let path = format!("/legal-holds/{hold}");
            let again = operator.put(&path, body).await.expect(200).body;
            assert!(again.get("warnings").is_none(), "{again}");
            erase(&operator, "/data-subjects/jana", json!({})).await.refused(409, "CONFLICT");
            erase(&operator, &path, json!({})).await.expect(200);
        }
        erase(&operator, "/data-subjects/jana", json!({})).await.expect(200);
    }

    async fn who_may_do_what(broker: Broker) {
        let (a, _) = sent(broker, &[about("jana", "Jana")]).await;
        let auditor = broker.person("auditor").await;
        auditor.get("/data-subjects/jana").await.expect(200);
        erase(&auditor, "/data-subjects/jana", json!({})).await.refused(403, "FORBIDDEN");
        auditor.put("/legal-holds/x", &json!({ "subjectId": "jana", "reason": "r" })).await.refused(403, "FORBIDDEN");
        a.api.get("/data-subjects/jana").await.refused(403, "FORBIDDEN");
        erase(&a.api, "/data-subjects/jana", json!({})).await.refused(403, "FORBIDDEN");
        a.api.get("/legal-holds").await.refused(403, "FORBIDDEN");
        broker.admin.get("/data-subjects/nobody").await.refused(404, "NOT_FOUND");
        erase(&broker.admin, "/data-subjects/nobody", json!({})).await.refused(404, "NOT_FOUND");
        for (path, body) in [
            ("/data-subjects/jana", json!({ "reason": "not a code" })),
            ("/data-subjects/jana", json!({ "note": "x".repeat(2001) })),
            ("/data-subjects/jana", json!({ "unknown": 1 })),
        ] {
            erase(&broker.admin, path, body).await.refused(422, "SCHEMA_INVALID");
        }
        for body in [
            json!({ "reason": "r" }),
            json!({ "subjectId": "jana", "taskId": "7a000000-0000-4000-8000-000000000001", "reason": "r" }),
            json!({ "subjectId": "jana", "reason": " " }),
        ] {
            broker.admin.put("/legal-holds/x", &body).await.refused(422, "SCHEMA_INVALID");
        }
        broker.admin.put("/legal-holds/a%20b", &json!({ "subjectId": "j", "reason": "r" })).await.refused(400, "INVALID_REQUEST");
        broker.admin.get("/legal-holds/none").await.refused(404, "NOT_FOUND");
        erase(&broker.admin, "/data-subjects/jana?scope=everything", json!({})).await.refused(400, "INVALID_REQUEST");
    }

    async fn a_marked_value_is_kept_apart_and_goes_with_its_subject(broker: Broker) {
        let message = Message::initial("a", "b")
            .set("/currentState", json!({ "customer": { "email": "jana@example.org", "tier": 2 } }))
            .set("/checkpoint", json!({ "note": "ask Jana" }))
            .set("/personalDataPayload", json!({
                "subjects": [{ "subjectId": "omar", "data": { "x": 1 } }],
                "pointers": [
                    { "subjectId": "jana", "pointer": "/currentState/customer/email" },
                    { "subjectId": "jana", "pointer": "/checkpoint/note" },
                ],
            }));
        let second = message.again();
        let (_, b) = sent(broker, &[message.clone(), second.clone()]).await;
        let marker = |n: u32| json!({ "$personal": { "ordinal": n } });
        let cut = b.claim(1).await[0]["message"].clone();
        assert_eq!(cut["currentState"]["customer"], json!({ "email": marker(1), "tier": 2 }));
        let token = broker.admin.get(&message.path()).await.expect(200).body["fencingToken"].as_i64().unwrap();
        b.say(&message, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        assert_eq!(broker.task(&message).await["checkpointState"], json!({ "note": marker(2) }));
        let seen = broker.admin.get(&format!("{}?include=message", message.path())).await.expect(200);
        assert!(!seen.text.contains("jana@example.org"), "{}", seen.text);

        broker.admin.patch("/agents/b", &json!({ "permissions": ["personal-data:read"] })).await.expect(200);
        let whole = b.claim(1).await[0]["message"].clone();
        assert_eq!(whole["currentState"], second["currentState"]);
        let payload = &whole["personalDataPayload"];
        assert_eq!(payload["pointers"], json!([{ "subjectId": "jana", "pointer": "/currentState/customer/email" }]));
        assert_eq!(payload["subjects"], second["personalDataPayload"]["subjects"]);

        let report = broker.admin.get("/data-subjects/jana").await.expect(200).body;
        assert_eq!(report["count"], 4);
        assert_eq!(report["data"][0]["held"]["value"], "jana@example.org");
        let done = erase(&broker.admin, "/data-subjects/jana", json!({})).await.expect(200).body;
        assert_eq!(done["erased"]["personalData"], 4);
        assert_eq!(broker.admin.get("/data-subjects/omar").await.expect(200).body["count"], 2);
    }

    async fn a_mark_that_leads_nowhere_is_refused(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        for pointer in ["/taskId", "/currentState/none", "/checkpoint"] {
            let marks = json!([{ "subjectId": "jana", "pointer": pointer }]);
            let message = Message::initial("a", "b").set("/personalDataPayload", json!({ "pointers": marks }));
            let refused = a.submit(&message).await.refused(422, "SCHEMA_INVALID");
            assert_eq!(refused.pointers(), ["/personalDataPayload/pointers/0/pointer"], "{pointer}");
        }
        let nothing = Message::initial("a", "b").set("/personalDataPayload", json!({}));
        a.submit(&nothing).await.refused(422, "SCHEMA_INVALID");
    }

    with [("HANDOFFD_REDACTION__POINTERS", "/**/ssn, /result/card")]
    async fn what_a_policy_names_is_never_kept(broker: Broker) {
        let gone = json!("[REDACTED:policy]");
        let message = Message::initial("a", "b")
            .set("/currentState", json!({ "people": [{ "ssn": "123-45-6789", "n": 1 }] }))
            .set("/personalDataPayload", json!({ "subjects": [{ "subjectId": "jana", "data": { "ssn": "123-45-6789" } }] }));
        let (a, b) = sent(broker, std::slice::from_ref(&message)).await;
        let items = b.claim(1).await;
        assert_eq!(items[0]["message"]["currentState"]["people"], json!([{ "ssn": gone, "n": 1 }]));
        let token = items[0]["fencingToken"].as_i64().unwrap();
        b.say(&message, "accept", token, json!({})).await.expect(200);
        let token = broker.admin.get(&message.path()).await.expect(200).body["fencingToken"].as_i64().unwrap();
        b.say(&message, "complete", token, json!({ "result": { "card": "no. 4111", "ssn": "123-45-6789" } })).await.expect(200);
        let run = message["fromAgent"]["executionId"].as_str().unwrap();
        let path = format!("{}/checkpoints/{run}", message.task_path());
        let found = broker.admin.get(&path).await.expect(200);
        assert_eq!(found.body["state"]["currentState"]["people"][0]["ssn"], gone);
        let trace = broker.trace(&message).await.to_string();
        // Not four digits alone, which a hash may hold.
        assert!(trace.contains("[REDACTED:policy]") && !trace.contains("123-45-6789") && !trace.contains("no. 4111"));
        let report = broker.admin.get("/data-subjects/jana").await.expect(200).body;
        assert_eq!(report["data"][0]["held"]["data"]["ssn"], gone);
        // The same submission is a replay; one that differs in a redacted value only is one too.
        let replay = a.submit(&message.set("/currentState/people/0/ssn", json!("9"))).await.expect(202);
        assert_eq!(replay.header("idempotency-replayed"), "true");
    }

    with [("HANDOFFD_ERASURE__PAGE", "2")]
    async fn a_long_one_can_be_watched(broker: Broker) {
        let messages: Vec<_> = (0..9).map(|_| about("jana", "Jana")).collect();
        sent(broker, &messages).await;
        let answer = broker.admin.send(Method::DELETE, "/data-subjects/jana", &[("Prefer", "wait=0")], &json!({})).await.expect(202);
        let place = answer.header("location").to_owned();
        let done = until("the erasure's end", async || {
            let now = broker.admin.get(&place).await.expect(200).body;
            if now["status"] == "COMPLETED" { Ok(now) } else { Err(now.to_string()) }
        })
        .await;
        assert_eq!((&done["held"], &done["erased"]["personalData"]), (&json!(9), &json!(9)));
    }
}
