//! A database for one case, and the commands that work on it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use base64::Engine;
use futures_util::FutureExt;
use handoffd::clock::{random, random_id};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection};
use tokio::process::Command;

/// The first admin key of every broker here.
pub const ADMIN_KEY: &str = "admin-key-of-the-process-tests";

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Sqlite,
    Postgres,
}

/// Where brokers of one case keep things.
pub struct Site {
    pub side: Side,
    url: String,
    master_key: String,
    folder: tempfile::TempDir,
}

/// Runs a case on a fresh database and clears up however it ends.
pub async fn run<F>(side: Side, case: impl FnOnce(Arc<Site>) -> F)
where
    F: Future<Output = ()>,
{
    // Only the first provider counts; any will do, nothing here speaks TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let site = Arc::new(Site::new(side).await);
    let outcome = AssertUnwindSafe(case(site.clone())).catch_unwind().await;
    site.drop_database().await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn server() -> url::Url {
    std::env::var("HANDOFFD_TEST_POSTGRES_URL")
        .expect("no HANDOFFD_TEST_POSTGRES_URL: run scripts/test, which brings a Postgres server")
        .parse()
        .expect("HANDOFFD_TEST_POSTGRES_URL is a URL")
}

async fn on_server(sql: String) {
    let mut connection = sqlx::PgConnection::connect(server().as_str()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// 32 random bytes in base64.
pub fn master_key() -> String {
    base64::engine::general_purpose::STANDARD.encode(random::<32>())
}

impl Site {
    async fn new(side: Side) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = match side {
            Side::Sqlite => format!("sqlite:{}", folder.path().join("broker.db").display()),
            Side::Postgres => {
                let name = format!("handoffd_test_{}", random_id().simple());
                on_server(format!("CREATE DATABASE {name}")).await;
                let mut url = server();
                url.set_path(&name);
                url.into()
            }
        };
        Self { side, url, master_key: master_key(), folder }
    }

    /// The binary with this site's settings, and nobody else's.
    pub fn command(&self, settings: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_handoffd"));
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
            .env("HANDOFFD_EGRESS_ALLOW", "127.0.0.0/8,::1/128")
            .env("HANDOFFD_LOG__FILTER", "warn")
            // Faults come in quick succession here.
            .env("HANDOFFD_DELIVERY__RETRY_BASE_MS", "50")
            .env("HANDOFFD_DELIVERY__RETRY_CAP_MS", "400")
            .env("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "50")
            .env("HANDOFFD_DELIVERY__POLL_MS", "200")
            .env("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "1000")
            .env("HANDOFFD_DELIVERY__CLAIM_TTL_MS", "1500")
            .envs(settings.iter().copied())
            .kill_on_drop(true);
        command
    }

    /// Runs `handoffd verify`, which must find everything well; returns the records it read.
    pub async fn verify(&self) -> u64 {
        let output = self.command(&[]).args(["--output", "json", "verify"]).output().await.unwrap();
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

    async fn drop_database(&self) {
        if self.side == Side::Postgres {
            let name = self.url.rsplit('/').next().unwrap();
            on_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }
}
