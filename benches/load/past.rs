//! A store that has seen many days: copies of the rows of some handoffs that went through, as many of each
//! table, under ids of their own. They belong to the load's own tenant, have all ended, and lie among its rows.
//! The rows in the order of the log belong to another tenant, as the load's own log must verify. No one reads
//! them.

use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

/// The tables that keep rows of a handoff. The log's tree is left out: some hundredths of its records.
const TABLES: [&str; 7] =
    ["tasks", "handoffs", "task_edges", "checkpoints", "contents", "audit.records", "events"];

/// The tables whose rows are in the order of the log: only their end is ever written.
const OF_THE_LOG: [&str; 2] = ["audit.records", "events"];

/// Rows of one statement, roughly.
const CHUNK: u64 = 50_000;

enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Raw {
    async fn connect(url: &str) -> Self {
        if url.starts_with("sqlite:") {
            Self::Sqlite(SqliteConnection::connect(url).await.unwrap())
        } else {
            Self::Postgres(PgConnection::connect(url).await.unwrap())
        }
    }

    async fn run(&mut self, sql: String) {
        match self {
            Self::Sqlite(raw) => sqlx::raw_sql(AssertSqlSafe(sql)).execute(raw).await.map(drop),
            Self::Postgres(raw) => sqlx::raw_sql(AssertSqlSafe(sql)).execute(raw).await.map(drop),
        }
        .unwrap();
    }

    async fn count(&mut self, table: &str) -> u64 {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        let count: i64 = match self {
            Self::Sqlite(raw) => sqlx::query_scalar(sql).fetch_one(raw).await.unwrap(),
            Self::Postgres(raw) => sqlx::query_scalar(sql).fetch_one(raw).await.unwrap(),
        };
        count.unsigned_abs()
    }

    async fn columns(&mut self, table: &str) -> Vec<String> {
        match self {
            Self::Sqlite(raw) => {
                let sql = format!("SELECT name FROM pragma_table_info('{table}')");
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(raw).await.unwrap()
            }
            Self::Postgres(raw) => {
                let sql = format!(
                    "SELECT attname::text FROM pg_attribute WHERE attrelid = '{table}'::regclass \
                     AND attnum > 0 AND NOT attisdropped"
                );
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(raw).await.unwrap()
            }
        }
    }

    /// How this side names a table.
    fn name(&self, table: &str) -> String {
        match self {
            Self::Sqlite(_) => table.replace('.', "_"),
            Self::Postgres(_) => table.to_owned(),
        }
    }

    /// The value of a column of a table in the copy `n` of a row, if the log has so many leaves.
    fn value(&self, table: &str, column: &str, leaves: u64) -> String {
        match (column, self) {
            ("tenant", _) if OF_THE_LOG.contains(&table) => "'past'".to_owned(),
            ("status", _) if matches!(table, "tasks" | "handoffs") => "'COMPLETED'".to_owned(),
            ("task_id" | "handoff_id" | "content_id", Self::Sqlite(_)) => {
                "lower(hex(randomblob(18)))".to_owned()
            }
            ("task_id" | "handoff_id" | "content_id", Self::Postgres(_)) => {
                "gen_random_uuid()::text".to_owned()
            }
            // No broker is to look after an overdue handoff.
            ("deadline_at", _) => "NULL".to_owned(),
            ("leaf_index", _) => format!("b.leaf_index + CAST(n AS bigint) * {leaves}"),
            ("created_at" | "recorded_at", _) => {
                format!("b.{column} - CAST(n AS bigint) * 1000000")
            }
            _ => format!("b.{column}"),
        }
    }
}

/// Takes the handoffs of the past away again, which no record speaks of: the verifier would say so.
pub async fn forget(url: &str) {
    Raw::connect(url).await.run("DELETE FROM handoffs WHERE status = 'COMPLETED'".to_owned()).await;
}

/// Copies what the load's first tenant has until there are that many handoffs, while no broker runs.
pub async fn fill(url: &str, handoffs: u64) {
    let mut raw = Raw::connect(url).await;
    let known = raw.count("handoffs WHERE tenant = 'default'").await.max(1);
    let records = raw.name("audit.records");
    let leaves = raw.count(&format!("{records} WHERE tenant = 'default'")).await;
    let (copies, step) = (handoffs.div_ceil(known), (CHUNK / known).max(1));
    for table in TABLES {
        let name = raw.name(table);
        let columns = raw.columns(&name).await;
        let values: Vec<_> =
            columns.iter().map(|column| raw.value(table, column, leaves)).collect();
        let (columns, values) = (columns.join(", "), values.join(", "));
        raw.run(format!(
            "CREATE TEMPORARY TABLE model AS SELECT * FROM {name} WHERE tenant = 'default'"
        ))
        .await;
        let mut first = 1;
        while first <= copies {
            let last = (first + step - 1).min(copies);
            raw.run(format!(
                "INSERT INTO {name} ({columns}) WITH RECURSIVE series (n) AS \
                   (SELECT {first} UNION ALL SELECT n + 1 FROM series WHERE n < {last}) \
                 SELECT {values} FROM series CROSS JOIN model AS b"
            ))
            .await;
            first = last + 1;
        }
        raw.run("DROP TABLE model".to_owned()).await;
    }
    // The server's later maintenance is not to be measured.
    match &raw {
        Raw::Sqlite(_) => raw.run("ANALYZE".to_owned()).await,
        Raw::Postgres(_) => {
            raw.run("VACUUM (ANALYZE)".to_owned()).await;
            raw.run("CHECKPOINT".to_owned()).await;
        }
    }
}
