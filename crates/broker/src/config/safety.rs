//! `[safety]`: the effect of findings, and the classifier.

use serde::Deserialize;

use super::readers::{maybe_region, moment};
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::policy::Orders;
use handoffd_domain::residency::Region;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Safety {
    pub mode: SafetyMode,
    pub orders: Orders,
    pub exceptions: Vec<SafetyException>,
    pub classifier: Classifier,
}

/// The effect of a safety finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SafetyMode {
    /// The handoff is refused.
    Enforce,
    /// The finding is recorded, and the handoff passes.
    Observe,
    /// The finding is ignored.
    Allow,
}

/// An exception of the safety stage, as `[[safety.exceptions]]` has it.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SafetyExceptionBody))]
#[serde(deny_unknown_fields)]
pub struct SafetyException {
    /// `enforce`, `observe` or `allow`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: SafetyMode,
    /// The action on marked orders; none: `mode` = `allow` drops them.
    pub orders: Option<Orders>,
    /// The tenant for which the exception holds.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub tenant: Option<TenantId>,
    /// For messages of this agent.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub agent: Option<AgentId>,
    /// For messages to this agent.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub to: Option<AgentId>,
    /// For this field of the message.
    pub field: Option<String>,
    /// For these rules and families; all of them where there is none.
    #[serde(default)]
    pub rules: Vec<String>,
    /// Until then, RFC 3339.
    #[serde(default, deserialize_with = "moment")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub until: Option<Micros>,
}

/// The messages that the classifier is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassifierAsk {
    /// All that passed the rules.
    All,
    /// Those that a rule marked.
    Marked,
}

/// When the classifier is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassifierWhen {
    /// The broker asks before the commit, and the sender waits for the answer.
    Before,
    /// The broker asks after the commit about messages that the answer cannot refuse.
    After,
}

/// `[safety.classifier]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classifier {
    pub url: String,
    pub style: ClassifierStyle,
    pub api_key: String,
    pub model: String,
    pub timeout_ms: u64,
    pub failure_mode: FailureMode,
    pub threshold: f64,
    pub max_bytes: usize,
    pub ask: ClassifierAsk,
    pub when: ClassifierWhen,
    #[serde(deserialize_with = "maybe_region")]
    pub region: Option<Region>,
    pub transfer_basis: String,
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Address and key may hold secrets.
        f.debug_struct("Classifier").field("style", &self.style).finish_non_exhaustive()
    }
}

/// Protocol of a classifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassifierStyle {
    /// The broker's own request and answer.
    Handoffd,
    /// A moderation endpoint after OpenAI.
    OpenaiModeration,
    /// A chat endpoint after OpenAI.
    OpenaiChat,
}

impl ClassifierStyle {
    /// The name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handoffd => "handoffd",
            Self::OpenaiModeration => "openai-moderation",
            Self::OpenaiChat => "openai-chat",
        }
    }
}

/// The effect of a classifier that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureMode {
    /// The handoff passes.
    Open,
    /// The handoff is refused with 503, and nothing is written.
    Closed,
}
