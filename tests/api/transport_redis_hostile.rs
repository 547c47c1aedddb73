//! Receivers and operators who abuse a reply stream or the credentials that are sealed for a server.

use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::harness::until;
use crate::message::Message;
use crate::transport_redis::{REPLIES, Server, entries, pair, reply, send, series};

both! {
    async fn a_reply_that_another_agent_signs_changes_nothing(broker: Broker) {
        let server = Server::start("").await;
        let mut redis = server.connect().await;
        let (a, b) = pair(broker, &server, json!({ "replyTo": REPLIES })).await;
        let config = json!({ "server": server.url(), "stream": "c", "replyTo": REPLIES });
        let delivery = json!({ "mode": "redis", "config": config });
        let c = broker.agent(json!({ "agentId": "c", "delivery": delivery })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let entry = entries(&mut redis, crate::transport_redis::AGENTS_STREAM, 1).await[0].clone();
        // It knows the handoff and its token, and its own secret is good; so does the sender.
        for other in [&c, &a] {
            for verdict in ["accept", "complete", "fail"] {
                let forged = reply(other, &entry, verdict, json!({ "result": 1 })).to_string();
                send(&mut redis, REPLIES, &forged).await;
            }
        }
        send(&mut redis, REPLIES, &reply(&b, &entry, "accept", json!({})).to_string()).await;
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let refused = "handoff_replies_total{result=\"signature\",transport=\"redis\"}";
        until("all are refused", async || {
            let count = series(broker, refused).await;
            if count == 6 { Ok(()) } else { Err(format!("{count}")) }
        })
        .await;
        let kinds = broker.kinds(&message).await;
        assert!(!kinds.iter().any(|kind| kind == "COMPLETED" || kind == "FAILED"), "{kinds:?}");
    }

    // The verdict's time goes on while the replies before it are read.
    with [("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "900000")]
    async fn replies_of_any_size_do_not_hide_the_verdict_behind_them(broker: Broker) {
        let server = Server::start("").await;
        let mut redis = server.connect().await;
        let (a, b) = pair(broker, &server, json!({ "replyTo": REPLIES })).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let entry = entries(&mut redis, crate::transport_redis::AGENTS_STREAM, 1).await[0].clone();
        for _ in 0..70 {
            send(&mut redis, REPLIES, "{}").await;
        }
        let junk = "x".repeat(2 << 20);
        for _ in 0..40 {
            send(&mut redis, REPLIES, &junk).await;
        }
        send(&mut redis, REPLIES, &"x".repeat(11 << 20)).await;
        send(&mut redis, REPLIES, &reply(&b, &entry, "accept", json!({})).to_string()).await;
        // 91 MB are read, which takes an unoptimised build on a busy machine a while: the wait ends by the verdict.
        let mut left = 600;
        while broker.admin.get(&message.path()).await.expect(200).body["status"] != "ACCEPTED" {
            left -= 1;
            assert!(left > 0, "the verdict did not come");
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        let large = "handoff_replies_total{result=\"too_large\",transport=\"redis\"}";
        assert_eq!(series(broker, large).await, 1);
    }

    async fn sealed_credentials_go_to_the_server_that_they_were_given_for(broker: Broker) {
        let server = Server::start("secret-51c8").await;
        pair(broker, &server, json!({})).await;
        let thief = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = json!({
            "server": format!("redis://{}", thief.local_addr().unwrap()), "stream": "s",
        });
        let mut delivery = json!({ "mode": "redis", "config": config });
        let refused = broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await;
        let refused = refused.refused(422, "SCHEMA_INVALID");
        assert_eq!(refused.pointers(), ["/delivery/credentials"]);
        // With credentials of its own the other server gets these.
        delivery["credentials"] = json!({ "password": "other-77ab" });
        broker.admin.patch("/agents/b", &json!({ "delivery": delivery })).await.expect(200);
        let heard = tokio::spawn(async move {
            let (mut stream, _) = thief.accept().await.unwrap();
            let mut said = vec![0; 1024];
            let read = stream.read(&mut said).await.unwrap();
            String::from_utf8_lossy(&said[..read]).into_owned()
        });
        broker.admin.post("/agents/b/delivery/test", &json!({})).await.expect(200);
        let heard = heard.await.unwrap();
        assert!(heard.contains("other-77ab") && !heard.contains("secret-51c8"), "{heard}");
    }
}
