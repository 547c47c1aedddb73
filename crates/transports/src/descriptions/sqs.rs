//! The settings and credentials of Amazon SQS.

use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::transport::{FieldDefault, FieldKind, TransportDescription, TransportField};

/// Largest message of a queue, in bytes, unless its owner set less.
pub const MAX_MESSAGE: usize = 1_048_576;

pub const DESCRIPTION: TransportDescription = TransportDescription {
    mode: DeliveryMode::Sqs,
    label: "Amazon SQS",
    description: "The broker sends each handoff to an SQS queue. In a FIFO queue a task's handoffs keep their order. \
                  Visibility, retention and redrive are the queue's owner's.",
    config_fields: &[
        TransportField::new(
            "queueUrl",
            FieldKind::Url,
            "Queue URL",
            "the queue's URL; a name that ends in .fifo is a FIFO queue",
        )
        .required()
        .pattern("https?://[^/]+/.*[^/]"),
        TransportField::new(
            "region",
            FieldKind::Text,
            "Region",
            "the region that requests are signed for; read from the queue's host where that is of AWS",
        )
        .pattern("[a-z]{2,}(-[a-z0-9]+)+"),
        TransportField::new(
            "endpoint",
            FieldKind::Url,
            "Endpoint",
            "another server than the queue URL's, such as a VPC endpoint",
        )
        .pattern("https?://[^/]+/?"),
        TransportField::new(
            "replyTo",
            FieldKind::Url,
            "Reply queue URL",
            "the queue to which the agent sends its verdicts; without it verdicts come by HTTP callback",
        )
        .pattern("https?://[^/]+/.*[^/]"),
        TransportField::new(
            "maxMessageBytes",
            FieldKind::Integer,
            "Largest message",
            "the queue's MaximumMessageSize; a larger handoff goes as a claim check",
        )
        .range(4_096, MAX_MESSAGE as i64)
        .default(FieldDefault::Integer(MAX_MESSAGE as i64)),
    ],
    credential_fields: &[
        TransportField::secret(
            "accessKeyId",
            FieldKind::Text,
            "Access key id",
            "the id of the key that signs; without it the broker's own role signs, where the operator allows the queue",
        )
        .pattern("[!-~]+"),
        TransportField::secret(
            "secretAccessKey",
            FieldKind::Text,
            "Secret access key",
            "the secret of that key",
        )
        .pattern("[!-~]+"),
        TransportField::secret(
            "sessionToken",
            FieldKind::Text,
            "Session token",
            "the token of a temporary key",
        )
        .pattern("[!-~]+"),
    ],
    max_message_bytes: Some(MAX_MESSAGE),
    reply_channel: true,
    intake: true,
};
