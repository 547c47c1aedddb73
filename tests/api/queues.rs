//! Real queue servers: a NATS server for each case, and RabbitMQ nodes. `scripts/with-queues` fetches the programs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// A program that a variable names, or one of its usual places has.
fn program(variable: &str, places: &[&str]) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    places
        .iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no {variable}: run scripts/test, which brings the queues"))
}

/// A port at which no server listens.
pub async fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

async fn answers(port: u16) -> bool {
    matches!(
        timeout(Duration::from_secs(1), TcpStream::connect(("127.0.0.1", port))).await,
        Ok(Ok(_))
    )
}

async fn waits_for_clients(server: &str, port: u16) {
    for _ in 0..1200 {
        if answers(port).await {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("{server} did not start");
}

/// A NATS server with JetStream.
pub struct NatsServer {
    pub port: u16,
    folder: tempfile::TempDir,
    child: tokio::sync::Mutex<Option<Child>>,
}

impl NatsServer {
    /// A server with more lines of configuration.
    pub async fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port().await;
        let store = folder.path().join("store");
        let text = format!(
            "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {:?} }}\n{more}\n",
            store.display().to_string()
        );
        std::fs::write(folder.path().join("nats.conf"), text).unwrap();
        let server = Self { port, folder, child: tokio::sync::Mutex::new(None) };
        server.up().await;
        server
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Starts the server, with what it had before.
    pub async fn up(&self) {
        let program = program(
            "HANDOFFD_TEST_NATS_SERVER",
            &["/usr/sbin/nats-server", "/usr/local/bin/nats-server", "/usr/bin/nats-server"],
        );
        let child = Command::new(program)
            .arg("-c")
            .arg(self.folder.path().join("nats.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        *self.child.lock().await = Some(child);
        waits_for_clients("the NATS server", self.port).await;
    }

    /// Kills the server.
    pub async fn down(&self) {
        if let Some(mut child) = self.child.lock().await.take() {
            child.kill().await.unwrap();
        }
    }

    /// Removes all that the stopped server kept.
    pub fn wipe(&self) {
        std::fs::remove_dir_all(self.folder.path().join("store")).unwrap();
    }
}

/// A RabbitMQ node of a case's own, to stop and to starve.
pub struct RabbitNode {
    pub port: u16,
    folder: tempfile::TempDir,
    name: String,
    child: Child,
}

impl RabbitNode {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, distribution) = (free_port().await, free_port().await);
        let name = format!("handoffd-{port}@localhost");
        let conf = format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\ndisk_free_limit.absolute = 1MB\nmax_message_size = 1000000\n"
        );
        std::fs::write(folder.path().join("rabbitmq.conf"), conf).unwrap();
        std::fs::write(folder.path().join("plugins"), "[].\n").unwrap();
        let mut command = Command::new(Self::program());
        command
            .env("RABBITMQ_DIST_PORT", distribution.to_string())
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+sbwt none")
            .env("RABBITMQ_LOGS", "-")
            // The script runs the server below itself: both end with the group.
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self::place(&mut command, folder.path(), &name);
        let child = command.spawn().unwrap();
        let node = Self { port, folder, name, child };
        waits_for_clients("the RabbitMQ node", port).await;
        node
    }

    fn program() -> PathBuf {
        program(
            "HANDOFFD_TEST_RABBITMQ",
            &["/usr/lib/rabbitmq/bin/rabbitmq-server", "/opt/homebrew/sbin/rabbitmq-server"],
        )
    }

    fn place(command: &mut Command, folder: &Path, name: &str) {
        command
            .env("HOME", folder)
            .env("RABBITMQ_NODENAME", name)
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_LOG_BASE", folder)
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_PID_FILE", folder.join("pid"));
    }

    /// `rabbitmqctl` on this node.
    pub async fn control(&self, arguments: &[&str]) {
        let mut command = Command::new(Self::program().with_file_name("rabbitmqctl"));
        Self::place(&mut command, self.folder.path(), &self.name);
        let done = command.arg("-q").args(arguments).output().await.unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "rabbitmqctl {arguments:?}: {said}");
    }

    /// Closes all connections and the listener; what is durable stays.
    pub async fn down(&self) {
        self.control(&["stop_app"]).await;
    }

    pub async fn up(&self) {
        self.control(&["start_app"]).await;
        waits_for_clients("the RabbitMQ node", self.port).await;
    }
}

impl Drop for RabbitNode {
    fn drop(&mut self) {
        if let Some(leader) = self.child.id() {
            let _ = std::process::Command::new("kill")
                .args(["-KILL", "--", &format!("-{leader}")])
                .status();
        }
    }
}

/// A RabbitMQ node that cases share; each has queues of its own.
pub fn amqp_url() -> String {
    std::env::var("HANDOFFD_TEST_AMQP_URL")
        .unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672".to_owned())
}

/// A Python interpreter that has these packages, in a virtual environment that later runs use again. `None`, with a
/// line that says so, where they cannot be installed.
pub async fn python(packages: &[&str]) -> Option<PathBuf> {
    static MAKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _one_at_a_time = MAKING.lock().await;
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("venv-{}", packages.join("-")));
    let python = folder.join("bin/python");
    let done = folder.join("installed");
    if !done.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).output().await;
        let installed = match made {
            Ok(made) if made.status.success() => {
                let mut pip = Command::new(&python);
                pip.args(["-m", "pip", "install", "--quiet"]).args(packages);
                pip.output().await
            }
            other => other,
        };
        match installed {
            Ok(installed) if installed.status.success() => std::fs::write(&done, "").unwrap(),
            Ok(failed) => {
                let why = String::from_utf8_lossy(&failed.stderr).into_owned();
                eprintln!("SKIPPED: pip cannot install {packages:?}: {why}");
                return None;
            }
            Err(error) => {
                eprintln!("SKIPPED: python3 is missing to run {packages:?}: {error}");
                return None;
            }
        }
    }
    Some(python)
}
