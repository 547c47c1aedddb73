//! Ends at each named step of archiving and of an erasure (`crates/store/src/fault.rs`): started again, what was cut
//! off is finished, nothing acknowledged is missing, and what was to be forgotten is nowhere.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use handoffd::fault::Step;
use serde_json::{Value, json};

use crate::archive::{archive, archived, objects, traces};
use crate::broker::Broker;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Side, Site};
use crate::world::{Takes, World, client, message, until};

/// Handoffs of one round.
const HANDOFFS: usize = 6;

/// How long a broker may take to end at its step, and an erasure to be finished after it.
const WITHIN: Duration = Duration::from_mins(1);

/// As `abort` ends a process.
const SIGABRT: i32 = 6;

/// Handoffs that ended at once, as they are to oneself, with data of a person and the name in their
/// text; returns their tasks.
async fn about(broker: &Broker, world: &World, name: &str, count: usize) -> Vec<String> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let task = random_id().to_string();
        let mut message = message(&task, None, "source");
        message["currentState"]["notes"] = json!(format!("{name} said {}", random_id()));
        message["personalDataPayload"] =
            json!({ "subjects": [{ "subjectId": name, "data": { "name": name } }] });
        let answer = client()
            .post(format!("{}/handoffs", broker.base))
            .bearer_auth(&world.sender_key)
            .json(&message)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        tasks.push(task);
    }
    tasks
}

/// The failpoints that end the process when it comes to the step.
fn armed<'a>(settings: &[(&'a str, &'a str)], failpoints: &'a str) -> Vec<(&'a str, &'a str)> {
    [settings, &[("FAILPOINTS", failpoints)]].concat()
}

pub async fn an_archive_that_ends_at_any_step_loses_nothing(site: Arc<Site>) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let settings = [
        ("HANDOFFD_RETENTION__ARCHIVE_URL", url.as_str()),
        ("HANDOFFD_RETENTION__SEGMENT_RECORDS", "2"),
        ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
    ];
    let broker = Broker::start(&site, &settings).await;
    let world = World::new(&broker, Vec::new()).await;
    let mut tasks = Vec::new();
    for step in Step::ARCHIVE {
        // At the first segment of a run, and at a later one.
        for passes in 0..2 {
            tasks.extend(about(&broker, &world, "nobody", HANDOFFS).await);
            let before = traces(&broker, &tasks).await;
            let failpoints = format!("{}={passes}*off->return", step.name());
            let mut run = archive(&site, &armed(&settings, &failpoints));
            let ended = run.stdout(Stdio::null()).status().await.unwrap();
            let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
            assert_eq!(signal, Some(SIGABRT), "{} ended {ended}", step.name());
            site.forget_leases().await;
            assert_eq!(traces(&broker, &tasks).await, before, "after {}", step.name());
            site.verify_with(&settings).await;
        }
    }
    let before = traces(&broker, &tasks).await;
    archived(&site, &settings).await;
    let again = archived(&site, &settings).await;
    assert_eq!((again["contents"].as_u64(), again["orphans"].as_u64()), (Some(0), Some(0)));
    assert_eq!(objects(folder.path()) % 2, 0, "each segment has its manifest");
    assert_eq!(traces(&broker, &tasks).await, before);
    broker.stop().await;
    assert!(site.verify_with(&settings).await >= tasks.len() as u64);
}

pub async fn an_erasure_that_ends_at_any_step_is_finished_by_the_next_broker(site: Arc<Site>) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let settings = [
        ("HANDOFFD_RETENTION__ARCHIVE_URL", url.as_str()),
        ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
        ("HANDOFFD_ERASURE__PAGE", "2"),
        // Another broker soon goes on with work that was left.
        ("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "300"),
    ];
    let first = Broker::start(&site, &settings).await;
    let world = World::new(&first, Vec::new()).await;
    first.stop().await;
    let mut tasks = Vec::new();
    // Only SQLite rewrites its file.
    let steps = Step::ERASE
        .into_iter()
        .filter(|step| *step != Step::EraseVacuumed || site.side == Side::Sqlite);
    for step in steps {
        let name = format!("jana-{}-{}", step.name().replace('.', "-"), random_id().simple());
        let failpoints = format!("{}=return", step.name());
        let broker = Broker::start(&site, &settings).await;
        tasks.extend(about(&broker, &world, &name, HANDOFFS).await);
        tasks.extend(about(&broker, &world, "omar", 1).await);
        // In one segment with contents that stay.
        archived(&site, &settings).await;
        broker.stop().await;

        let mut broker = Broker::start(&site, &armed(&settings, &failpoints)).await;
        // Unanswered: the broker is to end within it.
        let _ = erase(&broker, &name).await;
        let mut ended = None;
        until(WITHIN, &format!("it ends at {}", step.name()), async || {
            ended = broker.found_dead();
            usize::from(ended.is_none())
        })
        .await;
        let ended = ended.unwrap();
        assert!(ended.at_a_step(), "{}: {ended}", step.name());
        site.forget_leases().await;
        site.verify_with(&settings).await;

        let broker = Broker::start(&site, &settings).await;
        // No client asks again: the broker finishes the work that it began.
        until(WITHIN, &format!("it is finished after {}", step.name()), async || {
            usize::from(report(&broker, &name).await["erasures"][0]["status"] != "COMPLETED")
        })
        .await;
        let done = erase(&broker, &name).await.unwrap();
        let certificate: Value = done.json().await.unwrap();
        assert_eq!(certificate["erased"]["personalData"], HANDOFFS, "{certificate}");
        assert_eq!(certificate["erased"]["contents"], HANDOFFS, "{certificate}");
        broker.stop().await;
        // Also the present one: no copy of the data may be left.
        site.verify_with(&settings).await;
        let kept = exported(&site, &settings).await;
        assert!(!kept.contains(&name), "{}: what was erased is in the log", step.name());
        let mut places = vec![folder.path()];
        if site.side == Side::Sqlite {
            places.push(site.data_dir());
        }
        for place in places {
            let found = holding(place, name.as_bytes());
            assert!(found.is_empty(), "{}: plain text is left in {found:?}", step.name());
        }
    }
    let broker = Broker::start(&site, &settings).await;
    assert_eq!(traces(&broker, &tasks).await.len(), tasks.len());
    let again = archived(&site, &settings).await;
    assert_eq!((again["forgotten"].as_u64(), again["orphans"].as_u64()), (Some(0), Some(0)));
    let left = report(&broker, "omar").await;
    assert_eq!(left["count"].as_u64(), Some(tasks.len() as u64 / (HANDOFFS as u64 + 1)));
    broker.stop().await;
}

/// A run of everything that ended up to now.
fn purge(site: &Site, settings: &[(&str, &str)]) -> tokio::process::Command {
    let mut command = site.command(settings);
    command.args(["--output", "json", "purge", "--before", "2999-01-01T00:00:00Z"]);
    command
}

pub async fn f4_7_a_purge_that_ends_at_any_step_is_finished_by_the_next(site: Arc<Site>) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let settings = [
        ("HANDOFFD_RETENTION__ARCHIVE_URL", url.as_str()),
        ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
        ("HANDOFFD_ERASURE__PAGE", "4"),
    ];
    let broker = Broker::start(&site, &settings).await;
    let world = World::new(&broker, Vec::new()).await;
    broker.stop().await;
    let mut tasks = Vec::new();
    // Only SQLite rewrites its file.
    let steps = Step::PURGE
        .into_iter()
        .filter(|step| *step != Step::EraseVacuumed || site.side == Side::Sqlite);
    for step in steps {
        let name = format!("jana-{}-{}", step.name().replace('.', "-"), random_id().simple());
        let broker = Broker::start(&site, &settings).await;
        tasks.extend(about(&broker, &world, &name, HANDOFFS / 2).await);
        archived(&site, &settings).await;
        tasks.extend(about(&broker, &world, &name, HANDOFFS / 2).await);
        broker.stop().await;

        let failpoints = format!("{}=return", step.name());
        let mut run = purge(&site, &armed(&settings, &failpoints));
        let ended = run.stdout(Stdio::null()).status().await.unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert_eq!(signal, Some(SIGABRT), "{} ended {ended}", step.name());
        site.forget_leases().await;
        // Every object that is gone now is listed.
        site.verify_with(&settings).await;

        let done = purge(&site, &settings).output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        site.verify_with(&settings).await;
        let kept = exported(&site, &settings).await;
        assert!(!kept.contains(&name), "{}: what is past its time is in the log", step.name());
        let mut places = vec![folder.path()];
        if site.side == Side::Sqlite {
            places.push(site.data_dir());
        }
        for place in places {
            let found = holding(place, name.as_bytes());
            assert!(found.is_empty(), "{}: plain text is left in {found:?}", step.name());
        }
    }
    let broker = Broker::start(&site, &settings).await;
    for trace in traces(&broker, &tasks).await {
        let trace: Value = serde_json::from_str(&trace).unwrap();
        assert_eq!(
            (&trace["verification"]["ok"], &trace["verification"]["purged"]),
            (&json!(true), &json!(1))
        );
    }
    broker.stop().await;
}

/// The reader's next handoff, as its inbox gives it; none where the broker ends before it answers.
async fn polled(broker: &Broker, key: &str) -> Option<Value> {
    let path = format!("{}/agents/reader/inbox?wait=2&max=1", broker.base);
    let answer = client().get(path).bearer_auth(key).send().await.ok()?;
    let body: Value = answer.json().await.ok()?;
    body["items"].get(0).cloned()
}

pub async fn a_compression_that_ends_at_any_step_is_finished_by_the_next_broker(site: Arc<Site>) {
    let settings = [("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "300")];
    let broker = Broker::start(&site, &settings).await;
    let world = World::new(&broker, vec![("reader", Takes::Inbox)]).await;
    let window = json!({ "contextWindowTokens": 4_000, "tokenizer": "o200k" });
    let path = format!("{}/agents/reader", broker.base);
    let patched = client().patch(path).bearer_auth(ADMIN_KEY).json(&window).send().await.unwrap();
    assert_eq!(patched.status(), 200);
    broker.stop().await;
    let key = &world.receivers["reader"];
    for step in Step::COMPRESS {
        let failpoints = format!("{}=return", step.name());
        let mut broker = Broker::start(&site, &armed(&settings, &failpoints)).await;
        let task = random_id().to_string();
        let mut message = message(&task, None, "reader");
        let talk = "I went through the notes once more, and they read well so far. ".repeat(6);
        message["conversationHistoryVerbatim"] = (0..100)
            .map(|at| json!({ "role": "user", "content": format!("{talk}Part {at} is done.") }))
            .collect();
        world.submit(&broker.base, &message).await;
        assert_eq!(polled(&broker, key).await, None, "unanswered: it ends within the poll");
        let mut ended = None;
        until(WITHIN, &format!("it ends at {}", step.name()), async || {
            ended = broker.found_dead();
            usize::from(ended.is_none())
        })
        .await;
        let ended = ended.unwrap();
        assert!(ended.at_a_step(), "{}: {ended}", step.name());
        site.verify_with(&settings).await;

        let broker = Broker::start(&site, &settings).await;
        let mut got = None;
        until(WITHIN, &format!("it is delivered after {}", step.name()), async || {
            got = polled(&broker, key).await;
            usize::from(got.is_none())
        })
        .await;
        let got = got.unwrap();
        assert_eq!(got["message"]["historyStrategy"], "compressed", "{}", step.name());
        assert_eq!(got["message"]["context"]["keptTurns"], 5);
        let accept =
            format!("{}/handoffs/{}/accept", broker.base, got["handoffId"].as_str().unwrap());
        let said = json!({ "fencingToken": got["fencingToken"] });
        let accepted = client().post(accept).bearer_auth(key).json(&said).send().await.unwrap();
        assert_eq!(accepted.status(), 200);
        let trace: Value =
            serde_json::from_str(&traces(&broker, std::slice::from_ref(&task)).await[0]).unwrap();
        let kinds: Vec<&str> = trace["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["HANDOFF", "COMPRESSED", "ACCEPTED"], "{}: once each", step.name());
        broker.stop().await;
        site.verify_with(&settings).await;
    }
}

/// Nothing was sent before the compressed message was committed, so that the receiver gets it once.
pub async fn a_webhooks_compression_that_ends_at_any_step_is_finished_by_the_next_broker(
    site: Arc<Site>,
) {
    let settings = [("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "300")];
    let broker = Broker::start(&site, &settings).await;
    let seen = Arc::new(Seen::default());
    let url = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let world = World::new(&broker, vec![("hook", Takes::Webhook(url, 4))]).await;
    let window = json!({ "contextWindowTokens": 4_000, "tokenizer": "o200k" });
    let path = format!("{}/agents/hook", broker.base);
    let patched = client().patch(path).bearer_auth(ADMIN_KEY).json(&window).send().await.unwrap();
    assert_eq!(patched.status(), 200);
    broker.stop().await;
    for step in Step::COMPRESS {
        let failpoints = format!("{}=return", step.name());
        let mut broker = Broker::start(&site, &armed(&settings, &failpoints)).await;
        let task = random_id().to_string();
        let mut message = message(&task, None, "hook");
        let talk = "I went through the notes once more, and they read well so far. ".repeat(6);
        message["conversationHistoryVerbatim"] = (0..100)
            .map(|at| json!({ "role": "user", "content": format!("{talk}Part {at} is done.") }))
            .collect();
        world.submit(&broker.base, &message).await;
        let mut ended = None;
        until(WITHIN, &format!("it ends at {}", step.name()), async || {
            ended = broker.found_dead();
            usize::from(ended.is_none())
        })
        .await;
        let ended = ended.unwrap();
        assert!(ended.at_a_step(), "{}: {ended}", step.name());
        let id = message["handoffId"].as_str().unwrap();
        assert!(!seen.handoffs().contains(id), "{}: sent before it was ready", step.name());
        site.verify_with(&settings).await;

        let broker = Broker::start(&site, &settings).await;
        let mut trace = Value::Null;
        until(WITHIN, &format!("it is accepted after {}", step.name()), async || {
            let text = traces(&broker, std::slice::from_ref(&task)).await.remove(0);
            trace = serde_json::from_str(&text).unwrap();
            usize::from(trace["handoffs"][0]["status"] != "ACCEPTED")
        })
        .await;
        let records = trace["records"].as_array().unwrap();
        let kinds: Vec<_> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["HANDOFF", "COMPRESSED", "ACCEPTED"], "{}: once each", step.name());
        let sent = seen.all().iter().filter(|delivery| delivery.handoff == id).count();
        assert_eq!(sent, 1, "{}", step.name());
        broker.stop().await;
        site.verify_with(&settings).await;
    }
}

async fn erase(broker: &Broker, subject: &str) -> reqwest::Result<reqwest::Response> {
    let path = format!("{}/data-subjects/{subject}?scope=messages", broker.base);
    client().delete(path).bearer_auth(ADMIN_KEY).header("Prefer", "wait=30").send().await
}

async fn report(broker: &Broker, subject: &str) -> Value {
    let path = format!("{}/data-subjects/{subject}", broker.base);
    client().get(path).bearer_auth(ADMIN_KEY).send().await.unwrap().json().await.unwrap()
}

/// The whole log with all contents, as lines.
async fn exported(site: &Site, settings: &[(&str, &str)]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = site.command(settings);
    command.args(["export", "--log", "--include-personal", "--file"]).arg(file.path());
    let done = command.output().await.unwrap();
    assert!(done.status.success(), "{done:?}");
    std::fs::read_to_string(file.path()).unwrap()
}

/// The files below a folder that hold these bytes, as they are or compressed.
fn holding(folder: &Path, text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
            continue;
        }
        let mut bytes = std::fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "seg") {
            let frames = zstd::decode_all(&bytes[..]).unwrap();
            bytes.extend(frames);
        }
        if bytes.windows(text.len()).any(|window| window == text) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn the_search_finds_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("t/log");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(below.join("a.db"), b"..jana..").unwrap();
    let frames =
        [&b"{\"a\":1}"[..], &b"jana ".repeat(90)].map(|one| zstd::encode_all(one, 3).unwrap());
    std::fs::write(below.join("b.seg"), frames.concat()).unwrap();
    std::fs::write(below.join("c.json"), b"{}").unwrap();
    let mut found = holding(folder.path(), b"jana jana");
    assert_eq!(found.len(), 1, "{found:?}");
    found = holding(folder.path(), b"jana");
    assert_eq!(found.len(), 2, "{found:?}");
}
