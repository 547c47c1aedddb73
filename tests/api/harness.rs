//! A broker of its own for each case, ways to talk to it, and what must hold when the case is over.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures_util::FutureExt;
use handoffd::app::{self, Access, Running, StartError};
use handoffd::archive::Contents;
use handoffd::audit::{LogCheck, verify_log};
use handoffd::clock::random_id;
use handoffd::config::Config;
use handoffd::store::{Needs, Store, Writes};
use handoffd::vault::Vault;
use handoffd_domain::ids::Micros;
use handoffd_evidence::record::{Actor, RecordDraft, RecordKind};
use reqwest::Method;
use reqwest::header::HeaderMap;
use rmcp::ServerHandler;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::databases::{database, migrated_database, migrated_file, migrated_pair, on_server};
use crate::described;
use crate::message::Message;
use crate::receiver::{Complaints, Delivery, Receiver};

/// Nothing that a case waits for takes longer than this.
const DEADLINE: Duration = Duration::from_mins(1);

/// Whether callers speak HTTP/2 from the first byte; scripts/test-http2 runs the doors' suites so. A `Host` that
/// contradicts `:authority` is 400 then, whatever a door thinks of it.
pub fn over_http2() -> bool {
    std::env::var("HANDOFFD_TEST_HTTP").is_ok_and(|version| version == "2")
}

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
    /// Postgres, under the role that `handoffd migrate --serving-role` makes.
    Serving,
    /// The same, with the log in a database of its own.
    Apart,
}

/// Settings by their environment names.
pub type Settings<'a> = &'a [(&'a str, &'a str)];

/// Makes a test on each store of every case. `with` gives settings by their environment names.
macro_rules! both {
    ($(with [$($setting:expr),* $(,)?])? async fn $name:ident($broker:ident: Broker) $body:block) => {
        mod $name {
            #[allow(unused_imports, reason = "not every case needs everything")]
            use super::*;
            async fn case($broker: &crate::harness::Broker) $body
            const SETTINGS: crate::harness::Settings<'static> = &[$($($setting),*)?];
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                crate::harness::run(crate::harness::Kind::Sqlite, SETTINGS, case).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                crate::harness::run(crate::harness::Kind::Postgres, SETTINGS, case).await;
            }
        }
    };
    ($(with [$($setting:expr),* $(,)?])? async fn $name:ident($broker:ident: Broker) $body:block $($rest:tt)+) => {
        both! { $(with [$($setting),*])? async fn $name($broker: Broker) $body }
        both! { $($rest)+ }
    };
}

/// Runs a case on a fresh broker, checks what must hold afterwards, and clears up however it ends.
pub async fn run(kind: Kind, settings: Settings<'_>, case: impl AsyncFnOnce(&Broker)) {
    conclude(Broker::start(kind, settings, app::start).await, case).await;
}

/// Runs a case on a fresh broker on SQLite, with this handler behind its MCP door.
pub async fn run_with_mcp<H: ServerHandler + Clone>(handler: H, case: impl AsyncFnOnce(&Broker)) {
    let start = async |config| app::start_with_mcp(config, handler).await;
    conclude(Broker::start(Kind::Sqlite, &[], start).await, case).await;
}

async fn conclude(broker: Broker, case: impl AsyncFnOnce(&Broker)) {
    let outcome = AssertUnwindSafe(case(&broker)).catch_unwind().await;
    let outcome = match outcome {
        Ok(()) => AssertUnwindSafe(broker.check()).catch_unwind().await,
        failed => failed,
    };
    broker.clear().await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Awaits something, within the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = timeout(DEADLINE, future).await else {
        panic!("{what} did not come within {DEADLINE:?}");
    };
    value
}

/// Asks until it is there, within the deadline; fails with the last state.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match ask().await {
            Ok(value) => return value,
            Err(state) if Instant::now() > deadline => panic!("{what}: not so, but {state}"),
            Err(_) => sleep(Duration::from_millis(15)).await,
        }
    }
}

/// A broker, its store, and the admin's key.
pub struct Broker {
    pub admin: Caller,
    /// `sqlite:…` or `postgres://…`, as the database's owner.
    pub url: String,
    pub settings: Vec<(String, String)>,
    pub complaints: Complaints,
    running: tokio::sync::Mutex<Option<Running>>,
    databases: Vec<String>,
    role: Option<String>,
    /// This case takes the store away, and so provokes 503.
    may_be_unavailable: AtomicBool,
    folder: tempfile::TempDir,
}

/// Has the command that an owner runs make the role; gives it a password, for not every server trusts its
/// own machine.
async fn make_role(owner: &str, audit: &str, role: &str) {
    let settings = [("HANDOFFD_DATABASE_URL", owner), ("HANDOFFD_AUDIT__DATABASE_URL", audit)];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let done = command(&settings, &["migrate", "--serving-role", role]).await;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    // A log apart comes with its operations, both migrated; the other database is empty.
    let migrated = if audit.is_empty() { "migrations applied" } else { "is up to date" };
    assert!(said.contains(migrated) && said.contains(role), "{said}");
    on_server(format!("ALTER ROLE {role} PASSWORD '{role}'")).await;
}

/// The same database, as the role.
fn as_role(url: &str, role: Option<&str>) -> String {
    let (Some(role), Ok(mut url)) = (role, url.parse::<url::Url>()) else { return url.to_owned() };
    url.set_username(role).unwrap();
    url.set_password(Some(role)).unwrap();
    url.into()
}

/// The text of a settings file that a case gives: lists of tables have no environment name.
pub const FILE: &str = "HANDOFFD_TEST_FILE";

fn configured(folder: &std::path::Path, settings: &[(String, String)]) -> Config {
    let path = settings.iter().find(|(name, _)| name == FILE).map(|(_, text)| {
        let path = folder.join("handoffd.toml");
        std::fs::write(&path, text).unwrap();
        path
    });
    Config::load(path.as_deref(), settings.to_vec()).unwrap()
}

/// A client of brokers.
pub fn http() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        // Reading the system's certificates takes longer than most calls, and no server here speaks TLS.
        .tls_certs_only([])
        .redirect(reqwest::redirect::Policy::none())
        .timeout(Duration::from_mins(1))
        // The broker ends a connection that is idle for ten seconds: one that ends as it is used again fails the request.
        .pool_idle_timeout(Duration::from_secs(5))
}

impl Broker {
    async fn start(
        kind: Kind,
        overrides: Settings<'_>,
        start: impl AsyncFnOnce(Config) -> Result<Running, StartError>,
    ) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let folder = tempfile::tempdir().unwrap();
        let (url, audit) = match kind {
            Kind::Sqlite => (migrated_file(&folder.path().join("api.db")).await, String::new()),
            Kind::Postgres => (migrated_database().await, String::new()),
            Kind::Serving => (database().await, String::new()),
            Kind::Apart => migrated_pair().await,
        };
        let served = matches!(kind, Kind::Serving | Kind::Apart);
        let role = served.then(|| format!("handoffd_{}", random_id().simple()));
        if let Some(role) = &role {
            make_role(&url, &audit, role).await;
        }
        let (serving, serving_log) =
            (as_role(&url, role.as_deref()), as_role(&audit, role.as_deref()));
        let admin_key = format!("admin-{}", random_id());
        let archive = format!("file://{}", folder.path().join("archive").display());
        let mut settings: Vec<(String, String)> = [
            ("HANDOFFD_DATABASE_URL", serving.as_str()),
            ("HANDOFFD_AUDIT__DATABASE_URL", serving_log.as_str()),
            ("HANDOFFD_DATA_DIR", folder.path().to_str().unwrap()),
            ("HANDOFFD_LISTEN", "127.0.0.1:0"),
            ("HANDOFFD_ADMIN_KEY", admin_key.as_str()),
            ("HANDOFFD_EGRESS_ALLOW", "127.0.0.0/8,::1/128"),
            ("HANDOFFD_DATABASE__MAX_CONNECTIONS", "4"),
            ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "20"),
            // Ten times the default: no case fails because the machine is slow.
            ("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "100000"),
            ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "300000"),
            ("HANDOFFD_RETENTION__ARCHIVE_URL", archive.as_str()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        for (name, value) in overrides {
            settings.retain(|(known, _)| known != name);
            settings.push(((*name).to_owned(), (*value).to_owned()));
        }
        let databases = [&url, &audit].into_iter().filter(|url| url.starts_with("postgres"));
        let databases = databases.map(|url| url.rsplit('/').next().unwrap().to_owned()).collect();
        let config = configured(folder.path(), &settings);
        let running = start(config).await.unwrap();
        let http = if over_http2() { http().http2_prior_knowledge() } else { http() };
        let http = http.build().unwrap();
        let base = format!("http://{}", running.address);
        Self {
            admin: Caller { http, base, key: Some(admin_key) },
            url,
            settings,
            complaints: Complaints::default(),
            running: tokio::sync::Mutex::new(Some(running)),
            databases,
            role,
            may_be_unavailable: AtomicBool::new(false),
            folder,
        }
    }

    fn configured(&self) -> Config {
        configured(self.folder.path(), &self.settings)
    }

    /// The folder of the archive.
    pub fn archive(&self) -> std::path::PathBuf {
        self.folder.path().join("archive")
    }

    /// The case makes the broker answer 503, so a 503 is not a fault.
    pub fn expect_unavailable(&self) {
        self.may_be_unavailable.store(true, Ordering::Relaxed);
    }

    /// Stops the broker and starts another on the same store, on another port.
    pub async fn restart(&self) -> Caller {
        self.restart_after(async || {}).await
    }

    /// The same, with something done while no broker runs.
    pub async fn restart_after(&self, between: impl AsyncFnOnce()) -> Caller {
        let old = self.running.lock().await.take().unwrap();
        within("an orderly stop", old.stop()).await;
        between().await;
        let config = self.configured();
        let running = app::start(config).await.unwrap();
        let base = format!("http://{}", running.address);
        *self.running.lock().await = Some(running);
        Caller { base, ..self.admin.clone() }
    }

    /// Another broker on the same store.
    pub async fn second(&self) -> (Caller, Running) {
        let config = self.configured();
        let running = app::start(config).await.unwrap();
        (self.caller_of(&running), running)
    }

    /// A caller with another key, or none.
    pub fn caller(&self, key: Option<&str>) -> Caller {
        Caller { key: key.map(str::to_owned), ..self.admin.clone() }
    }

    /// A person with a role.
    pub async fn person(&self, role: &str) -> Caller {
        let made = self.admin.post("/keys", &json!({ "role": role })).await.expect(201);
        self.caller(made.body["apiKey"].as_str())
    }

    /// Registers an agent.
    pub async fn agent(&self, spec: Value) -> Agent {
        let made = self.admin.post("/agents", &spec).await.expect(201);
        Agent::of(self, &made.body)
    }

    /// An agent that takes its handoffs from its inbox.
    pub async fn pull(&self, id: &str, targets: &[&str]) -> Agent {
        self.agent(json!({ "agentId": id, "handoffTargets": targets })).await
    }

    /// An agent that takes its handoffs at that receiver's.
    pub async fn webhook(&self, id: &str, targets: &[&str], receiver: &Receiver) -> Agent {
        let delivery = json!({ "mode": "webhook", "url": receiver.url });
        let spec = json!({ "agentId": id, "handoffTargets": targets, "delivery": delivery });
        let agent = self.agent(spec).await;
        receiver.trust(&agent.webhook_secret);
        agent
    }

    /// A receiver that answers by a function.
    pub async fn receiver<F>(
        &self,
        script: impl Fn(Delivery) -> F + Send + Sync + 'static,
    ) -> Receiver
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Receiver::start(self.complaints.clone(), script).await
    }

    /// A receiver that says one thing after the other, and then yes.
    pub async fn saying(&self, script: Vec<Response<Body>>) -> Receiver {
        Receiver::saying(self.complaints.clone(), script).await
    }

    /// `a` may hand off to `b`, who says one thing after the other, and then yes.
    pub async fn pair(&self, script: Vec<Response<Body>>) -> (Agent, Agent, Receiver) {
        let receiver = self.saying(script).await;
        let a = self.pull("a", &["b"]).await;
        let b = self.webhook("b", &[], &receiver).await;
        (a, b, receiver)
    }

    /// `a` may hand off to `b`, who looks into its inbox.
    pub async fn pull_pair(&self) -> (Agent, Agent) {
        (self.pull("a", &["b"]).await, self.pull("b", &[]).await)
    }

    /// Waits until a handoff has the status, and returns it.
    pub async fn handoff_becomes(&self, message: &Message, status: &str) -> Value {
        until(&format!("handoff {} is {status}", message.id()), async || {
            let found = self.admin.get(&message.path()).await.expect(200).body;
            if found["status"] == status { Ok(found) } else { Err(found.to_string()) }
        })
        .await
    }

    /// The task of a message.
    pub async fn task(&self, message: &Message) -> Value {
        self.admin.get(&message.task_path()).await.expect(200).body
    }

    /// The kinds of a task's records, in log order.
    pub async fn kinds(&self, message: &Message) -> Vec<String> {
        let trace = self.trace(message).await;
        let kind = |record: &Value| record["kind"].as_str().unwrap().to_owned();
        trace["records"].as_array().unwrap().iter().map(kind).collect()
    }

    /// The trace of a task.
    pub async fn trace(&self, message: &Message) -> Value {
        let path = format!("{}/trace", message.task_path());
        let trace = self.admin.get(&path).await.expect(200).body;
        assert_eq!(trace["verification"]["ok"], true, "{}", trace["verification"]);
        trace
    }

    /// How many records the log has.
    pub async fn log_size(&self) -> u64 {
        self.metric("handoff_log_records").await
    }

    /// The sum of all series of a metric.
    pub async fn metric(&self, name: &str) -> u64 {
        let text = self.admin.metrics().await;
        text.lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64)
            .sum()
    }

    /// The `handoffd` command, on this broker's store and settings.
    pub async fn command(&self, arguments: &[&str]) -> std::process::Output {
        command(&self.settings, arguments).await
    }

    /// The checks at the end of a case.
    async fn check(&self) {
        let running = self.running.lock().await.take();
        if let Some(running) = running {
            let metrics = self.caller_of(&running).metrics().await;
            for line in metrics.lines().filter(|line| line.starts_with("handoff_http_requests")) {
                let told = self.may_be_unavailable.load(Ordering::Relaxed);
                let bad = line.contains("status=\"5") && !(told && line.contains("status=\"503"));
                assert!(!bad, "answered with a 5xx: {line}");
            }
            within("an orderly stop", running.stop()).await;
        }
        let complaints = self.complaints.lock().unwrap().clone();
        assert!(complaints.is_empty(), "{complaints:?}");
        let config = self.configured();
        let store = app::open_store(&config, Access::Beside).await.unwrap();
        let contents = app::open_archive(&config).unwrap().contents(Arc::clone(&store));
        for tenant in store.list_tenants().await.unwrap() {
            verify(&store, &contents, &tenant).await;
        }
        store.close().await;
    }

    /// The broker's store, opened beside it.
    pub async fn store(&self) -> Arc<Store> {
        app::open_store(&self.configured(), Access::Beside).await.unwrap()
    }

    /// Stops the broker, and opens its store as `handoffd verify` does.
    pub async fn beside(&self) -> Beside {
        let old = self.running.lock().await.take().unwrap();
        within("an orderly stop", old.stop()).await;
        let config = self.configured();
        let store = app::open_store(&config, Access::Beside).await.unwrap();
        let contents = app::open_archive(&config).unwrap().contents(Arc::clone(&store));
        let vault = app::known_vault(&config, &store).await.unwrap();
        Beside { store, contents, vault }
    }

    fn caller_of(&self, running: &Running) -> Caller {
        Caller { base: format!("http://{}", running.address), ..self.admin.clone() }
    }

    async fn clear(self) {
        if let Some(running) = self.running.lock().await.take() {
            let _ = timeout(Duration::from_secs(5), running.stop()).await;
        }
        for name in &self.databases {
            on_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
        if let Some(role) = &self.role {
            on_server(format!("DROP ROLE {role}")).await;
        }
        drop(self.folder);
    }
}

/// The `handoffd` command with these settings.
pub async fn command(settings: &[(String, String)], arguments: &[&str]) -> std::process::Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_handoffd"));
    command.args(arguments);
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    within("the command's end", command.output()).await.unwrap()
}

/// The store of a broker that was stopped.
pub struct Beside {
    pub store: Arc<Store>,
    contents: Contents,
    vault: Option<Vault>,
}

impl Beside {
    /// The result of a verification of the one tenant: a fault, or the reason why it ended.
    pub async fn fault(&self) -> Option<String> {
        let tenants = self.store.list_tenants().await.unwrap();
        let check = LogCheck {
            contents: Some(&self.contents),
            vault: self.vault.as_ref(),
            ..LogCheck::default()
        };
        match verify_log(&self.store, &tenants[0], check).await {
            Ok(report) => {
                report.first_fault.map(|fault| format!("{}: {}", fault.fault, fault.detail))
            }
            Err(err) => Some(err.to_string()),
        }
    }

    /// Adds records to the log until a tile of its tree is full.
    pub async fn lengthen(&self, records: usize) {
        let tenant = self.store.list_tenants().await.unwrap().remove(0);
        let kind = RecordKind::MasterKeyChanged;
        let draft = RecordDraft::new(tenant, kind, Micros(7), Actor::broker());
        let writes = Writes { records: vec![draft; records], ..Writes::default() };
        self.store.transact(&Needs::default(), &mut |_| writes.clone()).await.unwrap();
    }

    pub async fn close(self) {
        self.store.close().await;
    }
}

/// The verifier says well: log, tree, contents, handoffs and their checkpoints.
async fn verify(store: &Store, contents: &Contents, tenant: &handoffd_domain::ids::TenantId) {
    let check = LogCheck { contents: Some(contents), ..LogCheck::default() };
    let report = verify_log(store, tenant, check).await.unwrap();
    assert_eq!(report.first_fault, None, "tenant {tenant}");
}

/// A registered agent, with all that is shown once.
#[derive(Debug, Clone)]
pub struct Agent {
    pub id: String,
    /// Speaks with the agent's own key.
    pub api: Caller,
    pub signing_secret: String,
    pub webhook_secret: String,
}

impl Agent {
    fn of(broker: &Broker, made: &Value) -> Self {
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        Self {
            id: text("agentId"),
            api: broker.caller(Some(&text("apiKey"))),
            signing_secret: text("signingSecret"),
            webhook_secret: text("webhookSecret"),
        }
    }

    pub async fn submit(&self, message: &Message) -> Answer {
        self.api.post("/handoffs", message).await
    }

    /// Submits and waits for the verdict.
    pub async fn submit_and_wait(&self, message: &Message) -> Answer {
        self.api.submit_with(message, &[("Prefer", "wait=20")]).await
    }

    /// A verdict by callback.
    pub async fn say(&self, message: &Message, verb: &str, token: i64, body: Value) -> Answer {
        let path = format!("{}/{verb}", message.path());
        let token = token.to_string();
        self.api.send(Method::POST, &path, &[("Handoff-Fencing-Token", &token)], &body).await
    }

    /// Claims up to `max` handoffs, waiting for the first.
    pub async fn claim(&self, max: u32) -> Vec<Value> {
        let path = format!("/agents/{}/inbox?wait=20&max={max}", self.id);
        self.api.get(&path).await.expect(200).body["items"].as_array().unwrap().clone()
    }

    /// Claims one handoff; returns its fencing token.
    pub async fn claim_one(&self) -> i64 {
        let items = self.claim(1).await;
        assert_eq!(items.len(), 1, "{items:?}");
        items[0]["fencingToken"].as_i64().unwrap()
    }
}

/// A caller of the API.
#[derive(Debug, Clone)]
pub struct Caller {
    pub http: reqwest::Client,
    pub base: String,
    pub key: Option<String>,
}

impl Caller {
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let mut request = self.request(method.clone(), path).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::to(method, request.send().await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::to(Method::GET, self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::to(Method::DELETE, self.request(Method::DELETE, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[], body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], body).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, &[], body).await
    }

    /// A body as it is, as JSON.
    pub async fn raw(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, path).header("content-type", "application/json");
        Answer::to(Method::POST, request.body(body).send().await.unwrap()).await
    }

    pub async fn submit_with(&self, message: &Message, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::POST, "/handoffs", headers, message).await
    }

    pub async fn metrics(&self) -> String {
        let response = self.request(Method::GET, "/metrics").send().await.unwrap();
        response.text().await.unwrap()
    }

    /// Every item of a list, page by page; asserts that none comes twice.
    pub async fn pages(&self, path: &str, limit: usize, id: &str) -> Vec<Value> {
        let mut items: Vec<Value> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut cursor = String::new();
        loop {
            let join = if path.contains('?') { '&' } else { '?' };
            let page = self.get(&format!("{path}{join}limit={limit}{cursor}")).await.expect(200);
            let rows = page.body["items"].as_array().unwrap();
            assert!(rows.len() <= limit);
            for row in rows {
                assert!(seen.insert(row[id].to_string()), "{} comes twice", row[id]);
            }
            items.extend(rows.iter().cloned());
            match page.body["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }
}

/// An answer. Every error is complete problem details, every answer has a request id.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body as JSON; null where it is none.
    pub body: Value,
    pub text: String,
}

impl Answer {
    /// The answer to a request of some method.
    pub async fn read(response: reqwest::Response) -> Self {
        Self::whole(None, response).await
    }

    async fn to(method: Method, response: reqwest::Response) -> Self {
        Self::whole(Some(method), response).await
    }

    async fn whole(method: Option<Method>, response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let path = response.url().path().to_owned();
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        let answer = Self { status, headers, body, text };
        assert!(!answer.header("x-request-id").is_empty(), "no request id: {answer:?}");
        if status >= 400 {
            answer.is_problem(&path);
        }
        if answer.header("content-encoding").is_empty() {
            let media = answer.header("content-type");
            described::check(method.as_ref(), &path, status, media, &answer.text);
        }
        answer
    }

    /// RFC 9457 with every extension member of the specification, §2.4.
    fn is_problem(&self, path: &str) {
        let Self { status, body, .. } = self;
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let text = |pointer: &str| {
            let found = body.pointer(pointer).and_then(Value::as_str);
            found.filter(|text| !text.is_empty()).unwrap_or_else(|| panic!("{pointer}: {self:?}"))
        };
        let code = text("/code");
        assert_eq!(text("/type"), format!("/docs/errors/{code}"));
        assert!(!text("/title").is_empty() && !text("/detail").is_empty());
        assert_eq!(body["status"], *status);
        assert_eq!(text("/instance"), path);
        assert_eq!(text("/reason"), code);
        assert_eq!(text("/requestId"), self.header("x-request-id"));
        assert_eq!(
            body["error"],
            json!({ "code": code, "message": body["detail"], "status": status })
        );
        for failure in body["failures"].as_array().unwrap() {
            let mut members: Vec<&String> = failure.as_object().unwrap().keys().collect();
            members.sort();
            assert_eq!(members, ["code", "message", "pointer", "stage"], "{failure}");
            assert!(failure.as_object().unwrap().values().all(Value::is_string), "{failure}");
        }
        assert_eq!(self.headers.contains_key("www-authenticate"), *status == 401);
        if *status == 503 || *status == 429 {
            assert!(self.header("retry-after").parse::<u64>().is_ok(), "{self:?}");
        }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// An error with this status and code.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        let is = (self.status, self.body["code"].as_str().unwrap_or_default());
        assert_eq!(is, (status, code), "{}", self.text);
        self
    }

    /// The pointers of all failures, in order.
    pub fn pointers(&self) -> Vec<&str> {
        let failures = self.body["failures"].as_array().unwrap();
        failures.iter().map(|failure| failure["pointer"].as_str().unwrap()).collect()
    }

    /// The codes of all failures, in order.
    pub fn codes(&self) -> Vec<&str> {
        let failures = self.body["failures"].as_array().unwrap();
        failures.iter().map(|failure| failure["code"].as_str().unwrap()).collect()
    }
}

/// Shares something with a receiver's script.
pub fn shared<T>(value: T) -> Arc<Mutex<T>> {
    Arc::new(Mutex::new(value))
}
