//! HTTP client of the commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use reqwest::Method;
use serde_json::Value;
use url::{Host, Url};

use super::plain::{self, plain};
use super::{Exit, Output};
use handoffd_broker::config::Config;

/// Timeout of an ordinary request.
const PATIENCE: Duration = Duration::from_mins(1);
/// Timeout of an answer that is streamed: the broker ends its waits long before.
const STREAM_PATIENCE: Duration = Duration::from_mins(5);
/// Largest answer, in bytes: the trace of ten thousand handoffs is a third of it. As values it takes some times that.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// Timeout of a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// The time for which an idle connection is kept. The broker ends one after 10 s (`server.header_timeout_ms`), and a request
/// that it then has on the way fails.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(5);

// Which broker, and with which key. The key is not an argument, because arguments are visible in the list
// of processes and in the shell's history. (A doc comment would become the help of every command that has
// these.)
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Reach {
    /// The broker; the configured listener unless said
    #[arg(long, env = "HANDOFFD_URL")]
    pub(super) url: Option<String>,
    /// A file with the key; HANDOFFD_API_KEY or the configured admin key unless said
    #[arg(long, env = "HANDOFFD_API_KEY_FILE", value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
}

/// A request to the broker.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Path segments, not encoded.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Option<Body>,
    /// Timeout, where longer than that of an ordinary request.
    pub(super) patience: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Body {
    /// As `application/json`.
    Json(Value),
    /// As `application/yaml`, of which JSON is a part.
    Yaml(String),
}

impl Request {
    /// A GET of these segments.
    pub(super) fn get(path: &[&str]) -> Self {
        Self {
            method: Method::GET,
            path: path.iter().map(|&segment| segment.to_owned()).collect(),
            query: Vec::new(),
            body: None,
            patience: None,
        }
    }
}

/// A client of one broker with one key.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    key: String,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum ClientError {
    /// The broker's URL or the key is invalid.
    Usage(String),
    /// The key cannot be read.
    NoKey(String),
    /// The broker cannot be reached, or did not answer with HTTP.
    Unreachable(String),
    /// The broker's answer has no end, or no bound.
    Endless(String),
    /// The broker answered with an error.
    Refused(Box<Refusal>),
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The problem (RFC 9457); null where the answer was none.
    pub(super) problem: Value,
    /// The answer's `Retry-After`.
    retry_after: Option<String>,
}

impl ClientError {
    /// How a command ends that meets it: an answer is a no, unless the broker could not give one.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Refused(refusal) if !matches!(refusal.status, 408 | 429 | 500..) => Exit::No,
            Self::Refused(_) | Self::NoKey(_) | Self::Unreachable(_) | Self::Endless(_) => {
                Exit::Unreachable
            }
        }
    }
}

impl ClientError {
    /// The error as a command prints it: as JSON the broker's problem, where the broker answered with one.
    pub(super) fn shown(&self, output: Output) -> String {
        match self {
            Self::Refused(refusal) if output == Output::Json && refusal.problem.is_object() => {
                plain::json(&refusal.problem, false)
            }
            _ => format!("handoffd: {self}"),
        }
    }
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let refusal = match self {
            Self::Usage(why) | Self::NoKey(why) | Self::Endless(why) => {
                return f.write_str(&plain(why));
            }
            Self::Unreachable(why) => {
                return write!(f, "the broker cannot be reached: {}", plain(why));
            }
            Self::Refused(refusal) => refusal,
        };
        let text = |value: &Value, name: &str| {
            plain(value.get(name).and_then(Value::as_str).unwrap_or_default()).into_owned()
        };
        let problem = &refusal.problem;
        write!(f, "the broker answered {}", refusal.status)?;
        match text(problem, "code").as_str() {
            "" => {}
            code => write!(f, " {code}")?,
        }
        match text(problem, "detail").as_str() {
            "" => write!(f, " without a reason: is this a handoffd?")?,
            detail => write!(f, ": {detail}")?,
        }
        for failure in problem.get("failures").and_then(Value::as_array).into_iter().flatten() {
            let (code, pointer) = (text(failure, "code"), text(failure, "pointer"));
            let pointer = if pointer.is_empty() { "(whole body)" } else { &pointer };
            write!(f, "\n  {code} at {pointer}: {}", text(failure, "message"))?;
        }
        if let Some(seconds) = &refusal.retry_after {
            write!(f, "\n  try again in {} s", plain(seconds))?;
        }
        match text(problem, "requestId").as_str() {
            "" => Ok(()),
            id => write!(f, "\n  request {id}"),
        }
    }
}

impl Client {
    /// To `reach`'s broker (or the configured listener) with its key, or `key`, or the configured admin key,
    /// or the one in the data directory.
    pub(super) fn new(
        reach: &Reach,
        key: Option<String>,
        config: &Config,
    ) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            .timeout(PATIENCE)
            .connect_timeout(CONNECT_PATIENCE)
            .pool_idle_timeout(IDLE_CONNECTION)
            // A redirect would change the method and send the request to another server. The operator who
            // moved the broker gives its new address.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|err| ClientError::Unreachable(err.to_string()))?;
        let base = reach.url.clone().unwrap_or_else(|| format!("http://{}", reachable(config)));
        let base = Url::parse(&base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                ClientError::Usage(format!("{base} is not a URL of a broker: https://host:port"))
            })?;
        let key = key_for(reach.url.as_deref(), reach.key_file.as_deref(), key, config)?;
        Ok(Self { http, base, key })
    }

    /// Posts a JSON message to a path and returns the answer as it comes, however long it takes.
    pub(super) async fn exchange(
        &self,
        path: &str,
        message: &Value,
        headers: &[(&'static str, String)],
    ) -> Result<reqwest::Response, ClientError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(path);
        }
        let mut asked =
            self.http.post(url).bearer_auth(&self.key).timeout(STREAM_PATIENCE).json(message);
        for (name, value) in headers {
            asked = asked.header(*name, value);
        }
        asked.send().await.map_err(|err| ClientError::Unreachable(causes(&err)))
    }

    /// Asks; the answer's JSON, or null where it has no body.
    pub(super) async fn call(&self, request: &Request) -> Result<Value, ClientError> {
        let unreachable = |err: reqwest::Error| ClientError::Unreachable(causes(&err));
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut asked = self.http.request(request.method.clone(), url).bearer_auth(&self.key);
        if let Some(patience) = request.patience {
            asked = asked.timeout(patience);
        }
        asked = match &request.body {
            None => asked,
            Some(Body::Json(value)) => asked.json(value),
            Some(Body::Yaml(text)) => {
                asked.header("content-type", "application/yaml").body(text.clone())
            }
        };
        let answer = asked.send().await.map_err(unreachable)?;
        let status = answer.status();
        let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = retry_after.map(str::to_owned);
        let bytes = bounded(answer).await?;
        let body = if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&bytes) };
        match body {
            Ok(body) if status.is_success() => Ok(body),
            Err(_) if status.is_success() => Err(ClientError::Unreachable(
                "what answers speaks no JSON: is this a handoffd?".to_owned(),
            )),
            body => Err(ClientError::Refused(Box::new(Refusal {
                status: status.as_u16(),
                problem: body.unwrap_or_default(),
                retry_after,
            }))),
        }
    }
}

/// The body of an answer, within a bound: what answers may be anything.
pub(super) async fn bounded(mut answer: reqwest::Response) -> Result<Vec<u8>, ClientError> {
    let mut body = Vec::new();
    let unreachable = |err: reqwest::Error| ClientError::Unreachable(causes(&err));
    while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
        if body.len() + piece.len() > MAX_ANSWER {
            return Err(ClientError::Endless(format!(
                "the answer has more than {MAX_ANSWER} bytes: ask for less, or is this no handoffd?"
            )));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// An error with what caused it: reqwest's own words leave out why.
pub(super) fn causes(err: &dyn std::error::Error) -> String {
    let mut said = err.to_string();
    let mut next = err.source();
    while let Some(cause) = next {
        said = format!("{said}: {cause}");
        next = cause.source();
    }
    said
}

/// The address at which this machine reaches the configured listener.
pub(super) fn reachable(config: &Config) -> std::net::SocketAddr {
    let mut address = config.server.listen;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    address
}

/// The key of a command: of the file that was named, the environment's, or the configured broker's own.
///
/// # Errors
/// [`ClientError`]: no file has a key, a key is not one word of ASCII, or `url` names another machine and no key was given: this
/// machine's admin key opens this machine's broker, and another host would learn it.
pub(super) fn key_for(
    url: Option<&str>,
    file: Option<&Path>,
    key: Option<String>,
    config: &Config,
) -> Result<String, ClientError> {
    let key = match (file, key) {
        (Some(path), _) => read_key(path)?,
        (None, Some(key)) => key,
        (None, None) if !url.is_none_or(is_this_machine) => {
            return Err(ClientError::Usage(
                "give the broker's key (--key-file, or HANDOFFD_API_KEY): this machine's admin key is sent to no other host"
                    .to_owned(),
            ));
        }
        (None, None) if !config.auth.admin_key.is_empty() => config.auth.admin_key.clone(),
        (None, None) => read_key(&config.keys_dir().join("admin.key"))?,
    };
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ClientError::Usage("the key is not one word of ASCII".to_owned()));
    }
    Ok(key)
}

/// Whether a URL names a loopback address, or no address (`0.0.0.0`), which is reached on this machine.
fn is_this_machine(url: &str) -> bool {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback() || address.is_unspecified(),
        Some(Host::Ipv6(address)) => address.is_loopback() || address.is_unspecified(),
        None => false,
    }
}

fn read_key(path: &Path) -> Result<String, ClientError> {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).map_err(|err| {
        ClientError::NoKey(format!(
            "no key: set HANDOFFD_API_KEY or give --key-file ({}: {err})",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_key_of_this_machine_goes_to_no_other_host() {
        for url in
            ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:1", "http://0.0.0.0:8080"]
        {
            assert!(is_this_machine(url), "{url}");
        }
        let others = [
            "http://broker.example",
            "http://localhost.example",
            "http://127.0.0.1@a.example",
            "x",
            "",
        ];
        for url in others {
            assert!(!is_this_machine(url), "{url}");
            let config = Config::load(None, []).expect("the default settings");
            let refused = key_for(Some(url), None, None, &config);
            assert!(matches!(refused, Err(ClientError::Usage(_))), "{url}: {refused:?}");
            let given = key_for(Some(url), None, Some("k".to_owned()), &config);
            assert_eq!(given.unwrap(), "k", "{url}");
        }
    }
}
