//! `handoffd`: the handoff broker that multi-agent systems trust.
//!
//! Decide purely, commit once, then act. `ARCHITECTURE.md` is the map; imports point down only.

pub mod account;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod directory;
pub mod dispatch;
pub mod domain;
pub mod evidence;
pub mod gate;
pub mod http;
pub mod intake;
pub mod ledger;
pub mod lifecycle;
pub mod metrics;
pub mod recovery;
pub mod store;
pub mod telemetry;
pub mod vault;
