//! For which host a request is. HTTP/1 says so in `Host`, HTTP/2 in `:authority`, and either may say so in its target; one
//! function reads them all, so that each door sees the same.

use axum::http::{HeaderMap, Request, Uri, Version, header, request};

/// Why a request's host cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// HTTP/1.1 asks for one (RFC 9112 §3.2).
    Missing,
    /// Which of them counts is open: what one server reads, the next does not.
    Several,
    /// It is not a host with an optional port.
    Malformed,
}

impl Fault {
    /// A sentence for the client.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "the request names no host: HTTP/1.1 asks for one Host header",
            Self::Several => "the request names more than one host: send one Host header",
            Self::Malformed => {
                "the request's host does not have the form of a host with an optional port"
            }
        }
    }
}

/// The host of a request, with its port where it has one. `None` for HTTP/1.0 without one.
///
/// # Errors
/// [`Fault`].
pub fn of<B>(request: &Request<B>) -> Result<Option<&str>, Fault> {
    authority(request.version(), request.uri(), request.headers())
}

/// [`of`] a request's head.
///
/// # Errors
/// [`Fault`].
pub fn of_parts(parts: &request::Parts) -> Result<Option<&str>, Fault> {
    authority(parts.version, &parts.uri, &parts.headers)
}

fn authority<'a>(
    version: Version,
    uri: &'a Uri,
    headers: &'a HeaderMap,
) -> Result<Option<&'a str>, Fault> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return Err(Fault::Several);
    }
    let host = host.map(|host| host.to_str().map_err(|_| Fault::Malformed)).transpose()?;
    let named = uri.authority().map(axum::http::uri::Authority::as_str);
    match (named, host) {
        // RFC 9113 §8.3.1: a `Host` beside `:authority` says the same.
        (Some(named), Some(host))
            if version >= Version::HTTP_2 && !named.eq_ignore_ascii_case(host) =>
        {
            Err(Fault::Several)
        }
        // RFC 9112 §3.2: a client sends `Host` with a whole address as its target, too.
        (Some(_), None) if version == Version::HTTP_11 => Err(Fault::Missing),
        // RFC 9112 §3.2.2: the target's host counts.
        (Some(text), _) | (None, Some(text)) => checked(text).map(Some),
        (None, None) if version == Version::HTTP_10 => Ok(None),
        (None, None) => Err(Fault::Missing),
    }
}

fn checked(text: &str) -> Result<&str, Fault> {
    let parsed = text.parse::<axum::http::uri::Authority>();
    parsed.ok().filter(|_| !text.contains('@')).map(|_| text).ok_or(Fault::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(version: Version, target: &str, hosts: &[&str]) -> Result<Option<String>, Fault> {
        let mut request = Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        of(&request.body(()).unwrap()).map(|host| host.map(str::to_owned))
    }

    #[test]
    fn a_request_names_one_host_by_whatever_version() {
        let is = |host: &str| Ok(Some(host.to_owned()));
        for (version, target, hosts, expected) in [
            (Version::HTTP_11, "/x", &["a.example:80"][..], is("a.example:80")),
            (Version::HTTP_11, "/x", &[], Err(Fault::Missing)),
            (Version::HTTP_11, "/x", &["a", "a"], Err(Fault::Several)),
            (Version::HTTP_11, "http://b/x", &["a"], is("b")),
            (Version::HTTP_11, "http://b/x", &[], Err(Fault::Missing)),
            (Version::HTTP_11, "/x", &["a b"], Err(Fault::Malformed)),
            (Version::HTTP_11, "/x", &["me@a"], Err(Fault::Malformed)),
            (Version::HTTP_11, "/x", &["[::1]:80"], is("[::1]:80")),
            (Version::HTTP_10, "/x", &[], Ok(None)),
            (Version::HTTP_10, "/x", &["a"], is("a")),
            (Version::HTTP_2, "http://b:1/x", &[], is("b:1")),
            (Version::HTTP_2, "http://b/x", &["B"], is("b")),
            (Version::HTTP_2, "http://b/x", &["a"], Err(Fault::Several)),
            (Version::HTTP_2, "/x", &["a"], is("a")),
            (Version::HTTP_2, "/x", &[], Err(Fault::Missing)),
        ] {
            assert_eq!(told(version, target, hosts), expected, "{version:?} {target} {hosts:?}");
        }
    }
}
