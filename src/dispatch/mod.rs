//! The delivery edge: what leaves the broker, and what may come back.
//!
//! The rooms below know neither the store nor the ledger. An attempt goes in as a request and
//! comes out as an [`answer::AttemptOutcome`]; what that means for the handoff is decided
//! elsewhere. `addresses`, `answer`, `backoff`, `breaker`, `budget`, `failing`, `turns` and `standard_webhooks`
//! are pure: time and randomness are handed to them.

pub mod addresses;
pub mod answer;
pub mod backoff;
pub mod breaker;
pub mod budget;
mod conventions;
pub mod dispatcher;
pub mod egress;
mod endpoints;
pub mod events;
mod failing;
mod held;
pub mod inboxes;
pub mod json_service;
mod lanes;
pub mod standard_webhooks;
mod turns;
pub mod webhook;
