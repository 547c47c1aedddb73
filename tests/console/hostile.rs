//! Hostile text is text, wherever it comes from, and large tasks make no large pages.

use serde_json::json;

use crate::browser::Browser;
use crate::message::Message;

/// Text that would leave its element or its attribute, hide, or turn around.
const ATTACK: &str = "\"><script>alert(1)</script><img src=x onerror=alert(2)>' onfocus='x \u{202e}evil\u{2066}\u{0}{{7*7}}";
/// The marks of the attack that no page may have.
const RUNS: [&str; 5] = ["<script>alert", "<img src=x", "\u{202e}", "\u{2066}", "\u{0}"];

/// A page repeats a visitor's own words in its fields: the words keep their characters, and the page escapes them as markup.
fn escaped(path: &str, text: &str) {
    for mark in &RUNS[..2] {
        assert!(!text.contains(mark), "{path} has {mark:?}");
    }
}

fn harmless(path: &str, text: &str) {
    for mark in RUNS {
        assert!(!text.contains(mark), "{path} has {mark:?}");
    }
}

both! {
    with [("HANDOFFD_SAFETY__MODE", "observe")]
    async fn text_of_agents_and_addresses_is_shown_and_never_runs(broker: Broker) {
        let attack = ATTACK.replace('\u{0}', "");
        for (id, targets) in [("a", json!(["b"])), ("b", json!([]))] {
            let spec = json!({
                "agentId": id, "handoffTargets": targets, "name": attack, "description": attack,
                "capabilities": ["x"], "metadata": { "note": attack },
            });
            broker.agent(spec).await;
        }
        let admin = Browser::of(broker, "admin").await;
        let made = broker.admin.post("/keys", &json!({ "role": "agent", "agentId": "a", "label": attack })).await.expect(201);
        let a = broker.caller(made.body["apiKey"].as_str());
        let message = Message::review("a", "b")
            .set("/taskDescription", json!(attack))
            .set("/conversationHistorySummary", json!(attack))
            .set("/currentState", json!({ "<b>key</b>": attack, "big": 9_007_199_254_740_991_u64 }))
            .set("/constraints", json!([attack]));
        let answer = a.post("/handoffs", &message).await;
        assert!([202, 422].contains(&answer.status), "{}", answer.text);
        let submitted = answer.status == 202;
        let mut paths = vec!["/console".to_owned(), "/console/tasks".to_owned(), "/console/handoffs".to_owned(),
            "/console/receivers".to_owned(), "/console/receivers/a".to_owned(), "/console/keys".to_owned(),
            "/console/refusals".to_owned(), "/console/evidence".to_owned(), "/console/dead-letters".to_owned()];
        if submitted {
            paths.push(format!("/console{}", message.task_path()));
            paths.push(format!("/console{}", message.path()));
        }
        for path in &paths {
            harmless(path, &admin.get(path).await.expect(200).text);
        }
        if submitted {
            let page = admin.get(&format!("/console{}", message.path())).await.expect(200);
            assert!(page.says("&#60;script&#62;") || page.says("&lt;script&gt;"), "{}", page.text);
            assert!(page.says("⟨U+202E⟩") && page.says("9007199254740991"), "{}", page.text);
        }
        let encoded: String = url::form_urlencoded::byte_serialize(ATTACK.as_bytes()).collect();
        for path in ["/console/tasks?status=", "/console/tasks?userRef=", "/console/dead-letters?reason=", "/console/refusals?code=",
            "/console/costs?from=", "/console/handoffs?conversationId=", "/console/edges?source=", "/console/evidence?from=",
            "/console/search?q=", "/console/do/cancel-task?of=", "/console/do/cancel-task?back=", "/console?done=",
            "/console/do/release-many?rule=", "/console/do/lint?document=", "/console/live?since="] {
            let page = admin.get(&format!("{path}{encoded}")).await;
            assert!(page.status < 500, "{path}: {}", page.text);
            escaped(path, &page.text);
        }
        for (path, field) in [("/console/do/add-edge", "agent"), ("/console/do/put-contract", "document"), ("/console/do/create-key", "label"),
            ("/console/do/place-hold", "reason"), ("/console/do/cancel-tasks", "holder"), ("/console/users", "userId")] {
            let page = admin.post(path, &[(field, ATTACK), ("role", "auditor"), ("target", "b"), ("dry", "1")]).await;
            assert!(page.status < 500, "{path}: {}", page.text);
            escaped(path, &page.text);
        }
    }

    with [("HANDOFFD_DELIVERY__POLL_MS", "100")]
    async fn attempts_are_a_table_and_an_answer_is_text(broker: Broker) {
        let down = || axum::http::Response::builder().status(500).body(axum::body::Body::from(ATTACK)).unwrap();
        let (a, _, _receiver) = broker.pair(vec![down(), down()]).await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let operator = Browser::of(broker, "operator").await;
        let path = format!("/console{}", message.path());
        let page = operator.get(&path).await.expect(200);
        harmless(&path, &page.text);
        assert!(page.says("Attempts") && page.says("answered 500"), "{}", page.text);
        assert!(page.says("⟨U+202E⟩"), "{}", page.text);
        let shown = operator.json(&path).await;
        let rows = shown["attempts"]["items"].as_array().unwrap();
        let outcomes: Vec<_> = rows.iter().map(|row| row["outcome"].as_str().unwrap()).collect();
        assert_eq!(outcomes, ["accepted", "status", "status"]);
        let auditor = Browser::of(broker, "auditor").await;
        let shown = auditor.json(&path).await;
        assert!(shown["attempts"].is_null() && shown["delivery"].is_object(), "{shown}");
    }

    async fn a_large_message_is_folded_and_its_page_stays_small(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let long = "A long report of the work. ".repeat(4_000);
        let message = Message::review("a", "b").set("/currentState", json!({ "report": long, "other": long }));
        a.submit(&message).await.expect(202);
        let browser = Browser::of(broker, "auditor").await;
        let page = browser.get(&format!("/console{}", message.path())).await.expect(200);
        assert!(page.says("bytes more") && page.says("<details class=\"quote"), "folded and cut");
    }

    with [("HANDOFFD_GATE__MAX_HOPS", "10000"), ("HANDOFFD_GATE__MAX_EDGE_REPEATS", "10000")]
    async fn a_task_of_many_hops_is_one_window_of_them(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        for _ in 0..120 {
            a.submit(&message.again()).await.expect(202);
        }
        let browser = Browser::of(broker, "auditor").await;
        let task = format!("/console{}", message.task_path());
        let shown = browser.json(&task).await;
        let bars = shown["hops"]["bars"].as_array().unwrap();
        assert_eq!(bars.len(), 50, "one window");
        let page = browser.get(&task).await.expect(200);
        assert!(page.says("Check now") && page.says("rel=\"next\""), "{}", page.text);
        let next = shown["hops"]["next"].as_str().unwrap();
        let second = browser.json(next).await;
        assert_eq!(second["hops"]["bars"].as_array().unwrap().len(), 50);
        let records = browser.json(&format!("{task}?view=records")).await;
        let shown = records["records"]["items"].as_array().unwrap();
        let leaf = |row: &serde_json::Value| row["leafIndex"].as_i64().unwrap();
        assert!(shown.len() == 50 && leaf(&shown[0]) > leaf(&shown[49]), "newest first: {records}");
        let earlier = browser.json(records["records"]["next"].as_str().unwrap()).await;
        assert!(leaf(&earlier["records"]["items"][0]) < leaf(&shown[49]), "{earlier}");
        let later = format!("{task}?view=records&from=2999-01-01T00:00:00Z");
        assert_eq!(browser.json(&later).await["records"]["items"], json!([]));
        assert!(browser.get(&format!("{task}?check=1")).await.expect(200).says("Verified"));
    }
}
