//! Declared objects in one normal form, so that a file and a broker's answer about the same object compare as equal JSON: a
//! member with its default value is left out, lists without an order are sorted.

use std::collections::BTreeMap;
use std::fmt;

use semver::Version;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

use handoffd_domain::agent::Agent;
use handoffd_domain::event::{EventFormat, Subscription, SubscriptionSpec};
use handoffd_domain::failure::escaped;
use handoffd_domain::ids::AgentId;

/// The kinds, in the order in which they are applied: an object refers to those before it. The allowlist is last, because it
/// opens an edge, and the contracts and caps of that edge hold from its first handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    PayloadSchema,
    Agent,
    Contract,
    Cap,
    Subscription,
    Allowlist,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::PayloadSchema,
        Self::Agent,
        Self::Contract,
        Self::Cap,
        Self::Subscription,
        Self::Allowlist,
    ];

    /// The value of a file's `kind`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PayloadSchema => "PayloadSchema",
            Self::Contract => "Contract",
            Self::Agent => "Agent",
            Self::Cap => "Cap",
            Self::Subscription => "Subscription",
            Self::Allowlist => "Allowlist",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The folder of its files in a dump.
    pub(super) const fn folder(self) -> &'static str {
        match self {
            Self::PayloadSchema => "payload-schemas",
            Self::Contract => "contracts",
            Self::Agent => "agents",
            Self::Cap => "caps",
            Self::Subscription => "subscriptions",
            Self::Allowlist => "allowlists",
        }
    }

    /// The JSON Schema of its files.
    pub(super) const fn schema(self) -> &'static str {
        match self {
            Self::PayloadSchema => {
                include_str!("../../../schemas/declared/payload-schema.schema.json")
            }
            Self::Contract => include_str!("../../../schemas/declared/contract.schema.json"),
            Self::Agent => include_str!("../../../schemas/declared/agent.schema.json"),
            Self::Cap => include_str!("../../../schemas/declared/cap.schema.json"),
            Self::Subscription => {
                include_str!("../../../schemas/declared/subscription.schema.json")
            }
            Self::Allowlist => include_str!("../../../schemas/declared/allowlist.schema.json"),
        }
    }

    pub(super) const fn schema_file(self) -> &'static str {
        match self {
            Self::PayloadSchema => "payload-schema.schema.json",
            Self::Contract => "contract.schema.json",
            Self::Agent => "agent.schema.json",
            Self::Cap => "cap.schema.json",
            Self::Subscription => "subscription.schema.json",
            Self::Allowlist => "allowlist.schema.json",
        }
    }

    /// Whether the broker keeps each version of it as it was put, and takes none away.
    pub(super) const fn is_versioned(self) -> bool {
        matches!(self, Self::PayloadSchema | Self::Contract)
    }
}

/// Longest list of expected names in a reason, in bytes.
const MAX_LISTED: usize = 200;

/// Identity of an object within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    /// The id; of a cap `WINDOW` or `AGENT/WINDOW`, of a subscription its description, or its URL where it has none.
    pub(super) name: String,
    pub(super) version: Option<Version>,
}

impl Key {
    pub(super) fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), version: None }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)?;
        match &self.version {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}

/// The source of a secret, read when the secret is sent. No declared file holds one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file; a relative path starts at the folder of the file that names it.
    File(String),
}

impl SecretRef {
    /// Reads `{secretRef: env:NAME | file:PATH}`.
    ///
    /// # Errors
    /// A sentence that does not repeat the value, which may be a secret.
    pub(super) fn read(value: &Value) -> Result<Self, &'static str> {
        const FORM: &str =
            "must be {secretRef: env:NAME} or {secretRef: file:PATH}: a file holds no secret";
        let object = value.as_object().filter(|object| object.len() == 1).ok_or(FORM)?;
        let text = object.get("secretRef").and_then(Value::as_str).ok_or(FORM)?;
        match text.split_once(':') {
            Some(("env", name)) if name.starts_with("HANDOFFD_") => {
                Err("a variable HANDOFFD_… is a setting of handoffd: name another")
            }
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                Ok(Self::Env(name.to_owned()))
            }
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.to_owned())),
            _ => Err(FORM),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
        }
    }
}

/// One object in normal form.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Object {
    pub(super) key: Key,
    /// The members, with those that identify it, without `kind`. An agent's `delivery` has the names of its credentials as
    /// `credentialsSet`.
    pub(super) body: Map<String, Value>,
    /// The declared secrets, by name.
    pub(super) secrets: BTreeMap<String, SecretRef>,
    /// The broker's id of it, where that is not its name.
    pub(super) handle: Option<String>,
}

impl Object {
    pub(super) const fn new(key: Key, body: Map<String, Value>) -> Self {
        Self { key, body, secrets: BTreeMap::new(), handle: None }
    }
}

/// Objects by key.
pub(super) type Objects = BTreeMap<Key, Object>;

/// A pointer (RFC 6901) into an object, and the reason why the value there does not fit.
pub(super) type Fault = (String, String);

/// A value as a type.
///
/// # Errors
/// [`Fault`], with `at` before its pointer.
pub(super) fn typed<T: DeserializeOwned>(value: Value, at: &str) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|err| {
        let segments = err.path().iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Map { key } => Some(escaped(key)),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let path: String = segments.flat_map(|segment| ["/".to_owned(), segment]).collect();
        let why = err.into_inner().to_string();
        // A list of all members would hide the one that is wrong.
        let why = match why.split_once(", expected one of ") {
            Some((why, all)) if all.len() > MAX_LISTED => {
                format!("{why}; the JSON Schema of the kind has all")
            }
            _ => why,
        };
        (format!("{at}{path}"), why)
    })
}

/// An agent with every default, as JSON.
pub(super) fn default_agent(id: &AgentId) -> Map<String, Value> {
    members(json!(Agent::new(id.clone())))
}

pub(super) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// An agent. The allowlist is an object of its own; members that the broker sets are left out. `stated`: the file
/// states `state`, which agents change themselves.
pub(super) fn agent(agent: &Agent, credentials: Vec<String>, stated: bool) -> Object {
    let defaults = default_agent(&agent.agent_id);
    let mut body = members(json!(agent));
    body.remove("handoffTargets");
    let delivery = body.remove("delivery").map(members).unwrap_or_default();
    let state = body.remove("state").filter(|_| stated);
    body.retain(|name, value| name == "agentId" || defaults.get(name) != Some(value));
    body.extend(state.map(|state| ("state".to_owned(), state)));
    let delivery = self::delivery(delivery, &defaults, credentials);
    if !delivery.is_empty() {
        body.insert("delivery".to_owned(), Value::Object(delivery));
    }
    Object::new(Key::new(Kind::Agent, agent.agent_id.as_str()), body)
}

fn delivery(
    mut delivery: Map<String, Value>,
    defaults: &Map<String, Value>,
    mut credentials: Vec<String>,
) -> Map<String, Value> {
    for name in ["disabled", "failing", "credentialsSet"] {
        delivery.remove(name);
    }
    if !credentials.is_empty() {
        credentials.sort_unstable();
        credentials.dedup();
        delivery.insert("credentialsSet".to_owned(), json!(credentials));
    }
    let defaults = &defaults["delivery"];
    let is_default = |name: &str, value: &Value| defaults.get(name) == Some(value);
    if delivery.iter().all(|(name, value)| is_default(name, value)) {
        return Map::new();
    }
    delivery.retain(|name, value| name == "mode" || !is_default(name, value));
    delivery
}

/// A subscription.
pub(super) fn subscription(one: &Subscription) -> Object {
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| _ = body.insert(name.to_owned(), value);
    put("url", json!(one.url));
    if !one.description.is_empty() {
        put("description", json!(one.description));
    }
    if !one.filter.types.is_empty() {
        let mut types: Vec<String> = one.filter.types.iter().map(ToString::to_string).collect();
        types.sort_unstable();
        put("eventTypes", json!(types));
    }
    let mut filter = Map::new();
    let mut limit = |name: &str, value: Option<String>| {
        filter.extend(value.map(|value| (name.to_owned(), value.into())));
    };
    limit("agentId", one.filter.agent_id.as_ref().map(ToString::to_string));
    limit("taskId", one.filter.task_id.map(|id| id.to_string()));
    limit("handoffId", one.filter.handoff_id.map(|id| id.to_string()));
    if !filter.is_empty() {
        put("filter", Value::Object(filter));
    }
    if one.format != EventFormat::default() {
        put("format", json!(one.format));
    }
    if !one.enabled {
        put("enabled", json!(false));
    }
    if let Some(region) = one.region {
        put("region", json!(region.to_string()));
    }
    if let Some(basis) = &one.transfer_basis {
        put("transferBasis", json!(basis));
    }
    let name = if one.description.is_empty() { &one.url } else { &one.description };
    Object::new(Key::new(Kind::Subscription, name), body)
}

/// A subscription from the members that are stated of it, with the names of its credentials in order.
pub(super) fn stated_subscription(
    members: Map<String, Value>,
    credentials: &[&str],
) -> Result<Object, Fault> {
    let spec: SubscriptionSpec = typed(Value::Object(members), "")?;
    let mut object = subscription(&spec.make()?);
    if !credentials.is_empty() {
        object.body.insert("credentialsSet".to_owned(), json!(credentials));
    }
    Ok(object)
}

/// A contract's document, without the broker's `meta`.
pub(super) fn contract(mut body: Map<String, Value>) -> Result<Object, Fault> {
    body.remove("kind");
    body.remove("meta");
    let text = |name: &str| {
        let value = body.get(name).and_then(Value::as_str);
        value.ok_or_else(|| (format!("/{name}"), format!("a contract has an `{name}`, a text")))
    };
    let name = text("id")?.to_owned();
    let version = semver("/version", text("version")?)?;
    body.insert("version".to_owned(), json!(version.to_string()));
    Ok(Object::new(Key { kind: Kind::Contract, name, version: Some(version) }, body))
}

pub(super) fn semver(pointer: &str, text: &str) -> Result<Version, Fault> {
    text.parse().map_err(|_| {
        (pointer.to_owned(), "must be a semantic version like `1.2.0`, quoted".to_owned())
    })
}

/// A cap on money, tokens or both.
pub(super) fn cap(
    agent: Option<&str>,
    window: &str,
    usd: Option<&str>,
    tokens: Option<u64>,
) -> Object {
    let mut body = Map::new();
    body.insert("window".to_owned(), json!(window));
    body.extend(agent.map(|agent| ("agentId".to_owned(), json!(agent))));
    body.extend(usd.map(|usd| ("usd".to_owned(), json!(usd))));
    body.extend(tokens.map(|tokens| ("tokens".to_owned(), json!(tokens))));
    let name = agent.map_or_else(|| window.to_owned(), |agent| format!("{agent}/{window}"));
    Object::new(Key::new(Kind::Cap, name), body)
}

/// An agent's allowlist, sorted: its order has no meaning.
pub(super) fn allowlist(agent: &str, mut targets: Vec<String>) -> Object {
    targets.sort_unstable();
    targets.dedup();
    let mut body = Map::new();
    body.insert("agentId".to_owned(), json!(agent));
    body.insert("handoffTargets".to_owned(), json!(targets));
    Object::new(Key::new(Kind::Allowlist, agent), body)
}

/// A version of a payload schema.
pub(super) fn payload_schema(
    name: &str,
    version: Version,
    schema: Value,
    migration: Option<&str>,
) -> Object {
    let mut body = Map::new();
    body.insert("schemaId".to_owned(), json!(name));
    body.insert("version".to_owned(), json!(version.to_string()));
    body.extend(migration.map(|words| ("migration".to_owned(), json!(words))));
    body.insert("schema".to_owned(), schema);
    let key = Key { kind: Kind::PayloadSchema, name: name.to_owned(), version: Some(version) };
    Object::new(key, body)
}
