//! The archive as a process that is killed, and with a server that others wrote.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::{random_fraction, random_id};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::broker::Broker;
use crate::site::{ADMIN_KEY, Site};
use crate::world::{World, client, message};

/// Kills of one case; each lands anywhere within a run of several segments.
const KILLS: usize = 8;

/// A broker with agents; what their registration left is in the archive.
async fn begin(site: &Site, settings: &[(&str, &str)]) -> (Broker, World) {
    let broker = Broker::start(site, settings).await;
    let world = World::new(&broker, Vec::new()).await;
    archived(site, settings).await;
    (broker, world)
}

/// Handoffs, each with a content that may go at once: they are to oneself, and so have ended.
async fn fill(broker: &Broker, world: &World, count: usize) -> Vec<String> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let task = random_id().to_string();
        let answer = client()
            .post(format!("{}/handoffs", broker.base))
            .bearer_auth(&world.sender_key)
            .json(&message(&task, None, "source"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        tasks.push(task);
    }
    tasks
}

/// The traces of tasks, as text.
pub async fn traces(broker: &Broker, tasks: &[String]) -> Vec<String> {
    let mut traces = Vec::new();
    for task in tasks {
        let path = format!("{}/tasks/{task}/trace", broker.base);
        let answer = client().get(path).bearer_auth(ADMIN_KEY).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        traces.push(answer.text().await.unwrap());
    }
    traces
}

/// A run of everything up to now.
pub fn archive(site: &Site, settings: &[(&str, &str)]) -> Command {
    let mut command = site.command(settings);
    command.args(["--output", "json", "archive", "--before", "2999-01-01T00:00:00Z"]);
    command
}

/// Runs the archive to its end; returns what moved.
pub async fn archived(site: &Site, settings: &[(&str, &str)]) -> Value {
    let done = archive(site, settings).output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    said["tenants"][0]["moved"].clone()
}

/// Files below a folder.
pub fn objects(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let below = |path: PathBuf| if path.is_dir() { objects(&path) } else { 1 };
    entries.map(|entry| below(entry.unwrap().path())).sum()
}

pub async fn killed_at_any_step_the_archive_loses_nothing(site: Arc<Site>) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let settings = [
        ("HANDOFFD_RETENTION__ARCHIVE_URL", url.as_str()),
        ("HANDOFFD_RETENTION__SEGMENT_RECORDS", "1"),
        ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
    ];
    let (broker, world) = begin(&site, &settings).await;
    let set_up = objects(folder.path());
    let tasks = fill(&broker, &world, 30).await;
    let before = traces(&broker, &tasks).await;
    for _ in 0..KILLS {
        let mut run = archive(&site, &settings).stdout(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(Duration::from_secs_f64(0.02 + random_fraction() * 0.25)).await;
        run.kill().await.unwrap();
        // A killed run holds its lease until that ends by time; the case has no ten minutes.
        site.forget_leases().await;
    }
    let last = archived(&site, &settings).await;
    eprintln!("{:?}: the last run, after {KILLS} kills: {last}", site.side);
    let again = archived(&site, &settings).await;
    assert_eq!((again["contents"].as_u64(), again["orphans"].as_u64()), (Some(0), Some(0)));
    let added = objects(folder.path()) - set_up;
    assert_eq!(added, 2 * tasks.len(), "a segment and a manifest each, no more");
    assert_eq!(traces(&broker, &tasks).await, before);
    broker.stop().await;
    let verified = site.verify_with(&settings).await;
    assert!(verified >= tasks.len() as u64);
}

/// moto, an S3 server in Python, by others.
pub struct Server {
    child: Child,
    pub url: String,
}

/// The version that this case was written against.
const MOTO: &str = "moto[server]==5.2.5";

impl Server {
    /// Starts one, in a virtual environment below `target/` that is made once.
    pub async fn start() -> Self {
        /// Cases run side by side, and one of them makes it.
        static MAKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
        let python = home.join("bin/python");
        let making = MAKING.lock().await;
        if !home.join("bin/moto_server").exists() {
            run("python3", &["-m", "venv", home.to_str().unwrap()]).await;
            run(python.to_str().unwrap(), &["-m", "pip", "install", "--quiet", MOTO]).await;
        }
        drop(making);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(home.join("bin/moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let url = format!("http://127.0.0.1:{port}");
        let bucket = format!("{url}/cold");
        let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
        while !client().put(&bucket).send().await.is_ok_and(|made| made.status() == 200) {
            assert!(tokio::time::Instant::now() < deadline, "the S3 server did not come up");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Self { child, url }
    }
}

async fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().await.unwrap_or_else(|err| {
        panic!("{program} is needed for the S3 server that this case runs against: {err}")
    });
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?} failed; it needs pip and PyPI: {said}");
}

pub async fn a_bucket_is_as_good_as_a_folder(site: Arc<Site>) {
    let mut server = Server::start().await;
    let settings = [
        ("HANDOFFD_RETENTION__ARCHIVE_URL", "s3://cold/some/prefix"),
        ("HANDOFFD_RETENTION__S3_ENDPOINT", server.url.as_str()),
        ("HANDOFFD_RETENTION__S3_ALLOW_HTTP", "true"),
        ("HANDOFFD_RETENTION__SEGMENT_RECORDS", "7"),
        ("HANDOFFD_RETENTION__ARCHIVE_INTERVAL_S", "0"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ];
    let (broker, world) = begin(&site, &settings).await;
    let tasks = fill(&broker, &world, 20).await;
    let before = traces(&broker, &tasks).await;
    let moved = archived(&site, &settings).await;
    assert_eq!((moved["contents"].as_u64(), moved["segments"].as_u64()), (Some(20), Some(3)));
    let again = archived(&site, &settings).await;
    assert_eq!((again["contents"].as_u64(), again["orphans"].as_u64()), (Some(0), Some(0)));
    assert_eq!(traces(&broker, &tasks).await, before);
    site.verify_with(&settings).await;
    site.sql("UPDATE contents SET salt = NULL, bytes = NULL WHERE content_id IN \
              (SELECT content_id FROM contents WHERE segment IS NOT NULL ORDER BY content_id DESC LIMIT 2)")
        .await;
    assert_eq!(archived(&site, &settings).await["forgotten"], 2);
    assert_eq!(traces(&broker, &tasks[..18]).await, before[..18]);
    // A missing archive breaks no trace, and gives no verdict on the log.
    server.child.kill().await.unwrap();
    broker.stop().await;
    let broker = Broker::start(&site, &settings).await;
    let path = format!("{}/tasks/{}/trace", broker.base, tasks[5]);
    let answer = client().get(path).bearer_auth(ADMIN_KEY).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let trace: Value = answer.json().await.unwrap();
    assert_eq!(trace["verification"]["unavailable"], 1, "{trace}");
    assert_eq!(trace["verification"]["ok"], true);
    broker.stop().await;
    let verified = site.command(&settings).arg("verify").output().await.unwrap();
    assert_eq!(verified.status.code(), Some(3), "{}", String::from_utf8_lossy(&verified.stdout));
}
