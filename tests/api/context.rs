//! A message against its receiver's context window: measured, flagged, refused, shown hop by hop.

use handoffd_evidence::report::{ReportFacts, html};
use serde_json::{Value, json};

use crate::harness::Agent;
use crate::message::Message;

/// `count` turns of some 20 tokens each.
fn turns(count: usize) -> Value {
    (0..count)
        .map(|at| json!({ "role": "user", "content": format!("Turn {at}: the claim of 12 May is for EUR 4,200.00 and unpaid since 17 days.") }))
        .collect()
}

/// A sender, and a reader with these members.
async fn pair(broker: &crate::harness::Broker, more: Value) -> (Agent, Agent) {
    let a = broker.pull("a", &["b"]).await;
    let mut spec = json!({ "agentId": "b" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (a, broker.agent(spec).await)
}

both! {
    async fn a_message_is_measured_by_part_for_its_receiver(broker: Broker) {
        let (a, _b) = pair(broker, json!({ "contextWindowTokens": 100_000, "tokenizer": "o200k" })).await;
        let message = Message::review("a", "b").set("/conversationHistoryVerbatim", turns(4));
        let sent = a.submit(&message).await.expect(202).body;
        let context = &sent["context"];
        assert_eq!(
            (&context["window"], &context["limit"], &context["action"]),
            (&json!(100_000), &json!(80_000), &json!("none"))
        );
        let parts = context["parts"].as_object().unwrap();
        let sum: u64 = parts.values().map(|tokens| tokens.as_u64().unwrap()).sum();
        assert_eq!(context["tokens"], sum);
        assert!(parts["turns"].as_u64().unwrap() > 60, "{context}");
        let read = broker.admin.get(&message.path()).await.expect(200).body;
        let trace = broker.trace(&message).await;
        for same in [&read["context"], &trace["handoffs"][0]["context"], &trace["records"][0]["context"]] {
            assert_eq!(same, context);
        }
        let again = a.submit(&message).await.expect(202).body;
        assert_eq!(again["context"], *context, "a replay answers as the first time");
        assert!(broker.admin.metrics().await.contains("handoff_context_tokens_count{action=\"none\"} 1"));
    }

    async fn an_agent_without_a_window_is_measured_by_estimate(broker: Broker) {
        let (a, _b) = broker.pull_pair().await;
        let message = Message::review("a", "b").set("/conversationHistoryVerbatim", turns(500));
        let context = a.submit(&message).await.expect(202).body["context"].clone();
        assert!(context.get("window").is_none() && context.get("limit").is_none(), "{context}");
        assert_eq!((&context["tokenizer"], &context["action"]), (&json!("estimate"), &json!("none")));
        let refused = broker.admin.patch("/agents/b", &json!({ "contextWindowTokens": 0 })).await;
        assert_eq!(refused.refused(422, "SCHEMA_INVALID").pointers(), ["/contextWindowTokens"]);
    }

    async fn a5_a_message_over_the_limit_is_flagged_or_refused_with_both_figures(broker: Broker) {
        let (a, b) = pair(broker, json!({ "contextWindowTokens": 2_000, "tokenizer": "cl100k", "contextPolicy": "flag" })).await;
        let long = || Message::initial("a", "b").set("/conversationHistoryVerbatim", turns(150));
        let message = long();
        let sent = a.submit(&message).await.expect(202).body;
        let context = &sent["context"];
        assert_eq!((&context["action"], &context["tokenizer"]), (&json!("flag"), &json!("cl100k")));
        let warning = &sent["warnings"][0];
        assert_eq!(
            (&warning["code"], &warning["pointer"]),
            (&json!("CONTEXT_OVER_LIMIT"), &json!("/conversationHistoryVerbatim"))
        );
        let items = b.claim(1).await;
        assert_eq!(items[0]["message"]["conversationHistoryVerbatim"].as_array().unwrap().len(), 150, "as it is");

        broker.admin.patch("/agents/b", &json!({ "contextPolicy": "refuse" })).await.expect(200);
        let refused = a.submit(&long()).await.refused(422, "CONTEXT_TOO_LARGE");
        let detail = refused.body["detail"].as_str().unwrap();
        // Its ids are others, and so are their tokens.
        let told: u64 = detail.split(' ').nth(3).unwrap().parse().unwrap();
        assert!(told.abs_diff(context["tokens"].as_u64().unwrap()) < 50, "{detail} {context}");
        assert!(detail.contains("takes 1600 (of a window of 2000)"), "{detail}");
        assert_eq!(refused.body["failures"][0]["stage"], "context");
        let dry = a.api.post("/handoffs/validate", &long()).await.expect(200).body;
        assert_eq!(dry["reason"], "CONTEXT_TOO_LARGE");
        a.submit(&Message::initial("a", "b")).await.expect(202);
    }

    async fn a_contract_sets_its_own_limit_and_policy(broker: Broker) {
        let (a, _b) = pair(broker, json!({ "contextWindowTokens": 100_000, "tokenizer": "o200k" })).await;
        let contract = json!({
            "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b",
            "trigger": { "intent": "a claim is ready" },
            "payload": { "schema": { "type": "object" }, "context_tokens": 1_000, "context_policy": "refuse" },
        });
        broker.admin.put("/contracts/a-to-b", &contract).await.expect(201);
        let long = Message::initial("a", "b").set("/conversationHistoryVerbatim", turns(150));
        let refused = a.submit(&long).await.refused(422, "CONTEXT_TOO_LARGE");
        assert!(refused.text.contains("takes 1000"), "{}", refused.text);
        let short = a.submit(&Message::initial("a", "b")).await.expect(202).body;
        assert_eq!(short["context"]["limit"], 1_000);
    }

    async fn a_trace_shows_how_the_context_grows(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        let b = broker.pull("b", &["c"]).await;
        broker.pull("c", &[]).await;
        let first = Message::initial("a", "b");
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "accept", token, json!({})).await.expect(200);
        let second = first.next("b", "c").set("/conversationHistoryVerbatim", turns(40));
        b.submit(&second).await.expect(202);
        let trace = broker.trace(&first).await;
        let [one, two] = [0, 1].map(|at| trace["handoffs"][at]["context"].clone());
        assert!(one.get("growth").is_none());
        let grown = two["tokens"].as_i64().unwrap() - one["tokens"].as_i64().unwrap();
        assert!(grown > 400 && two["growth"] == grown, "{one} {two}");
        let page = html(&trace, &[], &ReportFacts::default());
        let told = format!("{} tokens, {grown} more than before", two["tokens"]);
        assert!(page.contains(&told), "{told} in {page}");
    }

    async fn b21_embedded_binary_is_named_with_its_pointer(broker: Broker) {
        let (a, _b) = broker.pull_pair().await;
        let noise: String = (0..3_000_u32)
            .map(|at| {
                let mixed = at.wrapping_mul(2_654_435_761) >> 13;
                char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(mixed % 64) as usize])
            })
            .collect();
        let message = Message::initial("a", "b").set("/currentState/scan", json!(noise));
        let sent = a.submit(&message).await.expect(202).body;
        let found = sent["warnings"].as_array().unwrap().iter().find(|one| one["code"] == "EMBEDDED_BINARY");
        assert_eq!(found.unwrap()["pointer"], "/currentState/scan", "{sent}");
    }
}

both! {
    with [("HANDOFFD_CONTEXT__BINARY", "refuse"), ("HANDOFFD_CONTEXT__COMPRESS_AT", "0.5"), ("HANDOFFD_CONTEXT__POLICY", "refuse")]
    async fn settings_refuse_binary_data_and_set_share_and_policy(broker: Broker) {
        let (a, _b) = pair(broker, json!({ "contextWindowTokens": 2_000 })).await;
        let icon = format!("data:image/png;base64,{}", "iVBORw0KGgoAAAANSUhEUgAA".repeat(60));
        let message = Message::initial("a", "b").set("/currentState/icon", json!(icon));
        let refused = a.submit(&message).await.refused(422, "CONTEXT_TOO_LARGE");
        assert!(refused.pointers().contains(&"/currentState/icon"), "{}", refused.text);
        let long = Message::initial("a", "b").set("/conversationHistoryVerbatim", turns(100));
        let refused = a.submit(&long).await.refused(422, "CONTEXT_TOO_LARGE");
        assert!(refused.text.contains("takes 1000"), "{}", refused.text);
    }
}
