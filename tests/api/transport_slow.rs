//! Servers of SQS and Temporal that take requests and answer nothing for a while.

use serde_json::json;

use crate::harness::{Kind, run, until};
use crate::message::Message;
use crate::{transport_sqs, transport_temporal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_slow_get_the_handoffs_once_they_answer() {
    let Some(sqs) = transport_sqs::Server::start().await else { return };
    let Some(temporal) = transport_temporal::Server::start().await else { return };
    let queue = sqs.queue("slow.fifo").await;
    let settings =
        [("HANDOFFD_DELIVERY__RETRY_CAP_MS", "50"), ("HANDOFFD_DELIVERY__POLL_MS", "100")];
    run(Kind::Sqlite, &settings, async |broker| {
        let a = broker.pull("a", &["s", "t"]).await;
        let keys = json!({ "accessKeyId": "k", "secretAccessKey": "s" });
        for (id, mode, config, credentials) in [
            ("s", "sqs", transport_sqs::config(&queue), keys),
            ("t", "temporal", transport_temporal::config(&temporal.address()), json!({})),
        ] {
            let delivery = json!({
                "mode": mode, "config": config, "credentials": credentials, "timeoutMs": 500,
            });
            broker.agent(json!({ "agentId": id, "delivery": delivery })).await;
        }
        sqs.program.freeze(true).await;
        temporal.program.freeze(true).await;
        let (to_sqs, to_temporal) = (Message::initial("a", "s"), Message::initial("a", "t"));
        for (message, mode) in [(&to_sqs, "sqs"), (&to_temporal, "temporal")] {
            a.submit(message).await.expect(202);
            let away =
                format!("handoff_delivery_attempts_total{{outcome=\"away\",transport=\"{mode}\"}}");
            until("an attempt finds it away", async || {
                let page = broker.admin.metrics().await;
                let there =
                    page.lines().any(|line| line.starts_with(&away) && !line.ends_with(" 0"));
                if there { Ok(()) } else { Err(mode.to_owned()) }
            })
            .await;
            broker.handoff_becomes(message, "PENDING").await;
        }
        let test = broker.admin.post("/agents/s/delivery/test", &json!({})).await.expect(200).body;
        assert_eq!(
            (&test["delivered"], &test["failure"]),
            (&json!(false), &json!("timeout")),
            "{test}"
        );
        sqs.program.freeze(false).await;
        temporal.program.freeze(false).await;
        sqs.messages(&queue, 1).await;
        until("the signal", async || {
            let signals = temporal.signals(&transport_temporal::workflow(&to_temporal)).await;
            if signals.is_empty() { Err("none".to_owned()) } else { Ok(()) }
        })
        .await;
    })
    .await;
}
