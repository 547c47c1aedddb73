//! `POST /handoffs`: the commit, replays, `Prefer: wait`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::join_all;
use handoffd_evidence::merkle::{Hash, verify_inclusion};
use handoffd_evidence::note::{Note, TreeHead};
use reqwest::Method;
use serde_json::json;

use crate::harness::Answer;
use crate::message::Message;
use crate::receiver::bare;

both! {
    async fn a108_a_whole_flow_is_in_the_trace_with_its_agents_and_task(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        let answer = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(answer.body["status"], "ACCEPTED");
        let delivery = receiver.next().await;
        b.say(&message, "complete", delivery.token(), json!({ "result": { "score": 3 } }))
            .await
            .expect(200);
        let trace = broker.trace(&message).await;
        let handoffs = trace["handoffs"].as_array().unwrap();
        assert_eq!(handoffs.len(), 1);
        assert_eq!(handoffs[0]["fromAgent"]["agentId"], "a");
        assert_eq!(handoffs[0]["toAgent"]["agentId"], "b");
        assert_eq!(handoffs[0]["taskId"], message["taskId"]);
        assert_eq!(handoffs[0]["status"], "COMPLETED");
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        let leaf = |place: usize| trace["records"][place]["leafIndex"].as_i64().unwrap();
        assert!(leaf(0) < leaf(1) && leaf(1) < leaf(2));
        assert_eq!(handoffs[0]["leafIndex"], answer.body["receipt"]["leafIndex"]);
    }

    async fn a_submission_is_answered_with_its_receipt_and_links(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        let answer = a.submit(&message).await.expect(202);
        assert_eq!(answer.header("location"), message.path());
        assert_eq!(answer.body["handoffId"], message["handoffId"]);
        assert_eq!(answer.body["taskId"], message["taskId"]);
        assert_eq!(answer.body["status"], "PENDING");
        assert_eq!(answer.body["links"]["self"], message.path());
        let trace = answer.body["links"]["trace"].as_str().unwrap();
        a.api.get(trace).await.expect(200);
        let receipt = &answer.body["receipt"];
        assert!(receipt["recordHash"].as_str().unwrap().starts_with("sha256:"));
        assert!(receipt["leafIndex"].is_i64() && receipt["logId"].is_string());
        let note = receipt["treeHead"].as_str().unwrap();
        let head = TreeHead::parse(&Note::parse(note).unwrap().text).unwrap();
        assert_eq!(head.origin, format!("handoffd/{}", receipt["logId"].as_str().unwrap()));
        let proof: Vec<Hash> = receipt["inclusionProof"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hash| BASE64.decode(hash.as_str().unwrap()).unwrap().try_into().unwrap())
            .collect();
        let leaf = hex::decode(&receipt["recordHash"].as_str().unwrap()["sha256:".len()..]);
        let leaf: Hash = leaf.unwrap().try_into().unwrap();
        let index = receipt["leafIndex"].as_u64().unwrap();
        verify_inclusion(&leaf, index, head.size, &proof, &head.root).unwrap();
        let keys = broker.admin.get("/audit/keys").await.expect(200).body;
        let key = keys["keys"][0]["key"].as_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("answer.json");
        for (answer, outcome) in [(answer.text.clone(), 0), (answer.text.replace("sha256:", "sha256:0"), 3)] {
            std::fs::write(&file, answer).unwrap();
            let verified = broker.command(&["verify", file.to_str().unwrap(), "--key", &key]).await;
            assert_eq!(verified.status.code(), Some(outcome), "{verified:?}");
        }
        let read = a.api.get(&message.path()).await.expect(200).body;
        assert_eq!(read["receipt"], *receipt);
        assert_eq!(read["message"], json!(null), "only where it is asked for");
        let shown = a.api.get(&format!("{}?include=message", message.path())).await.expect(200);
        assert_eq!(shown.body["message"], message.0);
    }

    async fn the_same_body_again_is_answered_as_the_first_time(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        let first = a.submit(&message).await.expect(202);
        assert_eq!(first.header("idempotency-replayed"), "");
        broker.handoff_becomes(&message, "ACCEPTED").await;
        let size = broker.log_size().await;
        // Another order of members is the same canonical body.
        let text = serde_json::to_string_pretty(&message.0).unwrap();
        let second = a.api.raw("/handoffs", text).await.expect(202);
        assert_eq!(second.header("idempotency-replayed"), "true");
        assert_eq!(second.header("location"), first.header("location"));
        assert_eq!(second.text, first.text);
        assert_eq!(broker.log_size().await, size);
        assert_eq!(receiver.all().len(), 1);
    }

    async fn the_same_id_with_another_body_is_a_conflict(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let other = message.clone().set("/reason", json!("another"));
        a.submit(&other).await.refused(409, "CONFLICT");
        a.submit(&message.set("/taskId", json!(handoffd::clock::random_id())))
            .await
            .refused(409, "CONFLICT");
    }

    async fn an_idempotency_key_stands_for_one_payload(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        let bare = [("Idempotency-Key", "key-1")];
        let first = a.api.submit_with(&message, &bare).await.expect(202);
        let quoted = [("Idempotency-Key", "\"key-1\"")];
        let again = a.api.submit_with(&message, &quoted).await.expect(202);
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!(again.text, first.text);
        a.api.submit_with(&message.again(), &bare).await.refused(422, "CONFLICT");
        a.api.submit_with(&message.again(), &[("Idempotency-Key", "")])
            .await
            .refused(400, "INVALID_REQUEST");
        // Keys are each agent's own.
        broker.admin.put("/agents/b/handoff-targets", &json!(["a"])).await.expect(200);
        b.api.submit_with(&Message::initial("b", "a"), &bare).await.expect(202);
    }

    async fn a_hundred_copies_at_once_are_one_handoff(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        let answers = join_all((0..100).map(|_| a.submit(&message))).await;
        let replays =
            answers.iter().filter(|answer| answer.header("idempotency-replayed") == "true").count();
        assert_eq!(replays, 99);
        for answer in &answers {
            assert_eq!((answer.status, &answer.body), (202, &answers[0].body));
        }
        broker.handoff_becomes(&message, "ACCEPTED").await;
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED"]);
        assert_eq!(receiver.all().len(), 1);
    }

    async fn a_handoff_to_oneself_is_recorded_and_not_delivered(broker: Broker) {
        let a = broker.pull("a", &[]).await;
        let message = Message::initial("a", "a");
        let answer = a.submit(&message).await.expect(200);
        assert_eq!(answer.body["status"], "NO_OP");
        assert_eq!(broker.kinds(&message).await, ["NO_OP"]);
        let again = a.submit(&message).await.expect(200);
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!(again.body, answer.body);
        let inbox = a.api.get("/agents/a/inbox").await.expect(200);
        assert_eq!(inbox.body["items"], json!([]));
    }

    async fn prefer_wait_holds_the_answer_for_the_verdict(broker: Broker) {
        let (a, _, _receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        let answer = a.api.submit_with(&message, &[("Prefer", "wait=20")]).await.expect(200);
        assert_eq!(answer.body["status"], "ACCEPTED");
        assert_eq!(answer.header("preference-applied"), "wait=20");
        let again = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(again.body["status"], "ACCEPTED");
        assert_eq!(again.header("idempotency-replayed"), "true");
    }

    async fn prefer_wait_tells_a_rejection_and_its_reason(broker: Broker) {
        let no = crate::receiver::answer(200, &json!({ "status": "REJECTED", "reason": "BUSY" }));
        let (a, _, _receiver) = broker.pair(vec![no]).await;
        let answer = a.submit_and_wait(&Message::initial("a", "b")).await.expect(200);
        assert_eq!((&answer.body["status"], &answer.body["reason"]), (&json!("REJECTED"), &json!("BUSY")));
    }

    async fn prefer_wait_runs_out(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let headers = [("Prefer", "respond-async, wait=1")];
        let answer = a.api.submit_with(&Message::initial("a", "b"), &headers).await.expect(202);
        assert_eq!(answer.body["status"], "PENDING");
        assert_eq!(answer.header("preference-applied"), "");
    }

    async fn prefer_wait_must_be_whole_seconds(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        for bad in ["wait=soon", "wait=-1", "wait=1.5", "wait="] {
            let message = Message::initial("a", "b");
            a.api.submit_with(&message, &[("Prefer", bad)]).await.refused(400, "INVALID_REQUEST");
            broker.admin.get(&message.path()).await.refused(404, "NOT_FOUND");
        }
    }

    async fn an_ended_task_takes_no_more_handoffs(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![]).await;
        let message = Message::initial("a", "b");
        a.submit_and_wait(&message).await.expect(200);
        b.say(&message, "complete", receiver.next().await.token(), json!({})).await.expect(200);
        let done = format!("{}/complete", message.task_path());
        b.api.post(&done, &json!({ "output": 1 })).await.expect(200);
        assert_eq!(broker.task(&message).await["status"], "COMPLETED");
        a.submit(&message.next("a", "b")).await.refused(409, "CONFLICT");
    }

    async fn a_key_may_come_in_either_header(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        let key = a.api.key.clone().unwrap();
        let nobody = broker.caller(None);
        let request = nobody.request(Method::POST, "/handoffs").header("X-API-Key", &key);
        let sent = request.json(&Message::initial("a", "b").0).send().await.unwrap();
        Answer::read(sent).await.expect(202);
        nobody.post("/handoffs", &Message::initial("a", "b")).await.refused(401, "UNAUTHENTICATED");
        broker
            .caller(Some("hd_nobody"))
            .post("/handoffs", &Message::initial("a", "b"))
            .await
            .refused(401, "UNAUTHENTICATED");
    }

    async fn a_person_cannot_hand_off_in_an_agents_name(broker: Broker) {
        let (_a, _b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        broker.admin.post("/handoffs", &message).await.refused(403, "FORBIDDEN");
        assert_eq!(broker.kinds(&message).await, ["REFUSED"]);
    }

    async fn another_agents_handoff_cannot_be_replayed(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        b.submit(&message).await.refused(403, "FORBIDDEN");
        broker.admin.post("/handoffs", &message).await.refused(403, "FORBIDDEN");
        a.submit(&message).await.expect(202);
    }

    async fn a_handoff_survives_a_restart_and_is_delivered_once(broker: Broker) {
        let (a, _, receiver) = broker.pair(vec![bare(503), bare(503)]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        receiver.next().await;
        let admin = broker.restart().await;
        crate::harness::until("it is accepted after the restart", async || {
            let found = admin.get(&message.path()).await.expect(200).body;
            if found["status"] == "ACCEPTED" { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        let answered: Vec<u32> =
            receiver.all().iter().map(crate::receiver::Delivery::attempt).collect();
        assert_eq!(answered, [1, 2, 3]);
    }
}
