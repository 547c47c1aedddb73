//! A step of a plan as requests of the public API. Pure.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::object::{Kind, Object, SecretRef, default_agent, members};
use super::plan::{Action, Step};
use crate::cli::client::{Body, Request};

/// Secrets by name, as they are sent.
pub(super) type Secrets = BTreeMap<String, String>;

/// The declared secrets that a step sends.
pub(super) fn needed(step: &Step) -> BTreeMap<String, SecretRef> {
    let Some(want) = &step.want else { return BTreeMap::new() };
    let sends = match (&step.action, want.key.kind) {
        (Action::Create, _) => true,
        (Action::Update, Kind::Agent) => agent_patch(step)
            .get("delivery")
            .is_some_and(|delivery| delivery.get("credentials").is_some()),
        _ => false,
    };
    if sends { want.secrets.clone() } else { BTreeMap::new() }
}

/// Whether the broker answers a step with secrets that it shows once.
pub(super) fn makes_secrets(step: &Step) -> bool {
    step.action == Action::Create && matches!(step.key().kind, Kind::Agent | Kind::Subscription)
}

fn request(method: Method, path: &[&str], body: Option<Value>) -> Request {
    Request { method, body: body.map(Body::Json), ..Request::get(path) }
}

fn text<'a>(body: &'a Map<String, Value>, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The requests of a step: one, which writes one record; two where a cap loses one unit and the other changes.
pub(super) fn requests(step: &Step, secrets: &Secrets) -> Vec<Request> {
    let Some(object) = step.want.as_ref().or(step.have.as_ref()) else { return Vec::new() };
    let body = &object.body;
    let removes = step.action == Action::Remove;
    match object.key.kind {
        Kind::PayloadSchema => {
            let path = ["schemas", "payloads", text(body, "schemaId"), text(body, "version")];
            let mut said = body.clone();
            said.retain(|name, _| ["schema", "migration"].contains(&name.as_str()));
            vec![request(Method::PUT, &path, Some(Value::Object(said)))]
        }
        Kind::Contract => {
            let path = ["contracts", text(body, "id")];
            vec![request(Method::PUT, &path, Some(Value::Object(body.clone())))]
        }
        Kind::Agent => vec![agent(step, object, secrets)],
        Kind::Cap => cap(step, object),
        Kind::Subscription => vec![subscription(step, object, secrets)],
        Kind::Allowlist => {
            let path = ["agents", text(body, "agentId"), "handoff-targets"];
            let targets = if removes { json!([]) } else { json!(body.get("handoffTargets")) };
            vec![request(Method::PUT, &path, Some(json!({ "handoffTargets": targets })))]
        }
    }
}

fn agent(step: &Step, object: &Object, secrets: &Secrets) -> Request {
    let path = ["agents", text(&object.body, "agentId")];
    match step.action {
        Action::Remove => request(Method::DELETE, &path, None),
        Action::Update => {
            let patch = with_credentials(agent_patch(step), secrets);
            request(Method::PATCH, &path, Some(Value::Object(patch)))
        }
        _ => {
            let mut body = object.body.clone();
            if let Some(Value::Object(delivery)) = body.get_mut("delivery") {
                let given = delivery.remove("credentialsSet").is_some();
                if given {
                    delivery.insert("credentials".to_owned(), json!({}));
                }
                let mode = json!("pull");
                delivery.entry("mode").or_insert(mode);
            }
            let body = with_credentials(body, secrets);
            request(Method::POST, &path[..1], Some(Value::Object(body)))
        }
    }
}

/// Puts the secrets where a body names credentials.
fn with_credentials(mut body: Map<String, Value>, secrets: &Secrets) -> Map<String, Value> {
    if let Some(credentials) =
        body.get_mut("delivery").and_then(|delivery| delivery.get_mut("credentials"))
    {
        *credentials = json!(secrets);
    }
    body
}

/// The patch that makes one agent of another: a member that the file leaves out goes back to its default. An empty
/// `credentials` marks a patch with which they are sent.
pub(super) fn agent_patch(step: &Step) -> Map<String, Value> {
    let (Some(have), Some(want)) = (&step.have, &step.want) else { return Map::new() };
    let id = text(&want.body, "agentId").parse();
    let defaults = id.map(|id| default_agent(&id)).unwrap_or_default();
    let mut patch = Map::new();
    let names = have.body.keys().chain(want.body.keys());
    for name in names.filter(|name| *name != "delivery") {
        if have.body.get(name) == want.body.get(name)
            || (name == "state" && !want.body.contains_key("state"))
        {
            continue;
        }
        let value = want.body.get(name).or_else(|| defaults.get(name));
        patch.insert(name.clone(), value.cloned().unwrap_or_default());
    }
    let delivery = |object: &Object| whole_delivery(object.body.get("delivery"), &defaults);
    let delivery = delivery_patch(&delivery(have), &delivery(want));
    if !delivery.is_empty() {
        patch.insert("delivery".to_owned(), Value::Object(delivery));
    }
    patch
}

/// A delivery with every member that a file may state.
fn whole_delivery(stated: Option<&Value>, defaults: &Map<String, Value>) -> Map<String, Value> {
    let mut whole = members(json!({
        "url": null, "format": "handoff", "acceptEncoding": [], "config": {}, "credentialsSet": [],
    }));
    let stated = stated.and_then(Value::as_object);
    whole.extend(defaults.get("delivery").cloned().map(members).unwrap_or_default());
    whole.extend(stated.cloned().unwrap_or_default());
    whole
}

fn delivery_patch(have: &Map<String, Value>, want: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    let another = have["mode"] != want["mode"];
    for (name, value) in want {
        if ["config", "credentialsSet"].contains(&name.as_str()) {
            continue;
        }
        if another || have.get(name) != Some(value) {
            patch.insert(name.clone(), value.clone());
        }
    }
    let empty = Map::new();
    let config = |of: &Map<String, Value>| of["config"].as_object().cloned().unwrap_or_default();
    let (before, after) = (if another { empty } else { config(have) }, config(want));
    let mut changed = Map::new();
    for name in before.keys().chain(after.keys()) {
        if before.get(name) != after.get(name) {
            // Null takes a setting away.
            changed.insert(name.clone(), after.get(name).cloned().unwrap_or_default());
        }
    }
    if !changed.is_empty() {
        patch.insert("config".to_owned(), Value::Object(changed));
    }
    // The broker asks for credentials anew where their server changes, and keeps those of the same one.
    let wanted = want["credentialsSet"] != json!([]);
    let address = ["mode", "url", "config"].iter().any(|name| patch.contains_key(*name));
    if (have["credentialsSet"] != want["credentialsSet"] && (wanted || !another))
        || (wanted && address)
    {
        patch.insert("credentials".to_owned(), json!({}));
    }
    patch
}

fn cap(step: &Step, object: &Object) -> Vec<Request> {
    let window = text(&object.body, "window");
    let mut query = Vec::new();
    if let Some(agent) = object.body.get("agentId").and_then(Value::as_str) {
        query.push(("agentId".to_owned(), agent.to_owned()));
    }
    let path = ["caps", window];
    let remove = |unit: Option<&str>| {
        let mut query = query.clone();
        query.extend(unit.map(|unit| ("unit".to_owned(), unit.to_owned())));
        Request { query, ..request(Method::DELETE, &path, None) }
    };
    if step.action == Action::Remove {
        return vec![remove(None)];
    }
    let before = step.have.as_ref().map(|have| &have.body);
    let held = |name: &str| before.and_then(|body| body.get(name));
    let mut set = Map::new();
    let mut requests = Vec::new();
    for unit in ["usd", "tokens"] {
        match (held(unit), object.body.get(unit)) {
            (Some(_), None) => requests.push(remove(Some(unit))),
            (before, Some(wanted)) if before != Some(wanted) => {
                set.insert(unit.to_owned(), wanted.clone());
            }
            _ => {}
        }
    }
    if !set.is_empty() {
        // First the new limit, so that the cap is never without one.
        let put = Request { query, ..request(Method::PUT, &path, Some(Value::Object(set))) };
        requests.insert(0, put);
    }
    requests
}

fn subscription(step: &Step, object: &Object, secrets: &Secrets) -> Request {
    let handle = step.have.as_ref().and_then(|have| have.handle.as_deref()).unwrap_or_default();
    match step.action {
        Action::Remove => request(Method::DELETE, &["subscriptions", handle], None),
        Action::Update => {
            let defaults = members(json!({
                "description": "", "eventTypes": [], "filter": {}, "format": "standard", "enabled": true,
                "region": null, "transferBasis": null,
            }));
            let before = step.have.as_ref().map(|have| have.body.clone()).unwrap_or_default();
            let mut patch = Map::new();
            for name in before.keys().chain(object.body.keys()) {
                if before.get(name) != object.body.get(name) {
                    let value = object.body.get(name).or_else(|| defaults.get(name));
                    patch.insert(name.clone(), value.cloned().unwrap_or_default());
                }
            }
            request(Method::PATCH, &["subscriptions", handle], Some(Value::Object(patch)))
        }
        _ => {
            let mut body = object.body.clone();
            body.remove("credentialsSet");
            body.extend(secrets.iter().map(|(name, value)| (name.clone(), json!(value))));
            request(Method::POST, &["subscriptions"], Some(Value::Object(body)))
        }
    }
}
