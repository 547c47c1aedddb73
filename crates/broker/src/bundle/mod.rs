//! The regulator's bundle and a log's export, written from the store. The form and the verifier are
//! `handoffd_evidence::bundle`.

mod checkpoints;
mod contracts;
mod export;
mod make;
mod pack;
mod write;

pub use export::{LogExport, export_log};
pub use make::{BundleSources, make};
pub use write::{BundleOrder, WriteError, write};
