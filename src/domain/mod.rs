//! Plain data and total functions. Knows no database, no HTTP and no clock.

pub mod agent;
pub mod canonical;
pub mod cap;
pub mod course;
pub mod escalation;
pub mod event;
pub mod failure;
pub mod funds;
pub mod handoff;
pub mod handoff_tool;
pub mod ids;
pub mod latency;
pub mod message;
pub mod money;
pub mod personal;
pub mod policy;
pub mod progress;
pub mod redaction;
pub mod relevance;
pub mod residency;
pub mod roster;
pub mod ruling;
pub mod task;
pub mod trace_context;
pub mod unseen;
pub mod warning;
