//! The regulator's page, from what the API itself answers about a real task.

use handoffd_evidence::report::{ReportFacts, html};
use serde_json::{Value, json};

use crate::message::Message;

both! {
    async fn a100_a_real_trace_becomes_a_page_that_tells_it(broker: Broker) {
        let (a, b) = (broker.pull("a", &["b"]).await, broker.pull("b", &["c"]).await);
        let c = broker.pull("c", &[]).await;
        let first = Message::review("a", "b").cost(0.125, 0.875);
        let again = first.again().set("/currentState/mended", json!("<b>now</b>")).cost(0.25, 0.75);
        let second = again.next("b", "c").cost(0.375, 0.625);
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "reject", token, json!({ "reason": "MISSING_CLAUSE_TEXT" })).await.expect(200);
        a.submit(&again).await.expect(202);
        let token = b.claim_one().await;
        b.say(&again, "accept", token, json!({})).await.expect(200);
        b.submit(&second).await.expect(202);
        let token = c.claim_one().await;
        c.say(&second, "complete", token, json!({ "result": { "score": "high" } })).await.expect(200);
        let trace = broker.trace(&first).await;
        let mut contents: Vec<Value> = Vec::new();
        for message in [&first, &again, &second] {
            let path = format!("{}?include=message", message.path());
            contents.push(broker.admin.get(&path).await.expect(200).body["message"].clone());
        }
        let facts = ReportFacts { tenant: "default".to_owned(), ..ReportFacts::default() };
        let page = html(&trace, &contents, &facts);
        if let Ok(file) = std::env::var("HANDOFFD_TEST_REPORT") {
            std::fs::write(file, &page).unwrap();
        }
        assert_eq!(page.matches("<article class=\"hop\"").count(), 3);
        for part in [
            "MISSING_CLAUSE_TEXT",
            "<dt>Cost of this step</dt><dd>0.125 US dollars",
            "<strong>0.375</strong>",
            "&#60;b&#62;now&#60;/b&#62;",
            "&#34;score&#34;: &#34;high&#34;",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
        for record in trace["records"].as_array().unwrap() {
            assert!(page.contains(record["recordHash"].as_str().unwrap()), "{record}");
        }
    }
}
