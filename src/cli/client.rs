//! How commands talk to a running broker.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::config::Config;

/// A client of one broker, with one key.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    key: String,
}

/// What went wrong.
#[derive(Debug)]
pub(super) enum ClientError {
    /// The broker cannot be reached.
    Unreachable(String),
    /// It said no: status and what it said.
    Refused(u16, String),
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "the broker cannot be reached: {why}"),
            Self::Refused(status, why) => write!(f, "the broker answered {status}: {why}"),
        }
    }
}

impl Client {
    /// To `url` (or the configured listener) with `key` (or the data directory's admin key).
    pub(super) fn new(
        url: Option<String>,
        key: Option<String>,
        config: &Config,
    ) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_mins(1))
            .no_proxy()
            .build()
            .map_err(|err| ClientError::Unreachable(err.to_string()))?;
        let base = url.unwrap_or_else(|| format!("http://{}", reachable(config)));
        let key = match key {
            Some(key) => key,
            None if !config.auth.admin_key.is_empty() => config.auth.admin_key.clone(),
            None => read_key(&config.server.data_dir.join("admin.key"))?,
        };
        Ok(Self { http, base: base.trim_end_matches('/').to_owned(), key })
    }

    /// GETs JSON.
    pub(super) async fn get(&self, path: &str) -> Result<Value, ClientError> {
        let answer = self
            .http
            .get(format!("{}{path}", self.base))
            .bearer_auth(&self.key)
            .send()
            .await
            .map_err(|err| ClientError::Unreachable(err.to_string()))?;
        let status = answer.status();
        let body: Value =
            answer.json().await.map_err(|err| ClientError::Unreachable(err.to_string()))?;
        if status.is_success() {
            return Ok(body);
        }
        let detail = body.get("detail").and_then(Value::as_str).unwrap_or_default();
        Err(ClientError::Refused(status.as_u16(), detail.to_owned()))
    }
}

/// Where this machine reaches the configured listener.
pub(super) fn reachable(config: &Config) -> std::net::SocketAddr {
    let mut address = config.server.listen;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    address
}

fn read_key(path: &Path) -> Result<String, ClientError> {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|_| {
        ClientError::Unreachable(format!(
            "no key: give --key or HANDOFFD_API_KEY (no admin key in {})",
            path.display()
        ))
    })
}
