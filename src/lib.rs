//! `handoffd`: the handoff broker that multi-agent systems trust.
//!
//! Decide purely, commit once, then act. `ARCHITECTURE.md` is the map; imports point down only: this crate has the
//! doors and the wiring, over `handoffd-transports`, `handoffd-broker` and `handoffd-store`.

pub use handoffd_broker::{
    archive, audit, brokers, bundle, classifier, config, costs, directory, dispatch, erasure, feed,
    intake, ledger, lifecycle, matcher, metrics, recovery, retention, telemetry, tree, vault,
    witness,
};
pub use handoffd_store::{clock, fault, store};

pub mod app;
pub mod cli;
pub mod console;
pub mod doors;
pub mod http;
