//! Claim checks: the link opens the very body that the receiver's signature covers, without a key, until it expires.

use std::time::Duration;

use handoffd::clock::{Clock, SystemClock};
use handoffd::vault::Vault;
use handoffd_broker::claim_check::ClaimLinks;
use handoffd_domain::ids::Micros;
use serde_json::json;

use crate::harness::{Broker, Kind, run};
use crate::message::Message;
use crate::receiver::accepted;

async fn opens(kind: Kind) {
    let key = Vault::new_master_key();
    run(kind, &[("HANDOFFD_MASTER_KEY", key.as_str())], async |broker: &Broker| {
        let vault = Vault::from_base64(&key).unwrap();
        let links = ClaimLinks { vault, base: String::new(), ttl: Duration::from_mins(1) };
        let receiver = broker.saying(vec![accepted()]).await;
        let a = broker.pull("a", &["b"]).await;
        let delivery = json!({ "mode": "webhook", "url": receiver.url });
        let permissions = json!(["personal-data:read"]);
        let spec = json!({ "agentId": "b", "delivery": delivery, "permissions": permissions });
        let b = broker.agent(spec).await;
        receiver.trust(&b.webhook_secret);
        let message = Message::initial("a", "b").set("/checkpoint", json!({ "own": 1 })).set(
            "/personalDataPayload",
            json!({ "subjects": [{ "subjectId": "s-1", "data": { "name": "Ada" } }] }),
        );
        a.submit(&message).await.expect(202);
        let delivered = receiver.next().await;
        let tenant = "default".parse().unwrap();
        let id = (message.id().parse().unwrap(), delivered.attempt() as i32, delivered.token());
        let now = SystemClock::default().now();
        let nobody = broker.caller(None);
        let link = links.link(&tenant, id, now);
        let opened = nobody.get(&link).await.expect(200);
        assert_eq!(opened.body, delivered.body, "the body as delivered");
        assert!(opened.body.get("checkpoint").is_none());
        let old = links.link(&tenant, id, Micros(now.0 - 61_000_000));
        nobody.get(&old).await.expect(404);
        let other = ClaimLinks {
            vault: Vault::from_base64(&Vault::new_master_key()).unwrap(),
            ..links.clone()
        };
        nobody.get(&other.link(&tenant, id, now)).await.expect(404);
        nobody.get("/claims/x").await.expect(404);
        let path = "/agents/b";
        let delivery = json!({ "mode": "webhook", "url": receiver.url, "format": "sw4rm" });
        broker.admin.patch(path, &json!({ "delivery": delivery })).await.expect(200);
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let delivered = receiver.next().await;
        let id = (message.id().parse().unwrap(), delivered.attempt() as i32, delivered.token());
        let opened = nobody.get(&links.link(&tenant, id, now)).await.expect(200);
        assert_eq!(opened.body, delivered.body, "in the form that the receiver asked for");
        assert!(opened.body["context_snapshot"].is_string(), "{}", opened.body);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_check_opens_the_body_sqlite() {
    opens(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_check_opens_the_body_postgres() {
    opens(Kind::Postgres).await;
}
