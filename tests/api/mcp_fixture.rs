//! The MCP door with the conformance suite's fixtures behind it: questions to the client, streams, subscriptions, and headers that
//! repeat arguments. `scripts/mcp_conformance.py` runs the suite against the same handler.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::harness::{Broker, Caller, run_with_mcp, until, within};

#[path = "../mcp_fixture/handler/mod.rs"]
mod handler;

const VERSION: &str = "2026-07-28";

/// Makes a case of a broker with the fixtures.
macro_rules! fixture {
    ($(async fn $name:ident($broker:ident: &Broker) $body:block)+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            run_with_mcp(handler::Fixture::new().unwrap(), async |$broker: &Broker| $body).await;
        }
    )+};
}

/// A request of a client with these capabilities.
fn request(
    caller: &Caller,
    method: &str,
    mut params: Value,
    capabilities: &Value,
) -> reqwest::RequestBuilder {
    let mut request = caller
        .request(Method::POST, "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.header("mcp-name", name);
    }
    let mut meta = params["_meta"].take();
    meta["io.modelcontextprotocol/protocolVersion"] = VERSION.into();
    meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    params["_meta"] = meta;
    request.json(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }))
}

/// The status of a call of a tool, and its only message.
async fn call(caller: &Caller, params: Value, capabilities: &Value) -> (u16, Value) {
    let answer = request(caller, "tools/call", params, capabilities).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// The messages of a stream, one by one.
struct Messages {
    response: Response,
    text: String,
}

impl Messages {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Self { response, text: String::new() }
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.find('\n') {
                let line: String = self.text.drain(..=end).collect();
                let data = line.strip_prefix("data:").map(str::trim).unwrap_or_default();
                if let Ok(message) = serde_json::from_str(data) {
                    return Some(message);
                }
                continue;
            }
            let chunk = within("a message", self.response.chunk()).await.unwrap()?;
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
    }
}

fixture! {
    async fn a_missing_capability_is_a_400_that_names_it(broker: &Broker) {
        let agent = broker.pull("a", &[]).await.api;
        let tool = json!({ "name": "test_missing_capability", "arguments": {} });
        let (status, message) = call(&agent, tool.clone(), &json!({})).await;
        assert_eq!((status, &message["error"]["code"]), (400, &json!(-32021)), "{message}");
        assert_eq!(message["error"]["data"]["requiredCapabilities"], json!({ "sampling": {} }));
        assert_eq!(message["id"], 7);
        let (status, message) = call(&agent, tool, &json!({ "sampling": {} })).await;
        assert_eq!((status, &message["result"]["isError"]), (200, &json!(false)), "{message}");
    }

    async fn a_state_is_of_one_agent_and_one_tool(broker: &Broker) {
        let (a, b) = (broker.pull("a", &[]).await.api, broker.pull("b", &[]).await.api);
        let can = json!({ "elicitation": {} });
        let name = "test_input_required_result_multi_round";
        let answered = |tool: &str, key: &str, content: Value, state: &Value| {
            let form = json!({ "action": "accept", "content": content });
            json!({ "name": tool, "arguments": {}, "inputResponses": { key: form }, "requestState": state })
        };
        let (_, first) = call(&a, json!({ "name": name, "arguments": {} }), &can).await;
        assert_eq!(first["result"]["resultType"], "input_required", "{first}");
        let state = &first["result"]["requestState"];
        let second = answered(name, "step1", json!({ "name": "Ada" }), state);

        let tampered = json!(format!("{}x", state.as_str().unwrap()));
        let other = "test_input_required_result_request_state";
        for (caller, params) in [
            (&a, answered(name, "step1", json!({ "name": "Ada" }), &tampered)),
            (&a, answered(other, "confirm", json!({ "ok": true }), state)),
            (&b, second.clone()),
        ] {
            let (status, message) = call(caller, params, &can).await;
            assert_eq!((status, &message["error"]["code"]), (200, &json!(-32602)), "{message}");
        }

        let (_, second) = call(&a, second, &can).await;
        assert!(second["result"]["inputRequests"]["step2"].is_object(), "{second}");
        let last = answered(name, "step2", json!({ "color": "blue" }), &second["result"]["requestState"]);
        let (_, last) = call(&a, last, &can).await;
        assert_eq!(last["result"]["content"][0]["text"], "The user says: Ada; blue", "{last}");
    }

    async fn progress_comes_on_a_stream_before_the_result(broker: &Broker) {
        let agent = broker.pull("a", &[]).await.api;
        let tool = "test_tool_with_progress";
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": "p" } });
        let sent = request(&agent, "tools/call", params, &json!({})).send().await.unwrap();
        let mut messages = Messages::of(sent);
        for progress in [0.0, 50.0, 100.0] {
            let told = messages.next().await.unwrap();
            assert_eq!(told["method"], "notifications/progress", "{told}");
            assert_eq!(
                (&told["params"]["progressToken"], told["params"]["progress"].as_f64()),
                (&json!("p"), Some(progress))
            );
        }
        let result = messages.next().await.unwrap();
        assert_eq!((&result["id"], &result["result"]["isError"]), (&json!(7), &json!(false)));
        assert_eq!(messages.next().await, None);

        // Without a token there is nothing to tell before the result, and no stream.
        let (status, message) = call(&agent, json!({ "name": tool, "arguments": {} }), &json!({})).await;
        assert_eq!((status, &message["id"]), (200, &json!(7)));
    }

    async fn a_subscription_gets_what_it_asked_for_alone(broker: &Broker) {
        let agent = broker.pull("a", &[]).await.api;
        let asked = json!({ "notifications": { "promptsListChanged": true } });
        let sent = request(&agent, "subscriptions/listen", asked, &json!({})).send().await.unwrap();
        let mut messages = Messages::of(sent);
        let first = messages.next().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        for change in ["test_trigger_tool_change", "test_trigger_prompt_change"] {
            let (status, _) = call(&agent, json!({ "name": change, "arguments": {} }), &json!({})).await;
            assert_eq!(status, 200);
        }
        let next = messages.next().await.unwrap();
        assert_eq!(next["method"], "notifications/prompts/list_changed", "{next}");
        let tag = &next["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!(tag, &first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]);

        // A client that goes away ends its subscription.
        drop(messages);
        let change = json!({ "name": "test_trigger_tool_change", "arguments": {} });
        until("no subscription is left", async || {
            let (_, message) = call(&agent, change.clone(), &json!({})).await;
            let said = message["result"]["content"][0]["text"].as_str().unwrap().to_owned();
            if said == "Subscriptions: 0" { Ok(()) } else { Err(said) }
        })
        .await;
    }

    async fn a_header_repeats_its_argument(broker: &Broker) {
        let agent = broker.pull("a", &[]).await.api;
        let params = json!({ "name": "test_custom_header", "arguments": { "region": "north" } });
        for (header, status) in [(Some("north"), 200), (Some("south"), 400), (None, 400)] {
            let mut sent = request(&agent, "tools/call", params.clone(), &json!({}));
            if let Some(header) = header {
                sent = sent.header("mcp-param-region", header);
            }
            let answer = sent.send().await.unwrap();
            assert_eq!(answer.status(), status, "{header:?}");
            let message: Value = answer.json().await.unwrap();
            let code = (status == 400).then_some(-32020);
            assert_eq!(message["error"]["code"].as_i64(), code, "{message}");
        }
    }

    async fn the_door_s_checks_stand_before_every_handler(broker: &Broker) {
        let agent = broker.pull("a", &[]).await.api;
        let listed = |caller: &Caller| request(caller, "tools/list", json!({}), &json!({}));
        assert_eq!(listed(&broker.caller(None)).send().await.unwrap().status(), 401);
        for (header, value) in [("host", "evil.example"), ("origin", "http://evil.example")] {
            let answer = listed(&agent).header(header, value).send().await.unwrap();
            assert_eq!(answer.status(), 403, "{header}");
        }
        let twice = r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/list"}"#;
        agent.raw("/mcp", twice).await.refused(400, "SCHEMA_INVALID");
        assert_eq!(listed(&agent).send().await.unwrap().status(), 200);
    }
}
