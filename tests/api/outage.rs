//! A Postgres server that goes away and comes back, and two brokers that share one. SQLite has no
//! server to lose and takes one broker.

use serde_json::json;
use sqlx::Connection;

use crate::databases::on_server;
use crate::harness::{Broker, Kind, run, until};
use crate::message::Message;

const SETTINGS: crate::harness::Settings<'static> =
    &[("HANDOFFD_DATABASE__ACQUIRE_TIMEOUT_MS", "5000"), ("HANDOFFD_DELIVERY__POLL_MS", "200")];

async fn allow(broker: &Broker, yes: bool) {
    let name = broker.url.rsplit('/').next().unwrap();
    on_server(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {yes}")).await;
    if !yes {
        on_server(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_away_is_503_and_the_broker_recovers_by_itself() {
    run(Kind::Postgres, SETTINGS, away).await;
}

async fn away(broker: &Broker) {
    broker.expect_unavailable();
    let (a, b, receiver) = broker.pair(vec![]).await;
    let before = Message::initial("a", "b");
    a.submit_and_wait(&before).await.expect(200);
    allow(broker, false).await;
    let mut lost = Vec::new();
    for _ in 0..4 {
        let message = Message::initial("a", "b");
        let answer = a.submit(&message).await.refused(503, "UNAVAILABLE");
        assert!(!answer.text.to_lowercase().contains("postgres"), "{}", answer.text);
        lost.push(message);
    }
    broker.admin.get("/readyz").await.refused(503, "UNAVAILABLE");
    broker.caller(None).get("/livez").await.expect(200);
    broker.admin.get("/handoffs").await.refused(503, "UNAVAILABLE");
    let token = receiver.next().await.token();
    b.say(&before, "complete", token, json!({})).await.refused(503, "UNAVAILABLE");
    let metrics = broker.admin.metrics().await;
    // The API's listener asks the store whose key it is, unless the key is still remembered; `server.metrics_listen` needs none.
    let told = metrics.contains("handoff_store_up 0") || metrics.contains("UNAVAILABLE");
    assert!(told, "{metrics}");
    allow(broker, true).await;
    until("it takes handoffs again", async || {
        let answer = broker.admin.get("/readyz").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    for message in &lost {
        // Nothing half-written: the same handoff can be submitted as if for the first time.
        broker.admin.get(&message.path()).await.refused(404, "NOT_FOUND");
        broker.admin.get(&message.task_path()).await.refused(404, "NOT_FOUND");
        let answer = a.submit_and_wait(message).await.expect(200);
        assert_eq!(answer.header("idempotency-replayed"), "");
        assert_eq!(broker.kinds(message).await, ["HANDOFF", "ACCEPTED"]);
    }
    b.say(&before, "complete", token, json!({})).await.expect(200);
    assert_eq!(receiver.all().len(), 1 + lost.len(), "each was delivered once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_while_the_store_is_away_is_not_lost() {
    run(Kind::Postgres, SETTINGS, answered_meanwhile).await;
}

async fn answered_meanwhile(broker: &Broker) {
    broker.expect_unavailable();
    let (release, held) = tokio::sync::oneshot::channel::<()>();
    let held = std::sync::Arc::new(tokio::sync::Mutex::new(Some(held)));
    let receiver = broker
        .receiver(move |_| {
            let held = std::sync::Arc::clone(&held);
            async move {
                if let Some(held) = held.lock().await.take() {
                    let _ = held.await;
                }
                crate::receiver::accepted()
            }
        })
        .await;
    let a = broker.pull("a", &["b"]).await;
    broker.webhook("b", &[], &receiver).await;
    let message = Message::initial("a", "b");
    a.submit(&message).await.expect(202);
    receiver.next().await;
    allow(broker, false).await;
    release_and_wait(release).await;
    allow(broker, true).await;
    until("the acceptance is recorded", async || {
        let answer = broker.admin.get(&message.path()).await;
        if answer.body["status"] == "ACCEPTED" { Ok(()) } else { Err(answer.text) }
    })
    .await;
    assert_eq!(receiver.all().len(), 1);
}

/// Lets the receiver answer, and gives the broker the time to fail at recording it.
async fn release_and_wait(release: tokio::sync::oneshot::Sender<()>) {
    release.send(()).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(800)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_brokers_on_one_store_share_the_work_and_deliver_each_handoff_once() {
    run(Kind::Postgres, &[], two).await;
}

async fn two(broker: &Broker) {
    let (a, b, receiver) = broker.pair(vec![]).await;
    let (admin, second) = broker.second().await;
    let there = crate::harness::Caller { base: admin.base.clone(), ..a.api.clone() };
    let sent: Vec<Message> = (0..60).map(|_| Message::initial("a", "b")).collect();
    let answers =
        futures_util::future::join_all(sent.iter().enumerate().map(|(place, message)| {
            let caller = if place % 2 == 0 { &a.api } else { &there };
            caller.post("/handoffs", message)
        }))
        .await;
    for answer in answers {
        answer.expect(202);
    }
    for message in &sent {
        broker.handoff_becomes(message, "ACCEPTED").await;
    }
    // The same handoff at both at once is one handoff.
    let message = Message::initial("a", "b");
    let (here, other) = tokio::join!(
        a.api.submit_with(&message, &[("Prefer", "wait=20")]),
        there.submit_with(&message, &[("Prefer", "wait=20")])
    );
    assert_eq!((here.expect(200).body), other.expect(200).body);
    let mut got: Vec<String> =
        receiver.all().iter().map(crate::receiver::Delivery::handoff).collect();
    let count = got.len();
    got.sort();
    got.dedup();
    assert_eq!((count, got.len()), (61, 61));
    // A long poll at one broker finds what came in at the other.
    broker.admin.patch("/agents/b", &json!({ "delivery": { "mode": "pull" } })).await.expect(200);
    until("the other broker knows that b pulls", async || {
        let answer = there.get("/agents/b").await.expect(200);
        if answer.body["delivery"]["mode"] == "pull" { Ok(()) } else { Err(answer.text) }
    })
    .await;
    let waiting = tokio::spawn(async move { b.claim(1).await });
    let message = Message::initial("a", "b");
    there.post("/handoffs", &message).await.expect(202);
    assert_eq!(waiting.await.unwrap()[0]["handoffId"], message["handoffId"]);
    second.stop().await;
}

/// Runs a statement on the broker's database, past the broker.
async fn past(broker: &Broker, sqlite: &'static str, postgres: &'static str) {
    if broker.url.starts_with("sqlite:") {
        let mut raw = sqlx::SqliteConnection::connect(&broker.url).await.unwrap();
        sqlx::raw_sql(sqlite).execute(&mut raw).await.unwrap();
    } else {
        let mut raw = sqlx::PgConnection::connect(&broker.url).await.unwrap();
        sqlx::raw_sql(postgres).execute(&mut raw).await.unwrap();
    }
}

/// The log takes no record; how an operator ends that. First on SQLite, then on Postgres.
const RAISING: [[&str; 2]; 2] = [
    [
        "CREATE TRIGGER stop_it BEFORE INSERT ON audit_records BEGIN SELECT RAISE(ABORT, 'no more'); END",
        "CREATE FUNCTION stop_it() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''no more''; END'; \
         CREATE TRIGGER stop_it BEFORE INSERT ON audit.records FOR EACH ROW EXECUTE FUNCTION stop_it()",
    ],
    ["DROP TRIGGER stop_it", "DROP TRIGGER stop_it ON audit.records"],
];

/// Submissions are 503 with `Retry-After`, the broker is not ready and says so in its metrics, and all is well once the
/// database takes records again (findings O1 and O2 of 0.3.0).
async fn refuses_records(broker: &Broker, stop: [&'static str; 2], resume: [&'static str; 2]) {
    broker.expect_unavailable();
    let (a, _b) = broker.pull_pair().await;
    broker.admin.get("/readyz").await.expect(200);
    assert!(broker.admin.metrics().await.contains("handoff_store_up 1"));
    past(broker, stop[0], stop[1]).await;
    let message = Message::initial("a", "b");
    for _ in 0..2 {
        let answer = a.submit(&message).await.refused(503, "UNAVAILABLE");
        assert!(answer.header("retry-after").parse::<u32>().is_ok(), "{answer:?}");
        for inside in ["no more", "audit", "sqlstate", "42501"] {
            assert!(!answer.text.to_lowercase().contains(inside), "{}", answer.text);
        }
    }
    let answer = broker.admin.get("/readyz").await.refused(503, "UNAVAILABLE");
    assert!(answer.text.contains("takes no writes"), "{}", answer.text);
    assert!(broker.admin.metrics().await.contains("handoff_store_up 0"));
    assert!(broker.metric("handoff_store_write_failures_total").await >= 2);
    // Without a batch that fails it stays so, because the probe meets the same.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    broker.admin.get("/readyz").await.refused(503, "UNAVAILABLE");
    past(broker, resume[0], resume[1]).await;
    until("it is ready again", async || {
        let answer = broker.admin.get("/readyz").await;
        if answer.status == 200 { Ok(()) } else { Err(answer.text) }
    })
    .await;
    assert!(broker.admin.metrics().await.contains("handoff_store_up 1"));
    a.submit(&message).await.expect(202);
}

both! {
    async fn a_log_that_takes_no_records_is_503_and_not_ready(broker: Broker) {
        refuses_records(broker, RAISING[0], RAISING[1]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_right_on_the_log_is_503_and_not_ready() {
    run(Kind::Serving, &[], async |broker: &Broker| {
        // Of everyone but the owner: the case knows no role's name.
        let revoke = "DO $$ DECLARE who name; BEGIN FOR who IN SELECT DISTINCT grantee FROM \
            information_schema.role_table_grants WHERE table_schema = 'audit' AND grantee <> current_user LOOP \
            EXECUTE format('REVOKE INSERT ON audit.records FROM %I', who); END LOOP; END $$";
        let grant = "DO $$ DECLARE who name; BEGIN FOR who IN SELECT DISTINCT grantee FROM \
            information_schema.role_table_grants WHERE table_schema = 'audit' AND grantee <> current_user LOOP \
            EXECUTE format('GRANT INSERT ON audit.records TO %I', who); END LOOP; END $$";
        refuses_records(broker, ["", revoke], ["", grant]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_became_read_only_is_not_ready_without_a_submission() {
    run(Kind::Postgres, SETTINGS, async |broker: &Broker| {
        broker.expect_unavailable();
        let name = broker.url.rsplit('/').next().unwrap();
        on_server(format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
        on_server(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await;
        until("it is not ready", async || {
            let answer = broker.admin.get("/readyz").await;
            if answer.status == 503 { Ok(()) } else { Err(answer.text) }
        })
        .await;
        until("the metric says so", async || {
            let metrics = broker.admin.metrics().await;
            if metrics.contains("handoff_store_up 0") { Ok(()) } else { Err(metrics) }
        })
        .await;
        on_server(format!("ALTER DATABASE {name} RESET default_transaction_read_only")).await;
        on_server(format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await;
        until("it is ready again", async || {
            let answer = broker.admin.get("/readyz").await;
            if answer.status == 200 { Ok(()) } else { Err(answer.text) }
        })
        .await;
    })
    .await;
}

/// Finding O9 of 0.3.0: 503 without a cause, and a broker that said it was ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_under_a_live_broker_is_not_ready() {
    let case = async |broker: &Broker| {
        broker.expect_unavailable();
        let (a, _b) = broker.pull_pair().await;
        a.submit(&Message::initial("a", "b")).await.expect(202);
        let cut = "DROP TRIGGER audit_records_no_delete; \
            CREATE TABLE kept_records AS SELECT * FROM audit_records; \
            CREATE TABLE kept_heads AS SELECT * FROM audit_log_heads; \
            DELETE FROM audit_records WHERE leaf_index >= (SELECT max(leaf_index) FROM audit_records); \
            UPDATE audit_log_heads SET size = size - 1, frontier = NULL";
        past(broker, cut, "").await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.refused(503, "UNAVAILABLE");
        broker.admin.get("/readyz").await.refused(503, "UNAVAILABLE");
        assert!(broker.metric("handoff_store_write_failures_total").await >= 1);
        let whole = "INSERT INTO audit_records SELECT * FROM kept_records AS k WHERE NOT EXISTS \
              (SELECT 1 FROM audit_records AS r WHERE r.tenant = k.tenant AND r.leaf_index = k.leaf_index); \
            UPDATE audit_log_heads SET size = (SELECT k.size FROM kept_heads AS k WHERE k.tenant = audit_log_heads.tenant), \
              frontier = (SELECT k.frontier FROM kept_heads AS k WHERE k.tenant = audit_log_heads.tenant); \
            DROP TABLE kept_records; DROP TABLE kept_heads; \
            CREATE TRIGGER audit_records_no_delete BEFORE DELETE ON audit_records BEGIN \
              SELECT RAISE(ABORT, 'the audit log is append-only: DELETE refused'); END";
        past(broker, whole, "").await;
        a.submit(&message).await.expect(202);
        broker.admin.get("/readyz").await.expect(200);
    };
    run(Kind::Sqlite, &[], case).await;
}

/// Finding O9 of 0.3.0: such a database took some texts and answered 500 to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_utf_8_is_refused_at_the_start() {
    let name = format!("handoffd_api_{}", handoffd::clock::random_id().simple());
    on_server(format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"))
        .await;
    let mut url = crate::databases::server();
    url.set_path(&name);
    let options = handoffd::store::postgres::PostgresOptions::default();
    let refused = handoffd::store::postgres::PostgresStore::open(url.as_str(), options).await;
    let said = refused.map(drop).unwrap_err().to_string();
    on_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
    assert!(said.contains("LATIN1") && said.contains("UTF8"), "{said}");
}

/// Finding O3 of 0.3.0: of brokers whose clocks differ, one ended the others' work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_whose_clock_differs_from_the_others_ends_no_work() {
    const QUICK: crate::harness::Settings<'static> = &[
        ("HANDOFFD_DELIVERY__POLL_MS", "50"),
        ("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "10000"),
        ("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "300"),
        ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "300"),
    ];
    run(Kind::Postgres, QUICK, async |broker: &Broker| {
        let (a, b) = broker.pull_pair().await;
        // A broker an hour ahead, by its row alone.
        let other = "INSERT INTO brokers (broker, seen_at, clock_offset_us) VALUES ('other', 1, 3600000000)";
        past(broker, "", other).await;
        let url = broker.url.clone();
        let living = tokio::spawn(async move {
            let mut raw = sqlx::PgConnection::connect(&url).await.unwrap();
            loop {
                sqlx::raw_sql("UPDATE brokers SET seen_at = seen_at + 1 WHERE broker = 'other'")
                    .execute(&mut raw)
                    .await
                    .unwrap();
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        });
        until("it knows", async || {
            let metrics = broker.admin.metrics().await;
            if metrics.contains("handoff_clock_ahead_seconds{clock=\"brokers\"} -3") { Ok(()) } else { Err(metrics) }
        })
        .await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        assert_eq!(b.claim(1).await.len(), 1);
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert_eq!(broker.admin.get(&message.path()).await.expect(200).body["status"], "PENDING");
        past(broker, "", "UPDATE brokers SET clock_offset_us = 0 WHERE broker = 'other'").await;
        broker.handoff_becomes(&message, "EXPIRED").await;
        living.abort();
    })
    .await;
}
