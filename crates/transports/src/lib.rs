//! The transports beside the webhook: Redis Streams, NATS JetStream, AMQP, Amazon SQS, Temporal, and remote A2A agents.
//!
//! Each meets the broker in [`handoffd_broker::transport`], which has the contract, and calls out through
//! [`handoffd_broker::egress`]. README.md has the rooms and the recipe for a new transport.
//! A queue's transport and Temporal's are there where the feature with the mode's name is on; [`left_out`] has the others.

pub mod a2a;
#[cfg(feature = "amqp")]
pub mod amqp;
pub mod connections;
pub mod descriptions;
pub mod exchange;
pub mod inbound;
pub mod left_out;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "redis")]
pub mod redis;
pub mod servers;
#[cfg(feature = "sqs")]
pub mod sqs;
#[cfg(feature = "temporal")]
pub mod temporal;
pub mod text;
