//! The pure half of handoffd: messages, contracts, the gate, evidence, and what is read from them. No I/O, no clock.

pub mod account;
#[cfg(feature = "gate")]
pub mod attention;
#[cfg(feature = "gate")]
pub mod blame;
pub mod bundle;
#[cfg(feature = "gate")]
pub mod context;
/// How contexts grow is read from records, so a verifier has it too.
#[cfg(not(feature = "gate"))]
pub mod context {
    pub mod growth;
}
#[cfg(feature = "gate")]
pub mod contract;
pub mod costs;
pub mod domain;
pub mod evidence;
#[cfg(feature = "gate")]
pub mod gate;
#[cfg(feature = "gate")]
pub mod prompt;
pub mod report;
#[cfg(feature = "gate")]
pub mod sw4rm;
#[cfg(feature = "gate")]
pub mod why;
