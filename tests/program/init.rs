//! `handoffd init` in folders of each language: its files are applied to a broker, and its programs run as they are.

use std::path::Path;
use std::process::{Command, Output};

use crate::quickstart::Broker;

fn handoffd(folder: &Path, broker: &Broker, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_handoffd"))
        .args(words)
        .current_dir(folder)
        .env("HANDOFFD_URL", &broker.base)
        .env("no_proxy", "127.0.0.1")
        .output()
        .expect("handoffd runs")
}

fn has(interpreter: &str) -> bool {
    Command::new(interpreter).arg("--version").output().is_ok_and(|done| done.status.success())
}

/// Runs the two commands that `init` prints.
fn runs(marker: Option<&str>) {
    let folder = tempfile::tempdir().expect("a folder");
    let broker = Broker::start(folder.path());
    if let Some(name) = marker {
        std::fs::write(folder.path().join(name), "").expect("a file");
    }
    let made = handoffd(folder.path(), &broker, &["init", "--output", "json"]);
    assert!(made.status.success(), "{made:?}");
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let commands = made["commands"].as_array().expect("commands");
    let binary = Path::new(env!("CARGO_BIN_EXE_handoffd")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut told = String::new();
    for command in commands {
        let done = Command::new("sh")
            .args([
                "-c",
                &format!("{}; status=$?; wait; exit $status", command.as_str().expect("a text")),
            ])
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", binary.display()))
            .env("HANDOFFD_URL", &broker.base)
            .env("no_proxy", "127.0.0.1")
            .output()
            .expect("sh");
        told = String::from_utf8_lossy(&done.stdout).into_owned();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command}: {told}{errors}");
    }
    assert!(told.contains("hello-receiver: Hello, world!"), "{told}");
    assert!(told.contains("hello-sender: COMPLETED: ") && told.contains("Hello, world!"), "{told}");

    let drift = handoffd(folder.path(), &broker, &["diff", "-f", "handoffd", "--prune"]);
    assert_eq!(drift.status.code(), Some(0), "{drift:?}");
    // The edge is ruled by a contract of the second level, without a finding.
    let lint = handoffd(folder.path(), &broker, &["lint", "--broker", "--level", "L2"]);
    let told = String::from_utf8_lossy(&lint.stdout);
    assert!(lint.status.success() && told.contains("0 errors, 0 warnings"), "{told}");
    let again = handoffd(folder.path(), &broker, &["init"]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
}

#[test]
fn the_shell_hello_runs() {
    runs(None);
}

#[test]
fn the_python_hello_runs() {
    if has("python3") {
        runs(Some("pyproject.toml"));
    }
}

#[test]
fn the_node_hello_runs() {
    if has("node") {
        runs(Some("package.json"));
    }
}
