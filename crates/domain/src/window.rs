//! The receiver's context window: what is registered of it, what a contract says instead, and what the broker measured
//! of a message against it (specification §10.1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::money::Usd;
use super::residency::Crossing;

/// The tokenizer by which an agent's model counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Tokenizer {
    /// OpenAI's `o200k_base`.
    O200k,
    /// OpenAI's `cl100k_base`.
    Cl100k,
    /// No exact count: by the classes of the bytes.
    #[default]
    Estimate,
}

impl Tokenizer {
    /// The name in a record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::O200k => "o200k",
            Self::Cl100k => "cl100k",
            Self::Estimate => "estimate",
        }
    }
}

/// The action on a message over its receiver's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ContextPolicy {
    /// Deliver the message as it is; answer, record and trace say that it is over the limit.
    Flag,
    /// Compress after the commit and before the first attempt.
    Compress,
    /// Refuse the message.
    Refuse,
}

/// A contract's rule about the size of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContextRule {
    /// The most tokens of a message, in the place of the receiver's window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The action on a message over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ContextPolicy>,
}

impl ContextRule {
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The broker's settings about context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextSettings {
    /// The share of a receiver's window that a message may take, in millionths.
    pub share: u32,
    /// The policy for a message over the limit where neither receiver nor contract states one.
    pub policy: ContextPolicy,
    /// Whether a compressor is set; without one `compress` is `flag`.
    pub compresses: bool,
    /// Turns that stay verbatim, counted from the end.
    pub keep_turns: usize,
    /// The policy for embedded binary data.
    pub binary: BinaryPolicy,
}

impl Default for ContextSettings {
    /// As in `config/default.toml`.
    fn default() -> Self {
        Self {
            share: 800_000,
            policy: ContextPolicy::Compress,
            compresses: true,
            keep_turns: 5,
            binary: BinaryPolicy::Warn,
        }
    }
}

/// The policy for binary data that a message embeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BinaryPolicy {
    /// Passes, with a warning.
    #[default]
    Warn,
    Refuse,
}

/// The rules for messages to one receiver under one contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextLimit {
    /// The receiver's window, in tokens.
    pub window: Option<u64>,
    /// The most tokens of a message; `None` if no window is configured.
    pub tokens: Option<u64>,
    /// The action on a message over it.
    pub policy: ContextPolicy,
    pub tokenizer: Tokenizer,
}

impl ContextLimit {
    /// Whether so many tokens are over the limit.
    #[must_use]
    pub fn exceeded_by(&self, tokens: u64) -> bool {
        self.tokens.is_some_and(|most| tokens > most)
    }

    /// The step for a message of so many tokens; `None`: refused.
    #[must_use]
    pub fn action(&self, tokens: u64, settings: &ContextSettings) -> Option<ContextAction> {
        if !self.exceeded_by(tokens) {
            return Some(ContextAction::None);
        }
        match self.policy {
            ContextPolicy::Compress if settings.compresses => Some(ContextAction::Compress),
            ContextPolicy::Flag | ContextPolicy::Compress => Some(ContextAction::Flag),
            ContextPolicy::Refuse => None,
        }
    }
}

/// The step for an accepted message by its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContextAction {
    /// The message fits, or no window is known.
    #[default]
    None,
    /// Over the limit, delivered as it is.
    Flag,
    /// Over the limit, compressed before delivery.
    Compress,
}

impl ContextAction {
    pub const ALL: [Self; 3] = [Self::None, Self::Flag, Self::Compress];

    /// As a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Flag => "flag",
            Self::Compress => "compress",
        }
    }
}

/// Tokens of a message by part. The parts have every member of the message, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ContextParts {
    /// `conversationHistorySummary`, `taskSummary`.
    pub summary: u64,
    /// `conversationHistoryVerbatim`.
    pub turns: u64,
    /// `currentState`, `completedSubtasks`, `remainingSubtasks`.
    pub state: u64,
    /// `toolCallHistory`, `toolState`.
    pub tools: u64,
    /// Every other member.
    pub context: u64,
}

impl ContextParts {
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("summary", self.summary),
            ("turns", self.turns),
            ("state", self.state),
            ("tools", self.tools),
            ("context", self.context),
        ]
    }

    #[must_use]
    pub const fn total(&self) -> u64 {
        self.summary + self.turns + self.state + self.tools + self.context
    }
}

/// A message's measured size: figures and codes alone, for answer, record and trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContextFacts {
    /// Tokens of the message as its receiver gets it.
    pub tokens: u64,
    /// The receiver's window, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// The most tokens of a message to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The step taken.
    pub action: ContextAction,
    /// How the tokens were counted.
    pub tokenizer: Tokenizer,
    /// The tokens by part.
    pub parts: ContextParts,
}

impl ContextFacts {
    /// As stored: JSON.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Plain data always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same message for another receiver: the tokens stay as they were counted. A limit that the message exceeds
    /// under the policy `refuse` is a reason not to give it to that receiver ([`ContextFacts::refuses`]).
    #[must_use]
    pub fn readdressed(&self, limit: &ContextLimit, settings: &ContextSettings) -> Self {
        Self {
            window: limit.window,
            limit: limit.tokens,
            action: limit.action(self.tokens, settings).unwrap_or(ContextAction::Flag),
            ..*self
        }
    }

    /// Whether a receiver with that limit refuses a message of these tokens.
    #[must_use]
    pub fn refuses(&self, limit: &ContextLimit, settings: &ContextSettings) -> bool {
        limit.action(self.tokens, settings).is_none()
    }
}

/// Which compressor made a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressedBy {
    /// Sentences of the turns, chosen by what they say.
    Extractive,
    Model,
    /// No compressor: what tools had cached was left out, and that was enough.
    Trimming,
}

impl CompressedBy {
    /// The text in a record, and as a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Extractive => "extractive",
            Self::Model => "model",
            Self::Trimming => "trimming",
        }
    }
}

/// The class of a sentence, by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SentenceClass {
    Constraint,
    Warning,
    Change,
    Commitment,
    Decision,
    Question,
    Reason,
    /// It states none of these, and has figures.
    Figures,
    Other,
}

impl SentenceClass {
    /// Whether it must not be lost by its form.
    #[must_use]
    pub const fn is_statement(self) -> bool {
        !matches!(self, Self::Figures | Self::Other)
    }
}

/// Sentences of a class, and those of them that the summary has as they were said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordSentences))]
pub struct SentenceCount {
    /// Different sentences.
    pub of: u64,
    /// Those that are kept.
    pub kept: u64,
}

/// Sentences by class; classes without one are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SentenceCounts(pub BTreeMap<SentenceClass, SentenceCount>);

impl SentenceCounts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A compression's result: figures and codes alone, for the record and the delivered message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompressionFacts {
    /// Who wrote the summary.
    pub by: CompressedBy,
    /// Turns of the message as submitted.
    pub original_turns: u64,
    /// Turns that stay as they were said.
    pub kept_turns: u64,
    /// Tokens of the message as submitted.
    pub original_tokens: u64,
    /// Tokens of the message as delivered.
    pub tokens: u64,
    /// How the tokens were counted.
    pub tokenizer: Tokenizer,
    /// Facts of the part that was replaced.
    pub facts: u64,
    /// Those that what replaced it holds.
    pub facts_kept: u64,
    /// Those of them that the check appended.
    pub facts_appended: u64,
    /// All sentences of the part that was replaced by class, with those that the summary has word for word.
    #[serde(skip_serializing_if = "SentenceCounts::is_empty", default)]
    pub sentences: SentenceCounts,
    /// Whether the message is within its receiver's limit now.
    pub fits: bool,
    /// The cost of the model's call.
    #[serde(rename = "costUSD", skip_serializing_if = "Option::is_none", default)]
    pub cost: Option<Usd>,
    /// Why the embedded compressor took the model's place: a code.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fallback: Option<String>,
    /// The turns went to another region for the model's summary.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub crossing: Option<Crossing>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;

    fn agent(window: u64) -> Agent {
        Agent { context_window_tokens: Some(window), ..Agent::new("reader".parse().unwrap()) }
    }

    #[test]
    fn the_limit_is_a_share_of_the_window_or_the_contracts() {
        let settings = ContextSettings::default();
        let own = ContextLimit::of(&agent(1_000), None, &settings);
        assert_eq!((own.window, own.tokens), (Some(1_000), Some(800)));
        assert!(!own.exceeded_by(800) && own.exceeded_by(801));
        let rule = ContextRule { tokens: Some(900), policy: Some(ContextPolicy::Refuse) };
        let ruled = ContextLimit::of(&agent(1_000), Some(&rule), &settings);
        assert_eq!((ruled.tokens, ruled.policy), (Some(900), ContextPolicy::Refuse));
        let unknown = ContextLimit::of(&Agent::new("x".parse().unwrap()), None, &settings);
        assert!(!unknown.exceeded_by(u64::MAX));
    }

    #[test]
    fn policy_decides_over_the_limit_and_only_there() {
        let settings = ContextSettings::default();
        for (policy, compresses, action) in [
            (ContextPolicy::Flag, true, Some(ContextAction::Flag)),
            (ContextPolicy::Compress, true, Some(ContextAction::Compress)),
            (ContextPolicy::Compress, false, Some(ContextAction::Flag)),
            (ContextPolicy::Refuse, true, None),
        ] {
            let settings = ContextSettings { compresses, ..settings };
            let reader = Agent { context_policy: Some(policy), ..agent(100) };
            let limit = ContextLimit::of(&reader, None, &settings);
            assert_eq!(limit.action(81, &settings), action);
            assert_eq!(limit.action(80, &settings), Some(ContextAction::None));
        }
    }
}
