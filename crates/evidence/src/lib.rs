//! Evidence: commitments, the chain of records, the verifier, which trusts neither, and the figures that records give. Pure.

pub mod account;
pub mod append;
pub mod blame;
pub mod bundle;
pub mod commitment;
pub mod context_growth;
pub mod cosignature;
pub mod costs;
pub mod erasure;
pub mod merkle;
pub mod notary;
pub mod note;
pub mod receipt;
pub mod record;
pub mod report;
pub mod segment;
pub mod tiles;
pub mod verify;
