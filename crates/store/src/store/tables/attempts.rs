//! `delivery_attempts`: the last attempts at each handoff, for operators.
//!
//! A row, and how it changes:
//!
//! - `delivery_attempts`: an attempt at a handoff: outcome, HTTP status, headers, the first 4 KiB of the answer. A ring
//!   of a handoff's last 20. Overwritten; deleted with the handoff's content.

use std::fmt;

use crate::store::query::{Dialect, Row, Statement, unreadable};
use crate::store::rows::{get, micros, parse, state_opt};
use crate::store::table::{Rights, table};
use crate::store::{HandoffKey, Result, Store};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{HandoffId, Micros, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("delivery_attempts", "SELECT, INSERT, UPDATE, DELETE")];

/// Most attempts that are kept of one handoff: a later one takes the place of the oldest.
pub const KEPT_ATTEMPTS: i32 = 20;

/// An attempt at a handoff.
#[derive(Clone, PartialEq, Eq)]
pub struct AttemptRow {
    pub tenant: TenantId,
    pub handoff_id: HandoffId,
    /// From 1, as the handoff counts its attempts.
    pub attempt: i32,
    pub begun_at: Micros,
    /// `None` where nothing was sent.
    pub duration_us: Option<i64>,
    /// `None` where nothing was sent.
    pub transport: Option<DeliveryMode>,
    /// As the label of the metric of attempts.
    pub outcome: String,
    pub status: Option<i32>,
    /// The broker's sentence on the failure.
    pub error: Option<String>,
    /// Names and values of the request's headers; secret values are replaced.
    pub headers: Vec<(String, String)>,
    /// The beginning of the receiver's answer: text of others.
    pub answer: Option<String>,
}

impl fmt::Debug for AttemptRow {
    /// Omits the headers and the answer, which reach no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttemptRow")
            .field("handoff_id", &self.handoff_id)
            .field("attempt", &self.attempt)
            .field("outcome", &self.outcome)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl AttemptRow {
    /// The row's place in the handoff's ring.
    #[must_use]
    pub const fn slot(&self) -> i32 {
        self.attempt.rem_euclid(KEPT_ATTEMPTS)
    }

    /// Removes the words of others: what an erasure takes from a handoff.
    pub fn erase(&mut self) {
        self.headers.clear();
        self.answer = None;
    }
}

table! {
    ATTEMPTS: AttemptRow = "delivery_attempts" by 3 {
        "tenant" Text: |row| &row.tenant,
        "handoff_id" Text: |row| row.handoff_id,
        "slot" Int: |row| row.slot(),
        "attempt" Int: |row| row.attempt,
        "begun_at" Long: |row| row.begun_at,
        "duration_us" Long: |row| row.duration_us,
        "transport" Text: |row| row.transport.map(DeliveryMode::as_str),
        "outcome" Text: |row| &row.outcome,
        "status" Int: |row| row.status,
        "error" Text: |row| row.error.as_deref(),
        // Plain data, whose JSON cannot fail.
        "headers" Text: |row| serde_json::to_string(&row.headers).unwrap_or_default(),
        "answer" Text: |row| row.answer.as_deref(),
    }
}

/// The bytes of a row besides ids and numbers.
pub(in crate::store) fn text_bytes(row: &AttemptRow) -> usize {
    let headers = row.headers.iter().map(|(name, value)| name.len() + value.len() + 6);
    let texts = [&row.error, &row.answer].into_iter().flatten().map(String::len);
    headers.chain(texts).sum()
}

fn decode(row: &dyn Row) -> Result<AttemptRow> {
    Ok(AttemptRow {
        tenant: parse(row, "tenant")?,
        handoff_id: parse(row, "handoff_id")?,
        attempt: get(row, "attempt")?,
        begun_at: micros(row, "begun_at")?,
        duration_us: get(row, "duration_us")?,
        transport: state_opt(row, "transport", DeliveryMode::parse)?,
        outcome: get(row, "outcome")?,
        status: get(row, "status")?,
        error: get(row, "error")?,
        headers: serde_json::from_str(get(row, "headers")?)
            .map_err(|err| unreadable("headers", err))?,
        answer: get(row, "answer")?,
    })
}

/// Deletes the attempts at handoffs whose data are erased: an answer may repeat what it answers. `None` without a handoff.
pub(in crate::store) fn forget(
    dialect: Dialect,
    tenant: &TenantId,
    handoffs: &[HandoffId],
) -> Option<Statement<'static>> {
    if handoffs.is_empty() {
        return None;
    }
    let text = format!(
        "DELETE FROM delivery_attempts WHERE tenant = $1 AND {}",
        dialect.is_among("handoff_id", "$2")
    );
    let ids: Vec<String> = handoffs.iter().map(HandoffId::to_string).collect();
    let ids = ids.iter().map(String::as_str);
    Some(Statement::new(text).bind(tenant.to_string()).bind_list(ids))
}

impl Store {
    /// The kept attempts at a handoff, newest first; [`KEPT_ATTEMPTS`] at most.
    pub async fn list_attempts(&self, key: &HandoffKey) -> Result<Vec<AttemptRow>> {
        let text = format!(
            "SELECT {} FROM delivery_attempts WHERE tenant = $1 AND handoff_id = $2 \
             ORDER BY attempt DESC",
            ATTEMPTS.list
        );
        self.list(Statement::new(text).bind(&key.0).bind(key.1), decode).await
    }
}
