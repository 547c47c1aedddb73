//! Settings: `config/default.toml` compiled in, over it a file, over it the environment. That file is
//! the documentation; an unknown or unreadable key is an error that names it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use handoffd_domain::cap::Defaults;
use handoffd_domain::credential::SecretPolicy;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::redaction::RedactionPolicy;
use handoffd_domain::residency::Region;
use handoffd_domain::window::{BinaryPolicy, ContextPolicy, ContextSettings};

mod caps;
mod doors;
mod kubernetes;
mod load;
mod numbers;
mod readers;
mod residency;
mod safety;
#[cfg(test)]
mod tests;
mod transports;

pub use doors::{A2aDoor, Doors, JazzDoor, McpDoor, OAuth, RepeatedMessage, Sw4rmDoor};
use readers::{list, maybe_address, maybe_folder, maybe_region, maybe_url, moment};
pub use residency::{Outsider, Residency};
pub use safety::{
    Classifier, ClassifierAsk, ClassifierStyle, ClassifierWhen, FailureMode, Safety,
    SafetyException, SafetyMode,
};
pub use transports::{
    AmqpIntake, AmqpTransport, NatsIntake, NatsTransport, RedisIntake, RedisTransport, RoleQueues,
    SqsIntake, SqsTransport, Transports,
};

/// The defaults, as shipped and documented.
pub const DEFAULTS: &str = include_str!("../../../../config/default.toml");

/// An error in the settings, as a sentence that names the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("configuration: {0}")]
pub struct ConfigError(pub String);

/// All settings; see `config/default.toml` for units and meaning.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub server: Server,
    pub database: Database,
    pub auth: Auth,
    pub audit: Audit,
    pub ledger: Ledger,
    pub delivery: Delivery,
    pub events: Events,
    pub gate: Gate,
    pub context: Context,
    pub contracts: Contracts,
    pub budget: Budget,
    pub safety: Safety,
    pub routing: Routing,
    pub recovery: Recovery,
    pub stream: Stream,
    pub egress: Egress,
    pub retention: Retention,
    pub residency: Residency,
    pub erasure: Erasure,
    pub redaction: Redaction,
    pub log: Log,
    pub doors: Doors,
    pub console: Console,
    pub transports: Transports,
    /// Variables that were ignored, because Kubernetes sets them beside a Service named `handoffd`.
    #[serde(skip)]
    pub service_links: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    pub listen: SocketAddr,
    #[serde(deserialize_with = "maybe_url")]
    pub public_url: Option<url::Url>,
    #[serde(deserialize_with = "maybe_address")]
    pub metrics_listen: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub max_body_bytes: usize,
    pub max_large_bytes: usize,
    pub body_timeout_ms: u64,
    pub drain_bytes: usize,
    pub drain_ms: u64,
    pub max_requests: usize,
    pub max_waits: usize,
    pub max_connections: usize,
    pub max_connection_bytes: usize,
    pub max_connections_bytes: usize,
    pub header_timeout_ms: u64,
    pub write_timeout_ms: u64,
    pub stop_timeout_ms: u64,
}

/// `[console]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Console {
    pub enabled: bool,
    pub session_hours: u32,
    pub idle_minutes: u32,
    pub logins_per_minute: u32,
    pub secure_cookie: SecureCookie,
}

/// When the cookie of a session is for https alone (`console.secure_cookie`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecureCookie {
    /// If the login came by https, as far as the request and `server.public_url` tell.
    Auto,
    /// In each case; a browser then ignores the cookie of a login by http.
    Always,
    /// In no case.
    Never,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Erasure {
    pub page: usize,
    pub wait_ms: u64,
    pub rewrite_limit_mib: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redaction {
    #[serde(deserialize_with = "list")]
    pub pointers: Vec<String>,
    pub secrets: SecretPolicy,
}

impl Redaction {
    /// The policy; `check` has seen that it can be read.
    #[must_use]
    pub fn policy(&self) -> RedactionPolicy {
        RedactionPolicy::parse(&self.pointers).unwrap_or_default().with_secrets(self.secrets)
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    pub url: String,
    pub max_connections: u32,
    pub acquire_timeout_ms: u64,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        f.debug_struct("Database")
            .field("max_connections", &self.max_connections)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    pub admin_key: String,
    pub master_key: String,
    pub tenant: handoffd_domain::ids::TenantId,
    #[serde(deserialize_with = "maybe_folder")]
    pub keys_dir: Option<PathBuf>,
    pub cache_ttl_ms: u64,
    pub rotation_overlap_s: u64,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub require_contract: bool,
    pub contract_exceptions: Vec<ContractException>,
    pub agent_version: handoffd_domain::policy::VersionClaims,
    pub max_hops: u32,
    pub max_edge_repeats: u32,
    pub max_iterations: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    pub compress_at: f64,
    pub policy: ContextPolicy,
    pub compressor: Compressor,
    pub keep_turns: usize,
    pub binary: BinaryPolicy,
    pub model: ContextModel,
}

/// The compressor of a message that is over its receiver's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compressor {
    /// No compressor: a message over the limit is flagged.
    None,
    Extractive,
    /// `[context.model]`, and the embedded compressor where it gives nothing.
    Model,
}

/// `[context.model]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextModel {
    pub url: String,
    pub api_key: String,
    pub model: String,
    pub timeout_ms: u64,
    pub usd_per_million_in: f64,
    pub usd_per_million_out: f64,
    #[serde(deserialize_with = "maybe_region")]
    pub region: Option<Region>,
    pub transfer_basis: String,
}

impl std::fmt::Debug for ContextModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContextModel")
            .field("model", &self.model)
            .field("timeout_ms", &self.timeout_ms)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// The settings as gate and ledger use them; `check` has seen the share.
    #[must_use]
    pub fn settings(&self) -> ContextSettings {
        ContextSettings {
            share: (self.compress_at * 1_000_000.0).round() as u32,
            policy: self.policy,
            compresses: self.compressor != Compressor::None,
            keep_turns: self.keep_turns,
            binary: self.binary,
        }
    }
}

/// An entry of `gate.contract_exceptions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractException {
    pub require_contract: bool,
    pub tenant: Option<TenantId>,
    pub agent: Option<AgentId>,
    pub to: Option<AgentId>,
    #[serde(default, deserialize_with = "moment")]
    pub until: Option<Micros>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contracts {
    pub accept_pinned: bool,
    pub minimum_level: MinimumLevel,
    pub exceptions: Vec<ContractsException>,
}

/// The lowest level of a contract that may rule an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum MinimumLevel {
    /// Every contract may rule.
    #[serde(rename = "none")]
    None,
    /// Every required clause.
    L1,
    /// And observability, version, idempotency.
    L2,
    /// And a reviewer, a frozen schema, a lint without errors.
    L3,
}

/// An entry of `contracts.exceptions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContractsException {
    pub accept_pinned: Option<bool>,
    pub minimum_level: Option<MinimumLevel>,
    pub tenant: Option<TenantId>,
    pub agent: Option<AgentId>,
    pub to: Option<AgentId>,
    #[serde(default, deserialize_with = "moment")]
    pub until: Option<Micros>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub fan_out: FanOut,
    #[serde(deserialize_with = "list")]
    pub tenant_caps: Vec<String>,
    #[serde(deserialize_with = "list")]
    pub agent_caps: Vec<String>,
}

impl Budget {
    /// The default caps; `check` has seen that they can be read.
    #[must_use]
    pub fn caps(&self) -> Defaults {
        let read = |texts: &[String]| caps::limits(texts).unwrap_or_default();
        Defaults { tenant: read(&self.tenant_caps), agent: read(&self.agent_caps) }
    }
}

/// Limit on the spending of handoffs that share a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FanOut {
    /// All together stay within the parent's amount.
    Reserve,
    /// Each stays within the parent's amount.
    Share,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Routing {
    pub matcher: Matcher,
}

/// `[routing.matcher]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matcher {
    pub url: String,
    pub style: MatcherStyle,
    pub api_key: String,
    pub model: String,
    pub timeout_ms: u64,
    pub max_agents: usize,
    #[serde(deserialize_with = "maybe_region")]
    pub region: Option<Region>,
    pub transfer_basis: String,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Address and key may hold secrets.
        f.debug_struct("Matcher").field("style", &self.style).finish_non_exhaustive()
    }
}

/// Protocol of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatcherStyle {
    /// The broker's own request and answer.
    Handoffd,
    /// A chat endpoint after OpenAI.
    OpenaiChat,
}

impl MatcherStyle {
    /// The name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handoffd => "handoffd",
            Self::OpenaiChat => "openai-chat",
        }
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    pub database_url: String,
    pub origin: String,
    pub signing_key: String,
    pub public: bool,
    pub public_entries: bool,
    pub publish: String,
    pub publish_interval_s: u64,
    pub witnesses: String,
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("origin", &self.origin).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    pub queue: usize,
    pub batch: usize,
    pub workers: usize,
    pub conflict_tries: u32,
    pub submissions: usize,
    pub submissions_each: usize,
    pub settle_delay_ms: u64,
}

/// The database that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
}

impl DatabaseKind {
    /// `None` for a URL of another kind.
    #[must_use]
    pub fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        match scheme {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" if rest.starts_with("//") => Some(Self::Postgres),
            _ => None,
        }
    }
}

impl Config {
    /// The most submissions of one agent at once beside others: as set, or the measured number at which the others' wait stays
    /// under three times their own (`docs/performance.md#beside-a-flood`).
    #[must_use]
    pub fn submissions_each(&self) -> usize {
        match self.ledger.submissions_each {
            0 if DatabaseKind::of(&self.database_url()) == Some(DatabaseKind::Sqlite) => 3,
            0 => 4,
            set => set,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    pub retry_base_ms: u64,
    pub retry_cap_ms: u64,
    pub max_attempts: u32,
    pub verdict_timeout_ms: u64,
    pub lease_ms: u64,
    pub answer_timeout_ms: u64,
    pub claim_ttl_ms: u64,
    pub unclaimed_ms: u64,
    /// The former name of `unclaimed_ms`, which it sets.
    #[serde(default)]
    pub pull_timeout_ms: Option<u64>,
    pub max_in_flight: usize,
    pub poll_ms: u64,
    pub broker_timeout_ms: u64,
    pub breaker_failures: u32,
    pub disable_after_failures: u32,
    pub retry_budget_percent: u32,
    pub retry_budget_per_s: u32,
    pub connect_timeout_ms: u64,
    pub compress_above_bytes: usize,
}

impl Delivery {
    /// Lifetime of the broker's own claim: longer than any attempt (120 s) and its settlement. The claims of a dead
    /// broker are released much sooner, when its heartbeat stops; this time bounds claims that a living broker lost,
    /// e.g. after a commit whose answer was lost.
    #[must_use]
    pub const fn broker_claim(&self) -> Duration {
        Duration::from_secs(150)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    pub retention_days: u64,
    pub timeout_ms: u64,
    pub retry_base_ms: u64,
    pub retry_cap_ms: u64,
    pub set_aside_after: i32,
    pub disable_after_h: u64,
    pub lease_ms: u64,
    pub max_in_flight: usize,
    pub max_streams: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    pub escalation_timeout_ms: u64,
    pub cancel_grace_ms: u64,
    pub start_grace_ms: u64,
    pub max_checkpoint_bytes: usize,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    pub idle_ms: u64,
    pub max_chunk_bytes: usize,
    pub max_bytes: u64,
    pub max_chunks: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Egress {
    pub allow: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    pub hot_days: u32,
    pub delete_after_days: u32,
    pub delete_interval_s: u64,
    pub archive_interval_s: u64,
    pub archive_url: String,
    pub segment_records: usize,
    pub segment_bytes: usize,
    pub cache_bytes: usize,
    pub s3_endpoint: String,
    pub s3_region: String,
    pub s3_allow_http: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub filter: String,
    pub format: LogFormat,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Plain text for terminals.
    Text,
}
