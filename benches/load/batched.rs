//! The rows of pgbench's scripts, written by hand in batches: a few statements of many rows, prepared, and
//! one transaction a batch. Postgres makes the bytes, as for pgbench.

use std::collections::BTreeMap;
use std::time::Duration;

use handoffd::clock::random_id;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::report::{Quantiles, Row};
use crate::yardstick::{CHECKPOINT, CONTENT, RECORD};

/// Each row has one id in place of all ids of its handoff. Tasks and handoffs are looked up first, as a batch has to.
fn submission() -> Vec<String> {
    let from = "FROM UNNEST($1::text[]) AS n(id)";
    vec![
        format!(
            "SELECT t.status {from} JOIN tasks t ON t.tenant = 'bare' AND t.task_id = id FOR UPDATE OF t"
        ),
        format!(
            "SELECT t.status {from} JOIN handoffs t ON t.tenant = 'bare' AND t.handoff_id = id"
        ),
        format!(
            "INSERT INTO tasks SELECT 'bare', id, 'HANDING_OFF', 'sender-1', NULL, NULL, 1, 1, 1, 0, 10000000, 400000000, 1, 1 {from}"
        ),
        format!(
            "INSERT INTO handoffs SELECT 'bare', id, id, NULL, 'sender-1', '1.0.0', id, 'receiver-1', 'receiver-1', '1.0.0', 'webhook', 'PENDING', 1, 1, NULL, 10000000, 400000000, 1200, 300, true, id, 1, id, decode(md5(id), 'hex'), decode(repeat(md5(id), 2), 'hex'), NULL, '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 1, NULL, NULL {from}"
        ),
        format!(
            "INSERT INTO outbox SELECT 'bare', id, id, 1, 'receiver-1', 'webhook', 1, 1, 'broker-1', 1 {from}"
        ),
        format!(
            "INSERT INTO checkpoints SELECT 'bare', id, id, 1, 'sender-1', decode(repeat(md5(id), 2), 'hex'), decode(md5(id), 'hex'), 'zstd', decode(repeat(md5(id), {CHECKPOINT}), 'hex'), 1 {from}"
        ),
        format!(
            "INSERT INTO contents SELECT 'bare', id, decode(md5(id), 'hex'), 'zstd', decode(repeat(md5(id), {CONTENT}), 'hex'), 1 {from}"
        ),
    ]
}

fn accepted() -> Vec<String> {
    let from = "FROM UNNEST($1::text[]) AS n(id)";
    vec![
        format!("SELECT t.status {from} JOIN tasks t ON t.tenant = 'bare' AND t.task_id = id FOR UPDATE OF t"),
        format!("SELECT t.status {from} JOIN handoffs t ON t.tenant = 'bare' AND t.handoff_id = id"),
        format!("SELECT t.attempt {from} JOIN outbox t ON t.tenant = 'bare' AND t.handoff_id = id FOR UPDATE OF t"),
        format!("UPDATE tasks t SET status = 'RUNNING', holder = 'receiver-1', undelivered = 0, updated_at = 2 {from} WHERE t.tenant = 'bare' AND t.task_id = id"),
        format!("UPDATE handoffs t SET status = 'ACCEPTED', accepted_at = 2, deadline_at = 3 {from} WHERE t.tenant = 'bare' AND t.handoff_id = id"),
        "DELETE FROM outbox t USING UNNEST($1::text[]) AS n(id) WHERE t.tenant = 'bare' AND t.handoff_id = id".to_owned(),
    ]
}

/// The log's part: its head locked, the records, its head moved on.
fn appended(kind: &str) -> [String; 3] {
    [
        "SELECT size FROM audit.log_heads WHERE tenant = 'bare' FOR UPDATE".to_owned(),
        format!(
            "INSERT INTO audit.records SELECT 'bare', $2 + place - 1, decode(repeat(md5(id), 2), 'hex'), '{kind}', id, id, id, 1, \
             decode(repeat(md5(id), {RECORD}), 'hex') FROM UNNEST($1::text[]) WITH ORDINALITY AS n(id, place)"
        ),
        "UPDATE audit.log_heads SET size = size + $1, hash = decode(repeat(md5('x'), 2), 'hex') \
         WHERE tenant = 'bare'"
            .to_owned(),
    ]
}

async fn transaction(
    connection: &mut PgConnection,
    statements: &[String],
    appends: &[String; 3],
    ids: &[String],
) -> sqlx::Result<()> {
    let many = i64::try_from(ids.len()).unwrap();
    let mut tx = connection.begin().await?;
    for statement in statements {
        sqlx::query(AssertSqlSafe(statement.as_str())).bind(ids).execute(&mut *tx).await?;
    }
    let [head, records, moved] = appends;
    let size: i64 = sqlx::query_scalar(AssertSqlSafe(head.as_str())).fetch_one(&mut *tx).await?;
    sqlx::query(AssertSqlSafe(records.as_str())).bind(ids).bind(size).execute(&mut *tx).await?;
    sqlx::query(AssertSqlSafe(moved.as_str())).bind(many).execute(&mut *tx).await?;
    tx.commit().await
}

/// That many connections, each with a batch under way; `verdict`: and as many verdicts in a transaction
/// of their own.
pub async fn measure(
    url: &str,
    time: Duration,
    connections: usize,
    batch: usize,
    verdict: bool,
) -> Row {
    let began = Instant::now();
    let mut loops = JoinSet::new();
    for _ in 0..connections {
        let mut connection = PgConnection::connect(url).await.unwrap();
        loops.spawn(async move {
            let mut took = Vec::new();
            let (first, then) = (submission(), accepted());
            let (submitted, settled) = (appended("HANDOFF"), appended("ACCEPTED"));
            while began.elapsed() < time {
                let one = Instant::now();
                let ids: Vec<String> = (0..batch).map(|_| random_id().to_string()).collect();
                transaction(&mut connection, &first, &submitted, &ids).await.unwrap();
                if verdict {
                    transaction(&mut connection, &then, &settled, &ids).await.unwrap();
                }
                took.extend(ids.iter().map(|_| one.elapsed()));
            }
            connection.close().await.unwrap();
            took
        });
    }
    let took = loops.join_all().await.concat();
    let what = if verdict { "submission and verdict" } else { "a submission" };
    Row {
        what: format!("Postgres bare, {what}, {connections} clients, batches of {batch}"),
        rate: took.len() as f64 / began.elapsed().as_secs_f64(),
        answered: Some(Quantiles::of(&took)),
        arrived: None,
        more: BTreeMap::new(),
    }
}
