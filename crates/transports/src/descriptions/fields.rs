//! Fields that several transports share, so that they are named alike, and a rule on them.

use serde_json::{Map, Value};

use handoffd_domain::transport::{FieldDefault, FieldError, FieldKind, TransportField};

/// The channel on which the receiver publishes its verdicts.
pub const REPLY_TO: TransportField = TransportField::new(
    "replyTo",
    FieldKind::Text,
    "Reply channel",
    "where the agent publishes its verdicts; without it verdicts come by HTTP callback",
);
/// Roots that the server's certificate is checked against.
pub const CA_CERTIFICATE: TransportField = TransportField::new(
    "caCertificate",
    FieldKind::Pem,
    "CA certificate",
    "PEM certificates that are trusted for the server instead of the system's",
);
/// The certificate by which the broker identifies itself.
pub const CLIENT_CERTIFICATE: TransportField = TransportField::secret(
    "clientCertificate",
    FieldKind::Pem,
    "Client certificate",
    "PEM certificate chain by which the broker identifies itself",
);
/// The key of the client certificate.
pub const CLIENT_KEY: TransportField = TransportField::secret(
    "clientKey",
    FieldKind::Pem,
    "Client key",
    "PEM private key of the client certificate",
);
/// Whether the connection is encrypted.
pub const TLS: TransportField = TransportField::new(
    "tls",
    FieldKind::Boolean,
    "TLS",
    "encrypts the connection and checks the server's certificate",
)
.default(FieldDefault::Boolean(false));
/// The user name, where the server knows several.
pub const USERNAME: TransportField =
    TransportField::secret("username", FieldKind::Text, "User name", "the user to log in as");
/// The password.
pub const PASSWORD: TransportField =
    TransportField::secret("password", FieldKind::Text, "Password", "the user's password");

/// The reply channel of an agent is where its handoffs go: the broker would consume its own messages.
#[must_use]
pub fn not_its_own(config: &Map<String, Value>, own: &str) -> Option<FieldError> {
    let same = config.get("replyTo").is_some_and(|reply| Some(reply) == config.get(own));
    let at = "/delivery/config/replyTo".to_owned();
    same.then(|| {
        (at, format!("must be another channel than {own}, which has the agent's handoffs"))
    })
}
