//! A database for one case, and the commands that work on it.

use std::ffi::OsStr;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base64::Engine;
use futures_util::FutureExt;
use handoffd::clock::random;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection};
use tokio::process::Command;

use crate::databases::{migrated_database, migrated_file, migrated_pair, on_server};
use crate::proxy::Proxy;

/// The first admin key of every broker here.
pub const ADMIN_KEY: &str = "admin-key-of-the-process-tests";

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Sqlite,
    Postgres,
    /// Postgres, with the log in a database of its own.
    Apart,
}

/// The folders of the brokers of one case.
pub struct Site {
    pub side: Side,
    url: String,
    /// The log's database; empty where it has none of its own.
    audit: String,
    master_key: String,
    folder: tempfile::TempDir,
}

/// Runs a case on a fresh database and clears up however it ends.
pub async fn run<F>(side: Side, case: impl FnOnce(Arc<Site>) -> F)
where
    F: Future<Output = ()>,
{
    let site = Arc::new(Site::new(side).await);
    let outcome = AssertUnwindSafe(case(site.clone())).catch_unwind().await;
    site.drop_database().await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Only the first provider counts; any will do, TLS is spoken only to this machine's Postgres.
fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// 32 random bytes in base64.
pub fn master_key() -> String {
    base64::engine::general_purpose::STANDARD.encode(random::<32>())
}

impl Site {
    async fn new(side: Side) -> Self {
        install_crypto();
        let folder = tempfile::tempdir().unwrap();
        let (url, audit) = match side {
            Side::Sqlite => (migrated_file(&folder.path().join("broker.db")).await, String::new()),
            Side::Postgres => (migrated_database().await, String::new()),
            Side::Apart => migrated_pair().await,
        };
        Self { side, url, audit, master_key: master_key(), folder }
    }

    /// A database that is there already, and stays.
    pub fn at(url: String) -> Self {
        install_crypto();
        let folder = tempfile::tempdir().unwrap();
        Self { side: Side::Postgres, url, audit: String::new(), master_key: master_key(), folder }
    }

    /// The binary with this site's settings, and no others.
    pub fn command(&self, settings: &[(&str, &str)]) -> Command {
        let built = || env!("CARGO_BIN_EXE_handoffd").into();
        let binary = std::env::var_os("HANDOFFD_TEST_BINARY").unwrap_or_else(built);
        self.command_of(&binary, settings)
    }

    /// [`Site::command`] of another build of the broker.
    pub fn command_of(&self, binary: &OsStr, settings: &[(&str, &str)]) -> Command {
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HANDOFFD_") {
                command.env_remove(name);
            }
        }
        command
            .env("HANDOFFD_DATABASE_URL", &self.url)
            .env("HANDOFFD_AUDIT__DATABASE_URL", &self.audit)
            .env("HANDOFFD_DATA_DIR", self.folder.path())
            .env("HANDOFFD_MASTER_KEY", &self.master_key)
            .env("HANDOFFD_ADMIN_KEY", ADMIN_KEY)
            .env("HANDOFFD_LISTEN", "127.0.0.1:0")
            .env("HANDOFFD_EGRESS_ALLOW", "127.0.0.0/8,::1/128")
            .env("HANDOFFD_LOG__FILTER", "warn")
            // Faults come in quick succession here.
            .env("HANDOFFD_DELIVERY__RETRY_BASE_MS", "50")
            .env("HANDOFFD_DELIVERY__RETRY_CAP_MS", "400")
            .env("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "50")
            .env("HANDOFFD_DELIVERY__POLL_MS", "200")
            .env("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "1000")
            .env("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "1500")
            // On a busy machine no handoff expires before a killed broker's successor delivers it.
            .env("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "300000")
            // A case that waits for an event from before the start need not wait for half a minute more.
            .env("HANDOFFD_RECOVERY__START_GRACE_MS", "1000")
            .envs(settings.iter().copied())
            .kill_on_drop(true);
        command
    }

    /// The URL of the database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A proxy before the server, and the URL of this database through it.
    pub async fn behind_a_proxy(&self) -> (Proxy, String) {
        let mut url: url::Url = self.url.parse().unwrap();
        let host = url.host_str().expect("the server is asked over TCP");
        let proxy = Proxy::before(format!("{host}:{}", url.port().unwrap_or(5432))).await;
        url.set_host(Some(&proxy.address.ip().to_string())).unwrap();
        url.set_port(Some(proxy.address.port())).unwrap();
        (proxy, url.into())
    }

    /// The broker's files outside the database.
    pub fn data_dir(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Keeps the database as it is; no broker uses it now.
    pub async fn back_up(&self) {
        match self.side {
            Side::Sqlite => self.copy("broker.db", "backup.db"),
            Side::Postgres | Side::Apart => {
                let name = self.url.rsplit('/').next().unwrap();
                on_server(format!("CREATE DATABASE {name}_backup TEMPLATE {name}")).await;
            }
        }
    }

    /// Puts the database back as it was kept.
    pub async fn restore(&self) {
        match self.side {
            Side::Sqlite => self.copy("backup.db", "broker.db"),
            Side::Postgres | Side::Apart => {
                let name = self.url.rsplit('/').next().unwrap();
                on_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
                on_server(format!("ALTER DATABASE {name}_backup RENAME TO {name}")).await;
            }
        }
    }

    /// Copies a SQLite file with what belongs to it.
    fn copy(&self, from: &str, to: &str) {
        for part in ["", "-wal", "-shm"] {
            let path = |name: &str| self.folder.path().join(format!("{name}{part}"));
            let _ = std::fs::remove_file(path(to));
            if path(from).exists() {
                std::fs::copy(path(from), path(to)).unwrap();
            }
        }
    }

    /// Runs `handoffd verify`, which must find everything well; returns the records it read.
    pub async fn verify(&self) -> u64 {
        self.verify_with(&[]).await
    }

    /// [`Site::verify`] with settings.
    pub async fn verify_with(&self, settings: &[(&str, &str)]) -> u64 {
        let output =
            self.command(settings).args(["--output", "json", "verify"]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}{:?}", output.stderr);
        let report: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(report["ok"], true, "{said}");
        report["logs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|log| log["report"]["records"].as_u64().unwrap())
            .sum()
    }

    /// Releases the leases of a killed process.
    pub async fn forget_leases(&self) {
        let sql = "DELETE FROM leases";
        if self.side != Side::Sqlite {
            return self.sql(sql).await;
        }
        let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Makes the database anew, without any table, on Postgres.
    pub async fn empty(&self) {
        let name = self.url.rsplit('/').next().unwrap();
        on_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
        on_server(format!("CREATE DATABASE {name}")).await;
    }

    /// Runs a statement past the brokers, on Postgres.
    pub async fn sql(&self, sql: &str) {
        let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// How many batches stand between the operations and a log apart.
    pub async fn prepared(&self) -> usize {
        let mut connection = sqlx::PgConnection::connect(&self.audit).await.unwrap();
        let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
        let found = sqlx::query(sql).fetch_all(&mut connection).await.unwrap().len();
        connection.close().await.unwrap();
        found
    }

    async fn drop_database(&self) {
        if self.side != Side::Sqlite {
            let name = self.url.rsplit('/').next().unwrap();
            on_server(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            on_server(format!("DROP DATABASE IF EXISTS {name}_backup")).await;
        }
        if !self.audit.is_empty() {
            let name = self.audit.rsplit('/').next().unwrap();
            on_server(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
        }
    }
}
