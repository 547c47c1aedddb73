//! A table as batches write it: its columns and their values are stated once, for both databases.

use super::query::{Columns, Kind, Value};

/// Tables with the privileges of the role that serves.
pub(super) type Rights = &'static [(&'static str, &'static str)];

/// A table's name, its columns with their types in Postgres, and how many of them, from the first on, are its primary key.
#[derive(Debug)]
pub(super) struct BatchTable {
    pub(super) name: &'static str,
    pub(super) keys: usize,
    pub(super) columns: Columns,
}

/// A table whose rows are of the type `T`.
pub(super) struct Table<T: 'static> {
    pub(super) shape: BatchTable,
    /// The names of the columns, as a statement lists them.
    pub(super) list: &'static str,
    pub(super) columns: &'static [Column<T>],
}

/// A row that a batch inserts into a table that no batch reads. `tables/` makes it.
#[derive(Debug, Clone)]
pub struct NewRow {
    pub(super) table: &'static BatchTable,
    pub(super) list: &'static str,
    pub(super) kinds: Vec<Kind>,
    pub(super) values: Vec<Value<'static>>,
}

/// A column, and its value in a row.
pub(super) struct Column<T> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) get: for<'a> fn(&'a T) -> Value<'a>,
    /// Set when the row is inserted. An update leaves it alone: setting it would only rewrite its indexes, or bring back
    /// what an erasure has removed.
    pub(super) fixed: bool,
}

impl<T> Table<T> {
    /// A row for a batch to insert.
    pub(super) fn new_row(&'static self, row: &T) -> NewRow {
        NewRow {
            table: &self.shape,
            list: self.list,
            kinds: self.columns.iter().map(|column| column.kind).collect(),
            values: self.columns.iter().map(|column| (column.get)(row).into_owned()).collect(),
        }
    }

    /// The columns of the primary key.
    pub(super) fn key(&self) -> Vec<&'static str> {
        self.columns[..self.shape.keys].iter().map(|column| column.name).collect()
    }

    /// The columns that an update leaves alone, besides the key.
    pub(super) fn fixed(&self) -> Vec<&'static str> {
        self.columns.iter().filter(|column| column.fixed).map(|column| column.name).collect()
    }
}

/// Describes a table: each column with its kind, `fixed` where an update leaves it alone, and its value in a row. The first
/// columns are the primary key.
macro_rules! table {
    (
        $(#[$doc:meta])*
        $NAME:ident: $row:ty = $name:literal by $keys:literal {
            $first:literal $first_kind:ident $($first_fixed:ident)?: |$first_at:ident| $first_value:expr
            $(, $column:literal $kind:ident $($fixed:ident)?: |$at:ident| $value:expr)+ $(,)?
        }
    ) => {
        $(#[$doc])*
        pub(in $crate::store) const $NAME: $crate::store::table::Table<$row> = $crate::store::table::Table {
            shape: $crate::store::table::BatchTable {
                name: $name,
                keys: $keys,
                columns: &[
                    ($first, $crate::store::query::Kind::$first_kind.sql()),
                    $(($column, $crate::store::query::Kind::$kind.sql())),+
                ],
            },
            list: concat!($first $(, ", ", $column)+),
            columns: &[
                $crate::store::table::Column {
                    name: $first,
                    kind: $crate::store::query::Kind::$first_kind,
                    get: |$first_at| $crate::store::query::IntoValue::value($first_value),
                    fixed: $crate::store::table::table!(@fixed $($first_fixed)?),
                },
                $($crate::store::table::Column {
                    name: $column,
                    kind: $crate::store::query::Kind::$kind,
                    get: |$at| $crate::store::query::IntoValue::value($value),
                    fixed: $crate::store::table::table!(@fixed $($fixed)?),
                }),+
            ],
        };
    };
    (@fixed) => { false };
    (@fixed fixed) => { true };
}
pub(super) use table;
