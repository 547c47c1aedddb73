//! The settings and credentials of NATS JetStream.

use super::fields;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::transport::{FieldKind, TransportDescription, TransportField};

/// A server's limit unless its `max_payload` says otherwise (1 MiB), less room for the headers of NATS itself.
pub const MAX_MESSAGE: usize = 1_048_576 - 1_024;

pub const DESCRIPTION: TransportDescription = TransportDescription {
    mode: DeliveryMode::Nats,
    label: "NATS JetStream",
    description: "The broker publishes each handoff to a subject of a JetStream stream, whose acknowledgement it awaits; the agent consumes the stream.",
    config_fields: &[
        TransportField::new(
            "server",
            FieldKind::Text,
            "Server",
            "one URL or several of one cluster, separated by commas: nats://host:4222, or tls://host:4222 for TLS from the start",
        )
        .required(),
        TransportField::new(
            "subject",
            FieldKind::Text,
            "Subject",
            "the subject, which a stream must keep; {agentId} and {taskId} are filled in, dots in them as _",
        )
        .required()
        .pattern(r"[^\s.*>]+(\.[^\s.*>]+)*"),
        TransportField::new(
            "stream",
            FieldKind::Text,
            "Stream",
            "the stream that must keep the message; without it any stream of the subject may",
        )
        .pattern(r"[^\s.*>/\\]+"),
        TransportField::new(
            "replyTo",
            FieldKind::Text,
            "Reply subject",
            "the subject to which the agent publishes its verdicts; a stream must keep it. Without it verdicts come by HTTP callback",
        )
        .pattern(r"[^\s.*>]+(\.[^\s.*>]+)*"),
        fields::CA_CERTIFICATE,
    ],
    credential_fields: &[
        fields::USERNAME,
        fields::PASSWORD,
        TransportField::secret("token", FieldKind::Text, "Token", "the server's token"),
        TransportField::secret(
            "nkeySeed",
            FieldKind::Text,
            "NKey seed",
            "the seed of a user's NKey, which begins with SU",
        )
        .pattern("SU[A-Z2-7]{56}"),
        TransportField::secret(
            "userCredentials",
            FieldKind::Pem,
            "User credentials",
            "the content of a .creds file: a user's JWT and seed",
        ),
        fields::CLIENT_CERTIFICATE,
        fields::CLIENT_KEY,
    ],
    max_message_bytes: Some(MAX_MESSAGE),
    reply_channel: true,
    intake: true,
};
