//! `request_keys`: requests that came with an `Idempotency-Key`, and their answers.
//!
//! A row, and how it changes:
//!
//! - `request_keys`: the answer to a request with an `Idempotency-Key`, sealed. Deleted after a day.

use crate::store::query::{Row, Statement};
use crate::store::rows::{get, hash32, micros, parse};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::{Micros, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("request_keys", "SELECT, INSERT, UPDATE (answer), DELETE")];

/// A request under an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRow {
    pub tenant: TenantId,
    /// Keyed hash of the caller and its key.
    pub id: [u8; 32],
    /// Keyed hash of method, path, query and body.
    pub asked: [u8; 32],
    /// The sealed answer; `None` while it is not known.
    pub answer: Option<Vec<u8>>,
    pub created_at: Micros,
}

fn decode(row: &dyn Row) -> Result<RequestRow> {
    Ok(RequestRow {
        tenant: parse(row, "tenant")?,
        id: hash32(row, "request_id")?,
        asked: hash32(row, "asked")?,
        answer: get(row, "answer")?,
        created_at: micros(row, "created_at")?,
    })
}

impl Store {
    /// Claims a key: `None` where this request is the first under it, else the one that was. Of two at once one is the first.
    pub async fn begin_request(&self, row: &RequestRow) -> Result<Option<RequestRow>> {
        let insert = Statement::new(
            "INSERT INTO request_keys (tenant, request_id, asked, created_at) \
             VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        );
        let insert = insert.bind(&row.tenant).bind(&row.id).bind(&row.asked).bind(row.created_at);
        let known = Statement::new(
            "SELECT tenant, request_id, asked, answer, created_at FROM request_keys \
             WHERE tenant = $1 AND request_id = $2",
        );
        self.insert_or_find(insert, known.bind(&row.tenant).bind(&row.id), decode).await
    }

    /// Keeps the answer to a request.
    pub async fn answer_request(
        &self,
        tenant: &TenantId,
        id: &[u8; 32],
        sealed: &[u8],
    ) -> Result<()> {
        self.change(answer(tenant, id, sealed)).await.map(|_| ())
    }

    /// Lets the key be used again: the request changed nothing.
    pub async fn forget_request(&self, tenant: &TenantId, id: &[u8; 32]) -> Result<()> {
        let delete =
            Statement::new("DELETE FROM request_keys WHERE tenant = $1 AND request_id = $2");
        self.change(delete.bind(tenant).bind(id)).await.map(|_| ())
    }

    /// Deletes requests that began before a time; returns their number.
    pub async fn forget_requests(&self, before: Micros) -> Result<u64> {
        self.change(Statement::new("DELETE FROM request_keys WHERE created_at < $1").bind(before))
            .await
    }
}

/// A page of the sealed answers behind `after`, by the keys of their rows.
pub(in crate::store) fn answers((tenant, id): (String, Vec<u8>), limit: i64) -> Statement<'static> {
    let answers = Statement::new(
        "SELECT tenant, request_id, answer FROM request_keys \
         WHERE (tenant, request_id) > ($1, $2) AND answer IS NOT NULL \
         ORDER BY tenant, request_id LIMIT $3",
    );
    answers.bind(tenant).bind(id).bind(limit)
}

/// Sets the answer to a request.
pub(in crate::store) fn answer<'a>(
    tenant: &'a TenantId,
    id: &'a [u8],
    answer: &'a [u8],
) -> Statement<'a> {
    let update =
        Statement::new("UPDATE request_keys SET answer = $1 WHERE tenant = $2 AND request_id = $3");
    update.bind(answer).bind(tenant).bind(id)
}
