//! Statements that are carried out each by itself.

use super::SqliteStore;
use crate::store::Result;
use crate::store::query::{Decode, Statement};

impl SqliteStore {
    pub(in crate::store) async fn list<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Vec<T>> {
        self.read(|db| db.statement(&statement).list(decode)).await
    }

    pub(in crate::store) async fn find<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        self.read(|db| db.statement(&statement).find(decode)).await
    }

    pub(in crate::store) async fn change(&self, statement: Statement<'_>) -> Result<u64> {
        self.write(|db| db.statement(&statement).execute()).await
    }

    pub(in crate::store) async fn change_one<T: Send>(
        &self,
        statement: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        self.write(|db| db.statement(&statement).find(decode)).await
    }

    pub(in crate::store) async fn insert_or_find<T: Send>(
        &self,
        insert: Statement<'_>,
        find: Statement<'_>,
        decode: Decode<T>,
    ) -> Result<Option<T>> {
        self.write(|db| {
            if db.statement(&insert).execute()? > 0 {
                return Ok(None);
            }
            db.statement(&find).find(decode)
        })
        .await
    }
}
