//! A broker as a process, on SQLite in a folder of its own.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

/// A broker that runs until it is dropped.
pub struct Served {
    pub url: String,
    pub key: String,
    pub folder: TempDir,
}

/// Longest wait for a broker that starts, on a machine with other work.
const START: Duration = Duration::from_mins(5);

/// A shell line that starts the broker at an address, notes its process, and returns.
fn start(folder: &Path, listen: &str) -> String {
    let (folder, program) = (folder.display(), env!("CARGO_BIN_EXE_handoffd"));
    format!(
        "cd '{folder}' && HANDOFFD_SERVER__LISTEN={listen} HANDOFFD_EGRESS_ALLOW=127.0.0.0/8 '{program}' serve \
         >>'{folder}/log' 2>&1 & echo $! >'{folder}/pid'"
    )
}

/// A free port below those that the system gives to outgoing connections (32768 and up), so that none takes the port between
/// a kill and the next start.
fn lasting_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed) % 4_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn shell(line: &str) {
    let status = Command::new("sh").arg("-c").arg(line).status().unwrap();
    assert!(status.success(), "{line}");
}

impl Served {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        shell(&start(folder.path(), &format!("127.0.0.1:{}", lasting_port())));
        let began = Instant::now();
        let url = loop {
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            let line = log
                .lines()
                .find_map(|line| line.split_once("handoffd listens on ")?.1.split(' ').next());
            if let Some(url) = line {
                break url.to_owned();
            }
            assert!(began.elapsed() < START, "the broker does not start: {log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let key = std::fs::read_to_string(folder.path().join("handoffd-data/admin.key")).unwrap();
        Self { url, key: key.trim().to_owned(), folder }
    }

    /// The broker's log, for a case that fails.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn kill_command(&self) -> String {
        format!("kill -9 $(cat '{}/pid')", self.folder.path().display())
    }

    /// Starts the broker again at the same address.
    pub fn start_command(&self) -> String {
        start(self.folder.path(), self.url.trim_start_matches("http://"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = Command::new("sh").arg("-c").arg(self.kill_command()).status();
    }
}
