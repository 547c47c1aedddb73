//! Remote agents that speak A2A 1.0, as the broker's receivers (specification §11.2, docs/doors/a2a.md#out): card, requests,
//! answers, what a remote task means for its handoff, and the transport.

pub mod card;
pub mod client;
pub mod message;
pub mod signature;
pub mod task;
pub mod transport;
pub mod wire;
