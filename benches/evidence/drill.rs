//! The drill: the time, in a large log, until a reader has a task's trace and its bundle, and has verified the
//! bundle without the broker. Writes the figures as a page.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::database::{ADMIN_KEY, Database};
use crate::fill::fill;
use crate::world::client;

/// How long a trace may take (seed 000 §8.2).
const LIMIT: Duration = Duration::from_secs(10);

/// Why a first bundle may take longer: measured once, with the cache emptied between the log and the broker.
const COLD: &str = "\n\
Times are wall clock on a machine that other work shared. A bundle needs the tree's hashes around each of its records. If\n\
these are spread over the whole log, as here, the first one reads a good third of the file (0.39 GB of 0.91 GiB), so it takes\n\
what the disk takes, unless the file is in the system's page cache, as it is when the log was just made. With the file out of\n\
that cache, the first trace took 272 ms and the first bundle 1 s; a disk that gives 10 MB/s would take 40 s. Later ones read\n\
from memory.\n";

/// The options of a drill.
pub struct Drill {
    /// Records in the log.
    pub records: u64,
    /// Records of the task that is asked for, spread over the log.
    pub task: u64,
    /// How often each is asked for.
    pub runs: usize,
    /// The file of the page; none: to standard output alone.
    pub out: Option<std::path::PathBuf>,
}

pub async fn run(store: &str, drill: Drill) {
    assert!(store.starts_with("sqlite:"), "a large log is put into a SQLite file");
    let database = Database::new(store, env!("CARGO_BIN_EXE_handoffd").into()).await;
    Broker::start(&database, &[]).await.stop().await;
    let path = database.url.strip_prefix("sqlite:").unwrap().to_owned();
    let began = Instant::now();
    let filled = fill(&path, drill.records, drill.task).await;
    let size = std::fs::metadata(&path).unwrap().len() as f64 / 1024.0 / 1024.0 / 1024.0;
    eprintln!("a log of {} records, {size:.2} GiB, made in {:.0?}", drill.records, began.elapsed());
    let broker = Broker::start(&database, &[]).await;
    let (http, base) = (client(), format!("{}/tasks/{}/trace", broker.base, filled.task));
    let folder = tempfile::tempdir().unwrap();
    let zip = folder.path().join("task.zip");
    let (mut traces, mut bundles, mut checks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut trace_bytes, mut bundle_bytes) = (0, 0);
    for _ in 0..drill.runs.max(1) {
        for (form, taken, bytes) in [
            ("", &mut traces, &mut trace_bytes),
            ("?format=bundle", &mut bundles, &mut bundle_bytes),
        ] {
            let began = Instant::now();
            let answer = http.get(format!("{base}{form}")).bearer_auth(ADMIN_KEY).send().await;
            let answer = answer.unwrap();
            assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
            let body = answer.bytes().await.unwrap();
            taken.push(began.elapsed());
            *bytes = body.len();
            if !form.is_empty() {
                std::fs::write(&zip, &body).unwrap();
            }
        }
        let began = Instant::now();
        let mut command = database.command(&[]);
        let said = command.arg("verify").arg(&zip).output().await.unwrap();
        assert!(said.status.success(), "{said:?}");
        checks.push(began.elapsed());
    }
    broker.stop().await;
    let began = Instant::now();
    let said = database.command(&[]).args(["verify", "--log-only"]).output().await.unwrap();
    assert!(said.status.success(), "{said:?}");
    let whole = began.elapsed();
    database.drop().await;
    let longest = traces.iter().max().copied().unwrap_or_default();
    assert!(longest < LIMIT, "a trace took {longest:.1?}");
    let build = if cfg!(debug_assertions) { "a debug build" } else { "a release build" };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut page = String::new();
    let _ = write!(
        page,
        "# The drill: figures\n\n\
         `make drill` puts {} records into a SQLite log, {} of them about one task, and asks for that task as a\n\
         regulator's question would: its trace, its bundle, and the bundle verified without the broker. It writes this page, and\n\
         fails where a trace takes 10 s or more.\n\n\
         Last run: {} records, {size:.2} GiB, {build}, {cores} cores. The log as a whole was verified in {whole:.1?}.\n\n\
         | of a task of {} records | size | first | median of {} | longest |\n|---|---|---|---|---|\n",
        drill.records, drill.task, drill.records, drill.task, drill.runs,
    );
    for (name, bytes, taken) in [
        ("trace", trace_bytes, traces),
        ("bundle", bundle_bytes, bundles),
        ("`handoffd verify task.zip`", bundle_bytes, checks),
    ] {
        let _ = writeln!(page, "| {name} | {} KiB | {} |", bytes / 1024, told(&taken));
    }
    page.push_str(COLD);
    println!("{page}");
    if let Some(out) = drill.out {
        std::fs::write(&out, page).unwrap();
    }
}

/// The first, the median and the longest.
fn told(taken: &[Duration]) -> String {
    let mut sorted = taken.to_vec();
    sorted.sort_unstable();
    format!(
        "{:.0?} | {:.0?} | {:.0?}",
        taken[0],
        sorted[sorted.len() / 2],
        sorted[sorted.len() - 1]
    )
}
