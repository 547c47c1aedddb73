//! Plain data and total functions. Knows no database, no HTTP and no clock.

pub mod agent;
pub mod canonical;
pub mod failure;
pub mod handoff;
pub mod ids;
pub mod message;
pub mod money;
pub mod roster;
pub mod task;
