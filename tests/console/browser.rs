//! A browser without scripts: a cookie, pages, and forms with the token that they have.

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;
use url::form_urlencoded::Serializer;

use crate::harness::{Broker, Caller};

/// The largest page, in bytes.
const LARGEST: usize = 100 * 1024;

pub struct Page {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Page {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The page with this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Whether the page has a text as such.
    pub fn says(&self, words: &str) -> bool {
        self.text.contains(words)
    }
}

#[derive(Clone)]
pub struct Browser {
    caller: Caller,
    token: String,
}

impl Browser {
    /// A browser whose visitor logged in with a new key of that role.
    pub async fn of(broker: &Broker, role: &str) -> Self {
        let caller = broker.person(role).await;
        let key = caller.key.clone().unwrap();
        let mut browser = Self { caller: Caller { key: None, ..caller }, token: String::new() };
        let page = browser.send(Method::POST, "/console/login", &[("key", &key)]).await.expect(303);
        let cookie = page.header("set-cookie").split(';').next().unwrap().to_owned();
        browser.token = cookie;
        browser
    }

    /// A browser without a session.
    pub fn stranger(broker: &Broker) -> Self {
        let caller = Caller { key: None, ..broker.admin.clone() };
        Self { caller, token: String::new() }
    }

    async fn send(&self, method: Method, path: &str, form: &[(&str, &str)]) -> Page {
        let mut request = self.caller.request(method.clone(), path).header("cookie", &self.token);
        if method == Method::POST {
            let body = Serializer::new(String::new()).extend_pairs(form).finish();
            request = request
                .header("origin", &self.caller.base)
                .header("content-type", "application/x-www-form-urlencoded")
                .body(body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let page = Page { status, headers, text: response.text().await.unwrap() };
        protected(path, &page);
        page
    }

    pub async fn get(&self, path: &str) -> Page {
        self.send(Method::GET, path, &[]).await
    }

    /// The answer of `?format=json` for a page.
    pub async fn json(&self, path: &str) -> Value {
        let join = if path.contains('?') { '&' } else { '?' };
        let page = self.get(&format!("{path}{join}format=json")).await.expect(200);
        assert_eq!(page.header("content-type"), "application/json", "{path}");
        serde_json::from_str(&page.text).unwrap()
    }

    /// Posts a form with the token of the page that has it.
    pub async fn post(&self, path: &str, form: &[(&str, &str)]) -> Page {
        let page = self.get("/console").await.expect(200);
        let csrf = between(&page.text, "name=\"_csrf\" value=\"", "\"");
        let mut whole = form.to_vec();
        whole.push(("_csrf", csrf));
        self.send(Method::POST, path, &whole).await
    }

    /// Posts a form without a token.
    pub async fn post_bare(&self, path: &str, form: &[(&str, &str)]) -> Page {
        self.send(Method::POST, path, form).await
    }
}

/// The text between two others.
pub fn between<'a>(text: &'a str, open: &str, close: &str) -> &'a str {
    let at = text.find(open).unwrap_or_else(|| panic!("no {open} in {text}")) + open.len();
    &text[at..at + text[at..].find(close).unwrap()]
}

/// Headers of every answer of the console.
fn protected(path: &str, page: &Page) {
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
    assert_eq!(page.header("referrer-policy"), "same-origin", "{path}");
    if !path.starts_with("/console/assets/") {
        assert_eq!(page.header("cache-control"), "no-store", "{path}");
    }
    if page.header("content-type").starts_with("text/html") {
        assert!(page.text.len() <= LARGEST, "{path} has {} bytes", page.text.len());
        assert!(!page.text.contains(" style="), "{path}: the policy forbids inline styles");
        assert!(!page.text.contains(" onclick="), "{path}: the policy forbids inline scripts");
    }
}
