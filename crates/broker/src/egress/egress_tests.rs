//! The guard's policy, URL check and resolver. Calls over real sockets are in `webhook_tests.rs`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn policy(list: &str) -> EgressPolicy {
    EgressPolicy::parse(list).expect("a policy")
}

#[test]
fn a_bad_entry_is_named() {
    for (list, entry) in [
        ("10.0.0.0/8, 10.0.0.0/33", "10.0.0.0/33"),
        ("localhost", "localhost"),
        ("fd00::/8,10.1/16", "10.1/16"),
    ] {
        let error = EgressPolicy::parse(list).expect_err(list);
        assert_eq!(error.entry, entry);
        assert!(error.to_string().contains(entry));
    }
    for list in ["", " , ,", "10.0.0.0/8,\nfd00::/8 127.0.0.1"] {
        assert!(EgressPolicy::parse(list).is_ok(), "{list:?}");
    }
}

#[test]
fn allowed_networks_open_exactly_themselves() {
    let rows = [
        ("", "8.8.8.8", true),
        ("", "127.0.0.1", false),
        ("", "169.254.169.254", false),
        ("10.0.0.0/8", "10.9.8.7", true),
        ("10.9.8.7/8", "10.0.0.1", true),
        ("10.0.0.0/8", "192.168.0.1", false),
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("127.0.0.0/8", "::ffff:127.0.0.1", true),
        ("127.0.0.0/8", "::1", false),
        ("::ffff:127.0.0.0/104", "127.9.9.9", true),
        ("::1/128", "::1", true),
        ("10.0.0.0/8", "64:ff9b::10.1.1.1", true),
        ("10.0.0.0/8", "2002:a01:101::1", true),
        ("10.0.0.0/8", "2002:c0a8:101::1", false),
        ("2002::/16", "2002:c0a8:101::1", true),
        ("10.0.0.0/8", "2001:0:a00:1::f7f7:f7f7", true),
        ("10.0.0.0/8", "2001:0:a00:1::80ff:fffe", false),
        ("64:ff9b:1::/48", "64:ff9b:1::1", true),
        ("0.0.0.0/0", "127.0.0.1", true),
        ("0.0.0.0/0", "fe80::1", false),
    ];
    for (list, address, permitted) in rows {
        assert_eq!(
            policy(list).permits(ip(address)).is_ok(),
            permitted,
            "{address} under {list:?}"
        );
    }
}

#[test]
fn a_refusal_gives_the_range_but_not_the_address() {
    let denied = policy("").permits(ip("10.1.2.3")).expect_err("private");
    let text = denied.to_string();
    assert!(text.contains("private") && !text.contains("10.1.2.3"), "{text}");
}

#[test]
fn urls_are_checked_before_anything_is_resolved() {
    let open = EgressPolicy::default();
    let refused = [
        "http://127.0.0.1/",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://%31%32%37.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::1]/",
        "http://[::]/",
        "http://0/",
        "https://169.254.169.254/latest/meta-data/",
        "http://①②⑦.0.0.1/",
    ];
    for text in refused {
        let denied = open.check_url(text).expect_err(text);
        assert!(matches!(denied, EgressDenied::Address { .. }), "{text}: {denied:?}");
    }
    for (text, expected) in [
        ("ftp://example.com/", EgressDenied::Scheme),
        ("file:///etc/passwd", EgressDenied::Scheme),
        ("http://user@example.com/", EgressDenied::Userinfo),
        ("http://:pw@example.com/", EgressDenied::Userinfo),
        ("http://example.com:0/", EgressDenied::Port),
    ] {
        assert_eq!(open.check_url(text), Err(expected), "{text}");
    }
    for text in ["", "/hook", "example.com/hook", "http://", "http://a b/", "http://1.2.3.4.5/"] {
        let denied = open.check_url(text).expect_err(text);
        assert!(matches!(denied, EgressDenied::Syntax(_)), "{text}: {denied:?}");
    }
    for text in ["https://example.com/hook?x=1", "http://8.8.8.8:8080/", "http://localhost/"] {
        assert!(open.check_url(text).is_ok(), "{text}");
    }
}

/// A resolver that answers every name with fixed addresses.
struct FixedResolver(&'static [&'static str]);

impl Resolve for FixedResolver {
    fn resolve(&self, _: Name) -> Resolving {
        let found: Vec<_> = self.0.iter().map(|text| SocketAddr::new(ip(text), 0)).collect();
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

async fn resolved(addresses: &'static [&'static str]) -> Result<Vec<IpAddr>, String> {
    let resolver = GuardedResolver {
        policy: Arc::new(EgressPolicy::default()),
        inner: Arc::new(FixedResolver(addresses)),
    };
    match resolver.resolve("example.com".parse().expect("a name")).await {
        Ok(found) => Ok(found.map(|address| address.ip()).collect()),
        Err(error) => Err(error.to_string()),
    }
}

#[tokio::test]
async fn the_resolver_keeps_only_what_is_permitted() {
    assert_eq!(
        resolved(&["10.0.0.1", "8.8.8.8", "::1", "::ffff:127.0.0.1"]).await,
        Ok(vec![ip("8.8.8.8")])
    );
    let denied = resolved(&["10.0.0.1", "127.0.0.1"]).await;
    assert!(denied.expect_err("denied").contains("loopback"));
    assert!(resolved(&[]).await.is_err());
}

#[test]
fn a_system_without_roots_still_gets_a_client() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = reqwest::Client::builder().tls_backend_preconfigured(compiled_in_roots()).build();
    assert!(built.is_ok(), "{built:?}");
}
