//! Evidence: what is committed to, how records chain, and the verifier that trusts neither. Pure.

pub mod commitment;
pub mod record;
pub mod verify;
