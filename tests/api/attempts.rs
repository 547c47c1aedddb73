//! Attempts as operators read them: `GET /handoffs/{handoffId}/attempts` and `handoffd handoffs attempts`.

use axum::body::Body;
use axum::http::Response;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Caller, command};
use crate::message::Message;
use crate::receiver::{accepted, answer, bare};

const QUICK: (&str, &str) = ("HANDOFFD_DELIVERY__POLL_MS", "100");

/// Words of a receiver that are in one place alone.
const WORDS: &str = "the-cupboard-is-bare";

fn text(status: u16, body: String) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body)).unwrap()
}

async fn attempts(caller: &Caller, message: &Message) -> Value {
    caller.get(&format!("{}/attempts", message.path())).await.expect(200).body
}

both! {
    with [QUICK]
    async fn an_operator_reads_each_attempt_with_its_answer(broker: Broker) {
        let hostile = format!("<script>{WORDS}</script>\u{202e}\u{0}{}", "é".repeat(4_000));
        let script = vec![
            text(503, format!("{WORDS}, come back")),
            text(500, hostile),
            answer(200, &json!({ "status": "ACCEPTED", "note": WORDS })),
        ];
        let (a, _, _receiver) = broker.pair(script).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let operator = broker.person("operator").await;
        let list = attempts(&operator, &message).await;
        assert_eq!((&list["handoffId"], &list["attempts"], &list["kept"]), (&message["handoffId"], &json!(3), &json!(20)));
        let items = list["items"].as_array().unwrap();
        let facts: Vec<_> = items
            .iter()
            .map(|item| (item["attempt"].as_i64(), item["outcome"].as_str(), item["status"].as_i64()))
            .collect();
        assert_eq!(facts, [
            (Some(3), Some("accepted"), Some(200)),
            (Some(2), Some("status"), Some(500)),
            (Some(1), Some("busy"), Some(503)),
        ]);
        for item in items {
            assert_eq!(item["transport"], "webhook", "{item}");
            assert!(item["durationMs"].as_f64().unwrap() > 0.0 && item["begunAt"].is_string(), "{item}");
            let header = |name: &str| {
                let headers = item["requestHeaders"].as_array().unwrap();
                headers.iter().find(|one| one["name"] == name).unwrap()["value"].clone()
            };
            assert_eq!(header("webhook-id"), message["handoffId"]);
            assert_eq!(header("webhook-signature"), "[REDACTED:secret]");
            assert_eq!(header("handoff-attempt"), item["attempt"].to_string());
        }
        assert_eq!(items[2]["answer"], format!("{WORDS}, come back"));
        assert_eq!((&items[1]["error"], &items[2]["error"]), (&json!("answered 500"), &Value::Null));
        let long = items[1]["answer"].as_str().unwrap();
        assert!(long.starts_with(&format!("<script>{WORDS}</script>\u{202e}\u{fffd}éé")), "{long}");
        assert!((4_094..=4_096).contains(&long.len()), "{}", long.len());
        let last: Value = serde_json::from_str(items[0]["answer"].as_str().unwrap()).unwrap();
        assert_eq!(last["note"], WORDS);

        // The words are in no record and no metric.
        let trace = broker.trace(&message).await.to_string();
        let metrics = broker.admin.metrics().await;
        assert!(!trace.contains(WORDS) && !metrics.contains(WORDS));

        let mut settings = broker.settings.clone();
        settings.push(("HANDOFFD_URL".to_owned(), broker.admin.base.clone()));
        let table = command(&settings, &["handoffs", "attempts", &message.id()]).await;
        let table = String::from_utf8(table.stdout).unwrap();
        assert!(table.contains("busy") && table.contains(WORDS), "{table}");
        assert!(!table.contains('\u{202e}') && table.contains("\\u{202e}"), "{table}");
    }

    async fn the_first_attempt_has_no_row_where_the_receiver_took_it(broker: Broker) {
        let script = vec![accepted(), bare(202), answer(200, &json!({ "status": "REJECTED", "reason": "FULL" }))];
        let (a, b, receiver) = broker.pair(script).await;
        let messages = [(); 3].map(|()| Message::initial("a", "b"));
        a.submit(&messages[0]).await.expect(202);
        broker.handoff_becomes(&messages[0], "ACCEPTED").await;
        receiver.next().await;
        a.submit(&messages[1]).await.expect(202);
        let token = receiver.next().await.token();
        b.say(&messages[1], "accept", token, json!({})).await.expect(200);
        a.submit(&messages[2]).await.expect(202);
        broker.handoff_becomes(&messages[2], "REJECTED").await;
        for message in &messages[..2] {
            let list = attempts(&broker.admin, message).await;
            assert_eq!((&list["attempts"], &list["items"]), (&json!(1), &json!([])), "{list}");
        }
        let list = attempts(&broker.admin, &messages[2]).await;
        let item = &list["items"][0];
        assert_eq!((&item["outcome"], &item["status"], &item["error"]), (&json!("rejected"), &json!(200), &Value::Null));
        assert!(item["answer"].as_str().unwrap().contains("FULL"), "{list}");
    }

    with [("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "1")]
    async fn attempts_without_an_answer_say_why(broker: Broker) {
        let (a, _, receiver) = broker.pair(Vec::new()).await;
        drop(receiver);
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "FAILED").await;
        let list = attempts(&broker.admin, &message).await;
        let item = &list["items"][0];
        assert_eq!((&item["outcome"], &item["status"], &item["answer"]), (&json!("connect"), &Value::Null, &Value::Null));
        assert!(item["error"].as_str().unwrap().starts_with("no connection"), "{list}");
    }

    with [("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "1")]
    async fn a_body_that_does_not_end_holds_no_attempt(broker: Broker) {
        // The first bytes come, and then nothing: the status has decided.
        let endless = || {
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(WORDS.to_owned())]);
            let stream = futures_util::StreamExt::chain(first, futures_util::stream::pending());
            Response::builder().status(500).body(Body::from_stream(stream)).unwrap()
        };
        let (a, _, _receiver) = broker.pair(vec![endless()]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let failed = broker.handoff_becomes(&message, "FAILED").await;
        assert_eq!(failed["reason"], "DELIVERY_STATUS");
        let list = attempts(&broker.admin, &message).await;
        assert_eq!(list["items"][0]["answer"], WORDS, "{list}");
    }

    async fn attempts_are_for_operators_of_the_tenant(broker: Broker) {
        let (a, b, _receiver) = broker.pair(vec![bare(500)]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let path = format!("{}/attempts", message.path());
        let auditor = broker.person("auditor").await;
        for caller in [&a.api, &b.api, &auditor] {
            caller.get(&path).await.refused(403, "FORBIDDEN");
        }
        broker.caller(None).get(&path).await.refused(401, "UNAUTHENTICATED");
        let made = broker.command(&["key", "create", "--tenant", "other", "--role", "admin"]).await;
        let made = String::from_utf8(made.stdout).unwrap();
        broker.caller(Some(made.trim())).get(&path).await.refused(404, "NOT_FOUND");
        let unknown = format!("/handoffs/{}/attempts", handoffd::clock::random_id());
        broker.admin.get(&unknown).await.refused(404, "NOT_FOUND");
        broker.admin.get("/handoffs/x/attempts").await.refused(404, "NOT_FOUND");
    }

    async fn attempts_go_with_the_data_of_a_person(broker: Broker) {
        let (a, _, _receiver) = broker.pair(vec![text(500, "Jana Novak is unknown".to_owned())]).await;
        let subjects = json!([{ "subjectId": "jana", "data": { "name": "Jana Novak" } }]);
        let message = Message::initial("a", "b").set("/personalDataPayload", json!({ "subjects": subjects }));
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let list = attempts(&broker.admin, &message).await;
        assert_eq!(list["items"][1]["answer"], "Jana Novak is unknown", "{list}");
        broker.admin.send(Method::DELETE, "/data-subjects/jana", &[], &json!({})).await.expect(200);
        let list = attempts(&broker.admin, &message).await;
        assert_eq!((&list["attempts"], &list["items"]), (&json!(2), &json!([])), "{list}");
    }
}
