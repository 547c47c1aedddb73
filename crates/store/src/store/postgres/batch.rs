//! Statements over many rows: a batch of any size is one round trip and one prepared statement. `tables/any.rs` makes the
//! texts.

use std::sync::LazyLock;

use sqlx::postgres::PgRow;

use super::call::Call;
use super::rows;
use crate::store::Result;
use crate::store::query::FromColumn;
use crate::store::table::BatchTable;
pub(super) use crate::store::tables::any::Bound;
use crate::store::tables::any::FEW;

/// Approximate bytes of an array element sent to the server: its length, and an id or a number.
const COLUMN_BYTES: usize = 24;

/// The text of a statement, built once.
pub(super) type Sql = LazyLock<String>;

/// A statement by the form of its rows: [`Bound::Values`] for each count up to [`FEW`], then [`Bound::Arrays`].
pub(super) struct RowsSql(LazyLock<[String; FEW + 1]>);

impl RowsSql {
    pub(super) const fn new(texts: fn() -> [String; FEW + 1]) -> Self {
        Self(LazyLock::new(texts))
    }

    /// The statement for so many rows, without its values.
    pub(super) fn call(&'static self, rows: usize) -> Call {
        let bound = Bound::of(rows);
        let place = if bound == Bound::Arrays { FEW } else { rows.saturating_sub(1) };
        let mut call = Call::new(self.0[place].as_str());
        call.flat = bound != Bound::Arrays;
        call
    }
}

/// The texts of a statement by the form of its rows.
pub(super) fn by_rows(text: impl Fn(Bound) -> String) -> [String; FEW + 1] {
    std::array::from_fn(|place| {
        text(if place < FEW { Bound::Values(place + 1) } else { Bound::Arrays })
    })
}

impl BatchTable {
    /// Approximate bytes of a row without its texts and contents.
    pub(super) fn row_bytes(&self) -> usize {
        self.columns.len() * COLUMN_BYTES
    }
}

/// Binds one array for each column: the values of an expression over all rows.
macro_rules! bind {
    ($query:expr, $rows:expr, |$row:ident| $($value:expr),+ $(,)?) => {
        $query$(.bind($rows.iter().map(|$row| $value).collect::<Vec<_>>()))+
    };
}
pub(super) use bind;

/// One column of the rows read, for binding as an array.
pub(super) fn column<'r, T>(found: &'r [PgRow], name: &str) -> Result<Vec<T>>
where
    T: FromColumn<'r>,
{
    found.iter().map(|row| rows::get(row, name)).collect()
}

const TEXT: &str = "text";
const BIGINT: &str = "bigint";
const BYTEA: &str = "bytea";

pub(super) const CONTENTS: BatchTable = BatchTable {
    name: "contents",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("content_id", TEXT),
        ("salt", BYTEA),
        ("codec", TEXT),
        ("bytes", BYTEA),
        ("created_at", BIGINT),
    ],
};

pub(super) const RECORDS: BatchTable = BatchTable {
    name: "audit.records",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("leaf_index", BIGINT),
        ("record_hash", BYTEA),
        ("kind", TEXT),
        ("task_id", TEXT),
        ("handoff_id", TEXT),
        ("content_id", TEXT),
        ("recorded_at", BIGINT),
        ("body", BYTEA),
        ("tree_size", BIGINT),
    ],
};

pub(super) const PERSONAL_DATA: BatchTable = BatchTable {
    name: "personal_data",
    keys: 3,
    columns: &[
        ("tenant", TEXT),
        ("leaf_index", BIGINT),
        ("ordinal", "integer"),
        ("handoff_id", TEXT),
        ("subject_id", TEXT),
        ("salt", BYTEA),
        ("codec", TEXT),
        ("bytes", BYTEA),
        ("created_at", BIGINT),
    ],
};

pub(super) const HEADS: BatchTable = BatchTable {
    name: "audit.log_heads",
    keys: 1,
    columns: &[("tenant", TEXT), ("size", BIGINT), ("hash", BYTEA), ("frontier", BYTEA)],
};

pub(super) const NODES: BatchTable = BatchTable {
    name: "audit.nodes",
    keys: 3,
    columns: &[("tenant", TEXT), ("level", BIGINT), ("idx", BIGINT), ("hash", BYTEA)],
};

pub(super) const EVENTS: BatchTable = BatchTable {
    name: "events",
    keys: 3,
    columns: &[
        ("tenant", TEXT),
        ("leaf_index", BIGINT),
        ("ordinal", "integer"),
        ("event_id", TEXT),
        ("type", TEXT),
        ("at", BIGINT),
        ("task_id", TEXT),
        ("handoff_id", TEXT),
        ("source", TEXT),
        ("target", TEXT),
        ("audience", TEXT),
        ("data", TEXT),
    ],
};

pub(super) const SUBSCRIPTIONS: BatchTable = BatchTable {
    name: "subscriptions",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("subscription_id", TEXT),
        ("doc", TEXT),
        ("secrets", TEXT),
        ("created_at", BIGINT),
        ("updated_at", BIGINT),
    ],
};

pub(super) const EVENT_DELIVERIES: BatchTable = BatchTable {
    name: "event_deliveries",
    keys: 3,
    columns: &[
        ("tenant", TEXT),
        ("subscriber", TEXT),
        ("slot", "integer"),
        ("number", BIGINT),
        ("leaf_index", BIGINT),
        ("ordinal", "integer"),
        ("event_id", TEXT),
        ("type", TEXT),
        ("at", BIGINT),
        ("attempt", "integer"),
        ("outcome", TEXT),
        ("status", "integer"),
        ("detail", TEXT),
        ("duration_us", BIGINT),
    ],
};

pub(super) const HOLDS: BatchTable = BatchTable {
    name: "legal_holds",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("hold_id", TEXT),
        ("subject_key", BYTEA),
        ("subject_id", TEXT),
        ("task_id", TEXT),
        ("reason", TEXT),
        ("placed_at", BIGINT),
        ("released_at", BIGINT),
    ],
};

pub(super) const ERASURES: BatchTable = BatchTable {
    name: "erasures",
    keys: 2,
    columns: &[
        ("tenant", TEXT),
        ("erasure_id", TEXT),
        ("subject_key", BYTEA),
        ("subject_id", TEXT),
        ("commitment", BYTEA),
        ("scope", TEXT),
        ("reason", TEXT),
        ("status", TEXT),
        ("held", BIGINT),
        ("data", BIGINT),
        ("contents", BIGINT),
        ("checkpoints", BIGINT),
        ("leaf_index", BIGINT),
        ("requested_at", BIGINT),
        ("updated_at", BIGINT),
        ("completed_at", BIGINT),
    ],
};

/// The statements that have rows.
pub(super) fn some<T>(
    statements: [(&'static Sql, Vec<T>); 2],
) -> impl Iterator<Item = (&'static Sql, Vec<T>)> {
    statements.into_iter().filter(|(_, rows)| !rows.is_empty())
}
