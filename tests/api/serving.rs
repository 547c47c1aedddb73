//! A broker that serves under a role which can add to the log and not change it.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;

use crate::harness::{Broker, Caller, Kind, command, run, within};
use crate::message::Message;
use crate::receiver::accepted;

/// Everything that a broker does with its database: it starts, delivers by webhook and inbox, rolls back,
/// archives, erases, is asked, stops and starts again.
pub async fn lives_a_life(broker: &Broker) {
    let (a, b, receiver) = broker.pair(vec![accepted()]).await;
    let delivered = Message::initial("a", "b");
    a.submit(&delivered).await.expect(202);
    let token = receiver.next().await.token();
    broker.handoff_becomes(&delivered, "ACCEPTED").await;
    b.say(&delivered, "complete", token, json!({ "result": { "finding": "well ".repeat(60) } }))
        .await
        .expect(200);

    let c = broker.pull("c", &[]).await;
    broker.admin.patch("/agents/a", &json!({ "handoffTargets": ["b", "c"] })).await.expect(200);
    let subjects = json!([{ "subjectId": "jana", "data": { "name": "Jana Novak" } }]);
    let about = Message::initial("a", "c")
        .set("/checkpoint", json!({ "step": 1 }))
        .set("/personalDataPayload", json!({ "subjects": subjects }));
    a.submit(&about).await.expect(202);
    let token = c.claim_one().await;
    c.say(&about, "reject", token, json!({ "reason": "MISSING_CLAUSE_TEXT" })).await.expect(200);
    let kinds = broker.kinds(&about).await;
    assert!(kinds.iter().any(|kind| kind == "ROLLED_BACK"), "{kinds:?}");

    let archived = ["--output", "json", "archive", "--before", "2999-01-01T00:00:00Z"];
    let done = broker.command(&archived).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(said["tenants"][0]["moved"]["contents"].as_u64().unwrap() > 0, "{said}");
    let erased = broker
        .admin
        .send(Method::DELETE, "/data-subjects/jana?scope=messages", &[], &json!({}))
        .await
        .expect(200)
        .body;
    assert_eq!(erased["status"], "COMPLETED", "{erased}");
    assert_eq!(erased["erased"]["personalData"], 1, "{erased}");

    let admin = broker.restart().await;
    admin.get(&delivered.path()).await.expect(200);
    let (other, running) = broker.second().await;
    let asker = Caller { base: other.base, ..a.api.clone() };
    let replayed = asker.submit_with(&delivered, &[]).await.expect(202);
    assert_eq!(replayed.header("idempotency-replayed"), "true");
    assert!(replayed.body["receipt"]["recordHash"].is_string(), "{}", replayed.text);
    within("an orderly stop", running.stop()).await;
    let verified = broker.command(&["verify"]).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_can_only_add_to_the_log_does_all_that_a_broker_does() {
    run(Kind::Serving, &[], lives_a_life).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_the_log_in_another_database_does_all_that_a_broker_does() {
    run(Kind::Apart, &[], async |broker| {
        lives_a_life(broker).await;
        // An operator who configures only the operations database is told that a setting is missing.
        let mut alone = broker.settings.clone();
        alone.retain(|(name, _)| name != "HANDOFFD_AUDIT__DATABASE_URL");
        let refused = command(&alone, &["verify"]).await;
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("audit.database_url"));
    })
    .await;
}

/// Readers of the log from outside: receipts, proofs, traces, events, blame, bundles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_evidence_of_a_log_apart_is_evidence() {
    run(Kind::Apart, &[], async |broker| {
        let (a, b) = broker.pull_pair().await;
        let message = Message::review("a", "b");
        let sent = a.submit(&message).await.expect(202);
        let leaf = sent.body["receipt"]["leafIndex"].as_i64().unwrap();
        let token = b.claim_one().await;
        let result = json!({ "result": { "finding": "well" } });
        b.say(&message, "complete", token, result).await.expect(200);
        let (admin, task) = (&broker.admin, message["taskId"].as_str().unwrap());
        let proof = format!("/audit/proofs/inclusion?handoffId={}", message.id());
        assert_eq!(admin.get(&proof).await.expect(200).body["leafIndex"], leaf);
        admin.get("/audit/proofs/consistency?from=1").await.expect(200);
        admin.get("/audit/tree-head").await.expect(200);
        let records = admin.get("/audit/records?from=0&limit=100").await.expect(200).text;
        assert!(records.contains("COMPLETED"), "{records}");
        let trace = broker.trace(&message).await;
        assert_eq!(trace["handoffs"].as_array().unwrap().len(), 1);
        let blame = format!("{}/blame?pointer=/currentState", message.task_path());
        admin.get(&blame).await.expect(200);
        let events = admin.get(&format!("/events?taskId={task}")).await.expect(200);
        assert!(events.text.contains("handoff.completed"), "{}", events.text);
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("task.zip");
        let bundle = bundle.to_str().unwrap();
        let exported = broker.command(&["export", "--task", task, "--file", bundle]).await;
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        let verified = broker.command(&["verify", bundle]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_may_do_does_not_reach_the_log() {
    run(Kind::Serving, &[], async |broker| {
        broker.pair(vec![]).await;
        let (_, url) =
            broker.settings.iter().find(|(name, _)| name == "HANDOFFD_DATABASE_URL").unwrap();
        let mut taken_over = sqlx::PgConnection::connect(url).await.unwrap();
        for sql in [
            "UPDATE audit.records SET body = ''",
            "DELETE FROM audit.records",
            "TRUNCATE audit.records",
            "ALTER TABLE audit.records DISABLE TRIGGER ALL",
        ] {
            let err = sqlx::raw_sql(sql).execute(&mut taken_over).await.expect_err(sql);
            assert_eq!(err.as_database_error().unwrap().code().as_deref(), Some("42501"), "{err}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_are_for_postgres() {
    run(Kind::Sqlite, &[], async |broker| {
        let said = broker.command(&["migrate", "--serving-role", "handoffd_serving"]).await;
        assert_eq!(said.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&said.stderr).contains("SQLite has no roles"));
    })
    .await;
}
