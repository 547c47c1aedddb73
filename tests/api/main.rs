//! The API from outside: a real broker on port 0, real receivers, both stores.
//!
//! Every case runs on SQLite and on Postgres and ends the same way: nothing was answered with a 5xx,
//! every delivery carried a valid Standard Webhooks signature, the broker stops in order, and the
//! verifier finds the log well. The Postgres half needs a server on which databases may be made:
//! `HANDOFFD_TEST_POSTGRES_URL`. Each case gets a database of its own there, and drops it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]
#![allow(clippy::too_many_lines, reason = "a case reads from its first request to its last count")]
#![allow(unreachable_pub, reason = "not a library")]

#[macro_use]
mod harness;

mod a2a;
mod a2a_client;
mod a2a_out;
mod a2a_push;
mod a2a_remote;
mod admin;
mod agents;
mod allowlist;
mod archive;
mod attempts;
mod attention;
mod audit;
mod blame;
mod budget;
mod bundle;
mod caps;
mod claims;
mod compress;
mod conformance;
mod console_sessions;
mod context;
mod contracts;
mod crowd;
#[path = "../support/databases.rs"]
mod databases;
mod declared;
mod delivery;
mod described;
mod doors;
mod edges;
mod endpoints;
mod erasure;
mod events;
mod examples;
mod export;
mod fields;
mod findings;
mod gate;
mod groups;
mod hops;
mod hostile;
mod inbox;
mod jazz;
mod keys;
mod line;
mod many;
mod matching;
mod mcp;
mod mcp_fixture;
mod mcp_oauth;
mod message;
mod metadata_only;
mod modes;
mod operators;
mod opinions;
mod orbit;
mod orders;
mod outage;
mod outside;
mod pausing;
mod places;
mod prompt;
mod python;
mod questions;
mod queues;
mod receiver;
mod receivers;
mod recovery;
mod refusals;
mod report;
mod results;
mod safety;
mod schemas;
mod service;
mod serving;
mod settling;
mod spoken;
mod states;
mod stream_evidence;
mod streams;
mod submit;
mod sw4rm;
mod takeover;
mod tasks;
mod trace;
mod trace_window;
mod transport_amqp;
mod transport_nats;
mod transport_redis;
mod transport_redis_hostile;
mod transport_redis_states;
mod transport_redis_tls;
mod transport_replies;
mod transport_slow;
mod transport_sqs;
mod transport_temporal;
mod unreadable;
mod verdicts;
mod what_if;
mod why;
