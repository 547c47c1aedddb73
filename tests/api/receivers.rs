//! Receivers as brokers notice them: `GET /receivers`, `handoffd receivers`, and what of it needs attention.

use serde_json::{Value, json};

use crate::harness::{Broker, command, until};
use crate::message::Message;
use crate::receiver::{accepted, bare};

const POLL: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");
/// Five failures open a breaker; attempts follow each other at once.
const BASE: (&str, &str) = ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "10");
const CAP: (&str, &str) = ("HANDOFFD_DELIVERY__RETRY_CAP_MS", "20");

async fn show(broker: &Broker, agent: &str) -> Value {
    broker.admin.get(&format!("/receivers/{agent}")).await.expect(200).body
}

/// The receiver, once it is as wanted.
async fn becomes(broker: &Broker, agent: &str, is: impl Fn(&Value) -> bool) -> Value {
    until(agent, async || {
        let receiver = show(broker, agent).await;
        if is(&receiver) { Ok(receiver) } else { Err(receiver.to_string()) }
    })
    .await
}

async fn attention(broker: &Broker, kind: &str) -> Vec<Value> {
    let page = broker.admin.get(&format!("/attention?kind={kind}")).await.expect(200).body;
    page["items"].as_array().unwrap().clone()
}

/// The output of a command of an operator.
pub async fn printed(broker: &Broker, arguments: &[&str]) -> String {
    let mut settings = broker.settings.clone();
    settings.push(("HANDOFFD_URL".to_owned(), broker.admin.base.clone()));
    let done = command(&settings, arguments).await;
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

both! {
    with [POLL, BASE, CAP]
    async fn a_receiver_that_fails_is_shown_until_its_breaker_closes(broker: Broker) {
        let mut script: Vec<_> = (0..6).map(|_| bare(500)).collect();
        script.push(accepted());
        let (a, _, _receiver) = broker.pair(script).await;
        let before = show(broker, "b").await;
        assert_eq!((&before["breaker"], &before["breakers"]), (&json!("closed"), &json!([])));
        assert_eq!((&before["attempts"], &before["windows"]), (&json!(0), &json!([])));
        assert!(before.get("failureShare").is_none() && before.get("p50Ms").is_none(), "{before}");
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let open = becomes(broker, "b", |one| one["breaker"] != "closed" && one["failures"].as_i64() >= Some(5) && one["lastFailureAt"].is_string()).await;
        let [breaker] = open["breakers"].as_array().unwrap().as_slice() else { panic!("{open}") };
        assert_eq!(breaker["reason"], "DELIVERY_STATUS", "{open}");
        assert!(breaker["broker"].as_str().unwrap().starts_with("broker-"), "{open}");
        assert!(["open", "half_open"].contains(&breaker["state"].as_str().unwrap()), "{open}");
        assert_eq!((&open["lastFailure"], &open["delivery"]), (&json!("DELIVERY_STATUS"), &json!("webhook")));
        assert!(open["failures"].as_i64().unwrap() >= 5 && open["failureShare"] == json!(1.0), "{open}");
        assert!(open["lastFailureAt"].is_string() && open.get("lastPollAt").is_none(), "{open}");
        assert_eq!(open["open"], 1, "{open}");

        let items = attention(broker, "BREAKER_OPEN").await;
        // The probe may have closed it meanwhile.
        if let [item] = items.as_slice() {
            assert_eq!((&item["agentId"], &item["severity"]), (&json!("b"), &json!("warning")));
            assert!(item["sentence"].as_str().unwrap().starts_with("1 broker has sent b single probes alone for "), "{item}");
            assert_eq!(item["remedies"][0]["command"], "handoffd receivers show b");
        }

        broker.handoff_becomes(&message, "ACCEPTED").await;
        let well = becomes(broker, "b", |one| one["breaker"] == "closed" && one["attempts"] == json!(7) && one["lastSuccessAt"].is_string()).await;
        assert_eq!((&well["failures"], &well["timeouts"]), (&json!(6), &json!(0)), "{well}");
        assert!(well["lastSuccessAt"].is_string(), "{well}");
        assert_eq!(well["breakers"][0]["state"], "closed", "{well}");
        // One answer has a latency: the failures have none.
        assert!(well["p50Ms"].as_f64().unwrap() >= 1.0 && well["p50Ms"] == well["p95Ms"], "{well}");
        let windows = well["windows"].as_array().unwrap();
        let sum: i64 = windows.iter().map(|one| one["attempts"].as_i64().unwrap()).sum();
        assert_eq!((sum, &well["windowMs"]), (7, &json!(300_000)));
        assert_eq!(attention(broker, "BREAKER_OPEN").await, Vec::<Value>::new());
    }

    async fn a_receiver_that_pulls_is_shown_with_its_polls_and_verdicts(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let messages = [(); 3].map(|()| Message::initial("a", "b"));
        for message in &messages {
            a.submit(message).await.expect(202);
        }
        let waiting = show(broker, "b").await;
        assert_eq!((&waiting["waiting"], &waiting["open"]), (&json!(3), &json!(3)), "{waiting}");
        assert!(waiting["waitingSince"].is_string() && waiting.get("breaker").is_none(), "{waiting}");
        let claimed = b.claim(2).await;
        let token = |which: usize| claimed[which]["fencingToken"].as_i64().unwrap();
        b.say(&messages[0], "accept", token(0), json!({})).await.expect(200);
        b.say(&messages[1], "reject", token(1), json!({ "reason": "FULL" })).await.expect(200);
        // A repeated verdict counts once.
        b.say(&messages[0], "accept", token(0), json!({})).await.expect(200);
        // The broker writes attempts and times at moments of their own.
        let shown = becomes(broker, "b", |one| {
            let times = [&one["lastPollAt"], &one["lastSuccessAt"]];
            one["attempts"] == json!(2) && times.into_iter().all(Value::is_string)
        })
        .await;
        assert_eq!((&shown["failures"], &shown["delivery"]), (&json!(0), &json!("pull")), "{shown}");
        assert!(shown["p95Ms"].as_f64().unwrap() >= 1.0, "{shown}");
        assert_eq!(shown["waiting"], 1, "{shown}");
    }

    with [POLL, ("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "1")]
    async fn a_time_out_counts_with_its_duration(broker: Broker) {
        // It takes connections and answers none.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let a = broker.pull("a", &["b"]).await;
        let delivery = json!({ "mode": "webhook", "url": url, "timeoutMs": 1_000 });
        broker.agent(json!({ "agentId": "b", "delivery": delivery })).await;
        a.submit(&Message::initial("a", "b")).await.expect(202);
        // The broker writes attempts and reasons at moments of their own.
        let late = becomes(broker, "b", |one| one["timeouts"] == json!(1) && one["lastFailure"].is_string()).await;
        assert_eq!((&late["attempts"], &late["lastFailure"]), (&json!(1), &json!("DELIVERY_TIMEOUT")), "{late}");
        assert!(late["p95Ms"].as_f64().unwrap() > 800.0, "{late}");
    }

    async fn receivers_are_listed_by_id_page_by_page_to_those_who_may(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        for id in ["d", "c"] {
            broker.pull(id, &[]).await;
        }
        let listed = broker.admin.get("/receivers").await.expect(200).body;
        let ids: Vec<_> = listed["items"].as_array().unwrap().iter().map(|one| one["agentId"].as_str().unwrap()).collect();
        assert_eq!((ids, &listed["windowMs"]), (vec!["a", "b", "c", "d"], &json!(3_600_000)));
        let pages = broker.admin.pages("/receivers", 1, "agentId").await;
        assert_eq!(pages.len(), 4);
        for query in ["cursor=abc", "limit=0", "more=1"] {
            broker.admin.get(&format!("/receivers?{query}")).await.refused(400, "INVALID_REQUEST");
        }
        broker.admin.get("/receivers/stranger").await.refused(404, "NOT_FOUND");
        for path in ["/receivers", "/receivers/b"] {
            a.api.get(path).await.refused(403, "FORBIDDEN");
            for role in ["auditor", "operator"] {
                broker.person(role).await.get(path).await.expect(200);
            }
        }
        let table = printed(broker, &["receivers", "list"]).await;
        assert!(table.contains("LAST POLL") && table.contains("pull"), "{table}");
        let one = printed(broker, &["receivers", "show", "b"]).await;
        assert!(one.contains("agentId") && one.contains('b'), "{one}");
        let made = broker.command(&["key", "create", "--tenant", "other", "--role", "admin"]).await;
        let key = String::from_utf8(made.stdout).unwrap();
        let other = broker.caller(Some(key.trim())).get("/receivers").await.expect(200).body;
        assert_eq!(other["items"], json!([]), "another tenant's");
    }

    async fn a_running_task_without_an_open_handoff_and_a_question_wait(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let (done, open) = (Message::initial("a", "b"), Message::initial("a", "b"));
        a.submit(&done).await.expect(202);
        let token = b.claim_one().await;
        b.say(&done, "accept", token, json!({})).await.expect(200);
        b.say(&done, "complete", token, json!({})).await.expect(200);
        a.submit(&open).await.expect(202);
        let token = b.claim_one().await;
        b.say(&open, "accept", token, json!({})).await.expect(200);
        b.say(&open, "ask", token, json!({ "question": "Which one?" })).await.expect(200);
        // A minute has not passed; the store counts both at once.
        assert_eq!(attention(broker, "QUESTION_OPEN").await, Vec::<Value>::new());
        let store = broker.store().await;
        let counts = store.count_waits(&"default".parse().unwrap(), handoffd_domain::ids::Micros(i64::MAX)).await.unwrap();
        let still: Vec<_> = counts.still.iter().map(|one| (one.holder.as_str(), one.count)).collect();
        assert_eq!(still, [("b", 1)], "{counts:?}");
        assert_eq!(json!(counts.still[0].first.to_string()), done["taskId"]);
        let questions: Vec<_> = counts.questions.iter().map(|one| (one.sender.as_str(), one.asked_by.as_str())).collect();
        assert_eq!(questions, [("a", "b")]);
    }

    with [("HANDOFFD_AUDIT__PUBLISH", "file:tree-heads"), ("HANDOFFD_AUDIT__PUBLISH_INTERVAL_S", "1")]
    async fn a_tree_head_that_no_place_takes_is_late(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        assert_eq!(attention(broker, "TREE_HEAD_LATE").await, Vec::<Value>::new());
        let data = broker.settings.iter().find(|(name, _)| name == "HANDOFFD_DATA_DIR").unwrap();
        let folder = std::path::Path::new(&data.1).join("tree-heads");
        let aside = folder.with_file_name("elsewhere");
        until("the folder", async || {
            if folder.is_dir() { Ok(()) } else { Err("it is not there".to_owned()) }
        })
        .await;
        std::fs::rename(&folder, &aside).unwrap();
        std::fs::write(&folder, b"no folder").unwrap();
        a.submit(&Message::initial("a", "b")).await.expect(202);
        let late = until("a late tree head", async || {
            let list = attention(broker, "TREE_HEAD_LATE").await;
            list.into_iter().next().ok_or_else(String::new)
        })
        .await;
        assert_eq!((&late["severity"], &late["lastError"]), (&json!("warning"), &json!("file")), "{late}");
        let table = printed(broker, &["heads", "list"]).await;
        let mut lines = table.lines();
        assert!(lines.next().unwrap().starts_with("PLACE"), "{table}");
        let place = lines.next().unwrap();
        assert!(place.starts_with("file") && place.ends_with("yes"), "{table}");
        let heads = broker.admin.get("/audit/heads").await.expect(200).body;
        assert!(table.contains(&format!("log: {}", heads["logId"].as_str().unwrap())), "{table}");
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(&aside, &folder).unwrap();
        until("the tree head", async || {
            let list = attention(broker, "TREE_HEAD_LATE").await;
            if list.is_empty() { Ok(()) } else { Err(format!("{list:?}")) }
        })
        .await;
    }
}
