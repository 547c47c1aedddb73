//! The API from outside: a real broker on port 0, real receivers, both stores.
//!
//! Every case runs on SQLite and on Postgres and ends the same way: nothing was answered with a 5xx,
//! every delivery carried a valid Standard Webhooks signature, the broker stops in order, and the
//! verifier finds the log well. The Postgres half needs a server on which databases may be made:
//! `HANDOFFD_TEST_POSTGRES_URL`. Each case gets a database of its own there, and drops it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(missing_docs, unreachable_pub, reason = "nobody's library")]

#[macro_use]
mod harness;

mod admin;
mod agents;
mod allowlist;
mod archive;
mod audit;
mod blame;
mod budget;
mod bundle;
mod caps;
mod conformance;
mod contracts;
mod crowd;
mod delivery;
mod described;
mod endpoints;
mod erasure;
mod events;
mod examples;
mod export;
mod findings;
mod gate;
mod hostile;
mod inbox;
mod keys;
mod matching;
mod message;
mod modes;
mod outage;
mod outside;
mod prompt;
mod receiver;
mod recovery;
mod report;
mod safety;
mod schemas;
mod service;
mod serving;
mod submit;
mod tasks;
mod trace;
mod verdicts;
mod what_if;
