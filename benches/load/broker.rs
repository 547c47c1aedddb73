//! A broker as a process, and what processor time it and the database took.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::database::Database;

/// Clock ticks a second in /proc, fixed on Linux.
const TICKS: f64 = 100.0;

/// A running broker.
pub struct Broker {
    child: Child,
    /// `http://address`.
    pub base: String,
    /// From the start of the process to the first good answer of `/readyz`.
    pub ready_in: Duration,
}

impl Broker {
    /// Starts one.
    pub async fn start(database: &Database, settings: &[String]) -> Self {
        let began = Instant::now();
        let mut child = database
            .command(settings)
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let base = loop {
            let line = lines.next_line().await.unwrap().expect("the broker ended");
            if let Some(said) = line.strip_prefix("handoffd listens on ") {
                break said.split_whitespace().next().unwrap().to_owned();
            }
            eprintln!("{line}");
        };
        // Its warnings belong to the measurement.
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("broker: {line}");
            }
        });
        let ready = crate::world::client().get(format!("{base}/readyz")).send().await.unwrap();
        assert!(ready.status().is_success());
        Self { child, base, ready_in: began.elapsed() }
    }

    /// Processor seconds so far.
    pub fn cpu(&self) -> f64 {
        self.child.id().and_then(|id| cpu_of(&format!("/proc/{id}/stat"))).unwrap_or(f64::NAN)
    }

    /// MiB of its memory, by its name in `/proc/PID/status`: `VmRSS` now, `VmHWM` at the most.
    pub fn memory(&self, name: &str) -> f64 {
        let status = format!("/proc/{}/status", self.child.id().unwrap_or_default());
        let status = std::fs::read_to_string(status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.map_or(f64::NAN, |kib| kib / 1_024.0)
    }

    /// The mean of a histogram on the metrics page.
    pub async fn mean(&self, name: &str) -> f64 {
        let asked = crate::world::client().get(format!("{}/metrics", self.base));
        let page = asked.bearer_auth(crate::database::ADMIN_KEY).send().await.unwrap();
        let page = page.text().await.unwrap();
        let figure = |suffix: &str| -> f64 {
            let of = format!("{name}_{suffix} ");
            page.lines()
                .find_map(|line| line.strip_prefix(of.as_str())?.parse().ok())
                .unwrap_or_else(|| panic!("no {of}in the metrics"))
        };
        figure("sum") / figure("count")
    }

    /// SIGTERM, and wait.
    pub async fn stop(mut self) {
        let id = self.child.id().unwrap().to_string();
        Command::new("kill").args(["-s", "TERM", &id]).status().await.unwrap();
        tokio::time::timeout(Duration::from_secs(35), self.child.wait()).await.unwrap().unwrap();
    }
}

fn cpu_of(path: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// Processor seconds of all Postgres processes of the machine; of others' use too.
pub fn postgres_cpu() -> f64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return f64::NAN };
    processes
        .flatten()
        .filter(|entry| {
            std::fs::read_to_string(entry.path().join("comm"))
                .is_ok_and(|name| name == "postgres\n")
        })
        .filter_map(|entry| cpu_of(&entry.path().join("stat").display().to_string()))
        .sum()
}
