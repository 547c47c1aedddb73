//! The regulator's bundle: a zip with all evidence on a task, verifiable without the broker. This half reads: the form of bundles
//! and of exported logs ([`mod@format`], [`mod@log`]), and their verifier. The broker's half writes them, and shares with this one the
//! form and the hash functions only.

pub mod format;
pub mod log;
mod open;
mod path;
mod read;
mod report;
mod states;
mod walk;

pub use log::{LogReport, is_zstd, read_log, verify_log};
pub use open::ReadError;
pub use read::{VerifyOptions, verify};
pub use report::{BundleDefect, BundleReport};

#[cfg(test)]
mod tests;
