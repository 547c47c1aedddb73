//! The cold tier from outside: what was archived reads as before, and what is wrong with it is named.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection};

use crate::harness::{Agent, Broker, until};
use crate::message::Message;

/// A task with a completed handoff, whose content may go, and another that is open.
async fn task(broker: &Broker) -> (Agent, Agent, Message, Message) {
    let (a, b) = broker.pull_pair().await;
    let first = Message::review("a", "b");
    a.submit(&first).await.expect(202);
    let token = b.claim_one().await;
    let result = json!({ "result": { "finding": "clause 7 is missing ".repeat(30) } });
    b.say(&first, "complete", token, result).await.expect(200);
    let second = first.next("a", "b");
    a.submit(&second).await.expect(202);
    (a, b, first, second)
}

/// Runs `handoffd archive` for everything up to now; returns what moved.
async fn archive(broker: &Broker, arguments: &[&str]) -> Value {
    let all = ["--output", "json", "archive", "--before", "2999-01-01T00:00:00Z"];
    let done = broker.command(&[&all, arguments].concat()).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    said["tenants"][0]["moved"].clone()
}

/// Everything that a reader can ask of the task.
async fn views(broker: &Broker, first: &Message) -> Vec<String> {
    let mut views = Vec::new();
    for path in [
        format!("{}/trace", first.task_path()),
        format!("{}?include=message", first.path()),
        format!("{}/blame?pointer=/currentState", first.task_path()),
    ] {
        views.push(broker.admin.get(&path).await.expect(200).text);
    }
    views
}

/// The segments of the archive.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|extension| extension == "seg") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Whether a text is in a segment's frames.
fn holds(segment: &Path, text: &str) -> bool {
    let frames = zstd::decode_all(&std::fs::read(segment).unwrap()[..]).unwrap();
    String::from_utf8(frames).unwrap().contains(text)
}

/// The first fault that `handoffd verify` finds.
pub async fn fault(broker: &Broker) -> Value {
    let said = broker.command(&["--output", "json", "verify"]).await;
    assert_eq!(said.status.code(), Some(1), "{}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    said["logs"][0]["report"]["firstFault"].clone()
}

pub async fn past_the_broker(broker: &Broker, sql: &str) -> u64 {
    let sql = AssertSqlSafe(sql.to_owned());
    if broker.url.starts_with("sqlite:") {
        let mut raw = sqlx::SqliteConnection::connect(&broker.url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut raw).await.unwrap().rows_affected()
    } else {
        let mut raw = sqlx::PgConnection::connect(&broker.url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut raw).await.unwrap().rows_affected()
    }
}

both! {
    async fn what_is_archived_reads_as_before_byte_for_byte(broker: Broker) {
        let (_, b, first, second) = task(broker).await;
        let before = views(broker, &first).await;
        let planned = archive(broker, &["--dry-run"]).await;
        assert!(segments(&broker.archive()).is_empty(), "a dry run moves nothing");
        let moved = archive(broker, &[]).await;
        assert_eq!(moved["contents"], planned["contents"]);
        assert!(moved["contents"].as_u64().unwrap() >= 2, "{moved}");
        assert_eq!(moved["held"], 1, "the open handoff's message stays: {moved}");
        assert_eq!(segments(&broker.archive()).len(), 1);
        assert_eq!(views(broker, &first).await, before);
        assert!(before[0].contains("clause 7 is missing"));
        let again = archive(broker, &[]).await;
        assert_eq!((&again["contents"], &again["orphans"]), (&json!(0), &json!(0)));
        // The open one is delivered as ever, and goes once it has ended.
        let items = b.claim(1).await;
        assert_eq!(items[0]["message"]["handoffId"], *second.id());
        let token = items[0]["fencingToken"].as_i64().unwrap();
        b.say(&second, "complete", token, json!({ "result": {} })).await.expect(200);
        assert!(archive(broker, &[]).await["contents"].as_u64().unwrap() >= 1);
        assert_eq!(segments(&broker.archive()).len(), 2);
    }

    async fn what_an_interrupted_run_left_is_removed(broker: Broker) {
        let (_, _, first, _) = task(broker).await;
        archive(broker, &[]).await;
        let before = views(broker, &first).await;
        let segment = segments(&broker.archive()).remove(0);
        // Put and not in any row: a segment with its manifest, one without, a manifest
        // alone, and a file that was never put whole.
        let other = |name: &str| segment.with_file_name(name);
        std::fs::copy(&segment, other("00000000000000000000-00000000000000000001-aa.seg")).unwrap();
        std::fs::copy(segment.with_extension("json"), other("00000000000000000000-00000000000000000001-aa.json")).unwrap();
        std::fs::copy(&segment, other("00000000000000000000-00000000000000000001-bb.seg")).unwrap();
        std::fs::copy(&segment, other("00000000000000000000-00000000000000000001-cc.json")).unwrap();
        std::fs::copy(&segment, other("00000000000000000000-00000000000000000001-dd.seg#1")).unwrap();
        assert_eq!(archive(broker, &[]).await["orphans"], 4);
        assert!(!other("00000000000000000000-00000000000000000001-dd.seg#1").exists());
        assert_eq!(segments(&broker.archive()), [segment]);
        assert_eq!(views(broker, &first).await, before);
    }

    async fn a_lost_or_damaged_segment_is_named_and_breaks_no_trace(broker: Broker) {
        let (_, _, first, _) = task(broker).await;
        archive(broker, &[]).await;
        let segment = segments(&broker.archive()).remove(0);
        let whole = std::fs::read(&segment).unwrap();
        std::fs::remove_file(&segment).unwrap();
        assert_eq!(fault(broker).await["fault"], "cold-missing");
        // This broker has read none of it yet: what it read it would remember for a minute.
        let trace = broker.admin.get(&format!("{}/trace", first.task_path())).await.expect(200).body;
        assert_eq!(trace["verification"]["ok"], false);
        assert_eq!(trace["verification"]["firstBad"]["fault"], "cold-missing");
        assert_eq!(trace["records"][0]["content"], json!({ "unavailable": "cold" }));
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        std::fs::write(&segment, &flipped).unwrap();
        assert_eq!(fault(broker).await["fault"], "cold-damaged");
        std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(fault(broker).await["fault"], "cold-damaged");
        std::fs::write(&segment, &whole).unwrap();
        assert!(broker.command(&["verify"]).await.status.success());
    }

    async fn an_erasure_of_messages_empties_segments_of_them(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for (subject, name) in [("jana", "Jana Novak"), ("omar", "Omar Said")] {
            let subjects = json!([{ "subjectId": subject, "data": { "name": name } }]);
            let message = Message::initial("a", "b")
                .set("/currentState/notes", json!(format!("{name} wrote this")))
                .set("/personalDataPayload", json!({ "subjects": subjects }));
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            b.say(&message, "complete", token, json!({ "result": { "of": name } })).await.expect(200);
        }
        archive(broker, &[]).await;
        let old = segments(&broker.archive());
        assert!(old.len() == 1 && holds(&old[0], "Jana Novak") && holds(&old[0], "Omar Said"));
        // A killed run left a segment: no row says what is in it.
        let orphan = old[0].with_file_name("00000000000000000000-00000000000000000001-aa.seg");
        std::fs::copy(&old[0], &orphan).unwrap();

        // While the archive is away an erasure of messages is not done.
        let aside = broker.archive().with_extension("aside");
        std::fs::rename(broker.archive(), &aside).unwrap();
        let erase = async |path: &str| {
            let wait = [("prefer", "wait=1")];
            broker.admin.send(reqwest::Method::DELETE, path, &wait, &json!({})).await
        };
        let waits = async || {
            until("the erasure waits for it", async || {
                match erase("/data-subjects/jana?scope=messages").await.expect(202).body["status"].as_str() {
                    Some("SCRUBBING") => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await;
        };
        waits().await;
        // As a disk that is not mounted leaves it.
        std::fs::create_dir(broker.archive()).unwrap();
        waits().await;
        std::fs::remove_dir(broker.archive()).unwrap();
        std::fs::write(broker.archive(), b"in the way").unwrap();
        waits().await;
        std::fs::remove_file(broker.archive()).unwrap();
        std::fs::rename(&aside, broker.archive()).unwrap();
        until("the erasure ends", async || {
            match erase("/data-subjects/jana?scope=messages").await.status {
                200 => Ok(()),
                other => Err(format!("{other}")),
            }
        })
        .await;
        let new = segments(&broker.archive());
        assert!(new.len() == 1 && new != old, "{new:?}");
        assert!(!holds(&new[0], "Jana Novak") && holds(&new[0], "Omar Said"));

        // Marked data alone never was in the archive, and needs none.
        std::fs::rename(broker.archive(), &aside).unwrap();
        erase("/data-subjects/omar").await.expect(200);
        std::fs::rename(&aside, broker.archive()).unwrap();
        assert_eq!(archive(broker, &[]).await["orphans"], 0);
    }

    async fn what_somebody_waits_for_stays_hot(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        // No agent waits for an administrator's actions.
        archive(broker, &[]).await;
        let asked = Message::review("a", "b");
        a.submit(&asked).await.expect(202);
        let token = b.claim_one().await;
        b.say(&asked, "accept", token, json!({})).await.expect(200);
        b.say(&asked, "ask", token, json!({ "question": "which one?" })).await.expect(200);
        let stream = Message::review("a", "b").set("/schemaVersion", json!("2.2")).set("/stream", json!({ "open": true }));
        a.submit(&stream).await.expect(202);
        let chunk = json!({ "seq": 1, "set": { "/currentState/pages": 1 } });
        a.api.post(&format!("{}/chunks", stream.path()), &chunk).await.expect(200);
        let back = Message::review("a", "b").set("/schemaVersion", json!("2.2")).set("/returnTo", json!("source"));
        a.submit(&back).await.expect(202);
        let claimed = b.claim(9).await;
        let item = claimed.iter().find(|item| item["handoffId"] == back.id()).unwrap();
        let token = item["fencingToken"].as_i64().unwrap();
        b.say(&back, "complete", token, json!({ "result": "as agreed" })).await.expect(200);
        let moved = archive(broker, &[]).await;
        assert_eq!((&moved["contents"], &moved["held"]), (&json!(0), &json!(6)), "{moved}");
        let poll = "/agents/a/inbox?max=0";
        let returned = a.api.get(poll).await.expect(200).body["returns"][0].clone();
        assert_eq!(returned["handoffId"], back.id(), "{returned}");
    }

    async fn what_is_erased_while_cold_leaves_the_archive(broker: Broker) {
        let (_, _, first, _) = task(broker).await;
        past_the_broker(broker, "CREATE TABLE aside AS SELECT * FROM contents").await;
        archive(broker, &[]).await;
        let old = segments(&broker.archive()).remove(0);
        let manifest: Value = serde_json::from_slice(&std::fs::read(old.with_extension("json")).unwrap()).unwrap();
        // The message: contents of administrative records are smaller.
        let entries = manifest["contents"].as_array().unwrap();
        let entry = entries.iter().max_by_key(|entry| entry["length"].as_u64()).unwrap();
        let number = |name: &str| usize::try_from(entry[name].as_u64().unwrap()).unwrap();
        let bytes = std::fs::read(&old).unwrap();
        let frame = bytes[number("offset")..number("offset") + number("length")].to_vec();
        let id = entry["contentId"].as_str().unwrap();
        let sql = format!("UPDATE contents SET salt = NULL, bytes = NULL WHERE content_id = '{id}'");
        assert_eq!(past_the_broker(broker, &sql).await, 1);
        // A lost manifest does not keep a person's data from being erased.
        std::fs::remove_file(old.with_extension("json")).unwrap();
        assert_eq!(archive(broker, &[]).await["forgotten"], 1);
        let new = segments(&broker.archive());
        assert_eq!(new.len(), 1);
        assert_ne!(new[0], old);
        let bytes = std::fs::read(&new[0]).unwrap();
        assert!(!bytes.windows(frame.len()).any(|window| window == frame), "its frame is gone");
        let trace = broker.admin.get(&format!("{}/trace", first.task_path())).await.expect(200).body;
        assert_eq!((&trace["verification"]["ok"], &trace["verification"]["erased"]), (&json!(true), &json!(1)));
        let again = archive(broker, &[]).await;
        assert_eq!((&again["forgotten"], &again["orphans"]), (&json!(0), &json!(0)));
        // No record says that it was erased, which the verifier would not let pass at the end.
        let from = |column: &str| {
            format!("{column} = (SELECT {column} FROM aside WHERE aside.content_id = contents.content_id)")
        };
        let all = ["salt", "codec", "bytes"].map(from).join(", ");
        let sql = format!("UPDATE contents SET {all} WHERE content_id = '{id}'");
        assert_eq!(past_the_broker(broker, &sql).await, 1);
    }
}

both! {
    with [("HANDOFFD_RETENTION__HOT_DAYS", "0"), ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "1")]
    async fn an_archive_that_cannot_be_written_loses_nothing_and_is_tried_again(broker: Broker) {
        // The path of the folder is a file: not even root writes below it.
        let _ = std::fs::remove_dir_all(broker.archive());
        std::fs::write(broker.archive(), b"in the way").unwrap();
        let (_, _, first, _) = task(broker).await;
        let before = views(broker, &first).await;
        until("runs fail", async || {
            match broker.metric("handoff_archive_failures_total").await {
                0 => Err("no failure".to_owned()),
                _ => Ok(()),
            }
        })
        .await;
        assert_eq!(broker.metric("handoff_archive_contents_total").await, 0);
        assert_eq!(views(broker, &first).await, before);
        std::fs::remove_file(broker.archive()).unwrap();
        until("contents move", async || {
            match broker.metric("handoff_archive_contents_total").await {
                n @ 0..2 => Err(format!("{n} contents")),
                _ => Ok(()),
            }
        })
        .await;
        assert_eq!(views(broker, &first).await, before);
    }
}
