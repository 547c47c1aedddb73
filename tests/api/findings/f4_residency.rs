//! Finding 4.8: where data may go.

use handoffd_evidence::bundle::{VerifyOptions, verify};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Kind, run};
use crate::message::Message;

/// A sender here, and receivers here, elsewhere with a basis, and elsewhere without one.
async fn agents(broker: &Broker) -> Agent {
    let a = broker.pull("a", &["here", "based", "baseless"]).await;
    for (id, region, basis) in
        [("here", "eu", None), ("based", "us", Some("SCC_2021")), ("baseless", "us", None)]
    {
        let spec = json!({ "agentId": id, "region": region, "transferBasis": basis });
        let agent = broker.agent(spec).await;
        let shown = agent.api.get(&format!("/agents/{id}")).await.expect(200).body;
        assert_eq!((&shown["region"], &shown["transferBasis"]), (&json!(region), &json!(basis)));
    }
    a
}

fn crossing(basis: Option<&str>) -> Value {
    let mut crossing = json!({ "party": "receiver", "from": "eu", "to": "us" });
    if let Some(basis) = basis {
        crossing["transferBasis"] = json!(basis);
    }
    json!({ "crossings": [crossing] })
}

both! {
    with [("HANDOFFD_RESIDENCY__REGION", "eu")]
    async fn f4_8_a_crossing_is_recorded_with_its_transfer_basis(broker: Broker) {
        let a = agents(broker).await;
        let at_home = Message::initial("a", "here");
        let said = a.submit(&at_home).await.expect(202);
        assert!(said.body.get("warnings").is_none(), "{}", said.text);
        assert!(broker.trace(&at_home).await["handoffs"][0].get("residency").is_none());
        for (to, basis) in [("based", Some("SCC_2021")), ("baseless", None)] {
            let message = Message::initial("a", to);
            let checked = a.api.post("/handoffs/validate", &message).await.expect(200);
            let said = a.submit(&message).await.expect(202);
            let warning = &said.body["warnings"][0];
            assert_eq!(warning["code"], "RESIDENCY_CROSSING", "{}", said.text);
            assert_eq!(warning["pointer"], "/toAgent");
            let words = warning["message"].as_str().unwrap();
            assert!(words.contains(basis.unwrap_or("without a stated transfer basis")), "{words}");
            assert_eq!(checked.body["warnings"], said.body["warnings"]);
            let trace = broker.trace(&message).await;
            assert_eq!(trace["handoffs"][0]["residency"], crossing(basis), "{trace}");
            assert_eq!(trace["records"][0]["residency"], crossing(basis));
            let path = format!("{}/trace?format=bundle", message.task_path());
            let bundle = broker.admin.request(Method::GET, &path).send().await.unwrap();
            let bytes = bundle.bytes().await.unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            assert!(verify(file.path(), &VerifyOptions::default()).unwrap().first_fault.is_none());
            let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes.to_vec())).unwrap();
            let records = std::io::read_to_string(zip.by_name("records.jsonl").unwrap()).unwrap();
            let first: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
            assert_eq!(first["residency"], crossing(basis), "the regulator sees it, signed");
        }
        let spec = json!({ "agentId": "odd", "transferBasis": "because we may" });
        broker.admin.post("/agents", &spec).await.refused(422, "SCHEMA_INVALID");
        let spec = json!({ "agentId": "odd", "region": "The EU" });
        assert_eq!(broker.admin.post("/agents", &spec).await.status, 422);
    }

    with [("HANDOFFD_RESIDENCY__REGION", "eu"), ("HANDOFFD_RESIDENCY__POLICY", "refuse")]
    async fn f4_8_a_crossing_that_stands_on_nothing_is_refused(broker: Broker) {
        let a = agents(broker).await;
        let message = Message::initial("a", "baseless");
        let refused = a.submit(&message).await.refused(403, "FORBIDDEN");
        assert!(refused.pointers().contains(&"/toAgent"), "{}", refused.text);
        assert!(refused.text.contains("from region eu to region us"), "{}", refused.text);
        a.submit(&Message::initial("a", "here")).await.expect(202);
        let message = Message::initial("a", "based");
        a.submit(&message).await.expect(202);
        assert_eq!(broker.trace(&message).await["handoffs"][0]["residency"], crossing(Some("SCC_2021")));
        // A sender elsewhere brings its data in.
        broker.admin.patch("/agents/a", &json!({ "region": "us" })).await.expect(200);
        let refused = a.submit(&Message::initial("a", "here")).await.refused(403, "FORBIDDEN");
        assert!(refused.pointers().contains(&"/fromAgent"), "{}", refused.text);
        let both = json!({ "transferBasis": "ADEQUACY" });
        broker.admin.patch("/agents/a", &both).await.expect(200);
        a.submit(&Message::initial("a", "here")).await.expect(202);

        let hook = |more: Value| {
            let mut spec = json!({ "url": "http://127.0.0.1:9/hook" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let abroad = hook(json!({ "region": "us" }));
        broker.admin.post("/subscriptions", &abroad).await.refused(403, "FORBIDDEN");
        let based = hook(json!({ "region": "us", "transferBasis": "SCC_2021", "enabled": false }));
        let made = broker.admin.post("/subscriptions", &based).await.expect(201).body;
        assert_eq!(made["warnings"][0]["code"], "RESIDENCY_CROSSING", "{made}");
        assert_eq!((&made["region"], &made["transferBasis"]), (&json!("us"), &json!("SCC_2021")));
        let home = hook(json!({ "enabled": false }));
        let made = broker.admin.post("/subscriptions", &home).await.expect(201).body;
        assert!(made.get("warnings").is_none(), "{made}");
        let path = format!("/subscriptions/{}", made["subscriptionId"].as_str().unwrap());
        broker.admin.patch(&path, &json!({ "region": "jp" })).await.refused(403, "FORBIDDEN");
    }

    with [("HANDOFFD_RESIDENCY__REGION", "eu"), ("HANDOFFD_RESIDENCY__POLICY", "off")]
    async fn f4_8_switched_off_nothing_is_compared(broker: Broker) {
        let a = agents(broker).await;
        let message = Message::initial("a", "baseless");
        assert!(a.submit(&message).await.expect(202).body.get("warnings").is_none());
        assert!(broker.trace(&message).await["handoffs"][0].get("residency").is_none());
    }

    with [("HANDOFFD_RESIDENCY__REGION", "eu"), ("HANDOFFD_RESIDENCY__POLICY", "refuse")]
    async fn f4_8_a_fallback_elsewhere_does_not_take_over(broker: Broker) {
        let a = agents(broker).await;
        let b = broker.pull("b", &[]).await;
        let targets = json!({ "handoffTargets": ["b", "baseless", "based"] });
        broker.admin.patch("/agents/a", &targets).await.expect(200);
        for (version, fallback) in [("1.0.0", "baseless"), ("2.0.0", "based")] {
            let contract = json!({
                "id": "a-to-b", "version": version, "source": "a", "target": "b",
                "trigger": { "intent": "what a found has to be reviewed" },
                "recovery": { "on_reject": fallback, "on_timeout": "source", "on_error": "source",
                    "timeout_ms": 30_000, "max_retries": 0 },
            });
            broker.admin.put("/contracts/a-to-b", &contract).await.expect(201);
            let message = Message::review("a", "b");
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            b.say(&message, "reject", token, json!({ "reason": "NOT_MINE" })).await.expect(200);
            let trace = broker.trace(&message).await;
            let hops = trace["handoffs"].as_array().unwrap();
            if fallback == "based" {
                assert_eq!(hops[1]["toAgent"]["agentId"], "based", "{trace}");
                assert_eq!(hops[1]["residency"], crossing(Some("SCC_2021")));
            } else {
                assert_eq!(hops.len(), 1, "its sender has it back: {trace}");
            }
        }
    }
}

#[test]
fn f4_8_an_archive_elsewhere_needs_a_basis_where_crossings_are_refused() {
    let load = |more: &[(&str, &str)]| {
        let region =
            [("HANDOFFD_RESIDENCY__REGION", "eu"), ("HANDOFFD_RESIDENCY__ARCHIVE_REGION", "us")];
        let all = region
            .iter()
            .chain(more)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        handoffd::config::Config::load(None, all)
    };
    assert!(load(&[]).is_ok());
    let refuse = ("HANDOFFD_RESIDENCY__POLICY", "refuse");
    let said = load(&[refuse]).unwrap_err().to_string();
    assert!(said.contains("residency.archive_region") && said.contains("region us"), "{said}");
    let basis = ("HANDOFFD_RESIDENCY__ARCHIVE_TRANSFER_BASIS", "SCC_2021");
    assert!(load(&[refuse, basis]).is_ok());
}

/// Finding D7 of 0.3.0.
#[test]
fn a_service_elsewhere_that_is_shown_texts_needs_a_basis_where_crossings_are_refused() {
    let services = [
        ("safety.classifier", "HANDOFFD_SAFETY__CLASSIFIER__", ("URL", "http://guard.example/")),
        ("context.model", "HANDOFFD_CONTEXT__MODEL__", ("URL", "http://model.example/")),
        ("routing.matcher", "HANDOFFD_ROUTING__MATCHER__", ("URL", "http://matcher.example/")),
    ];
    for (section, prefix, asked) in services {
        let load = |more: &[(&str, &str)]| {
            let own =
                more.iter().map(|(name, value)| (format!("{prefix}{name}"), (*value).to_owned()));
            let region = [
                ("HANDOFFD_RESIDENCY__REGION", "eu"),
                ("HANDOFFD_RESIDENCY__POLICY", "refuse"),
                ("HANDOFFD_CONTEXT__COMPRESSOR", "model"),
            ];
            let model = ("HANDOFFD_CONTEXT__MODEL__URL", "http://model.example/");
            let all = region
                .iter()
                .chain([&model])
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            handoffd::config::Config::load(None, all.chain(own))
        };
        assert!(load(&[asked]).is_ok(), "{section}: {:?}", load(&[asked]).err());
        let said = load(&[asked, ("REGION", "us")]).unwrap_err().to_string();
        assert!(
            said.contains(&format!("{section}.region")) && said.contains("to region us"),
            "{said}"
        );
        assert!(load(&[asked, ("REGION", "us"), ("TRANSFER_BASIS", "SCC_2021")]).is_ok());
        let said = load(&[asked, ("TRANSFER_BASIS", "because")]).unwrap_err().to_string();
        assert!(said.contains(&format!("{section}.transfer_basis")), "{said}");
    }
}

/// A classifier, and a model that condenses turns, in one: both are elsewhere.
async fn elsewhere(broker: &Broker) {
    let a = broker.pull("a", &["reader"]).await;
    let spec =
        json!({ "agentId": "reader", "contextWindowTokens": 4_000, "contextPolicy": "compress" });
    let reader = broker.agent(spec).await;
    let talk = "the lease was read again and nothing new was found. ".repeat(12);
    let turns: Vec<Value> = (0..80)
        .map(|n| json!({ "role": "user", "content": format!("Turn {n}: {talk}") }))
        .collect();
    let message = Message::review("a", "reader")
        .cost(0.5, 1.0)
        .set("/conversationHistoryVerbatim", json!(turns));
    a.submit(&message).await.expect(202);
    reader.claim_one().await;
    let crossing = |party: &str| json!({ "party": party, "from": "eu", "to": "us", "transferBasis": "SCC_2021" });
    let trace = broker.trace(&message).await;
    let of = |kind: &str| {
        trace["records"]
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["kind"] == kind)
            .cloned()
            .unwrap()
    };
    assert_eq!(
        of("HANDOFF")["safety"]["classifier"]["crossing"],
        crossing("classifier"),
        "{trace}"
    );
    assert_eq!(of("COMPRESSED")["compression"]["crossing"], crossing("model"), "{trace}");
}

/// Finding D7 of 0.3.0.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_that_go_to_a_classifier_or_a_model_elsewhere_are_recorded() {
    let app = axum::Router::new()
        .route("/guard", axum::routing::post(async || axum::Json(json!({ "unsafe": false }))))
        .route(
            "/model",
            axum::routing::post(async || {
                axum::Json(json!({
                    "choices": [{ "message": { "content": "The lease was read." }, "finish_reason": "stop" }],
                    "usage": { "prompt_tokens": 10, "completion_tokens": 5 },
                }))
            }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let (guard, model) = (format!("{base}/guard"), format!("{base}/model"));
    let settings = [
        ("HANDOFFD_RESIDENCY__REGION", "eu"),
        ("HANDOFFD_RESIDENCY__POLICY", "refuse"),
        ("HANDOFFD_SAFETY__CLASSIFIER__URL", guard.as_str()),
        ("HANDOFFD_SAFETY__CLASSIFIER__TIMEOUT_MS", "15000"),
        ("HANDOFFD_SAFETY__CLASSIFIER__REGION", "us"),
        ("HANDOFFD_SAFETY__CLASSIFIER__TRANSFER_BASIS", "SCC_2021"),
        ("HANDOFFD_CONTEXT__COMPRESSOR", "model"),
        ("HANDOFFD_CONTEXT__MODEL__URL", model.as_str()),
        ("HANDOFFD_CONTEXT__MODEL__REGION", "us"),
        ("HANDOFFD_CONTEXT__MODEL__TRANSFER_BASIS", "SCC_2021"),
    ];
    for kind in [Kind::Sqlite, Kind::Postgres] {
        run(kind, &settings, async |broker| elsewhere(broker).await).await;
    }
    server.abort();
}
