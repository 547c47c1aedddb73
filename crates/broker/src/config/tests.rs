//! The settings, and what is said about wrong ones.

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
fn an_agent_beside_others_has_as_many_places_as_its_store_bears() {
    let each = |environment: &[(&str, &str)]| load(environment).unwrap().submissions_each();
    assert_eq!(each(&[]), 3);
    assert_eq!(each(&[("HANDOFFD_DATABASE_URL", "postgres://db/handoffd")]), 4);
    assert_eq!(each(&[("HANDOFFD_LEDGER__SUBMISSIONS_EACH", "16")]), 16);
}

#[test]
fn an_error_names_the_key() {
    for (name, value, expected) in [
        ("HANDOFFD_LEDGER__BATHC", "3", "HANDOFFD_LEDGER__BATHC"),
        ("HANDOFFD_LEDGER__BATCH", "many", "ledger.batch"),
        ("HANDOFFD_LEDGER__BATCH", "0", "ledger.batch"),
        ("HANDOFFD_REDACTION__POINTERS", "/a/ssn, b", "redaction.pointers"),
        ("HANDOFFD_BUDGET__TENANT_CAPS", "P1D=100,P1D=1", "budget.tenant_caps: two caps for P1D"),
        ("HANDOFFD_BUDGET__AGENT_CAPS", "P1D", "budget.agent_caps: \"P1D\" is not a cap"),
        ("HANDOFFD_BUDGET__AGENT_CAPS", "P1Y=3", "such as PT1H, P1D or P7D"),
        ("HANDOFFD_BUDGET__AGENT_CAPS", "P1D=1 tokens,P1D=2 tokens", "two caps for P1D"),
        ("HANDOFFD_BUDGET__AGENT_CAPS", "P1D=1.5 tokens", "tokens are a whole number"),
        (
            "HANDOFFD_BUDGET__AGENT_CAPS",
            "P1D=1,P2D=1,P3D=1,P4D=1,P5D=1 tokens",
            "more than 4 windows",
        ),
        ("HANDOFFD_BUDGET__AGENT_CAPS", "P1D=-3", "an amount is decimal US dollars"),
        ("HANDOFFD_LEDGER__QUEUE", "9223372036854775807", "ledger.queue"),
        ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "99999999", "delivery.retry_base_ms"),
        (
            "HANDOFFD_LEDGER__SETTLE_DELAY_MS",
            "10001",
            "ledger.settle_delay_ms must be at most 10000",
        ),
        (
            "HANDOFFD_TRANSPORTS__REPLY_WAIT_MS",
            "1001",
            "transports.reply_wait_ms must be at most 1000",
        ),
        ("HANDOFFD_LISTEN", "nowhere", "server.listen"),
        ("HANDOFFD_METRICS_LISTEN", "nowhere", "nowhere"),
        ("HANDOFFD_ADMIN_KEY", "short", "HANDOFFD_ADMIN_KEY"),
        ("HANDOFFD_MASTER_KEY", "c2hvcnQ=", "HANDOFFD_MASTER_KEY"),
        ("HANDOFFD_DATABASE_URL", "mysql://here", "HANDOFFD_DATABASE_URL"),
        ("HANDOFFD_AUDIT__DATABASE_URL", "postgres://here/log", "audit.database_url"),
        ("HANDOFFD_RETENTION__ARCHIVE_URL", "ftp://here", "retention.archive_url"),
        ("HANDOFFD_RETENTION__SEGMENT_RECORDS", "0", "retention.segment_records"),
        ("HANDOFFD_RETENTION__S3_REGION", "eu west", "retention.s3_region must be letters"),
        ("HANDOFFD_DOORS__A2A__DEFAULT_AGENT", "bad id!!", "doors.a2a.default_agent"),
        ("HANDOFFD_DOORS__A2A__PUBLIC_TENANT", "bad id!!", "doors.a2a.public_tenant"),
    ] {
        let message = load(&[(name, value)]).unwrap_err().to_string();
        assert!(message.contains(expected), "{name}={value}: {message}");
    }
}

#[test]
fn a_time_or_count_beyond_its_bound_is_refused() {
    for (name, key, most) in [
        ("HANDOFFD_RECOVERY__CANCEL_GRACE_MS", "recovery.cancel_grace_ms", 3_600_000_u64),
        ("HANDOFFD_GATE__MAX_HOPS", "gate.max_hops", 10_000),
        ("HANDOFFD_SERVER__STOP_TIMEOUT_MS", "server.stop_timeout_ms", 86_400_000),
        // The directory's cache panicked above a thousand years.
        ("HANDOFFD_AUTH__CACHE_TTL_MS", "auth.cache_ttl_ms", 86_400_000),
    ] {
        load(&[(name, &most.to_string())]).unwrap();
        for more in [most + 1, 4_000_000_000.max(most * 2)] {
            let said = load(&[(name, &more.to_string())]).unwrap_err().to_string();
            assert!(said.contains(&format!("{key} must be at most {most}")), "{said}");
        }
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (lower, upper, keys) in [
        (
            ("HANDOFFD_DELIVERY__RETRY_BASE_MS", "101"),
            ("HANDOFFD_DELIVERY__RETRY_CAP_MS", "100"),
            ["delivery.retry_base_ms", "delivery.retry_cap_ms"],
        ),
        (
            ("HANDOFFD_EVENTS__RETRY_BASE_MS", "101"),
            ("HANDOFFD_EVENTS__RETRY_CAP_MS", "100"),
            ["events.retry_base_ms", "events.retry_cap_ms"],
        ),
        // A pause of nothing is a loop without end.
        (
            ("HANDOFFD_EVENTS__RETRY_BASE_MS", "1"),
            ("HANDOFFD_EVENTS__RETRY_CAP_MS", "0"),
            ["events.retry_base_ms", "events.retry_cap_ms"],
        ),
        (
            ("HANDOFFD_DOORS__A2A__POLL_MS", "101"),
            ("HANDOFFD_DOORS__A2A__POLL_MAX_MS", "100"),
            ["doors.a2a.poll_ms", "doors.a2a.poll_max_ms"],
        ),
        (
            ("HANDOFFD_STREAM__MAX_CHUNK_BYTES", "101"),
            ("HANDOFFD_STREAM__MAX_BYTES", "100"),
            ["stream.max_chunk_bytes", "stream.max_bytes"],
        ),
    ] {
        let said = load(&[lower, upper]).unwrap_err().to_string();
        assert!(keys.iter().all(|key| said.contains(key)), "{lower:?}, {upper:?}: {said}");
        load(&[lower, (upper.0, lower.1)]).unwrap();
    }
}

#[test]
fn an_exception_for_contracts_sets_something() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handoffd.toml");
    let of_exception = |text: &str| {
        let text = format!("[[contracts.exceptions]]\ntenant = \"bank\"\n{text}\n");
        std::fs::write(&path, text).unwrap();
        Config::load(Some(&path), Vec::new()).map(drop)
    };
    of_exception("minimum_level = \"L2\"").unwrap();
    of_exception("accept_pinned = false").unwrap();
    let said = of_exception("").unwrap_err().to_string();
    assert!(said.contains("contracts.exceptions"), "{said}");
}

#[test]
fn a_log_filter_that_would_drop_every_line_is_refused() {
    for good in
        ["info", "WARN", "off", "3", "", "handoffd=debug,info", "handoffd[request]=trace,error"]
    {
        load(&[("HANDOFFD_LOG__FILTER", good)]).unwrap_or_else(|why| panic!("{good}: {why}"));
    }
    for bad in
        ["inof", "warning", "handoffd", "handoffd=debug,inof", "handoffd=debug, info", "6", "a=b=c"]
    {
        let said = load(&[("HANDOFFD_LOG__FILTER", bad)]).unwrap_err().to_string();
        assert!(said.contains("log.filter"), "{bad}: {said}");
    }
}

#[test]
fn the_url_of_a_service_is_one_of_http() {
    for (name, key) in [
        ("HANDOFFD_SAFETY__CLASSIFIER__URL", "safety.classifier.url"),
        ("HANDOFFD_ROUTING__MATCHER__URL", "routing.matcher.url"),
        ("HANDOFFD_CONTEXT__MODEL__URL", "context.model.url"),
        ("HANDOFFD_RETENTION__S3_ENDPOINT", "retention.s3_endpoint"),
    ] {
        for good in ["http://127.0.0.1:9/ask", "https://host.example", "http://[::1]:9"] {
            load(&[(name, good)]).unwrap_or_else(|why| panic!("{name}={good}: {why}"));
        }
        for bad in [
            "nonsense",
            "ba nana",
            "htps://host.example/ask",
            "http://",
            "ftp://a/b",
            "host.example:9000",
            "http://{secret}/ask",
        ] {
            let said = load(&[(name, bad)]).unwrap_err().to_string();
            assert!(said.contains(&format!("{key} must be an http")), "{name}={bad}: {said}");
            assert!(!said.contains("secret"), "a URL may hold a secret: {said}");
        }
    }
}

#[test]
fn one_connection_is_not_enough_for_postgres() {
    let of = |url, most| {
        load(&[("HANDOFFD_DATABASE_URL", url), ("HANDOFFD_DATABASE__MAX_CONNECTIONS", most)])
    };
    for url in ["postgres://here/handoffd", "postgresql://here/handoffd"] {
        let said = of(url, "1").unwrap_err().to_string();
        assert!(said.contains("database.max_connections must be at least 2"), "{said}");
        of(url, "2").unwrap();
    }
    of("sqlite:here.db", "1").unwrap();
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

#[test]
fn f4_6_what_kubernetes_sets_beside_a_service_is_ignored_and_all_else_unknown_is_refused() {
    let links = [
        ("HANDOFFD_PORT", "tcp://10.96.0.17:8080"),
        ("HANDOFFD_PORT_8080_TCP", "tcp://10.96.0.17:8080"),
        ("HANDOFFD_PORT_8080_TCP_ADDR", "10.96.0.17"),
        ("HANDOFFD_PORT_8080_TCP_PORT", "8080"),
        ("HANDOFFD_PORT_8080_TCP_PROTO", "tcp"),
        ("HANDOFFD_SERVICE_HOST", "10.96.0.17"),
        ("HANDOFFD_SERVICE_PORT", "8080"),
        ("HANDOFFD_SERVICE_PORT_HTTP", "8080"),
    ];
    let config = load(&links).unwrap();
    assert_eq!(config.service_links, links.map(|(name, _)| name));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    for (name, value) in [("HANDOFFD_PORT", "9000"), ("HANDOFFD_PROT", "tcp://10.96.0.17:8080")] {
        let said = load(&[(name, value)]).unwrap_err().to_string();
        assert!(said.contains(&format!("{name} is not a setting")), "{said}");
    }
    let said = load(&[("HANDOFFD_METRICS_SERVICE_HOST", "10.96.0.18")]).unwrap_err().to_string();
    assert!(said.contains("enableServiceLinks: false"), "{said}");
}

#[test]
fn a_classifier_is_asked_after_the_commit_only_where_that_can_be() {
    let after = |further: &[(&str, &str)]| {
        let own = [
            ("HANDOFFD_SAFETY__CLASSIFIER__WHEN", "after"),
            ("HANDOFFD_SAFETY__CLASSIFIER__URL", "http://127.0.0.1:9/ask"),
            ("HANDOFFD_SAFETY__MODE", "observe"),
        ];
        let mut settings = further.to_vec();
        settings.extend(own.iter().filter(|(name, _)| further.iter().all(|one| one.0 != *name)));
        load(&settings).map(|config| config.safety.classifier.when)
    };
    assert_eq!(load(&[]).unwrap().safety.classifier.when, ClassifierWhen::Before);
    assert_eq!(after(&[]).unwrap(), ClassifierWhen::After);
    for (name, value, named) in [
        ("HANDOFFD_SAFETY__CLASSIFIER__URL", "", "safety.classifier.url"),
        ("HANDOFFD_SAFETY__CLASSIFIER__FAILURE_MODE", "closed", "safety.classifier.failure_mode"),
        // Every finding of the classifier refuses: nothing could be asked about after the commit.
        ("HANDOFFD_SAFETY__MODE", "enforce", "safety.mode"),
    ] {
        let why = after(&[(name, value)]).unwrap_err().to_string();
        assert!(why.contains("safety.classifier.when is \"after\""), "{why}");
        assert!(why.contains(named), "{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handoffd.toml");
    let of_exception = |text: &str| {
        let text = format!(
            "[safety.classifier]\nwhen = \"after\"\nurl = \"http://127.0.0.1:9/ask\"\n\
             [[safety.exceptions]]\n{text}"
        );
        std::fs::write(&path, text).unwrap();
        Config::load(Some(&path), Vec::new()).map(drop)
    };
    of_exception("mode = \"observe\"\nrules = [\"classifier\"]\nto = \"b\"").unwrap();
    of_exception("mode = \"allow\"").unwrap();
    for useless in [
        "mode = \"enforce\"\nrules = [\"classifier\"]",
        "mode = \"observe\"\nrules = [\"your-answer\"]",
        "mode = \"observe\"\nfield = \"/reason\"",
    ] {
        of_exception(useless).unwrap_err();
    }
}
