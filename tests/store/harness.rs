//! A store of its own for each case, and a way past it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use handoffd::clock::random_id;
use handoffd::domain::ids::{Micros, TenantId};
use handoffd::store::Store;
use handoffd::store::postgres::{PostgresOptions, PostgresStore};
use handoffd::store::sqlite::{SqliteOptions, SqliteStore};
use sqlx::{AssertSqlSafe, Connection, Row};

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Sqlite,
    Postgres,
}

/// A database for one case.
pub struct Bed {
    pub side: Side,
    pub store: Arc<dyn Store>,
    url: String,
    folder: Option<tempfile::TempDir>,
}

/// The tenant that every bed has.
pub fn acme() -> TenantId {
    "acme".parse().unwrap()
}

/// Runs a case on a fresh, migrated database with the tenant `acme`, and clears up however it ends.
pub async fn run<F>(side: Side, case: impl FnOnce(Arc<Bed>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let bed = Arc::new(Bed::bare(side).await);
    bed.store.migrate().await.unwrap();
    bed.store.ensure_tenant(&acme(), "log-acme", Micros(1)).await.unwrap();
    let outcome = AssertUnwindSafe(case(bed.clone())).catch_unwind().await;
    bed.drop_database().await;
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

impl Bed {
    /// An empty database, opened.
    pub async fn bare(side: Side) -> Self {
        match side {
            Side::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite:{}", folder.path().join("store.db").display());
                let store = SqliteStore::open(&url, SqliteOptions::serving()).await.unwrap();
                Self { side, store: Arc::new(store), url, folder: Some(folder) }
            }
            Side::Postgres => {
                let name = format!("handoffd_test_{}", random_id().simple());
                let mut url = server();
                on_server(format!("CREATE DATABASE {name}")).await;
                url.set_path(&name);
                let store = PostgresStore::open(url.as_str(), PostgresOptions::default()).await;
                Self { side, store: Arc::new(store.unwrap()), url: url.into(), folder: None }
            }
        }
    }

    /// A second broker's store on the same database; on SQLite, which takes one broker, the same
    /// one.
    pub async fn second(&self) -> Arc<dyn Store> {
        match self.side {
            Side::Sqlite => self.store.clone(),
            Side::Postgres => {
                Arc::new(PostgresStore::open(&self.url, PostgresOptions::default()).await.unwrap())
            }
        }
    }

    /// A connection past the store.
    pub async fn raw(&self) -> Raw {
        match self.side {
            Side::Sqlite => Raw::Sqlite(sqlx::SqliteConnection::connect(&self.url).await.unwrap()),
            Side::Postgres => Raw::Postgres(sqlx::PgConnection::connect(&self.url).await.unwrap()),
        }
    }

    /// Takes the database away.
    pub async fn drop_database(&self) {
        self.store.close().await;
        // On SQLite the folder goes with the bed.
        if self.folder.is_none() {
            let name = self.url.rsplit('/').next().unwrap();
            on_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
    }
}

/// A plain connection to either side. Statements are written for Postgres; the log's tables are
/// renamed for SQLite.
pub enum Raw {
    Sqlite(sqlx::SqliteConnection),
    Postgres(sqlx::PgConnection),
}

impl Raw {
    fn dialect(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Sqlite(_) => sql.replace("audit.", "audit_"),
            Self::Postgres(_) => sql.to_owned(),
        })
    }

    /// Runs a statement; returns how many rows it touched.
    pub async fn run(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = self.dialect(sql);
        match self {
            Self::Sqlite(raw) => {
                sqlx::raw_sql(sql).execute(raw).await.map(|done| done.rows_affected())
            }
            Self::Postgres(raw) => {
                sqlx::raw_sql(sql).execute(raw).await.map(|done| done.rows_affected())
            }
        }
    }

    /// Reads one blob.
    pub async fn blob(&mut self, sql: &str) -> Vec<u8> {
        let sql = self.dialect(sql);
        match self {
            Self::Sqlite(raw) => sqlx::query(sql).fetch_one(raw).await.unwrap().get(0),
            Self::Postgres(raw) => sqlx::query(sql).fetch_one(raw).await.unwrap().get(0),
        }
    }

    /// Runs a statement with one blob, `$1`.
    pub async fn put(&mut self, sql: &str, blob: &[u8]) -> u64 {
        let sql = self.dialect(sql);
        match self {
            Self::Sqlite(raw) => {
                sqlx::query(sql).bind(blob).execute(raw).await.unwrap().rows_affected()
            }
            Self::Postgres(raw) => {
                sqlx::query(sql).bind(blob).execute(raw).await.unwrap().rows_affected()
            }
        }
    }

    /// Counts.
    pub async fn count(&mut self, table: &str) -> i64 {
        let sql = self.dialect(&format!("SELECT count(*) FROM {table}"));
        match self {
            Self::Sqlite(raw) => sqlx::query(sql).fetch_one(raw).await.unwrap().get(0),
            Self::Postgres(raw) => sqlx::query(sql).fetch_one(raw).await.unwrap().get(0),
        }
    }

    /// Takes the triggers off that keep the log append-only.
    pub async fn disarm(&mut self) {
        let sql = match self {
            Self::Sqlite(_) => {
                "DROP TRIGGER audit_records_no_update; DROP TRIGGER audit_records_no_delete; \
                 DROP TRIGGER audit_records_no_replace"
            }
            Self::Postgres(_) => "ALTER TABLE audit.records DISABLE TRIGGER USER",
        };
        match self {
            Self::Sqlite(raw) => sqlx::raw_sql(sql).execute(raw).await.map(drop).unwrap(),
            Self::Postgres(raw) => sqlx::raw_sql(sql).execute(raw).await.map(drop).unwrap(),
        }
    }
}
