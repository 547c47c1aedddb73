//! Settings: `config/default.toml` compiled in, over it a file, over it the environment. That file is
//! the documentation; an unknown or unreadable key is an error that names it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::domain::cap::{Defaults, Limit, MAX_DEFAULTS};
use crate::domain::ids::{AgentId, Micros, TenantId};
use crate::domain::redaction::Policy;

/// The defaults, as shipped and documented.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// What is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("configuration: {0}")]
pub struct ConfigError(pub String);

/// All settings; see `config/default.toml` for units and meaning.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Config {
    pub server: Server,
    pub database: Database,
    pub auth: Auth,
    pub audit: Audit,
    pub ledger: Ledger,
    pub delivery: Delivery,
    pub events: Events,
    pub gate: Gate,
    pub budget: Budget,
    pub safety: Safety,
    pub routing: Routing,
    pub recovery: Recovery,
    pub egress: Egress,
    pub retention: Retention,
    pub erasure: Erasure,
    pub redaction: Redaction,
    pub log: Log,
}

/// `[server]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Server {
    pub listen: SocketAddr,
    #[serde(deserialize_with = "maybe_address")]
    pub metrics_listen: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub max_body_bytes: usize,
    pub max_large_bytes: usize,
    pub body_timeout_ms: u64,
    pub max_requests: usize,
    pub max_waits: usize,
    pub max_connections: usize,
    pub header_timeout_ms: u64,
    pub stop_timeout_ms: u64,
}

/// `[erasure]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Erasure {
    pub page: usize,
    pub wait_ms: u64,
    pub rewrite_limit_mib: u64,
}

/// `[redaction]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Redaction {
    #[serde(deserialize_with = "list")]
    pub pointers: Vec<String>,
}

impl Redaction {
    /// The policy; `check` has seen that it can be read.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::parse(&self.pointers).unwrap_or_default()
    }
}

/// `[database]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
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

/// `[auth]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Auth {
    pub admin_key: String,
    pub master_key: String,
    pub tenant: crate::domain::ids::TenantId,
    pub cache_ttl_ms: u64,
    pub rotation_overlap_s: u64,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Auth").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// `[gate]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Gate {
    pub require_contract: bool,
    pub contract_exceptions: Vec<ContractException>,
    pub max_hops: u32,
    pub max_edge_repeats: u32,
}

/// One of `gate.contract_exceptions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct ContractException {
    pub require_contract: bool,
    pub tenant: Option<TenantId>,
    pub agent: Option<AgentId>,
    pub to: Option<AgentId>,
    #[serde(default, deserialize_with = "moment")]
    pub until: Option<Micros>,
}

/// `[budget]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
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
        let read = |texts: &[String]| limits(texts).unwrap_or_default();
        Defaults { tenant: read(&self.tenant_caps), agent: read(&self.agent_caps) }
    }
}

/// Reads caps such as `P1D=100.00`.
fn limits(texts: &[String]) -> Result<[Option<Limit>; MAX_DEFAULTS], String> {
    let mut limits = [None; MAX_DEFAULTS];
    for (place, text) in texts.iter().enumerate() {
        let (window, usd) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is no cap such as P1D=100.00"))?;
        let window = window.trim().parse().map_err(|err| format!("{text:?}: {err}"))?;
        let usd = usd.trim().parse().map_err(|err| format!("{text:?}: {err}"))?;
        if limits.iter().flatten().any(|known: &Limit| known.window == window) {
            return Err(format!("two caps for {window}"));
        }
        *limits.get_mut(place).ok_or_else(|| format!("more than {MAX_DEFAULTS} caps"))? =
            Some(Limit { window, usd });
    }
    Ok(limits)
}

/// What handoffs side by side may spend of what their sender was handed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FanOut {
    /// No more than that, all together.
    Reserve,
    /// As much each.
    Share,
}

/// `[safety]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Safety {
    pub mode: SafetyMode,
    pub exceptions: Vec<SafetyException>,
    pub classifier: Classifier,
}

/// What becomes of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SafetyMode {
    /// It refuses the handoff.
    Enforce,
    /// It is recorded, and the handoff passes.
    Observe,
    /// It does not count.
    Allow,
}

/// One of `safety.exceptions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct SafetyException {
    pub mode: SafetyMode,
    pub tenant: Option<TenantId>,
    pub agent: Option<AgentId>,
    pub to: Option<AgentId>,
    pub field: Option<String>,
    #[serde(default)]
    pub rules: Vec<String>,
    #[serde(default, deserialize_with = "moment")]
    pub until: Option<Micros>,
}

/// `[safety.classifier]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Classifier {
    pub url: String,
    pub style: ClassifierStyle,
    pub api_key: String,
    pub model: String,
    pub timeout_ms: u64,
    pub failure_mode: FailureMode,
    pub threshold: f64,
    pub max_bytes: usize,
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Address and key may hold secrets.
        f.debug_struct("Classifier").field("style", &self.style).finish_non_exhaustive()
    }
}

/// What a classifier speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassifierStyle {
    /// The broker's own request and answer.
    Handoffd,
    /// A moderation endpoint as OpenAI has it.
    OpenaiModeration,
    /// A chat endpoint as OpenAI has it.
    OpenaiChat,
}

impl ClassifierStyle {
    /// As it is set.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handoffd => "handoffd",
            Self::OpenaiModeration => "openai-moderation",
            Self::OpenaiChat => "openai-chat",
        }
    }
}

/// What a classifier's silence means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureMode {
    /// The handoff passes.
    Open,
    /// The handoff waits: 503, nothing is written.
    Closed,
}

/// `[routing]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Routing {
    pub matcher: Matcher,
}

/// `[routing.matcher]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Matcher {
    pub url: String,
    pub style: MatcherStyle,
    pub api_key: String,
    pub model: String,
    pub timeout_ms: u64,
    pub max_agents: usize,
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Address and key may hold secrets.
        f.debug_struct("Matcher").field("style", &self.style).finish_non_exhaustive()
    }
}

/// What a matcher speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatcherStyle {
    /// The broker's own request and answer.
    Handoffd,
    /// A chat endpoint as OpenAI has it.
    OpenaiChat,
}

impl MatcherStyle {
    /// As it is set.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handoffd => "handoffd",
            Self::OpenaiChat => "openai-chat",
        }
    }
}

/// `[audit]`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
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

/// `[ledger]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Ledger {
    pub queue: usize,
    pub batch: usize,
    pub workers: usize,
    pub conflict_tries: u32,
}

/// `[delivery]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Delivery {
    pub retry_base_ms: u64,
    pub retry_cap_ms: u64,
    pub max_attempts: u32,
    pub verdict_timeout_ms: u64,
    pub lease_ms: u64,
    pub claim_ttl_ms: u64,
    pub pull_timeout_ms: u64,
    pub max_in_flight: usize,
    pub poll_ms: u64,
    pub broker_timeout_ms: u64,
    pub breaker_failures: u32,
    pub disable_after_failures: u32,
    pub retry_budget_percent: u32,
    pub retry_budget_per_s: u32,
    pub connect_timeout_ms: u64,
}

impl Delivery {
    /// How long a broker's own claim lasts: longer than any attempt can take (120 s) with its
    /// settlement. Claims of a dead broker are released much sooner, by its silence; this bounds what
    /// a living one can forget, e.g. after a commit whose answer was lost.
    #[must_use]
    pub const fn broker_claim(&self) -> Duration {
        Duration::from_secs(150)
    }
}

/// `[events]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
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

/// `[recovery]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Recovery {
    pub escalation_timeout_ms: u64,
    pub cancel_grace_ms: u64,
    pub max_checkpoint_bytes: usize,
}

/// `[egress]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Egress {
    pub allow: String,
}

/// `[retention]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Retention {
    pub hot_days: u32,
    pub archive_interval_s: u64,
    pub archive_url: String,
    pub segment_records: usize,
    pub segment_bytes: usize,
    pub cache_bytes: usize,
    pub s3_endpoint: String,
    pub s3_region: String,
    pub s3_allow_http: bool,
}

/// `[log]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config/default.toml documents every key")]
pub struct Log {
    pub filter: String,
    pub format: LogFormat,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// A list, or as the environment gives it: separated by commas.
fn list<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        List(Vec<String>),
    }
    Ok(match Either::deserialize(from)? {
        Either::List(list) => list,
        Either::Text(text) => text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

/// An instant in RFC 3339, e.g. `2026-12-31T00:00:00Z`.
fn moment<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Micros>, D::Error> {
    let text = String::deserialize(from)?;
    let at = OffsetDateTime::parse(&text, &Rfc3339).map_err(|_| {
        serde::de::Error::custom(format!("'{text}' is not an instant such as 2026-12-31T00:00:00Z"))
    })?;
    Ok(Some(Micros(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX))))
}

fn maybe_address<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!("'{text}' is not an address such as 127.0.0.1:9090"))
    })
}

/// Short environment names and the keys they stand for (specification §8).
const SHORT: [(&str, &str); 7] = [
    ("HANDOFFD_DATABASE_URL", "database.url"),
    ("HANDOFFD_LISTEN", "server.listen"),
    ("HANDOFFD_METRICS_LISTEN", "server.metrics_listen"),
    ("HANDOFFD_DATA_DIR", "server.data_dir"),
    ("HANDOFFD_ADMIN_KEY", "auth.admin_key"),
    ("HANDOFFD_MASTER_KEY", "auth.master_key"),
    ("HANDOFFD_EGRESS_ALLOW", "egress.allow"),
];

/// The largest count or size that makes sense, and that every queue can take (1 GiB).
const MAX_COUNT: usize = 1 << 30;

/// Variables with the prefix that are no settings.
const NOT_SETTINGS: [&str; 4] =
    ["HANDOFFD_URL", "HANDOFFD_API_KEY", "HANDOFFD_API_KEY_FILE", "HANDOFFD_CONFIG"];

impl Config {
    /// Reads the settings from the defaults, a file and an environment.
    ///
    /// # Errors
    /// [`ConfigError`] naming the key.
    pub fn load(
        file: Option<&std::path::Path>,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let wrong = |err: config::ConfigError| ConfigError(err.to_string());
        let mut builder = config::Config::builder()
            .add_source(config::File::from_str(DEFAULTS, config::FileFormat::Toml));
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|err| ConfigError(format!("{}: {err}", path.display())))?;
            builder = builder.add_source(config::File::from_str(&text, config::FileFormat::Toml));
        }
        let mut variables: Vec<(String, String)> = environment
            .into_iter()
            .filter(|(name, _)| {
                name.starts_with("HANDOFFD_")
                    && !name.starts_with("HANDOFFD_TEST_")
                    && !NOT_SETTINGS.contains(&name.as_str())
            })
            .collect();
        variables.sort();
        let known = config::Config::builder()
            .add_source(config::File::from_str(DEFAULTS, config::FileFormat::Toml))
            .build()
            .map_err(wrong)?;
        for (name, value) in variables {
            let key = match SHORT.iter().find(|(short, _)| *short == name) {
                Some((_, key)) => (*key).to_owned(),
                None => name["HANDOFFD_".len()..].to_ascii_lowercase().replace("__", "."),
            };
            if known.get::<config::Value>(&key).is_err() {
                return Err(ConfigError(format!(
                    "{name} is no setting (see config/default.toml; HANDOFFD_<SECTION>__<KEY>)"
                )));
            }
            builder = builder.set_override(key, value).map_err(wrong)?;
        }
        let config: Self = builder
            .build()
            .map_err(wrong)?
            .try_deserialize()
            .map_err(|err| ConfigError(err.to_string()))?;
        config.check()
    }

    fn check(self) -> Result<Self, ConfigError> {
        let positive = [
            ("server.max_body_bytes", self.server.max_body_bytes as u64),
            ("server.max_requests", self.server.max_requests as u64),
            ("server.max_waits", self.server.max_waits as u64),
            ("server.max_connections", self.server.max_connections as u64),
            ("server.header_timeout_ms", self.server.header_timeout_ms),
            ("database.max_connections", u64::from(self.database.max_connections)),
            ("ledger.queue", self.ledger.queue as u64),
            ("ledger.batch", self.ledger.batch as u64),
            ("ledger.workers", self.ledger.workers as u64),
            ("audit.publish_interval_s", self.audit.publish_interval_s),
            ("delivery.max_attempts", u64::from(self.delivery.max_attempts)),
            ("delivery.max_in_flight", self.delivery.max_in_flight as u64),
            ("delivery.poll_ms", self.delivery.poll_ms),
            ("delivery.verdict_timeout_ms", self.delivery.verdict_timeout_ms),
            ("delivery.lease_ms", self.delivery.lease_ms),
            ("delivery.claim_ttl_ms", self.delivery.claim_ttl_ms),
            ("delivery.pull_timeout_ms", self.delivery.pull_timeout_ms),
            ("events.retention_days", self.events.retention_days),
            ("events.timeout_ms", self.events.timeout_ms),
            ("events.retry_base_ms", self.events.retry_base_ms),
            ("events.set_aside_after", u64::try_from(self.events.set_aside_after).unwrap_or(0)),
            ("events.lease_ms", self.events.lease_ms),
            ("events.max_in_flight", self.events.max_in_flight as u64),
            ("gate.max_hops", u64::from(self.gate.max_hops)),
            ("gate.max_edge_repeats", u64::from(self.gate.max_edge_repeats)),
            ("safety.classifier.timeout_ms", self.safety.classifier.timeout_ms),
            ("safety.classifier.max_bytes", self.safety.classifier.max_bytes as u64),
            ("routing.matcher.timeout_ms", self.routing.matcher.timeout_ms),
            ("routing.matcher.max_agents", self.routing.matcher.max_agents as u64),
            ("recovery.escalation_timeout_ms", self.recovery.escalation_timeout_ms),
            ("recovery.max_checkpoint_bytes", self.recovery.max_checkpoint_bytes as u64),
            ("erasure.page", self.erasure.page as u64),
            ("delivery.breaker_failures", u64::from(self.delivery.breaker_failures)),
            ("retention.segment_records", self.retention.segment_records as u64),
            ("retention.segment_bytes", self.retention.segment_bytes as u64),
            ("delivery.retry_budget_per_s", u64::from(self.delivery.retry_budget_per_s)),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError(format!("{name} must be at least 1")));
        }
        let bounded = [
            ("server.max_body_bytes", self.server.max_body_bytes),
            ("server.max_large_bytes", self.server.max_large_bytes),
            ("server.max_requests", self.server.max_requests),
            ("server.max_waits", self.server.max_waits),
            ("server.max_connections", self.server.max_connections),
            ("ledger.queue", self.ledger.queue),
            ("ledger.batch", self.ledger.batch),
            ("ledger.workers", self.ledger.workers),
            ("delivery.max_in_flight", self.delivery.max_in_flight),
            ("retention.segment_records", self.retention.segment_records),
            ("retention.segment_bytes", self.retention.segment_bytes),
            ("retention.cache_bytes", self.retention.cache_bytes),
            ("events.max_in_flight", self.events.max_in_flight),
            ("events.max_streams", self.events.max_streams),
            ("erasure.page", self.erasure.page),
            ("safety.classifier.max_bytes", self.safety.classifier.max_bytes),
            ("routing.matcher.max_agents", self.routing.matcher.max_agents),
        ];
        if let Some((name, _)) = bounded.iter().find(|(_, value)| *value > MAX_COUNT) {
            return Err(ConfigError(format!("{name} must be at most {MAX_COUNT}")));
        }
        for (name, texts) in [
            ("budget.tenant_caps", &self.budget.tenant_caps),
            ("budget.agent_caps", &self.budget.agent_caps),
        ] {
            if let Err(why) = limits(texts) {
                return Err(ConfigError(format!("{name}: {why}")));
            }
        }
        if let Err(why) = Policy::parse(&self.redaction.pointers) {
            return Err(ConfigError(format!("redaction.pointers: {why}")));
        }
        if !(0.0..=1.0).contains(&self.safety.classifier.threshold) {
            return Err(ConfigError("safety.classifier.threshold must be from 0 to 1".to_owned()));
        }
        if let Some(field) = self
            .safety
            .exceptions
            .iter()
            .filter_map(|one| one.field.as_ref())
            .find(|field| !field.starts_with('/'))
        {
            return Err(ConfigError(format!(
                "safety.exceptions: the field {field:?} is no JSON pointer such as /currentState"
            )));
        }
        if self.delivery.retry_base_ms > self.delivery.retry_cap_ms {
            return Err(ConfigError(
                "delivery.retry_base_ms must not be above delivery.retry_cap_ms".to_owned(),
            ));
        }
        // It becomes a line of its own and the name of a key (C2SP signed-note).
        let origin = &self.audit.origin;
        if origin.is_empty() || origin.contains(|c: char| c == '+' || !c.is_ascii_graphic()) {
            return Err(ConfigError(
                "audit.origin must be printable ASCII without spaces and plus signs".to_owned(),
            ));
        }
        let url = &self.database.url;
        if !url.is_empty()
            && !["sqlite:", "postgres://", "postgresql://"].iter().any(|kind| url.starts_with(kind))
        {
            return Err(ConfigError(
                "database.url (HANDOFFD_DATABASE_URL) must begin with sqlite: or postgres://"
                    .to_owned(),
            ));
        }
        let audit = &self.audit.database_url;
        if !audit.is_empty() {
            let kinds = ["postgres://", "postgresql://"];
            let postgres = |url: &str| kinds.iter().any(|kind| url.starts_with(kind));
            if !postgres(&self.database_url()) || !postgres(audit) {
                return Err(ConfigError(
                    "audit.database_url puts the log into a Postgres database of its own: both it and \
                     database.url (HANDOFFD_DATABASE_URL) must begin with postgres://"
                        .to_owned(),
                ));
            }
        }
        let archive = &self.retention.archive_url;
        if !archive.is_empty()
            && !["file:///", "s3://"].iter().any(|kind| archive.starts_with(kind))
        {
            return Err(ConfigError(
                "retention.archive_url must begin with file:/// or s3://".to_owned(),
            ));
        }
        if !self.auth.master_key.is_empty()
            && let Err(err) = crate::vault::Vault::from_base64(&self.auth.master_key)
        {
            return Err(ConfigError(format!("auth.master_key (HANDOFFD_MASTER_KEY): {err}")));
        }
        if !self.auth.admin_key.is_empty() && self.auth.admin_key.len() < 24 {
            return Err(ConfigError(
                "auth.admin_key (HANDOFFD_ADMIN_KEY) must have at least 24 characters".to_owned(),
            ));
        }
        Ok(self)
    }

    /// Where the key that signs tree heads stands, unless it is set.
    #[must_use]
    pub fn tree_key_file(&self) -> PathBuf {
        self.server.data_dir.join("tree-head.key")
    }

    /// Where the data is: the URL as set, or SQLite in the data directory.
    #[must_use]
    pub fn database_url(&self) -> String {
        if self.database.url.is_empty() {
            format!("sqlite:{}", self.server.data_dir.join("handoffd.db").display())
        } else {
            self.database.url.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::load(
            None,
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn the_defaults_stand_by_themselves() {
        let config = load(&[]).unwrap();
        assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.server.metrics_listen, None);
        assert_eq!(config.database_url(), "sqlite:./handoffd-data/handoffd.db");
        assert_eq!(config.delivery.verdict_timeout_ms, 30_000, "specification §5");
        assert_eq!(config.delivery.lease_ms, 15 * 60 * 1_000, "specification §5");
    }

    #[test]
    fn the_environment_wins_by_short_and_by_long_name() {
        let config = load(&[
            ("HANDOFFD_LISTEN", "0.0.0.0:1"),
            ("HANDOFFD_METRICS_LISTEN", "127.0.0.1:9090"),
            ("HANDOFFD_DELIVERY__MAX_ATTEMPTS", "3"),
            ("HANDOFFD_LOG__FORMAT", "text"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        assert_eq!(config.server.listen.port(), 1);
        assert!(config.server.metrics_listen.is_some());
        assert_eq!(config.delivery.max_attempts, 3);
        assert_eq!(config.log.format, LogFormat::Text);
    }

    #[test]
    fn an_error_names_the_key() {
        for (name, value, expected) in [
            ("HANDOFFD_LEDGER__BATHC", "3", "HANDOFFD_LEDGER__BATHC"),
            ("HANDOFFD_LEDGER__BATCH", "many", "ledger.batch"),
            ("HANDOFFD_LEDGER__BATCH", "0", "ledger.batch"),
            ("HANDOFFD_REDACTION__POINTERS", "/a/ssn, b", "redaction.pointers"),
            (
                "HANDOFFD_BUDGET__TENANT_CAPS",
                "P1D=100,P1D=1",
                "budget.tenant_caps: two caps for P1D",
            ),
            ("HANDOFFD_BUDGET__AGENT_CAPS", "P1D", "budget.agent_caps: \"P1D\" is no cap"),
            ("HANDOFFD_BUDGET__AGENT_CAPS", "P1Y=3", "such as PT1H, P1D or P7D"),
            ("HANDOFFD_BUDGET__AGENT_CAPS", "P1D=-3", "an amount is decimal US dollars"),
            ("HANDOFFD_LEDGER__QUEUE", "9223372036854775807", "ledger.queue"),
            ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "99999999", "delivery.retry_base_ms"),
            ("HANDOFFD_LISTEN", "nowhere", "server.listen"),
            ("HANDOFFD_METRICS_LISTEN", "nowhere", "nowhere"),
            ("HANDOFFD_ADMIN_KEY", "short", "HANDOFFD_ADMIN_KEY"),
            ("HANDOFFD_MASTER_KEY", "c2hvcnQ=", "HANDOFFD_MASTER_KEY"),
            ("HANDOFFD_DATABASE_URL", "mysql://here", "HANDOFFD_DATABASE_URL"),
            ("HANDOFFD_AUDIT__DATABASE_URL", "postgres://here/log", "audit.database_url"),
            ("HANDOFFD_RETENTION__ARCHIVE_URL", "ftp://here", "retention.archive_url"),
            ("HANDOFFD_RETENTION__SEGMENT_RECORDS", "0", "retention.segment_records"),
        ] {
            let message = load(&[(name, value)]).unwrap_err().to_string();
            assert!(message.contains(expected), "{name}={value}: {message}");
        }
    }

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h.toml");
        std::fs::write(&path, "[ledger]\nbathc = 3\n").unwrap();
        assert!(Config::load(Some(&path), []).unwrap_err().to_string().contains("bathc"));
        std::fs::write(&path, "[ledger]\nbatch = 3\n").unwrap();
        assert_eq!(Config::load(Some(&path), []).unwrap().ledger.batch, 3);
    }
}
