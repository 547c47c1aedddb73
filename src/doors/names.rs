//! Names under which a door takes requests (docs/doors/README.md): a page in a browser cannot reach a broker on that
//! machine or in that network.

use axum::http::header;
use axum::http::request::Parts;

use crate::http::authority;
use crate::http::problem::Problem;
use handoffd_broker::config::Server;
use handoffd_domain::failure::Code;

/// Hosts that requests may be for, and origins that pages may have.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Without ports.
    pub(super) hosts: Vec<String>,
    /// With their ports.
    pub(super) origins: Vec<String>,
}

impl Names {
    /// This machine's own names, the listener's address and the host of `server.public_url`.
    pub(super) fn of(settings: &Server) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        if !settings.listen.ip().is_unspecified() {
            hosts.push(settings.listen.ip().to_string());
        }
        let mut origins = Vec::new();
        if let Some(url) = &settings.public_url {
            hosts.extend(url.host_str().map(str::to_owned));
            origins.push(origin(url));
        }
        Self { hosts, origins }
    }

    /// Whether a request is for one of the hosts, and from no other page's origin.
    ///
    /// # Errors
    /// 403; 400 where no host can be told.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), Problem> {
        let headers = &parts.headers;
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = authority::of_parts(parts)
            .map_err(|fault| Problem::new(Code::InvalidRequest, fault.as_str()))?
            .map(host_of);
        let known =
            host.is_some_and(|host| self.hosts.iter().any(|one| one.eq_ignore_ascii_case(host)));
        let own = match headers.get(header::ORIGIN) {
            None => true,
            Some(_) => text(header::ORIGIN)
                .and_then(|text| url::Url::parse(text).ok())
                .is_some_and(|url| self.origins.contains(&origin(&url))),
        };
        if known && own {
            return Ok(());
        }
        let why = "the request is for another host, or from a page of another origin; server.public_url names the \
             address by which clients reach the broker";
        Err(Problem::new(Code::Forbidden, why))
    }
}

/// A host without its port.
fn host_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// An origin with its port, which the check takes by the letter.
fn origin(url: &url::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}://{host}:{port}", url.scheme())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    #[test]
    fn a_request_is_for_a_known_host_and_from_no_strange_page() {
        let names = Names {
            hosts: ["localhost", "[::1]", "hand.example"].map(str::to_owned).into(),
            origins: vec!["https://hand.example:443".to_owned()],
        };
        let of = |pairs: &[(&str, &str)]| {
            let (mut parts, ()) = Request::new(()).into_parts();
            for (name, value) in pairs {
                let name: header::HeaderName = name.parse().unwrap();
                parts.headers.insert(name, value.parse().unwrap());
            }
            names.check(&parts).is_ok()
        };
        for host in ["localhost", "LOCALHOST:8080", "[::1]:80", "hand.example"] {
            assert!(of(&[("host", host)]), "{host}");
        }
        assert!(of(&[("host", "hand.example"), ("origin", "https://hand.example")]));
        assert!(!of(&[]) && !of(&[("host", "evil.example")]));
        for origin in ["https://evil.example", "null", "http://hand.example"] {
            assert!(!of(&[("host", "localhost"), ("origin", origin)]), "{origin}");
        }
    }
}
