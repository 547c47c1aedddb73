//! The schema `audit`: the logs of the tenants. In SQLite its tables are called `audit_records` and so on.
//!
//! A row, and how it changes:
//!
//! - `audit.records` (SQLite: `audit_records`): a record: hash, bytes, and the columns that find it. Inserted only, by trigger.
//! - `audit.log_heads` (`audit_log_heads`): a log's size and last hash, and the right edge of its tree (`frontier`). Updated
//!   with each append.
//! - `audit.nodes` (`audit_nodes`): the root of a complete subtree, at every eighth level of a log's tree. Inserted only, by
//!   trigger.
//! - `audit.tree_keys` (`audit_tree_keys`): a public key that signs tree heads, or signed them earlier. Retired.

use crate::store::cold::Archivable;
use crate::store::driver::{by_driver, by_each_driver};
use crate::store::query::{Dialect, Statement, Texts};
use crate::store::row_types::{RecordWindow, StoredRecord, TreeKeyRow};
use crate::store::rows::WhichRecords;
use crate::store::table::Rights;
use crate::store::tables::contents::KEPT;
use crate::store::{HandoffKey, Result, Store};
use handoffd_domain::ids::{Micros, TaskId, TenantId};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, RecordKind, SealedRecord};
use std::collections::BTreeSet;

/// Rights of the serving role on the log: rows are added. A head's name and its log's id stay, its size, hash and edge
/// move. Keys that sign tree heads are retired by `handoffd key tree-head` as the owner.
pub(in crate::store) const LOG: Rights = &[
    ("audit.records", "SELECT, INSERT"),
    ("audit.nodes", "SELECT, INSERT"),
    ("audit.tree_keys", "SELECT, INSERT"),
    ("audit.log_heads", "SELECT, INSERT, UPDATE (size, hash, frontier)"),
];

/// Columns of a log's head.
const HEAD: &str = "tenant, log_id, size, hash, frontier";

/// Postgres: the number of records, by the sizes of the logs.
pub(in crate::store) const COUNT: &str =
    "SELECT COALESCE(sum(size), 0)::bigint FROM audit.log_heads";

/// Inserts a record that is rolled back.
pub(in crate::store) const PROBE: Texts = Texts {
    sqlite: "INSERT INTO audit_records \
           (tenant, leaf_index, record_hash, kind, recorded_at, body) \
         VALUES ('', 9223372036854775807, x'', 'PROBE', 0, x'')",
    postgres: "INSERT INTO audit.records (tenant, leaf_index, record_hash, kind, recorded_at, body) \
         VALUES ('', 9223372036854775807, '', 'PROBE', 0, '')",
};

/// See [`crate::store::Store::list_archivable`]. Postgres reads the contents apart: the log can be in another database.
pub(in crate::store) const ARCHIVABLE: Texts = Texts {
    sqlite: "SELECT r.leaf_index, r.recorded_at, r.body, \
               CASE WHEN c.salt IS NOT NULL AND c.bytes IS NOT NULL THEN c.content_id END AS hot, \
               length(c.bytes) AS size, \
               c.content_id IN (SELECT h.content_id FROM handoffs AS h \
                 WHERE h.tenant = ?1 AND h.status IN ('PENDING', 'ACCEPTED') \
                   AND h.content_id IS NOT NULL) \
               OR c.content_id IN (SELECT h.sent_id FROM handoffs AS h \
                 WHERE h.tenant = ?1 AND h.status IN ('PENDING', 'ACCEPTED') \
                   AND h.sent_id IS NOT NULL) \
               OR EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = r.tenant \
                 AND h.handoff_id = r.handoff_id AND h.status IN ('PENDING', 'ACCEPTED')) \
               OR EXISTS (SELECT 1 FROM returns AS b WHERE b.tenant = r.tenant \
                 AND b.handoff_id = r.handoff_id) \
               OR EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.tenant = r.tenant \
                 AND d.handoff_id = r.handoff_id AND d.status = 'OPEN') \
               OR EXISTS (SELECT 1 FROM tasks AS t WHERE t.tenant = r.tenant \
                 AND t.task_id = r.task_id AND t.status = 'ESCALATED') AS held \
             FROM audit_records AS r \
             LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
             WHERE r.tenant = ?1 AND r.leaf_index >= ?2 AND r.leaf_index < ?2 + ?3 \
             ORDER BY r.leaf_index",
    postgres: "SELECT leaf_index, recorded_at, body, content_id, task_id, handoff_id \
             FROM audit.records WHERE tenant = $1 AND leaf_index >= $2 AND leaf_index < $2 + $3 \
             ORDER BY leaf_index",
};

/// Contents of all records of these tasks, which have an index; the words of legal holds outlive erasures.
pub(in crate::store) const CONTENTS: Texts = Texts {
    sqlite: "SELECT r.leaf_index, c.content_id FROM json_each(?1) AS t \
         CROSS JOIN audit_records AS r ON r.tenant = ?2 AND r.task_id = t.value \
         CROSS JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
         WHERE r.leaf_index < ?3 AND c.salt IS NOT NULL \
           AND r.kind NOT IN ('LEGAL_HOLD_PLACED', 'LEGAL_HOLD_RELEASED') \
         ORDER BY r.leaf_index",
    postgres: "SELECT r.leaf_index, r.content_id FROM UNNEST($1::text[]) AS t(task_id) \
         JOIN audit.records AS r ON r.tenant = $2 AND r.task_id = t.task_id \
         WHERE r.content_id IS NOT NULL AND r.leaf_index < $3 \
           AND r.kind NOT IN ('LEGAL_HOLD_PLACED', 'LEGAL_HOLD_RELEASED') \
         ORDER BY r.leaf_index",
};

/// A page of records as the purge looks at them.
pub(in crate::store) const AGED: Texts = Texts {
    sqlite: "SELECT r.leaf_index, r.kind, r.recorded_at, r.task_id, r.handoff_id, \
           CASE WHEN c.salt IS NOT NULL THEN c.content_id END AS content_id \
         FROM audit_records AS r \
         LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
         WHERE r.tenant = ?1 AND r.leaf_index >= ?2 AND r.leaf_index < ?2 + ?3 \
         ORDER BY r.leaf_index",
    postgres: "SELECT leaf_index, kind, recorded_at, task_id, handoff_id, content_id FROM audit.records \
         WHERE tenant = $1 AND leaf_index >= $2 AND leaf_index < $2 + $3 ORDER BY leaf_index",
};

/// Records of these tasks that have one of these contents.
pub(in crate::store) const SHARING: Texts = Texts {
    sqlite: "SELECT r.content_id, r.leaf_index, r.recorded_at FROM json_each(?2) AS t \
         CROSS JOIN audit_records AS r ON r.tenant = ?1 AND r.task_id = t.value \
         WHERE r.content_id IN (SELECT value FROM json_each(?3)) ORDER BY r.leaf_index",
    postgres: "SELECT r.content_id, r.leaf_index, r.recorded_at FROM UNNEST($2::text[]) AS t(task_id) \
         JOIN audit.records AS r ON r.tenant = $1 AND r.task_id = t.task_id \
         WHERE r.content_id = ANY($3) ORDER BY r.leaf_index",
};

/// Postgres: the records of data in an access report.
pub(in crate::store) const HELD_RECORDS: &str = "SELECT leaf_index, kind, record_hash, recorded_at, task_id, handoff_id FROM audit.records \
         WHERE tenant = $1 AND leaf_index = ANY($2) ORDER BY leaf_index";

/// Postgres: tenants that a table of the log names.
pub(in crate::store) const NAMED: &str =
    "SELECT tenant FROM audit.log_heads UNION SELECT tenant FROM audit.records";

/// Postgres: the places of a task's records.
pub(in crate::store) const PLACES: &str = "SELECT leaf_index FROM audit.records WHERE tenant = $1 AND task_id = $2 \
             AND leaf_index >= $3 ORDER BY leaf_index LIMIT $4";

/// Creates a log, unless the tenant has one.
pub(in crate::store) const ADD_LOG: Texts = Texts {
    sqlite: "INSERT INTO audit_log_heads (tenant, log_id, size, hash) VALUES (?, ?, 0, x'') \
         ON CONFLICT DO NOTHING",
    postgres: "INSERT INTO audit.log_heads (tenant, log_id, size, hash) VALUES ($1, $2, 0, ''::bytea) \
         ON CONFLICT DO NOTHING",
};

/// See [`crate::store::Store::find_log`].
pub(in crate::store) const FIND_LOG: Texts = Texts {
    sqlite: "SELECT tenant FROM audit_log_heads WHERE log_id = ?",
    postgres: "SELECT tenant FROM audit.log_heads WHERE log_id = $1",
};

/// Hashes of the tree above the leaves.
pub(in crate::store) const NODES: Texts = Texts {
    sqlite: "SELECT hash FROM audit_nodes \
             WHERE tenant = ? AND level = ? AND idx >= ? ORDER BY idx LIMIT ?",
    postgres: "SELECT hash FROM audit.nodes \
             WHERE tenant = $1 AND level = $2 AND idx >= $3 ORDER BY idx LIMIT $4",
};

/// See [`crate::store::Store::list_tree_keys`].
pub(in crate::store) const TREE_KEYS: Texts = Texts {
    sqlite: "SELECT public_key, created_at, retired_at FROM audit_tree_keys \
         ORDER BY created_at, public_key",
    postgres: "SELECT public_key, created_at, retired_at FROM audit.tree_keys \
         ORDER BY created_at, public_key",
};

/// Retires the keys other than one that was not retired.
pub(in crate::store) const RETIRE_KEYS: Texts = Texts {
    sqlite: "UPDATE audit_tree_keys SET retired_at = ?1 \
             WHERE retired_at IS NULL AND public_key <> ?2 AND NOT EXISTS \
               (SELECT 1 FROM audit_tree_keys WHERE public_key = ?2 AND retired_at IS NOT NULL)",
    postgres: "UPDATE audit.tree_keys SET retired_at = $1 \
             WHERE retired_at IS NULL AND public_key <> $2 AND NOT EXISTS \
               (SELECT 1 FROM audit.tree_keys WHERE public_key = $2 AND retired_at IS NOT NULL)",
};

/// Adds a key, if it is the first one or if the others were retired.
pub(in crate::store) const ADD_KEY: Texts = Texts {
    sqlite: "INSERT INTO audit_tree_keys (public_key, created_at) SELECT ?1, ?2 \
         WHERE ?3 OR NOT EXISTS (SELECT 1 FROM audit_tree_keys) ON CONFLICT DO NOTHING",
    postgres: "INSERT INTO audit.tree_keys (public_key, created_at) SELECT $1, $2 \
         WHERE $3 OR NOT EXISTS (SELECT 1 FROM audit.tree_keys) ON CONFLICT DO NOTHING",
};

/// Whether a key is in use.
pub(in crate::store) const KEY_IN_USE: Texts = Texts {
    sqlite: "SELECT 1 FROM audit_tree_keys WHERE public_key = ? AND retired_at IS NULL",
    postgres: "SELECT 1 FROM audit.tree_keys WHERE public_key = $1 AND retired_at IS NULL",
};

/// The record of a handoff that a condition finds.
pub(in crate::store) fn of_handoff(dialect: Dialect, rest: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT log_id, leaf_index, record_hash, body, tree_size FROM audit_records \
         JOIN audit_log_heads USING (tenant) WHERE tenant = ? AND handoff_id = ? AND {rest}"
        ),
        Dialect::Postgres => format!(
            "SELECT h.log_id, r.leaf_index, r.record_hash, r.body, r.tree_size FROM audit.records AS r \
         JOIN audit.log_heads AS h ON h.tenant = r.tenant \
         WHERE r.tenant = $1 AND r.handoff_id = $2 AND {rest}"
        ),
    }
}

/// Postgres: which of these handoffs have no record.
pub(in crate::store) const UNRECORDED: &str = "SELECT h.id FROM UNNEST($2::text[]) AS h(id) WHERE NOT EXISTS ( \
               SELECT 1 FROM audit.records AS r WHERE r.tenant = $1 AND r.handoff_id = h.id \
               AND r.kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP')) ORDER BY h.id";

/// See [`crate::store::Store::list_task_records`].
pub(in crate::store) const OF_TASKS: Texts = Texts {
    sqlite: "WITH wanted (i) AS (SELECT value FROM json_each(?)) \
         SELECT leaf_index, record_hash, kind, task_id, handoff_id, recorded_at, body \
         FROM wanted CROSS JOIN audit_records ON tenant = ? AND task_id = i AND leaf_index >= ? \
         ORDER BY leaf_index LIMIT ?",
    postgres: "SELECT leaf_index, record_hash, kind, task_id, handoff_id, recorded_at, body \
         FROM audit.records WHERE tenant = $1 AND task_id = ANY($2) AND leaf_index >= $3 \
         ORDER BY leaf_index LIMIT $4",
};

/// SQLite: moves a log's head.
pub(in crate::store) const MOVE_HEAD: &str =
    "UPDATE audit_log_heads SET size = ?, hash = ?, frontier = ? WHERE tenant = ?";

/// Postgres: locks the heads of logs.
pub(in crate::store) const LOCK_HEADS: &str = "SELECT tenant, log_id, size, hash, frontier FROM audit.log_heads \
     WHERE tenant = ANY($1) ORDER BY tenant FOR UPDATE";

/// See [`crate::store::Store::find_head`].
pub(in crate::store) fn head(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!("SELECT {HEAD} FROM audit_log_heads WHERE tenant = ?"),
        Dialect::Postgres => format!("SELECT {HEAD} FROM audit.log_heads WHERE tenant = $1"),
    }
}

/// SQLite: all heads.
pub(in crate::store) fn heads() -> String {
    format!("SELECT {HEAD} FROM audit_log_heads")
}

/// Postgres: the tenants of all heads.
pub(in crate::store) const HEADS: &str = "SELECT tenant FROM audit.log_heads ORDER BY tenant";

/// Hashes of a log's records.
pub(in crate::store) const LEAVES: Texts = Texts {
    sqlite: "SELECT record_hash AS hash FROM audit_records \
             WHERE tenant = ? AND leaf_index >= ? ORDER BY leaf_index LIMIT ?",
    postgres: "SELECT record_hash AS hash FROM audit.records \
               WHERE tenant = $1 AND leaf_index >= $2 ORDER BY leaf_index LIMIT $3",
};

/// Selects the record that committed a handoff, else the one that created its dead letter; in SQLite in the words of the
/// index `records_handoff`.
pub(in crate::store) const RECEIPT: Texts = Texts {
    sqlite: "(kind = 'HANDOFF' OR kind = 'DEAD_LETTERED' OR kind = 'NO_OP') \
             ORDER BY kind = 'DEAD_LETTERED', leaf_index LIMIT 1",
    postgres: "r.kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP') \
               ORDER BY r.kind = 'DEAD_LETTERED', r.leaf_index LIMIT 1",
};

/// Selects the last record of a task that committed a handoff's message.
pub(in crate::store) const LAST_COMMIT: Texts = Texts {
    sqlite: "task_id = ? AND kind IN ('HANDOFF', 'NO_OP', 'STREAM_CLOSED') \
             ORDER BY leaf_index DESC LIMIT 1",
    postgres: "r.task_id = $3 AND r.kind IN ('HANDOFF', 'NO_OP', 'STREAM_CLOSED') \
               ORDER BY r.leaf_index DESC LIMIT 1",
};

/// Selects the record of a handoff's second opinion, among those of its task, which have an index.
pub(in crate::store) const OPINION: Texts = Texts {
    sqlite: "task_id = ? AND kind = 'SECOND_OPINION' ORDER BY leaf_index LIMIT 1",
    postgres: "r.task_id = $3 AND r.kind = 'SECOND_OPINION' ORDER BY r.leaf_index LIMIT 1",
};

/// SQLite: see [`crate::store::Store::list_records`]. The contents come with the records.
pub(in crate::store) fn list_with_contents(
    tenant: &TenantId,
    which: WhichRecords,
    from: i64,
    limit: i64,
    contents: bool,
) -> Statement<'_> {
    let mut list = Statement::new(
        "SELECT r.leaf_index, r.record_hash, r.kind, r.task_id, r.handoff_id, r.recorded_at, \
         r.body",
    );
    if contents {
        list = list.push(&format!(
            ", c.content_id, {KEPT} FROM audit_records AS r \
             LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id"
        ));
    } else {
        list = list.push(" FROM audit_records AS r");
    }
    list = list.push(" WHERE r.tenant = ").push_bind(tenant);
    list = match which {
        WhichRecords::All => list,
        WhichRecords::OfTask(task) => list.push(" AND r.task_id = ").push_bind(task),
        WhichRecords::AboutState => list.push(" AND ").push(&about_state(Dialect::Sqlite)),
        WhichRecords::NewestOfTask(task, window) => {
            let list = list.push(" AND r.task_id = ").push_bind(task);
            let list = list.push(" AND r.leaf_index < ").push_bind(window.before);
            let list = list.push(" AND r.recorded_at >= ").push_bind(window.from);
            list.push(" AND r.recorded_at < ").push_bind(window.until)
        }
    };
    list = list.push(" AND r.leaf_index >= ").push_bind(from).push(" ORDER BY r.leaf_index");
    if matches!(which, WhichRecords::NewestOfTask(..)) {
        list = list.push(" DESC");
    }
    list.push(" LIMIT ").push_bind(limit.max(0))
}

/// Postgres: see [`crate::store::Store::list_records`]. The contents are read apart: the log can be in another database.
pub(in crate::store) fn list(
    tenant: &TenantId,
    which: WhichRecords,
    from: i64,
    limit: i64,
) -> Statement<'_> {
    let list = Statement::new(
        "SELECT leaf_index, record_hash, kind, task_id, handoff_id, content_id, recorded_at, body \
         FROM audit.records WHERE tenant = ",
    );
    let list = list.push_bind(tenant).push(" AND leaf_index >= ").push_bind(from);
    let list = match which {
        WhichRecords::All => list,
        WhichRecords::OfTask(task) => list.push(" AND task_id = ").push_bind(task),
        WhichRecords::AboutState => list.push(" AND ").push(&about_state(Dialect::Postgres)),
        WhichRecords::NewestOfTask(task, window) => {
            let list = list.push(" AND task_id = ").push_bind(task);
            let list = list.push(" AND leaf_index < ").push_bind(window.before);
            let list = list.push(" AND recorded_at >= ").push_bind(window.from);
            list.push(" AND recorded_at < ").push_bind(window.until)
        }
    };
    let newest = matches!(which, WhichRecords::NewestOfTask(..));
    let order = if newest { " ORDER BY leaf_index DESC" } else { " ORDER BY leaf_index" };
    list.push(order).push(" LIMIT ").push_bind(limit)
}

/// Selects records about the state of objects, in the words of the index `records_state`, which serves no others.
fn about_state(dialect: Dialect) -> String {
    let kinds = RecordKind::ABOUT_STATE.map(RecordKind::as_str);
    match dialect {
        Dialect::Sqlite => {
            format!("({})", kinds.map(|kind| format!("r.kind = '{kind}'")).join(" OR "))
        }
        Dialect::Postgres => {
            format!("kind IN ({})", kinds.map(|kind| format!("'{kind}'")).join(", "))
        }
    }
}

impl Store {
    /// The records of the next `limit` leaf indexes, in log order.
    pub async fn list_archivable(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Archivable>> {
        by_driver!(self, db => db.list_archivable(tenant, from, limit))
    }

    /// Adds the missing records to trees of logs last written by a version without trees.
    pub async fn catch_up_trees(&self) -> Result<()> {
        by_each_driver!(self, db => db.catch_up_trees())
    }

    /// Present and former public keys for tree heads, oldest first.
    pub async fn list_tree_keys(&self) -> Result<Vec<TreeKeyRow>> {
        by_driver!(self, db => db.list_tree_keys())
    }

    /// Makes `public` the key for tree heads if there is none yet, or if `rotate` is set, which retires the
    /// others. Returns whether `public` is in use.
    pub async fn settle_tree_key(&self, public: &Hash, at: Micros, rotate: bool) -> Result<bool> {
        by_driver!(self, db => db.settle_tree_key(public, at, rotate))
    }

    /// The record that committed a handoff (or created its dead letter), with its log's id.
    pub async fn find_receipt(&self, key: &HandoffKey) -> Result<Option<SealedRecord>> {
        by_each_driver!(self, db => db.find_receipt(key))
    }

    /// The last record that committed a handoff's message: as a whole, released, or at the close of its stream. `task` is
    /// the handoff's.
    pub async fn find_last_commit(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        by_each_driver!(self, db => db.find_last_commit(key, task))
    }

    /// The record of a handoff's second opinion, where one was asked for after the commit. `task` is the handoff's.
    pub async fn find_opinion(
        &self,
        key: &HandoffKey,
        task: TaskId,
    ) -> Result<Option<SealedRecord>> {
        by_each_driver!(self, db => db.find_opinion(key, task))
    }

    /// Records from a leaf index on, in log order, of one task if given; with contents if `contents` is set.
    pub async fn list_records(
        &self,
        tenant: &TenantId,
        task: Option<TaskId>,
        from: i64,
        limit: i64,
        contents: bool,
    ) -> Result<Vec<StoredRecord>> {
        by_each_driver!(self, db => db.list_records(tenant, task, from, limit, contents))
    }

    /// A task's records in a window, newest first, with contents.
    pub async fn list_newest_records(
        &self,
        tenant: &TenantId,
        task: TaskId,
        window: RecordWindow,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        by_each_driver!(self, db => db.list_newest_records(tenant, task, window, limit))
    }

    /// Records of these tasks from a leaf index on, in log order, without contents.
    pub async fn list_task_records(
        &self,
        tenant: &TenantId,
        tasks: &[TaskId],
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        by_each_driver!(self, db => db.list_task_records(tenant, tasks, from, limit))
    }

    /// Records about the state of objects ([`ABOUT_STATE`](handoffd_evidence::record::RecordKind::ABOUT_STATE)) from a leaf index on, in log order, with contents.
    pub async fn list_state_records(
        &self,
        tenant: &TenantId,
        from: i64,
        limit: i64,
    ) -> Result<Vec<StoredRecord>> {
        by_each_driver!(self, db => db.list_state_records(tenant, from, limit))
    }

    /// The log's head: id, size, hash, the tree's right edge.
    pub async fn find_head(&self, tenant: &TenantId) -> Result<Option<LogHead>> {
        by_each_driver!(self, db => db.find_head(tenant))
    }

    /// The tenant of a log id; reads the head of every log.
    pub async fn find_log(&self, log_id: &str) -> Result<Option<TenantId>> {
        by_each_driver!(self, db => db.find_log(log_id))
    }

    /// Hashes of a log's tree at a tile level (0: the leaves; each further level is eight above), from an index
    /// on.
    pub async fn list_hashes(
        &self,
        tenant: &TenantId,
        level: i64,
        from: i64,
        limit: i64,
    ) -> Result<Vec<Hash>> {
        by_each_driver!(self, db => db.list_hashes(tenant, level, from, limit))
    }

    /// Waits until the log has every record of committed operations. With one database that is always so. With a
    /// separate log database it takes a moment, or until the half-done batch of a stopped broker is resolved.
    pub async fn settle_log(&self, tenant: &TenantId) -> Result<()> {
        by_each_driver!(self, db => db.settle_log(tenant))
    }

    /// With a separate log database: resolves batches that brokers left between the two databases, as far as they
    /// are in `seen`, and sets `seen` to the current ones. Returns the number resolved. Safe at any time: a slow
    /// batch is waited for.
    pub async fn settle_in_doubt(&self, seen: &mut BTreeSet<String>) -> Result<u64> {
        by_each_driver!(self, db => db.settle_in_doubt(seen))
    }

    /// Handoffs without a record, at most ten. An intact database has none.
    pub async fn list_unrecorded(&self, tenant: &TenantId) -> Result<Vec<String>> {
        by_each_driver!(self, db => db.list_unrecorded(tenant))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrations::{MigrationSet, POSTGRES, POSTGRES_AUDIT, SQLITE};

    /// The predicate of `records_state` in the last migration that makes the index, in one line.
    fn predicate(migrations: MigrationSet) -> String {
        let made = migrations.iter().rev().find_map(|(_, _, text)| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let (_, index) = text.split_once("CREATE INDEX records_state ")?;
            let (_, predicate) = index.split_once(" WHERE ")?;
            Some(predicate.split_once(';')?.0.to_owned())
        });
        made.unwrap_or_default()
    }

    #[test]
    fn records_about_state_are_selected_in_the_words_of_their_index() {
        assert_eq!(about_state(Dialect::Postgres), predicate(POSTGRES));
        assert_eq!(about_state(Dialect::Postgres), predicate(POSTGRES_AUDIT));
        let sqlite = about_state(Dialect::Sqlite).replace("r.kind", "kind");
        assert_eq!(sqlite, format!("({})", predicate(SQLITE)));
    }
}
