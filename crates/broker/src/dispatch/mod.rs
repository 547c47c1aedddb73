//! The delivery edge: requests that leave the broker, and the answers that may come back.
//!
//! A transport knows neither the store nor the ledger. An attempt goes in as a request and comes out as an
//! [`crate::transport::AttemptOutcome`]; the dispatcher decides its meaning for the handoff. `attempt_row`, `backoff`,
//! `breaker`, `budget`, `failing` and `turns` are pure: the caller passes time and randomness.

mod attempt_row;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod chunks;
mod conventions;
pub mod dispatcher;
mod endpoints;
pub mod events;
mod failing;
mod held;
pub(crate) mod in_service;
pub mod inboxes;
mod lanes;
pub mod listeners;
pub mod trial;
mod turns;
pub mod webhook;
pub mod webhook_transport;
