//! Loading and validation of settings.

use std::path::PathBuf;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::readers::http_url;
use super::{
    ClassifierWhen, Compressor, Config, ConfigError, DEFAULTS, DatabaseKind, FailureMode, Outsider,
    Safety, SafetyException, SafetyMode, caps, kubernetes,
};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::policy::CLASSIFIER;
use handoffd_domain::redaction::RedactionPolicy;
use handoffd_domain::residency::is_basis;

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

/// Former names of settings, still read.
const FORMER: [&str; 1] = ["delivery.pull_timeout_ms"];

/// Variables with the prefix that are no settings.
const NOT_SETTINGS: [&str; 7] = [
    "HANDOFFD_URL",
    "HANDOFFD_API_KEY",
    "HANDOFFD_API_KEY_FILE",
    "HANDOFFD_CONFIG",
    // Read by the SDKs.
    "HANDOFFD_AGENT_ID",
    "HANDOFFD_SIGNING_SECRET",
    "HANDOFFD_BINARY",
];

/// The hint for a variable that looks like one of Kubernetes's.
const SERVICE_LINKS: &str = "; where Kubernetes set it beside a Service of a similar name, give the \
     pod enableServiceLinks: false";

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
        let (links, variables): (Vec<_>, Vec<_>) = variables
            .into_iter()
            .partition(|(name, value)| kubernetes::is_service_link(name, value));
        let known = config::Config::builder()
            .add_source(config::File::from_str(DEFAULTS, config::FileFormat::Toml))
            .build()
            .map_err(wrong)?;
        for (name, value) in variables {
            let key = match SHORT.iter().find(|(short, _)| *short == name) {
                Some((_, key)) => (*key).to_owned(),
                None => name["HANDOFFD_".len()..].to_ascii_lowercase().replace("__", "."),
            };
            if known.get::<config::Value>(&key).is_err() && !FORMER.contains(&key.as_str()) {
                let mut why = format!(
                    "{name} is not a setting (see config/default.toml; HANDOFFD_<SECTION>__<KEY>)"
                );
                if kubernetes::may_be_link_of_another(&name) {
                    why.push_str(SERVICE_LINKS);
                }
                return Err(ConfigError(why));
            }
            builder = builder.set_override(key, value).map_err(wrong)?;
        }
        let mut config: Self = builder
            .build()
            .map_err(wrong)?
            .try_deserialize()
            .map_err(|err| ConfigError(err.to_string()))?;
        config.service_links = links.into_iter().map(|(name, _)| name).collect();
        if let Some(former) = config.delivery.pull_timeout_ms {
            config.delivery.unclaimed_ms = former;
        }
        config.check()
    }

    fn check(self) -> Result<Self, ConfigError> {
        self.check_numbers()?;
        self.check_log()?;
        self.check_budget_and_safety()?;
        self.check_residency()?;
        self.check_origin()?;
        self.check_urls()?;
        self.check_services()?;
        self.check_exceptions()?;
        self.check_keys()?;
        self.check_transports()?;
        let shares = self.doors.jazz.strategies.check();
        shares.map_err(|why| ConfigError(format!("doors.jazz.strategies: {why}")))?;
        self.check_a2a()?;
        self.check_oauth()?;
        Ok(self)
    }

    fn check_transports(&self) -> Result<(), ConfigError> {
        let all = &self.transports;
        let (redis, nats, amqp) = (&all.redis.intake, &all.nats.intake, &all.amqp.intake);
        if all.nats.consumer.is_empty() || !all.nats.consumer.bytes().all(is_consumer_name) {
            let why = "must be letters, digits, - and _";
            return Err(ConfigError(format!("transports.nats.consumer {why}")));
        }
        for (mode, server, schemes, tenant, (key, from), answers, parked) in [
            (
                "redis",
                &redis.server,
                ["redis", "rediss"],
                &redis.tenant,
                ("stream", &redis.stream),
                &redis.answers,
                &redis.parked,
            ),
            (
                "nats",
                &nats.server,
                ["nats", "tls"],
                &nats.tenant,
                ("subject", &nats.subject),
                &nats.answers,
                &nats.parked,
            ),
            (
                "amqp",
                &amqp.server,
                ["amqp", "amqps"],
                &amqp.tenant,
                ("queue", &amqp.queue),
                &amqp.answers,
                &amqp.parked,
            ),
        ] {
            let wrong = |key: &str, why: &str| {
                Err(ConfigError(format!("transports.{mode}.intake.{key} {why}")))
            };
            if server.is_empty() {
                continue;
            }
            let fits =
                |url: &str| url::Url::parse(url).is_ok_and(|url| schemes.contains(&url.scheme()));
            if !server.split(',').all(|url| fits(url.trim())) {
                return wrong(
                    "server",
                    &format!("must be a {}:// or {}:// URL", schemes[0], schemes[1]),
                );
            }
            if tenant.parse::<TenantId>().is_err() {
                return wrong("tenant", "must be a tenant's id");
            }
            if from.is_empty() {
                return wrong(key, &format!("must name a {key}"));
            }
            for (outlet, to) in [("answers", answers), ("parked", parked)] {
                if to == from {
                    return wrong(
                        outlet,
                        &format!("must be another {key} than the one that is read"),
                    );
                }
            }
        }
        self.check_sqs()
    }

    fn check_sqs(&self) -> Result<(), ConfigError> {
        let sqs = &self.transports.sqs;
        let wrong = |key: &str, why: &str| Err(ConfigError(format!("transports.sqs.{key} {why}")));
        let is_url = |text: &str| {
            url::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        };
        for queues in &sqs.role_queues {
            if let Err(why) = queues.parse::<super::RoleQueues>() {
                return wrong("role_queues", why);
            }
        }
        let intake = &sqs.intake;
        if intake.queue_url.is_empty() {
            return Ok(());
        }
        if intake.tenant.parse::<TenantId>().is_err() {
            return wrong("intake.tenant", "must be a tenant's id");
        }
        if !is_url(&intake.queue_url) {
            return wrong("intake.queue_url", "must be a queue's URL");
        }
        if !intake.endpoint.is_empty() && !is_url(&intake.endpoint) {
            return wrong("intake.endpoint", "must be a URL");
        }
        if intake.access_key_id.is_empty() != intake.secret_access_key.is_empty() {
            return wrong("intake.secret_access_key", "and access_key_id go together");
        }
        if !is_url(&intake.parked_url) {
            return wrong(
                "intake.parked_url",
                "must be a queue's URL: what no reader takes goes there",
            );
        }
        if !intake.answers_url.is_empty() && !is_url(&intake.answers_url) {
            return wrong("intake.answers_url", "must be a queue's URL, or empty");
        }
        for (key, url) in
            [("intake.answers_url", &intake.answers_url), ("intake.parked_url", &intake.parked_url)]
        {
            if *url == intake.queue_url {
                return wrong(key, "must be another queue than the one that is read");
            }
        }
        Ok(())
    }

    /// Texts and numbers with a form of their own.
    fn check_budget_and_safety(&self) -> Result<(), ConfigError> {
        for (name, texts) in [
            ("budget.tenant_caps", &self.budget.tenant_caps),
            ("budget.agent_caps", &self.budget.agent_caps),
        ] {
            if let Err(why) = caps::limits(texts) {
                return Err(ConfigError(format!("{name}: {why}")));
            }
        }
        if let Err(why) = RedactionPolicy::parse(&self.redaction.pointers) {
            return Err(ConfigError(format!("redaction.pointers: {why}")));
        }
        if !(0.0..=1.0).contains(&self.safety.classifier.threshold) {
            return Err(ConfigError("safety.classifier.threshold must be from 0 to 1".to_owned()));
        }
        self.check_asked_after()?;
        let model = &self.context.model;
        if self.context.compressor == Compressor::Model && model.url.is_empty() {
            return Err(ConfigError(
                "context.compressor is \"model\": context.model.url must name its endpoint"
                    .to_owned(),
            ));
        }
        let prices = [model.usd_per_million_in, model.usd_per_million_out];
        if prices.iter().any(|usd| !usd.is_finite() || *usd < 0.0) {
            return Err(ConfigError("context.model: a price must be 0 or more".to_owned()));
        }
        let share = self.context.compress_at;
        if !(0.05..=1.0).contains(&share) {
            return Err(ConfigError("context.compress_at must be from 0.05 to 1".to_owned()));
        }
        if let Some(field) = self
            .safety
            .exceptions
            .iter()
            .filter_map(|one| one.field.as_ref())
            .find(|field| !field.starts_with('/'))
        {
            return Err(ConfigError(format!(
                "safety.exceptions: the field {field:?} is not a JSON pointer such as /currentState"
            )));
        }
        Ok(())
    }

    /// Refuses `safety.classifier.when = "after"` if no classifier is configured, if nothing passes without its answer, or if
    /// each of its findings refuses.
    fn check_asked_after(&self) -> Result<(), ConfigError> {
        let Safety { mode, exceptions, classifier, .. } = &self.safety;
        if classifier.when == ClassifierWhen::Before {
            return Ok(());
        }
        let after = "safety.classifier.when is \"after\"";
        if classifier.url.is_empty() {
            return Err(ConfigError(format!(
                "{after}: safety.classifier.url must name the classifier"
            )));
        }
        if classifier.failure_mode == FailureMode::Closed {
            return Err(ConfigError(format!(
                "{after}: safety.classifier.failure_mode must be \"open\", as nothing waits for the answer"
            )));
        }
        let spares = |one: &SafetyException| {
            let named = one.rules.is_empty() || one.rules.iter().any(|name| name == CLASSIFIER);
            one.mode != SafetyMode::Enforce && named && one.field.is_none()
        };
        if *mode == SafetyMode::Enforce && !exceptions.iter().any(spares) {
            return Err(ConfigError(format!(
                "{after}, and its answer refuses every message it calls unsafe: safety.mode, or the rule \
                 \"classifier\" in an exception without a field, must be \"observe\" or \"allow\" somewhere"
            )));
        }
        Ok(())
    }

    /// The regions of the archive and of the services that are shown texts, and the bases on which data go there.
    fn check_residency(&self) -> Result<(), ConfigError> {
        for Outsider { section, transfer_basis, crossing } in self.outsiders() {
            // The archive's two are members of a section that is not its own.
            let section =
                if section.ends_with('.') { section.to_owned() } else { format!("{section}_") };
            if !transfer_basis.is_empty() && !is_basis(&transfer_basis) {
                return Err(ConfigError(format!(
                    "{section}transfer_basis must be a code such as SCC_2021"
                )));
            }
            if let Some(crossing) = crossing.filter(|one| self.residency.rules().refuses(one)) {
                return Err(ConfigError(format!("{section}region: {crossing}: refused")));
            }
        }
        Ok(())
    }

    fn check_origin(&self) -> Result<(), ConfigError> {
        // It becomes a line of its own and the name of a key (C2SP signed-note).
        let origin = &self.audit.origin;
        if origin.is_empty() || origin.contains(|c: char| c == '+' || !c.is_ascii_graphic()) {
            return Err(ConfigError(
                "audit.origin must be printable ASCII without spaces and plus signs".to_owned(),
            ));
        }
        Ok(())
    }

    /// The URLs of databases and archive.
    fn check_urls(&self) -> Result<(), ConfigError> {
        let url = &self.database.url;
        if !url.is_empty() && DatabaseKind::of(url).is_none() {
            return Err(ConfigError(
                "database.url (HANDOFFD_DATABASE_URL) must begin with sqlite: or postgres://"
                    .to_owned(),
            ));
        }
        let audit = &self.audit.database_url;
        if !audit.is_empty() {
            let postgres = |url: &str| DatabaseKind::of(url) == Some(DatabaseKind::Postgres);
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
        Ok(())
    }

    /// The URLs of the services that the broker calls. An error does not quote one, which may hold a secret.
    fn check_services(&self) -> Result<(), ConfigError> {
        let retention = &self.retention;
        for (name, url) in [
            ("safety.classifier.url", &self.safety.classifier.url),
            ("routing.matcher.url", &self.routing.matcher.url),
            ("context.model.url", &self.context.model.url),
            ("retention.s3_endpoint", &retention.s3_endpoint),
        ] {
            if !url.is_empty() && !is_service(url) {
                let why = "must be an http:// or https:// URL with a host";
                return Err(ConfigError(format!("{name} {why}")));
            }
        }
        // It is a part of the host of AWS's own servers.
        if !retention.s3_region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(ConfigError(
                "retention.s3_region must be letters, digits and -".to_owned(),
            ));
        }
        Ok(())
    }

    /// The log's filter. `EnvFilter` takes an unknown word for a target, and then drops every other line.
    fn check_log(&self) -> Result<(), ConfigError> {
        let filter = &self.log.filter;
        let unknown = |one: &&str| !one.contains(['=', '[']) && one.parse::<LevelFilter>().is_err();
        if let Some(word) = filter.split(',').find(unknown) {
            return Err(ConfigError(format!(
                "log.filter: {word:?} is not a level (off, error, warn, info, debug, trace); a target \
                 has one, as in handoffd=debug"
            )));
        }
        let read = EnvFilter::try_new(filter).map(drop);
        read.map_err(|err| ConfigError(format!("log.filter is malformed: {err}")))
    }

    /// The exceptions for contracts: each sets something.
    fn check_exceptions(&self) -> Result<(), ConfigError> {
        let mut all = self.contracts.exceptions.iter();
        if all.any(|one| one.accept_pinned.is_none() && one.minimum_level.is_none()) {
            return Err(ConfigError(
                "contracts.exceptions: an entry must have accept_pinned, minimum_level or both"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// The ids that the A2A door shows cards of.
    fn check_a2a(&self) -> Result<(), ConfigError> {
        let (agent, tenant) = (&self.doors.a2a.default_agent, &self.doors.a2a.public_tenant);
        if !agent.is_empty()
            && let Err(why) = agent.parse::<AgentId>()
        {
            return Err(ConfigError(format!("doors.a2a.default_agent: {why}")));
        }
        if !tenant.is_empty()
            && let Err(why) = tenant.parse::<TenantId>()
        {
            return Err(ConfigError(format!("doors.a2a.public_tenant: {why}")));
        }
        Ok(())
    }

    /// The master key and the first operator's key.
    fn check_keys(&self) -> Result<(), ConfigError> {
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
        Ok(())
    }

    /// The issuer of tokens at the MCP door.
    fn check_oauth(&self) -> Result<(), ConfigError> {
        let oauth = &self.doors.mcp.oauth;
        if oauth.issuer.is_empty() {
            return Ok(());
        }
        let wrong = |why: &str| Err(ConfigError(format!("doors.mcp.oauth: {why}")));
        if self.server.public_url.is_none() {
            return wrong("server.public_url must name the address that tokens are for");
        }
        for (name, url) in [("issuer", &oauth.issuer), ("jwks_url", &oauth.jwks_url)] {
            let scheme = url::Url::parse(url).map(|url| url.scheme().to_owned());
            if !scheme.is_ok_and(|scheme| scheme == "https" || scheme == "http") {
                return wrong(&format!("{name} must be an http or https URL"));
            }
        }
        if oauth.tenant.parse::<TenantId>().is_err() {
            return wrong("tenant must be the id of a tenant");
        }
        if oauth.agent_claim.is_empty() || oauth.scope.contains([' ', '"', '\\']) {
            return wrong("agent_claim must name a claim, and scope one scope");
        }
        if oauth.leeway_s > 600 {
            return wrong("leeway_s must be at most 600");
        }
        Ok(())
    }

    /// The folder of keys that no setting gives: `auth.keys_dir`, or the data directory.
    #[must_use]
    pub fn keys_dir(&self) -> &std::path::Path {
        self.auth.keys_dir.as_deref().unwrap_or(&self.server.data_dir)
    }

    /// The file of the key that signs tree heads, unless it is set.
    #[must_use]
    pub fn tree_key_file(&self) -> PathBuf {
        self.keys_dir().join("tree-head.key")
    }

    /// The URL of the data: as set, or SQLite in the data directory.
    #[must_use]
    pub fn database_url(&self) -> String {
        if self.database.url.is_empty() {
            format!("sqlite:{}", self.server.data_dir.join("handoffd.db").display())
        } else {
            self.database.url.clone()
        }
    }
}

/// Whether a text is the URL of a service. A host with characters that no name has is refused: a template's `{host}`, say.
fn is_service(text: &str) -> bool {
    let is_host = |host: &str| {
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    http_url(text).is_some_and(|url| url.host_str().is_some_and(is_host))
}

/// Whether a byte may stand in the name of a NATS consumer.
const fn is_consumer_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}
