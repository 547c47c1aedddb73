//! `handoffd`: the handoff broker that multi-agent systems trust.
//!
//! Decide purely, commit once, then act. `ARCHITECTURE.md` is the map; imports point down only: this crate has the
//! doors and the wiring, over `handoffd-broker`, `handoffd-store` and `handoffd-core`.

pub use handoffd_broker::{
    archive, audit, brokers, classifier, config, directory, dispatch, erasure, feed, intake,
    ledger, lifecycle, matcher, metrics, recovery, retention, telemetry, tree, vault, witness,
};
pub use handoffd_core::{
    account, blame, context, contract, domain, evidence, gate, prompt, report,
};
pub use handoffd_store::{clock, fault, store};

pub mod app;
pub mod cli;
pub mod console;
pub mod doors;
pub mod http;

/// Bundles and exported logs: the broker writes them, the core reads them.
pub mod bundle {
    pub use handoffd_broker::bundle::{BundleOrder, LogExport, WriteError, export_log, write};
    pub use handoffd_core::bundle::*;
}
