//! Sessions of the console: login, cookie, forms, end, and what a session does not open.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use handoffd::clock::{random, random_id};
use handoffd::store::Store;
use handoffd::store::console_sessions::SessionRow;
use handoffd_domain::ids::{Micros, SessionId};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::form_urlencoded;

use crate::harness::{Broker, Caller, until};
use crate::message::Message;

/// Names and values of headers, or of a form.
type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A page as a browser gets it.
struct Page {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Page {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The token that the answer gives to the browser.
    fn token(&self) -> String {
        let cookie = self.header("set-cookie").split(';').next().unwrap();
        cookie.strip_prefix("handoffd_session=").unwrap().to_owned()
    }
}

/// A browser, with the token of its cookie where it has one.
#[derive(Clone)]
struct Browser {
    caller: Caller,
    token: Option<String>,
}

impl Browser {
    fn new(caller: &Caller) -> Self {
        Self { caller: Caller { key: None, ..caller.clone() }, token: None }
    }

    fn with(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Page {
        let request = match &self.token {
            Some(token) => {
                request.header("cookie", format!("theme=dark; handoffd_session={token}"))
            }
            None => request,
        };
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Page { status, headers, text: response.text().await.unwrap() }
    }

    async fn get(&self, path: &str) -> Page {
        self.send(self.caller.request(Method::GET, path)).await
    }

    async fn post_with(&self, path: &str, headers: &[(&str, &str)], form: &[(&str, &str)]) -> Page {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let kind = "application/x-www-form-urlencoded";
        let mut request =
            self.caller.request(Method::POST, path).header("content-type", kind).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request).await
    }

    /// Posts a form from a page of the broker's own origin.
    async fn post(&self, path: &str, form: &[(&str, &str)]) -> Page {
        self.post_with(path, &[("origin", &self.caller.base)], form).await
    }

    async fn log_in(&self, key: &str) -> Self {
        let page = self.post("/console/login", &[("key", key)]).await;
        assert_eq!(page.status, 303, "{}", page.text);
        self.with(&page.token())
    }

    /// The token of this session's forms.
    fn csrf(&self) -> String {
        let token = URL_SAFE_NO_PAD.decode(self.token.as_deref().unwrap()).unwrap();
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&token).unwrap();
        hex::encode(mac.chain_update(b"csrf").finalize().into_bytes())
    }

    /// Whether the session is open: the login page of a person who is logged in leads on.
    async fn is_open(&self) -> bool {
        match self.get("/console/login").await.status {
            303 => true,
            200 => false,
            status => panic!("the login page is {status}"),
        }
    }
}

/// A new key's public name and the key.
async fn key(broker: &Broker, role: &str) -> (String, String) {
    let made = broker.admin.post("/keys", &json!({ "role": role })).await.expect(201).body;
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("keyId"), text("apiKey"))
}

async fn sessions(broker: &Broker) -> Vec<Value> {
    broker.admin.pages("/sessions", 2, "sessionId").await
}

/// Puts a session with these times into the store; returns its token.
async fn session_with(
    store: &Arc<Store>,
    like: &SessionRow,
    last_seen_at: Micros,
    expires_at: Micros,
) -> String {
    let token = random::<32>();
    let (id, token_hash) = (SessionId(random_id()), Sha256::digest(token).into());
    let row = SessionRow { id, token_hash, last_seen_at, expires_at, ..like.clone() };
    store.insert_session(&row).await.unwrap();
    URL_SAFE_NO_PAD.encode(token)
}

both! {
    async fn a_person_logs_in_with_a_key_and_gets_a_cookie_for_the_console_alone(broker: Broker) {
        let browser = Browser::new(&broker.admin);
        let form = browser.get("/console/login?next=/console/tasks").await;
        assert_eq!((form.status, form.header("cache-control")), (200, "no-store"));
        assert!(form.header("content-type").starts_with("text/html"));
        assert!(form.header("content-security-policy").contains("default-src 'none'"));
        assert!(form.text.contains("value=\"/console/tasks\""), "{}", form.text);
        for role in ["admin", "operator", "auditor"] {
            let (key_id, key) = key(broker, role).await;
            let page = browser.post("/console/login", &[("key", &key), ("next", "/console/tasks?from=1")]).await;
            assert_eq!((page.status, page.header("location")), (303, "/console/tasks?from=1"));
            let cookie = page.header("set-cookie");
            assert!(cookie.ends_with("; Path=/console; Max-Age=43200; HttpOnly; SameSite=Lax"), "{cookie}");
            assert_eq!(page.token().len(), 43, "256 bits");
            let inside = browser.with(&page.token());
            assert!(inside.is_open().await);
            let listed = sessions(broker).await;
            assert_eq!((&listed[0]["keyId"], &listed[0]["role"]), (&json!(key_id), &json!(role)));
            assert!(!listed[0].to_string().contains(&page.token()), "no token in a list");
        }
        let (_, key) = key(broker, "operator").await;
        let padded = format!("  {key}\n");
        assert!(browser.log_in(&padded).await.is_open().await, "a key with the spaces of a paste");
        let secure = browser.post_with(
            "/console/login",
            &[("origin", &browser.caller.base), ("x-forwarded-proto", "https")],
            &[("key", &key)],
        )
        .await;
        assert!(secure.header("set-cookie").ends_with("; Secure"));
    }

    async fn a_wrong_key_and_an_agents_key_open_no_console(broker: Broker) {
        let agent = broker.pull("a", &[]).await;
        let browser = Browser::new(&broker.admin);
        let agents_key = agent.api.key.clone().unwrap();
        for (key, status, words) in [
            ("hd_no_such_key", 401, "not valid"),
            ("", 401, "not valid"),
            (agents_key.as_str(), 403, "key of an agent"),
        ] {
            let page = browser.post("/console/login", &[("key", key)]).await;
            assert_eq!((page.status, page.header("set-cookie")), (status, ""), "{key}");
            assert!(page.text.contains(words), "{}", page.text);
            assert!(key.is_empty() || !page.text.contains(key), "the page shows no key");
        }
        assert_eq!(sessions(broker).await, Vec::<Value>::new());
    }

    async fn a_return_path_is_a_page_of_the_console(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin);
        for next in [
            "//evil.example", "/\\evil.example", "https://evil.example/console", "/keys", "/console/../keys",
            "/console\r\nSet-Cookie: a=b", "javascript:alert(1)", "/consoles", "/console/logout",
        ] {
            let page = browser.get(&format!("/console/login?{}", query(next))).await;
            assert!(page.text.contains("name=\"next\" value=\"/console\""), "{next}: {}", page.text);
        }
        for next in ["//evil.example", "/console\r\nSet-Cookie: a=b", "/console/%2e%2e/keys"] {
            let page = browser.post("/console/login", &[("key", &key), ("next", next)]).await;
            assert_eq!((page.status, page.header("location")), (303, "/console"), "{next}");
            assert!(page.headers.get_all("set-cookie").iter().count() == 1);
        }
        let inside = browser.log_in(&key).await;
        let on = inside.get(&format!("/console/login?{}", query("/console/costs?day=1"))).await;
        assert_eq!(on.header("location"), "/console/costs?day=1");
        let off = inside.get(&format!("/console/login?{}", query("//evil.example"))).await;
        assert_eq!(off.header("location"), "/console");
    }

    async fn a_form_needs_its_sessions_token_and_a_page_of_this_origin(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin);
        let (one, other) = (browser.log_in(&key).await, browser.log_in(&key).await);
        let origin = one.caller.base.clone();
        let (token, foreign) = (one.csrf(), other.csrf());
        let refusals: &[(&str, Pairs<'_>, Pairs<'_>)] = &[
            ("no token", &[("origin", &origin)], &[]),
            ("a wrong token", &[("origin", &origin)], &[("_csrf", "0")]),
            ("another session's token", &[("origin", &origin)], &[("_csrf", &foreign)]),
            ("two tokens", &[("origin", &origin)], &[("_csrf", &token), ("_csrf", &token)]),
            ("another origin", &[("origin", "https://evil.example")], &[("_csrf", &token)]),
            ("an origin that is withheld", &[("origin", "null")], &[("_csrf", &token)]),
            ("neither origin nor site", &[], &[("_csrf", &token)]),
            ("another site", &[("origin", &origin), ("sec-fetch-site", "cross-site")], &[("_csrf", &token)]),
            ("a sibling site", &[("origin", &origin), ("sec-fetch-site", "same-site")], &[("_csrf", &token)]),
        ];
        for (what, headers, form) in refusals {
            let page = one.post_with("/console/logout", headers, form).await;
            assert_eq!(page.status, 403, "{what}");
            assert!(page.text.contains("Form refused"), "{what}: {}", page.text);
            assert!(one.is_open().await, "{what}");
        }
        let abroad = browser.post_with("/console/login", &[("origin", "https://evil.example")], &[("key", &key)]).await;
        assert_eq!(abroad.status, 403, "a login from elsewhere");
        let large = "x".repeat(2 << 20);
        let page = one.post("/console/logout", &[("_csrf", &token), ("more", &large)]).await;
        assert_eq!(page.status, 413);

        let done = one.post("/console/logout", &[("_csrf", &token)]).await;
        assert_eq!((done.status, done.header("location")), (303, "/console/login"));
        assert!(done.header("set-cookie").starts_with("handoffd_session=; Path=/console; Max-Age=0;"));
        assert!(!one.is_open().await && other.is_open().await);
        let again = one.post("/console/logout", &[("_csrf", &token)]).await;
        assert_eq!((again.status, again.header("location")), (303, "/console/login"));
        let back = one.post_with(
            "/console/logout",
            &[("origin", &origin), ("referer", &format!("{origin}/console/tasks?from=1"))],
            &[("_csrf", &token)],
        )
        .await;
        assert_eq!(back.header("location"), "/console/login?next=%2Fconsole%2Ftasks%3Ffrom%3D1");
        let json = one.post_with("/console/logout?format=json", &[("origin", &origin)], &[]).await;
        assert_eq!((json.status, json.header("content-type")), (401, "application/problem+json"));
    }

    async fn a_session_ends_by_age_and_by_idleness(broker: Broker) {
        let (key_id, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin).log_in(&key).await;
        let store = broker.store().await;
        let tenant = "default".parse().unwrap();
        let mut listed = store.list_sessions(&tenant, None, 9).await.unwrap();
        let now = listed.remove(0);
        assert_eq!((now.key_id.as_str(), now.expires_at.0 - now.created_at.0), (key_id.as_str(), 12 * 3_600_000_000));
        let minutes = |count: i64| Micros(now.created_at.0 + count * 60_000_000);
        for (what, seen, expires, open) in [
            ("in use", minutes(0), minutes(60), true),
            ("expired", minutes(0), minutes(0), false),
            ("idle for less than an hour", minutes(-50), minutes(60), true),
            ("idle for an hour", minutes(-60), minutes(60), false),
        ] {
            let token = session_with(&store, &now, seen, expires).await;
            assert_eq!(browser.with(&token).is_open().await, open, "{what}");
        }
        store.close().await;
        for strange in ["", "x", "\"quoted\"", &URL_SAFE_NO_PAD.encode(random::<32>())] {
            assert!(!browser.with(strange).is_open().await, "{strange}");
        }
    }

    async fn a_page_that_waits_for_news_keeps_no_session_open(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin).log_in(&key).await;
        let store = broker.store().await;
        let tenant = "default".parse().unwrap();
        let like = store.list_sessions(&tenant, None, 9).await.unwrap().remove(0);
        let seen = Micros(like.created_at.0 - 50 * 60_000_000);
        let token = session_with(&store, &like, seen, Micros(like.created_at.0 + 3_600_000_000)).await;
        let hash: [u8; 32] = Sha256::digest(URL_SAFE_NO_PAD.decode(&token).unwrap()).into();
        let (page, last_seen) = (browser.with(&token), async || {
            store.find_session(&hash).await.unwrap().unwrap().last_seen_at
        });
        // An event is there, so that no request has to wait for one.
        let (a, _b) = broker.pull_pair().await;
        a.submit(&Message::initial("a", "b")).await.expect(202);
        for _ in 0..20 {
            let news = page.get("/console/live?since=2020-01-01T00:00:00Z").await;
            assert!(news.status == 200, "{}: {}", news.status, news.text);
            assert_eq!(last_seen().await, seen);
        }
        assert_eq!(page.get("/console").await.status, 200);
        until("the page is noted", async || {
            let at = last_seen().await;
            if at > seen { Ok(()) } else { Err(format!("{at:?}")) }
        })
        .await;
        store.close().await;
    }

    async fn revoking_a_key_ends_its_sessions(broker: Broker) {
        let (key_id, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin);
        let inside = browser.log_in(&key).await;
        broker.admin.delete(&format!("/keys/{key_id}")).await.expect(200);
        assert!(!inside.is_open().await);
        assert_eq!(sessions(broker).await, Vec::<Value>::new());
        assert_eq!(browser.post("/console/login", &[("key", &key)]).await.status, 401);
    }

    async fn log_out_everywhere_ends_all_sessions_of_the_key(broker: Broker) {
        let ((_, first), (_, second)) = (key(broker, "operator").await, key(broker, "auditor").await);
        let browser = Browser::new(&broker.admin);
        let (one, two) = (browser.log_in(&first).await, browser.log_in(&first).await);
        let other = browser.log_in(&second).await;
        let done = one.post("/console/logout-everywhere", &[("_csrf", &one.csrf())]).await;
        assert_eq!(done.status, 303);
        assert!(!one.is_open().await && !two.is_open().await);
        assert!(other.is_open().await, "another key's session goes on");
    }

    async fn a_new_login_ends_the_browsers_session_before_it(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let one = Browser::new(&broker.admin).log_in(&key).await;
        let two = one.log_in(&key).await;
        assert!(!one.is_open().await && two.is_open().await);
    }

    async fn operators_list_and_end_the_tenants_sessions(broker: Broker) {
        let (_, key) = key(broker, "auditor").await;
        let browser = Browser::new(&broker.admin);
        let mut inside = Vec::new();
        for _ in 0..3 {
            inside.push(browser.log_in(&key).await);
        }
        let listed = sessions(broker).await;
        assert_eq!(listed.len(), 3);
        let path = format!("/sessions/{}", listed[0]["sessionId"].as_str().unwrap());
        let auditor = broker.person("auditor").await;
        auditor.get("/sessions").await.refused(403, "FORBIDDEN");
        auditor.delete(&path).await.refused(403, "FORBIDDEN");
        let operator = broker.person("operator").await;
        let ended = operator.delete(&path).await.expect(200).body;
        assert_eq!(ended, json!({ "sessionId": listed[0]["sessionId"] }));
        operator.delete(&path).await.refused(404, "NOT_FOUND");
        assert!(!inside[2].is_open().await, "the newest is the first of the list");
        assert!(inside[0].is_open().await && inside[1].is_open().await);
    }

    async fn sessions_of_another_tenant_are_out_of_sight(broker: Broker) {
        let made = broker.command(&["key", "create", "--tenant", "other", "--role", "admin"]).await;
        assert!(made.status.success(), "{made:?}");
        let key = String::from_utf8(made.stdout).unwrap();
        let inside = Browser::new(&broker.admin).log_in(key.trim()).await;
        let other = broker.caller(Some(key.trim()));
        let listed = other.get("/sessions").await.expect(200).body;
        let path = format!("/sessions/{}", listed["items"][0]["sessionId"].as_str().unwrap());
        assert_eq!(sessions(broker).await, Vec::<Value>::new());
        broker.admin.delete(&path).await.refused(404, "NOT_FOUND");
        assert!(inside.is_open().await);
    }

    async fn two_brokers_share_a_session(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let here = Browser::new(&broker.admin).log_in(&key).await;
        let second = async || {
            if broker.url.starts_with("sqlite") {
                return (broker.restart().await, None);
            }
            let (caller, running) = broker.second().await;
            (caller, Some(running))
        };
        let (caller, running) = second().await;
        let there = Browser { caller: Caller { key: None, ..caller }, ..here.clone() };
        assert!(there.is_open().await);
        let done = there.post("/console/logout", &[("_csrf", &there.csrf())]).await;
        assert_eq!(done.status, 303, "forms of one broker are taken by the other: {}", done.text);
        assert!(!there.is_open().await);
        if let Some(running) = running {
            assert!(!here.is_open().await);
            running.stop().await;
        }
    }

    async fn the_cookie_counts_in_the_console_alone(broker: Broker) {
        let (_, key) = key(broker, "admin").await;
        let inside = Browser::new(&broker.admin).log_in(&key).await;
        for path in ["/agents", "/keys", "/sessions", "/tasks"] {
            assert_eq!(inside.get(path).await.status, 401, "{path}");
        }
        assert_eq!(inside.post("/agents", &[]).await.status, 401);
        // The key itself opens no page, neither as a cookie nor as a header.
        assert!(!inside.with(&key).is_open().await);
        let page = Browser { caller: broker.caller(Some(&key)), token: None }.get("/console/login").await;
        assert_eq!(page.status, 200);
    }
}

both! {
    with [("HANDOFFD_CONSOLE__LOGINS_PER_MINUTE", "3")]
    async fn logins_are_limited_by_the_address(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin);
        for n in 0..3 {
            let wrong = format!("hd_{n}{n}{n}{n}{n}{n}{n}{n}{n}");
            assert_eq!(browser.post("/console/login", &[("key", &wrong)]).await.status, 401);
        }
        let page = browser.post("/console/login", &[("key", &key)]).await;
        assert_eq!(page.status, 429);
        let seconds: u64 = page.header("retry-after").parse().unwrap();
        assert!((1..=60).contains(&seconds));
        assert!(page.text.contains("Too many attempts"), "{}", page.text);
        broker.caller(Some(&key)).get("/agents").await.expect(200);
    }
}

both! {
    with [("HANDOFFD_CONSOLE__LOGINS_PER_MINUTE", "1000")]
    async fn logins_are_limited_by_the_beginning_of_the_key(broker: Broker) {
        let browser = Browser::new(&broker.admin);
        for n in 0..10 {
            let page = browser.post("/console/login", &[("key", &format!("hd_ABCDEFGH{n}"))]).await;
            assert_eq!(page.status, 401);
        }
        let page = browser.post("/console/login", &[("key", "hd_ABCDEFGHIJ")]).await;
        assert_eq!(page.status, 429);
        assert_eq!(browser.post("/console/login", &[("key", "hd_HGFEDCBA")]).await.status, 401);
    }
}

both! {
    with [
        ("HANDOFFD_CONSOLE__SECURE_COOKIE", "always"),
        ("HANDOFFD_CONSOLE__SESSION_HOURS", "1"),
        ("HANDOFFD_SERVER__PUBLIC_URL", "https://hand.example"),
    ]
    async fn settings_rule_the_cookie_and_the_public_address_is_an_origin(broker: Broker) {
        let (_, key) = key(broker, "operator").await;
        let browser = Browser::new(&broker.admin);
        let page = browser.post_with("/console/login", &[("origin", "https://hand.example")], &[("key", &key)]).await;
        assert_eq!(page.status, 303, "{}", page.text);
        let cookie = page.header("set-cookie");
        assert!(cookie.contains("Max-Age=3600;") && cookie.ends_with("; Secure"), "{cookie}");
    }
}

both! {
    with [("HANDOFFD_CONSOLE__ENABLED", "false")]
    async fn a_console_that_is_off_has_no_paths(broker: Broker) {
        broker.admin.get("/console/login").await.refused(404, "NOT_FOUND");
    }
}

/// `next` as a query.
fn query(next: &str) -> String {
    form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish()
}
