//! Statements of the pool: each is carried out by itself.

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgArguments, PgPool, PgRow, Postgres};

use super::failure::failed;
use super::{PostgresStore, answered};
use crate::store::Result;
use crate::store::query::{Decode, Kind, Row, Statement, Value, unreadable};

impl PostgresStore {
    pub(in crate::store) async fn list<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Vec<T>> {
        answered(async {
            let found = bound(statement).fetch_all(&self.pool).await.map_err(failed)?;
            found.iter().map(|row| decode(row)).collect()
        })
        .await
    }

    pub(in crate::store) async fn find<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        answered(find(&self.pool, statement, decode)).await
    }

    pub(in crate::store) async fn change(&self, statement: Statement<'_>) -> Result<u64> {
        answered(async {
            let done = bound(statement).execute(&self.pool).await.map_err(failed)?;
            Ok(done.rows_affected())
        })
        .await
    }

    pub(in crate::store) async fn change_one<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        answered(find(&self.pool, statement, decode)).await
    }

    pub(in crate::store) async fn insert_or_find<T: Send>(
        &self,
        insert: Statement<'_>,
        known: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        if self.change(insert).await? > 0 {
            return Ok(None);
        }
        // A statement of its own, so that it sees what another broker committed.
        answered(find(&self.pool, known, decode)).await
    }
}

async fn find<T>(pool: &PgPool, statement: Statement<'_>, decode: Decode<T>) -> Result<Option<T>> {
    let found = bound(statement).fetch_optional(pool).await.map_err(failed)?;
    found.map(|row| decode(&row)).transpose()
}

type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

pub(super) fn bound(statement: Statement<'_>) -> Query<'static> {
    let query = sqlx::query(AssertSqlSafe(statement.text.into_owned()));
    statement.values.into_iter().fold(query, bind)
}

fn bind<'q>(query: Query<'q>, value: Value<'_>) -> Query<'q> {
    match value {
        Value::Null(Kind::Text) => query.bind(None::<String>),
        Value::Null(Kind::Long) => query.bind(None::<i64>),
        Value::Null(Kind::Int) => query.bind(None::<i32>),
        Value::Null(Kind::Flag) => query.bind(None::<bool>),
        Value::Null(Kind::Bytes) => query.bind(None::<Vec<u8>>),
        Value::Text(text) => query.bind(text.into_owned()),
        Value::Long(number) => query.bind(number),
        Value::Int(number) => query.bind(number),
        Value::Flag(flag) => query.bind(flag),
        Value::Bytes(bytes) => query.bind(bytes.into_owned()),
        Value::Texts(texts) => query.bind(texts),
        Value::Longs(numbers) => query.bind(numbers),
    }
}

macro_rules! rows {
    ($row:ty, $get:ident, $($kind:ident: $as:ty),+) => {
        impl Row for $row {$(
            fn $kind(&self, column: &str) -> Result<Option<$as>> {
                $get(self, column)
            }
        )+}
    };
}

fn pooled<'r, T>(row: &'r PgRow, column: &str) -> Result<T>
where
    T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    sqlx::Row::try_get(row, column).map_err(|err| unreadable(column, err))
}

fn flown<'r, T: tokio_postgres::types::FromSql<'r>>(
    row: &'r tokio_postgres::Row,
    column: &str,
) -> Result<T> {
    row.try_get(column).map_err(|err| unreadable(column, err))
}

rows!(PgRow, pooled, text: &str, bytes: &[u8], long: i64, int: i32, flag: bool);
rows!(tokio_postgres::Row, flown, text: &str, bytes: &[u8], long: i64, int: i32, flag: bool);
