//! Push notifications of the A2A door (docs/doors/a2a.md): a configuration is a subscription of the agent.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::a2a_client::{A2a, done, pair, state, text, told_of};
use crate::harness::{until, within};

both! {
    with [("HANDOFFD_EVENTS__RETRY_BASE_MS", "20")]
    async fn a_task_is_told_of_by_push_and_its_secrets_are_never_shown(broker: Broker) {
        let (a, b, client) = pair(broker).await;
        let hook = Hook::start().await;
        let config = json!({ "id": "mine", "url": hook.url, "token": "told-you", "authentication": { "scheme": "Bearer", "credentials": "s3cret" } });
        let mut message = text("m", "Add up");
        message["contextId"] = "ours".into();
        let body = json!({ "message": message, "configuration": { "returnImmediately": true, "taskPushNotificationConfig": config } });
        let task = client.send(body).await.ok()["task"].clone();
        let path = format!("/tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
        let shown = json!({ "id": "mine", "taskId": task["id"], "url": hook.url });
        assert_eq!(client.get(&format!("{path}/mine")).await.ok(), shown);
        assert_eq!(client.get(&path).await.ok(), json!({ "configs": [shown] }));
        let list = a.api.get("/subscriptions").await.expect(200);
        assert!(!list.text.contains("s3cret") && !list.text.contains("told-you") && !list.text.contains("whsec_"), "{}", list.text);
        assert_eq!((&list.body["items"][0]["owner"], &list.body["items"][0]["format"]), (&json!("a"), &json!("a2a")));
        assert_eq!(b.api.get("/subscriptions").await.expect(200).body["items"], json!([]));
        done(&b, json!({ "sum": 7 })).await;
        let states: Vec<String> = hook.states(3).await;
        assert_eq!(states, ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
        let (headers, update) = hook.all.lock().unwrap()[2].clone();
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        assert_eq!((header("authorization"), header("x-a2a-notification-token")), ("Bearer s3cret".to_owned(), "told-you".to_owned()));
        assert_eq!((header("content-type"), header("webhook-signature").is_empty()), ("application/a2a+json".to_owned(), false));
        assert_eq!((&update["statusUpdate"]["taskId"], &update["statusUpdate"]["contextId"]), (&task["id"], &json!("ours")));
        // By JSON-RPC; the same id again takes the place of the first.
        let params = json!({ "taskId": task["id"], "id": "mine", "url": format!("{}?2", hook.url) });
        let made = client.rpc("CreateTaskPushNotificationConfig", params).await;
        assert_eq!(made["result"]["url"], format!("{}?2", hook.url), "{made}");
        assert_eq!(client.get(&path).await.ok()["configs"].as_array().unwrap().len(), 1);
        // Others have no part in it, and cannot.
        let stranger = broker.pull("c", &["b"]).await;
        A2a::of(&stranger.api, "b").get(&format!("{path}/mine")).await.refused(404, "TASK_NOT_FOUND");
        let subscription = list.body["items"][0]["subscriptionId"].as_str().unwrap();
        stranger.api.delete(&format!("/subscriptions/{subscription}")).await.refused(404, "NOT_FOUND");
        let page = broker.admin.get(&format!("/handoffs/{}", task["id"].as_str().unwrap())).await.expect(200).body;
        for filter in [json!({}), json!({ "taskId": page["taskId"] })] {
            stranger.api.post("/subscriptions", &json!({ "url": hook.url, "filter": filter })).await.refused(403, "FORBIDDEN");
        }
        stranger.api.post("/subscriptions", &json!({ "url": hook.url, "filter": { "handoffId": task["id"] } })).await.refused(404, "NOT_FOUND");
        b.api.post("/subscriptions", &json!({ "url": hook.url, "filter": { "handoffId": task["id"] } })).await.refused(403, "FORBIDDEN");
        client.get(&format!("{path}/other")).await.refused(404, "TASK_NOT_FOUND");
        for _ in 0..2 {
            assert_eq!(told_of(client.request(Method::DELETE, &format!("{path}/mine"))).await.ok(), json!({}));
        }
        client.get(&format!("{path}/mine")).await.refused(404, "TASK_NOT_FOUND");
        // An id with a slash, percent-encoded in the path; and a path that is not text.
        client.post(&path, &json!({ "id": "a/b", "url": hook.url })).await.ok();
        assert_eq!(client.get(&format!("{path}/a%2Fb")).await.ok()["id"], "a/b");
        assert_eq!(told_of(client.request(Method::DELETE, &format!("{path}/a%2Fb"))).await.ok(), json!({}));
        client.get("/tasks/%ff").await.refused(400, "INVALID_PARAMS");
        // An address inside the network, and what is none.
        for url in ["http://10.0.0.7/hook", "http://169.254.169.254/latest", "ftp://x/", "x", "http://u:p@x/"] {
            client.post(&path, &json!({ "url": url })).await.refused(400, "INVALID_PARAMS");
        }
        client.post(&path, &json!({ "url": hook.url, "token": "a\nb" })).await.refused(400, "INVALID_PARAMS");
        client.post(&path, &json!({})).await.refused(400, "INVALID_PARAMS");
        assert_eq!(client.get(&path).await.ok(), json!({ "configs": [] }));
    }

    // Finding D4 of 0.3.0.
    async fn a_receiver_that_waits_is_never_told_of_before_the_task_it_takes(broker: Broker) {
        let (_a, b, client) = pair(broker).await;
        let hooks: Vec<Hook> = futures_util::future::join_all((0..12).map(|_| Hook::start())).await;
        let mut tasks = Vec::new();
        for (number, hook) in hooks.iter().enumerate() {
            let message = text(&format!("m-{number}"), "Add up");
            let body = json!({ "message": message, "configuration": { "returnImmediately": true, "taskPushNotificationConfig": { "id": "mine", "url": hook.url } } });
            let take = async {
                let item = within("a handoff", async {
                    loop {
                        let items = b.api.get("/agents/b/inbox?wait=30").await.expect(200).body["items"].take();
                        if let Some(item) = items.as_array().and_then(|items| items.first()) {
                            return item.clone();
                        }
                    }
                })
                .await;
                let path = format!("/handoffs/{}", item["message"]["handoffId"].as_str().unwrap());
                for verb in ["accept", "complete"] {
                    b.api.post(&format!("{path}/{verb}"), &json!({ "fencingToken": item["fencingToken"] })).await.expect(200);
                }
            };
            let (sent, ()) = tokio::join!(client.send(body), take);
            tasks.push(sent.ok()["task"].clone());
        }
        for (hook, task) in hooks.iter().zip(&tasks) {
            let states = hook.states(3).await;
            assert_eq!(states, ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"], "{task}");
        }
        // A configuration in another's place goes on where that one was: nothing is told twice, and nothing is lost.
        let path = format!("/tasks/{}/pushNotificationConfigs", tasks[0]["id"].as_str().unwrap());
        let second = Hook::start().await;
        let of_first = async || {
            let list = broker.admin.get("/subscriptions").await.expect(200).body;
            let found = list["items"].as_array().unwrap().iter().find(|one| one["filter"]["handoffId"] == tasks[0]["id"]).cloned().unwrap();
            broker.admin.get(&format!("/subscriptions/{}", found["subscriptionId"].as_str().unwrap())).await.expect(200).body
        };
        let feed = broker.admin.get("/events?limit=500").await.expect(200).body;
        let last = feed["items"].as_array().unwrap().last().unwrap()["cursor"].clone();
        let before = until("the first configuration is told of everything", async || match of_first().await {
            one if one["progress"]["cursor"] == last => Ok(one),
            one => Err(one.to_string()),
        })
        .await;
        client.post(&path, &json!({ "id": "mine", "url": second.url })).await.ok();
        let after = of_first().await;
        assert_ne!(after["subscriptionId"], before["subscriptionId"]);
        assert_eq!(after["progress"]["cursor"], last);
        for hook in &hooks {
            let all = hook.all.lock().unwrap().clone();
            let ids: std::collections::HashSet<_> = all.iter().map(|(headers, _)| headers["webhook-id"].clone()).collect();
            assert_eq!((all.len(), ids.len()), (3, 3), "each is told once");
        }
    }

    async fn a_repeated_message_has_one_configuration_and_a_bad_one_replaces_none(broker: Broker) {
        let (_a, _b, client) = pair(broker).await;
        let hook = Hook::start().await;
        let body = json!({ "message": text("m", "Add up"), "configuration": { "returnImmediately": true, "taskPushNotificationConfig": { "url": hook.url } } });
        let task = client.send(body.clone()).await.ok()["task"].clone();
        let path = format!("/tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
        let made = client.get(&path).await.ok();
        assert_eq!(made["configs"].as_array().unwrap().len(), 1, "{made}");
        for _ in 0..2 {
            assert_eq!(client.send(body.clone()).await.ok()["task"]["id"], task["id"]);
        }
        assert_eq!(client.get(&path).await.ok(), made);
        client.post(&path, &json!({ "id": "n1", "url": hook.url })).await.ok();
        for bad in [json!({ "id": "n1", "url": "http://10.0.0.7/hook" }), json!({ "id": "n1", "url": hook.url, "token": "a\nb" })] {
            client.post(&path, &bad).await.refused(400, "INVALID_PARAMS");
            assert_eq!(client.get(&format!("{path}/n1")).await.ok()["url"], hook.url);
        }
    }

    async fn a_replaced_configuration_stops_after_its_present_event(broker: Broker) {
        let (_a, b, client) = pair(broker).await;
        let (first, second) = (Hook::slow().await, Hook::start().await);
        let config = json!({ "id": "mine", "url": first.url });
        let body = json!({ "message": text("m", "Add up"), "configuration": { "returnImmediately": true, "taskPushNotificationConfig": config } });
        let task = client.send(body).await.ok()["task"].clone();
        let path = format!("/tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
        // The first hook has the first event and does not answer; further events wait behind it.
        assert_eq!(first.states(1).await, ["TASK_STATE_SUBMITTED"]);
        done(&b, json!({ "sum": 7 })).await;
        client.post(&path, &json!({ "id": "mine", "url": second.url })).await.ok();
        first.answers.add_permits(10);
        let states = second.states(3).await;
        assert_eq!(states, ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
        assert_eq!(first.states(1).await, ["TASK_STATE_SUBMITTED"]);
    }

    async fn a_configuration_without_room_is_refused_before_the_commit(broker: Broker) {
        let (a, b, client) = pair(broker).await;
        let hook = Hook::start().await;
        let open = client.sent(text("m-1", "Add up")).await;
        for number in 0..200 {
            let filter = json!({ "handoffId": open["id"] });
            let own = json!({ "url": hook.url, "format": "a2a", "filter": filter, "description": format!("n{number}"), "eventTypes": ["handoff.rejected"] });
            a.api.post("/subscriptions", &own).await.expect(201);
        }
        let send = || client.send(json!({ "message": text("m-2", "Add more"), "configuration": { "returnImmediately": true, "taskPushNotificationConfig": { "url": hook.url } } }));
        send().await.refused(409, "CONFLICT");
        assert_eq!(client.get("/tasks").await.ok()["totalSize"], 1);
        let path = |task: &Value| format!("/tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
        client.post(&path(&open), &json!({ "id": "one more", "url": hook.url })).await.refused(409, "CONFLICT");
        // One of the same id takes the place of the first.
        client.post(&path(&open), &json!({ "id": "n7", "url": format!("{}?2", hook.url) })).await.ok();
        assert_eq!(client.get(&path(&open)).await.ok()["configs"].as_array().unwrap().len(), 200);
        // A task that has ended, and was told to its end, gives its place.
        done(&b, json!(7)).await;
        for _ in 0..2 {
            let task = send().await.ok()["task"].clone();
            assert_eq!(client.get(&path(&task)).await.ok()["configs"].as_array().unwrap().len(), 1);
        }
        assert_eq!(client.get(&path(&open)).await.ok()["configs"].as_array().unwrap().len(), 199);
    }
}

/// An endpoint for push notifications: it knows no signature.
struct Hook {
    url: String,
    all: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    /// Each answer takes one.
    answers: Arc<Semaphore>,
}

impl Hook {
    /// Answers at once.
    async fn start() -> Self {
        Self::with(Semaphore::MAX_PERMITS).await
    }

    /// Answers when the case lets it.
    async fn slow() -> Self {
        Self::with(0).await
    }

    async fn with(answers: usize) -> Self {
        let answers = Arc::new(Semaphore::new(answers));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/push", listener.local_addr().unwrap());
        let all: Arc<Mutex<Vec<(HeaderMap, Value)>>> = Arc::default();
        let (to_all, may_answer) = (Arc::clone(&all), Arc::clone(&answers));
        let app = Router::new().fallback(move |headers: HeaderMap, body: Bytes| {
            to_all.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
            let may_answer = Arc::clone(&may_answer);
            async move { may_answer.acquire_owned().await.unwrap().forget() }
        });
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, all, answers }
    }

    /// The first so many states that it was told of.
    async fn states(&self, count: usize) -> Vec<String> {
        until("notifications", async || {
            let all = self.all.lock().unwrap();
            if all.len() < count {
                return Err(format!("{all:?}"));
            }
            Ok(all.iter().map(|(_, update)| state(&update["statusUpdate"]).to_owned()).collect())
        })
        .await
    }
}
