//! Rolling caps: set by operators or the settings, enforced at the commit, by all brokers together.

use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Caller, Kind, run, within};
use crate::message::Message;

async fn set(broker: &Broker, path: &str, usd: &str) -> Value {
    broker.admin.put(&format!("/caps/{path}"), &json!({ "usd": usd })).await.expect(200).body
}

/// The spent, reserved and remaining amounts of a cap.
async fn used(broker: &Broker, place: usize) -> [String; 3] {
    let caps = broker.admin.get("/caps").await.expect(200).body;
    ["spentUSD", "reservedUSD", "leftUSD"].map(|name| {
        caps["items"][place][name].as_str().unwrap_or_else(|| panic!("{caps}")).to_owned()
    })
}

async fn claimed(to: &Agent, message: &Message) -> i64 {
    let token = to.claim_one().await;
    to.say(message, "accept", token, json!({})).await.expect(200);
    token
}

fn spent(message: Message, prompt: u64, completion: u64) -> Message {
    message.set("/costTracking/tokenSpent", json!({ "prompt": prompt, "completion": completion }))
}

both! {
    async fn what_open_handoffs_reserve_and_what_was_spent_count_and_the_rest_comes_back(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let made = set(broker, "P1D", "10.00").await;
        assert_eq!(made["leftUSD"], "10.00", "{made}");
        set(broker, "PT1H?agentId=b", "6.50").await;

        let first = Message::review("a", "b").cost(1.0, 6.0);
        a.submit(&first).await.expect(202);
        assert_eq!(used(broker, 0).await, ["1.00", "6.00", "3.00"]);
        assert_eq!(used(broker, 1).await, ["0.00", "6.00", "0.50"]);

        // The agent's cap, and the tenant's, each with both sides' numbers.
        let answer = a.submit(&Message::review("a", "b").cost(0.0, 1.0)).await;
        let answer = answer.refused(422, "BUDGET_EXHAUSTED");
        assert_eq!(answer.pointers(), ["/costTracking/costBudgetRemainingUSD"]);
        for part in ["asks for 1.00 USD more", "agent b is 6.50 USD in PT1H", "6.00 USD are reserved", "0.50 USD are left"] {
            assert!(answer.text.contains(part), "{part}: {}", answer.text);
        }
        assert_eq!(answer.header("retry-after"), "", "no time frees what is reserved");
        let c = broker.pull("c", &[]).await;
        broker.admin.put("/agents/a/handoff-targets", &json!({ "handoffTargets": ["b", "c"] })).await.expect(200);
        let answer = a.submit(&Message::review("a", "c").cost(2.0, 1.5)).await.refused(422, "BUDGET_EXHAUSTED");
        assert!(answer.text.contains("tenant default is 10.00 USD in P1D, of which 1.00 USD were spent"), "{}", answer.text);
        let wait: u64 = answer.header("retry-after").parse().unwrap();
        assert!((86_300..=87_841).contains(&wait), "the dollar leaves after a day, and a step at most: {wait}");
        assert_eq!(used(broker, 0).await, ["1.00", "6.00", "3.00"], "what is refused does not count");

        // The unspent part comes back; the spent part stays spent.
        let token = claimed(&b, &first).await;
        let done = json!({ "costTracking": { "costSpentSoFarUSD": 3.0 } });
        b.say(&first, "complete", token, done).await.expect(200);
        assert_eq!(used(broker, 0).await, ["3.00", "0.00", "7.00"]);
        assert_eq!(used(broker, 1).await, ["2.00", "0.00", "4.50"]);
        let again = Message::review("a", "c").cost(2.0, 1.5);
        a.submit(&again).await.expect(202);
        // The same again is answered as the first time, and counts once.
        a.submit(&again).await.expect(202);
        assert_eq!(used(broker, 0).await, ["5.00", "1.50", "3.50"]);
        // Below what is used already, what takes away still goes through.
        set(broker, "P1D", "1.00").await;
        let token = claimed(&c, &again).await;
        c.say(&again, "complete", token, json!({})).await.expect(200);
        assert_eq!(used(broker, 0).await, ["5.00", "0.00", "0.00"]);
        a.submit(&Message::review("a", "c").cost(0.0, 0.01)).await.refused(422, "BUDGET_EXHAUSTED");
        broker.admin.delete("/caps/P1D").await.expect(204);
        a.submit(&Message::review("a", "c").cost(0.0, 100.0)).await.expect(202);

        let metrics = broker.admin.metrics().await;
        for line in [
            "handoff_cap_refusals_total{scope=\"agent\"} 1",
            "handoff_cap_refusals_total{scope=\"tenant\"} 2",
            "handoff_cap_use_ratio_count{scope=\"agent\",unit=\"usd\"}",
        ] {
            assert!(metrics.contains(line), "{line}");
        }
        let page = broker.admin.get("/audit/records?limit=100&from=0").await.expect(200).body;
        let records = page["records"].as_array().unwrap().iter();
        let changes = records.filter(|item| item["record"]["kind"] == "BUDGET_CHANGED").count();
        assert_eq!(changes, 4, "each change of a cap is in the log");
    }

    async fn the_agent_of_a_recovery_gets_no_more_than_its_cap_has_room_for(broker: Broker) {
        let a = broker.pull("a", &["b", "x"]).await;
        broker.pull("b", &[]).await;
        let x = broker.pull("x", &[]).await;
        set(broker, "P1D?agentId=x", "1.00").await;
        let contract = json!({
            "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b",
            "acceptance_criteria": { "required_fields": ["order_id"] },
            "recovery": { "on_reject": "x", "on_timeout": "source", "on_error": "source" },
        });
        broker.admin.put("/contracts/a-to-b", &contract).await.expect(201);
        // The gate refuses it by the contract's criteria alone, and the contract's agent gets it.
        a.submit(&Message::review("a", "b").cost(0.0, 10.0)).await.refused(422, "CONTRACT_VIOLATION");
        assert_eq!(x.claim(9).await.len(), 1);
        assert_eq!(used(broker, 0).await, ["0.00", "1.00", "0.00"]);
    }

    async fn a_dry_run_says_what_a_submission_would_be_refused_for_now(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let dry = async |message: &Message| {
            a.api.post("/handoffs/validate", message).await.expect(200).body
        };
        set(broker, "P1D", "10.00").await;
        set(broker, "PT1H?agentId=b", "6.50").await;
        let first = Message::review("a", "b").cost(1.0, 6.0);
        assert_eq!(dry(&first).await, json!({ "valid": true }));
        assert_eq!(used(broker, 0).await, ["0.00", "0.00", "10.00"], "a dry run reserves nothing");
        a.submit(&first).await.expect(202);

        // Of a task that it would begin, and under the words of the refusal itself.
        let much = Message::review("a", "b").cost(0.0, 1.0);
        let said = dry(&much).await;
        assert_eq!((&said["valid"], &said["reason"]), (&json!(false), &json!("BUDGET_EXHAUSTED")));
        let refused = a.submit(&much).await.refused(422, "BUDGET_EXHAUSTED");
        assert_eq!(said["failures"], refused.body["failures"], "{said}");
        assert!(said.to_string().contains("agent b is 6.50 USD in PT1H"), "{said}");

        // A handoff on an open task is paid out of its sender's share, so it adds nothing.
        let token = claimed(&b, &first).await;
        broker.admin.put("/agents/b/handoff-targets", &json!({ "handoffTargets": ["a"] })).await.expect(200);
        let back = first.next("b", "a").cost(2.0, 5.0);
        let said = b.api.post("/handoffs/validate", &back).await.expect(200).body;
        assert_eq!(said, json!({ "valid": true }));
        // With whatever else is wrong, and where nothing is to be paid not at all.
        let empty = Message::review("a", "b").cost(0.0, 4.0).set("/completedSubtasks", json!([]));
        let said = dry(&empty).await;
        let codes: Vec<_> = said["failures"].as_array().unwrap().iter().map(|one| &one["code"]).collect();
        assert_eq!(codes, ["INCOMPLETE_CONTEXT", "BUDGET_EXHAUSTED"], "{said}");
        let refused = a.submit(&empty).await.refused(422, "BUDGET_EXHAUSTED");
        assert_eq!(said["failures"], refused.body["failures"]);
        let nothing = dry(&Message::review("a", "b").cost(0.0, 0.0)).await;
        assert_eq!(nothing["failures"].as_array().unwrap().len(), 1, "{nothing}");

        // As of now: what comes back makes room.
        let done = json!({ "costTracking": { "costSpentSoFarUSD": 1.0 } });
        b.say(&first, "complete", token, done).await.expect(200);
        assert_eq!(dry(&much).await, json!({ "valid": true }));
    }

    async fn a_cap_of_tokens_that_is_used_up_lets_no_handoff_through(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let admin = &broker.admin;
        let made = admin.put("/caps/P1D", &json!({ "tokens": 1_000 })).await.expect(200).body;
        assert_eq!((&made["tokens"], &made["leftTokens"], &made["usd"]), (&json!(1_000), &json!(1_000), &Value::Null), "{made}");
        admin.put("/caps/PT1H?agentId=b", &json!({ "tokens": 500, "usd": "100" })).await.expect(200);
        let tokens = async || {
            let caps = admin.get("/caps").await.expect(200).body;
            [0, 1].map(|place| caps["items"][place]["spentTokens"].as_u64().unwrap())
        };
        let first = spent(Message::review("a", "b").cost(0.0, 1.0), 300, 40);
        a.submit(&first).await.expect(202);
        a.submit(&first).await.expect(202);
        assert_eq!(tokens().await, [340, 0], "what its sender states counts, once, and nothing is reserved");
        let token = claimed(&b, &first).await;
        let tracked = json!({ "costSpentSoFarUSD": 0.5, "tokenSpent": { "prompt": 800, "completion": 50 } });
        let done = json!({ "costTracking": tracked });
        b.say(&first, "complete", token, done).await.expect(200);
        assert_eq!(tokens().await, [850, 510], "what was under way may exceed it");

        // To the agent nothing more, to another still.
        let next = spent(Message::review("a", "b").cost(0.0, 1.0), 10, 0);
        let said = a.api.post("/handoffs/validate", &next).await.expect(200).body;
        assert_eq!(said["reason"], "BUDGET_EXHAUSTED", "{said}");
        let answer = a.submit(&next).await.refused(422, "BUDGET_EXHAUSTED");
        assert_eq!(answer.pointers(), ["/costTracking/tokenSpent"]);
        assert!(answer.text.contains("agent b is 500 tokens in PT1H, and 510 were spent"), "{}", answer.text);
        let wait: u64 = answer.header("retry-after").parse().unwrap();
        assert!((3_500..=3_661).contains(&wait), "{wait}");
        broker.pull("c", &[]).await;
        admin.put("/agents/a/handoff-targets", &json!({ "handoffTargets": ["b", "c"] })).await.expect(200);
        let other = spent(Message::review("a", "c").cost(0.0, 1.0), 150, 0);
        a.submit(&other).await.expect(202);
        assert_eq!(tokens().await, [1_000, 510]);
        let again = Message::review("a", "c").cost(0.0, 1.0);
        let answer = a.submit(&again).await.refused(422, "BUDGET_EXHAUSTED");
        assert!(answer.text.contains("tenant default is 1000 tokens in P1D"), "{}", answer.text);

        // The two units of a cap are set and taken away apart.
        admin.put("/caps/P1D", &json!({ "usd": "50" })).await.expect(200);
        let both = admin.get("/caps").await.expect(200).body["items"][0].clone();
        assert_eq!((&both["tokens"], &both["usd"], &both["spentTokens"]), (&json!(1_000), &json!("50.00"), &json!(1_000)));
        admin.delete("/caps/P1D?unit=tokens").await.expect(204);
        admin.delete("/caps/P1D?unit=tokens").await.refused(404, "NOT_FOUND");
        admin.delete("/caps/P1D?unit=words").await.refused(400, "INVALID_REQUEST");
        a.submit(&again).await.expect(202);
        admin.delete("/caps/PT1H?agentId=b&unit=usd").await.expect(204);
        let url = admin.base.as_str();
        for words in [
            &["caps", "set", "PT1H", "--tokens", "10000", "--agent", "b", "--url", url][..],
            &["caps", "remove", "P1D", "--unit", "usd", "--url", url],
        ] {
            let done = broker.command(words).await;
            assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let left = admin.get("/caps").await.expect(200).body;
        assert_eq!(left["items"].as_array().unwrap().len(), 1, "{left}");
        assert_eq!((&left["items"][0]["leftTokens"], &left["items"][0]["default"]), (&json!(9_490), &json!(false)));
        a.submit(&next).await.expect(202);
        let page = admin.get("/audit/records?limit=100&from=0").await.expect(200).body;
        let records = page["records"].as_array().unwrap().iter();
        let changes = records.filter(|item| item["record"]["kind"] == "BUDGET_CHANGED").count();
        assert_eq!(changes, 7, "each change of a cap is in the log");
    }

    async fn a_cap_that_cannot_be_is_refused_with_what_is_wrong(broker: Broker) {
        broker.pull_pair().await;
        let usd = json!({ "usd": "1.00" });
        let admin = &broker.admin;
        for path in ["/caps/P1Y", "/caps/PT1S", "/caps/P99D"] {
            let answer = admin.put(path, &usd).await.refused(400, "INVALID_REQUEST");
            assert!(answer.text.contains("from PT1M to P31D"), "{}", answer.text);
        }
        for wrong in ["1e3", "-1", "1.0000000001", "", "ten"] {
            let answer = admin.put("/caps/P1D", &json!({ "usd": wrong })).await;
            assert_eq!(answer.refused(422, "SCHEMA_INVALID").pointers(), ["/usd"], "{wrong}");
        }
        for wrong in [json!({ "usd": 1.5 }), json!({ "tokens": -1 }), json!({ "tokens": "1" }), json!({})] {
            admin.put("/caps/P1D", &wrong).await.refused(422, "SCHEMA_INVALID");
        }
        let answer = admin.put("/caps/P1D", &json!({ "tokens": 9_007_199_254_740_992_u64 })).await;
        assert_eq!(answer.refused(422, "SCHEMA_INVALID").pointers(), ["/tokens"]);
        admin.put("/caps/P1D?agentId=nobody", &usd).await.refused(404, "NOT_FOUND");
        admin.put("/caps/P1D?agent=a", &usd).await.refused(400, "INVALID_REQUEST");
        admin.delete("/caps/P1D").await.refused(404, "NOT_FOUND");
        broker.person("auditor").await.put("/caps/P1D", &usd).await.refused(403, "FORBIDDEN");
        let empty = broker.person("auditor").await.get("/caps").await.expect(200).body;
        assert_eq!(empty["items"], json!([]));
        // The same window in other words is the same cap.
        set(broker, "PT24H", "1.00").await;
        set(broker, "P1D", "2.00").await;
        let caps = admin.get("/caps").await.expect(200).body;
        assert_eq!(caps["items"].as_array().unwrap().len(), 1, "{caps}");
        let url = broker.admin.base.as_str();
        for words in [
            &["caps", "set", "P1W", "--usd", "5.50", "--agent", "b", "--url", url][..],
            &["caps", "remove", "P1D", "--url", url],
        ] {
            let done = broker.command(words).await;
            assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let shown = broker.command(&["caps", "list", "--url", url]).await;
        let shown = String::from_utf8(shown.stdout).unwrap();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["b", "P7D", "5.50", "0.00", "0.00", "5.50", "no", "-", "-", "-", "no"], "{shown}");
        assert_eq!(rows.len(), 2);
    }
}

both! {
    with [("HANDOFFD_BUDGET__TENANT_CAPS", "P1D=5,P1D=1000 tokens"), ("HANDOFFD_BUDGET__AGENT_CAPS", "PT1H=2,P1D=3")]
    async fn the_settings_caps_hold_where_an_operator_set_none(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        assert_eq!(used(broker, 0).await, ["0.00", "0.00", "5.00"]);
        a.submit(&Message::review("a", "b").cost(0.0, 2.5)).await.refused(422, "BUDGET_EXHAUSTED");
        // The sample states 6 000 tokens.
        let review = |usd| spent(Message::review("a", "b").cost(0.0, usd), 0, 0);
        a.submit(&review(2.0)).await.expect(202);
        set(broker, "PT1H?agentId=b", "50.00").await;
        let answer = a.submit(&Message::review("a", "b").cost(0.0, 1.5)).await;
        let answer = answer.refused(422, "BUDGET_EXHAUSTED");
        assert!(answer.text.contains("agent b is 3.00 USD in P1D"), "{}", answer.text);
        a.submit(&review(1.0)).await.expect(202);
        let caps = broker.admin.get("/caps?agentId=b").await.expect(200).body;
        let defaults: Vec<_> = caps["items"].as_array().unwrap().iter().map(|cap| &cap["default"]).collect();
        assert_eq!(defaults, [false, true], "{caps}");
        broker.admin.delete("/caps/PT1H?agentId=b").await.expect(204);
        let caps = broker.admin.get("/caps?agentId=b").await.expect(200).body;
        assert_eq!(caps["items"][0]["usd"], "2.00", "the settings' counts again: {caps}");
        assert_eq!(caps["items"][0]["reservedUSD"], "3.00", "over the same books");

        let whole = async || broker.admin.get("/caps").await.expect(200).body["items"][0].clone();
        let shown = whole().await;
        assert_eq!((&shown["tokens"], &shown["defaultTokens"]), (&json!(1_000), &json!(true)), "{shown}");
        broker.pull("c", &[]).await;
        let targets = json!({ "handoffTargets": ["b", "c"] });
        broker.admin.put("/agents/a/handoff-targets", &targets).await.expect(200);
        a.submit(&spent(Message::review("a", "c").cost(0.0, 0.5), 900, 100)).await.expect(202);
        assert_eq!(whole().await["leftTokens"], 0);
        let next = spent(Message::review("a", "c").cost(0.0, 0.1), 0, 0);
        let answer = a.submit(&next).await.refused(422, "BUDGET_EXHAUSTED");
        assert_eq!(answer.pointers(), ["/costTracking/tokenSpent"]);
        broker.admin.put("/caps/P1D", &json!({ "tokens": 2_000 })).await.expect(200);
        let shown = whole().await;
        let expected = (&json!(1_000), &json!(false), &json!(true));
        assert_eq!((&shown["leftTokens"], &shown["defaultTokens"], &shown["default"]), expected, "{shown}");
        a.submit(&next).await.expect(202);
        let metrics = broker.admin.metrics().await;
        assert!(metrics.contains("handoff_cap_use_ratio_count{scope=\"tenant\",unit=\"tokens\"}"));
    }
}

/// Two brokers on one Postgres, a hundred handoffs at once through both: never more than the cap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_brokers_together_cannot_overshoot_a_cap() {
    run(Kind::Postgres, &[], async |broker: &Broker| {
        let (a, _) = broker.pull_pair().await;
        set(broker, "P1D", "10.00").await;
        let (other, running) = broker.second().await;
        let elsewhere = Caller { key: a.api.key.clone(), ..other };
        // The other broker has heard of the cap once it refuses what exceeds it.
        let much = Message::review("a", "b").cost(0.0, 11.0);
        elsewhere.post("/handoffs", &much).await.refused(422, "BUDGET_EXHAUSTED");
        let messages: Vec<Message> =
            (0..40).map(|_| Message::review("a", "b").cost(0.25, 0.5)).collect();
        let asked = messages.iter().enumerate().map(|(n, message)| {
            let through = if n % 2 == 0 { &a.api } else { &elsewhere };
            through.post("/handoffs", message)
        });
        let answers = futures_util::future::join_all(asked).await;
        let well = answers.iter().filter(|answer| answer.status == 202).count();
        assert_eq!(well, 13, "13 times 0.75 fit into 10, 14 times not");
        for answer in answers.into_iter().filter(|answer| answer.status != 202) {
            answer.refused(422, "BUDGET_EXHAUSTED");
        }
        assert_eq!(used(broker, 0).await, ["3.25", "6.50", "0.25"]);
        within("an orderly stop", running.stop()).await;
    })
    .await;
}
