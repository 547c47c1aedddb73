//! Evidence: commitments, the chain of records, and the verifier, which trusts neither. Pure.

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
