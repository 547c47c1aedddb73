//! The console over HTTP, on both stores: each page with data and without, hostile text in every field, the rights of each
//! role, and actions that do what the API does.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(clippy::too_many_lines, reason = "a case reads from its first request to its last count")]
#![allow(unreachable_pub, reason = "a test target is used by no other crate")]

#[path = "../api/harness.rs"]
#[macro_use]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod harness;

mod actions;
mod browser;
mod changes;
#[path = "../support/databases.rs"]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod databases;
#[path = "../api/described.rs"]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod described;
mod hostile;
#[path = "../api/message.rs"]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod message;
mod metadata_only;
mod pages;
#[path = "../api/receiver.rs"]
#[allow(dead_code, reason = "the API's cases use more of it")]
mod receiver;
#[path = "../api/spoken.rs"]
mod spoken;
