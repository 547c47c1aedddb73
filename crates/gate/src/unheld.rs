//! Fields that the broker accepts without full effect: fields that it does not act on, and fields that reach the
//! receiver in another form. Each is named in `warnings`.

use serde_json::Value;

use super::safety::SafetyFinding;
use super::schema::older::OlderForm;
use handoffd_domain::agent::Agent;
use handoffd_domain::credential::{CredentialMatch, SecretPolicy};
use handoffd_domain::failure::{Code, Failure, Stage, escaped};
use handoffd_domain::message::fans_out;
use handoffd_domain::trace_context::TraceParent;
use handoffd_domain::warning::{Warning, WarningCode};

/// The receiver gets the message in an older minor.
#[must_use]
pub fn downgraded(target: &Agent, older: &OlderForm) -> Warning {
    let (id, version) = (&target.agent_id, older.version);
    let without = match older.dropped.as_slice() {
        [] => String::new(),
        names => format!(", without {}", names.join(", ")),
    };
    let what = format!(
        "agent {id} does not take this version: it gets the message as schema {version}{without}"
    );
    Warning::new(WarningCode::SchemaDowngraded, "/schemaVersion", what)
}

/// Most unknown members of `toAgent` that are named.
const MOST_UNREAD: usize = 10;

/// The members of `toAgent` that have an effect.
const ADDRESS: [&str; 4] = ["agentId", "agentType", "agentVersion", "capability"];

/// The warnings about a message alone. Empty for most messages.
#[must_use]
pub fn warnings(message: &Value) -> Vec<Warning> {
    let several = message
        .get("receiverList")
        .and_then(Value::as_array)
        .is_some_and(|receivers| !receivers.is_empty() && !fans_out(message));
    let trace = message.get("traceparent").and_then(Value::as_str);
    let untraced = trace.is_some_and(|text| TraceParent::parse(text).is_none());
    let restarted = untraced.then(|| {
        Warning::new(
            WarningCode::TraceRestarted,
            "/traceparent",
            "an id of zeros alone is invalid: the handoff goes on in the request's trace, or in a new one",
        )
    });
    let own_context = message.get("context").map(|_| {
        Warning::new(
            WarningCode::WithoutEffect,
            "/context",
            "kept as the sender's words; the broker measures the message itself, and writes this where it compresses it",
        )
    });
    let address = message.get("toAgent").and_then(Value::as_object);
    let unread = address.into_iter().flat_map(|address| address.keys()).filter_map(|name| {
        let unknown = !ADDRESS.contains(&name.as_str());
        unknown.then(|| {
            Warning::new(
                WarningCode::WithoutEffect,
                format!("/toAgent/{}", escaped(name)),
                "the receiver is not chosen by it: agentId, agentType, agentVersion and capability count",
            )
        })
    });
    several
        .then(|| {
            Warning::new(
                WarningCode::WithoutEffect,
                "/receiverList",
                "in this schema version the broker delivers to toAgent alone; from 2.2 on it sends to each receiver of the list",
            )
        })
        .into_iter()
        .chain(restarted)
        .chain(own_context)
        .chain(unread.take(MOST_UNREAD))
        .collect()
}

/// The warning about a credential that passes, unchanged or replaced. Never the value.
#[must_use]
pub fn credential(found: &CredentialMatch, treatment: SecretPolicy) -> Warning {
    let told = match treatment {
        SecretPolicy::Redact => {
            format!("held what looks like {}: the broker replaced it", found.name)
        }
        _ => format!(
            "holds what looks like {}: the broker stores and delivers it as it is",
            found.name
        ),
    };
    Warning::new(WarningCode::CredentialFound, found.pointer.clone(), told)
}

/// The warnings about orders inside data, one for each text. Never the words.
#[must_use]
pub fn orders(marked: &[SafetyFinding]) -> Vec<Warning> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for mark in marked {
        match texts.last_mut() {
            Some((pointer, rules)) if *pointer == mark.pointer => rules.push(&mark.rule),
            _ => texts.push((&mark.pointer, vec![&mark.rule])),
        }
    }
    let warning = |(pointer, rules): (&str, Vec<&str>)| {
        let rules = rules.join(", ");
        let told = format!("reads like an order to an assistant ({rules}): the prompt fences it");
        Warning::new(WarningCode::OrderInData, pointer, told)
    };
    texts.into_iter().map(warning).collect()
}

/// The failure for a credential that is refused. Never the value.
#[must_use]
pub fn refused_credential(found: &CredentialMatch) -> Failure {
    Failure::new(
        Stage::Safety,
        Code::CredentialFound,
        found.pointer.clone(),
        format!("holds what looks like {}: send a reference to it instead", found.name),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_receiver_list_is_named_and_its_absence_is_not() {
        let found = warnings(&json!({ "receiverList": ["b", "c"] }));
        assert_eq!(found[0].pointer, "/receiverList");
        assert!(warnings(&json!({ "receiverList": [] })).is_empty());
        assert!(warnings(&json!({})).is_empty());
        assert_eq!(warnings(&json!({ "context": {} }))[0].pointer, "/context");
    }

    #[test]
    fn f5_3_a_trace_that_cannot_be_gone_on_with_is_named() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let found = |text: String| warnings(&json!({ "traceparent": text }));
        for zeros in [
            format!("00-{}-{parent}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
        ] {
            assert_eq!(found(zeros)[0].code, WarningCode::TraceRestarted);
        }
        assert!(found(format!("00-{trace}-{parent}-01")).is_empty());
        assert!(found(format!("cc-{trace}-{parent}-01-later")).is_empty());
    }
}
