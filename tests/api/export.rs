//! A whole log as a file: verified without the broker, and what was done to it is named as in the
//! database.

use std::path::Path;
use std::process::Command;

use handoffd_evidence::bundle::{LogReport, VerifyOptions, verify_log};
use handoffd_evidence::note::{Note, PublicKey, Signer, TreeHead};
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::Broker;
use crate::message::Message;

/// A few handoffs with data of a person, and an answer.
async fn grow(broker: &Broker) -> Message {
    let (a, b) = broker.pull_pair().await;
    let subjects = json!([{ "subjectId": "client-7", "data": { "name": "Jana Novak" } }]);
    let about =
        |message: Message| message.set("/personalDataPayload", json!({ "subjects": subjects }));
    let first = about(Message::review("a", "b"));
    a.submit(&first).await.expect(202);
    let token = b.claim_one().await;
    b.say(&first, "complete", token, json!({ "result": { "score": "high" } })).await.expect(200);
    for _ in 0..3 {
        a.submit(&about(Message::initial("a", "b"))).await.expect(202);
    }
    first
}

/// Exports the log; returns the file's lines.
async fn export(broker: &Broker, path: &Path, more: &[&str]) -> Vec<String> {
    let all = ["--output", "json", "export", "--log", "--file", path.to_str().unwrap()];
    let said = broker.command(&[&all, more].concat()).await;
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(said["bytes"].as_u64(), Some(bytes.len() as u64));
    let text = if path.extension().is_some_and(|extension| extension == "zst") {
        zstd::decode_all(&bytes[..]).unwrap()
    } else {
        bytes
    };
    let lines: Vec<String> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(said["records"].as_u64(), Some(lines.len() as u64 - 1));
    lines
}

async fn tree_head(broker: &Broker) -> String {
    let request = broker.admin.request(Method::GET, "/audit/tree-head");
    request.header("accept", "text/plain").send().await.unwrap().text().await.unwrap()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn first_line(lines: &[String], name: &str) -> Value {
    parsed(&lines[0])[name].clone()
}

fn judge_bytes(bytes: &[u8], options: &VerifyOptions) -> LogReport {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    verify_log(file.path(), options, &|_, _| {}).unwrap()
}

fn judge(lines: &[String], options: &VerifyOptions) -> LogReport {
    judge_bytes(format!("{}\n", lines.join("\n")).as_bytes(), options)
}

/// The fault that is named, and its place.
fn named(lines: &[String]) -> Option<(Option<i64>, &'static str)> {
    judge(lines, &VerifyOptions::default()).first_fault.map(|fault| (fault.leaf_index, fault.fault))
}

/// The record of a line, replaced in its bytes; its hash is made to fit where `hashed` says so.
fn rewrite(line: &str, from: &str, to: &str, hashed: bool) -> String {
    let value = parsed(line);
    // The record as it is in the line: canonical, so that serialising sorted members gives it back.
    let old = value["record"].to_string();
    assert!(line.contains(&old) && old.contains(from), "{from} in {old}");
    let new = old.replacen(from, to, 1);
    let line = line.replacen(&old, &new, 1);
    if !hashed {
        return line;
    }
    let hash = Sha256::new_with_prefix([0u8]).chain_update(&new).finalize();
    let hash = format!("sha256:{}", hex::encode(hash));
    line.replacen(value["recordHash"].as_str().unwrap(), &hash, 1)
}

/// Rewrites everything from a leaf on, each hash anew.
fn rewrite_from(lines: &mut [String], leaf: usize) {
    for at in leaf + 1..lines.len() {
        let record = &parsed(&lines[at])["record"];
        let old = record["previousRecordHash"].as_str().unwrap().to_owned();
        let new = parsed(&lines[at - 1])["recordHash"].as_str().unwrap().to_owned();
        if at == leaf + 1 {
            lines[at] = rewrite(&lines[at], "\"v\":1", "\"v\":2", true);
        } else {
            lines[at] = rewrite(&lines[at], &old, &new, true);
        }
    }
}

/// A changed line, and a change, done to it.
fn changed(line: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut value = parsed(line);
    change(&mut value);
    value.to_string()
}

/// The place of the first line that has such a part.
fn with(lines: &[String], part: &str) -> usize {
    let found = lines.iter().skip(1).position(|line| !parsed(line)[part].is_null());
    found.unwrap() + 1
}

/// A change, done to all lines; what it is called; and the leaf that is named, none for the first line.
type Tampering = fn(&mut Vec<String>) -> Option<i64>;

/// The leaf of a line.
#[allow(clippy::unnecessary_wraps)]
fn leaf(line: usize) -> Option<i64> {
    Some(line as i64 - 1)
}

const TAMPERINGS: &[(&str, &str, Tampering)] = &[
    ("a record changed", "flip", |lines| {
        lines[5] = rewrite(&lines[5], "\"v\":1", "\"v\":2", false);
        leaf(5)
    }),
    ("a hash changed", "flip", |lines| {
        lines[5] = changed(&lines[5], |line| line["recordHash"] = json!("sha256:00"));
        leaf(5)
    }),
    ("a record changed, hash and all", "rewrite", |lines| {
        lines[5] = rewrite(&lines[5], "\"v\":1", "\"v\":2", true);
        leaf(6)
    }),
    ("the last record changed, hash and all", "rewrite", |lines| {
        let last = lines.len() - 1;
        lines[last] = rewrite(&lines[last], "\"v\":1", "\"v\":2", true);
        leaf(last)
    }),
    ("everything rewritten from a record on", "rewrite", |lines| {
        rewrite_from(lines, 5);
        leaf(lines.len() - 1)
    }),
    ("a record dropped", "drop", |lines| {
        lines.remove(5);
        leaf(5)
    }),
    ("the first record dropped", "drop", |lines| {
        lines.remove(1);
        leaf(1)
    }),
    ("a record put in", "insert", |lines| {
        lines.insert(5, lines[3].clone());
        leaf(5)
    }),
    ("a record put in at the end", "insert", |lines| {
        lines.push(lines[3].clone());
        leaf(lines.len() - 1)
    }),
    ("two records swapped", "swap", |lines| {
        lines.swap(3, 6);
        leaf(3)
    }),
    ("the end cut off", "truncation", |lines| {
        lines.truncate(7);
        leaf(7)
    }),
    ("all records cut off", "truncation", |lines| {
        lines.truncate(1);
        leaf(1)
    }),
    ("a content changed", "content", |lines| {
        let at = with(lines, "content");
        lines[at] = changed(&lines[at], |line| line["content"]["value"]["x"] = json!(1));
        leaf(at)
    }),
    ("a salt changed", "content", |lines| {
        let at = with(lines, "content");
        lines[at] = changed(&lines[at], |line| line["content"]["salt"] = json!("00"));
        leaf(at)
    }),
    ("a content taken out", "content", |lines| {
        let at = with(lines, "content");
        lines[at] = changed(&lines[at], |line| line["content"] = Value::Null);
        leaf(at)
    }),
    ("a content said to be erased", "content-gone", |lines| {
        let at = with(lines, "content");
        lines[at] = changed(&lines[at], |line| line["content"] = json!({ "state": "erased" }));
        leaf(at)
    }),
    ("a content said to be erased, its value left", "content", |lines| {
        let at = with(lines, "content");
        lines[at] = changed(&lines[at], |line| line["content"]["state"] = json!("erased"));
        leaf(at)
    }),
    ("a content said to be withheld", "content", |lines| {
        let at = with(lines, "content");
        lines[at] = changed(&lines[at], |line| line["content"] = json!({ "state": "withheld" }));
        leaf(at)
    }),
    ("a segment said to be missing", "cold-missing", |lines| {
        let at = with(lines, "content");
        let missing = json!({ "state": "cold-missing" });
        lines[at] = changed(&lines[at], |line| line["content"] = missing);
        leaf(at)
    }),
    ("personal data changed", "personal-data", |lines| {
        let at = with(lines, "personal");
        lines[at] = lines[at].replace("Jana", "Dana");
        leaf(at)
    }),
    ("personal data taken out", "personal-data", |lines| {
        let at = with(lines, "personal");
        lines[at] = changed(&lines[at], |line| line["personal"] = json!([]));
        leaf(at)
    }),
    ("personal data said to be withheld", "personal-data", |lines| {
        let at = with(lines, "personal");
        let withheld = json!([{ "ordinal": 0, "state": "withheld" }]);
        lines[at] = changed(&lines[at], |line| line["personal"] = withheld);
        leaf(at)
    }),
    ("a line broken", "damaged", |lines| {
        lines[4].pop();
        leaf(4)
    }),
    ("another log", "tree-head", |lines| {
        lines[0] = changed(&lines[0], |line| line["logId"] = json!("other"));
        None
    }),
    ("another tenant", "foreign", |lines| {
        lines[0] = changed(&lines[0], |line| line["tenant"] = json!("bank-of-x"));
        leaf(1)
    }),
    ("a key made at no time", "keys", |lines| {
        lines[0] = changed(&lines[0], |line| line["keys"][0]["createdAt"] = json!("2030"));
        None
    }),
    ("another size", "tree-head", |lines| {
        lines.truncate(7);
        lines[0] = changed(&lines[0], |line| line["treeSize"] = json!(6));
        None
    }),
    ("no key that signed", "signature", |lines| {
        let origin = first_line(lines, "origin");
        let other = Signer::new(&[9; 32]).public(origin.as_str().unwrap()).unwrap().to_string();
        lines[0] = changed(&lines[0], |line| line["keys"][0]["key"] = json!(other));
        None
    }),
    ("another form", "manifest", |lines| {
        lines[0] = changed(&lines[0], |line| line["format"] = json!("handoffd-log/9"));
        None
    }),
    ("no first line", "damaged", |lines| {
        lines.remove(0);
        None
    }),
];

fn tampered(lines: &[String]) {
    assert_eq!(named(lines), None);
    for (what, name, tamper) in TAMPERINGS {
        let mut lines = lines.to_vec();
        let at = tamper(&mut lines);
        assert_eq!(named(&lines), Some((at, *name)), "{what}");
    }
    // A lost segment is not an erasure.
    let mut lost = lines.to_vec();
    let at = with(&lost, "content");
    let missing = json!({ "state": "cold-missing" });
    lost[at] = changed(&lost[at], |line| line["content"] = missing);
    assert_eq!(judge(&lost, &VerifyOptions::default()).erased, 0);
    let text = format!("{}\n", lines.join("\n"));
    let cut = judge_bytes(&text.as_bytes()[..text.len() - 9], &VerifyOptions::default());
    let fault = cut.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (leaf(lines.len() - 1), "truncation"));
}

/// One who holds the key can sign another history: what a tree head kept elsewhere is for.
fn resigned(lines: &[String], key: &PublicKey) {
    let note = first_line(lines, "treeHead").as_str().unwrap().to_owned();
    let (note, head) = {
        let note = Note::parse(&note).unwrap();
        let head = TreeHead::parse(&note.text).unwrap();
        (note, head)
    };
    let forger = Signer::new(&[9; 32]);
    let own = forger.public(&head.origin).unwrap();
    let mut forged = lines.to_vec();
    forged[0] = changed(&forged[0], |line| {
        line["treeHead"] = forger.sign(&head).unwrap().into();
        line["keys"][0]["key"] = own.to_string().into();
    });
    let trusting = |keys: &[&PublicKey], tree_heads| VerifyOptions {
        keys: keys.iter().map(|key| (*key).clone()).collect(),
        tree_heads,
    };
    let report = judge(&forged, &VerifyOptions::default());
    assert_eq!((report.first_fault, report.key_given), (None, false), "it fits together");
    let fault = judge(&forged, &trusting(&[key], Vec::new())).first_fault.unwrap();
    assert_eq!(fault.fault, "signature");
    let kept = vec![(note, head.clone())];
    let report = judge(lines, &trusting(&[key], kept));
    assert_eq!((report.first_fault, report.tree_heads, report.key_given), (None, 1, true));
    let other = TreeHead { root: [1; 32], ..head.clone() };
    let elsewhere = TreeHead { origin: "elsewhere/log".to_owned(), ..head };
    for (head, fault) in [(other, "rewrite"), (elsewhere, "foreign")] {
        let kept = vec![(Note::parse(&forger.sign(&head).unwrap()).unwrap(), head)];
        let report = judge(lines, &trusting(&[key, &own], kept));
        assert_eq!(report.first_fault.unwrap().fault, fault);
    }
}

both! {
    async fn a_log_is_exported_and_verified_without_the_broker(broker: Broker) {
        grow(broker).await;
        let early = tree_head(broker).await;
        broker.pull("c", &[]).await;
        let size = broker.log_size().await;
        let folder = tempfile::tempdir().unwrap();
        let heads = folder.path().join("kept.heads");
        std::fs::write(&heads, &early).unwrap();
        for name in ["log.jsonl", "log.jsonl.zst"] {
            let path = folder.path().join(name);
            let lines = export(broker, &path, &[]).await;
            assert_eq!(lines.len() as u64, size + 1);
            assert!(!lines.concat().contains("Jana"));
            let key = first_line(&lines, "keys")[0]["key"].as_str().unwrap().to_owned();
            // No setting, no database: nothing but the file, the key, and a tree head from before.
            let said = Command::new(env!("CARGO_BIN_EXE_handoffd"))
                .args(["--output", "json", "verify", "--key", &key, "--tree-head"])
                .args([&heads, &path])
                .env_clear()
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert!(said.status.success(), "{said:?}");
            let said: Value = serde_json::from_slice(&said.stdout).unwrap();
            let report = &said["report"];
            assert_eq!((&said["ok"], &report["records"]), (&json!(true), &json!(size)));
            assert_eq!((&report["withheld"], &report["treeHeads"]), (&json!(4), &json!(1)));
            assert_eq!((&report["signedBy"], &report["keyGiven"]), (&json!(key), &json!(true)));
            let said = broker.command(&["verify", path.to_str().unwrap()]).await;
            let text = String::from_utf8(said.stdout).unwrap();
            assert!(text.starts_with("ok: ") && text.contains("not who signed it"), "{text}");
        }
        let packed = std::fs::read(folder.path().join("log.jsonl.zst")).unwrap();
        let cut = judge_bytes(&packed[..packed.len() - 9], &VerifyOptions::default());
        assert_eq!(cut.first_fault.unwrap().fault, "truncation");
    }

    async fn what_was_done_to_an_export_is_named(broker: Broker) {
        grow(broker).await;
        let early = tree_head(broker).await;
        broker.pull("c", &[]).await;
        let folder = tempfile::tempdir().unwrap();
        let lines = export(broker, &folder.path().join("log"), &["--include-personal"]).await;
        assert!(lines.concat().contains("Jana Novak"));
        tampered(&lines);
        let key = first_line(&lines, "keys")[0]["key"].as_str().unwrap().to_owned();
        let key = PublicKey::parse(&key).unwrap();
        resigned(&lines, &key);

        // Cut back to an earlier signed tree head: a reader who kept a later one knows.
        let (note, head) = {
            let note = Note::parse(&early).unwrap();
            let head = TreeHead::parse(&note.text).unwrap();
            (note, head)
        };
        let mut short = lines[..=usize::try_from(head.size).unwrap()].to_vec();
        short[0] = changed(&short[0], |line| {
            line["treeHead"] = early.clone().into();
            line["treeSize"] = head.size.into();
            line["rootHash"] = format!("sha256:{}", hex::encode(head.root)).into();
        });
        assert_eq!(named(&short), None, "a log as it was once");
        assert_eq!(judge(&lines, &VerifyOptions { keys: vec![key], tree_heads: vec![(note, head)] }).tree_heads, 1);
        let late = first_line(&lines, "treeHead").as_str().unwrap().to_owned();
        let late = Note::parse(&late).unwrap();
        let head = TreeHead::parse(&late.text).unwrap();
        let report = judge(&short, &VerifyOptions { tree_heads: vec![(late, head)], ..VerifyOptions::default() });
        assert_eq!(report.first_fault.unwrap().fault, "truncation");
    }

    async fn an_export_says_what_was_erased_and_has_what_is_cold(broker: Broker) {
        grow(broker).await;
        let moved = broker.command(&["archive", "--before", "2999-01-01T00:00:00Z"]).await;
        assert!(moved.status.success(), "{moved:?}");
        broker.admin.send(Method::DELETE, "/data-subjects/client-7", &[], &json!({})).await.expect(200);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let lines = export(broker, &path, &["--include-personal"]).await;
        let text = lines.concat();
        assert!(!text.contains("Jana") && text.contains("\"score\":\"high\""));
        let report = judge(&lines, &VerifyOptions::default());
        assert_eq!((report.first_fault, report.erased), (None, 4));

        // If the list of erased data is gone itself, it explains nothing.
        let list = lines.iter().position(|line| parsed(line)["record"]["kind"] == "ERASED").unwrap();
        let mut hidden = lines.clone();
        hidden[list] = changed(&hidden[list], |line| line["content"] = json!({ "state": "erased" }));
        assert_eq!(named(&hidden).unwrap().1, "content-gone");

        // An archive that is away gives no verdict, and no partial file is left.
        std::fs::rename(broker.archive(), folder.path().join("away")).unwrap();
        std::fs::write(broker.archive(), "not a folder").unwrap();
        let half = folder.path().join("half");
        let said = broker.command(&["export", "--log", "--file", half.to_str().unwrap()]).await;
        assert_eq!((said.status.code(), half.exists()), (Some(3), false), "{said:?}");
        std::fs::remove_file(broker.archive()).unwrap();
        std::fs::rename(folder.path().join("away"), broker.archive()).unwrap();
    }
}
