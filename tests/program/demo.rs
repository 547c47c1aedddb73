//! `handoffd demo`, as a user runs it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use handoffd::clock::{Clock, SystemClock};
use serde_json::{Value, json};

/// The longest wait for an item of the first page.
const PATIENCE: Duration = Duration::from_mins(2);

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .arg("demo")
        .args(arguments)
        // Settings for a broker that stays must not reach the demo's.
        .env("HANDOFFD_LISTEN", "127.0.0.1:1")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("http_proxy", "http://127.0.0.1:1")
        .output()
        .expect("the demo runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn the_demo_tells_its_story_and_every_check_holds() {
    let output = demo(&[]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(text(&output.stderr), "", "logs do not disturb the story");
    for line in [
        "Boundary 1: intake-agent -> clause-extraction-agent",
        "clause 9.3 came without its text: REJECTED, MISSING_CLAUSE_TEXT",
        "rolled back: the task is PENDING_HANDOFF, with clause-extraction-agent",
        "clause 9.3 on page 14 has no text; it reads that page again",
        "the risk agent answers 202 and calls back under its fencing token 4: ACCEPTED, then COMPLETED",
        "the handoff is ACCEPTED and completed; the task is COMPLETED",
        "403 FORBIDDEN: The target agent is not on the source agent's handoff_targets allowlist.",
        "422 SAFETY_VIOLATION at /conversationHistoryVerbatim/0/content",
        "kept as a dead letter for a person, never delivered: OPEN SAFETY_VIOLATION",
        "the last 5 of 60 turns as they were said, the others as a summary",
        "returned to the asker: the task is PENDING_HANDOFF, with intake-agent",
        "one commit, 3 handoffs, and two of them are needed",
        "the group is COMPLETED, and security-reviewer is not asked any more",
        "Everything came out as told",
    ] {
        assert!(told.contains(line), "missing: {line}\n{told}");
    }
    assert!(!told.contains("OFF:"), "{told}");
}

#[test]
fn the_demo_is_one_json_document_and_its_store_can_be_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept");
    let kept = kept.to_str().expect("UTF-8");
    let output = demo(&["--output", "json", "--keep", kept]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(told["ok"], json!(true));
    assert_eq!(told["verification"]["ok"], json!(true));
    assert_eq!(told["trace"]["status"], json!("COMPLETED"));
    assert_eq!(told["trace"]["handoffs"].as_array().map(Vec::len), Some(4));
    assert!(told["steps"].as_array().is_some_and(|steps| steps.len() >= 10));
    let checks = told["checks"].as_array().expect("checks");
    assert!(checks.len() > 25 && checks.iter().all(|check| check["ok"] == json!(true)));

    let verify = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["verify", "--database-url", &format!("sqlite:{kept}/handoffd.db")])
        .output()
        .expect("verify runs");
    assert_eq!(verify.status.code(), Some(0), "{}", text(&verify.stdout));
    assert!(text(&verify.stdout).starts_with("ok: tenant default"));

    let again = demo(&["--keep", kept]);
    assert_eq!(again.status.code(), Some(2), "a store is not told over");
    assert!(text(&again.stderr).contains("holds a store already"));
}

#[test]
fn one_task_goes_through_mcp_a2a_and_a_webhook() {
    let output = demo(&["--doors"]);
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(text(&output.stderr), "", "logs do not disturb the story");
    for line in [
        "handoffd demo: one task through MCP, A2A and a webhook, over real HTTP",
        "MCP: planner -> analyst, by the tool hand_off",
        "A2A: analyst -> reviewer, by message:send",
        "HTTP: reviewer -> archivist, by POST /handoffs and a webhook",
        "A2A: TASK_STATE_COMPLETED, with the archivist's result as the artifact",
        "MCP: COMPLETED, with the analyst's result as a guarded block",
        "The broker is stopped, and its log recomputed from the file alone",
        "Everything came out as told",
    ] {
        assert!(told.contains(line), "missing: {line}\n{told}");
    }
    assert!(!told.contains("OFF:"), "{told}");
    let output = demo(&["--doors", "--output", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((&told["ok"], &told["verification"]["ok"]), (&json!(true), &json!(true)));
    assert_eq!(told["trace"]["status"], json!("COMPLETED"));
    assert_eq!(told["trace"]["handoffs"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_content_that_was_emptied_in_a_kept_store_is_named() {
    use sqlx::Connection;
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept");
    let kept = kept.to_str().expect("UTF-8");
    assert_eq!(demo(&["--keep", kept]).status.code(), Some(0));
    let url = format!("sqlite:{kept}/handoffd.db");
    let mut raw = sqlx::SqliteConnection::connect(&url).await.expect("the store opens");
    sqlx::raw_sql(
        "UPDATE contents SET salt = NULL, bytes = NULL \
         WHERE rowid = (SELECT min(rowid) FROM contents)",
    )
    .execute(&mut raw)
    .await
    .expect("nothing stops the owner of the file");
    raw.close().await.expect("closed");
    let verify = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["verify", "--database-url", &url])
        .output()
        .expect("verify runs");
    assert_eq!(verify.status.code(), Some(1), "{}", text(&verify.stdout));
    assert!(text(&verify.stdout).contains("content-gone"), "{}", text(&verify.stdout));
}

/// A demo that serves the console; killed when dropped.
struct Console {
    child: Child,
    base: String,
    key: String,
}

impl Console {
    fn start(kept: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(["demo", "--console", "--output", "json", "--keep", kept])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the demo runs");
        let lines = BufReader::new(child.stderr.take().expect("its standard error")).lines();
        let mut lines = lines.map_while(Result::ok);
        let mut line = |begin: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(begin).unwrap_or_else(|| panic!("no {begin} in {line:?}")).to_owned()
        };
        let base = line("the console is at ").replace("/console", "");
        let file = line("the admin key is in ");
        let key = std::fs::read_to_string(file).expect("the key's file").trim().to_owned();
        Self { child, base, key }
    }

    async fn records(&self, query: &str) -> Value {
        let url = format!("{}/audit/records?{query}", self.base);
        let request = http().get(url).bearer_auth(&self.key);
        request.send().await.expect("records").json().await.expect("JSON")
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    client.build().expect("a client")
}

/// The time of a record, in microseconds.
fn time(record: &Value) -> i64 {
    let text = record["record"]["time"].as_str().expect("a time");
    let format = &time::format_description::well_known::Rfc3339;
    let at = time::OffsetDateTime::parse(text, format).expect("RFC 3339");
    i64::try_from(at.unix_timestamp_nanos() / 1_000).expect("microseconds")
}

fn now() -> i64 {
    SystemClock::default().now().0
}

const HOUR: i64 = 3_600_000_000;

#[tokio::test]
async fn the_console_is_served_after_the_story_with_a_past_of_two_days() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("kept");
    let store = store.to_str().expect("UTF-8");
    // Taken by this test, or by another program: either way the demo goes on to the next port.
    let _taken = std::net::TcpListener::bind("127.0.0.1:8080");
    let mut console = Console::start(store);
    let port = console.base.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    assert!(port.is_some_and(|port| port > 8080), "{}", console.base);

    let page = http().get(format!("{}/console", console.base)).send().await.expect("an answer");
    assert_eq!(page.status(), 303, "the console asks for a login");
    let form = format!("key={}", console.key);
    let login = http()
        .post(format!("{}/console/login", console.base))
        .header("origin", &console.base)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    let login = login.send().await.expect("an answer");
    assert_eq!(login.status(), 303, "the key in the file logs in");
    let cookie = login.headers()["set-cookie"].to_str().expect("ASCII");
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let first_page = async || {
        let page = http().get(format!("{}/console", console.base)).header("cookie", &cookie);
        page.send().await.expect("an answer").text().await.expect("a page")
    };
    let mut home = first_page().await;
    // Attempts that fail are one item with the breaker once it is open, and none while an attempt is under way.
    let lacks = |home: &str| {
        let all = ["Escalated", "Dead lettered", "Not fetched", "Receiver paused"];
        let fails = ["Delivery failing", "Breaker open"].iter().any(|kind| home.contains(kind));
        let lacking = all.into_iter().find(|kind| !home.contains(kind));
        lacking.or((!fails).then_some("a failing receiver"))
    };
    let begun = tokio::time::Instant::now();
    while let Some(item) = lacks(&home) {
        assert!(begun.elapsed() < PATIENCE, "{item} is not on the first page: {home}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        home = first_page().await;
    }

    let first = console.records("limit=1").await["records"][0].take();
    let id = first["record"]["changes"][0]["id"].as_str().unwrap_or_default();
    assert!(id.starts_with("key_demo_"), "the first record is marked: {first}");
    assert!(now() - time(&first) > 40 * HOUR, "{first}");
    let mut from = 0;
    let mut before = time(&first);
    loop {
        let page = console.records(&format!("from={from}&limit=500")).await;
        for record in page["records"].as_array().expect("records") {
            let at = time(record);
            assert!(at >= before && at <= now(), "{record}");
            before = at;
        }
        match page["nextFrom"].as_u64() {
            Some(next) if next > from => from = next,
            _ => break,
        }
    }

    let pid = console.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    assert_eq!(console.child.wait().expect("it ends").code(), Some(0), "an orderly stop");
    let verify = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["verify", "--database-url", &format!("sqlite:{store}/handoffd.db")])
        .output()
        .expect("verify runs");
    assert_eq!(verify.status.code(), Some(0), "{}", text(&verify.stdout));
    assert!(text(&verify.stdout).starts_with("ok: tenant default"));
}
