//! The settings and credentials of AMQP 0-9-1.

use super::fields;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::transport::{FieldDefault, FieldKind, TransportDescription, TransportField};

/// The limit of RabbitMQ 4 unless its `max_message_size` says otherwise; the protocol does not report it.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

pub const DESCRIPTION: TransportDescription = TransportDescription {
    mode: DeliveryMode::Amqp,
    label: "AMQP (RabbitMQ)",
    description: "The broker publishes each handoff to an exchange, mandatory and persistent, and awaits the server's confirmation; the agent consumes a queue that is bound to it.",
    config_fields: &[
        TransportField::new(
            "server",
            FieldKind::Text,
            "Server",
            "one URL or several of one cluster, separated by commas: amqp://host:5672, or amqps://host:5671 for TLS",
        )
        .required(),
        TransportField::new("vhost", FieldKind::Text, "Virtual host", "the virtual host")
            .default(FieldDefault::Text("/")),
        TransportField::new(
            "exchange",
            FieldKind::Text,
            "Exchange",
            "the exchange to publish to; without it the routing key is the name of the queue",
        ),
        TransportField::new(
            "routingKey",
            FieldKind::Text,
            "Routing key",
            "the routing key, or the queue's name; {agentId} and {taskId} are filled in",
        )
        .required(),
        TransportField::new(
            "replyTo",
            FieldKind::Text,
            "Reply queue",
            "the queue to which the agent publishes its verdicts; the broker declares it durable where it does not exist. Without it verdicts come by HTTP callback",
        ),
        fields::CA_CERTIFICATE,
    ],
    credential_fields: &[
        fields::USERNAME,
        fields::PASSWORD,
        fields::CLIENT_CERTIFICATE,
        fields::CLIENT_KEY,
    ],
    max_message_bytes: Some(MAX_MESSAGE),
    reply_channel: true,
    intake: true,
};
