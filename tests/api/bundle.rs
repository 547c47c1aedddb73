//! The regulator's bundle: what a broker gives out is verified without it, by its own program, by
//! Python and by OpenSSL; and what was done to it is found and named.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};

use handoffd_evidence::bundle::{BundleReport, VerifyOptions, verify};
use handoffd_evidence::note::{Note, PublicKey, Signer, TreeHead};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::harness::{Broker, Caller};
use crate::message::Message;

/// A bundle's files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Puts a contract about the edge from `a` to `b`.
async fn rule(broker: &Broker, version: &str) {
    let contract = json!({
        "id": "a-to-b", "version": version, "source": "a", "target": "b",
        "trigger": { "intent": "what a found has to be reviewed" },
        "recovery": {
            "on_reject": "source", "on_timeout": "source", "on_error": "source",
            "timeout_ms": 30_000, "max_retries": 0,
        },
    });
    broker.admin.put("/contracts/a-to-b", &contract).await.expect(201);
}

/// A task of three agents, one edge of it under a contract: a rejection, a second try with personal data and a saved state, a result.
async fn task(broker: &Broker) -> Message {
    let (a, b) = (broker.pull("a", &["b"]).await, broker.pull("b", &["c"]).await);
    let c = broker.pull("c", &[]).await;
    rule(broker, "1.0.0").await;
    let first = Message::review("a", "b").cost(0.125, 0.875);
    let run = first["fromAgent"]["executionId"].as_str().unwrap();
    let path = format!("{}/checkpoints/{run}", first.task_path());
    let personal =
        json!({ "subjects": [{ "subjectId": "client-7", "data": { "name": "Jana Novak" } }] });
    let again = first.again().set("/personalDataPayload", personal).cost(0.25, 0.75);
    let second = again.next("b", "c").without("/personalDataPayload").cost(0.375, 0.625);
    a.submit(&first).await.expect(202);
    a.api.put(&path, &json!({ "read": "pages 1 to 9" })).await.expect(200);
    let token = b.claim_one().await;
    b.say(&first, "reject", token, json!({ "reason": "MISSING_CLAUSE_TEXT" })).await.expect(200);
    a.submit(&again).await.expect(202);
    let token = b.claim_one().await;
    b.say(&again, "accept", token, json!({})).await.expect(200);
    b.submit(&second).await.expect(202);
    let token = c.claim_one().await;
    c.say(&second, "complete", token, json!({ "result": { "score": "high" } })).await.expect(200);
    first
}

/// A task whose one message was compressed for its receiver.
async fn compressed_task(broker: &Broker) -> Message {
    let a = broker.pull("a", &["b"]).await;
    let spec = json!({ "agentId": "b", "contextWindowTokens": 4_000, "tokenizer": "o200k" });
    let b = broker.agent(spec).await;
    let talk = "I went through the notes once more, and they read well so far. ".repeat(6);
    let turns: Vec<Value> = (0..100)
        .map(|at| json!({ "role": "user", "content": format!("{talk}Part {at} is done.") }))
        .collect();
    let message = Message::review("a", "b").set("/conversationHistoryVerbatim", json!(turns));
    a.submit(&message).await.expect(202);
    let token = b.claim_one().await;
    b.say(&message, "complete", token, json!({})).await.expect(200);
    message
}

async fn fetch(caller: &Caller, message: &Message, more: &str) -> Vec<u8> {
    let path = format!("{}/trace?format=bundle{more}", message.task_path());
    let response = caller.request(reqwest::Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/zip");
    let named = format!("attachment; filename=\"task-{}.zip\"", message.task());
    assert_eq!(response.headers()["content-disposition"], named.as_str());
    let length = response.content_length();
    let bytes = response.bytes().await.unwrap().to_vec();
    assert_eq!(length, Some(bytes.len() as u64));
    bytes
}

fn unpack(bytes: &[u8]) -> Files {
    let mut archive = ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let mut files = Files::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(entry.name().unwrap().to_string(), bytes);
    }
    files
}

fn judge(files: &Files, options: &VerifyOptions) -> BundleReport {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut zip = ZipWriter::new(file.reopen().unwrap());
    for (name, bytes) in files {
        zip.start_file(name.as_str(), SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
    verify(file.path(), options).unwrap()
}

/// Makes the manifest speak of the files as they are now, as a forger would.
fn reseal(files: &mut Files) {
    let mut manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    let listed: Vec<Value> = files
        .iter()
        .filter(|(name, _)| *name != "manifest.json")
        .map(|(name, bytes)| {
            json!({ "name": name, "bytes": bytes.len(), "sha256": hex::encode(Sha256::digest(bytes)) })
        })
        .collect();
    manifest["files"] = listed.into();
    files.insert("manifest.json".to_owned(), manifest.to_string().into_bytes());
}

fn text<'a>(files: &'a Files, name: &str) -> &'a str {
    std::str::from_utf8(&files[name]).unwrap()
}

fn replace(files: &mut Files, name: &str, from: &str, to: &str) {
    let old = text(files, name).to_owned();
    assert!(old.contains(from), "{from} in {name}");
    files.insert(name.to_owned(), old.replacen(from, to, 1).into_bytes());
}

/// Changes the lines of a file.
fn lines(files: &mut Files, name: &str, change: impl FnOnce(&mut Vec<String>)) {
    let mut lines: Vec<String> = text(files, name).lines().map(str::to_owned).collect();
    change(&mut lines);
    let mut text = lines.join("\n");
    if !lines.is_empty() {
        text.push('\n');
    }
    files.insert(name.to_owned(), text.into_bytes());
}

/// The first file whose name begins so.
fn first(files: &Files, folder: &str) -> String {
    files.keys().find(|name| name.starts_with(folder)).unwrap().clone()
}

fn change_keys(files: &mut Files, change: impl FnOnce(&mut Value)) {
    let mut keys: Value = serde_json::from_slice(&files["keys.json"]).unwrap();
    change(&mut keys);
    files.insert("keys.json".to_owned(), keys.to_string().into_bytes());
}

fn in_trace(files: &mut Files, change: impl FnOnce(&mut Value)) {
    let mut trace: Value = serde_json::from_slice(&files["trace.json"]).unwrap();
    change(&mut trace);
    files.insert("trace.json".to_owned(), trace.to_string().into_bytes());
}

/// A change, done to all of a bundle's files.
type Tampering = fn(&mut Files);

/// Each is done, and the manifest made to fit: what is left to find it by is the evidence itself.
const TAMPERINGS: &[(&str, &str, Tampering)] = &[
    ("a record changed", "flip", |files| replace(files, "records.jsonl", "\"v\":1", "\"v\":2")),
    ("a record changed, hash and all", "proof", |files| {
        replace(files, "records.jsonl", "\"v\":1", "\"v\":2");
        let record = text(files, "records.jsonl").lines().next().unwrap().to_owned();
        let hash = Sha256::new_with_prefix([0u8]).chain_update(record).finalize();
        lines(files, "proofs.jsonl", |lines| {
            let mut proof: Value = serde_json::from_str(&lines[0]).unwrap();
            proof["recordHash"] = format!("sha256:{}", hex::encode(hash)).into();
            lines[0] = proof.to_string();
        });
    }),
    ("a record dropped", "flip", |files| {
        lines(files, "records.jsonl", |lines| {
            lines.remove(1);
        });
    }),
    ("the last record dropped", "drop", |files| {
        lines(files, "records.jsonl", |lines| {
            lines.pop();
        });
    }),
    ("the last record dropped with its proof", "commitments", |files| {
        for name in ["records.jsonl", "proofs.jsonl"] {
            lines(files, name, |lines| {
                lines.pop();
            });
        }
    }),
    ("the last proof dropped", "proof", |files| {
        lines(files, "proofs.jsonl", |lines| {
            lines.pop();
        });
    }),
    ("records swapped with their proofs", "commitments", |files| {
        for name in ["records.jsonl", "proofs.jsonl"] {
            lines(files, name, |lines| lines.swap(0, 1));
        }
    }),
    ("a record twice", "swap", |files| {
        for name in ["records.jsonl", "proofs.jsonl"] {
            lines(files, name, |lines| lines.insert(1, lines[0].clone()));
        }
    }),
    ("a step of a proof changed", "proof", |files| {
        lines(files, "proofs.jsonl", |lines| {
            let mut proof: Value = serde_json::from_str(&lines[0]).unwrap();
            proof["inclusionProof"][0] = "00".repeat(32).into();
            lines[0] = proof.to_string();
        });
    }),
    ("a message changed", "content", |files| {
        let name = first(files, "contents/");
        files.get_mut(&name).unwrap().push(b' ');
    }),
    ("two messages swapped", "content", |files| {
        let names: Vec<String> =
            files.keys().filter(|name| name.starts_with("contents/")).take(2).cloned().collect();
        let (one, two) = (files[&names[0]].clone(), files[&names[1]].clone());
        files.extend([(names[0].clone(), two), (names[1].clone(), one)]);
    }),
    ("a message dropped", "missing", |files| {
        let name = first(files, "contents/");
        files.remove(&name);
    }),
    ("a message said to be erased", "content-gone", |files| {
        let name = first(files, "contents/");
        files.remove(&name);
        lines(files, "commitments.jsonl", |lines| {
            let line = lines.iter_mut().find(|line| line.contains(&name)).unwrap();
            let mut gone: Value = serde_json::from_str(line).unwrap();
            let gone = gone.as_object_mut().unwrap();
            gone.retain(|name, _| name != "salt" && name != "file");
            gone.insert("state".to_owned(), "erased".into());
            *line = json!(gone).to_string();
        });
        let mut trace: Value = serde_json::from_slice(&files["trace.json"]).unwrap();
        let leaf: i64 = name["contents/".len()..name.len() - 5].parse().unwrap();
        for record in trace["records"].as_array_mut().unwrap() {
            if record["leafIndex"] == leaf {
                record.as_object_mut().unwrap().remove("content");
            }
        }
        for handoff in trace["handoffs"].as_array_mut().unwrap() {
            if handoff["leafIndex"] == leaf {
                handoff["taskDescription"] = Value::Null;
            }
        }
        files.insert("trace.json".to_owned(), trace.to_string().into_bytes());
    }),
    ("a salt changed", "content", |files| {
        replace(files, "commitments.jsonl", "\"salt\":\"", "\"salt\":\"00");
    }),
    ("a commitment dropped", "commitments", |files| {
        lines(files, "commitments.jsonl", |lines| {
            lines.pop();
        });
    }),
    ("a saved state changed", "checkpoint", |files| {
        let name = first(files, "checkpoints/");
        files.get_mut(&name).unwrap().push(b' ');
    }),
    ("a contract changed", "contract", |files| {
        replace(files, "contracts/a-to-b@1.0.0.json", "30000", "30001");
    }),
    ("a contract under another name", "surplus", |files| {
        let contract = files["contracts/a-to-b@1.0.0.json"].clone();
        files.insert("contracts/a-to-b@2.0.0.json".to_owned(), contract);
    }),
    ("a contract left out, with its record", "contract", |files| {
        files.remove("contracts/a-to-b@1.0.0.json");
        for name in ["records.jsonl", "proofs.jsonl", "commitments.jsonl"] {
            lines(files, name, |lines| {
                lines.pop();
            });
        }
    }),
    ("a contract's record among the task's", "swap", |files| {
        for name in ["records.jsonl", "proofs.jsonl", "commitments.jsonl"] {
            lines(files, name, |lines| lines.rotate_right(1));
        }
    }),
    ("personal data changed", "personal-data", |files| {
        let name = first(files, "personal/");
        replace(files, &name, "Jana", "Dana");
    }),
    ("personal data under another person", "personal-data", |files| {
        replace(files, "commitments.jsonl", "\"subjectId\":\"", "\"subjectId\":\"not-");
    }),
    ("a content that nothing commits to", "surplus", |files| {
        files.insert("contents/99999.json".to_owned(), b"{}".to_vec());
    }),
    ("a file that no bundle has", "surplus", |files| {
        files.insert("run-me.sh".to_owned(), b"true".to_vec());
    }),
    ("another root", "tree-head", |files| {
        let head = text(files, "tree-head.txt").lines().nth(2).unwrap().to_owned();
        let other = format!("AAAA{}", &head[4..]);
        replace(files, "tree-head.txt", &head, &other);
    }),
    ("another size of the log", "signature", |files| {
        let size = text(files, "tree-head.txt").lines().nth(1).unwrap().to_owned();
        replace(files, "tree-head.txt", &format!("\n{size}\n"), "\n999\n");
        let said = format!("\"treeSize\": {size}");
        replace(files, "manifest.json", &said, "\"treeSize\": 999");
    }),
    ("no key that signed", "signature", |files| {
        let origin =
            serde_json::from_slice::<Value>(&files["keys.json"]).unwrap()["origin"].clone();
        let other = Signer::new(&[9; 32]).public(origin.as_str().unwrap()).unwrap().to_string();
        let key = json!({ "key": other, "createdAt": "", "retiredAt": null });
        let keys = json!({ "origin": origin, "keys": [key] });
        files.insert("keys.json".to_owned(), keys.to_string().into_bytes());
    }),
    ("a broken key", "keys", |files| replace(files, "keys.json", "+", "-")),
    ("the keys of another log", "keys", |files| {
        change_keys(files, |keys| keys["origin"] = json!("handoffd/another"));
    }),
    ("a key made at no time", "keys", |files| {
        change_keys(files, |keys| keys["keys"][0]["createdAt"] = json!("2030"));
    }),
    ("a key retired at no time", "keys", |files| {
        change_keys(files, |keys| keys["keys"][0]["retiredAt"] = json!("never mind"));
    }),
    ("a cost changed in the trace", "trace", |files| {
        let mut trace: Value = serde_json::from_slice(&files["trace.json"]).unwrap();
        trace["cost"]["totalUSD"] = json!(9);
        files.insert("trace.json".to_owned(), trace.to_string().into_bytes());
    }),
    ("a status changed in the trace", "state", |files| {
        let mut trace: Value = serde_json::from_slice(&files["trace.json"]).unwrap();
        trace["handoffs"][0]["status"] = json!("COMPLETED");
        files.insert("trace.json".to_owned(), trace.to_string().into_bytes());
    }),
    ("the task's status changed in the trace", "state", |files| {
        in_trace(files, |trace| trace["status"] = json!("CANCELED"));
    }),
    ("a time of acceptance changed in the trace", "state", |files| {
        in_trace(files, |trace| {
            trace["handoffs"][0]["acceptedAt"] = json!("2030-01-01T00:00:00.000000Z");
        });
    }),
    ("a time of an end changed in the trace", "state", |files| {
        in_trace(files, |trace| {
            trace["handoffs"][0]["endedAt"] = json!("2030-01-01T00:00:00.000000Z");
        });
    }),
    ("a reason changed in the trace", "state", |files| {
        in_trace(files, |trace| trace["handoffs"][0]["reason"] = json!("OTHER_REASON"));
    }),
    ("a row that contradicts its records, and a verification that says well", "trace", |files| {
        in_trace(files, |trace| {
            trace["handoffs"][0]["rowDiffers"] = json!({ "status": { "row": "A", "record": "B" } });
        });
    }),
    ("a count changed in the trace's verification", "trace", |files| {
        in_trace(files, |trace| trace["verification"]["contents"] = json!(99));
    }),
    ("a fault in the trace's verification that says well", "trace", |files| {
        in_trace(files, |trace| trace["verification"]["firstBad"] = json!({ "leafIndex": 0 }));
    }),
    ("a record left out of the trace", "trace", |files| {
        let mut trace: Value = serde_json::from_slice(&files["trace.json"]).unwrap();
        trace["records"].as_array_mut().unwrap().pop();
        files.insert("trace.json".to_owned(), trace.to_string().into_bytes());
    }),
    ("a word changed on the page", "page", |files| {
        replace(files, "report.html", "MISSING_CLAUSE_TEXT", "NOTHING_WAS_WRONG");
    }),
    ("a word changed in the README", "page", |files| {
        replace(files, "README.md", "Evidence", "Proof");
    }),
    ("another organisation", "foreign", |files| {
        replace(files, "manifest.json", "\"tenant\": \"", "\"tenant\": \"x");
    }),
    ("another count", "manifest", |files| {
        replace(files, "manifest.json", "\"erased\": 0", "\"erased\": 1");
    }),
    ("another form", "manifest", |files| {
        replace(files, "manifest.json", "handoffd-bundle/4", "handoffd-bundle/9");
    }),
];

fn tampered(files: &Files) {
    for name in files.keys() {
        let mut flipped = files.clone();
        let bytes = flipped.get_mut(name).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
        let report = judge(&flipped, &VerifyOptions::default());
        let fault = report.first_fault.unwrap_or_else(|| panic!("{name} flipped: unseen")).fault;
        assert!(
            fault == "hash" || (name == "manifest.json" && !fault.is_empty()),
            "{name}: {fault}"
        );
        let mut dropped = files.clone();
        dropped.remove(name);
        let fault = judge(&dropped, &VerifyOptions::default()).first_fault.unwrap();
        assert_eq!(fault.fault, "missing", "{name} dropped: {}", fault.detail);
    }
    let mut untouched = files.clone();
    reseal(&mut untouched);
    assert_eq!(judge(&untouched, &VerifyOptions::default()).first_fault, None);
    for (what, name, tamper) in TAMPERINGS {
        let mut files = files.clone();
        tamper(&mut files);
        reseal(&mut files);
        let report = judge(&files, &VerifyOptions::default());
        let fault = report.first_fault.unwrap_or_else(|| panic!("{what}: unseen"));
        assert_eq!(fault.fault, *name, "{what}: {}", fault.detail);
    }
}

/// A forger who signs with a key of their own is found by who knows the log's key, and by who kept a
/// tree head.
fn resigned(files: &Files, key: &PublicKey) {
    let note = Note::parse(text(files, "tree-head.txt")).unwrap();
    let head = TreeHead::parse(&note.text).unwrap();
    let forger = Signer::new(&[9; 32]);
    let mut forged = files.clone();
    forged.insert("tree-head.txt".to_owned(), forger.sign(&head).unwrap().into_bytes());
    let own = forger.public(&head.origin).unwrap();
    replace(&mut forged, "keys.json", &key.to_string(), &own.to_string());
    forged.remove("report.html");
    reseal(&mut forged);
    let report = judge(&forged, &VerifyOptions::default());
    assert_eq!((report.first_fault, report.key_given), (None, false), "it fits together");
    let trusting = |keys: &[&PublicKey]| VerifyOptions {
        keys: keys.iter().map(|key| (*key).clone()).collect(),
        ..VerifyOptions::default()
    };
    let fault = judge(&forged, &trusting(&[key])).first_fault.unwrap();
    assert_eq!(fault.fault, "signature");
    let other = TreeHead { root: [1; 32], ..head.clone() };
    let elsewhere = TreeHead { origin: "elsewhere/log".to_owned(), ..head.clone() };
    let kept = [head, other, elsewhere]
        .map(|head| (Note::parse(&forger.sign(&head).unwrap()).unwrap(), head));
    let [same, other, elsewhere] = kept;
    let options = VerifyOptions { tree_heads: vec![elsewhere], ..trusting(&[key, &own]) };
    assert_eq!(judge(files, &options).first_fault.unwrap().fault, "foreign");
    let options = VerifyOptions { tree_heads: vec![same.clone()], ..trusting(&[key, &own]) };
    assert_eq!(judge(files, &options).tree_heads, 1);
    let options = VerifyOptions { tree_heads: vec![same, other], ..trusting(&[key, &own]) };
    assert_eq!(judge(files, &options).first_fault.unwrap().fault, "fork");
}

fn run(command: &mut Command) -> Output {
    let name = command.get_program().to_owned();
    let output = command.output().unwrap_or_else(|err| {
        panic!(
            "{}: {err}; this test needs python3, openssl and sh: apt-get install python3 openssl",
            name.display()
        )
    });
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Opens the zip with Python's own module, and does by hand what the README says.
fn by_hand(zip: &Path, folder: &Path) {
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\nz.extractall(sys.argv[2])";
    run(Command::new("python3").args(["-c", script]).arg(zip).arg(folder));
    let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let scripts: Vec<&str> =
        readme.split("```sh\n").skip(1).map(|part| part.split("```").next().unwrap()).collect();
    assert_eq!(scripts.len(), 5);
    for script in scripts {
        let output = run(Command::new("sh").args(["-ec", script]).current_dir(folder));
        if script.contains("sha256sum") {
            let proofs = std::fs::read_to_string(folder.join("proofs.jsonl")).unwrap();
            let hash = String::from_utf8(output.stdout).unwrap();
            assert!(proofs.lines().next().unwrap().contains(hash.split(' ').next().unwrap()));
        }
    }
}

both! {
    async fn a_bundle_shows_the_original_and_what_went_out(broker: Broker) {
        let message = compressed_task(broker).await;
        let mut files = unpack(&fetch(&broker.admin, &message, "").await);
        let report = judge(&files, &VerifyOptions::default());
        assert_eq!(report.first_fault, None, "{report:?}");
        let records: Vec<Value> = text(&files, "records.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(records.iter().any(|record| record["kind"] == "COMPRESSED"));
        let turns = |bytes: &[u8]| {
            let content: Value = serde_json::from_slice(bytes).ok()?;
            Some(content.get("conversationHistoryVerbatim")?.as_array()?.len())
        };
        let mut kept: Vec<usize> = files.iter().filter(|(name, _)| name.starts_with("contents/")).filter_map(|(_, bytes)| turns(bytes)).collect();
        kept.sort_unstable();
        assert_eq!(kept, [5, 100]);
        // Another summary is found by its commitment.
        let name = files.iter().find(|(name, bytes)| name.starts_with("contents/") && turns(bytes) == Some(5)).unwrap().0.clone();
        replace(&mut files, &name, "Compressed", "compressed");
        reseal(&mut files);
        assert!(judge(&files, &VerifyOptions::default()).first_fault.is_some());
    }
}

both! {
    async fn a43_a_bundle_is_verified_without_the_broker(broker: Broker) {
        let message = task(broker).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.zip");
        let bytes = fetch(&broker.admin, &message, "&includePersonal=true").await;
        std::fs::write(&path, &bytes).unwrap();
        let files = unpack(&bytes);
        let keys: Value = serde_json::from_slice(&files["keys.json"]).unwrap();
        let key = keys["keys"][0]["key"].as_str().unwrap().to_owned();
        let trace = broker.trace(&message).await;

        // No setting, no database: nothing but the file.
        let verified = run(Command::new(env!("CARGO_BIN_EXE_handoffd"))
            .args(["--output", "json", "verify", "--key", &key])
            .arg(&path)
            .env_clear()
            .current_dir(folder.path()));
        let said: Value = serde_json::from_slice(&verified.stdout).unwrap();
        let report = &said["report"];
        assert_eq!((&said["ok"], &report["firstFault"]), (&json!(true), &Value::Null));
        // The task's, and that of the contract.
        assert_eq!(report["records"].as_u64(), Some(trace["records"].as_array().unwrap().len() as u64 + 1));
        assert_eq!(report["signedBy"], key);
        assert_eq!((&report["keyGiven"], &report["pagesCompared"]), (&json!(true), &json!(true)));
        let shown: Value = serde_json::from_slice(&files["trace.json"]).unwrap();
        assert_eq!(shown, trace, "what the API says");
        assert!(text(&files, &first(&files, "personal/")).contains("Jana"));
        assert!(text(&files, "report.html").contains("MISSING_CLAUSE_TEXT"));

        by_hand(&path, &folder.path().join("unpacked"));
        tampered(&files);
        resigned(&files, &PublicKey::parse(&key).unwrap());
    }

    async fn a_bundle_has_personal_data_only_for_who_may_ask(broker: Broker) {
        let message = task(broker).await;
        let (auditor, operator) = (broker.person("auditor").await, broker.person("operator").await);
        let files = unpack(&fetch(&auditor, &message, "").await);
        assert!(files.values().all(|bytes| !String::from_utf8_lossy(bytes).contains("Jana")));
        let report = judge(&files, &VerifyOptions::default());
        assert_eq!((report.first_fault, report.withheld), (None, 1));
        fetch(&operator, &message, "&includePersonal=true").await;
        let path = |query: &str| format!("{}/trace?{query}", message.task_path());
        let asked = path("format=bundle&includePersonal=true");
        auditor.get(&asked).await.refused(403, "FORBIDDEN");
        let agent = broker.pull("d", &[]).await;
        agent.api.get(&path("format=bundle")).await.refused(403, "FORBIDDEN");
        broker.admin.get(&path("format=pdf")).await.refused(400, "INVALID_REQUEST");
        broker.admin.get(&path("includePersonal=true")).await.refused(400, "INVALID_REQUEST");
        let nothing = Message::initial("a", "b");
        let path = format!("{}/trace?format=bundle", nothing.task_path());
        broker.admin.get(&path).await.refused(404, "NOT_FOUND");
    }

    async fn a_bundle_has_the_contracts_that_ruled_and_no_others(broker: Broker) {
        let (a, b) = (broker.pull("a", &["b"]).await, broker.pull("b", &[]).await);
        for version in ["0.9.0", "1.0.0"] {
            rule(broker, version).await;
        }
        let first = Message::review("a", "b");
        a.submit(&first).await.expect(202);
        let token = b.claim_one().await;
        b.say(&first, "reject", token, json!({ "reason": "LATER" })).await.expect(200);
        rule(broker, "1.1.0").await;
        a.submit(&first.again()).await.expect(202);
        rule(broker, "2.0.0").await;
        let files = unpack(&fetch(&broker.admin, &first, "").await);
        let contracts: Vec<&String> =
            files.keys().filter(|name| name.starts_with("contracts/")).collect();
        assert_eq!(contracts, ["contracts/a-to-b@1.0.0.json", "contracts/a-to-b@1.1.0.json"]);
        let kept: Value = serde_json::from_slice(&files[contracts[1].as_str()]).unwrap();
        assert_eq!((&kept["version"], &kept["trigger"]["intent"]), (&json!("1.1.0"), &json!("what a found has to be reviewed")));
        assert_eq!(judge(&files, &VerifyOptions::default()).first_fault, None);
    }

    async fn a_bundle_has_the_registered_payload_schemas_that_its_contracts_name(broker: Broker) {
        let (a, _) = (broker.pull("a", &["b"]).await, broker.pull("b", &[]).await);
        let put = async |id: &str, version: &str| {
            let schema = json!({ "schema": { "type": "object", "title": id }, "migration": "none needed" });
            broker.admin.put(&format!("/schemas/payloads/{id}/{version}"), &schema).await.expect(201);
        };
        for (id, version) in [("found", "1.0.0"), ("other", "1.0.0")] {
            put(id, version).await;
        }
        let contract = json!({
            "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b",
            "trigger": { "intent": "review" }, "payload": { "schema": "registry:found@1.0.0" },
        });
        broker.admin.put("/contracts/a-to-b", &contract).await.expect(201);
        let first = Message::review("a", "b");
        a.submit(&first).await.expect(202);
        let files = unpack(&fetch(&broker.admin, &first, "").await);
        let schemas: Vec<&String> = files.keys().filter(|name| name.starts_with("schemas/")).collect();
        assert_eq!(schemas, ["schemas/found@1.0.0.json"], "and no others");
        let kept: Value = serde_json::from_slice(&files[schemas[0].as_str()]).unwrap();
        assert_eq!(kept, json!({ "schema": { "type": "object", "title": "found" }, "migration": "none needed" }));
        let last: Value = serde_json::from_str(text(&files, "records.jsonl").lines().last().unwrap()).unwrap();
        assert_eq!(last["kind"], "PAYLOAD_SCHEMA_PUT");
        assert_eq!(last["payloadSchema"], json!({ "id": "found", "version": "1.0.0" }));
        let report = judge(&files, &VerifyOptions::default());
        assert_eq!((report.first_fault, report.records), (None, 3));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.zip");
        std::fs::write(&path, fetch(&broker.admin, &first, "").await).unwrap();
        by_hand(&path, &folder.path().join("unpacked"));

        let fault = |change: &dyn Fn(&mut Files)| {
            let mut files = files.clone();
            change(&mut files);
            reseal(&mut files);
            judge(&files, &VerifyOptions::default()).first_fault.map_or("none", |fault| fault.fault)
        };
        assert_eq!(fault(&|_| {}), "none");
        let changed = |files: &mut Files| replace(files, "schemas/found@1.0.0.json", "object", "string");
        assert_eq!(fault(&changed), "payload-schema");
        let renamed = |files: &mut Files| {
            let schema = files["schemas/found@1.0.0.json"].clone();
            files.insert("schemas/found@2.0.0.json".to_owned(), schema);
        };
        assert_eq!(fault(&renamed), "surplus");
        let unknown = |files: &mut Files| {
            files.insert("schemas/../found@2.0.0.json".to_owned(), b"{}".to_vec());
        };
        assert_eq!(fault(&unknown), "surplus");
        let left_out = |files: &mut Files| {
            files.remove("schemas/found@1.0.0.json");
            for name in ["records.jsonl", "proofs.jsonl", "commitments.jsonl"] {
                lines(files, name, |lines| {
                    lines.pop();
                });
            }
            let mut manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
            for name in ["records", "contents"] {
                manifest[name] = json!(manifest[name].as_u64().unwrap() - 1);
            }
            files.insert("manifest.json".to_owned(), manifest.to_string().into_bytes());
        };
        assert_eq!(fault(&left_out), "payload-schema");
        let misplaced = |files: &mut Files| {
            for name in ["records.jsonl", "proofs.jsonl", "commitments.jsonl"] {
                lines(files, name, |lines| {
                    let last = lines.len() - 1;
                    lines.swap(last - 1, last);
                });
            }
        };
        assert_eq!(fault(&misplaced), "swap");

        // As it was before there were any: well, but for the pages, which are made otherwise now.
        let mut old = files.clone();
        left_out(&mut old);
        replace(&mut old, "manifest.json", "handoffd-bundle/4", "handoffd-bundle/2");
        reseal(&mut old);
        let report = judge(&old, &VerifyOptions::default());
        assert_eq!((report.first_fault, report.pages_compared, report.records), (None, false, 2));
        // A member of the new form is not taken for the old one.
        let mut mixed = files.clone();
        replace(&mut mixed, "manifest.json", "handoffd-bundle/4", "handoffd-bundle/2");
        reseal(&mut mixed);
        assert_eq!(judge(&mixed, &VerifyOptions::default()).first_fault.unwrap().fault, "foreign");
    }

    async fn the_bundle_of_a_task_says_what_was_erased_from_it(broker: Broker) {
        let message = task(broker).await;
        let erase = "/data-subjects/client-7?scope=messages";
        broker.admin.send(reqwest::Method::DELETE, erase, &[], &json!({})).await.expect(200);
        let files = unpack(&fetch(&broker.admin, &message, "&includePersonal=true").await);
        assert!(files.values().all(|bytes| !String::from_utf8_lossy(bytes).contains("Jana")));
        let report = judge(&files, &VerifyOptions::default());
        assert_eq!(report.first_fault, None);
        // The datum, its handoff's message, and what was said of that handoff.
        assert!(report.erased >= 2, "{report:?}");
        let manifest: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        assert_eq!(manifest["erased"], report.erased);
        let said = text(&files, "commitments.jsonl").matches("\"state\":\"erased\"").count();
        assert_eq!(said as u64, report.erased);
        let last: Value = serde_json::from_str(text(&files, "records.jsonl").lines().last().unwrap()).unwrap();
        assert_eq!(last["kind"], "ERASED");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.zip");
        std::fs::write(&path, fetch(&broker.admin, &message, "").await).unwrap();
        let said = broker.command(&["verify", path.to_str().unwrap()]).await;
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(said.contains(&format!("({} erased", report.erased)), "{said}");

        // Without the record that says so it is a fault.
        let mut silent = files.clone();
        for name in ["records.jsonl", "proofs.jsonl", "commitments.jsonl"] {
            lines(&mut silent, name, |lines| {
                lines.pop();
            });
        }
        let list = format!("contents/{}.json", last["leafIndex"]);
        silent.remove(&list).unwrap();
        reseal(&mut silent);
        let fault = judge(&silent, &VerifyOptions::default()).first_fault.unwrap();
        assert_eq!(fault.fault, "content-gone");
    }

    async fn export_writes_the_same_from_the_database(broker: Broker) {
        let message = task(broker).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.zip");
        let file = path.to_str().unwrap();
        let export = ["--output", "json", "export", "--task", &message.task(), "--file", file];
        let said = broker.command(&export).await;
        assert!(said.status.success(), "{said:?}");
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(said["bytes"].as_u64(), Some(bytes.len() as u64));
        assert_eq!(verify(&path, &VerifyOptions::default()).unwrap().first_fault, None);
        let mut served = unpack(&fetch(&broker.admin, &message, "").await);
        let mut exported = unpack(&bytes);
        for files in [&mut served, &mut exported] {
            // These say when they were made.
            files.retain(|name, _| !["README.md", "manifest.json", "report.html"].contains(&name.as_str()));
        }
        assert_eq!(served.keys().collect::<Vec<_>>(), exported.keys().collect::<Vec<_>>());
        assert!(served == exported);
        let said = broker.command(&["verify", file]).await;
        let text = String::from_utf8(said.stdout).unwrap();
        assert!(text.starts_with("ok: ") && text.contains("not who signed it"), "{text}");
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let said = broker.command(&["verify", file]).await;
        assert_eq!(said.status.code(), Some(3), "half a zip is not a bundle");
    }
}
