//! How and where an agent takes its handoffs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::nullable;
use crate::content_coding::Coding;
use crate::handoff::DeliveryMode;
use crate::transport::Credentials;

/// The endpoint of an agent, and the transport by which it takes its handoffs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delivery {
    /// The transport: `webhook`, `pull`, or another of `GET /transports`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: DeliveryMode,
    /// The webhook's URL; http or https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How long one attempt may take, in milliseconds (100 to 120 000).
    #[serde(default = "default_timeout_ms", alias = "timeout_ms")]
    #[cfg_attr(feature = "openapi", schema(default = 10_000, minimum = 100, maximum = 120_000))]
    pub timeout_ms: u64,
    /// How many handoffs each broker may have on their way to it at once (1 to 1 000).
    #[serde(default = "default_max_in_flight", alias = "max_in_flight")]
    #[cfg_attr(feature = "openapi", schema(default = 16, minimum = 1, maximum = 1_000))]
    pub max_in_flight: u32,
    /// The form in which handoffs are sent; `handoff` unless said.
    #[serde(default, skip_serializing_if = "DeliveryFormat::is_handoff")]
    pub format: DeliveryFormat,
    /// Content codings that the endpoint takes, the preferred one first; large bodies go to it so.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "accept_encoding")]
    pub accept_encoding: Vec<Coding>,
    /// The transport's own settings; `GET /transports` describes them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub config: Map<String, Value>,
    /// The transport's secrets: sealed on arrival, and never shown. Absent in a change: those of the same mode are kept.
    #[serde(default, skip_serializing)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>, write_only))]
    pub credentials: Option<Credentials>,
    /// Names of the sealed credentials. The broker sets it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "credentials_set")]
    pub credentials_set: Vec<String>,
    /// Set when the endpoint answered 410, or failed too often in a row; cleared by setting a delivery
    /// anew.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disabled: bool,
    /// Set while the endpoint is on its way to being disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
}

/// A request's description of a delivery: an absent member is left alone. A new agent's has a `mode`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverySpec {
    /// The transport: `webhook`, `pull`, or another of `GET /transports`. Another one than before begins with empty `config` and
    /// `credentials`, and keeps `url`, `format` and `acceptEncoding` where it has a use for them.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub mode: Option<DeliveryMode>,
    /// The webhook's URL; http or https. Null clears it.
    #[serde(default, deserialize_with = "nullable")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub url: Option<Option<String>>,
    /// How long one attempt may take, in milliseconds (100 to 120 000); 10 000 unless said.
    #[serde(default, alias = "timeout_ms")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 120_000))]
    pub timeout_ms: Option<u64>,
    /// How many handoffs each broker may have on their way to it at once (1 to 1 000); 16 unless said.
    #[serde(default, alias = "max_in_flight")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000))]
    pub max_in_flight: Option<u32>,
    /// The form in which handoffs are sent; `handoff` unless said.
    #[serde(default)]
    pub format: Option<DeliveryFormat>,
    /// Content codings that the endpoint takes, the preferred one first; `[]` clears.
    #[serde(default, alias = "accept_encoding")]
    pub accept_encoding: Option<Vec<Coding>>,
    /// The transport's own settings, which `GET /transports` describes: each named one is set, and null clears it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub config: Option<Map<String, Value>>,
    /// The transport's secrets: sealed on arrival, and never shown. They replace all that were given before.
    #[serde(default, skip_serializing)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>, write_only))]
    pub credentials: Option<Credentials>,
    /// Names of the sealed credentials. The broker sets it.
    #[serde(default, alias = "credentials_set")]
    pub credentials_set: Option<Vec<String>>,
    /// `false` takes a disabled endpoint into service again, as each `mode`, `url`, `config` or `credentials` does.
    #[serde(default)]
    pub disabled: Option<bool>,
    /// The broker sets it.
    #[serde(default)]
    pub failing: Option<Failing>,
}

impl DeliverySpec {
    /// The delivery that a change makes of the one before: its credentials as given, the names of the sealed ones as stated.
    #[must_use]
    pub fn over(&self, before: &Delivery) -> Delivery {
        let mut next = before.clone();
        if let Some(mode) = self.mode.filter(|mode| *mode != before.mode) {
            next.mode = mode;
            next.config = Map::new();
            next.credentials_set = Vec::new();
            if !matches!(mode, DeliveryMode::Webhook | DeliveryMode::Pull) {
                next.url = None;
            }
            if !mode.carries_bytes() {
                next.accept_encoding = Vec::new();
            }
            if mode == DeliveryMode::A2a {
                next.format = DeliveryFormat::default();
            }
        }
        macro_rules! take {
            ($($field:ident),*) => { $( if let Some(value) = &self.$field { next.$field = value.clone(); } )* };
        }
        take!(url, timeout_ms, max_in_flight, format, accept_encoding, credentials_set);
        for (name, value) in self.config.iter().flatten() {
            if value.is_null() {
                next.config.remove(name);
            } else {
                next.config.insert(name.clone(), value.clone());
            }
        }
        next.credentials.clone_from(&self.credentials);
        let anew = self.mode.is_some()
            || self.url.is_some()
            || self.config.is_some()
            || self.credentials.is_some()
            || self.disabled == Some(false);
        if anew {
            next.disabled = false;
            next.failing = None;
        }
        next
    }
}

/// The form in which a receiver gets its handoffs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeliveryFormat {
    /// The handoff message.
    #[default]
    Handoff,
    /// SW4RM's `HandoffRequest` (docs/doors/sw4rm.md).
    Sw4rm,
}

impl DeliveryFormat {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    const fn is_handoff(&self) -> bool {
        matches!(self, Self::Handoff)
    }
}

/// How far an endpoint is on its way to being disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Failing {
    /// Failures in a row that counted.
    pub failures: u32,
    /// The last step told to operators: 50, 70, 90 or 100.
    pub percent: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

const fn default_timeout_ms() -> u64 {
    10_000
}

const fn default_max_in_flight() -> u32 {
    16
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            mode: DeliveryMode::Pull,
            url: None,
            timeout_ms: default_timeout_ms(),
            max_in_flight: default_max_in_flight(),
            format: DeliveryFormat::default(),
            accept_encoding: Vec::new(),
            config: Map::new(),
            credentials: None,
            credentials_set: Vec::new(),
            disabled: false,
            failing: None,
        }
    }
}

impl Delivery {
    /// Identifies the destination: a disabled or failing endpoint is meant only while this is unchanged.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.url {
            Some(url) => url.clone(),
            None => format!("{} {}", self.mode.as_str(), Value::Object(self.config.clone())),
        }
    }
}

pub(super) fn check(delivery: &Delivery) -> Result<(), (String, String)> {
    if !(100..=120_000).contains(&delivery.timeout_ms) {
        return Err((
            "/delivery/timeoutMs".to_owned(),
            "must be between 100 and 120000 milliseconds".to_owned(),
        ));
    }
    if !(1..=1_000).contains(&delivery.max_in_flight) {
        return Err(("/delivery/maxInFlight".to_owned(), "must be between 1 and 1000".to_owned()));
    }
    let codings = &delivery.accept_encoding;
    if codings.iter().enumerate().any(|(place, coding)| codings[..place].contains(coding)) {
        return Err((
            "/delivery/acceptEncoding".to_owned(),
            "must name each coding once".to_owned(),
        ));
    }
    if !codings.is_empty() && !delivery.mode.carries_bytes() {
        let why = if delivery.mode == DeliveryMode::Pull {
            "is for what is sent; who pulls says it in the request's Accept-Encoding".to_owned()
        } else {
            format!("{} carries text alone", delivery.mode.as_str())
        };
        return Err(("/delivery/acceptEncoding".to_owned(), why));
    }
    if delivery.mode == DeliveryMode::A2a && delivery.format != DeliveryFormat::Handoff {
        let why = "an agent that is reached by A2A gets messages of that protocol";
        return Err(("/delivery/format".to_owned(), why.to_owned()));
    }
    match (&delivery.mode, &delivery.url) {
        (DeliveryMode::Webhook, None) => {
            Err(("/delivery/url".to_owned(), "a webhook needs a url".to_owned()))
        }
        (DeliveryMode::Webhook | DeliveryMode::Pull, Some(url)) => check_url("/delivery/url", url),
        (mode, Some(_)) => Err((
            "/delivery/url".to_owned(),
            format!("is for webhooks; the address for {} is in delivery.config", mode.as_str()),
        )),
        (_, None) => Ok(()),
    }
}

/// A URL that may be registered.
pub(crate) fn check_url(pointer: &str, text: &str) -> Result<(), (String, String)> {
    let wrong = |message: &str| Err((pointer.to_owned(), message.to_owned()));
    if text.len() > 2_048 {
        return wrong("must be at most 2048 bytes long");
    }
    match url::Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => wrong("must be http or https"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("must not carry a user name or password")
        }
        Ok(_) => Ok(()),
        Err(_) => wrong("must be an absolute URL"),
    }
}
