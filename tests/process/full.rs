//! A disk without room, on SQLite: files of the process may not grow (`RLIMIT_FSIZE`), which SQLite and
//! the archive see as a write that fails. Who submits is told to come back; nothing acknowledged is
//! lost; once there is room again everything goes on without a restart.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::archive::{archive, archived, objects, traces};
use crate::broker::{Broker, wrapped};
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Site};
use crate::world::{Takes, World, client, message, until};

const WITHIN: Duration = Duration::from_mins(1);

/// Bytes that a file may have on the full disk: a few pages, less than any of these databases.
const ROOM: u64 = 64 * 1024;

/// Gives a process that much room in each of its files; all it wants where `room` is none.
async fn limit(process: u32, room: Option<u64>) {
    let room = room.map_or_else(|| "unlimited".to_owned(), |room| room.to_string());
    let set = Command::new("prlimit")
        .args(["--pid", &process.to_string(), &format!("--fsize={room}:unlimited")])
        .output()
        .await
        .expect("this test needs prlimit, of util-linux");
    assert!(set.status.success(), "{set:?}");
}

/// Submits until there is no room, for a bounded number of times; returns the refused message.
async fn submit_until_full(world: &World, broker: &Broker, target: &str) -> Value {
    for _ in 0..500 {
        let message = message(&random_id().to_string(), None, target);
        let answer = submit(world, broker, &message).await;
        if answer.status() == 503 {
            let wait = answer.headers()["retry-after"].to_str().unwrap().to_owned();
            assert!(wait.parse::<u32>().is_ok(), "{wait}");
            let said: Value = answer.json().await.unwrap();
            assert_eq!(said["status"], 503);
            assert!(!said.to_string().to_lowercase().contains("sqlite"), "{said}");
            return message;
        }
        assert!(answer.status().is_success(), "{:?}", answer.text().await);
        // A handoff to oneself is delivered to no receiver.
        if answer.status() == 202 {
            world.acknowledge(&message);
        }
    }
    panic!("the disk is not full after 500 handoffs");
}

async fn submit(world: &World, broker: &Broker, message: &Value) -> reqwest::Response {
    let post = client().post(format!("{}/handoffs", broker.base)).bearer_auth(&world.sender_key);
    post.json(message).send().await.unwrap()
}

pub async fn nothing_acknowledged_is_lost_on_a_full_disk(site: Arc<Site>) {
    let broker = Broker::start_unsignalled(&site, &[]).await;
    let seen = Arc::new(Seen::default());
    let url = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let mut world = World::new(&broker, vec![("webhook", Takes::Webhook(url, 8))]).await;
    world.seen = seen;
    for _ in 0..20 {
        world.submit(&broker.base, &message(&random_id().to_string(), None, "webhook")).await;
    }
    for _ in 0..3 {
        limit(broker.id(), Some(ROOM)).await;
        let refused = submit_until_full(&world, &broker, "webhook").await;
        // Who only reads is served.
        let tasks: Vec<String> = {
            let acknowledged = world.acknowledged.lock().unwrap();
            acknowledged.values().take(3).map(|said| said.task.clone()).collect()
        };
        assert_eq!(traces(&broker, &tasks).await.len(), 3);
        limit(broker.id(), None).await;
        // Told to come back, the sender does.
        until(WITHIN, "there is room again", async || {
            usize::from(submit(&world, &broker, &refused).await.status() != 202)
        })
        .await;
        world.acknowledge(&refused);
        world.submit(&broker.base, &message(&random_id().to_string(), None, "webhook")).await;
    }
    world.settle_up(&site, &broker).await;
    // Also what a process finds that ends while the disk is full.
    limit(broker.id(), Some(ROOM)).await;
    submit_until_full(&world, &broker, "webhook").await;
    broker.kill().await;
    let broker = Broker::start(&site, &[]).await;
    world.settle_up(&site, &broker).await;
    broker.stop().await;
    site.verify().await;
}

/// Handoffs with data of a person, and texts that no compression makes small.
async fn about(broker: &Broker, world: &World, count: usize) -> Vec<String> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let task = random_id().to_string();
        let mut message = message(&task, None, "source");
        let noise: String = (0..200).map(|_| random_id().simple().to_string()).collect();
        message["currentState"]["notes"] = json!(format!("Jana Novak {noise}"));
        message["personalDataPayload"] =
            json!({ "subjects": [{ "subjectId": "jana", "data": { "name": "Jana Novak" } }] });
        let answer = submit(world, broker, &message).await;
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        tasks.push(task);
    }
    tasks
}

pub async fn an_archive_without_room_moves_nothing(site: Arc<Site>) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let settings = [
        ("HANDOFFD_RETENTION__ARCHIVE_URL", url.as_str()),
        ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
    ];
    let broker = Broker::start(&site, &settings).await;
    let world = World::new(&broker, Vec::new()).await;
    // The records of the agents' registration are moved first.
    archived(&site, &settings).await;
    let set_up = objects(folder.path());
    let tasks = about(&broker, &world, 40).await;
    let before = traces(&broker, &tasks).await;
    // There is room for the lease's row, and not for a segment.
    broker.stop().await;
    let room = format!("--fsize={ROOM}:unlimited");
    let by = ["prlimit", &room, "env", "--ignore-signal=XFSZ"];
    let mut limited = wrapped(&by, &archive(&site, &settings));
    let said = limited.stdout(Stdio::null()).output().await.unwrap();
    assert_eq!(said.status.code(), Some(3), "{said:?}");
    site.verify_with(&settings).await;
    site.forget_leases().await;
    let broker = Broker::start(&site, &settings).await;
    assert_eq!(traces(&broker, &tasks).await, before);
    assert_eq!(archived(&site, &settings).await["contents"].as_u64(), Some(40));
    assert_eq!(archived(&site, &settings).await["orphans"].as_u64(), Some(0));
    assert_eq!(objects(folder.path()) - set_up, 2);
    assert_eq!(traces(&broker, &tasks).await, before);
    broker.stop().await;
    site.verify_with(&settings).await;
}

pub async fn an_erasure_without_room_waits_for_it(site: Arc<Site>) {
    let settings = [("HANDOFFD_ERASURE__PAGE", "1")];
    let broker = Broker::start_unsignalled(&site, &settings).await;
    let world = World::new(&broker, Vec::new()).await;
    about(&broker, &world, 60).await;
    let path = format!("{}/data-subjects/jana", broker.base);
    let erase = || client().delete(format!("{path}?scope=messages")).bearer_auth(ADMIN_KEY);
    let report = async || -> Value {
        let ask = client().get(&path).bearer_auth(ADMIN_KEY);
        ask.send().await.unwrap().json().await.unwrap()
    };
    limit(broker.id(), Some(ROOM)).await;
    // The write-ahead log has room for a little where it begins anew.
    submit_until_full(&world, &broker, "source").await;
    let refused = erase().send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    limit(broker.id(), None).await;
    until(WITHIN, "there is room to ask", async || {
        usize::from(!erase().header("Prefer", "wait=0").send().await.unwrap().status().is_success())
    })
    .await;
    // Within it the disk is full again; pages that went are listed, and the rest waits.
    until(WITHIN, "a page went", async || usize::from(report().await["count"] == 60)).await;
    limit(broker.id(), Some(ROOM)).await;
    let mut standing = report().await["count"].clone();
    until(WITHIN, "no more pages go", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = report().await["count"].clone();
        usize::from(std::mem::replace(&mut standing, now.clone()) != now)
    })
    .await;
    site.verify().await;
    limit(broker.id(), None).await;
    until(WITHIN, "it goes on and ends", async || {
        usize::from(report().await["erasures"][0]["status"] != "COMPLETED")
    })
    .await;
    let certificate: Value = erase().send().await.unwrap().json().await.unwrap();
    assert_eq!(certificate["erased"]["personalData"], 60, "{certificate}");
    broker.stop().await;
    site.verify().await;
    let bytes = std::fs::read(site.data_dir().join("broker.db")).unwrap();
    assert!(!bytes.windows(10).any(|window| window == b"Jana Novak"));
}
