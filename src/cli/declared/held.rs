//! The objects of a running broker, by the public API, in normal form.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::object::{
    Fault, Key, Kind, Object, Objects, agent, allowlist, cap, contract, members, payload_schema,
    semver, stated_subscription,
};
use crate::cli::client::{Client, ClientError, Request};
use handoffd_domain::agent::Agent;

/// The objects of a broker.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) objects: Objects,
    /// Keys that several subscriptions share. Their names among the objects end with their ids.
    pub(super) ambiguous: BTreeSet<Key>,
}

impl Held {
    /// Asks for everything.
    pub(super) async fn ask(client: &Client) -> Result<Self, ClientError> {
        let mut held = Self::default();
        let agents = client.call(&Request::get(&["agents"])).await?;
        for shown in items(&agents) {
            for object in shown_agent(shown).map_err(|fault| unreadable(shown, &fault))? {
                held.put(object);
            }
        }
        let schemas = client.call(&Request::get(&["schemas", "payloads"])).await?;
        for id in texts(&schemas, "schemaId") {
            let path = ["schemas", "payloads", &id];
            let versions = client.call(&Request::get(&path)).await?;
            for version in texts(&versions, "version") {
                let shown = client.call(&Request::get(&[path[0], path[1], &id, &version])).await?;
                held.put(shown_schema(&shown).map_err(|fault| unreadable(&shown, &fault))?);
            }
        }
        let contracts = client.call(&Request::get(&["contracts"])).await?;
        for id in texts(&contracts, "id") {
            let highest = client.call(&Request::get(&["contracts", &id])).await?;
            let versions = highest.pointer("/meta/versions").and_then(Value::as_array);
            for version in versions.into_iter().flatten().filter_map(Value::as_str) {
                let query = vec![("version".to_owned(), version.to_owned())];
                let asked = Request { query, ..Request::get(&["contracts", &id]) };
                let shown = client.call(&asked).await?;
                let object = contract(members(shown.clone()));
                held.put(object.map_err(|fault| unreadable(&shown, &fault))?);
            }
        }
        let caps = client.call(&Request::get(&["caps"])).await?;
        for object in items(&caps).iter().filter_map(shown_cap) {
            held.put(object);
        }
        let subscriptions = client.call(&Request::get(&["subscriptions"])).await?;
        let operators = |shown: &&Value| shown.get("owner").is_none();
        for shown in items(&subscriptions).iter().filter(operators) {
            held.put(shown_subscription(shown).map_err(|fault| unreadable(shown, &fault))?);
        }
        Ok(held)
    }

    /// Adds an object. Of several with one key, each goes by its id.
    pub(super) fn put(&mut self, mut object: Object) {
        let told_apart = |object: &mut Object| {
            let id = object.handle.clone().unwrap_or_default();
            object.key.name = format!("{} ({id})", object.key.name);
        };
        if let Some(mut other) = self.objects.remove(&object.key) {
            self.ambiguous.insert(object.key.clone());
            told_apart(&mut other);
            self.objects.insert(other.key.clone(), other);
        }
        if self.ambiguous.contains(&object.key) {
            told_apart(&mut object);
        }
        self.objects.insert(object.key.clone(), object);
    }
}

fn items(page: &Value) -> &[Value] {
    page.get("items").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn texts(page: &Value, name: &str) -> Vec<String> {
    let text = |item: &Value| item.get(name).and_then(Value::as_str).map(str::to_owned);
    items(page).iter().filter_map(text).collect()
}

fn unreadable(shown: &Value, (pointer, why): &Fault) -> ClientError {
    let mut text = shown.to_string();
    text.truncate(text.floor_char_boundary(200));
    ClientError::Unreachable(format!(
        "an object of this broker cannot be read, at `{pointer}`: {why} ({text}); is this a handoffd of this version?"
    ))
}

/// An agent, and its allowlist.
fn shown_agent(shown: &Value) -> Result<[Object; 2], Fault> {
    let one = Agent::deserialize(shown).map_err(|err| (String::new(), err.to_string()))?;
    let targets = one.handoff_targets.iter().map(ToString::to_string).collect();
    let allowlist = allowlist(one.agent_id.as_str(), targets);
    Ok([agent(&one, one.delivery.credentials_set.clone(), true), allowlist])
}

fn shown_schema(shown: &Value) -> Result<Object, Fault> {
    let text = |name: &str| {
        let value = shown.get(name).and_then(Value::as_str);
        value.ok_or_else(|| (format!("/{name}"), "is missing".to_owned()))
    };
    let version = semver("/version", text("version")?)?;
    let schema = shown.get("schema").cloned().unwrap_or_default();
    Ok(payload_schema(text("schemaId")?, version, schema, text("migration").ok()))
}

/// A cap that an operator set; `None` for one of the broker's settings.
fn shown_cap(shown: &Value) -> Option<Object> {
    let flag = |name: &str| shown.get(name).and_then(Value::as_bool).unwrap_or(false);
    let text = |name: &str| shown.get(name).and_then(Value::as_str);
    let usd = text("usd").filter(|_| !flag("default"));
    let tokens = shown.get("tokens").and_then(Value::as_u64).filter(|_| !flag("defaultTokens"));
    (usd.is_some() || tokens.is_some())
        .then(|| cap(text("agentId"), text("window").unwrap_or_default(), usd, tokens))
}

fn shown_subscription(shown: &Value) -> Result<Object, Fault> {
    const STATED: [&str; 8] = [
        "url",
        "description",
        "eventTypes",
        "filter",
        "format",
        "enabled",
        "region",
        "transferBasis",
    ];
    let mut stated: Map<String, Value> = members(shown.clone());
    stated.retain(|name, _| STATED.contains(&name.as_str()));
    // The broker switched this endpoint off; health is not configuration.
    if shown.get("disabledReason").is_some() {
        stated.remove("enabled");
    }
    let credentials = shown.get("credentialsSet").and_then(Value::as_array);
    let credentials: Vec<&str> =
        credentials.into_iter().flatten().filter_map(Value::as_str).collect();
    let mut object = stated_subscription(stated, &credentials)?;
    object.handle = shown.get("subscriptionId").and_then(Value::as_str).map(str::to_owned);
    Ok(object)
}

/// Whether `dump` writes an object: every agent begins with an empty allowlist, which has no file.
pub(super) fn is_written(object: &Object) -> bool {
    object.key.kind != Kind::Allowlist
        || object
            .body
            .get("handoffTargets")
            .and_then(Value::as_array)
            .is_none_or(|all| !all.is_empty())
}
