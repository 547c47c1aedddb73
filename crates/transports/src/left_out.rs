//! The transports that this build leaves out, and the settings that would need one of them.

use handoffd_broker::config::Transports;
use handoffd_domain::handoff::DeliveryMode;

/// The modes whose transports this build leaves out. The feature that brings one has the mode's name.
pub const LEFT_OUT: &[DeliveryMode] = &[
    #[cfg(not(feature = "redis"))]
    DeliveryMode::Redis,
    #[cfg(not(feature = "nats"))]
    DeliveryMode::Nats,
    #[cfg(not(feature = "amqp"))]
    DeliveryMode::Amqp,
    #[cfg(not(feature = "sqs"))]
    DeliveryMode::Sqs,
    #[cfg(not(feature = "temporal"))]
    DeliveryMode::Temporal,
];

/// The first setting that needs a transport which is left out, and the mode of that transport.
#[must_use]
pub fn needed_by(
    settings: &Transports,
    left_out: &[DeliveryMode],
) -> Option<(&'static str, DeliveryMode)> {
    let Transports { redis, nats, amqp, sqs, .. } = settings;
    let needed = [
        ("transports.redis.intake.server", DeliveryMode::Redis, !redis.intake.server.is_empty()),
        ("transports.nats.intake.server", DeliveryMode::Nats, !nats.intake.server.is_empty()),
        ("transports.amqp.intake.server", DeliveryMode::Amqp, !amqp.intake.server.is_empty()),
        ("transports.sqs.intake.queue_url", DeliveryMode::Sqs, !sqs.intake.queue_url.is_empty()),
        ("transports.sqs.role_queues", DeliveryMode::Sqs, !sqs.role_queues.is_empty()),
    ];
    let mut missing = needed.into_iter().filter(|(_, mode, set)| *set && left_out.contains(mode));
    missing.next().map(|(setting, mode, _)| (setting, mode))
}

#[cfg(test)]
mod tests {
    use handoffd_broker::config::Config;
    use handoffd_broker::transport::Transports as Served;
    use handoffd_domain::agent::Delivery;

    use super::*;

    /// Changes one setting of the defaults.
    type Change = fn(&mut Transports);

    /// Each setting that needs a transport, set, and the mode of that transport.
    const NEEDING: [(&str, Change, DeliveryMode); 5] = [
        (
            "transports.redis.intake.server",
            |settings| settings.redis.intake.server = "redis://queue".to_owned(),
            DeliveryMode::Redis,
        ),
        (
            "transports.nats.intake.server",
            |settings| settings.nats.intake.server = "nats://queue".to_owned(),
            DeliveryMode::Nats,
        ),
        (
            "transports.amqp.intake.server",
            |settings| settings.amqp.intake.server = "amqp://queue".to_owned(),
            DeliveryMode::Amqp,
        ),
        (
            "transports.sqs.intake.queue_url",
            |settings| settings.sqs.intake.queue_url = "https://sqs.example/1/queue".to_owned(),
            DeliveryMode::Sqs,
        ),
        (
            "transports.sqs.role_queues",
            |settings| settings.sqs.role_queues = vec!["https://sqs.example/1/queue".to_owned()],
            DeliveryMode::Sqs,
        ),
    ];

    fn settings(change: Change) -> Transports {
        let mut settings = Config::load(None, []).unwrap().transports;
        change(&mut settings);
        settings
    }

    #[test]
    fn a_setting_needs_the_transport_that_it_names_and_no_other() {
        for (setting, change, mode) in NEEDING {
            let settings = settings(change);
            assert_eq!(needed_by(&settings, &[mode]), Some((setting, mode)));
            let others = DeliveryMode::ALL.into_iter().filter(|other| *other != mode);
            assert_eq!(needed_by(&settings, &others.collect::<Vec<_>>()), None, "{setting}");
        }
        assert_eq!(needed_by(&settings(|_| {}), &DeliveryMode::ALL), None);
    }

    /// The feature of each mode, on or off in this build.
    const FEATURES: [(DeliveryMode, bool); 5] = [
        (DeliveryMode::Redis, cfg!(feature = "redis")),
        (DeliveryMode::Nats, cfg!(feature = "nats")),
        (DeliveryMode::Amqp, cfg!(feature = "amqp")),
        (DeliveryMode::Sqs, cfg!(feature = "sqs")),
        (DeliveryMode::Temporal, cfg!(feature = "temporal")),
    ];

    /// Compiled both ways: `cargo test -p handoffd-transports` has no features, `cargo test --workspace` all.
    #[test]
    fn this_build_refuses_settings_and_agents_of_what_it_leaves_out() {
        let served = Served::default().leaving_out(LEFT_OUT);
        for (mode, on) in FEATURES {
            let needed = NEEDING.iter().filter(|(_, _, of)| *of == mode);
            for (setting, change, _) in needed {
                let refused = needed_by(&settings(*change), LEFT_OUT);
                assert_eq!(refused, (!on).then_some((*setting, mode)), "{setting}");
            }
            let delivery = Delivery { mode, ..Delivery::default() };
            let tenant = "default".parse().unwrap();
            let errors = served.check(&tenant, &delivery, &[]).unwrap_err();
            let [(pointer, why)] = &errors[..] else { panic!("{errors:?}") };
            assert_eq!(pointer, "/delivery/mode");
            assert_eq!(why.contains(&format!("the feature {}", mode.as_str())), !on, "{why}");
        }
    }
}
