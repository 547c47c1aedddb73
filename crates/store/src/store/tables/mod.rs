//! One file a table: its row, its columns, its decoder, its queries and the rights on it, for both databases. A query whose text
//! differs has both texts side by side. `any.rs` has no table: it makes the statements that fit the rows of any.

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

/// Names each file with tables, and the trait of its queries where it has one of its own.
macro_rules! tables {
    ($($file:ident $(: $store:ident)?,)+) => {
        /// The queries of the tables whose files have a trait.
        pub trait TableStores: $($($file::$store +)?)+ Send + Sync {}

        impl<T> TableStores for T where T: $($($file::$store +)?)+ Send + Sync {}

        /// Rights of the serving role on the tables.
        pub(super) const RIGHTS: &[Rights] = &[$($file::RIGHTS),+];
    };
}

tables! {
    agents,
    api_keys,
    attempts: AttemptStore,
    brokers,
    caps: CapStore,
    checkpoints,
    console_sessions: SessionStore,
    contents,
    contracts: ContractStore,
    cursors,
    dead_letters,
    edges,
    erasures,
    escalations,
    events,
    facts,
    handoffs,
    holds,
    idempotency,
    leases,
    marks,
    opinions: OpinionStore,
    outbox,
    personal_data,
    receivers: ReceiverStore,
    refusals: RefusalStore,
    refused_tasks,
    requests: RequestStore,
    returns,
    schemas: PayloadSchemaStore,
    streams: StreamStore,
    subscriptions,
    tasks,
    tenants,
}
