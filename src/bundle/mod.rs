//! The regulator's bundle: a zip with everything on a task that can be checked without the broker, and
//! its verifier. The two share the form ([`format`]) and the hash functions, and nothing else. A whole
//! log likewise, as lines (`log`).

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

pub use log::{LogOrder, LogReport, export_log, is_zstd, read_log, verify_log};
pub use open::ReadError;
pub use read::{Fault, Options, Report, verify};
pub use write::{Order, WriteError, write};

#[cfg(test)]
mod tests;
