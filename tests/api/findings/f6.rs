//! Point 6: one mechanism for warnings.

use serde_json::{Value, json};

use crate::message::Message;

both! {
    async fn f6_what_has_no_effect_is_named_in_the_answer_and_in_validate(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b").set("/receiverList", json!(["b", "c"]));
        let said = a.api.post("/handoffs/validate", &message).await.expect(200);
        assert_eq!(said.body["valid"], true);
        assert_eq!(said.body["warnings"][0]["code"], "WITHOUT_EFFECT");
        assert_eq!(said.body["warnings"][0]["pointer"], "/receiverList");
        let first = a.submit(&message).await.expect(202);
        assert_eq!(first.body["warnings"], said.body["warnings"]);
        let again = a.submit(&message).await.expect(202);
        assert_eq!(again.body, first.body, "a replay answers as the first time");
        let plain = a.submit(&Message::initial("a", "b")).await.expect(202);
        assert!(plain.body.get("warnings").is_none());
    }
}

both! {
    async fn f6_a_registered_agent_says_what_of_it_does_not_hold(broker: Broker) {
        let made = broker
            .admin
            .post(
                "/agents",
                &json!({
                    "agentId": "a", "tokenizer": "o200k", "supervisorId": "boss",
                    "handoffTargets": ["b", "type:a", "type:nobody"],
                    "delivery": { "mode": "pull", "timeoutMs": 500 },
                }),
            )
            .await
            .expect(201);
        assert_eq!(
            warned(&made.body),
            [
                ("UNKNOWN_AGENT", "/handoffTargets/0"),
                ("UNKNOWN_AGENT", "/handoffTargets/2"),
                ("UNKNOWN_AGENT", "/supervisorId"),
                ("WITHOUT_EFFECT", "/tokenizer"),
                ("WITHOUT_EFFECT", "/delivery/timeoutMs"),
            ]
        );
        let read = broker.admin.get("/agents/a").await.expect(200);
        assert!(read.body.get("warnings").is_none(), "a read changes nothing");
        let list = broker.admin.get("/agents/a/handoff-targets").await.expect(200);
        assert_eq!(
            warned(&list.body),
            [("UNKNOWN_AGENT", "/handoffTargets/0"), ("UNKNOWN_AGENT", "/handoffTargets/2")]
        );
        broker.pull("b", &[]).await;
        let mended = json!({
            "tokenizer": null, "supervisorId": "b", "handoffTargets": ["b"],
            "delivery": { "mode": "pull", "timeoutMs": 10_000 },
        });
        let mended = broker.admin.patch("/agents/a", &mended).await.expect(200);
        assert!(mended.body.get("warnings").is_none(), "{}", mended.body);
    }

    async fn f6_an_address_that_the_egress_guard_refuses_is_named_when_it_is_set(broker: Broker) {
        let metadata = "http://169.254.169.254/latest";
        let hook = json!({ "agentId": "a", "delivery": { "mode": "webhook", "url": metadata } });
        let made = broker.admin.post("/agents", &hook).await.expect(201);
        assert_eq!(warned(&made.body), [("ENDPOINT_REFUSED", "/delivery/url")]);
        let back = json!({ "delivery": { "mode": "pull", "url": null }, "callbackUrl": metadata });
        let made = broker.admin.patch("/agents/a", &back).await.expect(200);
        assert_eq!(warned(&made.body), [("ENDPOINT_REFUSED", "/callbackUrl")]);
        let told = broker.admin.post("/subscriptions", &json!({ "url": metadata })).await.expect(201);
        assert_eq!(warned(&told.body), [("ENDPOINT_REFUSED", "/url")]);
        let path = format!("/subscriptions/{}", told.body["subscriptionId"].as_str().unwrap());
        let open = json!({ "url": "https://events.example.org/" });
        let told = broker.admin.patch(&path, &open).await.expect(200);
        assert!(told.body.get("warnings").is_none(), "{}", told.body);
    }

    async fn f6_a_cap_that_nothing_fits_under_says_so(broker: Broker) {
        let none = broker.admin.put("/caps/PT1H", &json!({ "usd": "0" })).await.expect(200);
        assert_eq!(warned(&none.body), [("NO_ROOM", "/usd")]);
        let room = json!({ "usd": "1", "tokens": 5 });
        let room = broker.admin.put("/caps/PT1H", &room).await.expect(200);
        assert!(room.body.get("warnings").is_none(), "{}", room.body);
    }
}

/// Codes and pointers of an answer's warnings.
fn warned(body: &Value) -> Vec<(&str, &str)> {
    body["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| (warning["code"].as_str().unwrap(), warning["pointer"].as_str().unwrap()))
        .collect()
}
