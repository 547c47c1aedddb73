//! The README's session with curl, run unchanged against a real broker.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const SCRIPT: &str = include_str!("../../docs/quickstart.sh");
const README: &str = include_str!("../../README.md");

/// The part that a reader copies: everything but the script's own head.
fn body() -> &'static str {
    let at = SCRIPT.find("\nBROKER=").expect("the session begins with BROKER=");
    SCRIPT[at + 1..].trim_end()
}

/// A broker on a free port; killed when dropped.
pub struct Broker {
    child: Child,
    pub base: String,
}

impl Broker {
    pub fn start(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .arg("serve")
            .current_dir(folder)
            .env("HANDOFFD_LISTEN", "127.0.0.1:0")
            .env("HANDOFFD_LOG__FILTER", "error")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a broker");
        let said = child.stderr.take().expect("its standard error");
        let base = BufReader::new(said)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let rest = line.strip_prefix("handoffd listens on ")?;
                rest.split_whitespace().next().map(str::to_owned)
            })
            .expect("it says where it listens");
        Self { child, base }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_readme_shows_the_script_word_for_word() {
    let shown = format!("```bash\n{}\n```", body());
    assert!(README.contains(&shown), "README.md and docs/quickstart.sh differ");
}

#[test]
fn the_session_works_as_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(folder.path());
    let script = folder.path().join("session.sh");
    std::fs::write(&script, SCRIPT).expect("the script");
    let session = Command::new("bash")
        .arg(&script)
        .current_dir(folder.path())
        .env("BROKER", &broker.base)
        .env("no_proxy", "127.0.0.1")
        .output()
        .expect("bash and curl");
    let told = String::from_utf8(session.stdout).expect("UTF-8");
    let errors = String::from_utf8_lossy(&session.stderr);
    assert!(session.status.success(), "{told}\n{errors}");
    assert_eq!(errors, "");
    let answers: Vec<Value> =
        told.lines().map(|line| serde_json::from_str(line).expect("a JSON answer")).collect();
    let [submitted, inbox, accepted, handed, task, trace] = &answers[..] else {
        panic!("six answers were expected: {told}");
    };
    assert_eq!(submitted["status"], json!("PENDING"));
    assert_eq!(inbox["items"][0]["handoffId"], submitted["handoffId"]);
    assert_eq!(inbox["items"][0]["message"].get("checkpoint"), None);
    assert_eq!(accepted["status"], json!("ACCEPTED"));
    assert_eq!(handed["status"], json!("COMPLETED"));
    assert_eq!((&task["status"], &task["holder"]), (&json!("COMPLETED"), &json!("legal")));
    let kinds: Value = trace["records"]
        .as_array()
        .expect("records")
        .iter()
        .map(|record| record["kind"].clone())
        .collect();
    assert_eq!(kinds, json!(["HANDOFF", "ACCEPTED", "COMPLETED", "TASK_COMPLETED"]));
    assert_eq!(trace["cost"]["totalUSD"], json!(0.08));
    assert_eq!(trace["verification"]["ok"], json!(true));

    // Beside the running broker, as the README goes on.
    let verify = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .arg("verify")
        .current_dir(folder.path())
        .output()
        .expect("verify runs");
    assert_eq!(verify.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&verify.stdout).starts_with("ok: tenant default"));
    let task = task["taskId"].as_str().expect("a task");
    let shown = Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(["trace", task])
        .current_dir(folder.path())
        .env("HANDOFFD_URL", &broker.base)
        .env("no_proxy", "127.0.0.1")
        .output()
        .expect("trace runs");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("1. intake -> legal  COMPLETED"));
}
