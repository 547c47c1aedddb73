//! `personal_data`: one subject's data of one handoff.
//!
//! A row, and how it changes:
//!
//! - `personal_data`: one subject's data of one handoff, indexed by subject. Erased by page.

use crate::store::driver::{by_driver, in_memory};
use crate::store::erasure::SubjectDatum;
use crate::store::query::{Dialect, Row, Statement, Texts, unreadable};
use crate::store::rows::{codec, get};
use crate::store::table::Rights;
use crate::store::{HandoffKey, Result, Store};
use handoffd_domain::ids::TenantId;
use handoffd_evidence::commitment::unpack;

/// Rights of the serving role. Records commit to a row: it is erased, and otherwise as it was written.
pub(super) const RIGHTS: Rights =
    &[("personal_data", "SELECT, INSERT, UPDATE (subject_id, salt, bytes, erasure_id)")];

/// SQLite: the stored data of handoffs. Joined from the list of ids and not by `IN`: only an equality lets SQLite use the
/// partial index.
pub(in crate::store) const OF_HANDOFFS: &str = "SELECT h.handoff_id, p.codec, p.bytes FROM json_each(?1) AS wanted \
         CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = wanted.value \
         CROSS JOIN personal_data AS p ON p.tenant = ?2 \
           AND p.handoff_id = coalesce(h.origin, h.handoff_id) \
         WHERE p.bytes IS NOT NULL ORDER BY p.leaf_index, p.ordinal";

/// The number of a subject's data.
pub(in crate::store) const COUNT: Texts = Texts {
    sqlite: "SELECT count(*) FROM personal_data WHERE tenant = ? AND subject_id = ?",
    postgres: "SELECT count(*) AS held FROM personal_data WHERE tenant = $1 AND subject_id = $2",
};

/// A page of a subject's data.
pub(in crate::store) const OF_SUBJECT: Texts = Texts {
    sqlite: "SELECT leaf_index, ordinal, handoff_id FROM personal_data \
         WHERE tenant = ? AND subject_id = ? AND leaf_index < ? \
         ORDER BY leaf_index, ordinal LIMIT ?",
    postgres: "SELECT leaf_index, ordinal::bigint AS ordinal, handoff_id FROM personal_data \
         WHERE tenant = $1 AND subject_id = $2 AND leaf_index < $3 \
         ORDER BY leaf_index, ordinal LIMIT $4",
};

/// Data of records that are not erased, and whether a legal hold is on their subjects.
pub(in crate::store) const TO_PURGE: Texts = Texts {
    sqlite: "SELECT p.leaf_index, p.ordinal, EXISTS (SELECT 1 FROM legal_holds AS l \
           WHERE l.tenant = p.tenant AND l.subject_id = p.subject_id \
             AND l.released_at IS NULL) AS held \
         FROM personal_data AS p WHERE p.tenant = ? AND p.salt IS NOT NULL \
           AND p.leaf_index IN (SELECT value FROM json_each(?)) ORDER BY p.leaf_index, p.ordinal",
    postgres: "SELECT p.leaf_index, p.ordinal::bigint AS ordinal, EXISTS (SELECT 1 FROM legal_holds AS l \
           WHERE l.tenant = p.tenant AND l.subject_id = p.subject_id AND l.released_at IS NULL) AS held \
         FROM personal_data AS p WHERE p.tenant = $1 AND p.salt IS NOT NULL \
           AND p.leaf_index = ANY($2) ORDER BY p.leaf_index, p.ordinal",
};

/// SQLite: erases data, and sets further columns.
pub(in crate::store) fn erase_these(traced: &str) -> String {
    format!(
        "UPDATE personal_data SET salt = NULL, bytes = NULL, subject_id = ''{traced} \
         WHERE tenant = ? AND (leaf_index, ordinal) IN \
           (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
    )
}

/// Postgres: erases one datum.
pub(in crate::store) const ERASE: &str = "UPDATE personal_data SET salt = NULL, bytes = NULL, subject_id = '', \
               erasure_id = COALESCE($4, erasure_id) \
             WHERE tenant = $1 AND leaf_index = $2 AND ordinal = $3::bigint";

/// Postgres: the places of a subject's data, behind one.
pub(in crate::store) const HELD_PLACES: &str = "SELECT leaf_index FROM personal_data AS p \
         WHERE p.tenant = $1 AND p.subject_id = $2 AND p.bytes IS NOT NULL \
           AND (p.leaf_index, p.ordinal) > ($3, $4) ORDER BY p.leaf_index, p.ordinal LIMIT $5";

/// The data of records.
pub(in crate::store) const AT: Texts = Texts {
    sqlite: "SELECT leaf_index, ordinal, subject_id, salt, codec, bytes FROM personal_data \
         WHERE tenant = ? AND leaf_index IN (SELECT value FROM json_each(?)) \
         ORDER BY leaf_index, ordinal",
    postgres: "SELECT leaf_index, ordinal::bigint AS ordinal, subject_id, salt, codec, bytes \
         FROM personal_data WHERE tenant = $1 AND leaf_index = ANY($2) ORDER BY leaf_index, ordinal",
};

/// Columns of a datum in an access report: of `personal_data AS p`, its record `r` and its handoff `h`.
const HELD: &str = "p.leaf_index, p.ordinal, p.codec, p.bytes, r.kind, r.record_hash, r.recorded_at, r.task_id, r.handoff_id, h.source, h.target, h.status, h.question, h.attempts, h.accepted_at";

/// See [`crate::store::Store::list_held`]. Postgres has the records that it read before from `$5` on.
pub(in crate::store) fn held(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT {HELD} FROM personal_data AS p \
             JOIN audit_records AS r ON r.tenant = p.tenant AND r.leaf_index = p.leaf_index \
             LEFT JOIN handoffs AS h ON h.tenant = r.tenant AND h.handoff_id = r.handoff_id \
             WHERE p.tenant = ? AND p.subject_id = ? AND p.bytes IS NOT NULL \
               AND (p.leaf_index, p.ordinal) > (?, ?) ORDER BY p.leaf_index, p.ordinal LIMIT ?"
        ),
        Dialect::Postgres => {
            let columns = HELD.replace("p.ordinal", "p.ordinal::bigint AS ordinal");
            format!(
                "SELECT {columns} FROM UNNEST($5::bigint[], $6::text[], $7::bytea[], $8::bigint[], $9::text[], \
                   $10::text[]) AS r(leaf_index, kind, record_hash, recorded_at, task_id, handoff_id) \
                 JOIN personal_data AS p ON p.tenant = $1 AND p.leaf_index = r.leaf_index \
                 LEFT JOIN handoffs AS h ON h.tenant = $1 AND h.handoff_id = r.handoff_id \
                 WHERE p.subject_id = $2 AND p.bytes IS NOT NULL \
                   AND (p.leaf_index, p.ordinal) > ($3, $4) ORDER BY p.leaf_index, p.ordinal LIMIT $11"
            )
        }
    }
}

impl Store {
    /// A data subject's stored data after a slot, in log order.
    pub async fn list_held(
        &self,
        tenant: &TenantId,
        subject_id: &str,
        after: Option<handoffd_evidence::erasure::DataSlot>,
        limit: i64,
    ) -> Result<Vec<SubjectDatum>> {
        by_driver!(self, db => db.list_held(tenant, subject_id, after, limit))
    }

    /// The personal data committed with a handoff, unpacked, in order, without erased data.
    pub async fn list_personal_data(&self, key: &HandoffKey) -> Result<Vec<Vec<u8>>> {
        in_memory!(self, db => db.list_personal_data(key));
        let data = Statement::new(
            "SELECT codec, bytes FROM personal_data WHERE tenant = $1 AND handoff_id = $2 \
             AND bytes IS NOT NULL ORDER BY leaf_index, ordinal",
        );
        let open = |row: &dyn Row| {
            unpack(codec(row)?, get(row, "bytes")?).map_err(|err| unreadable("bytes", err))
        };
        self.list(data.bind(&key.0).bind(key.1), open).await
    }
}
