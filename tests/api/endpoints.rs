//! Endpoints that only fail: operators are told on the way, and at its end the endpoint is disabled.

use serde_json::{Value, json};

use crate::harness::{Broker, Caller, until};
use crate::message::Message;
use crate::receiver::{accepted, bare};

const TEN: (&str, &str) = ("HANDOFFD_DELIVERY__DISABLE_AFTER_FAILURES", "10");
const CLOSED: (&str, &str) = ("HANDOFFD_DELIVERY__BREAKER_FAILURES", "100");
const MANY: (&str, &str) = ("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "50");
const BASE: (&str, &str) = ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "5");
const CAP: (&str, &str) = ("HANDOFFD_DELIVERY__RETRY_CAP_MS", "10");

/// The alerts about endpoints that operators got, once there are so many.
async fn alerts(admin: &Caller, count: usize) -> Vec<Value> {
    until("the alerts", async || {
        let path = "/events?types=agent.endpoint_failing,agent.endpoint_disabled";
        let page = admin.get(path).await.expect(200).body;
        let items = page["items"].as_array().unwrap();
        if items.len() < count {
            return Err(format!("{page}"));
        }
        Ok(items.iter().map(|event| event["data"].clone()).collect())
    })
    .await
}

async fn delivery_of(broker: &Broker, agent: &str) -> Value {
    broker.admin.get(&format!("/agents/{agent}")).await.expect(200).body["delivery"].clone()
}

/// How many records of a kind the log has.
async fn kinds_of(broker: &Broker, wanted: &str) -> usize {
    let records = broker.admin.get("/audit/records?limit=500").await.expect(200).body;
    let items = records["records"].as_array().unwrap();
    items.iter().filter(|item| item.to_string().contains(&format!("\"kind\":\"{wanted}\""))).count()
}

both! {
    with [TEN, CLOSED, MANY, BASE, CAP]
    async fn an_endpoint_that_only_fails_is_disabled_and_operators_saw_it_come(broker: Broker) {
        let (a, _, receiver) = broker.pair((0..10).map(|_| bare(500)).collect()).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let told = alerts(&broker.admin, 5).await;
        let steps: Vec<_> = told[..4].iter().map(|data| (&data["percent"], &data["failures"])).collect();
        let wanted = [(50, 5), (70, 7), (90, 9), (100, 10)].map(|(p, f)| (json!(p), json!(f)));
        assert_eq!(steps, wanted.iter().map(|(p, f)| (p, f)).collect::<Vec<_>>());
        assert!(told.iter().all(|data| data["agentId"] == "b" && data["endpoint"] == "delivery"));
        assert_eq!(told[4]["reason"], "ENDPOINT_FAILING");
        assert!(told[4].get("percent").is_none(), "the last one says that it is disabled");
        let handoff = broker.handoff_becomes(&message, "FAILED").await;
        assert_eq!(handoff["reason"], "ENDPOINT_DISABLED");
        let delivery = delivery_of(broker, "b").await;
        assert_eq!(delivery["disabled"], true);
        assert_eq!(delivery["failing"], json!({ "failures": 10, "percent": 100 }));
        assert_eq!(receiver.all().len(), 10, "and nothing more is sent to it");
        a.submit(&Message::initial("a", "b")).await.refused(422, "NO_CAPABLE_AGENT");
        assert_eq!(kinds_of(broker, "ENDPOINT_FAILING").await, 3);
        assert_eq!(kinds_of(broker, "ENDPOINT_DISABLED").await, 1);
        // Setting it anew enables it, and the count begins anew.
        let anew = json!({ "delivery": { "mode": "webhook", "url": receiver.url } });
        let patched = broker.admin.patch("/agents/b", &anew).await.expect(200).body;
        assert!(patched["delivery"].get("failing").is_none(), "{patched}");
        a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!(delivery_of(broker, "b").await.get("failing"), None);
    }

    with [TEN, CLOSED, MANY, BASE, CAP]
    async fn an_endpoint_that_answers_again_is_well_again(broker: Broker) {
        let script = (0..6).map(|_| bare(500)).chain([accepted()]).chain((0..6).map(|_| bare(500)));
        let (a, _, _receiver) = broker.pair(script.collect()).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        until("it is well again", async || {
            let delivery = delivery_of(broker, "b").await;
            delivery.get("failing").is_none().then_some(()).ok_or_else(|| format!("{delivery}"))
        })
        .await;
        assert_eq!(kinds_of(broker, "ENDPOINT_RECOVERED").await, 1);
        // Six failures, an answer, six failures: not twelve in a row.
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let told = alerts(&broker.admin, 2).await;
        let steps: Vec<_> = told.iter().map(|data| data["percent"].clone()).collect();
        assert_eq!(steps, [json!(50), json!(50)]);
    }

    with [TEN, CLOSED, MANY, BASE, CAP]
    async fn a_restarted_broker_goes_on_from_what_was_told(broker: Broker) {
        let (a, _, _receiver) = broker.pair((0..20).map(|_| bare(500)).collect()).await;
        let five = Message::initial("a", "b");
        a.submit(&five).await.expect(202);
        alerts(&broker.admin, 1).await;
        let admin = broker.restart().await;
        let told = alerts(&admin, 5).await;
        let failures = told[3]["failures"].as_u64().unwrap();
        assert_eq!((&told[3]["percent"], failures), (&json!(100), 10), "{told:?}");
    }
}
