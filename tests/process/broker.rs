//! A broker as a process of its own.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::site::{ADMIN_KEY, Site};
use crate::world::client;

/// How long a process may take to start or to end where the case says nothing else.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// Lines of a broker's log that are kept to be shown when a case fails.
const LINES: usize = 40;

#[derive(Clone)]
struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    most: usize,
}

impl Log {
    fn keep(&self, line: String) {
        let mut lines = self.lines.lock().unwrap();
        if lines.len() == self.most {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().cloned().collect()
    }
}

/// The end of a broker that the case did not stop.
pub struct Ended {
    status: ExitStatus,
    log: Vec<String>,
}

impl Ended {
    /// It ended at a step where it was to end (`crates/store/src/fault.rs`), and not of anything else.
    pub fn at_a_step(&self) -> bool {
        // As `abort` ends a process.
        const SIGABRT: i32 = 6;
        self.status.signal() == Some(SIGABRT)
            && !self.log.iter().any(|line| line.contains("panicked"))
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.status, self.log)
    }
}

/// A broker that serves.
pub struct Broker {
    child: Child,
    log: Log,
    heard: JoinHandle<()>,
    /// Its address, as `http://address`.
    pub base: String,
    /// From the start of the process to the line that says where it listens.
    pub started_in: Duration,
}

impl Broker {
    /// Starts one and waits for it to say where it listens.
    pub async fn start(site: &Site, settings: &[(&str, &str)]) -> Self {
        Self::launch(site, settings)
            .await
            .unwrap_or_else(|ended| panic!("the broker ended: {ended}"))
    }

    /// [`Broker::start`]; how it ended and its last words, where it ends instead.
    pub async fn launch(site: &Site, settings: &[(&str, &str)]) -> Result<Self, Ended> {
        Self::spawn(site.command(settings), LINES).await
    }

    /// [`Broker::start`] of another build, where one is named.
    pub async fn start_of(site: &Site, binary: Option<&OsStr>, settings: &[(&str, &str)]) -> Self {
        let Some(binary) = binary else { return Self::start(site, settings).await };
        let mut command = site.command_of(binary, settings);
        // 0.3.0 does not know it, and refuses an unknown setting.
        command.env_remove("HANDOFFD_RECOVERY__START_GRACE_MS");
        Self::spawn(command, LINES)
            .await
            .unwrap_or_else(|ended| panic!("the broker ended: {ended}"))
    }

    /// [`Broker::start`], with every line of its log kept.
    pub async fn start_heard(site: &Site, settings: &[(&str, &str)]) -> Self {
        Self::spawn(site.command(settings), usize::MAX)
            .await
            .unwrap_or_else(|ended| panic!("the broker ended: {ended}"))
    }

    /// [`Broker::start`], with a file that cannot grow being an error of the write and no signal.
    pub async fn start_unsignalled(site: &Site, settings: &[(&str, &str)]) -> Self {
        let command = wrapped(&["env", "--ignore-signal=XFSZ"], &site.command(settings));
        Self::spawn(command, LINES)
            .await
            .unwrap_or_else(|ended| panic!("the broker ended: {ended}"))
    }

    /// [`Broker::start`] under a limit of open files, with every line of its log kept.
    pub async fn start_with_files(site: &Site, settings: &[(&str, &str)], files: u32) -> Self {
        Self::launch_with_files(site, settings, files)
            .await
            .unwrap_or_else(|ended| panic!("the broker ended: {ended}"))
    }

    /// [`Broker::launch`] under a limit of open files.
    pub async fn launch_with_files(
        site: &Site,
        settings: &[(&str, &str)],
        files: u32,
    ) -> Result<Self, Ended> {
        let limited = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let command = wrapped(&["sh", "-c", &limited], &site.command(settings));
        Self::spawn(command, usize::MAX).await
    }

    async fn spawn(mut command: Command, most: usize) -> Result<Self, Ended> {
        let began = tokio::time::Instant::now();
        let mut child = command
            .arg("serve")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Log { lines: Arc::default(), most };
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(said) = line.strip_prefix("handoffd listens on ") {
                    return said.split_whitespace().next().map(str::to_owned);
                }
                log.keep(line);
            }
            None
        };
        let listening = tokio::time::timeout(PATIENCE, listening).await.expect("it says where");
        let Some(base) = listening else {
            let status = child.wait().await.unwrap();
            return Err(Ended { status, log: log.all() });
        };
        let started_in = began.elapsed();
        let heard = tokio::spawn(follow(lines, log.clone()));
        Ok(Self { child, log, heard, base, started_in })
    }

    /// How it ended, if it did.
    pub fn found_dead(&mut self) -> Option<Ended> {
        let status = self.child.try_wait().unwrap()?;
        Some(Ended { status, log: self.log.all() })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Its resident memory, in MiB.
    pub fn rss_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// The processor time that it has used, in milliseconds.
    pub fn processor_ms(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // The name may hold spaces. Of the fields after it, 11 and 12 are user and system time, in hundredths of a
        // second.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks = fields.split_whitespace().skip(11).take(2);
        ticks.map(|ticks| ticks.parse::<f64>().unwrap() * 10.0).sum()
    }

    /// Its open file descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().count()
    }

    /// SIGKILL, and wait for the end.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends a signal by its name.
    pub async fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; returns the exit code.
    pub async fn ended(&mut self, within: Duration) -> Option<i32> {
        match tokio::time::timeout(within, self.child.wait()).await {
            Ok(status) => status.unwrap().code(),
            Err(late) => {
                panic!("it still runs after {within:?} ({late}): {:?}", self.log.all())
            }
        }
    }

    /// SIGTERM, and wait for an end in order.
    pub async fn stop(mut self) {
        self.signal("TERM").await;
        assert_eq!(self.ended(PATIENCE).await, Some(0), "{:?}", self.log.all());
    }

    /// [`Broker::stop`]; everything that it said and that was kept.
    pub async fn stop_and_tell(mut self) -> Vec<String> {
        self.signal("TERM").await;
        assert_eq!(self.ended(PATIENCE).await, Some(0), "{:?}", self.log.all());
        self.heard.await.unwrap();
        self.log.all()
    }

    /// The sum of a counter on the metrics page, over the lines that hold `label`.
    pub async fn counter(&self, name: &str, label: &str) -> f64 {
        self.try_counter(name, label).await.unwrap()
    }

    /// The same, of a broker that may end any connection.
    pub async fn try_counter(&self, name: &str, label: &str) -> reqwest::Result<f64> {
        let request = client().get(format!("{}/metrics", self.base)).bearer_auth(ADMIN_KEY);
        let page = request.send().await?.text().await?;
        let lines = page.lines().filter(|line| line.starts_with(name) && line.contains(label));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

/// A command run by another, which takes it as its last arguments.
pub fn wrapped(by: &[&str], command: &Command) -> Command {
    let command = command.as_std();
    let mut outer = Command::new(by[0]);
    outer.args(&by[1..]).arg(command.get_program()).args(command.get_args()).kill_on_drop(true);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

async fn follow(mut lines: tokio::io::Lines<BufReader<impl AsyncRead + Unpin>>, log: Log) {
    while let Ok(Some(line)) = lines.next_line().await {
        log.keep(line);
    }
}
