//! How commands answer: to a reader that stops reading, about a database without a log, about a broker without its
//! store, and about files that are not what the command is for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handoffd_evidence::merkle::node_hash;
use handoffd_evidence::note::{Signer, TreeHead};
use serde_json::{Value, json};

fn handoffd(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
    command.args(arguments).env_clear();
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The receipt of the first of two records, and the log's key.
fn receipt() -> (Value, String) {
    let (leaf, other) = ([1; 32], [2; 32]);
    let signer = Signer::new(&[7; 32]);
    let origin = "handoffd/log-1";
    let head = TreeHead { origin: origin.to_owned(), size: 2, root: node_hash(&leaf, &other) };
    let receipt = json!({
        "logId": "log-1", "leafIndex": 0, "recordHash": format!("sha256:{}", "01".repeat(32)),
        "treeHead": signer.sign(&head).unwrap(), "inclusionProof": [STANDARD.encode(other)],
    });
    (receipt, signer.public(origin).unwrap().to_string())
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.json");
    std::fs::write(&path, receipt().0.to_string()).unwrap();
    let minutes = folder.path().join("minutes.txt");
    std::fs::write(&minutes, "Minutes of the meeting.").unwrap();
    let (path, minutes) = (path.to_str().unwrap(), minutes.to_str().unwrap());
    for (arguments, code) in [
        (&["openapi"][..], 0),
        (&["verify", path], 0),
        (&["scan", minutes], 0),
        (&["scan", "/dev/null", "--eval"], 0),
        (&["validate", path], 1),
        (&["lint", path], 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = handoffd(arguments).stdout(writer).output().unwrap();
        assert_eq!((done.status.code(), text(&done.stderr)), (Some(code), ""), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let done = handoffd(&["openapi"]).stdout(full).output().unwrap();
    let said = text(&done.stderr);
    assert!(done.status.code() == Some(3) && said.contains("cannot be written"), "{done:?}");
}

#[test]
fn a_database_without_a_log_is_said_to_have_none() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        handoffd(arguments).env("HANDOFFD_DATA_DIR", folder.path()).output().unwrap()
    };
    assert!(run(&["migrate"]).status.success());
    let done = run(&["verify"]);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(0), "no log yet\n"));
    let done = run(&["--output", "json", "verify"]);
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(said, json!({ "ok": true, "logs": [] }));
    for arguments in [
        &["verify", "--tenant", "nobody"][..],
        &["archive", "--tenant", "nobody", "--before", "2026-01-01T00:00:00Z"],
        &["purge", "--tenant", "nobody", "--before", "2026-01-01T00:00:00Z"],
    ] {
        let done = run(arguments);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(3) && said.contains("nobody has no log"), "{done:?}");
    }
}

#[test]
fn a_receipt_says_whether_its_signature_was_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipt.json");
    let (receipt, key) = receipt();
    std::fs::write(&path, receipt.to_string()).unwrap();
    let path = path.to_str().unwrap();
    for (arguments, given) in
        [(&["verify", path][..], false), (&["verify", path, "--key", &key], true)]
    {
        let done = handoffd(&[&["--output", "json"], arguments].concat()).output().unwrap();
        let said: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!((&said["ok"], &said["report"]["keyGiven"]), (&json!(true), &json!(given)));
    }
}

/// The script of the docs, without the one package that it needs: the signature is that package's to check.
#[test]
fn the_script_of_the_docs_finds_a_changed_receipt() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("cryptography/hazmat/primitives/asymmetric");
    std::fs::create_dir_all(&package).unwrap();
    let stand_in = "class Ed25519PublicKey:\n    from_public_bytes = staticmethod(lambda key: Ed25519PublicKey())\n    verify = lambda self, signature, text: None\n";
    std::fs::write(package.join("ed25519.py"), stand_in).unwrap();
    let (receipt, key) = receipt();
    let path = folder.path().join("receipt.json");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/check_receipt.py");
    let check = |receipt: &Value| -> Output {
        std::fs::write(&path, receipt.to_string()).unwrap();
        let mut python = Command::new("python3");
        python.arg(script).arg(&path).arg(&key).env("PYTHONPATH", folder.path());
        python.output().expect("this test needs python3: apt-get install python3")
    };
    let done = check(&receipt);
    assert_eq!(text(&done.stdout), "record 0 is among the 2 of handoffd/log-1\n", "{done:?}");
    for (name, value) in
        [("leafIndex", json!(-1)), ("leafIndex", json!(2)), ("logId", json!("log-2"))]
    {
        let mut changed = receipt.clone();
        changed[name] = value;
        let done = check(&changed);
        assert!(!done.status.success(), "{name}: {done:?}");
    }
}

#[test]
fn a_health_check_tells_that_the_broker_is_not_ready() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let done = handoffd(&["healthcheck"]).env("HANDOFFD_LISTEN", address).output().unwrap();
    broker.join().unwrap();
    let said = text(&done.stderr);
    assert!(done.status.code() == Some(1) && said.contains("not ready: 503"), "{done:?}");
}

#[test]
fn what_is_no_message_and_no_window_is_not_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("message.json");
    let path = path.to_str().unwrap();
    let compress = |message: &Value, window: &str| {
        std::fs::write(path, message.to_string()).unwrap();
        handoffd(&["compress", path, "--window", window]).stdin(Stdio::null()).output().unwrap()
    };
    let message = json!({ "taskDescription": "Read it.", "conversationHistoryVerbatim": [] });
    for (message, window, code) in
        [(&message, "1000", 0), (&message, "0", 2), (&json!({ "a": 1 }), "1000", 2)]
    {
        let done = compress(message, window);
        assert_eq!(done.status.code(), Some(code), "{message} {window}: {done:?}");
    }
}

/// A server that gives each request the same head and then whatever `body` writes; its address.
fn answering(
    head: &'static str,
    body: impl Fn(&mut std::net::TcpStream) + Send + 'static,
) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 8192];
            let _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            body(&mut stream);
        }
    });
    url
}

fn asked(url: &str, arguments: &[&str]) -> Output {
    let mut command = handoffd(arguments);
    command.env("HANDOFFD_URL", url).env("HANDOFFD_API_KEY", "key").output().unwrap()
}

/// The answering server may send anything (finding S9 of 0.3.0).
#[test]
fn an_answer_without_end_is_read_no_further_than_its_bound() {
    let url = answering("Content-Type: application/json\r\n", |stream| {
        let piece = vec![b' '; 1 << 16];
        while stream.write_all(&piece).is_ok() {}
    });
    let task = "7b0e9a52-6d1c-4a6e-9f0e-2f3f7c1a0b11";
    for arguments in [&["agents", "list"][..], &["trace", task]] {
        let done = asked(&url, arguments);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(3) && said.contains("bytes"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_list_that_leads_back_to_itself_ends() {
    for (page, told) in [
        (r#"{"items":[{"agentId":"a"}],"nextCursor":"again"}"#, "leads back"),
        (r#"{"items":[],"nextCursor":"again"}"#, "leads back"),
    ] {
        let url = answering("Content-Type: application/json\r\n", move |stream| {
            let _ = stream.write_all(page.as_bytes());
        });
        let done = asked(&url, &["dead-letters", "list"]);
        let said = text(&done.stderr);
        assert!(done.status.code() == Some(3) && said.contains(told), "{page}: {done:?}");
    }
}

#[cfg(unix)]
#[test]
fn what_a_broker_writes_is_its_owners_and_its_lines_in_a_file_have_no_colours() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("new").join("data");
    let log = folder.path().join("log");
    let mut broker = handoffd(&["serve"])
        .env("HANDOFFD_DATA_DIR", &data)
        .env("HANDOFFD_LISTEN", "127.0.0.1:0")
        .env("HANDOFFD_LOG__FORMAT", "text")
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = loop {
        let said = std::fs::read_to_string(&log).unwrap();
        let ended = broker.try_wait().unwrap();
        assert!(ended.is_none(), "{said}");
        if said.contains("listens on") {
            break said;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    broker.kill().unwrap();
    broker.wait().unwrap();
    assert!(said.contains("INFO") && !said.contains('\x1b'), "{said}");
    for made in [&data, &folder.path().join("new")] {
        let mode = std::fs::metadata(made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{}", made.display());
    }
}
