//! The work of handoffd: intake, ledger, dispatch, recovery, erasure, archive, witness.

pub mod archive;
pub mod audit;
pub mod brokers;
pub mod bundle;
pub mod claim_check;
pub mod classifier;
pub mod compress;
pub mod config;
pub mod costs;
pub mod dead_letters;
pub mod directory;
pub mod dispatch;
pub mod early_replies;
pub mod erasure;
pub mod feed;
pub mod intake;
pub mod issuer;
pub mod judged;
pub mod ledger;
pub mod lifecycle;
pub mod matcher;
pub mod metrics;
pub mod opinions;
pub mod recovery;
pub mod retention;
#[cfg(test)]
mod simulation;
pub mod states;
pub mod summarizer;
pub mod telemetry;
pub mod trace;
pub mod transport;
pub mod tree;
pub mod vault;
pub mod web_keys;
pub mod why;
pub mod witness;
