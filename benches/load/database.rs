//! A database of its own for each measurement.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use handoffd::clock::{random, random_id};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection};
use tokio::process::Command;

/// The admin key of every broker here.
pub const ADMIN_KEY: &str = "admin-key-of-the-load-harness";

/// A scratch database.
pub struct Database {
    /// Its URL.
    pub url: String,
    /// The server's URL and the database's name there.
    server: Option<(String, String)>,
    binary: PathBuf,
    master_key: String,
    folder: tempfile::TempDir,
}

impl Database {
    /// On that store: `sqlite:`, `sqlite:FOLDER` or the URL of a Postgres server.
    pub async fn new(store: &str, binary: PathBuf) -> Self {
        let (folder, server, url) = if let Some(path) = store.strip_prefix("sqlite:") {
            let folder = if path.is_empty() {
                tempfile::tempdir().unwrap()
            } else {
                tempfile::tempdir_in(path).unwrap()
            };
            let url = format!("sqlite:{}", folder.path().join("load.db").display());
            (folder, None, url)
        } else {
            let name = format!("handoffd_load_{}", random_id().simple());
            on(store, format!("CREATE DATABASE {name}")).await;
            let mut url: url::Url = store.parse().unwrap();
            url.set_path(&name);
            (tempfile::tempdir().unwrap(), Some((store.to_owned(), name)), url.to_string())
        };
        let master_key = base64::engine::general_purpose::STANDARD.encode(random::<32>());
        Self { url, server, binary, master_key, folder }
    }

    /// The binary with this database's settings and no others.
    pub fn command(&self, settings: &[String]) -> Command {
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HANDOFFD_") {
                command.env_remove(name);
            }
        }
        command
            .env("HANDOFFD_DATABASE_URL", &self.url)
            .env("HANDOFFD_DATA_DIR", self.folder.path())
            .env("HANDOFFD_MASTER_KEY", &self.master_key)
            .env("HANDOFFD_ADMIN_KEY", ADMIN_KEY)
            .env("HANDOFFD_LISTEN", "127.0.0.1:0")
            .env("HANDOFFD_EGRESS_ALLOW", "127.0.0.0/8")
            .env("HANDOFFD_LOG__FILTER", "warn")
            .envs(settings.iter().filter_map(|setting| setting.split_once('=')))
            .kill_on_drop(true);
        command
    }

    /// Applies the migrations.
    pub async fn migrate(&self) {
        assert!(self.command(&[]).arg("migrate").output().await.unwrap().status.success());
    }

    /// Runs `handoffd verify`; returns the records it read. It must find everything well.
    pub async fn verify(&self) -> u64 {
        let mut command = self.command(&[]);
        let verifying = command.args(["--output", "json", "verify"]).output();
        let output =
            tokio::time::timeout(Duration::from_mins(5), verifying).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        let report: Value = serde_json::from_str(&said).unwrap();
        let logs = report["logs"].as_array().unwrap();
        logs.iter().map(|log| log["report"]["records"].as_u64().unwrap()).sum()
    }

    /// Takes it away.
    pub async fn drop(self) {
        if let Some((server, name)) = &self.server {
            on(server, format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }
}

async fn on(server: &str, sql: String) {
    let mut connection = sqlx::PgConnection::connect(server).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
