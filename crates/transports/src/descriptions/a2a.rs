//! The settings and credentials of a remote A2A agent.

use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::transport::{FieldKind, TransportDescription, TransportField};

pub const DESCRIPTION: TransportDescription = TransportDescription {
    mode: DeliveryMode::A2a,
    label: "A2A agent",
    description: "The broker is the client of an agent that speaks A2A 1.0: it sends each handoff as a message and follows the task.",
    config_fields: &[
        TransportField::new(
            "url",
            FieldKind::Url,
            "Address",
            "the agent's address, or that of its card where it ends with .json",
        )
        .required(),
        TransportField::new(
            "apiKeyHeader",
            FieldKind::Text,
            "API key header",
            "the header that carries credentials.apiKey",
        )
        .pattern("[A-Za-z0-9-]{1,100}"),
        TransportField::new(
            "cardKeys",
            FieldKind::Text,
            "Keys of the card",
            "a JSON Web Key Set as a text: the agent's card must have a signature under one of these keys",
        ),
        TransportField::new(
            "cardKeysUrl",
            FieldKind::Url,
            "Address of the card's keys",
            "where such a key set is read",
        ),
    ],
    credential_fields: &[
        TransportField::secret(
            "bearerToken",
            FieldKind::Text,
            "Bearer token",
            "sent to the agent as Authorization: Bearer",
        ),
        TransportField::secret(
            "apiKey",
            FieldKind::Text,
            "API key",
            "sent to the agent in the header that config.apiKeyHeader names, X-API-Key unless it does",
        ),
    ],
    max_message_bytes: None,
    reply_channel: false,
    intake: false,
};
