//! A store of its own for each case, and a way past it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use handoffd::clock::random_id;
use handoffd::store::plans::ListFilter;
use handoffd::store::postgres::{PostgresOptions, PostgresStore};
use handoffd::store::sqlite::{SqliteOptions, SqliteStore};
use handoffd::store::{Store, StoreError};
use handoffd_domain::ids::{Micros, TenantId};
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::databases::{database, migrated_database, migrated_file, migrated_pair, on_server};

/// The name of a SQLite store's file.
const FILE: &str = "store.db";

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Sqlite,
    Postgres,
    /// Postgres, under the role that brokers serve as.
    Serving,
    /// Postgres, with the log in a database of its own.
    Apart,
    /// Postgres over TLS, where a batch is written in statements of one record.
    Encrypted,
    /// The URL names a server that is away, and then the real one.
    Several,
    /// The simulation's store; cases that go past the store are not for it.
    Memory,
}

/// A database for one case.
pub struct Bed {
    pub side: Side,
    pub store: Arc<Store>,
    /// As its owner.
    url: String,
    /// Who the store's connections are, where that is not the owner.
    role: Option<String>,
    /// The log's database, where it has one of its own.
    audit: Option<String>,
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
    let bed = Arc::new(Bed::migrated(side).await);
    bed.store.migrate().await.unwrap();
    bed.store.ensure_tenant(&acme(), "log-acme", Micros(1)).await.unwrap();
    let outcome = AssertUnwindSafe(case(bed.clone())).catch_unwind().await;
    bed.drop_database().await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

async fn open(url: &str, audit: Option<&str>) -> Arc<Store> {
    Arc::new(open_with(url, audit).await.unwrap())
}

/// Opens the operations, and the log where it is apart.
pub async fn open_with(url: &str, audit: Option<&str>) -> Result<Store, StoreError> {
    let audit_url = audit.map(str::to_owned);
    let options = PostgresOptions { audit_url, ..PostgresOptions::default() };
    Ok(PostgresStore::open(url, options).await?.into())
}

/// A URL that names a server which does not answer, and then the database's.
pub fn behind_a_dead_server(url: &str) -> String {
    let (before, after) = url.rsplit_once('@').unwrap();
    format!("{before}@127.0.0.1:1,{after}")
}

/// The database that a URL names.
pub fn name(url: &str) -> &str {
    url.rsplit('/').next().unwrap().split('?').next().unwrap()
}

/// The same database as another role, which gets a password for it: not every server trusts its own machine.
async fn as_role(url: &str, role: &str) -> String {
    let password = role;
    on_server(format!("ALTER ROLE {role} PASSWORD '{password}'")).await;
    let mut url: url::Url = url.parse().unwrap();
    url.set_username(role).unwrap();
    url.set_password(Some(password)).unwrap();
    url.into()
}

impl Bed {
    /// An empty database, opened; one to serve from is migrated, by its owner.
    pub async fn bare(side: Side) -> Self {
        crate::statements::record();
        match side {
            Side::Sqlite | Side::Memory => Self::on(side, String::new(), None).await,
            Side::Apart => Self::on(side, database().await, Some(database().await)).await,
            _ => Self::on(side, database().await, None).await,
        }
    }

    /// A database that is migrated already where its server has copies of one, opened.
    async fn migrated(side: Side) -> Self {
        crate::statements::record();
        match side {
            Side::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                migrated_file(&folder.path().join(FILE)).await;
                Self::in_folder(folder).await
            }
            Side::Memory => Self::on(side, String::new(), None).await,
            Side::Apart => {
                let (url, audit) = migrated_pair().await;
                Self::on(side, url, Some(audit)).await
            }
            _ => Self::on(side, migrated_database().await, None).await,
        }
    }

    /// Opens what the server has; SQLite and memory make their own.
    async fn on(side: Side, url: String, audit: Option<String>) -> Self {
        match side {
            Side::Sqlite => Self::in_folder(tempfile::tempdir().unwrap()).await,
            Side::Postgres => {
                let store = open(&url, None).await;
                Self { side, store, url, role: None, audit: None, folder: None }
            }
            Side::Encrypted => {
                let mut url: url::Url = url.parse().unwrap();
                url.query_pairs_mut().append_pair("sslmode", "require");
                let url = String::from(url);
                let store = open(&url, None).await;
                Self { side, store, url, role: None, audit: None, folder: None }
            }
            Side::Several => {
                let store = open(&behind_a_dead_server(&url), None).await;
                Self { side, store, url, role: None, audit: None, folder: None }
            }
            Side::Apart => {
                let store = open(&url, audit.as_deref()).await;
                Self { side, store, url, role: None, audit, folder: None }
            }
            Side::Serving => {
                let bed = Box::pin(Self::on(Side::Postgres, url, None)).await;
                bed.store.migrate().await.unwrap();
                let role = format!("handoffd_{}", random_id().simple());
                bed.store.grant_serving(&role).await.unwrap();
                bed.store.close().await;
                let store = open(&as_role(&bed.url, &role).await, None).await;
                Self { side, store, role: Some(role), ..bed }
            }
            Side::Memory => {
                let store = Arc::new(crate::memory::MemoryStore::default().into());
                Self { side, store, url: String::new(), role: None, audit: None, folder: None }
            }
        }
    }

    /// Opens the SQLite file in this folder, or makes it.
    async fn in_folder(folder: tempfile::TempDir) -> Self {
        let url = format!("sqlite:{}", folder.path().join(FILE).display());
        let store = SqliteStore::open(&url, SqliteOptions::serving()).await.unwrap().into();
        let store = Arc::new(store);
        Self { side: Side::Sqlite, store, url, role: None, audit: None, folder: Some(folder) }
    }

    /// A second broker's store on the same database; on SQLite, which takes one broker, the same
    /// one.
    pub async fn second(&self) -> Arc<Store> {
        match self.side {
            Side::Sqlite | Side::Memory => self.store.clone(),
            Side::Several => open(&behind_a_dead_server(&self.url), None).await,
            _ => match &self.role {
                Some(role) => open(&as_role(&self.url, role).await, None).await,
                None => open(&self.url, self.audit.as_deref()).await,
            },
        }
    }

    /// The store as the owner of the database.
    pub async fn owner(&self) -> Arc<Store> {
        open(&self.url, self.audit.as_deref()).await
    }

    /// A store on the same database, for a command beside a broker.
    async fn beside(&self) -> Store {
        if self.side == Side::Sqlite {
            return SqliteStore::open(&self.url, SqliteOptions::beside()).await.unwrap().into();
        }
        open_with(&self.url, self.audit.as_deref()).await.unwrap()
    }

    /// How the database carries out the first page of a list.
    pub async fn explain(&self, list: &ListFilter) -> Vec<String> {
        self.beside().await.explain_list(&acme(), list).await.unwrap()
    }

    /// How the database counts what waits, statement by statement.
    pub async fn explain_waits(&self) -> Vec<Vec<String>> {
        self.beside().await.explain_waits(&acme()).await.unwrap()
    }

    /// A plain connection under the store's own role.
    pub async fn raw_as_store(&self) -> sqlx::PgConnection {
        let role = self.role.as_ref().expect("a role to serve as");
        sqlx::PgConnection::connect(&as_role(&self.url, role).await).await.unwrap()
    }

    /// The role that the store serves as.
    pub fn role(&self) -> &str {
        self.role.as_deref().expect("a role to serve as")
    }

    /// Whether several brokers may share it.
    pub fn is_shared(&self) -> bool {
        self.side != Side::Sqlite
    }

    /// A connection past the store.
    pub async fn raw(&self) -> Raw {
        match self.side {
            Side::Sqlite => Raw::Sqlite(sqlx::SqliteConnection::connect(&self.url).await.unwrap()),
            Side::Memory => panic!("a store in memory has no way past it"),
            _ => Raw::Postgres(sqlx::PgConnection::connect(&self.url).await.unwrap()),
        }
    }

    /// A connection past the store to where the log is.
    pub async fn raw_log(&self) -> Raw {
        match &self.audit {
            Some(url) => Raw::Postgres(sqlx::PgConnection::connect(url).await.unwrap()),
            None => self.raw().await,
        }
    }

    /// The URL of the operations database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The log's own database.
    pub fn audit(&self) -> &str {
        self.audit.as_deref().expect("a log apart")
    }

    /// The bytes of the database file and of all files beside it.
    pub fn files(&self) -> Vec<u8> {
        let folder = self.folder.as_ref().expect("a file's folder");
        let mut bytes = Vec::new();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
        }
        bytes
    }

    /// All rows of the tables that may hold personal data, as the server writes them, blobs as bytes.
    pub async fn rows(&self) -> Vec<u8> {
        let mut raw = self.raw().await;
        let mut bytes = Vec::new();
        for table in [
            "personal_data",
            "handoffs",
            "delivery_attempts",
            "contents",
            "checkpoints",
            "erasures",
        ] {
            let sql =
                format!("SELECT coalesce(string_agg(t::text, ' '), '')::bytea FROM {table} t");
            let text = String::from_utf8(raw.blob(&sql).await).unwrap();
            // `\\x` and hexadecimal digits are a blob.
            for part in text.split("\\x") {
                let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count() & !1;
                bytes.extend(part.as_bytes()[..digits].chunks(2).map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()
                }));
            }
            bytes.extend(text.into_bytes());
        }
        bytes
    }

    /// Takes the database away.
    pub async fn drop_database(&self) {
        self.store.close().await;
        // On SQLite the folder goes with the bed, and memory with its store.
        if self.folder.is_none() && self.side != Side::Memory {
            drop_database(&self.url).await;
        }
        if let Some(url) = &self.audit {
            drop_database(url).await;
        }
        if let Some(role) = &self.role {
            on_server(format!("DROP ROLE {role}")).await;
        }
    }
}

/// A prepared transaction there would keep a database from being dropped.
pub async fn drop_database(url: &str) {
    let mut raw = sqlx::PgConnection::connect(url).await.unwrap();
    let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
    for row in sqlx::query(sql).fetch_all(&mut raw).await.unwrap() {
        let sql = format!("ROLLBACK PREPARED '{}'", row.get::<&str, _>(0).replace('\'', "''"));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut raw).await.unwrap();
    }
    raw.close().await.unwrap();
    on_server(format!("DROP DATABASE {} WITH (FORCE)", name(url))).await;
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
                 DROP TRIGGER audit_records_no_replace; DROP TRIGGER audit_nodes_no_update; \
                 DROP TRIGGER audit_nodes_no_delete; DROP TRIGGER audit_nodes_no_replace"
            }
            Self::Postgres(_) => {
                "ALTER TABLE audit.records DISABLE TRIGGER USER; \
                 ALTER TABLE audit.nodes DISABLE TRIGGER USER"
            }
        };
        match self {
            Self::Sqlite(raw) => sqlx::raw_sql(sql).execute(raw).await.map(drop).unwrap(),
            Self::Postgres(raw) => sqlx::raw_sql(sql).execute(raw).await.map(drop).unwrap(),
        }
    }
}
