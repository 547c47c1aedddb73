//! Finding a receiver, and the tools by which a model hands off.

use serde_json::{Value, json};

use crate::harness::{Broker, Kind, run, until};
use crate::outside::{Manner, Service};

async fn matched(broker: &Broker, query: &str) -> Vec<String> {
    let found = broker.admin.get(&format!("/agents/match?{query}")).await.expect(200).body;
    let items = found["items"].as_array().unwrap().iter();
    items.map(|item| item["agentId"].as_str().unwrap().to_owned()).collect()
}

async fn tools(broker: &Broker, agent: &str, style: &str) -> Vec<Value> {
    let path = format!("/agents/{agent}/handoff-tool?style={style}");
    broker.admin.get(&path).await.expect(200).body["tools"].as_array().unwrap().clone()
}

both! {
    async fn a_match_finds_the_able_best_first(broker: Broker) {
        let spec = |id: &str, version: &str, state: &str| {
            json!({
                "agentId": id, "agentVersion": version, "state": state, "capabilities": ["sums"],
                "description": "Adds long columns of figures"
            })
        };
        broker.agent(spec("old", "1.0.0", "RUNNABLE")).await;
        broker.agent(spec("new", "2.0.0", "RUNNABLE")).await;
        broker.agent(spec("off", "3.0.0", "PAUSED")).await;
        broker.agent(json!({ "agentId": "poet", "description": "Writes verse" })).await;
        assert_eq!(matched(broker, "capability=sums").await, ["new", "old", "off"]);
        assert_eq!(matched(broker, "task=write%20some%20verse").await, ["poet"]);
        assert_eq!(matched(broker, "task=verse&capability=sums").await, [""; 0]);
        assert_eq!(matched(broker, "task=%22%5C%20%F0%9F%92%A9*").await, [""; 0]);
        broker.admin.get("/agents/match").await.refused(400, "INVALID_REQUEST");
    }

    async fn a_match_follows_what_agents_say_of_themselves_now(broker: Broker) {
        for (id, examples) in [("refunds", json!(["Refund order 7"])), ("poet", json!([]))] {
            broker.agent(json!({ "agentId": id, "examples": examples })).await;
        }
        assert_eq!(matched(broker, "task=refunding%20orders").await, ["refunds"]);
        let now = json!({ "examples": [], "description": "Counts stock" });
        broker.admin.patch("/agents/refunds", &now).await.expect(200);
        assert_eq!(matched(broker, "task=counting%20the%20stock").await, ["refunds"]);
        assert_eq!(matched(broker, "task=order").await, [""; 0]);
        broker.admin.patch("/agents/refunds", &json!({ "acceptsHandoffs": false })).await.expect(200);
        assert_eq!(matched(broker, "task=counting%20the%20stock").await, [""; 0]);
    }

    async fn a_models_tools_name_whom_the_allowlist_names(broker: Broker) {
        broker.agent(json!({ "agentId": "router", "handoffTargets": [] })).await;
        assert!(tools(broker, "router", "openai").await.is_empty(), "no agent to hand off to");
        let billing = json!({
            "agentId": "billing", "agentType": "clerk", "capabilities": ["refunds"],
            "description": "Looks after\u{1b}[2J invoices",
        });
        broker.agent(billing).await;
        broker.agent(json!({ "agentId": "stranger", "agentType": "poet" })).await;
        let targets = json!(["billing", "type:clerk", "router", "nobody"]);
        broker.admin.put("/agents/router/handoff-targets", &targets).await.expect(200);
        let openai = tools(broker, "router", "openai").await;
        let names: Vec<&Value> = openai.iter().map(|tool| &tool["function"]["name"]).collect();
        assert_eq!(names, ["transfer_to_agent", "handoff_to_specialist"]);
        let transfer = &openai[0]["function"]["parameters"]["properties"]["target_agent_id"];
        assert_eq!(transfer["enum"], json!(["billing"]));
        assert!(!openai[0].to_string().contains("\\u001b"), "no control characters in a prompt");
        let anthropic = tools(broker, "router", "anthropic").await;
        let special = &anthropic[1]["input_schema"]["properties"];
        assert_eq!(special["specialist_type"]["enum"], json!(["clerk"]));
        assert_eq!(tools(broker, "router", "mcp").await[0]["inputSchema"]["type"], "object");
        broker.admin.delete("/agents/billing").await.expect(204);
        until("the tool goes with its last target", async || {
            let left = tools(broker, "router", "mcp").await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        broker.admin.get("/agents/router/handoff-tool").await.refused(400, "INVALID_REQUEST");
        let path = "/agents/router/handoff-tool?style=cobol";
        broker.admin.get(path).await.refused(400, "INVALID_REQUEST");
        let path = "/agents/nobody/handoff-tool?style=mcp";
        broker.admin.get(path).await.refused(404, "NOT_FOUND");
    }
}

/// A broker with that matcher, some agents, and what a case asks of them.
async fn with_matcher(manner: Manner, style: &str, case: impl AsyncFn(&Broker, &Service)) {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let service = Service::start(manner.clone()).await;
        let settings = [
            ("HANDOFFD_ROUTING__MATCHER__URL", service.url.as_str()),
            ("HANDOFFD_ROUTING__MATCHER__STYLE", style),
            ("HANDOFFD_ROUTING__MATCHER__MODEL", "chooser-1"),
            ("HANDOFFD_ROUTING__MATCHER__API_KEY", "sk-test"),
            ("HANDOFFD_ROUTING__MATCHER__TIMEOUT_MS", "1500"),
            ("HANDOFFD_ROUTING__MATCHER__MAX_AGENTS", "3"),
        ];
        run(kind, &settings, async |broker| {
            for (id, more) in [
                ("refunds", json!({ "capabilities": ["money"], "examples": ["Refund order 7"] })),
                ("poet", json!({})),
                ("painter", json!({})),
                ("paused", json!({ "state": "PAUSED" })),
                ("closed", json!({ "acceptsHandoffs": false })),
            ] {
                let mut spec = json!({ "agentId": id });
                spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                broker.agent(spec).await;
            }
            case(broker, &service).await;
        })
        .await;
    }
}

async fn ranked(broker: &Broker, query: &str) -> (Vec<String>, Value) {
    let found = broker.admin.get(&format!("/agents/match?{query}")).await.expect(200).body;
    (matched(broker, query).await, found["rankedBy"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_matcher_ranks_whom_text_relevance_cannot_find() {
    let says = json!({ "ranking": [
        { "agentId": "refunds", "score": 0.9 }, { "agentId": "closed", "score": 0.8 }, { "agentId": "poet", "score": 0.2 },
    ] });
    with_matcher(Manner::Says(says), "handoffd", async |broker, service| {
        let (found, by) = ranked(broker, "task=I%20want%20my%20money%27s%20worth%20back").await;
        assert_eq!(
            (found, by),
            (vec!["refunds".to_owned(), "poet".to_owned()], json!("chooser-1"))
        );
        let (headers, asked) = service.asked().pop().unwrap();
        assert_eq!(headers["authorization"], "Bearer sk-test");
        assert_eq!(asked["task"], "I want my money's worth back");
        let shown: Vec<&Value> =
            asked["agents"].as_array().unwrap().iter().map(|agent| &agent["agentId"]).collect();
        assert_eq!(shown.len(), 3, "no more than it is to be shown: {shown:?}");
        assert!(
            !shown.contains(&&json!("paused")) && !shown.contains(&&json!("closed")),
            "{shown:?}"
        );
        let (found, _) = ranked(broker, "task=anything&capability=money").await;
        assert_eq!(found, ["refunds"], "who is not asked for is not shown");
        let asked = service.asked().len();
        assert_eq!(ranked(broker, "capability=money").await.1, "capability");
        assert_eq!(service.asked().len(), asked, "no service is asked without a task");
        assert!(broker.metric("handoff_matcher_answers_total").await >= 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_model_can_rank() {
    let content = json!({ "ranking": [{ "agentId": "painter", "score": 0.7 }] }).to_string();
    let says = json!({ "choices": [{ "message": { "content": content } }] });
    with_matcher(Manner::Says(says), "openai-chat", async |broker, service| {
        let (found, by) = ranked(broker, "task=a%20portrait").await;
        assert_eq!((found, by), (vec!["painter".to_owned()], json!("chooser-1")));
        let (_, asked) = service.asked().pop().unwrap();
        assert_eq!(asked["model"], "chooser-1");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_relevance_ranks_where_the_matcher_does_not_answer() {
    let wrong = json!({ "ranking": "refunds" });
    for manner in [Manner::Fails, Manner::Babbles, Manner::Sleeps, Manner::Says(wrong)] {
        with_matcher(manner, "handoffd", async |broker, _| {
            let (found, by) = ranked(broker, "task=refund%20it").await;
            assert_eq!((found, by), (vec!["refunds".to_owned()], json!("text")));
        })
        .await;
    }
}
