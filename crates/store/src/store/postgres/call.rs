//! A statement with its values, encoded as they are bound.

use std::borrow::Cow;

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::failure::broken;
use crate::store::query::{self, Kind};
use crate::store::table::{Column, NewRow};
use crate::store::{Result, StoreError};

/// One statement to be sent in a flight.
#[derive(Default)]
pub(super) struct Call {
    pub(super) text: Cow<'static, str>,
    pub(super) types: Vec<Type>,
    bytes: BytesMut,
    /// The end of each value among `bytes`; `None` for a null.
    ends: Vec<Option<usize>>,
    /// The table and the number of rows of each update, which must find them all: they are locked and never deleted,
    /// so a missing row is a defect of the plan, and a retry does not help. The statement's one value has the numbers
    /// that it found.
    pub(super) sought: Vec<(&'static str, usize)>,
    /// Sent by the simple protocol: may hold several statements, and has no values.
    pub(super) plain: bool,
    /// A value that has no form on the wire.
    pub(super) unbound: bool,
    /// Each element of an array is a value of its own.
    pub(super) flat: bool,
}

impl Call {
    /// A statement with `$1` and so on for its values, prepared once a connection.
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Statements without values, not prepared.
    pub(super) fn plain(text: impl Into<Cow<'static, str>>) -> Self {
        Self { plain: true, ..Self::new(text) }
    }

    /// Adds the next value; of a flat call, the elements of an array.
    #[expect(clippy::needless_pass_by_value, reason = "callers bind what they made for it")]
    pub(super) fn bind<T: Value>(mut self, value: T) -> Self {
        if self.flat {
            value.add_flat(&mut self);
        } else {
            self.add(&value);
        }
        self
    }

    /// A statement that is the same for both databases, with its values.
    pub(super) fn of(statement: query::Statement<'static>) -> Self {
        let mut call = Self::new(statement.text);
        for value in &statement.values {
            call.add_value(value);
        }
        call
    }

    /// Adds rows, column by column.
    pub(super) fn rows<T>(mut self, columns: &[Column<T>], rows: &[&T]) -> Self {
        for column in columns {
            self.add_column(column.kind, rows.iter().map(|row| (column.get)(row)));
        }
        self
    }

    /// Adds rows of one table, column by column.
    pub(super) fn new_rows(mut self, rows: &[&NewRow]) -> Self {
        let kinds = rows.first().map_or(&[][..], |row| &row.kinds);
        for (place, kind) in kinds.iter().enumerate() {
            self.add_column(*kind, rows.iter().map(|row| row.values[place].clone()));
        }
        self
    }

    fn add_column<'a>(&mut self, kind: Kind, values: impl Iterator<Item = query::Value<'a>>) {
        if self.flat {
            values.for_each(|value| self.add_value(&value));
        } else {
            self.add_array(kind, &values.collect::<Vec<_>>());
        }
    }

    fn add_array(&mut self, kind: Kind, values: &[query::Value<'_>]) {
        let values = values.iter();
        match kind {
            Kind::Text => self.add(&values.map(query::Value::as_text).collect::<Vec<_>>()),
            Kind::Long => self.add(&values.map(query::Value::as_long).collect::<Vec<_>>()),
            Kind::Int => self.add(&values.map(query::Value::as_int).collect::<Vec<_>>()),
            Kind::Flag => self.add(&values.map(query::Value::as_flag).collect::<Vec<_>>()),
            Kind::Bytes => self.add(&values.map(query::Value::as_bytes).collect::<Vec<_>>()),
        }
    }

    fn add_value(&mut self, value: &query::Value<'_>) {
        match value {
            query::Value::Null(Kind::Text) => self.add(&None::<&str>),
            query::Value::Null(Kind::Long) => self.add(&None::<i64>),
            query::Value::Null(Kind::Int) => self.add(&None::<i32>),
            query::Value::Null(Kind::Flag) => self.add(&None::<bool>),
            query::Value::Null(Kind::Bytes) => self.add(&None::<&[u8]>),
            query::Value::Text(text) => self.add(&&**text),
            query::Value::Long(number) => self.add(number),
            query::Value::Int(number) => self.add(number),
            query::Value::Flag(flag) => self.add(flag),
            query::Value::Bytes(bytes) => self.add(&&**bytes),
            query::Value::Texts(texts) => self.add(texts),
            query::Value::Longs(numbers) => self.add(numbers),
        }
    }

    fn add<T: Value>(&mut self, value: &T) {
        let end = match value.encode(&mut self.bytes) {
            Ok(IsNull::No) => Some(self.bytes.len()),
            Ok(IsNull::Yes) => None,
            Err(_) => {
                self.unbound = true;
                None
            }
        };
        self.ends.push(end);
        self.types.push(T::TYPE);
    }

    /// Checks that each update found its rows.
    pub(super) fn check(&self, rows: &[Row]) -> Result<()> {
        if self.sought.is_empty() {
            return Ok(());
        }
        let counts: Vec<i64> =
            rows.first().map_or_else(|| Ok(Vec::new()), |row| row.try_get(0)).map_err(broken)?;
        for (place, (table, rows)) in self.sought.iter().enumerate() {
            if counts.get(place).and_then(|count| usize::try_from(*count).ok()) != Some(*rows) {
                return Err(StoreError::Denied(format!(
                    "a row of {table} to be updated does not exist"
                )));
            }
        }
        Ok(())
    }

    /// Number of values so far.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The values, in order.
    pub(super) fn values(&self) -> Vec<EncodedValue<'_>> {
        let mut from = 0;
        let value = |end: &Option<usize>| {
            EncodedValue(end.map(|end| &self.bytes[std::mem::replace(&mut from, end)..end]))
        };
        self.ends.iter().map(value).collect()
    }
}

type Encoded = std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>>;

/// A value of a statement; its type is declared when the statement is prepared.
pub(super) trait Value: Sized {
    const TYPE: Type;
    fn encode(&self, bytes: &mut BytesMut) -> Encoded;

    /// Adds the elements of an array, or a value that is none.
    fn add_flat(&self, call: &mut Call) {
        call.add(self);
    }
}

/// An element of an array.
pub(super) trait Element: ToSql + Value {
    const ONE: Type;
    const MANY: Type;
}

macro_rules! elements {
    ($($one:ident $many:ident: $($kind:ty),+;)+) => {$($(
        impl Element for $kind {
            const ONE: Type = Type::$one;
            const MANY: Type = Type::$many;
        }

        impl Value for $kind {
            const TYPE: Type = Type::$one;
            fn encode(&self, bytes: &mut BytesMut) -> Encoded {
                self.to_sql(&Type::$one, bytes)
            }
        }
    )+)+};
}

elements! {
    TEXT TEXT_ARRAY: &str, String;
    INT8 INT8_ARRAY: i64;
    INT4 INT4_ARRAY: i32;
    BOOL BOOL_ARRAY: bool;
    BYTEA BYTEA_ARRAY: &[u8];
}

impl Element for Vec<u8> {
    const ONE: Type = Type::BYTEA;
    const MANY: Type = Type::BYTEA_ARRAY;
}

impl Value for Vec<u8> {
    const TYPE: Type = Type::BYTEA;
    fn encode(&self, bytes: &mut BytesMut) -> Encoded {
        self.to_sql(&Self::TYPE, bytes)
    }
}

impl<T: Element> Element for Option<T> {
    const ONE: Type = T::ONE;
    const MANY: Type = T::MANY;
}

impl<T: Element> Value for Option<T> {
    const TYPE: Type = T::ONE;
    fn encode(&self, bytes: &mut BytesMut) -> Encoded {
        self.to_sql(&Self::TYPE, bytes)
    }
}

impl<T: Element> Value for Vec<T> {
    const TYPE: Type = T::MANY;
    fn encode(&self, bytes: &mut BytesMut) -> Encoded {
        self.to_sql(&Self::TYPE, bytes)
    }

    fn add_flat(&self, call: &mut Call) {
        for one in self {
            call.add(one);
        }
    }
}

/// A value as it goes to the server.
#[derive(Clone, Copy)]
pub(super) struct EncodedValue<'a>(Option<&'a [u8]>);

impl std::fmt::Debug for EncodedValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The driver writes values into its log lines; contents must not be readable there.
        write!(f, "{} bytes", self.0.map_or(0, <[u8]>::len))
    }
}

impl ToSql for EncodedValue<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Encoded {
        let Some(bytes) = self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        // The statement was prepared with the types of its values.
        true
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_call_has_each_element_as_a_value() {
        let flat = Call { flat: true, ..Call::new("SELECT $1, $2, $3, $4, $5") };
        let call = flat.bind(vec!["abc", "d"]).bind(vec![None, Some(7i64)]).bind(vec![vec![1u8]]);
        assert_eq!(call.types, [Type::TEXT, Type::TEXT, Type::INT8, Type::INT8, Type::BYTEA]);
        let values: Vec<_> = call.values().iter().map(|value| value.0).collect();
        let seven = 7i64.to_be_bytes();
        assert_eq!(values, [Some(&b"abc"[..]), Some(b"d"), None, Some(&seven), Some(&[1])]);
    }

    #[test]
    fn values_keep_their_order_types_and_nulls() {
        let call = Call::new("SELECT $1, $2, $3, $4")
            .bind("abc")
            .bind(None::<i64>)
            .bind(7i64)
            .bind(vec![Some("x"), None]);
        assert_eq!(call.types, [Type::TEXT, Type::INT8, Type::INT8, Type::TEXT_ARRAY]);
        let values = call.values();
        assert_eq!(values[0].0, Some(&b"abc"[..]));
        assert_eq!(values[1].0, None);
        assert_eq!(values[2].0, Some(&7i64.to_be_bytes()[..]));
        // Dimensions, has nulls, element type; length and lower bound; one element, one null.
        let array = values[3].0.expect("an array");
        assert_eq!(array.len(), 12 + 8 + 5 + 4);
        assert_eq!(call.len(), 4);
    }
}
