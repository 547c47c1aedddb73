//! Databases on the test server, for the suites that run a store or a broker.
//!
//! A case that does not look at migrations gets a copy of a migrated database: to apply fifty migrations takes the server
//! half a second of processor time, a copy a tenth of that. The templates are named after the migrations' bytes, so that all
//! suites of a run share them, and a change of a migration makes new ones. They stay on a server that the run was given
//! (`HANDOFFD_TEST_POSTGRES_URL`).

use handoffd::clock::random_id;
use handoffd::store::Store;
use handoffd::store::postgres::{PostgresOptions, PostgresStore};
use handoffd::store::sqlite::{SqliteOptions, SqliteStore};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection};
use tokio::sync::OnceCell;

/// The server of the run: a URL with its maintenance database.
pub fn server() -> url::Url {
    std::env::var("HANDOFFD_TEST_POSTGRES_URL")
        .expect("no HANDOFFD_TEST_POSTGRES_URL: run scripts/test, which brings a Postgres server")
        .parse()
        .expect("HANDOFFD_TEST_POSTGRES_URL is a URL")
}

/// Runs statements on the server's maintenance database, past any broker.
pub async fn on_server(sql: String) {
    let mut connection = sqlx::PgConnection::connect(server().as_str()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// A new, empty database: its URL, as the owner.
pub async fn database() -> String {
    created("").await
}

/// A new database with every migration applied: its URL, as the owner.
pub async fn migrated_database() -> String {
    let [whole, ..] = templates().await;
    created(&format!("TEMPLATE {whole}")).await
}

/// New databases of operations and of their log, both migrated: their URLs, as the owner.
pub async fn migrated_pair() -> (String, String) {
    let [_, operations, log] = templates().await;
    (created(&format!("TEMPLATE {operations}")).await, created(&format!("TEMPLATE {log}")).await)
}

async fn created(options: &str) -> String {
    let name = format!("handoffd_test_{}", random_id().simple());
    on_server(format!("CREATE DATABASE {name} {options}")).await;
    url_of(&name)
}

fn url_of(name: &str) -> String {
    let mut url = server();
    url.set_path(name);
    url.into()
}

/// Writes a SQLite database with every migration applied to this path, and gives its URL.
pub async fn migrated_file(path: &std::path::Path) -> String {
    static BYTES: OnceCell<Vec<u8>> = OnceCell::const_new();
    let bytes = BYTES.get_or_init(|| async {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("template.db");
        let url = format!("sqlite:{}", file.display());
        let store: Store = SqliteStore::open(&url, SqliteOptions::serving()).await.unwrap().into();
        store.migrate().await.unwrap();
        store.close().await;
        let log = std::fs::metadata(file.with_extension("db-wal")).map_or(0, |log| log.len());
        assert_eq!(log, 0, "the template's pages are in its file, and none in the write-ahead log");
        std::fs::read(file).unwrap()
    });
    std::fs::write(path, bytes.await).unwrap();
    format!("sqlite:{}", path.display())
}

/// The names of the migrated databases: one with the log in it, one of operations and the log that belongs to it.
async fn templates() -> &'static [String; 3] {
    static NAMES: OnceCell<[String; 3]> = OnceCell::const_new();
    NAMES
        .get_or_init(|| async {
            let hash = hash_of_migrations();
            let names =
                ["", "_operations", "_log"].map(|part| format!("handoffd_template_{hash}{part}"));
            make(&names).await;
            names
        })
        .await
}

/// Over names and bytes of all files that may be for Postgres, in order.
fn hash_of_migrations() -> String {
    let mut hash = Sha256::new();
    for folder in ["migrations", "migrations/postgres", "migrations/postgres-audit"] {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.filter(|path| path.is_file()).collect();
        files.sort();
        for file in files {
            hash.update(file.file_name().unwrap().as_encoded_bytes());
            hash.update(std::fs::read(file).unwrap());
        }
    }
    hex::encode(&hash.finalize()[..8])
}

/// Makes what is missing. Suites that run side by side wait for each other at the lock, which ends with the connection.
async fn make(names: &[String; 3]) {
    let mut connection = sqlx::PgConnection::connect(server().as_str()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(hashtext($1))")
        .bind(&names[0])
        .execute(&mut connection)
        .await
        .unwrap();
    // The log is named last: where it is there, all are.
    let there: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(&names[2])
            .fetch_one(&mut connection)
            .await
            .unwrap();
    if !there {
        let made = [database().await, database().await, database().await];
        migrate(&made[0], None).await;
        migrate(&made[1], Some(&made[2])).await;
        for (url, name) in made.iter().zip(names) {
            let made = url.rsplit('/').next().unwrap();
            // A run that was ended between the names leaves some behind; a connection that is still closing is in the way.
            on_server(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
            on_server(format!(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '{made}'"
            ))
            .await;
            on_server(format!("ALTER DATABASE {made} RENAME TO {name}")).await;
        }
    }
    connection.close().await.unwrap();
}

async fn migrate(url: &str, audit: Option<&str>) {
    let options =
        PostgresOptions { audit_url: audit.map(str::to_owned), ..PostgresOptions::default() };
    let store: Store = PostgresStore::open(url, options).await.unwrap().into();
    store.migrate().await.unwrap();
    store.close().await;
}
