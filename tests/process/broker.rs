//! A broker as a process of its own.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::site::Site;
use crate::world::client;

/// How long a process may take to start or to end where the case says nothing else.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Lines of a broker's log that are kept to be shown when a case fails.
const LINES: usize = 40;

type Log = Arc<Mutex<VecDeque<String>>>;

/// A broker that serves.
pub struct Broker {
    child: Child,
    log: Log,
    /// Where it listens, as `http://address`.
    pub base: String,
    /// From the start of the process to the line that says where it listens.
    pub started_in: Duration,
}

impl Broker {
    /// Starts one and waits for it to say where it listens.
    pub async fn start(site: &Site, settings: &[(&str, &str)]) -> Self {
        let began = tokio::time::Instant::now();
        let mut child = site
            .command(settings)
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Log::default();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(said) = line.strip_prefix("handoffd listens on ") {
                    return said.split_whitespace().next().unwrap().to_owned();
                }
                keep(&log, line);
            }
            panic!("the broker ended: {:?}", log.lock().unwrap());
        };
        let base = tokio::time::timeout(PATIENCE, listening).await.expect("it says where");
        let started_in = began.elapsed();
        tokio::spawn(follow(lines, Arc::clone(&log)));
        Self { child, log, base, started_in }
    }

    /// SIGKILL, and wait for the end.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends a signal by its name.
    pub async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; returns the exit code.
    pub async fn ended(&mut self, within: Duration) -> Option<i32> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => status.unwrap().code(),
            Err(late) => {
                panic!("it still runs after {within:?} ({late}): {:?}", self.log.lock().unwrap())
            }
        }
    }

    /// SIGTERM, and wait for an end in order.
    pub async fn stop(mut self) {
        self.signal("TERM").await;
        assert_eq!(self.ended(PATIENCE).await, Some(0), "{:?}", self.log.lock().unwrap());
    }

    /// The sum of a counter on the metrics page, over the lines that hold `label`.
    pub async fn counter(&self, name: &str, label: &str) -> f64 {
        let page = client().get(format!("{}/metrics", self.base)).send().await.unwrap();
        let page = page.text().await.unwrap();
        page.lines()
            .filter(|line| line.starts_with(name) && line.contains(label))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

fn keep(log: &Log, line: String) {
    let mut log = log.lock().unwrap();
    if log.len() == LINES {
        log.pop_front();
    }
    log.push_back(line);
}

async fn follow(mut lines: tokio::io::Lines<BufReader<impl AsyncRead + Unpin>>, log: Log) {
    while let Ok(Some(line)) = lines.next_line().await {
        keep(&log, line);
    }
}
