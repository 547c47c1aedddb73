//! The settings and credentials of each transport, as data. The command line offers those of every transport, since the broker
//! that it talks to may serve another selection than its own build.

use handoffd_broker::transport::catalog::{PULL, WEBHOOK};
use handoffd_domain::transport::TransportDescription;

pub mod a2a;
pub mod amqp;
pub mod fields;
pub mod nats;
pub mod redis;
pub mod sqs;
pub mod temporal;

/// The descriptions of all transports that this program has.
pub const DESCRIPTIONS: &[&TransportDescription] = &[
    &WEBHOOK,
    &PULL,
    &a2a::DESCRIPTION,
    &redis::DESCRIPTION,
    &nats::DESCRIPTION,
    &amqp::DESCRIPTION,
    &sqs::DESCRIPTION,
    &temporal::DESCRIPTION,
];

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::handoff::DeliveryMode;

    #[test]
    fn every_mode_describes_itself() {
        let described: Vec<_> = DESCRIPTIONS.iter().map(|one| one.mode).collect();
        for mode in DeliveryMode::ALL {
            assert!(described.contains(&mode), "{mode:?}");
        }
        assert_eq!(described.len(), DeliveryMode::ALL.len());
    }
}
