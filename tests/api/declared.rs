//! `handoffd apply`, `diff` and `dump`: the real binary between a folder and running brokers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{Broker, Kind, command, run};
use crate::message::Message;

const PASSWORD: &str = "SECRET_QUEUED_PASSWORD";

/// The command against a broker, with the secret that a dump asks for.
async fn say(broker: &Broker, words: &[&str]) -> Output {
    let mut settings = broker.settings.clone();
    settings.push(("HANDOFFD_URL".to_owned(), broker.admin.base.clone()));
    settings.push((PASSWORD.to_owned(), "correct horse".to_owned()));
    command(&settings, words).await
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The output of a command that ends with this code.
async fn ends(broker: &Broker, code: i32, words: &[&str]) -> String {
    let done = say(broker, words).await;
    let said = text(&done.stdout) + &text(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{words:?}: {said}");
    said
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Every file below a folder, by its path.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The keys that `--secrets-out` wrote, by agent.
fn keys(path: &Path) -> BTreeMap<String, String> {
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["kind"] == "Agent")
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            (text("name"), text("apiKey"))
        })
        .collect()
}

fn contract(version: &str, description: &str) -> Value {
    json!({
        "id": "a-to-b", "version": version, "source": "a", "target": "b", "description": description,
        "trigger": { "intent": "always", "predicate": "state.amount < 100" },
        "payload": { "schema": "registry:refund@1.1.0", "required": ["task_summary"] },
        "acceptance_criteria": { "required_fields": ["task_summary"], "domain_match": "target.domains contains 'money'", "permission_check": "perm:refund" },
        "recovery": { "on_reject": "source", "on_timeout": "source", "on_error": "source", "timeout_ms": 60000, "max_retries": 1, "loop_guard": 9 },
    })
}

/// Makes objects by hand, as an operator does over time; returns the agents' keys.
async fn furnish(broker: &Broker) -> BTreeMap<String, String> {
    let admin = &broker.admin;
    let path = "/schemas/payloads/refund";
    let first = json!({ "schema": { "type": "object", "properties": { "currentState": { "type": "object" } } } });
    admin.put(&format!("{path}/1.0.0"), &first).await.expect(201);
    let next = json!({
        "schema": { "type": "object", "properties": { "currentState": { "type": "object" }, "note": { "type": "string" } } },
        "migration": "nothing: \"note\" may be left out\n",
    });
    admin.put(&format!("{path}/1.1.0"), &next).await.expect(201);
    admin.put("/contracts/a-to-b", &contract("1.0.0", "first")).await.expect(201);
    admin.put("/contracts/a-to-b", &contract("1.10.0", "no: 1.10 > 1.2")).await.expect(201);
    let mut keys = BTreeMap::new();
    for spec in [
        json!({ "agentId": "a", "handoffTargets": ["b", "type:worker", "ghost", "idle"] }),
        json!({ "agentId": "b", "domains": ["money"], "permissions": ["perm:refund"], "handoffTargets": ["a"] }),
        json!({ "agentId": "w1", "agentType": "worker", "agentVersion": "1.0.0" }),
        json!({ "agentId": "w2", "agentType": "worker", "agentVersion": "2.0.0-rc.1", "metadata": { "x": null, "y": [1.5, 1e21] } }),
        json!({ "agentId": "idle", "state": "PAUSED", "pause": "refuse", "supervisorId": "a", "contextWindowTokens": 9000 }),
        json!({ "agentId": "hook", "delivery": { "mode": "webhook", "url": "http://127.0.0.1:1/in", "timeoutMs": 700 } }),
        json!({
            "agentId": "queued",
            "delivery": {
                "mode": "redis", "config": { "server": "redis://127.0.0.1:1/0", "stream": "s" },
                "credentials": { "password": "correct horse" },
            },
        }),
    ] {
        let made = admin.post("/agents", &spec).await.expect(201).body;
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        keys.insert(text("agentId"), text("apiKey"));
    }
    admin.put("/caps/P1D", &json!({ "usd": "20", "tokens": 1_000_000 })).await.expect(200);
    admin.put("/caps/PT1H?agentId=w1", &json!({ "usd": "0.50" })).await.expect(200);
    for body in [
        json!({ "url": "http://127.0.0.1:1/all" }),
        json!({ "url": "http://127.0.0.1:1/some", "description": "Böse: #1", "eventTypes": ["handoff.rejected"], "filter": { "agentId": "b" }, "format": "cloudevents", "enabled": false }),
    ] {
        admin.post("/subscriptions", &body).await.expect(201);
    }
    keys
}

/// The broker's answers to the same messages: status, code, pointers, route and contract of each.
async fn verdicts(broker: &Broker, keys: &BTreeMap<String, String>) -> Vec<Value> {
    let fits = || Message::review("a", "b").set("/currentState", json!({ "amount": 5 }));
    let by_type = || Message::review("a", "b").set("/toAgent", json!({ "agentType": "worker" }));
    let messages = [
        ("a", fits()),
        ("a", fits().set("/currentState", json!({ "amount": 500 }))),
        ("a", by_type()),
        (
            "a",
            by_type().set("/toAgent", json!({ "agentType": "worker", "versionRange": "^1.0.0" })),
        ),
        ("a", Message::review("a", "w1").cost(0.0, 2.0)),
        ("a", Message::review("a", "idle")),
        ("a", Message::review("a", "hook")),
        ("a", Message::review("a", "ghost")),
        ("b", Message::review("b", "a").cost(0.0, 25.0)),
        ("b", Message::review("b", "a")),
        ("b", Message::review("b", "w1")),
    ];
    let mut said = Vec::new();
    for (from, message) in messages {
        let answer = broker.caller(Some(&keys[from])).post("/handoffs", &message).await;
        let failures: Vec<Value> = answer.body["failures"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| json!([one["code"], one["pointer"]]))
            .collect();
        let taken = broker.admin.get(&message.path()).await.body;
        said.push(json!([
            answer.status,
            answer.body["code"],
            failures,
            taken["toAgent"]["agentId"],
            taken["toAgent"]["agentVersion"],
            taken["contract"],
        ]));
    }
    said
}

/// Dump, apply on a fresh broker, dump again.
async fn moved(one: &Broker, other: &Broker) {
    let known = furnish(one).await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let said = ends(one, 0, &["dump", &at("first")]).await;
    assert!(said.contains("17 objects") && said.contains(PASSWORD), "{said}");
    let first = files(&folder.path().join("first"));
    assert!(!first.values().any(|text| text.contains("correct horse")));
    assert!(
        first["agents/a.yaml"].starts_with("# yaml-language-server: $schema=../.schemas/agent")
    );
    ends(one, 0, &["diff", "-f", &at("first")]).await;

    // Without a place for the keys nothing is made.
    let size = other.log_size().await;
    let refused = ends(other, 2, &["apply", "-f", &at("first")]).await;
    assert!(refused.contains("--secrets-out"), "{refused}");
    ends(other, 0, &["apply", "-f", &at("first"), "--dry-run"]).await;
    ends(other, 1, &["diff", "-f", &at("first")]).await;
    assert_eq!(other.log_size().await, size, "nothing was written");
    let made = ["apply", "-f", &at("first"), "--secrets-out", &at("keys")];
    let said = ends(other, 0, &made).await;
    assert!(said.contains("created Agent queued") && said.contains("ghost"), "{said}");
    let keys = keys(&folder.path().join("keys"));
    assert_eq!(keys.len(), 7);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(at("keys")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    // One record an object.
    let records = other.log_size().await - size;
    assert_eq!(records, 17, "an object, a record");
    let again = ends(other, 0, &["apply", "-f", &at("first"), "--prune"]).await;
    assert!(again.contains("0 to create, 0 to change, 0 to remove"), "{again}");
    assert_eq!(other.log_size().await - size, records, "nothing is written where nothing changes");

    ends(other, 0, &["dump", &at("second")]).await;
    assert_eq!(files(&folder.path().join("second")), first);
    ends(other, 0, &["diff", "-f", &at("second"), "--prune"]).await;
    let [before, after] = [verdicts(one, &known).await, verdicts(other, &keys).await];
    assert_eq!(before, after);
    let statuses: Vec<u64> = after.iter().filter_map(|one| one[0].as_u64()).collect();
    assert!(
        statuses.contains(&202) && statuses.contains(&403) && statuses.contains(&422),
        "{after:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_sqlite_makes_the_same_broker_on_postgres() {
    run(Kind::Sqlite, &[], async |one| {
        run(Kind::Postgres, &[], async |other| moved(one, other).await).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_postgres_makes_the_same_broker_on_sqlite() {
    run(Kind::Postgres, &[], async |one| {
        run(Kind::Sqlite, &[], async |other| moved(one, other).await).await;
    })
    .await;
}

both! {
    async fn drift_is_found_applied_and_pruned(broker: Broker) {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("d");
        let f = at.display().to_string();
        write(&at, "a.yaml", "kind: Agent\nagentId: a\ncapabilities: [x]\n");
        write(&at, "b.yaml", "kind: Agent\nagentId: b\ndelivery:\n  mode: webhook\n  url: http://127.0.0.1:1/b\n");
        write(&at, "edges.yaml", "kind: Allowlist\nagentId: a\nhandoffTargets: [b]\n");
        write(&at, "cap.yaml", "kind: Cap\nwindow: P1D\nusd: \"5\"\ntokens: 9\n");
        let keys = folder.path().join("keys").display().to_string();
        ends(broker, 0, &["apply", "-f", &f, "--secrets-out", &keys]).await;

        // By hand, past the files; an agent's own state is its own.
        broker.admin.patch("/agents/a", &json!({ "capabilities": ["x", "y"], "state": "BUSY" })).await.expect(200);
        broker.admin.put("/agents/b/handoff-targets", &json!({ "handoffTargets": ["a"] })).await.expect(200);
        let made = broker.admin.post("/agents", &json!({ "agentId": "c", "handoffTargets": ["a"] })).await.expect(201);
        broker.admin.put("/caps/PT1H?agentId=c", &json!({ "usd": "1" })).await.expect(200);
        broker.admin.post("/subscriptions", &json!({ "url": "http://127.0.0.1:1/e" })).await.expect(201);

        let said = ends(broker, 1, &["--output", "json", "diff", "-f", &f]).await;
        let drift: Value = serde_json::from_str(&said).unwrap();
        let steps = drift["plan"]["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 1, "{drift}");
        assert_eq!(steps[0]["differences"], json!([{ "pointer": "/capabilities", "from": ["x", "y"], "to": ["x"] }]));
        assert_eq!(drift["plan"]["undeclared"].as_array().unwrap().len(), 5, "{drift}");
        ends(broker, 0, &["apply", "-f", &f]).await;
        ends(broker, 0, &["diff", "-f", &f]).await;
        assert_eq!(broker.admin.get("/agents/a").await.expect(200).body["state"], "BUSY");
        broker.caller(made.body["apiKey"].as_str()).get("/agents").await.expect(200);

        let said = ends(broker, 0, &["apply", "-f", &f, "--prune"]).await;
        assert!(said.contains("removed Agent c") && said.contains("4 done"), "{said}");
        broker.admin.get("/agents/c").await.expect(404);
        ends(broker, 0, &["diff", "-f", &f, "--prune"]).await;

        // A cap loses a unit, a delivery its mode, a setting its value.
        write(&at, "cap.yaml", "kind: Cap\nwindow: P1D\ntokens: 10\n");
        write(&at, "b.yaml", "kind: Agent\nagentId: b\nname: B\n");
        let said = ends(broker, 0, &["apply", "-f", &f]).await;
        assert!(said.contains("/usd: \"5.00\" -> (default)"), "{said}");
        ends(broker, 0, &["diff", "-f", &f, "--prune"]).await;
        let b = broker.admin.get("/agents/b").await.expect(200).body;
        assert_eq!((&b["delivery"]["mode"], &b["name"]), (&json!("pull"), &json!("B")));
    }

    async fn a_failure_on_the_way_is_told_and_the_next_run_goes_on(broker: Broker) {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("d");
        let f = at.display().to_string();
        write(&at, "a.yaml", "kind: Agent\nagentId: a\n");
        // The broker alone knows which settings a transport has.
        write(&at, "b.yaml", "kind: Agent\nagentId: b\ndelivery:\n  mode: redis\n  config:\n    server: redis://127.0.0.1:1/0\n");
        write(&at, "c.yaml", "kind: Allowlist\nagentId: a\nhandoffTargets: [b]\n");
        let keys = |name: &str| folder.path().join(name).display().to_string();
        let first = keys("first");
        let done = say(broker, &["--output", "json", "apply", "-f", &f, "--secrets-out", &first]).await;
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let lines: Vec<Value> = text(&done.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [plan, result] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(plan["plan"]["steps"].as_array().unwrap().len(), 3);
        let result = &result["result"];
        assert_eq!(result["done"], json!([{ "action": "create", "kind": "Agent", "name": "a" }]));
        assert_eq!(result["failed"]["name"], "b");
        assert!(result["failed"]["reason"].as_str().unwrap().contains("/delivery/config/stream"), "{result}");
        assert_eq!(result["notDone"], json!([{ "action": "create", "kind": "Allowlist", "name": "a" }]));
        assert_eq!(std::fs::read_to_string(&first).unwrap().lines().count(), 1);

        write(&at, "b.yaml", "kind: Agent\nagentId: b\n");
        let refused = ends(broker, 2, &["apply", "-f", &f, "--secrets-out", &first]).await;
        assert!(refused.contains("exists"), "{refused}");
        ends(broker, 0, &["apply", "-f", &f, "--secrets-out", &keys("second")]).await;
        ends(broker, 0, &["diff", "-f", &f]).await;
        assert_eq!(std::fs::read_to_string(keys("second")).unwrap().lines().count(), 1);
    }

    async fn what_cannot_be_is_refused_before_the_first_change(broker: Broker) {
        broker.admin.put("/contracts/a-to-b", &json!({ "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b" })).await.expect(201);
        let size = broker.log_size().await;
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys").display().to_string();
        let cases: [(&str, &str, i32, &str); 5] = [
            ("typing", "kind: Agent\nagentId: a\ncapabilites: []\n", 2, "/x.yaml:3:"),
            ("nobody", "kind: Allowlist\nagentId: ghost\nhandoffTargets: []\n", 2, "/agentId"),
            ("secret", "kind: Agent\nagentId: q\ndelivery:\n  mode: redis\n  config: {server: \"redis://127.0.0.1:1/0\", stream: s}\n  credentials:\n    password:\n      secretRef: env:NO_SUCH_SECRET_HERE\n", 2, "NO_SUCH_SECRET_HERE"),
            ("changed", "kind: Contract\nid: a-to-b\nversion: 1.0.0\nsource: a\ntarget: c\n", 1, "give this content a new version"),
            ("schema", "kind: Contract\nid: c-to-d\nversion: 1.0.0\nsource: c\ntarget: d\npayload:\n  schema: registry:none@1.0.0\n", 2, "PayloadSchema none 1.0.0"),
        ];
        for (name, object, code, part) in cases {
            let at = folder.path().join(name);
            write(&at, "x.yaml", object);
            write(&at, "a.yaml", "kind: Agent\nagentId: fine\n");
            let f = at.display().to_string();
            let said = ends(broker, code, &["apply", "-f", &f, "--secrets-out", &keys]).await;
            assert!(said.contains(part), "{name}: {said}");
            let drifts = if code == 1 || name == "secret" { 1 } else { 2 };
            ends(broker, drifts, &["diff", "-f", &f]).await;
        }
        assert_eq!(broker.log_size().await, size, "nothing was changed");
        assert!(!Path::new(&keys).exists());
        let full = folder.path().display().to_string();
        let said = ends(broker, 2, &["dump", &full]).await;
        assert!(said.contains("not empty"), "{said}");
        ends(broker, 2, &["diff", "-f", "/no/such/folder"]).await;
    }
}
