//! Requests that came with an `Idempotency-Key`, and their answers.

use async_trait::async_trait;

use super::Result;
use handoffd_core::domain::ids::{Micros, TenantId};

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

/// Requests by their keys. All times come from the caller's clock.
#[async_trait]
pub trait RequestStore: Send + Sync {
    /// Claims a key: `None` where this request is the first under it, else the one that was. Of two at once one is the first.
    async fn begin_request(&self, row: &RequestRow) -> Result<Option<RequestRow>>;
    /// Keeps the answer to a request.
    async fn answer_request(&self, tenant: &TenantId, id: &[u8; 32], answer: &[u8]) -> Result<()>;
    /// Lets the key be used again: the request changed nothing.
    async fn forget_request(&self, tenant: &TenantId, id: &[u8; 32]) -> Result<()>;
    /// Deletes requests that began before a time; returns their number.
    async fn forget_requests(&self, before: Micros) -> Result<u64>;
}
