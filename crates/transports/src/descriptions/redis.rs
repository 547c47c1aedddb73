//! The settings and credentials of Redis Streams.

use super::fields;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::transport::{FieldKind, TransportDescription, TransportField};

pub const DESCRIPTION: TransportDescription = TransportDescription {
    mode: DeliveryMode::Redis,
    label: "Redis Streams",
    description: "The broker appends each handoff to a stream; the agent reads it with a consumer group. The persistence settings of Redis decide what it keeps after its own crash.",
    config_fields: &[
        TransportField::new(
            "server",
            FieldKind::Url,
            "Server",
            "redis://host:port/database, or rediss:// for TLS",
        )
        .required()
        .pattern("rediss?://.+"),
        TransportField::new("stream", FieldKind::Text, "Stream", "key of the agent's stream")
            .required(),
        TransportField::new(
            "maxLength",
            FieldKind::Integer,
            "Longest stream",
            "about how many entries the stream keeps; the oldest go, read or not; without it none go",
        )
        .range(1, i64::MAX),
        fields::REPLY_TO,
        fields::CA_CERTIFICATE,
    ],
    credential_fields: &[
        fields::USERNAME,
        fields::PASSWORD,
        fields::CLIENT_CERTIFICATE,
        fields::CLIENT_KEY,
    ],
    // proto-max-bulk-len is 512 MiB unless the server says less; messages are far smaller.
    max_message_bytes: None,
    reply_channel: true,
    intake: true,
};
