//! The delivery edge: requests that leave the broker, and the answers that may come back.
//!
//! The transport files know neither the store nor the ledger. An attempt goes in as a request and comes out as an
//! [`answer::AttemptOutcome`]; the dispatcher decides its meaning for the handoff. `addresses`, `answer`,
//! `attempt_row`, `backoff`, `breaker`, `budget`, `failing`, `turns` and `standard_webhooks` are pure: the caller passes
//! time and randomness.

pub mod a2a;
pub mod addresses;
pub mod answer;
mod attempt_row;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod chunks;
mod conventions;
pub mod dispatcher;
pub mod egress;
mod endpoints;
pub mod events;
mod failing;
mod held;
pub mod in_service;
pub mod inboxes;
pub mod json_service;
mod lanes;
pub mod standard_webhooks;
pub mod transport;
mod turns;
pub mod webhook;
