//! A verdict of a reply channel whose members have another form than they take: the verdict is clear, and a refusal would
//! reach no receiver. So a value becomes its JSON text, or is dropped if it is counted.

use serde_json::{Map, Value};

use super::words::spent;
use crate::ledger::commands::VerdictKind;
use handoffd_domain::lenient::{UnreadableParts, Why};
use handoffd_domain::message::whole_number;
use handoffd_gate::reply::ReplyVerdict;

/// Makes the members fit, and notes each that was changed.
pub(super) fn fit(
    verdict: ReplyVerdict,
    members: &mut Map<String, Value>,
    unreadable: &mut UnreadableParts,
) {
    let mut as_text = |value: &mut Value, pointer: &str| {
        if !matches!(value, Value::String(_) | Value::Null) {
            *value = Value::String(value.to_string());
            unreadable.add(pointer, Why::FormAsText);
        }
    };
    for name in ["reason", "conversationSummary"] {
        if let Some(value) = members.get_mut(name) {
            as_text(value, &format!("/{name}"));
        }
    }
    match members.get_mut("error") {
        Some(Value::Object(error)) => {
            for name in ["code", "message"] {
                if let Some(value) = error.get_mut(name) {
                    as_text(value, &format!("/error/{name}"));
                }
            }
        }
        Some(value) => as_text(value, "/error"),
        None => {}
    }
    for name in ["reason", "error"] {
        if members.get(name).and_then(Value::as_str) == Some("") {
            members.remove(name);
        }
    }
    if matches!(verdict, ReplyVerdict::Complete | ReplyVerdict::Fail) {
        for name in ["iterations", "costTracking"] {
            if cannot_be_counted(members, name) {
                members.remove(name);
                unreadable.add(&format!("/{name}"), Why::Form);
            }
        }
    }
}

fn cannot_be_counted(members: &Map<String, Value>, name: &str) -> bool {
    match name {
        "iterations" => members
            .get(name)
            .is_some_and(|rounds| !rounds.is_null() && whole_number(rounds).is_none()),
        _ => spent(&VerdictKind::Complete, members).is_err(),
    }
}
