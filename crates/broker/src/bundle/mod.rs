//! The regulator's bundle: a zip with all evidence on a task, verifiable without the broker, and its verifier. Writer
//! and verifier share only the format ([`format`]) and the hash functions. `log` exports a whole log as lines.

mod checkpoints;
mod contracts;
mod format;
mod log;
mod open;
mod pack;
mod path;
mod read;
mod walk;
mod write;

pub use log::{LogExport, LogReport, export_log, is_zstd, read_log, verify_log};
pub use open::ReadError;
pub use read::{BundleDefect, BundleReport, VerifyOptions, verify};
pub use write::{BundleOrder, WriteError, write};

#[cfg(test)]
mod tests;
