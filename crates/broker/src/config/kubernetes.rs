//! The variables that Kubernetes sets in every pod beside a Service named `handoffd`, and which no
//! person wrote: the service links, in the form of Docker's (Kubernetes documentation, "Service:
//! Environment variables"). They have the prefix of the settings and are none.

use std::net::IpAddr;

/// Whether this variable is such a link: by its name, and by a value that Kubernetes would give it. The
/// value counts, so that `HANDOFFD_PORT=8080`, which a person meant as a setting, is still refused.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix("HANDOFFD_") else { return false };
    let port = || value.parse::<u16>().is_ok();
    let address = || value.parse::<IpAddr>().is_ok();
    match rest {
        "SERVICE_HOST" => return address(),
        "SERVICE_PORT" => return port(),
        "PORT" => return is_endpoint(value),
        _ => {}
    }
    if let Some(named) = rest.strip_prefix("SERVICE_PORT_") {
        return !named.is_empty() && !named.contains("__") && port();
    }
    // HANDOFFD_PORT_8080_TCP, and with _ADDR, _PORT and _PROTO behind it.
    let mut parts = rest.strip_prefix("PORT_").unwrap_or_default().split('_');
    let numbered = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
    let protocol = parts.next().is_some_and(|name| PROTOCOLS.contains(&&*name.to_lowercase()));
    let what = parts.next();
    numbered
        && protocol
        && parts.next().is_none()
        && match what {
            None => is_endpoint(value),
            Some("ADDR") => address(),
            Some("PORT") => port(),
            Some("PROTO") => PROTOCOLS.contains(&value),
            Some(_) => false,
        }
}

/// Whether a variable is what Kubernetes sets beside some other Service whose name begins with
/// `handoffd-`. It is refused as any unknown name; the error says where it may come from.
pub(super) fn may_be_link_of_another(name: &str) -> bool {
    ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT"].iter().any(|end| name.ends_with(end))
        || name.contains("_SERVICE_PORT_")
        || name.split_once("_PORT_").is_some_and(|(_, rest)| rest.starts_with(char::is_numeric))
}

/// Protocols of a Service's port.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// `tcp://10.0.0.11:8080`.
fn is_endpoint(value: &str) -> bool {
    value.split_once("://").is_some_and(|(protocol, at)| {
        PROTOCOLS.contains(&protocol) && at.parse::<std::net::SocketAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f4_6_service_links_are_told_from_settings_by_name_and_value() {
        for (name, value) in [
            ("HANDOFFD_SERVICE_HOST", "10.96.0.17"),
            ("HANDOFFD_SERVICE_HOST", "fd00:10:96::2a"),
            ("HANDOFFD_SERVICE_PORT", "8080"),
            ("HANDOFFD_SERVICE_PORT_HTTP", "8080"),
            ("HANDOFFD_SERVICE_PORT_HTTP_METRICS", "9090"),
            ("HANDOFFD_PORT", "tcp://10.96.0.17:8080"),
            ("HANDOFFD_PORT", "tcp://[fd00:10:96::2a]:8080"),
            ("HANDOFFD_PORT_8080_TCP", "tcp://10.96.0.17:8080"),
            ("HANDOFFD_PORT_8080_TCP_ADDR", "10.96.0.17"),
            ("HANDOFFD_PORT_8080_TCP_PORT", "8080"),
            ("HANDOFFD_PORT_8080_TCP_PROTO", "tcp"),
            ("HANDOFFD_PORT_53_UDP_PROTO", "udp"),
        ] {
            assert!(is_service_link(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("HANDOFFD_PORT", "8080"),
            ("HANDOFFD_PORT", "tcp://handoffd:8080"),
            ("HANDOFFD_SERVICE_HOST", "handoffd.example.com"),
            ("HANDOFFD_SERVICE_PORT", "http"),
            ("HANDOFFD_SERVICE_PORT_", "8080"),
            ("HANDOFFD_SERVICE_PORTS", "8080"),
            ("HANDOFFD_PORT_8080", "tcp://10.96.0.17:8080"),
            ("HANDOFFD_PORT_8080_TCP_NAME", "8080"),
            ("HANDOFFD_PORT_8080_TCP_ADDR_ADDR", "10.96.0.17"),
            ("HANDOFFD_SERVER__PORT", "8080"),
            ("HANDOFFD_METRICS_SERVICE_HOST", "10.96.0.18"),
            ("OTHER_PORT", "tcp://10.96.0.17:8080"),
        ] {
            assert!(!is_service_link(name, value), "{name}={value}");
        }
        assert!(may_be_link_of_another("HANDOFFD_METRICS_SERVICE_HOST"));
        assert!(may_be_link_of_another("HANDOFFD_METRICS_PORT_9090_TCP_ADDR"));
        assert!(!may_be_link_of_another("HANDOFFD_LEDGER__BATHC"));
    }
}
