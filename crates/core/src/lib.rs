//! The pure half of handoffd: messages, contracts, the gate, evidence, and what is read from them. No I/O, no clock.

pub mod account;
pub mod blame;
pub mod bundle;
pub mod context;
pub mod contract;
pub mod domain;
pub mod evidence;
pub mod gate;
pub mod prompt;
pub mod report;
pub mod sw4rm;
