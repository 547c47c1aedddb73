//! Reads one file's value as a declared object, with the code by which the broker reads the same request. Pure.

use std::collections::BTreeMap;

use semver::Version;
use serde_json::{Map, Value};

use super::object::{
    Fault, Kind, Object, SecretRef, agent, allowlist, cap, contract, payload_schema, semver,
    stated_subscription, typed,
};
use handoffd_domain::agent::{Agent, AgentSpec, Target};
use handoffd_domain::cap::{MAX_TOKENS, Window};
use handoffd_domain::failure::escaped;
use handoffd_domain::ids::AgentId;
use handoffd_domain::money::Usd;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::shelf::SchemaName;
use handoffd_gate::contract::{DefectKind, SchemaRef, read as read_contract, schema};

/// Members of a delivery that only the broker sets.
const SET_BY_BROKER: [&str; 5] =
    ["credentialsSet", "credentials_set", "disabled", "failing", "credentials"];

fn fault(pointer: impl Into<String>, why: impl Into<String>) -> Fault {
    (pointer.into(), why.into())
}

/// Reads an object.
///
/// # Errors
/// All [`Fault`]s of the object.
pub(super) fn read(value: &Value) -> Result<Object, Vec<Fault>> {
    let Some(members) = value.as_object() else {
        return Err(vec![fault("", "an object is a mapping with a `kind`")]);
    };
    let names = || Kind::ALL.map(Kind::name).join(", ");
    let kind = match members.get("kind") {
        Some(Value::String(name)) => Kind::of(name)
            .ok_or_else(|| vec![fault("/kind", format!("`{name}` is none of {}", names()))])?,
        _ => return Err(vec![fault("/kind", format!("must be one of {}", names()))]),
    };
    let mut members = members.clone();
    members.remove("kind");
    let one = |result: Result<Object, Fault>| result.map_err(|fault| vec![fault]);
    match kind {
        Kind::Contract => declared_contract(members),
        Kind::PayloadSchema => one(declared_schema(&members)),
        Kind::Agent => one(no_null(&members, "").and_then(|()| declared_agent(members))),
        Kind::Cap => one(no_null(&members, "").and_then(|()| declared_cap(&members))),
        Kind::Subscription => {
            one(no_null(&members, "").and_then(|()| declared_subscription(members)))
        }
        Kind::Allowlist => one(no_null(&members, "").and_then(|()| declared_allowlist(members))),
    }
}

/// A file declares the whole object, so `null` would mean the same as an absent member.
fn no_null(members: &Map<String, Value>, at: &str) -> Result<(), Fault> {
    match members.iter().find(|(_, value)| value.is_null()) {
        Some((name, _)) => Err(fault(
            format!("{at}/{}", escaped(name)),
            "has no value: leave it out, an absent member has its default",
        )),
        None => Ok(()),
    }
}

/// Refuses each member that is not in the list.
fn only(members: &Map<String, Value>, known: &[&str]) -> Result<(), Fault> {
    match members.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(fault(
            format!("/{}", escaped(name)),
            format!("is not a member of this kind: {}", known.join(", ")),
        )),
        None => Ok(()),
    }
}

fn text<'a>(members: &'a Map<String, Value>, name: &str) -> Result<&'a str, Fault> {
    match members.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(fault(format!("/{name}"), "must be a text; quote it")),
        None => Err(fault(format!("/{name}"), "is missing")),
    }
}

fn agent_id(members: &Map<String, Value>) -> Result<AgentId, Fault> {
    text(members, "agentId")?.parse().map_err(|err| fault("/agentId", format!("{err}")))
}

fn declared_agent(mut members: Map<String, Value>) -> Result<Object, Fault> {
    let id = agent_id(&members)?;
    for name in ["handoffTargets", "handoff_targets", "config"] {
        if members.contains_key(name) {
            let why = "is an object of its own, of the kind Allowlist";
            return Err(fault(format!("/{name}"), why));
        }
    }
    let mut secrets = BTreeMap::new();
    if let Some(Value::Object(delivery)) = members.get_mut("delivery") {
        no_null(delivery, "/delivery")?;
        secrets = credentials(delivery)?;
        if let Some(name) = SET_BY_BROKER.into_iter().find(|name| delivery.contains_key(*name)) {
            return Err(fault(format!("/delivery/{name}"), "is set by the broker: leave it out"));
        }
        if let Some(Value::Object(config)) = delivery.get("config") {
            no_null(config, "/delivery/config")?;
        }
    }
    let stated = members.contains_key("state");
    let spec: AgentSpec = typed(Value::Object(members), "")?;
    if spec.delivery.as_ref().is_some_and(|delivery| delivery.mode.is_none()) {
        return Err(fault("/delivery/mode", "is missing"));
    }
    let made = spec.apply(&Agent::new(id))?;
    let mut object = agent(&made, secrets.keys().cloned().collect(), stated);
    object.secrets = secrets;
    Ok(object)
}

/// Removes a delivery's credentials and returns them.
fn credentials(delivery: &mut Map<String, Value>) -> Result<BTreeMap<String, SecretRef>, Fault> {
    let Some(stated) = delivery.remove("credentials") else { return Ok(BTreeMap::new()) };
    let Value::Object(stated) = stated else {
        return Err(fault("/delivery/credentials", "must be a mapping of names to secretRefs"));
    };
    stated
        .iter()
        .map(|(name, value)| {
            let read = SecretRef::read(value)
                .map_err(|why| fault(format!("/delivery/credentials/{}", escaped(name)), why))?;
            Ok((name.clone(), read))
        })
        .collect()
}

fn declared_subscription(mut members: Map<String, Value>) -> Result<Object, Fault> {
    let mut secrets = BTreeMap::new();
    for name in ["authorization", "token"] {
        if let Some(value) = members.remove(name) {
            let read = SecretRef::read(&value).map_err(|why| fault(format!("/{name}"), why))?;
            secrets.insert(name.to_owned(), read);
        }
    }
    let names: Vec<&str> = secrets.keys().map(String::as_str).collect();
    let mut object = stated_subscription(members, &names)?;
    object.secrets = secrets;
    Ok(object)
}

fn declared_cap(members: &Map<String, Value>) -> Result<Object, Fault> {
    only(members, &["window", "agentId", "usd", "tokens"])?;
    let window: Window =
        text(members, "window")?.parse().map_err(|err| fault("/window", format!("{err}")))?;
    let agent = members.contains_key("agentId").then(|| agent_id(members)).transpose()?;
    let usd = match members.get("usd") {
        None => None,
        Some(Value::String(text)) => {
            Some(text.parse::<Usd>().map_err(|err| fault("/usd", err.to_string()))?)
        }
        Some(_) => {
            return Err(fault("/usd", "must be a text, so that it is exact: \"100.00\""));
        }
    };
    let tokens = members.get("tokens").map(|tokens| {
        let fits = tokens.as_u64().filter(|tokens| *tokens <= MAX_TOKENS);
        fits.ok_or_else(|| fault("/tokens", format!("must be a whole number up to {MAX_TOKENS}")))
    });
    let tokens = tokens.transpose()?;
    if usd.is_none() && tokens.is_none() {
        return Err(fault("", "a cap says how much: usd, tokens or both"));
    }
    let usd = usd.map(|usd| usd.to_string());
    let agent = agent.as_ref().map(AgentId::as_str);
    Ok(cap(agent, &window.to_string(), usd.as_deref(), tokens))
}

fn declared_allowlist(mut members: Map<String, Value>) -> Result<Object, Fault> {
    only(&members, &["agentId", "handoffTargets"])?;
    let id = agent_id(&members)?;
    let targets = members
        .remove("handoffTargets")
        .ok_or_else(|| fault("/handoffTargets", "is missing; [] permits no agent"))?;
    let targets: Vec<Target> = typed(targets, "/handoffTargets")?;
    Ok(allowlist(id.as_str(), targets.iter().map(ToString::to_string).collect()))
}

fn declared_schema(members: &Map<String, Value>) -> Result<Object, Fault> {
    only(members, &["schemaId", "version", "migration", "schema"])?;
    let (id, version) = (text(members, "schemaId")?, text(members, "version")?);
    let parsed: Version = semver("/version", version)?;
    SchemaName::new(id, version).map_err(|why| fault("", why))?;
    let migration =
        members.contains_key("migration").then(|| text(members, "migration")).transpose()?;
    let body = members.get("schema").ok_or_else(|| fault("/schema", "is missing"))?;
    schema::compile(body).map_err(|why| fault("/schema", why))?;
    Ok(payload_schema(id, parsed, body.clone(), migration))
}

fn declared_contract(members: Map<String, Value>) -> Result<Object, Vec<Fault>> {
    if members.contains_key("meta") {
        return Err(vec![fault("/meta", "is made by the broker: leave it out")]);
    }
    if !members.contains_key("version") {
        return Err(vec![fault("/version", "is missing")]);
    }
    let document = Document::from_value(Value::Object(members.clone()));
    let (parsed, defects) = read_contract(&document);
    let faults: Vec<Fault> = defects
        .into_iter()
        .filter(|defect| matches!(defect.kind, DefectKind::Invalid | DefectKind::Unknown))
        .map(|defect| (defect.pointer, defect.message))
        .collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    // A path without a file. `check` looks up registered schemas in the broker.
    if let Some(SchemaRef::Named(name)) = &parsed.payload.schema
        && parsed.local_schema().is_none()
        && !name.starts_with("registry:")
    {
        let why = format!(
            "neither a file `{name}` beside this one nor a schema of that name under `schemas` exists"
        );
        return Err(vec![fault("/payload/schema", why)]);
    }
    contract(members).map_err(|fault| vec![fault])
}

/// The registered payload schema that a contract names.
pub(super) fn registered_schema(object: &Object) -> Option<Result<SchemaName, String>> {
    let name = object.body.get("payload")?.get("schema")?.as_str()?;
    SchemaName::parse(name)
}

/// Whether a contract's target is a person and not an agent.
pub(super) fn is_for_a_person(object: &Object) -> bool {
    let human = object.body.get("human_in_the_loop");
    human.is_some_and(|human| *human != Value::Bool(false))
        || object.body.contains_key("human_target")
}
