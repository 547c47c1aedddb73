//! The broker itself: errors of the frame, health, metrics, the OpenAPI document, schemas.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::Answer;
use crate::message::Message;

both! {
    async fn every_error_is_problem_details_with_a_request_id(broker: Broker) {
        let admin = &broker.admin;
        admin.get("/nowhere").await.refused(404, "NOT_FOUND");
        admin.get("/handoffs/not-a-uuid").await.refused(404, "NOT_FOUND");
        admin.delete("/handoffs").await.refused(405, "METHOD_NOT_ALLOWED");
        let not_allowed = admin.delete("/agents").await;
        assert!(not_allowed.header("allow").contains("GET"), "{not_allowed:?}");
        let plain = admin.request(Method::POST, "/handoffs").body("x").send().await.unwrap();
        Answer::read(plain).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
        let form = admin.request(Method::POST, "/agents").header("content-type", "text/plain").body("{}");
        Answer::read(form.send().await.unwrap()).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
        for path in ["/schemas/handoff/%FF", "/docs/errors/%FF", "/agents/%FF", "/keys/%FF", "/agents?%FF=%FF"] {
            let answer = admin.get(path).await;
            assert!(answer.status < 500, "{path}: {}", answer.text);
        }
        admin.get("/schemas/handoff/9.9").await.refused(404, "NOT_FOUND");
        admin.get("/docs/errors/NOPE").await.refused(404, "NOT_FOUND");
    }

    async fn a_callers_request_id_is_kept_if_it_is_one(broker: Broker) {
        let ask = async |id: &str| {
            let request = broker.admin.request(Method::GET, "/nowhere").header("x-request-id", id);
            Answer::read(request.send().await.unwrap()).await
        };
        assert_eq!(ask("my-id_1.2:3").await.header("x-request-id"), "my-id_1.2:3");
        for bad in ["a b", "\"", "<script>", &"x".repeat(129)] {
            assert_ne!(ask(bad).await.header("x-request-id"), bad);
        }
    }

    async fn every_error_code_has_its_page(broker: Broker) {
        let answer = broker.admin.get("/nowhere").await;
        let page = broker.caller(None).get(answer.body["type"].as_str().unwrap()).await.expect(200);
        assert!(page.header("content-type").starts_with("text/markdown"));
        assert!(page.text.contains("NOT_FOUND"));
    }

    async fn every_route_of_the_document_is_there(broker: Broker) {
        let document = broker.caller(None).get("/openapi.json").await.expect(200).body;
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        let mut count = 0;
        for (template, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys() {
                let id = handoffd::clock::random_id().to_string();
                let mut path = String::new();
                for part in template.split_inclusive('/') {
                    let name = part.trim_end_matches('/');
                    path.push_str(if name.starts_with('{') { &id } else { name });
                    if part.ends_with('/') {
                        path.push('/');
                    }
                }
                let method: Method = method.to_uppercase().parse().unwrap();
                let answer = broker.admin.send(method.clone(), &path, &[], &json!({})).await;
                assert_ne!(answer.status, 405, "{method} {template}");
                assert_ne!(answer.body["detail"], "there is nothing at this path", "{method} {template}");
                let documented = &operations[method.as_str().to_lowercase()]["responses"];
                assert!(
                    documented.get(answer.status.to_string()).is_some(),
                    "{method} {template} answers {}, which the document does not have",
                    answer.status
                );
                count += 1;
            }
        }
        assert!(count >= 38, "{count} operations");
    }

    async fn health_and_docs_need_no_key(broker: Broker) {
        let nobody = broker.caller(None);
        for path in ["/livez", "/readyz"] {
            assert_eq!(nobody.get(path).await.expect(200).text, "ok\n");
        }
        for path in ["/livez?x=1", "/readyz?x=1", "/schemas/events?x=1"] {
            nobody.get(path).await.refused(400, "INVALID_REQUEST");
        }
        nobody.get("/docs/api/").await.expect(200);
        nobody.get("/docs").await.expect(307);
        for path in ["/agents", "/keys", "/handoffs", "/tasks", "/allowlist", "/dead-letters", "/metrics"] {
            nobody.get(path).await.refused(401, "UNAUTHENTICATED");
        }
    }

    // Finding S6 of 0.3.0.
    async fn metrics_tell_each_caller_what_is_its_own(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let c = broker.pull("c", &[]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        let pair = "handoff_pair_handoffs_total{source=\"a\",status=\"ACCEPTED\",target=\"b\"";
        let whole = broker.admin.get("/metrics").await.expect(200);
        assert!(whole.header("content-type").starts_with("text/plain"));
        assert!(whole.text.contains("handoff_build_info{version=") && whole.text.contains(pair), "{}", whole.text);
        assert!(broker.person("operator").await.get("/metrics").await.expect(200).text.contains("handoff_build_info"));
        for caller in [&a.api, &b.api, &broker.person("auditor").await] {
            let own = caller.get("/metrics").await.expect(200).text;
            assert!(own.contains(pair) && !own.contains("handoff_build_info"), "{own}");
        }
        assert_eq!(c.api.get("/metrics").await.expect(200).text, "");
        // An admin of another tenant.
        let made = broker.command(&["key", "create", "--tenant", "other", "--role", "admin"]).await;
        assert!(made.status.success(), "{made:?}");
        let other = broker.caller(Some(String::from_utf8(made.stdout).unwrap().trim()));
        assert_eq!(other.get("/metrics").await.expect(200).text, "");
    }

    with [("HANDOFFD_SERVER__MAX_WAITS", "16")]
    // Finding S5 of 0.3.0: the places of one agent's waits left none for anybody else.
    async fn an_agent_that_waits_without_end_leaves_places_for_others(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let c = broker.pull("c", &[]).await;
        let loud: Vec<_> = (0..12)
            .map(|_| {
                let a = a.clone();
                tokio::spawn(async move { a.api.get("/agents/a/inbox?wait=60").await })
            })
            .collect();
        // Of 16 places one agent holds 9 at the most; all its requests have come once the others are refused.
        crate::harness::until("the loud agent is over its share", async || {
            let refused = broker.metric("handoff_pool_refusals_total").await;
            if refused >= 3 { Ok(()) } else { Err(refused.to_string()) }
        })
        .await;
        for other in [(&b, "b"), (&c, "c")] {
            other.0.api.get(&format!("/agents/{}/inbox", other.1)).await.expect(200);
        }
        let again = a.api.get("/agents/a/inbox").await;
        assert_eq!(again.status, 429, "{}", again.text);
        assert!(again.text.contains("server.max_waits") && again.text.contains("its share"), "{}", again.text);
        assert!(!again.header("retry-after").is_empty());
        for one in loud {
            one.abort();
        }
    }

    async fn the_schemas_are_served_and_describe_what_is_taken(broker: Broker) {
        let nobody = broker.caller(None);
        let list = nobody.get("/schemas").await.expect(200).body;
        let hrefs: Vec<&str> = list["items"].as_array().unwrap().iter().map(|item| item["href"].as_str().unwrap()).collect();
        assert_eq!(hrefs, ["/schemas/handoff/2.0", "/schemas/handoff/2.1", "/schemas/handoff/2.2"]);
        for (href, message) in [(hrefs[0], Message::old("a", "b")), (hrefs[1], Message::initial("a", "b"))] {
            let answer = nobody.get(href).await.expect(200);
            assert_eq!(answer.header("content-type"), "application/schema+json");
            assert_eq!(answer.body["$schema"], "https://json-schema.org/draft/2020-12/schema");
            let validator = jsonschema::validator_for(&answer.body).unwrap();
            assert!(validator.is_valid(&message.0));
            assert!(!validator.is_valid(&json!({})));
        }
        nobody.get("/schemas/handoff/2.0.0").await.expect(200);
    }

    async fn what_happens_is_counted(broker: Broker) {
        let (a, _, _receiver) = broker.pair(vec![crate::receiver::bare(500)]).await;
        let message = Message::initial("a", "b");
        a.submit_and_wait(&message).await.expect(200);
        a.submit(&message).await.expect(202);
        a.submit(&message.again().cost(0.0, 0.0)).await.refused(422, "BUDGET_EXHAUSTED");
        let text = broker.admin.metrics().await;
        for line in [
            "handoff_submissions_total{result=\"accepted\"} 1",
            "handoff_submissions_total{result=\"replayed\"} 1",
            "handoff_submissions_total{result=\"refused\"} 1",
            "handoff_rejections_total{reason=\"BUDGET_EXHAUSTED\"} 1",
            "handoff_store_up 1",
            "handoff_outbox_depth 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(!text.contains(&message.id()) && !text.contains(&message.task()), "ids are no labels");
    }

    with [("HANDOFFD_SERVER__HEADER_TIMEOUT_MS", "300")]
    async fn who_never_ends_its_headers_is_cut_off(broker: Broker) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let address = broker.admin.base.trim_start_matches("http://").to_owned();
        let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
        let mut rest = Vec::new();
        crate::harness::within("the cut", slow.read_to_end(&mut rest)).await.ok();
        broker.caller(None).get("/livez").await.expect(200);
    }

    async fn an_empty_key_is_no_key(broker: Broker) {
        for name in ["x-api-key", "authorization"] {
            let request = broker.caller(None).request(Method::GET, "/agents").header(name, "");
            Answer::read(request.send().await.unwrap()).await.refused(401, "UNAUTHENTICATED");
        }
    }

    async fn an_agent_sees_nobody_elses_addresses(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let change = json!({
            "callbackUrl": "https://b.example/SECRET", "metadata": {"note": "SECRET"},
            "delivery": {"mode": "webhook", "url": "https://b.example/SECRET"},
        });
        broker.admin.patch("/agents/b", &change).await.expect(200);
        for path in ["/agents", "/agents/b"] {
            assert!(!a.api.get(path).await.expect(200).text.contains("SECRET"), "{path}");
            assert!(b.api.get(path).await.expect(200).text.contains("SECRET"), "{path}");
        }
    }

    with [("HANDOFFD_SERVER__MAX_WAITS", "2")]
    async fn more_waits_than_places_are_told_to_come_again_and_hold_up_nobody(broker: Broker) {
        let (_a, b) = broker.pull_pair().await;
        broker.expect_unavailable();
        let polls: Vec<_> = (0..2)
            .map(|_| {
                let b = b.clone();
                // The test's own probing may have the place just then.
                tokio::spawn(async move {
                    loop {
                        let answer = b.api.get("/agents/b/inbox?wait=3").await;
                        if answer.status != 503 {
                            return answer;
                        }
                    }
                })
            })
            .collect();
        crate::harness::until("the places for waits are taken", async || {
            let answer = b.api.get("/agents/b/inbox").await;
            if answer.status == 503 { Ok(answer.refused(503, "OVERLOADED")) } else { Err(answer.text) }
        })
        .await;
        // Who waits takes no place from those at work.
        broker.admin.get("/agents").await.expect(200);
        broker.caller(None).get("/livez").await.expect(200);
        for poll in polls {
            poll.await.unwrap().expect(200);
        }
    }

    async fn reading_a_dead_letter_needs_an_id_that_is_one(broker: Broker) {
        let nothing = Message::initial("a", "b");
        broker.admin.get(&format!("/dead-letters/{}", nothing.id())).await.refused(404, "NOT_FOUND");
        let empty: Value = broker.admin.get("/dead-letters?status=OPEN").await.expect(200).body;
        assert_eq!(empty["items"], json!([]));
    }
}
