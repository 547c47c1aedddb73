//! Values of settings as the file and the environment give them.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use handoffd_domain::ids::Micros;
use handoffd_domain::residency::Region;

/// A list, or as the environment gives it: separated by commas.
pub(super) fn list<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
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
pub(super) fn moment<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Micros>, D::Error> {
    let text = String::deserialize(from)?;
    let at = OffsetDateTime::parse(&text, &Rfc3339).map_err(|_| {
        serde::de::Error::custom(format!("'{text}' is not an instant such as 2026-12-31T00:00:00Z"))
    })?;
    Ok(Some(Micros(i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX))))
}

pub(super) fn maybe_region<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Region>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

pub(super) fn maybe_folder<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<PathBuf>, D::Error> {
    let text = String::deserialize(from)?;
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

/// Parses an absolute URL of HTTP.
pub(super) fn http_url(text: &str) -> Option<url::Url> {
    let url = url::Url::parse(text).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

pub(super) fn maybe_url<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<url::Url>, D::Error> {
    let text = String::deserialize(from)?;
    if text.is_empty() {
        return Ok(None);
    }
    http_url(&text).map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "'{text}' is not a URL such as https://handoff.example.com"
        ))
    })
}

pub(super) fn maybe_address<'de, D: serde::Deserializer<'de>>(
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
