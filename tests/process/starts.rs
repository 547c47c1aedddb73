//! Starts that must fail say why; the others are quick.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use handoffd::clock::random_id;

use crate::broker::{Broker, PATIENCE};
use crate::receiver::{Delivery, Seen};
use crate::site::{Side, Site, master_key};
use crate::world::{Takes, World, client, message, until};

/// Runs `serve`, which must end by itself; returns the exit code and what it said.
pub async fn refused(site: &Site, settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let ended = tokio::time::timeout(PATIENCE, site.command(settings).arg("serve").output());
    let output = ended.await.expect("it ends by itself").unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

pub async fn it_is_ready_when_it_says_where_it_listens(site: Arc<Site>) {
    let asked = tokio::time::Instant::now();
    let broker = Broker::start(&site, &[]).await;
    let ready = client().get(format!("{}/readyz", broker.base)).send().await.unwrap();
    assert_eq!(ready.status(), 200);
    // The bound of one second is for release builds; benches/load.rs measures it there.
    eprintln!(
        "{:?}: listening in {:?}, ready in {:?}",
        site.side,
        broker.started_in,
        asked.elapsed()
    );
    broker.stop().await;
    site.verify().await;
}

pub async fn a_file_that_is_served_is_refused(site: Arc<Site>) {
    let broker = Broker::start(&site, &[]).await;
    let (code, said) = refused(&site, &[]).await;
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("another broker serves"), "{said}");
    // The first is none the worse for it.
    until(PATIENCE, "the first still serves", async || {
        let ready = client().get(format!("{}/readyz", broker.base)).send().await.unwrap();
        usize::from(ready.status() != 200)
    })
    .await;
    broker.stop().await;
    let again = Broker::start(&site, &[]).await;
    again.kill().await;
    // A lock does not outlive its holder.
    Broker::start(&site, &[]).await.stop().await;
    site.verify().await;
}

pub async fn another_master_key_is_refused(site: Arc<Site>) {
    Broker::start(&site, &[]).await.stop().await;
    let other = master_key();
    let (code, said) = refused(&site, &[("HANDOFFD_MASTER_KEY", &other)]).await;
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("another master key") && said.contains("HANDOFFD_MASTER_KEY"), "{said}");
    assert!(!said.contains(&other), "a key is never shown");
    site.verify().await;
}

/// Findings O9 of 0.3.0: a refused start left a new, wrong key.
pub async fn a_missing_master_key_is_refused_and_stays_missing(site: Arc<Site>) {
    let by_file = [("HANDOFFD_MASTER_KEY", "")];
    Broker::start(&site, &by_file).await.stop().await;
    let file = site.data_dir().join("master.key");
    let aside = site.data_dir().join("master.key.aside");
    std::fs::rename(&file, &aside).unwrap();
    for _ in 0..2 {
        let (code, said) = refused(&site, &by_file).await;
        assert_eq!(code, Some(3), "{said}");
        assert!(
            said.contains("master.key is missing") && said.contains("put that file back"),
            "{said}"
        );
        assert!(!file.exists(), "a new one would be a wrong one");
    }
    std::fs::rename(&aside, &file).unwrap();
    Broker::start(&site, &by_file).await.stop().await;
    site.verify_with(&by_file).await;
}

/// Findings O9 of 0.3.0: the key of the setting's earlier value stayed valid, and nothing said so. A key that a start
/// without the setting made is one of them.
pub async fn a_changed_admin_key_names_those_that_are_still_valid(site: Arc<Site>) {
    let former = |lines: Vec<String>| {
        lines
            .into_iter()
            .filter(|line| line.contains("admin keys from before HANDOFFD_ADMIN_KEY"))
            .collect::<Vec<_>>()
    };
    let made = Broker::start(&site, &[("HANDOFFD_ADMIN_KEY", "")]).await.stop_and_tell().await;
    assert_eq!(former(made), Vec::<String>::new());
    let set = Broker::start(&site, &[]).await.stop_and_tell().await;
    assert_eq!(former(set).len(), 1);
    let other = format!("admin-{}", random_id());
    let changed = Broker::start(&site, &[("HANDOFFD_ADMIN_KEY", &other)]).await;
    let keys = client().get(format!("{}/keys", changed.base)).bearer_auth(&other);
    let keys: serde_json::Value = keys.send().await.unwrap().json().await.unwrap();
    let ids: Vec<&str> =
        keys["items"].as_array().unwrap().iter().filter_map(|key| key["keyId"].as_str()).collect();
    let said = former(changed.stop_and_tell().await);
    let named = ids.iter().filter(|id| said.iter().any(|line| line.contains(**id))).count();
    assert_eq!((said.len(), ids.len(), named), (1, 3, 2), "{said:?} {ids:?}");
}

pub async fn a_wrong_setting_is_named(site: Arc<Site>) {
    for (name, value, named) in [
        ("HANDOFFD_LEDGER__BATCH", "0", "ledger.batch"),
        ("HANDOFFD_LEDGER__BATHC", "64", "HANDOFFD_LEDGER__BATHC"),
        ("HANDOFFD_LISTEN", "nowhere", "server.listen"),
        ("HANDOFFD_EGRESS_ALLOW", "10.0.0.0/99", "egress.allow"),
        ("HANDOFFD_DATABASE_URL", "mysql://here", "database.url"),
        ("HANDOFFD_MASTER_KEY", "c2hvcnQ=", "HANDOFFD_MASTER_KEY"),
        ("HANDOFFD_LOG__FILTER", "inof", "log.filter"),
        ("HANDOFFD_SAFETY__CLASSIFIER__URL", "htps://host/ask", "safety.classifier.url"),
        ("HANDOFFD_AUTH__CACHE_TTL_MS", "99999999999999999", "auth.cache_ttl_ms"),
    ] {
        let (code, said) = refused(&site, &[(name, value)]).await;
        assert_eq!(code, Some(2), "{name}={value}: {said}");
        assert!(said.contains(named), "{name}={value}: {said}");
    }
    if site.side == Side::Postgres {
        let (code, said) = refused(&site, &[("HANDOFFD_DATABASE__MAX_CONNECTIONS", "1")]).await;
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("database.max_connections must be at least 2"), "{said}");
    }
    Broker::start(&site, &[("HANDOFFD_DATABASE__MAX_CONNECTIONS", "2")]).await.stop().await;
    site.verify().await;
}

/// A receiver that fails each time; returns its URL.
async fn failing(seen: Arc<Seen>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/handoffs", listener.local_addr().unwrap());
    let fail = move |headers: HeaderMap| {
        seen.add(Delivery::of(&headers));
        std::future::ready(StatusCode::INTERNAL_SERVER_ERROR)
    };
    let app = axum::Router::new().route("/handoffs", axum::routing::post(fail));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

pub async fn a_start_that_cannot_listen_delivers_nothing(site: Arc<Site>) {
    let seen = Arc::new(Seen::default());
    let url = failing(Arc::clone(&seen)).await;
    // The handoff is due at each start.
    let settings = [
        ("HANDOFFD_DELIVERY__RETRY_CAP_MS", "50"),
        ("HANDOFFD_DELIVERY__BREAKER_FAILURES", "1000"),
        ("HANDOFFD_DELIVERY__VERDICT_TIMEOUT_MS", "600000"),
    ];
    let broker = Broker::start(&site, &settings).await;
    let world = World::new(&broker, vec![("flaky", Takes::Webhook(url, 1))]).await;
    world.submit(&broker.base, &message(&random_id().to_string(), None, "flaky")).await;
    until(PATIENCE, "a first attempt", async || usize::from(seen.all().is_empty())).await;
    broker.stop().await;
    let before = seen.all();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for name in ["HANDOFFD_LISTEN", "HANDOFFD_METRICS_LISTEN"] {
        let settings = [&settings[..], &[(name, address.as_str())]].concat();
        let (code, said) = refused(&site, &settings).await;
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    }
    assert_eq!(seen.all(), before, "a start that is refused makes no attempt");
    let broker = Broker::start(&site, &settings).await;
    let more = async || usize::from(seen.all().len() == before.len());
    until(PATIENCE, "a further attempt", more).await;
    // None was claimed in between.
    assert_eq!(seen.all()[before.len()].attempt, before[before.len() - 1].attempt + 1);
    broker.stop().await;
    site.verify().await;
}

pub async fn f4_6_a_pod_beside_a_service_of_its_name_starts(site: Arc<Site>) {
    let links = [
        ("HANDOFFD_PORT", "tcp://10.96.0.17:8080"),
        ("HANDOFFD_PORT_8080_TCP_ADDR", "10.96.0.17"),
        ("HANDOFFD_SERVICE_HOST", "10.96.0.17"),
        ("HANDOFFD_SERVICE_PORT", "8080"),
        ("HANDOFFD_SERVICE_PORT_HTTP", "8080"),
    ];
    Broker::start(&site, &links).await.stop().await;
    let (code, said) = refused(&site, &[("HANDOFFD_PORT", "8080")]).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("HANDOFFD_PORT is not a setting"), "{said}");
    // One line says what was ignored; this start ends at another setting, and says both.
    let more = [("HANDOFFD_EGRESS_ALLOW", "10.0.0.0/99"), ("HANDOFFD_LOG__FILTER", "info")];
    let unusable = [&links[..], &more].concat();
    let (_, said) = refused(&site, &unusable).await;
    let lines: Vec<_> = said.lines().filter(|line| line.contains("HANDOFFD_PORT")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    for (name, _) in links {
        assert!(lines[0].contains(name), "{said}");
    }
    site.verify().await;
}
