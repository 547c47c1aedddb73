//! `events`: the events of a tenant's feed.
//!
//! A row, and how it changes:
//!
//! - `events`: an event: ids and codes, under its record's leaf index and a number there. Inserted; deleted when old.

use crate::store::driver::by_driver;
use crate::store::events::{EventRow, EventScope};
use crate::store::query::{Statement, Texts};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::event::Position;
use handoffd_domain::ids::{AgentId, Micros, TaskId, TenantId};

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("events", "SELECT, INSERT, DELETE")];

/// See [`crate::store::Store::delete_events`].
pub(in crate::store) const DELETE: Texts = Texts {
    sqlite: "DELETE FROM events WHERE tenant = ?1 \
               AND leaf_index <= (SELECT max(leaf_index) FROM \
               (SELECT leaf_index, at FROM events WHERE tenant = ?1 \
                ORDER BY leaf_index, ordinal LIMIT ?2) WHERE at < ?3)",
    postgres: "DELETE FROM events WHERE tenant = $1 AND leaf_index <= (SELECT max(leaf_index) FROM \
               (SELECT leaf_index, at FROM events WHERE tenant = $1 \
                ORDER BY leaf_index, ordinal LIMIT $2) AS oldest WHERE at < $3)",
};

/// Columns of an event `e`, with those of its handoff `h`.
const EVENT: &str = "e.tenant, e.leaf_index, e.ordinal, e.event_id, e.type, e.at, e.task_id, e.handoff_id, e.source, e.target, e.audience, e.data, h.reason, h.content_id";

/// Selection of the events in a page.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Selection<'a> {
    All,
    Audience(&'a AgentId),
    /// SQLite: from the task's records, which have an index by task, to their events.
    OfTask(TaskId),
    /// Postgres: of these places in the log, which can be in another database.
    At(&'a [i64]),
}

/// See [`crate::store::Store::list_events`].
pub(in crate::store) fn page<'a>(
    tenant: &'a TenantId,
    among: Selection<'a>,
    after: Position,
    limit: i64,
) -> Statement<'a> {
    let (tables, leader) = match among {
        Selection::OfTask(_) => (
            "audit_records AS r CROSS JOIN events AS e \
             ON e.tenant = r.tenant AND e.leaf_index = r.leaf_index",
            "r",
        ),
        _ => ("events AS e", "e"),
    };
    let page = Statement::new(format!(
        "SELECT {EVENT} FROM {tables} LEFT JOIN handoffs AS h \
         ON h.tenant = e.tenant AND h.handoff_id = e.handoff_id WHERE {leader}.tenant = "
    ));
    let page = page.push_bind(tenant);
    let page = match among {
        Selection::All => page,
        Selection::Audience(agent) => page.push(" AND e.audience = ").push_bind(agent),
        Selection::OfTask(task) => {
            let page = page.push(" AND r.task_id = ").push_bind(task);
            page.push(" AND r.leaf_index >= ").push_bind(after.leaf_index)
        }
        Selection::At(places) => page.push(" AND e.leaf_index = ANY(").push_bind(places).push(")"),
    };
    let page = page.push(" AND (e.leaf_index, e.ordinal) > (").push_bind(after.leaf_index);
    let page = page.push(", ").push_bind(after.ordinal);
    page.push(") ORDER BY e.leaf_index, e.ordinal LIMIT ").push_bind(limit.max(0))
}

impl Store {
    /// Events after a position, in order.
    pub async fn list_events(
        &self,
        tenant: &TenantId,
        scope: EventScope<'_>,
        after: Position,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        by_driver!(self, db => db.list_events(tenant, scope, after, limit))
    }

    /// Deletes a tenant's oldest events recorded before `cutoff`, a bounded number in one call. Returns their
    /// number.
    pub async fn delete_events(&self, tenant: &TenantId, cutoff: Micros) -> Result<u64> {
        by_driver!(self, db => db.delete_events(tenant, cutoff))
    }
}
