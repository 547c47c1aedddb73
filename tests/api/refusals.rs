//! The list of refusals (finding O6 of 0.3.0).

use serde_json::json;

use crate::message::Message;

both! {
    async fn refusals_are_listed_by_sender_code_place_and_time(broker: Broker) {
        let a = broker.pull("a", &["b"]).await;
        let c = broker.pull("c", &[]).await;
        broker.pull("b", &[]).await;
        let poor = Message::review("a", "b").cost(1.0, 0.0);
        a.submit(&poor).await.refused(422, "BUDGET_EXHAUSTED");
        let forbidden = Message::review("c", "b");
        c.submit(&forbidden).await.refused(403, "FORBIDDEN");
        let odd = Message::review("a", "b").set("/jana.novak@example.com", json!(1));
        a.submit(&odd).await.refused(422, "SCHEMA_INVALID");
        a.submit(&Message::review("a", "b")).await.expect(202);

        let all = broker.admin.pages("/refusals", 2, "refusalId").await;
        let codes: Vec<_> = all.iter().map(|row| row["code"].as_str().unwrap()).collect();
        assert_eq!(codes, ["SCHEMA_INVALID", "FORBIDDEN", "BUDGET_EXHAUSTED"], "the newest first");
        // A name that a sender chose does not appear in a list.
        assert_eq!(all[0]["pointer"], "/*", "{}", all[0]);
        assert!(!all[0].to_string().contains("novak"), "{}", all[0]);
        assert_eq!((&all[2]["fromAgent"], &all[2]["toAgent"]), (&json!("a"), &json!("b")));
        assert_eq!((&all[2]["taskId"], &all[2]["handoffId"]), (&poor["taskId"], &poor["handoffId"]));
        let place = all[2]["pointer"].as_str().unwrap();
        assert!(place.starts_with("/costTracking"), "{place}");
        assert_eq!(all[2]["failures"][0]["stage"], "budget", "{}", all[2]);

        let count = async |query: &str| {
            let page = broker.admin.get(&format!("/refusals?{query}")).await.expect(200).body;
            page["items"].as_array().unwrap().len()
        };
        assert_eq!(count("fromAgent=a").await, 2);
        assert_eq!(count("code=FORBIDDEN").await, 1);
        assert_eq!(count("toAgent=b&fromAgent=a&code=BUDGET_EXHAUSTED").await, 1);
        assert_eq!(count(&format!("pointer={place}")).await, 1);
        assert_eq!(count(&format!("taskId={}", forbidden.task())).await, 1);
        let at = all[1]["refusedAt"].as_str().unwrap();
        assert_eq!((count(&format!("from={at}")).await, count(&format!("to={at}")).await), (2, 1));
        broker.admin.get("/refusals?from=yesterday").await.refused(400, "INVALID_REQUEST");

        // An agent sees its own.
        let own = c.api.get("/refusals").await.expect(200).body;
        assert_eq!(own["items"].as_array().unwrap().len(), 1, "{own}");
        let others = c.api.get("/refusals?fromAgent=a").await.expect(200).body;
        assert_eq!(others["items"], json!([]));

        let events = broker.admin.get("/events?types=handoff.refused").await.expect(200).body;
        let told: Vec<_> = events["items"].as_array().unwrap().iter().map(|one| one["data"]["reason"].clone()).collect();
        assert_eq!(told, [json!("BUDGET_EXHAUSTED"), json!("FORBIDDEN"), json!("SCHEMA_INVALID")]);
        let counted = broker.admin.metrics().await;
        let line = r#"handoff_agent_refusals_total{agent="a",code="BUDGET_EXHAUSTED",tenant="default"} 1"#;
        assert!(counted.lines().any(|one| one == line), "{counted}");
    }
}
