//! Finding 4.7: what is past its time goes for good, and everything says so.

use handoffd_evidence::bundle::{VerifyOptions, verify};
use reqwest::Method;
use serde_json::{Value, json};

use crate::archive::past_the_broker;
use crate::harness::{Agent, Broker};
use crate::message::Message;

const SECRET: &str = "planted-in-the-message";

/// A handoff about a person, with a checkpoint, that its receiver completes; or rejects in plain words.
async fn ended(a: &Agent, b: &Agent, subject: &str, verb: &str) -> Message {
    let subjects = json!([{ "subjectId": subject, "data": { "name": SECRET } }]);
    let message = Message::review("a", "b")
        .set("/personalDataPayload", json!({ "subjects": subjects }))
        .set("/currentState/notes", json!(SECRET))
        .set("/checkpoint", json!({ "step": SECRET }));
    a.submit(&message).await.expect(202);
    let token = b.claim_one().await;
    let said = match verb {
        "complete" => json!({ "result": { "finding": SECRET } }),
        _ => json!({ "reason": format!("no, {SECRET}") }),
    };
    b.say(&message, verb, token, said).await.expect(200);
    message
}

async fn purge(broker: &Broker, more: &[&str]) -> Value {
    let all = ["--output", "json", "purge", "--before", "2999-01-01T00:00:00Z"];
    let done = broker.command(&[&all, more].concat()).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    said["tenants"][0]["taken"].clone()
}

async fn archive(broker: &Broker) {
    let done = broker.command(&["archive", "--before", "2999-01-01T00:00:00Z"]).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn release(broker: &Broker, hold: &str) {
    let path = format!("/legal-holds/{hold}");
    broker.admin.send(Method::DELETE, &path, &[], &json!({})).await.expect(200);
}

both! {
    async fn f4_7_what_is_past_its_time_goes_and_everything_says_so(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let cold = ended(&a, &b, "jana", "complete").await;
        archive(broker).await;
        let hot = ended(&a, &b, "omar", "reject").await;
        let open = Message::review("a", "b").set("/currentState/notes", json!(SECRET));
        a.submit(&open).await.expect(202);
        let size = broker.log_size().await;

        let planned = purge(broker, &["--dry-run"]).await;
        assert_eq!(broker.log_size().await, size, "a dry run writes nothing");
        let taken = purge(broker, &[]).await;
        for name in ["contents", "personalData", "checkpoints", "held"] {
            assert_eq!(taken[name], planned[name], "{name}: {taken}");
        }
        assert_eq!((&taken["contents"], &taken["personalData"]), (&json!(4), &json!(2)));
        assert_eq!((&taken["checkpoints"], &taken["held"]), (&json!(2), &json!(1)));
        assert_eq!(taken["forgotten"], 2, "the archive is rid of it too: {taken}");
        assert_eq!(broker.log_size().await, size + 1, "one page, one record that lists it");

        for gone in [&cold, &hot] {
            let trace = broker.trace(gone).await;
            assert!(!trace.to_string().contains(SECRET), "{trace}");
            assert_eq!(trace["verification"]["ok"], true, "{trace}");
            assert_eq!(trace["verification"]["purged"], 2, "{trace}");
            assert_eq!(trace["handoffs"][0]["messageGone"], "retention");
            let blame = format!("{}/blame?pointer=/currentState/notes", gone.task_path());
            let blame = broker.admin.get(&blame).await.expect(200).body;
            assert_eq!(blame["messageGone"], "retention", "{blame}");
            assert!(blame["certain"] == false && blame["value"].is_null(), "{blame}");
            let prompt = broker.admin.get(&format!("{}/prompt", gone.path())).await;
            assert!(prompt.refused(404, "NOT_FOUND").text.contains("past its time"));
            let kept = broker.admin.get(&format!("{}?include=message", gone.path())).await.expect(200);
            assert!(kept.body["message"].is_null() && !kept.text.contains(SECRET), "{}", kept.text);
            let replayed = a.submit(gone).await.expect(202);
            assert_eq!(replayed.header("idempotency-replayed"), "true");
            // The bundle verifies offline: the record that lists the gaps is in it.
            let path = format!("{}/trace?format=bundle&includePersonal=true", gone.task_path());
            let bundle = broker.admin.request(Method::GET, &path).send().await.unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), bundle.bytes().await.unwrap()).unwrap();
            let judged = verify(file.path(), &VerifyOptions::default()).unwrap();
            assert!(judged.first_fault.is_none(), "{judged:?}");
            assert_eq!(judged.erased, 3, "message, verdict, datum");
        }
        let page = broker.task(&hot).await;
        assert_eq!(page["checkpointState"], json!({ "$erased": true }), "{page}");
        let verified = broker.command(&["verify"]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));

        // The open one is delivered whole, and goes once it has ended.
        let items = b.claim(1).await;
        assert_eq!(items[0]["message"]["currentState"]["notes"], SECRET);
        let token = items[0]["fencingToken"].as_i64().unwrap();
        b.say(&open, "complete", token, json!({ "result": {} })).await.expect(200);
        assert_eq!(purge(broker, &[]).await["held"], 0);
        assert_eq!(broker.trace(&open).await["verification"]["purged"], 2);
        assert_eq!(purge(broker, &[]).await["contents"], 0, "nothing goes twice");
    }

    async fn f4_7_a_legal_hold_wins_until_it_is_released(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let of_task = ended(&a, &b, "jana", "complete").await;
        let of_person = ended(&a, &b, "omar", "complete").await;
        let free = ended(&a, &b, "lena", "complete").await;
        let on_task = json!({ "taskId": of_task["taskId"], "reason": "audit" });
        broker.admin.put("/legal-holds/on-task", &on_task).await.expect(201);
        let on_person = json!({ "subjectId": "omar", "reason": "case 12" });
        broker.admin.put("/legal-holds/on-person", &on_person).await.expect(201);
        let taken = purge(broker, &[]).await;
        assert_eq!((&taken["contents"], &taken["personalData"]), (&json!(2), &json!(1)), "{taken}");
        assert_eq!(broker.trace(&free).await["verification"]["purged"], 2);
        for held in [&of_task, &of_person] {
            let trace = broker.trace(held).await;
            assert!(trace.to_string().contains(SECRET) && trace["verification"]["erased"] == 0, "{trace}");
        }
        release(broker, "on-task").await;
        assert_eq!(purge(broker, &[]).await["contents"], 2);
        release(broker, "on-person").await;
        assert_eq!(purge(broker, &[]).await["contents"], 2);
        assert_eq!(broker.trace(&of_person).await["verification"]["purged"], 2);
    }

    async fn f4_7_what_is_gone_without_a_record_is_tampering(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        ended(&a, &b, "jana", "complete").await;
        let early = broker.command(&["--output", "json", "purge", "--before", "2001-01-01T00:00:00Z"]).await;
        assert!(early.status.success() && String::from_utf8_lossy(&early.stdout).contains("\"contents\":0"));
        let off = broker.command(&["purge"]).await;
        assert_eq!(off.status.code(), Some(2), "no time is said, and the setting is off");
        let take = "CREATE TABLE aside AS SELECT content_id, salt, bytes FROM contents \
                      WHERE content_id IN (SELECT content_id FROM handoffs); \
                    UPDATE contents SET salt = NULL, bytes = NULL, purged_at = 1 \
                      WHERE content_id IN (SELECT content_id FROM aside)";
        past_the_broker(broker, take).await;
        let said = broker.command(&["--output", "json", "verify"]).await;
        assert_eq!(said.status.code(), Some(1));
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(said["logs"][0]["report"]["firstFault"]["fault"], "content-gone", "{said}");
        assert_eq!(purge(broker, &[]).await["contents"], 1, "the verdict; what was taken is not listed");
        let said = broker.command(&["verify"]).await;
        assert_eq!(said.status.code(), Some(1), "and stays tampering");
        // Put back, for the verifier that ends each case; the record of the purge does not list it.
        let back = "UPDATE contents SET purged_at = NULL, \
                      salt = (SELECT a.salt FROM aside AS a WHERE a.content_id = contents.content_id), \
                      bytes = (SELECT a.bytes FROM aside AS a WHERE a.content_id = contents.content_id) \
                    WHERE content_id IN (SELECT content_id FROM aside)";
        past_the_broker(broker, back).await;
    }
}
