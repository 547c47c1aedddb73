//! `[doors]`: protocols other than the API.

use serde::Deserialize;

use handoffd_domain::strategy::StrategyShares;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Doors {
    pub mcp: McpDoor,
    pub a2a: A2aDoor,
    pub sw4rm: Sw4rmDoor,
    pub jazz: JazzDoor,
}

/// `[doors.sw4rm]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Sw4rmDoor {
    pub enabled: bool,
}

/// `[doors.jazz]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct JazzDoor {
    pub enabled: bool,
    pub strategies: StrategyShares,
}

/// `[doors.a2a]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct A2aDoor {
    pub enabled: bool,
    pub default_agent: String,
    pub public_tenant: String,
    pub repeated_message: RepeatedMessage,
    pub card_max_age_s: u64,
    pub poll_ms: u64,
    pub poll_max_ms: u64,
    pub silence_ms: u64,
}

/// How the A2A door takes a message whose id its sender used before (`doors.a2a.repeated_message`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatedMessage {
    /// The door answers with the first message's task; another content under the id is refused.
    SameTask,
    /// The door makes a new task of each message.
    NewTask,
}

/// `[doors.mcp]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpDoor {
    pub enabled: bool,
    pub oauth: OAuth,
}

/// `[doors.mcp.oauth]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct OAuth {
    pub issuer: String,
    pub jwks_url: String,
    pub audience: String,
    pub tenant: String,
    pub agent_claim: String,
    pub scope: String,
    pub leeway_s: u64,
}
