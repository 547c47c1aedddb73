//! Transports described as data: one document per delivery mode, from which agents' settings are validated, and which
//! the API, the command line and the documentation show.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::handoff::DeliveryMode;

/// Longest text of one field, in bytes.
const MAX_TEXT: usize = 4_096;
/// Longest PEM document, in bytes.
const MAX_PEM: usize = 65_536;

/// The type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    /// A string of at most 4096 bytes.
    Text,
    /// A string that is an absolute URL without user name or password.
    Url,
    /// A whole number.
    Integer,
    /// `true` or `false`.
    Boolean,
    /// One of the field's `options`.
    Choice,
    /// A PEM document of at most 65536 bytes.
    Pem,
}

/// The value of a field that is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum FieldDefault {
    Text(&'static str),
    Integer(i64),
    Boolean(bool),
}

impl From<FieldDefault> for Value {
    fn from(default: FieldDefault) -> Self {
        match default {
            FieldDefault::Text(text) => text.into(),
            FieldDefault::Integer(number) => number.into(),
            FieldDefault::Boolean(flag) => flag.into(),
        }
    }
}

/// One field of a transport's `config` or `credentials`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransportField {
    /// The member's name.
    pub key: &'static str,
    /// Type of the value.
    #[serde(rename = "type")]
    pub kind: FieldKind,
    /// Name for people.
    pub label: &'static str,
    /// The effect of the value.
    pub description: &'static str,
    /// Whether an agent must give it.
    pub required: bool,
    /// The value where none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<FieldDefault>,
    /// Whether the value is a secret: sealed, and never read back.
    pub sensitive: bool,
    /// Regular expression that the whole text matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<&'static str>,
    /// The values of a `choice`.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub options: &'static [&'static str],
    /// Smallest value of an `integer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<i64>,
    /// Largest value of an `integer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<i64>,
}

impl TransportField {
    /// A field that holds no secret and may be left out.
    #[must_use]
    pub const fn new(
        key: &'static str,
        kind: FieldKind,
        label: &'static str,
        description: &'static str,
    ) -> Self {
        Self {
            key,
            kind,
            label,
            description,
            required: false,
            default: None,
            sensitive: false,
            pattern: None,
            options: &[],
            minimum: None,
            maximum: None,
        }
    }

    /// A field whose value is sealed.
    #[must_use]
    pub const fn secret(
        key: &'static str,
        kind: FieldKind,
        label: &'static str,
        description: &'static str,
    ) -> Self {
        Self { sensitive: true, ..Self::new(key, kind, label, description) }
    }

    #[must_use]
    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    #[must_use]
    pub const fn default(self, default: FieldDefault) -> Self {
        Self { default: Some(default), ..self }
    }

    #[must_use]
    pub const fn pattern(self, pattern: &'static str) -> Self {
        Self { pattern: Some(pattern), ..self }
    }

    #[must_use]
    pub const fn options(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    #[must_use]
    pub const fn range(self, minimum: i64, maximum: i64) -> Self {
        Self { minimum: Some(minimum), maximum: Some(maximum), ..self }
    }

    /// Checks a value; the error is the reason.
    fn check(&self, value: &Value) -> Result<(), String> {
        match self.kind {
            FieldKind::Boolean if value.is_boolean() => Ok(()),
            FieldKind::Boolean => Err("must be true or false".to_owned()),
            FieldKind::Integer => {
                let (low, high) =
                    (self.minimum.unwrap_or(i64::MIN), self.maximum.unwrap_or(i64::MAX));
                match value.as_i64() {
                    Some(number) if (low..=high).contains(&number) => Ok(()),
                    _ if self.minimum.is_some() && self.maximum.is_some() => {
                        Err(format!("must be a whole number between {low} and {high}"))
                    }
                    _ => Err("must be a whole number".to_owned()),
                }
            }
            FieldKind::Choice => match value.as_str() {
                Some(text) if self.options.contains(&text) => Ok(()),
                _ => Err(format!("must be one of: {}", self.options.join(", "))),
            },
            FieldKind::Text | FieldKind::Url | FieldKind::Pem => {
                let text = value.as_str().ok_or("must be a text")?;
                self.check_text(text)
            }
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        let limit = if self.kind == FieldKind::Pem { MAX_PEM } else { MAX_TEXT };
        if text.is_empty() {
            return Err("must not be empty".to_owned());
        }
        if text.len() > limit {
            return Err(format!("must be at most {limit} bytes long"));
        }
        if self.kind == FieldKind::Pem && !text.trim_start().starts_with("-----BEGIN ") {
            return Err("must be a PEM document (-----BEGIN …-----)".to_owned());
        }
        if self.kind != FieldKind::Pem && text.chars().any(char::is_control) {
            return Err("must hold no control characters".to_owned());
        }
        if self.kind == FieldKind::Url {
            match url::Url::parse(text) {
                Err(_) => return Err("must be an absolute URL".to_owned()),
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    return Err(
                        "must not carry a user name or password; those are credentials".to_owned()
                    );
                }
                Ok(_) => {}
            }
        }
        let Some(pattern) = self.pattern else { return Ok(()) };
        let whole = regex::Regex::new(&format!("^(?:{pattern})$"));
        if whole.is_ok_and(|regex| regex.is_match(text)) {
            Ok(())
        } else {
            Err(format!("must match {pattern}"))
        }
    }
}

/// A transport, as `GET /transports` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TransportDescription {
    /// The value of an agent's `delivery.mode`.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: DeliveryMode,
    /// Name for people.
    pub label: &'static str,
    /// Its purpose, in a sentence or two.
    pub description: &'static str,
    /// Members of `delivery.config`.
    pub config_fields: &'static [TransportField],
    /// Members of `delivery.credentials`.
    pub credential_fields: &'static [TransportField],
    /// Largest message in bytes, headers included; a larger body goes as a claim check. Absent: no limit of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_message_bytes: Option<usize>,
    /// Whether receivers may send verdicts back by the transport.
    pub reply_channel: bool,
    /// Whether the broker takes handoffs in by the transport.
    pub intake: bool,
}

/// A value that does not fit its description: its JSON pointer and the reason.
pub type FieldError = (String, String);

impl TransportDescription {
    /// Checks an agent's `config`.
    ///
    /// # Errors
    /// Every value that does not fit.
    pub fn check_config(&self, config: &Map<String, Value>) -> Result<(), Vec<FieldError>> {
        check(self.config_fields, "/delivery/config", config, self.mode, &[])
    }

    /// Checks an agent's `credentials`; `None` keeps those in `set`, the names of the sealed ones.
    ///
    /// # Errors
    /// Every value that does not fit.
    pub fn check_credentials(
        &self,
        credentials: Option<&Map<String, Value>>,
        set: &[String],
    ) -> Result<(), Vec<FieldError>> {
        let none = Map::new();
        let (given, set) = credentials.map_or((&none, set), |given| (given, &[]));
        check(self.credential_fields, "/delivery/credentials", given, self.mode, set)
    }

    /// The config with its defaults filled in.
    #[must_use]
    pub fn complete(&self, config: &Map<String, Value>) -> Map<String, Value> {
        let mut whole = config.clone();
        for field in self.config_fields {
            if let Some(default) = field.default {
                whole.entry(field.key).or_insert_with(|| default.into());
            }
        }
        whole
    }
}

fn check(
    fields: &[TransportField],
    at: &str,
    values: &Map<String, Value>,
    mode: DeliveryMode,
    set: &[String],
) -> Result<(), Vec<FieldError>> {
    let mut errors = Vec::new();
    for (key, value) in values {
        let found = match fields.iter().find(|field| field.key == key) {
            Some(field) => field.check(value),
            None => Err(unknown(key, fields, mode)),
        };
        if let Err(why) = found {
            errors.push((format!("{at}/{}", escape(key)), why));
        }
    }
    for field in fields {
        let given = values.contains_key(field.key) || set.iter().any(|key| key == field.key);
        if field.required && !given {
            let why = format!("is required for {}: {}", mode.as_str(), field.description);
            errors.push((format!("{at}/{}", field.key), why));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn unknown(key: &str, fields: &[TransportField], mode: DeliveryMode) -> String {
    let near = fields
        .iter()
        .map(|field| (strsim::normalized_damerau_levenshtein(key, field.key), field.key))
        .filter(|(near, _)| *near >= 0.5)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match near {
        Some((_, known)) => format!("is not a field of {}; did you mean '{known}'?", mode.as_str()),
        None if fields.is_empty() => format!("{} takes no fields here", mode.as_str()),
        None => {
            let known: Vec<_> = fields.iter().map(|field| field.key).collect();
            format!("is not a field of {}; it takes {}", mode.as_str(), known.join(", "))
        }
    }
}

/// A member's name as a part of a JSON pointer.
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Credentials on their way to the vault. Their values appear neither in debug output nor in answers.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Credentials(pub Map<String, Value>);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DESCRIPTION: TransportDescription = TransportDescription {
        mode: DeliveryMode::Redis,
        label: "Test",
        description: "For tests.",
        config_fields: &[
            TransportField::new("stream", FieldKind::Text, "Stream", "the stream's key")
                .required()
                .pattern("[a-z:]+"),
            TransportField::new("trim", FieldKind::Integer, "Trim", "entries kept").range(1, 9),
            TransportField::new("tls", FieldKind::Boolean, "TLS", "encrypts")
                .default(FieldDefault::Boolean(true)),
            TransportField::new("kind", FieldKind::Choice, "Kind", "one of two")
                .options(&["a", "b"]),
            TransportField::new("server", FieldKind::Url, "Server", "the server"),
        ],
        credential_fields: &[TransportField::secret(
            "password",
            FieldKind::Text,
            "Password",
            "the password",
        )
        .required()],
        max_message_bytes: None,
        reply_channel: false,
        intake: false,
    };

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(members) = value else { panic!("an object") };
        members
    }

    #[test]
    fn a_fitting_config_passes_and_gets_its_defaults() {
        let config = object(json!({"stream": "a:b", "trim": 9, "kind": "b", "server": "x://h"}));
        assert_eq!(DESCRIPTION.check_config(&config), Ok(()));
        assert_eq!(DESCRIPTION.complete(&config)["tls"], json!(true));
        let off = object(json!({"stream": "a", "tls": false}));
        assert_eq!(DESCRIPTION.complete(&off)["tls"], json!(false));
    }

    #[test]
    fn each_misfit_is_named_with_pointer_and_reason() {
        for (config, pointer, why) in [
            (json!({}), "/delivery/config/stream", "is required for redis"),
            (json!({"stream": "A"}), "/delivery/config/stream", "must match"),
            (json!({"stream": ""}), "/delivery/config/stream", "must not be empty"),
            (json!({"stream": 1}), "/delivery/config/stream", "must be a text"),
            (json!({"stream": "a", "trim": 0}), "/delivery/config/trim", "between 1 and 9"),
            (json!({"stream": "a", "trim": 1.5}), "/delivery/config/trim", "whole number"),
            (json!({"stream": "a", "tls": "yes"}), "/delivery/config/tls", "true or false"),
            (json!({"stream": "a", "kind": "c"}), "/delivery/config/kind", "one of: a, b"),
            (json!({"stream": "a", "server": "h"}), "/delivery/config/server", "absolute URL"),
            (json!({"stream": "a", "server": "x://u:p@h"}), "/delivery/config/server", "password"),
            (json!({"stream": "a", "tsl": true}), "/delivery/config/tsl", "did you mean 'tls'?"),
            (json!({"stream": "a", "x/~": 1}), "/delivery/config/x~1~0", "it takes stream, trim"),
        ] {
            let errors = DESCRIPTION.check_config(&object(config.clone())).unwrap_err();
            assert_eq!(errors.len(), 1, "{config}: {errors:?}");
            assert_eq!(errors[0].0, pointer, "{config}");
            assert!(errors[0].1.contains(why), "{config}: {}", errors[0].1);
        }
    }

    #[test]
    fn sealed_credentials_count_until_others_are_given() {
        let set = ["password".to_owned()];
        assert_eq!(DESCRIPTION.check_credentials(None, &set), Ok(()));
        assert!(DESCRIPTION.check_credentials(None, &[]).is_err());
        let errors = DESCRIPTION.check_credentials(Some(&Map::new()), &set).unwrap_err();
        assert_eq!(errors[0].0, "/delivery/credentials/password");
    }

    #[test]
    fn credentials_are_not_in_debug_output() {
        let credentials = Credentials(object(json!({"password": "x1y2z3"})));
        let shown = format!("{credentials:?}");
        assert!(shown.contains("password") && !shown.contains("x1y2z3"), "{shown}");
    }
}
