//! One file a table: its row, its columns, its decoder, its queries and the rights on it, for both databases. A query whose text
//! differs has both texts side by side. `any.rs` has no table: it makes the statements that fit the rows of any.

#![allow(clippy::missing_errors_doc, reason = "each operation fails as `StoreError` says")]

use super::table::Rights;

pub(super) mod agents;
pub(super) mod any;
pub(super) mod api_keys;
pub mod attempts;
pub mod attention;
pub(super) mod audit;
pub(super) mod brokers;
pub mod caps;
pub(super) mod checkpoints;
pub mod console_sessions;
pub(super) mod contents;
pub mod contracts;
pub(super) mod cursors;
pub(super) mod dead_letters;
pub(super) mod edges;
pub(super) mod erasures;
pub(super) mod escalations;
pub(super) mod events;
pub(super) mod facts;
pub(super) mod handoffs;
pub(super) mod holds;
pub(super) mod idempotency;
pub(super) mod leases;
pub(super) mod marks;
pub mod opinions;
pub(super) mod outbox;
pub(super) mod personal_data;
pub mod reach;
pub mod receivers;
pub mod refusals;
pub(super) mod refused_tasks;
pub mod requests;
pub(super) mod returns;
pub mod schemas;
pub mod streams;
pub(super) mod subscriptions;
pub(super) mod tasks;
pub(super) mod tenants;

/// Rights of the serving role on the tables.
pub(super) const RIGHTS: &[Rights] = &[
    agents::RIGHTS,
    api_keys::RIGHTS,
    attempts::RIGHTS,
    brokers::RIGHTS,
    caps::RIGHTS,
    checkpoints::RIGHTS,
    console_sessions::RIGHTS,
    contents::RIGHTS,
    contracts::RIGHTS,
    cursors::RIGHTS,
    dead_letters::RIGHTS,
    edges::RIGHTS,
    erasures::RIGHTS,
    escalations::RIGHTS,
    events::RIGHTS,
    facts::RIGHTS,
    handoffs::RIGHTS,
    holds::RIGHTS,
    idempotency::RIGHTS,
    leases::RIGHTS,
    marks::RIGHTS,
    opinions::RIGHTS,
    outbox::RIGHTS,
    personal_data::RIGHTS,
    receivers::RIGHTS,
    refusals::RIGHTS,
    refused_tasks::RIGHTS,
    requests::RIGHTS,
    returns::RIGHTS,
    schemas::RIGHTS,
    streams::RIGHTS,
    subscriptions::RIGHTS,
    tasks::RIGHTS,
    tenants::RIGHTS,
];
