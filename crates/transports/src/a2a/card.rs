//! The card of a remote agent: which interface the broker speaks to, and what the agent reads (A2A 1.0 §4.4, §8). Pure.

use serde_json::Value;
use url::Url;

/// The version of the protocol that the broker speaks.
pub const VERSION: &str = "1.0";
/// The path of a card below an agent's address (RFC 8615).
const WELL_KNOWN: &str = ".well-known/agent-card.json";

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    HttpJson,
    JsonRpc,
}

/// The one interface of an agent card that the broker calls, and the card's capabilities that it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCard {
    pub binding: Binding,
    /// The interface's address, without a slash at its end.
    pub url: String,
    /// The value that requests to this interface carry as `tenant`.
    pub tenant: Option<String>,
    /// Whether the agent says that it sends push notifications.
    pub push: bool,
    /// Whether the agent reads text parts.
    pub reads_text: bool,
    /// Whether the agent reads data parts.
    pub reads_data: bool,
    pub signature: CardSignature,
}

/// The result of the check of a card's signature (A2A 1.0 §8.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardSignature {
    Absent,
    /// The card is signed, and the registration names no keys to check it with.
    Unchecked,
    /// The signature holds under a key that the registration names.
    Verified,
}

/// The reason why a card cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardFault {
    #[error("the agent card is not a JSON object with supportedInterfaces")]
    Unreadable,
    /// The broker's credentials go to the origin at which the agent is registered, and nowhere else.
    #[error(
        "the agent card names no interface for HTTP+JSON or JSONRPC {VERSION} at the origin of its own address"
    )]
    NoInterface,
    #[error("the agent card requires an extension that the broker does not speak")]
    Extension,
    #[error("the agent card takes neither text/plain nor application/json")]
    Modes,
    #[error("the agent card is not signed, and the agent is registered with keys for it")]
    Unsigned,
    #[error("no signature of the agent card holds under a key that the agent is registered with")]
    Signature,
}

/// The address of an agent's card: the registered URL where it names a JSON document, else the well-known path below it.
#[must_use]
pub fn card_url(registered: &Url) -> Url {
    let mut url = registered.clone();
    let extension = std::path::Path::new(url.path()).extension();
    if extension.is_some_and(|extension| extension == "json") {
        return url;
    }
    let base = url.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{base}/{WELL_KNOWN}"));
    url
}

/// Reads a card that came from `at`; its signatures are counted and not checked. The first interface that the broker speaks counts: the order is the agent's preference.
///
/// # Errors
/// [`CardFault`]: nothing of the card can be used.
pub fn read(card: &Value, at: &Url) -> Result<RemoteCard, CardFault> {
    let interfaces =
        card.get("supportedInterfaces").and_then(Value::as_array).ok_or(CardFault::Unreadable)?;
    let required = |one: &Value| one["required"].as_bool().unwrap_or(false);
    let extensions = card.pointer("/capabilities/extensions").and_then(Value::as_array);
    if extensions.into_iter().flatten().any(required) {
        return Err(CardFault::Extension);
    }
    let (binding, url, tenant) =
        interfaces.iter().find_map(|one| interface(one, at)).ok_or(CardFault::NoInterface)?;
    let modes = modes(card);
    let takes = |wanted: &str| modes.is_empty() || modes.iter().any(|mode| covers(mode, wanted));
    let (reads_text, reads_data) = (takes("text/plain"), takes("application/json"));
    if !reads_text && !reads_data {
        return Err(CardFault::Modes);
    }
    let push = card.pointer("/capabilities/pushNotifications").and_then(Value::as_bool);
    let signatures = card.get("signatures").and_then(Value::as_array);
    let signature = match signatures {
        Some(list) if !list.is_empty() => CardSignature::Unchecked,
        _ => CardSignature::Absent,
    };
    Ok(RemoteCard {
        binding,
        url,
        tenant,
        push: push.unwrap_or(false),
        reads_text,
        reads_data,
        signature,
    })
}

fn interface(one: &Value, at: &Url) -> Option<(Binding, String, Option<String>)> {
    let text = |name: &str| one.get(name).and_then(Value::as_str);
    let binding = match text("protocolBinding")? {
        "HTTP+JSON" => Binding::HttpJson,
        "JSONRPC" => Binding::JsonRpc,
        _ => return None,
    };
    // A patch does not count.
    let minor: Vec<&str> = text("protocolVersion")?.splitn(3, '.').take(2).collect();
    let url = Url::parse(text("url")?).ok()?;
    if minor.join(".") != VERSION || url.origin() != at.origin() || url.query().is_some() {
        return None;
    }
    let tenant = text("tenant").filter(|name| !name.is_empty()).map(str::to_owned);
    Some((binding, url.as_str().trim_end_matches('/').to_owned(), tenant))
}

/// Media types that the agent reads; empty where the card names none.
fn modes(card: &Value) -> Vec<String> {
    let named = card.get("defaultInputModes").and_then(Value::as_array);
    let names = named.into_iter().flatten().filter_map(Value::as_str);
    names.map(str::to_ascii_lowercase).collect()
}

/// Whether a media range covers a media type. Some agents write `text` for `text/plain` and `data` for JSON.
fn covers(range: &str, wanted: &str) -> bool {
    let range = range.split(';').next().unwrap_or_default().trim();
    match range.strip_suffix("/*") {
        Some("*") => true,
        Some(kind) => wanted.split('/').next() == Some(kind),
        None => {
            range == wanted
                || matches!(
                    (range, wanted),
                    ("text", "text/plain") | ("data" | "json", "application/json")
                )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at() -> Url {
        Url::parse("https://agent.example/x/.well-known/agent-card.json").unwrap()
    }

    fn card(interfaces: &Value) -> Value {
        json!({ "supportedInterfaces": interfaces, "capabilities": { "pushNotifications": true }, "defaultInputModes": ["text/plain"] })
    }

    #[test]
    fn the_first_interface_that_the_broker_speaks_counts() {
        let read = read(
            &card(&json!([
                { "url": "https://agent.example:443/g", "protocolBinding": "GRPC", "protocolVersion": "1.0" },
                { "url": "https://agent.example/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3" },
                { "url": "https://agent.example/rest/", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0.1", "tenant": "t" },
                { "url": "https://agent.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
            ])),
            &at(),
        )
        .unwrap();
        assert_eq!(
            (read.binding, read.url.as_str()),
            (Binding::HttpJson, "https://agent.example/rest")
        );
        assert_eq!((read.tenant.as_deref(), read.push), (Some("t"), true));
        assert_eq!((read.reads_text, read.reads_data), (true, false));
    }

    #[test]
    fn an_interface_at_another_origin_is_none() {
        for url in [
            "https://elsewhere.example/rpc",
            "http://agent.example/rpc",
            "https://agent.example:8443/rpc",
            "http://169.254.169.254/",
            "https://agent.example/rpc?key=1",
            "not a url",
        ] {
            let lying = card(
                &json!([{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]),
            );
            assert_eq!(read(&lying, &at()), Err(CardFault::NoInterface), "{url}");
        }
    }

    #[test]
    fn wrong_types_required_extensions_and_foreign_modes_are_refused() {
        let good = json!([{ "url": "https://agent.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
        for unreadable in [json!(null), json!([]), json!({ "supportedInterfaces": {} }), json!("x")]
        {
            assert_eq!(read(&unreadable, &at()), Err(CardFault::Unreadable), "{unreadable}");
        }
        for none in [
            json!([]),
            json!([7]),
            json!([{ "url": 7, "protocolBinding": [], "protocolVersion": 1 }]),
        ] {
            assert_eq!(read(&card(&none), &at()), Err(CardFault::NoInterface), "{none}");
        }
        let mut asks = card(&good);
        asks["capabilities"]["extensions"] = json!([{ "uri": "urn:x", "required": true }]);
        assert_eq!(read(&asks, &at()), Err(CardFault::Extension));
        let mut foreign = card(&good);
        foreign["defaultInputModes"] = json!(["image/png"]);
        assert_eq!(read(&foreign, &at()), Err(CardFault::Modes));
        foreign["defaultInputModes"] = json!(["Application/*"]);
        let read = read(&foreign, &at()).unwrap();
        assert_eq!((read.reads_text, read.reads_data), (false, true));
    }

    #[test]
    fn the_card_stands_where_the_registration_says_or_at_the_well_known_path() {
        for (registered, card) in [
            ("https://a.example", "https://a.example/.well-known/agent-card.json"),
            ("https://a.example/x/", "https://a.example/x/.well-known/agent-card.json"),
            ("https://a.example/cards/one.json", "https://a.example/cards/one.json"),
        ] {
            assert_eq!(card_url(&Url::parse(registered).unwrap()).as_str(), card);
        }
    }
}
