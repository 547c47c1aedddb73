//! SW4RM's handoff protocol (specification §11.3, seed 001, docs/doors/sw4rm.md): its context, its request as a receiver gets it,
//! its states and its words. Pure; the door and the dispatcher share it.

mod context;
mod request;
mod status;

pub use context::{CONTEXT_SCHEMA, HandoffContext, SnapshotError};
pub use request::{DeliveryFacts, in_format, request};
pub use status::{ALL_UNAVAILABLE, NO_CAPABLE_AGENT, Status, priority_of, rejection};

/// The name of the protocol in `extensions`.
pub const NAME: &str = "sw4rm";

/// The member of a request's `metadata` that is the broker's own.
pub const BROKER_METADATA: &str = "handoffd";
