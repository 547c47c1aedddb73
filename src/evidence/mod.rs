//! Evidence: what is committed to, how records chain, and the verifier that trusts neither. Pure.

pub mod append;
pub mod commitment;
pub mod cosignature;
pub mod erasure;
pub mod merkle;
pub mod note;
pub mod receipt;
pub mod record;
pub mod segment;
pub mod tiles;
pub mod verify;
