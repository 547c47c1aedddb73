//! Statements, values and rows in one form for both databases, so that a query and a row's decoder are stated once.
//!
//! A statement is written with `$1` for its values, as Postgres has it; SQLite gets `?1`. If the dialects differ, the
//! table's file has both texts in one function and asks [`Store::dialect`](super::Store::dialect).

use std::borrow::Cow;

use handoffd_domain::ids::{
    AgentId, ContentId, EscalationId, ExecutionId, HandoffId, Micros, TaskId, TenantId,
};

use super::{Result, StoreError};

/// A column holds a value that this version cannot read.
pub(super) fn unreadable(column: &str, detail: impl std::fmt::Display) -> StoreError {
    StoreError::Refused(format!("column {column} cannot be read: {detail}"))
}

/// Which texts a database takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// A condition that `value` is one of the texts in the list `$n`, as `place` is written.
    pub(super) fn is_among(self, value: &str, place: &str) -> String {
        match self {
            Self::Sqlite => format!("{value} IN (SELECT value FROM json_each({place}))"),
            Self::Postgres => format!("{value} = ANY({place})"),
        }
    }
}

/// The columns of a table, each with its type in Postgres.
pub(super) type Columns = &'static [(&'static str, &'static str)];

/// The type of a column, or of a value for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Long,
    Int,
    Flag,
    Bytes,
}

impl Kind {
    /// The type's name in Postgres.
    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Long => "bigint",
            Self::Int => "integer",
            Self::Flag => "boolean",
            Self::Bytes => "bytea",
        }
    }
}

/// A value to bind.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null(Kind),
    Text(Cow<'a, str>),
    Long(i64),
    Int(i32),
    Flag(bool),
    Bytes(Cow<'a, [u8]>),
    /// A list for [`Dialect::is_among`].
    Texts(Vec<String>),
    /// As [`Value::Texts`], of numbers.
    Longs(Vec<i64>),
}

impl Value<'_> {
    /// The same, for longer than the row that it is of.
    pub(super) fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null(kind) => Value::Null(kind),
            Self::Text(text) => Value::Text(text.into_owned().into()),
            Self::Long(number) => Value::Long(number),
            Self::Int(number) => Value::Int(number),
            Self::Flag(flag) => Value::Flag(flag),
            Self::Bytes(bytes) => Value::Bytes(bytes.into_owned().into()),
            Self::Texts(texts) => Value::Texts(texts),
            Self::Longs(numbers) => Value::Longs(numbers),
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_long(&self) -> Option<i64> {
        if let Self::Long(number) = self { Some(*number) } else { None }
    }

    pub(super) fn as_int(&self) -> Option<i32> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    pub(super) fn as_flag(&self) -> Option<bool> {
        if let Self::Flag(flag) = self { Some(*flag) } else { None }
    }

    pub(super) fn as_bytes(&self) -> Option<&[u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }
}

/// A type that is bound as one kind of value.
pub(super) trait IntoValue<'a> {
    const KIND: Kind;
    fn value(self) -> Value<'a>;
}

impl<'a, T: IntoValue<'a>> IntoValue<'a> for Option<T> {
    const KIND: Kind = T::KIND;
    fn value(self) -> Value<'a> {
        self.map_or(Value::Null(T::KIND), T::value)
    }
}

macro_rules! values {
    ($($kind:ident: $from:ty => |$value:ident| $into:expr;)+) => {$(
        impl<'a> IntoValue<'a> for $from {
            const KIND: Kind = Kind::$kind;
            fn value(self) -> Value<'a> {
                let $value = self;
                Value::$kind($into)
            }
        }
    )+};
}

values! {
    Text: &'a str => |text| text.into();
    Text: String => |text| text.into();
    Text: Cow<'a, str> => |text| text;
    Text: &'a String => |text| text.as_str().into();
    Text: &'a TenantId => |id| id.as_str().into();
    Text: &'a AgentId => |id| id.as_str().into();
    Text: TaskId => |id| id.to_string().into();
    Text: HandoffId => |id| id.to_string().into();
    Text: ContentId => |id| id.to_string().into();
    Text: ExecutionId => |id| id.to_string().into();
    Text: EscalationId => |id| id.to_string().into();
    Long: i64 => |number| number;
    Long: Micros => |at| at.0;
    Int: i32 => |number| number;
    Flag: bool => |flag| flag;
    Bytes: &'a [u8] => |bytes| bytes.into();
    Bytes: &'a [u8; 32] => |bytes| bytes.as_slice().into();
    Bytes: &'a Vec<u8> => |bytes| bytes.as_slice().into();
    Bytes: Vec<u8> => |bytes| bytes.into();
}

/// The two texts of a statement that the dialects spell differently; `?` is a value in SQLite's.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

impl<'a> IntoValue<'a> for &[i64] {
    const KIND: Kind = Kind::Long;
    fn value(self) -> Value<'a> {
        Value::Longs(self.to_vec())
    }
}

/// A statement with its values.
#[derive(Debug, Clone)]
pub(super) struct Statement<'a> {
    pub(super) text: Cow<'a, str>,
    pub(super) values: Vec<Value<'a>>,
    /// The columns that it selects, where they are those of one table; else empty.
    pub(super) columns: Columns,
}

impl<'a> Statement<'a> {
    /// A statement with `$1` and so on for its values, and no other `$`.
    pub(super) fn new(text: impl Into<Cow<'a, str>>) -> Self {
        Self { text: text.into(), values: Vec::new(), columns: &[] }
    }

    /// States that it selects these columns, and no others.
    pub(super) fn of(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// Adds the next value.
    pub(super) fn bind(mut self, value: impl IntoValue<'a>) -> Self {
        self.values.push(value.value());
        self
    }

    /// Adds to the text.
    pub(super) fn push(mut self, text: &str) -> Self {
        self.text.to_mut().push_str(text);
        self
    }

    /// Adds a value where the text ends.
    pub(super) fn push_bind(self, value: impl IntoValue<'a>) -> Self {
        let place = self.values.len() + 1;
        self.push(&format!("${place}")).bind(value)
    }

    /// Adds a list for [`Dialect::is_among`].
    pub(super) fn bind_list<'t>(mut self, texts: impl IntoIterator<Item = &'t str>) -> Self {
        self.values.push(Value::Texts(texts.into_iter().map(str::to_owned).collect()));
        self
    }

    /// The text as SQLite takes it.
    pub(super) fn for_sqlite(&self) -> String {
        self.text.replace('$', "?")
    }
}

/// A row of either database. A column is read by its name; an error says which one, and never the value.
pub(super) trait Row {
    fn text(&self, column: &str) -> Result<Option<&str>>;
    fn bytes(&self, column: &str) -> Result<Option<&[u8]>>;
    fn long(&self, column: &str) -> Result<Option<i64>>;
    fn int(&self, column: &str) -> Result<Option<i32>>;
    fn flag(&self, column: &str) -> Result<Option<bool>>;
}

impl dyn Row + '_ {
    /// Reads one column. A null is an error unless `V` is an option.
    pub(super) fn get<'r, V: FromColumn<'r>>(&'r self, column: &str) -> Result<V> {
        V::read(self, column)
    }
}

/// A type that a column is read as.
pub(super) trait FromColumn<'r>: Sized {
    fn read(row: &'r (dyn Row + 'r), column: &str) -> Result<Self>;
}

macro_rules! readable {
    ($($by:ident: $($into:ty),+;)+) => {$($(
        impl<'r> FromColumn<'r> for Option<$into> {
            fn read(row: &'r (dyn Row + 'r), column: &str) -> Result<Self> {
                Ok(row.$by(column)?.map(Into::into))
            }
        }

        impl<'r> FromColumn<'r> for $into {
            fn read(row: &'r (dyn Row + 'r), column: &str) -> Result<Self> {
                row.$by(column)?.map(Into::into).ok_or_else(|| unreadable(column, "it is null"))
            }
        }
    )+)+};
}

readable! {
    text: &'r str, String;
    bytes: &'r [u8], Vec<u8>;
    long: i64;
    int: i32;
    flag: bool;
}

/// Reads a row.
pub(super) type Decode<T> = fn(&dyn Row) -> Result<T>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_one_text_for_both_databases() {
        let statement = Statement::new("SELECT a FROM t WHERE b = $2 AND c > $1").bind(1i64);
        assert_eq!(statement.for_sqlite(), "SELECT a FROM t WHERE b = ?2 AND c > ?1");
    }

    #[test]
    fn a_value_has_the_number_of_its_place() {
        let list = Statement::new("SELECT a FROM t WHERE b = ").push_bind("x");
        let list = list.push(" AND c > ").push_bind(1i64);
        assert_eq!(list.text, "SELECT a FROM t WHERE b = $1 AND c > $2");
        assert_eq!(list.values.len(), 2);
    }

    #[test]
    fn a_null_has_the_kind_of_its_type() {
        assert!(matches!(None::<Micros>.value(), Value::Null(Kind::Long)));
        assert!(matches!(Some("a").value(), Value::Text(_)));
    }
}
