//! The settings and credentials of Temporal.

use super::fields;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::transport::{FieldDefault, FieldKind, TransportDescription, TransportField};

/// Largest payload that Temporal takes, in bytes (`limit.blobSize.error`), less what it adds to one.
pub const MAX_PAYLOAD: usize = 2 * 1024 * 1024 - 1024;

pub const DESCRIPTION: TransportDescription = TransportDescription {
    mode: DeliveryMode::Temporal,
    label: "Temporal",
    description: "The broker signals the task's Temporal workflow over the server's HTTP API, and starts the workflow if \
                  it does not run.",
    config_fields: &[
        TransportField::new(
            "address",
            FieldKind::Url,
            "Address",
            "the server's HTTP API, such as http://temporal:7243; not the port of gRPC",
        )
        .required()
        .pattern("https?://[^/]+/?"),
        TransportField::new("namespace", FieldKind::Text, "Namespace", "the namespace of the workflows")
            .pattern("[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
            .default(FieldDefault::Text("default")),
        TransportField::new(
            "workflowType",
            FieldKind::Text,
            "Workflow type",
            "the type of the workflow that a task's first handoff starts",
        )
        .required()
        .pattern(".{1,1000}"),
        TransportField::new(
            "taskQueue",
            FieldKind::Text,
            "Task queue",
            "the queue that the workers poll",
        )
        .required()
        .pattern(".{1,1000}"),
        TransportField::new("signal", FieldKind::Text, "Signal", "the name of the signal")
            .pattern("[^/?#%]{1,1000}")
            .default(FieldDefault::Text("handoff")),
        TransportField::new(
            "workflowId",
            FieldKind::Text,
            "Workflow id",
            "the workflow's id; {taskId}, {handoffId} and {agentId} are filled in",
        )
        .default(FieldDefault::Text("handoff-{taskId}")),
        TransportField::new(
            "replyTo",
            FieldKind::Text,
            "Verdict query",
            "the name of a workflow query that answers with a list of the agent's signed verdicts; without it verdicts \
             come by HTTP callback",
        )
        .pattern("[^/?#%]{1,1000}"),
        TransportField::new(
            "queryIntervalMs",
            FieldKind::Integer,
            "Query interval",
            "milliseconds between two queries of one workflow",
        )
        .range(100, 60_000)
        .default(FieldDefault::Integer(1_000)),
        fields::CA_CERTIFICATE,
    ],
    credential_fields: &[
        TransportField::secret("apiKey", FieldKind::Text, "API key", "sent as a bearer token")
            .pattern("[!-~]+"),
        TransportField::secret(
            "clientCertificate",
            FieldKind::Pem,
            "Client certificate",
            "the certificate that the broker presents, with its chain",
        ),
        TransportField::secret(
            "clientKey",
            FieldKind::Pem,
            "Client key",
            "the private key of that certificate",
        ),
    ],
    max_message_bytes: Some(MAX_PAYLOAD),
    reply_channel: true,
    intake: false,
};
