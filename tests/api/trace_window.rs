//! `GET /tasks/{taskId}/trace` by windows: newest first, by time and by page, without a read of the whole task.

use serde_json::{Value, json};

use crate::harness::{Broker, Caller};
use crate::message::Message;

/// Leaf indices of the records of an answer.
fn leaves(answer: &Value) -> Vec<i64> {
    let records = answer["records"].as_array().unwrap();
    records.iter().map(|record| record["leafIndex"].as_i64().unwrap()).collect()
}

/// All records by pages of that size, as an answer gives them.
async fn paged(caller: &Caller, path: &str, limit: usize) -> Vec<i64> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = caller.get(&format!("{path}?limit={limit}{cursor}")).await.expect(200).body;
        let part = leaves(&page);
        assert!(part.len() <= limit && page["verification"]["ok"] == true, "{page}");
        all.extend(part);
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

async fn told(broker: &Broker) -> (Message, String) {
    let (a, b) = broker.pull_pair().await;
    let first = Message::review("a", "b");
    a.submit(&first).await.expect(202);
    a.submit(&first.again()).await.expect(202);
    // Another task's records lie between.
    a.submit(&Message::review("a", "b")).await.expect(202);
    a.submit(&first.again()).await.expect(202);
    let token = b.claim_one().await;
    b.say(&first, "accept", token, json!({})).await.expect(200);
    b.say(&first, "complete", token, json!({ "result": 1 })).await.expect(200);
    let path = format!("{}/trace", first.task_path());
    (first, path)
}

both! {
    async fn pages_are_the_whole_trace_from_its_end(broker: Broker) {
        let (_, path) = told(broker).await;
        let whole = broker.admin.get(&path).await.expect(200).body;
        assert!(whole["agents"].is_array() && whole["nextCursor"].is_null(), "{whole}");
        let mut wanted = leaves(&whole);
        wanted.reverse();
        for limit in [1, 2, 500] {
            assert_eq!(paged(&broker.admin, &path, limit).await, wanted, "by {limit}");
        }
        let page = broker.admin.get(&format!("{path}?limit=2")).await.expect(200).body;
        assert!(page.get("agents").is_none() && page.get("cost").is_none(), "{page}");
        let page = broker.admin.get(&format!("{path}?limit=500")).await.expect(200).body;
        let newest = &page["handoffs"][0];
        let same = whole["handoffs"].as_array().unwrap().iter().find(|one| one["handoffId"] == newest["handoffId"]).unwrap();
        for name in ["status", "taskDescription", "attempts", "leafIndex", "costTracking"] {
            assert_eq!(newest[name], same[name], "{name}");
        }
        // Words are those of the reader: another agent's task is none.
        let stranger = broker.pull("c", &[]).await;
        stranger.api.get(&format!("{path}?limit=2")).await.refused(404, "NOT_FOUND");
    }

    async fn a_window_of_times_has_its_records_alone(broker: Broker) {
        let (_, path) = told(broker).await;
        let whole = broker.admin.get(&path).await.expect(200).body;
        let records = whole["records"].as_array().unwrap();
        let time = |index: usize| records[index]["time"].as_str().unwrap().to_owned();
        let (from, to) = (time(1), time(3));
        let page = broker.admin.get(&format!("{path}?from={from}&to={to}")).await.expect(200).body;
        let wanted: Vec<i64> = records
            .iter()
            .rev()
            .filter(|record| (from.as_str()..to.as_str()).contains(&record["time"].as_str().unwrap()))
            .map(|record| record["leafIndex"].as_i64().unwrap())
            .collect();
        assert_eq!(leaves(&page), wanted, "{page}");
        let empty = broker.admin.get(&format!("{path}?from=2999-01-01T00:00:00Z")).await.expect(200).body;
        assert_eq!(empty["records"], json!([]));
    }

    async fn a_value_that_is_none_is_named(broker: Broker) {
        let (_, path) = told(broker).await;
        for (query, name) in [
            ("from=yesterday", "from"), ("to=x", "to"), ("limit=0", "limit"), ("limit=501", "limit"), ("cursor=zzzz", "cursor"),
            ("from=2026-11-29T00:00:00Z&to=2026-11-29T00:00:00Z", "from"), ("format=bundle&limit=5", "limit"),
        ] {
            let answer = broker.admin.get(&format!("{path}?{query}")).await.refused(400, "INVALID_REQUEST");
            assert!(answer.body["detail"].as_str().unwrap().contains(name), "{query}: {}", answer.text);
        }
    }
}
