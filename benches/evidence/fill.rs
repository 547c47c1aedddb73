//! Writes a large log directly into a broker's SQLite file: real records, hashes, tree and contents, in the
//! order of the log, with one task's records spread evenly among those of others.

use std::time::Instant;

use handoffd::clock::random_id;
use handoffd_domain::ids::{HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::append::LogAppender;
use handoffd_evidence::merkle::{Frontier, Hash};
use handoffd_evidence::record::{LogHead, RecordDraft, RecordKind, SealedRecord};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, QueryBuilder, Row, Sqlite};
use tokio::sync::mpsc;

use crate::share;

/// Records in one statement.
const ROWS: usize = 2_000;

/// Statements in one transaction.
const STATEMENTS: u64 = 50;

/// Records, and the tree nodes that they complete: level, index, hash.
struct Page {
    rows: Vec<(RecordDraft, SealedRecord)>,
    nodes: Vec<(i64, i64, Hash)>,
}

/// The contents of a filled log.
pub struct Filled {
    pub tenant: TenantId,
    pub task: TaskId,
    pub records: u64,
}

/// Fills the log of the only tenant up to `records`, of which `task` belong to one task.
pub async fn fill(path: &str, records: u64, task: u64) -> Filled {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .pragma("synchronous", "OFF")
        .pragma("cache_size", "-400000");
    let mut conn = options.connect().await.unwrap();
    let head = head(&mut conn).await;
    let filled = Filled { tenant: head.tenant.clone(), task: TaskId(random_id()), records };
    // Dropped here and built again afterwards: sorting once is faster than inserting entry by entry.
    let shed = "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = 'audit_records' \
                AND (type = 'index' OR name LIKE '%no_replace%') AND sql IS NOT NULL";
    let shed: Vec<(String, String, String)> =
        sqlx::query_as(shed).fetch_all(&mut conn).await.unwrap();
    for (kind, name, _) in &shed {
        sql(&mut conn, format!("DROP {kind} {name}")).await;
    }
    let (pages, mut made) = mpsc::channel::<Page>(4);
    let (start, tenant, wanted) = (head.size as u64, head.tenant.clone(), filled.task);
    let every = (records / task.max(1)).max(1);
    let producer = tokio::task::spawn_blocking(move || {
        let mut log = LogAppender::new(head);
        let mut drafts = Story { tenant, wanted, every, ours: None, others: None };
        for first in (start..records).step_by(ROWS) {
            let last = (first + ROWS as u64).min(records);
            let rows = (first..last)
                .map(|leaf| {
                    let draft = drafts.next(leaf);
                    let sealed = log.append(&draft);
                    (draft, sealed)
                })
                .collect();
            let nodes = log.nodes().map(|node| (node.level, node.index, *node.hash)).collect();
            if pages.blocking_send(Page { rows, nodes }).is_err() {
                break;
            }
            log = LogAppender::new(log.head());
        }
        log.head()
    });
    let began = Instant::now();
    let (mut written, mut statements) = (0_u64, 0);
    sql(&mut conn, "BEGIN".to_owned()).await;
    while let Some(page) = made.recv().await {
        written += page.rows.len() as u64;
        insert(&mut conn, &filled.tenant, &page).await;
        statements += 1;
        if statements % STATEMENTS == 0 {
            sql(&mut conn, "COMMIT; BEGIN".to_owned()).await;
        }
        if statements % 500 == 0 {
            eprintln!("{written} records in {:.0?}", began.elapsed());
        }
    }
    let head = producer.await.unwrap();
    sqlx::query("UPDATE audit_log_heads SET size = ?, hash = ?, frontier = ?")
        .bind(head.size)
        .bind(&head.hash)
        .bind(head.tree.to_bytes())
        .execute(&mut conn)
        .await
        .unwrap();
    sql(&mut conn, "COMMIT".to_owned()).await;
    for (_, _, text) in shed {
        sql(&mut conn, text).await;
    }
    sql(&mut conn, "ANALYZE".to_owned()).await;
    conn.close().await.unwrap();
    eprintln!("{written} records made in {:.0?}", began.elapsed());
    filled
}

/// The sequence of a handoff's records: its commit, its acceptance and its completion.
struct Story {
    tenant: TenantId,
    wanted: TaskId,
    every: u64,
    ours: Option<(HandoffId, u8)>,
    others: Option<(TaskId, HandoffId, u8)>,
}

impl Story {
    fn next(&mut self, leaf: u64) -> RecordDraft {
        let (task, handoff, step) = if leaf.is_multiple_of(self.every) {
            let (handoff, step) = self.ours.unwrap_or((HandoffId(random_id()), 0));
            self.ours = (step < 2).then_some((handoff, step + 1));
            (self.wanted, handoff, step)
        } else {
            let (task, handoff, step) =
                self.others.unwrap_or((TaskId(random_id()), HandoffId(random_id()), 0));
            self.others = (step < 2).then_some((task, handoff, step + 1));
            (task, handoff, step)
        };
        let mut draft = share::draft(&self.tenant);
        draft.at = Micros(1_781_000_000_000_000 + leaf as i64);
        (draft.task_id, draft.handoff_id) = (Some(task), Some(handoff));
        let (kind, status) = match step {
            0 => return draft,
            1 => (RecordKind::Accepted, "ACCEPTED"),
            _ => (RecordKind::Completed, "COMPLETED"),
        };
        (draft.kind, draft.status) = (kind, Some(status));
        (draft.content, draft.checkpoint_commitment) = (None, None);
        draft
    }
}

async fn sql(conn: &mut SqliteConnection, text: String) {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await.unwrap();
}

async fn head(conn: &mut SqliteConnection) -> LogHead {
    let row = sqlx::query("SELECT tenant, log_id, size, hash, frontier FROM audit_log_heads")
        .fetch_one(conn)
        .await
        .unwrap();
    LogHead {
        tenant: row.get::<String, _>(0).parse().unwrap(),
        log_id: row.get(1),
        size: row.get(2),
        hash: row.get(3),
        tree: Frontier::parse(&row.get::<Vec<u8>, _>(4)).unwrap(),
    }
}

async fn insert(conn: &mut SqliteConnection, tenant: &TenantId, Page { rows, nodes }: &Page) {
    let mut records = QueryBuilder::<Sqlite>::new(
        "INSERT INTO audit_records (tenant, leaf_index, record_hash, kind, task_id, handoff_id, \
         content_id, recorded_at, body, tree_size) ",
    );
    records.push_values(rows, |mut row, (draft, sealed)| {
        row.push_bind(tenant.as_str())
            .push_bind(sealed.leaf_index)
            .push_bind(&sealed.hash[..])
            .push_bind(draft.kind.as_str())
            .push_bind(draft.task_id.map(|id| id.to_string()))
            .push_bind(draft.handoff_id.map(|id| id.to_string()))
            .push_bind(draft.content_id().map(|id| id.to_string()))
            .push_bind(draft.at.0)
            .push_bind(&sealed.body)
            .push_bind(sealed.leaf_index + 1);
    });
    records.build().execute(&mut *conn).await.unwrap();
    let mut contents = QueryBuilder::<Sqlite>::new(
        "INSERT INTO contents (tenant, content_id, salt, codec, bytes, created_at) ",
    );
    let kept = rows.iter().filter_map(|(draft, _)| Some((draft, draft.content.as_ref()?)));
    contents.push_values(kept, |mut row, (draft, content)| {
        row.push_bind(tenant.as_str())
            .push_bind(content.id.to_string())
            .push_bind(&content.part.salt)
            .push_bind(content.part.codec.as_str())
            .push_bind(content.part.bytes.to_vec())
            .push_bind(draft.at.0);
    });
    contents.build().execute(&mut *conn).await.unwrap();
    if nodes.is_empty() {
        return;
    }
    let mut query =
        QueryBuilder::<Sqlite>::new("INSERT INTO audit_nodes (tenant, level, idx, hash) ");
    query.push_values(nodes, |mut row, (level, index, hash)| {
        row.push_bind(tenant.as_str()).push_bind(level).push_bind(index).push_bind(&hash[..]);
    });
    query.build().execute(conn).await.unwrap();
}
