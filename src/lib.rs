//! `handoffd`: the handoff broker that multi-agent systems trust.
//!
//! Decide purely, commit once, then act. `ARCHITECTURE.md` is the map; imports point down only.

// The in-memory store is read by the store suite too, which knows this crate by its name.
#[cfg(test)]
extern crate self as handoffd;

pub mod account;
pub mod app;
pub mod archive;
pub mod audit;
pub mod blame;
pub mod brokers;
pub mod bundle;
pub mod classifier;
pub mod cli;
pub mod clock;
pub mod config;
pub mod contract;
pub mod directory;
pub mod dispatch;
pub mod domain;
pub mod erasure;
pub mod evidence;
pub mod fault;
pub mod feed;
pub mod gate;
pub mod http;
pub mod intake;
pub mod ledger;
pub mod lifecycle;
pub mod matcher;
pub mod metrics;
pub mod prompt;
pub mod recovery;
pub mod report;
pub mod retention;
#[cfg(test)]
mod simulation;
pub mod store;
pub mod telemetry;
pub mod tree;
pub mod vault;
pub mod witness;
