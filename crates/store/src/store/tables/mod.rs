//! One file a table: its row, its columns, its decoder and its queries, for both databases. A query whose text differs has
//! both texts side by side.

pub(super) mod agents;
pub(super) mod api_keys;
pub mod attempts;
pub mod attention;
pub(super) mod brokers;
pub mod caps;
pub(super) mod checkpoints;
pub mod console_sessions;
pub mod contracts;
pub(super) mod cursors;
pub(super) mod dead_letters;
pub(super) mod edges;
pub(super) mod erasures;
pub(super) mod escalations;
pub(super) mod facts;
pub(super) mod handoffs;
pub(super) mod holds;
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
