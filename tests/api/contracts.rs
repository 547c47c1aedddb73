//! Contracts from outside: put, read, linted, and held against every message of their edge.

use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::lint::{LintContext, LintSubject, SchemaFile, lint};
use handoffd_gate::contract::{BUILTIN_TOOLS, report};
use serde_json::{Value, json};

use crate::harness::{Agent, Answer, Broker, Caller, until, within};
use crate::message::Message;
use crate::receiver::bare;

const EXAMPLE: &str = include_str!("../contracts/triage-to-refunds.yaml");

/// The worked example, with a payload schema that takes everything.
fn example() -> Value {
    let document = handoffd_gate::contract::document::Document::parse(EXAMPLE).unwrap();
    let mut contract = document.value().clone();
    contract["schemas"] = json!({ "schemas/refund-handoff@1.2.0.json": { "type": "object" } });
    contract
}

async fn put(caller: &Caller, contract: &Value) -> Answer {
    caller.put(&format!("/contracts/{}", contract["id"].as_str().unwrap()), contract).await
}

async fn parties(broker: &Broker) -> (Agent, Agent) {
    broker.pull("lead", &[]).await;
    let triage = broker
        .agent(json!({
            "agentId": "triage-agent", "handoffTargets": ["refund-agent"], "supervisorId": "lead",
        }))
        .await;
    let refund = broker
        .agent(json!({
            "agentId": "refund-agent", "agentType": "refund", "domains": ["billing"],
            "permissions": ["perm:refund:read"],
        }))
        .await;
    (triage, refund)
}

fn message() -> Message {
    Message::review("triage-agent", "refund-agent")
        .set("/taskSummary", json!("Refund order 7"))
        .set("/provenance", json!({ "order_id": "7", "message_ids": ["m-1"] }))
        .set("/historyStrategy", json!("summary"))
        .set("/constraints", json!(["policy_window_days:30"]))
        .set("/currentState", json!({ "intent": "refund", "confidence": 0.9 }))
}

/// Another order of the same kind, on a task of its own.
fn order(number: &str) -> Message {
    message().set("/provenance", json!({ "order_id": number, "message_ids": ["m-1"] }))
}

/// The agent finds a handoff that replaces the failed one in its inbox, and takes the task.
async fn takes_over(broker: &Broker, agent: &Agent, failed: &Message, how: &str) {
    let item = until("a handoff in its place", async || {
        let mut items = agent.claim(1).await;
        items.pop().ok_or_else(|| "nothing in the inbox".to_owned())
    })
    .await;
    let id = item["handoffId"].as_str().unwrap();
    assert_ne!(id, failed.id(), "a handoff of its own");
    let row = broker.admin.get(&format!("/handoffs/{id}")).await.expect(200).body;
    assert_eq!(row["parentHandoffId"], failed.id());
    let token = item["fencingToken"].to_string();
    let header = [("handoff-fencing-token", token.as_str())];
    let path = format!("/handoffs/{id}/accept");
    agent.api.send(reqwest::Method::POST, &path, &header, &json!({})).await.expect(200);
    assert_eq!(broker.task(failed).await["holder"], agent.id);
    let kinds = broker.kinds(failed).await;
    assert!(kinds.iter().any(|kind| kind == how), "{kinds:?}");
}

both! {
    async fn a_contract_is_kept_in_all_its_versions(broker: Broker) {
        let (triage, _) = parties(broker).await;
        let operator = broker.person("operator").await;
        let made = put(&operator, &example()).await.expect(201).body;
        assert_eq!((&made["version"], &made["meta"]["level"]), (&json!("1.2.0"), &json!("L2")));
        assert_eq!(made["meta"]["findings"], json!([]));
        put(&operator, &example()).await.expect(200);
        let mut other = example();
        other["recovery"]["timeout_ms"] = json!(10_000);
        put(&operator, &other).await.refused(409, "CONFLICT");
        other["version"] = json!("1.10.0");
        put(&operator, &other).await.expect(201);
        let path = "/contracts/triage-to-refunds-v1";
        let latest = triage.api.get(path).await.expect(200).body;
        assert_eq!(latest["version"], "1.10.0");
        assert_eq!(latest["recovery"]["timeout_ms"], 10_000);
        assert_eq!(latest["meta"]["versions"], json!(["1.2.0", "1.10.0"]));
        let first = triage.api.get(&format!("{path}?version=1.2.0")).await.expect(200).body;
        assert_eq!(first["recovery"]["timeout_ms"], 30_000);
        triage.api.get(&format!("{path}?version=9.9.9")).await.refused(404, "NOT_FOUND");
        let items = operator.get("/contracts?target=refund-agent").await.expect(200).body;
        assert_eq!(items["items"].as_array().unwrap().len(), 1);
        // Who puts, and who may see.
        put(&triage.api, &example()).await.refused(403, "FORBIDDEN");
        put(&broker.person("auditor").await, &example()).await.refused(403, "FORBIDDEN");
        let stranger = broker.pull("stranger", &[]).await;
        stranger.api.get(path).await.refused(404, "NOT_FOUND");
        assert_eq!(stranger.api.get("/contracts").await.expect(200).body["items"], json!([]));
    }

    // FINDINGS G6 of 0.3.0
    async fn a_clause_without_effect_is_told_when_it_is_put(broker: Broker) {
        let warns = |put: &Answer, why: &str| {
            put.body["meta"]["findings"].as_array().unwrap().iter().any(|one| {
                one["rule"] == "without-effect" && one["message"].as_str().unwrap().contains(why)
            })
        };
        for (patch, tool) in BUILTIN_TOOLS.into_iter().enumerate() {
            let mut taken = example();
            taken["version"] = json!(format!("2.0.{patch}"));
            taken["trigger"]["tool_call"] = json!(tool);
            let put = put(&broker.admin, &taken).await.expect(201);
            assert!(warns(&put, "a tool of the broker has this name"), "{tool}: {}", put.text);
        }
        for name in ["refund-agent", "refund"] {
            let mut itself = example();
            itself["id"] = json!(format!("{name}-to-itself"));
            (itself["source"], itself["target"]) = (json!(name), json!(name));
            let put = put(&broker.admin, &itself).await.expect(201);
            assert!(warns(&put, "no handoff of one agent to itself"), "{name}: {}", put.text);
        }
    }

    async fn what_cannot_be_enforced_is_not_kept(broker: Broker) {
        let size = broker.log_size().await;
        let mut wrong = example();
        wrong["trigger"]["predicate"] = json!("state.intent ==");
        wrong["recovery"]["on_reject"] = json!("no such way");
        wrong["schemas"] = json!({ "s": { "$ref": "https://elsewhere.example/s.json" } });
        let answer = put(&broker.admin, &wrong).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/trigger/predicate", "/recovery/on_reject", "/schemas/s"]);
        let answer = broker.admin.put("/contracts/another-name", &example()).await;
        assert_eq!(answer.refused(422, "SCHEMA_INVALID").pointers(), ["/id"]);
        let yaml = broker.admin.request(reqwest::Method::PUT, "/contracts/triage-to-refunds-v1");
        let yaml = yaml.header("content-type", "application/yaml").body("id: a\n b: c\n");
        assert_eq!(yaml.send().await.unwrap().status(), 400);
        assert_eq!(broker.log_size().await, size);
        let yaml = broker.admin.request(reqwest::Method::PUT, "/contracts/triage-to-refunds-v1");
        let text = format!("{EXAMPLE}schemas: {{./schemas/refund-handoff@1.2.0.json: {{type: object}}}}\n");
        let yaml = yaml.header("content-type", "application/yaml").body(text);
        assert_eq!(yaml.send().await.unwrap().status(), 201);
        assert_eq!(broker.log_size().await, size + 1);
    }

    async fn c20_a_message_that_breaks_a_clause_is_refused_and_the_clause_named(broker: Broker) {
        let (triage, _) = parties(broker).await;
        triage.submit(&message().without("/provenance")).await.expect(202);
        put(&broker.admin, &example()).await.expect(201);
        triage.submit(&message()).await.expect(202);
        let cases = [
            (message().set("/currentState/confidence", json!(0.2)), "trigger.predicate", "/currentState"),
            (message().without("/currentState/confidence"), "trigger.predicate", "/currentState"),
            (message().set("/provenance", json!({ "message_ids": ["m-1"] })), "acceptance_criteria.required_fields", "/provenance/order_id"),
            (message().set("/constraints", json!([])), "payload.required", "/constraints/policy_window_days"),
            (message().set("/historyStrategy", json!("full")), "payload.history_strategy", "/historyStrategy"),
        ];
        for (broken, clause, pointer) in cases {
            let answer = triage.submit(&broken).await.refused(422, "CONTRACT_VIOLATION");
            assert_eq!(answer.pointers(), [pointer], "{}", answer.text);
            assert!(answer.body["failures"][0]["message"].as_str().unwrap().contains(clause));
            assert_eq!(answer.body["failures"][0]["stage"], "contract");
        }
        let patch = json!({ "domains": [], "permissions": [] });
        broker.admin.patch("/agents/refund-agent", &patch).await.expect(200);
        let answer = triage.submit(&message()).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/toAgent", "/toAgent"]);
        let around = message().set("/currentState/visited_agents", json!(["refund-agent"]));
        let answer = triage.submit(&around).await.refused(422, "LOOP_DETECTED");
        assert!(answer.codes().contains(&"CONTRACT_VIOLATION"));
    }

    async fn records_of_an_edge_name_its_contract(broker: Broker) {
        let (triage, _) = parties(broker).await;
        put(&broker.admin, &example()).await.expect(201);
        let sent = message();
        triage.submit(&sent).await.expect(202);
        let trace = broker.trace(&sent).await;
        let record = trace["records"].as_array().unwrap().iter().find(|one| one["kind"] == "HANDOFF").unwrap();
        assert_eq!(record["contract"], json!({ "id": "triage-to-refunds-v1", "version": "1.2.0" }));
    }

    async fn c14_a_payload_schema_comes_with_its_contract(broker: Broker) {
        let (triage, _) = parties(broker).await;
        let mut contract = example();
        contract["schemas"] = json!({ "schemas/refund-handoff@1.2.0.json": {
            "type": "object",
            "properties": { "provenance": { "properties": { "order_id": { "pattern": "^[0-9]+$" } } } },
        } });
        put(&broker.admin, &contract).await.expect(201);
        triage.submit(&message()).await.expect(202);
        let answer = triage.submit(&order("seven")).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/provenance/order_id"]);
    }

    async fn x20_a_repeat_within_the_window_is_answered_with_the_first(broker: Broker) {
        let (triage, refund) = parties(broker).await;
        put(&broker.admin, &example()).await.expect(201);
        let first = order("7");
        triage.submit(&first).await.expect(202);
        let again = triage.submit(&order("7")).await.expect(202);
        assert_eq!(again.body["handoffId"], first["handoffId"]);
        assert_eq!(again.header("idempotency-replayed"), "true");
        let other = triage.submit(&order("8")).await.expect(202);
        assert_ne!(other.body["handoffId"], first["handoffId"]);
        assert_eq!(refund.claim(10).await.len(), 2);
        // The id goes first: another message under the same id is a conflict, not a repeat.
        triage.submit(&order("7").set("/handoffId", first["handoffId"].clone())).await.refused(409, "CONFLICT");
    }

    async fn x20_of_many_repeats_at_once_one_is_committed(broker: Broker) {
        let (triage, refund) = parties(broker).await;
        put(&broker.admin, &example()).await.expect(201);
        let sent: Vec<Message> = (0..12).map(|_| order("7")).collect();
        let answers = futures_util::future::join_all(sent.iter().map(|message| triage.submit(message))).await;
        let ids: std::collections::BTreeSet<String> = answers
            .into_iter()
            .map(|answer| answer.expect(202).body["handoffId"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids.len(), 1);
        assert_eq!(refund.claim(10).await.len(), 1);
    }

    async fn a_mended_message_with_the_same_value_is_taken_after_a_bad_end(broker: Broker) {
        // Finding G2 of 0.3.0.
        let (triage, refund) = parties(broker).await;
        let mut by_source = example();
        by_source["recovery"]["on_reject"] = json!("source");
        put(&broker.admin, &by_source).await.expect(201);
        let first = order("7");
        triage.submit(&first).await.expect(202);
        let token = refund.claim_one().await;
        refund.say(&first, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        let mended = order("7");
        let answer = triage.submit(&mended).await.expect(202);
        assert_eq!(answer.body["handoffId"], mended["handoffId"]);
        assert_eq!(answer.header("idempotency-replayed"), "");
        // It is open, then accepted, then completed: the value is used, and the answer tells its state.
        for (verb, status) in [("", "PENDING"), ("accept", "ACCEPTED"), ("complete", "COMPLETED")] {
            if verb == "accept" {
                refund.claim_one().await;
            }
            if !verb.is_empty() {
                let shown = broker.admin.get(&mended.path()).await.expect(200).body;
                let token = shown["fencingToken"].as_i64().unwrap();
                refund.say(&mended, verb, token, json!({})).await.expect(200);
            }
            let again = triage.submit(&order("7")).await.expect(202);
            assert_eq!(again.header("idempotency-replayed"), "true");
            assert_eq!((&again.body["handoffId"], &again.body["status"]), (&mended["handoffId"], &json!(status)));
        }
    }

    // FINDINGS K6
    async fn a_key_whose_answer_the_dedupe_key_gave_is_kept(broker: Broker) {
        let (triage, refund) = parties(broker).await;
        let mut by_source = example();
        by_source["recovery"]["on_reject"] = json!("source");
        put(&broker.admin, &by_source).await.expect(201);
        let (first, repeat) = (order("7"), order("7"));
        triage.submit(&first).await.expect(202);
        let key = [("idempotency-key", "k-1")];
        for _ in 0..2 {
            let again = triage.api.submit_with(&repeat, &key).await.expect(202);
            assert_eq!((&again.body["handoffId"], again.header("idempotency-replayed")), (&first["handoffId"], "true"));
        }
        triage.api.submit_with(&order("8"), &key).await.refused(422, "CONFLICT");
        // Once the first use is over, the same message under its key goes out.
        let token = refund.claim_one().await;
        refund.say(&first, "reject", token, json!({ "reason": "NO" })).await.expect(200);
        let sent = triage.api.submit_with(&repeat, &key).await.expect(202);
        assert_eq!(sent.body["handoffId"], repeat["handoffId"]);
        let again = triage.api.submit_with(&repeat, &key).await.expect(202);
        assert_eq!((&again.body["handoffId"], again.header("idempotency-replayed")), (&repeat["handoffId"], "true"));
    }

    // FINDINGS G2 of 0.3.0
    async fn after_its_window_a_dedupe_key_answers_what_it_answered_under_an_idempotency_key(broker: Broker) {
        let (triage, refund) = parties(broker).await;
        let mut contract = example();
        put(&broker.admin, &contract).await.expect(201);
        let (first, repeat) = (order("7"), order("7"));
        triage.submit(&first).await.expect(202);
        let key = [("idempotency-key", "k-1")];
        let send = async || triage.api.submit_with(&repeat, &key).await.expect(202);
        assert_eq!(send().await.body["handoffId"], first["handoffId"]);
        contract["version"] = json!("9.0.0");
        contract["idempotency"]["replay_window_ms"] = json!(1);
        put(&broker.admin, &contract).await.expect(201);
        let again = send().await;
        let answered = (&again.body["handoffId"], again.header("idempotency-replayed"));
        assert_eq!(answered, (&first["handoffId"], "true"), "a repeat under a key makes no handoff");
        // A message without the key is another handoff.
        let later = order("7");
        assert_eq!(triage.submit(&later).await.expect(202).body["handoffId"], later["handoffId"]);
        let claimed = refund.claim(9).await.len();
        assert_eq!(claimed, 2, "the first and the later one, and not the repeat");
        broker.admin.get(&repeat.path()).await.expect(404);
    }

    async fn another_agent_of_the_type_hears_of_no_handoff_that_it_cannot_read(broker: Broker) {
        parties(broker).await;
        let mut by_type = example();
        by_type["source"] = json!("triage");
        put(&broker.admin, &by_type).await.expect(201);
        let mut triages = Vec::new();
        for id in ["t-1", "t-2"] {
            let spec = json!({ "agentId": id, "agentType": "triage", "handoffTargets": ["refund-agent"] });
            triages.push(broker.agent(spec).await);
        }
        let of = |id: &str| order("7").set("/fromAgent/agentId", json!(id));
        let first = of("t-1");
        triages[0].submit(&first).await.expect(202);
        let answer = triages[1].submit(&of("t-2")).await.refused(409, "CONFLICT");
        assert!(!answer.text.contains(&first.id()), "{}", answer.text);
        assert!(answer.text.contains("dedupe key"), "{}", answer.text);
    }

    async fn a_contract_on_its_way_out_says_so(broker: Broker) {
        let (triage, _) = parties(broker).await;
        let mut contract = example();
        contract["deprecation"] = json!({ "since": "2026-01-01", "sunset": "2030-01-31", "replacement_id": "triage-to-refunds-v2" });
        put(&broker.admin, &contract).await.expect(201);
        let answer = triage.submit(&message()).await.expect(202);
        assert_eq!(answer.header("deprecation"), "@1767225600");
        assert_eq!(answer.header("sunset"), "Thu, 31 Jan 2030 00:00:00 GMT");
        assert_eq!(answer.header("link"), "</contracts/triage-to-refunds-v2>; rel=\"successor-version\"");
    }

    async fn c22_a_rejection_goes_to_the_supervisor_and_a_silence_to_the_agent_named(broker: Broker) {
        let triage = broker
            .agent(json!({
                "agentId": "triage-agent", "handoffTargets": ["refund-agent"],
                "supervisorId": "duty-lead",
            }))
            .await;
        let refund = broker
            .agent(json!({
                "agentId": "refund-agent", "agentType": "refund", "domains": ["billing"],
                "permissions": ["perm:refund:read"],
            }))
            .await;
        let lead = broker.pull("duty-lead", &[]).await;
        let stand_in = broker.pull("stand-in", &[]).await;
        let mut contract = example();
        contract["recovery"]["on_timeout"] = json!("stand-in");
        contract["recovery"]["timeout_ms"] = json!(300);
        put(&broker.admin, &contract).await.expect(201);
        // Rejected: the supervisor is asked, in the same commit.
        let rejected = order("11");
        triage.submit(&rejected).await.expect(202);
        let token = refund.claim_one().await;
        refund.say(&rejected, "reject", token, json!({ "reason": "OUT_OF_SCOPE" })).await.expect(200);
        takes_over(broker, &lead, &rejected, "REJECTED").await;
        // No agent accepts within the contract's time after receipt: the named agent takes over.
        let receiver = broker.saying(vec![bare(202)]).await;
        let hook = json!({ "delivery": { "mode": "webhook", "url": receiver.url } });
        let moved = broker.admin.patch("/agents/refund-agent", &hook).await.expect(200);
        assert_eq!(moved.body["delivery"]["mode"], "webhook");
        receiver.trust(&refund.webhook_secret);
        let silent = order("12");
        triage.submit(&silent).await.expect(202);
        takes_over(broker, &stand_in, &silent, "EXPIRED").await;
    }

    async fn c30_a_contracts_human_is_asked_and_its_identity_resumes(broker: Broker) {
        let (triage, refund) = parties(broker).await;
        let resumes = broker.pull("back-office", &[]).await;
        let mut contract = example();
        contract["recovery"]["on_reject"] = json!("human");
        contract["human_in_the_loop"] = json!({
            "human_target": true, "channel": "refund-desk", "timeout_ms": 400,
            "resume_as": "back-office",
        });
        put(&broker.admin, &contract).await.expect(201);
        let message = order("13");
        triage.submit(&message).await.expect(202);
        let token = refund.claim_one().await;
        refund.say(&message, "reject", token, json!({ "reason": "OUT_OF_SCOPE" })).await.expect(200);
        let rows = broker.admin.get("/escalations").await.expect(200).body;
        assert_eq!((&rows["items"][0]["channel"], &rows["items"][0]["reason"]),
            (&json!("refund-desk"), &json!("OUT_OF_SCOPE")), "{rows}");
        // No decision comes in time: the identity that the contract names goes on.
        takes_over(broker, &resumes, &message, "REJECTED").await;
        let kinds = broker.kinds(&message).await;
        assert!(kinds.iter().any(|kind| kind == "ESCALATED"), "{kinds:?}");
        assert!(kinds.iter().any(|kind| kind == "ESCALATION_RESOLVED"), "{kinds:?}");
    }

    async fn a_role_stands_for_its_agents_and_a_name_goes_before(broker: Broker) {
        let (triage, _) = parties(broker).await;
        let mut roles = example();
        roles["id"] = json!("any-triage-to-refund");
        roles["target"] = json!("refund");
        put(&broker.admin, &roles).await.expect(201);
        let low = message().set("/currentState/confidence", json!(0.2));
        let answer = triage.submit(&low).await.refused(422, "CONTRACT_VIOLATION");
        assert!(answer.text.contains("any-triage-to-refund 1.2.0"));
        let mut named = example();
        named["trigger"] = json!({ "intent": "anything" });
        put(&broker.admin, &named).await.expect(201);
        triage.submit(&low).await.expect(202);
        let fresh = message().set("/currentState/confidence", json!(0.2));
        let asked = fresh.set("/contractId", json!("any-triage-to-refund"));
        triage.submit(&asked).await.refused(422, "CONTRACT_VIOLATION");
    }

    async fn lint_knows_this_brokers_agents(broker: Broker) {
        parties(broker).await;
        let found = async |body: &Value| broker.admin.post("/contracts/lint", body).await.expect(200).body;
        let size = broker.log_size().await;
        let well = found(&example()).await;
        assert_eq!(well["contracts"][0]["level"], "L2");
        assert_eq!(well["contracts"][0]["findings"], json!([]));
        let mut orphan = example();
        orphan["target"] = json!("nobody");
        let answer = found(&json!({ "contracts": [example(), orphan] })).await;
        assert_eq!(answer["contracts"][0]["findings"], json!([]));
        let rules: Vec<&Value> =
            answer["contracts"][1]["findings"].as_array().unwrap().iter().map(|one| &one["rule"]).collect();
        assert!(rules.contains(&&json!("orphan-target")), "{answer}");
        let answer = found(&json!({ "contracts": [example()], "registry": { "permissions": [] } })).await;
        assert_eq!(answer["contracts"][0]["findings"].as_array().unwrap().len(), 3, "{answer}");
        assert_eq!(answer["contracts"][0]["warnings"][0]["code"], "CONTRACT_FINDING");
        assert_eq!(broker.log_size().await, size, "linting writes nothing");
    }

    async fn lint_answers_in_the_form_that_the_command_line_prints(broker: Broker) {
        parties(broker).await;
        let mut odd = example();
        odd["unheard"] = json!(1);
        let answer = broker.admin.post("/contracts/lint", &odd).await.expect(200).body;
        let document = Document::parse(&odd.to_string());
        let subject = LintSubject { file: String::new(), document, schema: SchemaFile::NotLooked };
        let printed = report::json(&lint(&[subject], LintContext::default()));
        let (answer, printed) = (&answer["contracts"][0], &printed["contracts"][0]);
        let names = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(answer), names(printed));
        assert_eq!((&answer["findings"], &answer["warnings"]), (&printed["findings"], &printed["warnings"]));
        assert_eq!(answer["findings"][0]["rule"], "unknown-field");
    }
}

both! {
    with [("HANDOFFD_GATE__REQUIRE_CONTRACT", "true")]
    async fn a_broker_may_ask_for_a_contract_on_every_edge(broker: Broker) {
        let (triage, _) = parties(broker).await;
        let answer = triage.submit(&message()).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/toAgent"]);
        put(&broker.admin, &example()).await.expect(201);
        triage.submit(&message()).await.expect(202);
    }
}

/// One tenant's edges must have contracts, but for what its scout sends.
const BANK_ASKS: &str = r#"
[[gate.contract_exceptions]]
require_contract = true
tenant = "bank"

[[gate.contract_exceptions]]
require_contract = false
tenant = "bank"
agent = "scout"

[[gate.contract_exceptions]]
require_contract = true
until = "2020-01-01T00:00:00Z"
"#;

both! {
    with [(crate::harness::FILE, BANK_ASKS)]
    async fn one_tenant_may_ask_for_contracts_and_another_not(broker: Broker) {
        let (triage, _) = parties(broker).await;
        triage.submit(&message()).await.expect(202);
        let made = broker.command(&["key", "create", "--tenant", "bank", "--role", "admin"]).await;
        let bank = broker.caller(Some(String::from_utf8(made.stdout).unwrap().trim()));
        let register = async |id: &str| {
            let spec = json!({ "agentId": id, "handoffTargets": ["refund-agent"] });
            let made = bank.post("/agents", &spec).await.expect(201).body;
            broker.caller(made["apiKey"].as_str())
        };
        let (triage, scout) = (register("triage-agent").await, register("scout").await);
        let spec = json!({
            "agentId": "refund-agent", "domains": ["billing"], "permissions": ["perm:refund:read"],
        });
        bank.post("/agents", &spec).await.expect(201);
        let answer = triage.post("/handoffs", &message()).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(answer.pointers(), ["/toAgent"]);
        assert!(answer.text.contains("triage-agent → refund-agent"), "{}", answer.text);
        scout.post("/handoffs", &Message::review("scout", "refund-agent")).await.expect(202);
        put(&bank, &example()).await.expect(201);
        triage.post("/handoffs", &message()).await.expect(202);
    }
}

both! {
    async fn the_linter_reads_what_a_running_broker_holds(broker: Broker) {
        parties(broker).await;
        let lint = async |more: &[&str]| {
            let words = ["lint", "--broker", "--url", &broker.admin.base, "--output"];
            let done = broker.command(&[&words[..], more].concat()).await;
            (done.status.code().unwrap(), String::from_utf8(done.stdout).unwrap())
        };
        let (code, text) = lint(&["text"]).await;
        assert_eq!((code, text.as_str()), (0, "0 contracts, 0 errors, 0 warnings\n"));
        put(&broker.admin, &example()).await.expect(201);
        let (code, text) = lint(&["json"]).await;
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &found["contracts"][0]["level"]), (0, &json!("L2")), "{found}");
        assert_eq!(found["contracts"][0]["findings"], json!([]));

        // An agent that goes leaves an orphan, at the line of `target` in the document as printed.
        broker.admin.delete("/agents/refund-agent").await.expect(204);
        let printed = format!("{:#}", example());
        let at = printed.lines().position(|line| line.starts_with("  \"target\"")).unwrap() + 1;
        let (code, text) = lint(&["sarif"]).await;
        let sarif: Value = serde_json::from_str(&text).unwrap();
        let results = sarif["runs"][0]["results"].as_array().unwrap();
        let orphan = results.iter().find(|one| one["ruleId"] == "orphan-target").unwrap();
        let place = &orphan["locations"][0]["physicalLocation"];
        assert_eq!(code, 1);
        assert_eq!(place["artifactLocation"]["uri"], "contracts/triage-to-refunds-v1@1.2.0");
        assert_eq!(place["region"]["startLine"], at);

        // A file before it is put: against this broker's agents, and contracts that lead back.
        let back = json!({
            "id": "back", "version": "1.0.0", "source": "refund-agent", "target": "triage-agent",
            "trigger": { "intent": "done" }, "payload": { "schema": { "type": "object" } },
            "acceptance_criteria": { "required_fields": [] },
            "recovery": { "on_reject": "source", "on_timeout": "source", "on_error": "source" },
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("back.json");
        std::fs::write(&file, back.to_string()).unwrap();
        let (code, text) = lint(&["json", file.to_str().unwrap()]).await;
        let found: Value = serde_json::from_str(&text).unwrap();
        let listed = found["contracts"].as_array().unwrap();
        let fired: Vec<_> = listed[0]["findings"].as_array().unwrap().iter().map(|one| &one["rule"]).collect();
        assert_eq!((code, listed.len()), (1, 1), "{found}");
        assert!(fired.contains(&&json!("loop-risk")) && !fired.contains(&&json!("orphan-target")), "{found}");

        // The payload schema that it names is one of this broker's, or not.
        let mut named = back.clone();
        named["payload"]["schema"] = json!("registry:refund@1.0.0");
        std::fs::write(&file, named.to_string()).unwrap();
        let drifts = async || {
            let text = lint(&["json", file.to_str().unwrap()]).await.1;
            assert!(!text.contains("unchecked-schema"), "{text}");
            text.contains("`registry:refund@1.0.0` is not registered")
        };
        assert!(drifts().await);
        let schema = json!({ "schema": { "type": "object" } });
        broker.admin.put("/schemas/payloads/refund/1.0.0", &schema).await.expect(201);
        assert!(!drifts().await);
    }

    async fn a_linter_that_gets_no_answer_says_so_and_judges_nothing(broker: Broker) {
        for (words, code, part) in [
            (&["--url", "http://127.0.0.1:1"][..], 3, "cannot be reached"),
            (&["--url", "nowhere"], 2, "is not a URL"),
            (&["--url", &broker.admin.base, "--key-file", "/nowhere"], 3, "no key"),
        ] {
            let done = broker.command(&[&["lint", "--broker"][..], words].concat()).await;
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.code() == Some(code) && said.contains(part), "{words:?}: {said}");
            assert!(done.stdout.is_empty());
        }
    }
}

mod on_another_broker {
    use super::*;

    /// Only Postgres has several brokers.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_contract_counts_within_a_second() {
        crate::harness::run(crate::harness::Kind::Postgres, &[], async |broker: &Broker| {
            let (triage, _) = parties(broker).await;
            let (other, running) = broker.second().await;
            let elsewhere = Caller { key: triage.api.key.clone(), ..other };
            let low = || message().set("/currentState/confidence", json!(0.2));
            elsewhere.post("/handoffs", &low()).await.expect(202);
            put(&broker.admin, &example()).await.expect(201);
            triage.submit(&low()).await.refused(422, "CONTRACT_VIOLATION");
            let asked = tokio::time::Instant::now();
            until("the other broker knows the contract", async || {
                let answer = elsewhere.post("/handoffs/validate", &low()).await.expect(200);
                if answer.body["valid"] == false { Ok(()) } else { Err(answer.text) }
            })
            .await;
            assert!(asked.elapsed() < std::time::Duration::from_secs(1));
            within("an orderly stop", running.stop()).await;
        })
        .await;
    }

    /// An edge taken away, an agent that is paused, and both put back.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_edge_and_an_agent_count_within_a_second() {
        crate::harness::run(crate::harness::Kind::Postgres, &[], async |broker: &Broker| {
            let (a, _) = broker.pull_pair().await;
            let (other, running) = broker.second().await;
            let elsewhere = Caller { key: a.api.key.clone(), ..other };
            let says = async |reason: Value| {
                let message = Message::review("a", "b");
                let asked = tokio::time::Instant::now();
                until(&format!("the other broker says {reason}"), async || {
                    let answer = elsewhere.post("/handoffs/validate", &message).await.expect(200);
                    if answer.body["reason"] == reason { Ok(()) } else { Err(answer.text) }
                })
                .await;
                assert!(asked.elapsed() < std::time::Duration::from_secs(1), "{reason}");
            };
            says(Value::Null).await;
            let targets = async |targets: Value| {
                let body = json!({ "handoffTargets": targets });
                broker.admin.put("/agents/a/handoff-targets", &body).await.expect(200);
            };
            targets(json!([])).await;
            says(json!("FORBIDDEN")).await;
            targets(json!(["b"])).await;
            says(Value::Null).await;
            broker
                .admin
                .patch("/agents/b", &json!({ "state": "PAUSED", "pause": "refuse" }))
                .await
                .expect(200);
            says(json!("NO_CAPABLE_AGENT")).await;
            within("an orderly stop", running.stop()).await;
        })
        .await;
    }
}
