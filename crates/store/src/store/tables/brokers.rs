//! `brokers`: the brokers' last signs of life.

use crate::store::Result;
use crate::store::query::{Database, Row, Statement};
use crate::store::rows::{get, micros};
use handoffd_core::domain::ids::Micros;

/// See [`crate::store::OutboxStore::list_heartbeats`].
pub(in crate::store) async fn list<D: Database>(db: &D) -> Result<Vec<(String, Micros)>> {
    let heartbeats = Statement::new("SELECT broker, seen_at FROM brokers ORDER BY broker");
    let heartbeat = |row: &dyn Row| Ok((get(row, "broker")?, micros(row, "seen_at")?));
    db.list(heartbeats, heartbeat).await
}
