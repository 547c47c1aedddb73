//! The rules on a message to many that the schema document cannot express (specification §10.4): from 2.2 on the broker
//! sends to each receiver of the list, so that each has to be one, once.

use serde_json::{Map, Value};

use handoffd_domain::group::{Join, MAX_RECEIVERS};
use handoffd_domain::json::push_segment;

const MEMBERS: [&str; 4] = ["agentId", "agentType", "agentVersion", "capability"];

/// The members of which a receiver has one.
const ADDRESSES: [&str; 3] = ["agentId", "agentType", "capability"];

/// A receiver in the form of `toAgent`.
fn address(entry: &Value) -> Map<String, Value> {
    match entry {
        Value::String(id) => Map::from_iter([("agentId".to_owned(), Value::from(id.as_str()))]),
        entry => entry.as_object().cloned().unwrap_or_default(),
    }
}

/// Pointers and reasons of the parts that do not hold.
pub(super) fn check(message: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |pointer: String, what: String| found.push((pointer, what));
    let Some(list) = message.get("receiverList").and_then(Value::as_array) else {
        for name in ["join", "onReject"] {
            if message.get(name).is_some() {
                add(format!("/{name}"), "Takes effect with `receiverList` only.".to_owned());
            }
        }
        return found;
    };
    if list.is_empty() || list.len() > MAX_RECEIVERS {
        let is = list.len();
        let what = format!("A list has 1 to {MAX_RECEIVERS} receivers; this one has {is}.");
        add("/receiverList".to_owned(), what);
    }
    let mut before: Vec<Map<String, Value>> = Vec::new();
    for (index, entry) in list.iter().take(MAX_RECEIVERS).enumerate() {
        let place = format!("/receiverList/{index}");
        let receiver = address(entry);
        for name in receiver.keys().filter(|name| !MEMBERS.contains(&name.as_str())) {
            let mut pointer = place.clone();
            push_segment(&mut pointer, name);
            add(pointer, format!("Unknown member: a receiver has {}.", MEMBERS.join(", ")));
        }
        if !ADDRESSES.iter().any(|name| receiver.contains_key(*name)) {
            add(place.clone(), format!("A receiver has one of {}.", ADDRESSES.join(", ")));
        }
        if let Some(first) = before.iter().position(|other| *other == receiver) {
            add(place, format!("The same receiver as `/receiverList/{first}`."));
        }
        before.push(receiver);
    }
    let to = message.get("toAgent").map(address).unwrap_or_default();
    if before.first().is_some_and(|first| *first != to) {
        let what = "With a `receiverList`, `toAgent` is the first of its receivers.";
        add("/toAgent".to_owned(), what.to_owned());
    }
    let join = message.get("join").and_then(Value::as_str).map(str::parse::<Join>);
    if let Some(Ok(Join::Quorum(many))) = join
        && usize::try_from(many.get()).is_ok_and(|many| many > list.len())
    {
        add("/join".to_owned(), format!("{many} of {} receivers cannot be needed.", list.len()));
    }
    let preferred = message.get("preferredAgents").and_then(Value::as_array);
    if preferred.is_some_and(|agents| !agents.is_empty()) {
        let what = "A list names its receivers: `preferredAgents` cannot stand in for one of them.";
        add("/preferredAgents".to_owned(), what.to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointers(message: &Value) -> Vec<String> {
        check(message).into_iter().map(|(pointer, _)| pointer).collect()
    }

    #[test]
    fn a114_each_receiver_is_one_and_stands_once() {
        let to = json!({ "agentId": "b" });
        let with = |list: Value| json!({ "toAgent": to, "receiverList": list });
        assert_eq!(
            pointers(&with(json!(["b", { "agentType": "c", "agentVersion": "^1" }]))),
            [""; 0]
        );
        assert_eq!(pointers(&with(json!([]))), ["/receiverList"]);
        let many: Vec<Value> = (0..101)
            .map(|n| json!(if n == 0 { "b".to_owned() } else { format!("a{n}") }))
            .collect();
        assert_eq!(pointers(&with(json!(many))), ["/receiverList"]);
        assert_eq!(pointers(&with(json!(many[..100]))), [""; 0]);
        assert_eq!(
            pointers(&with(json!(["b", { "agentId": "c", "role/x": 1 }]))),
            ["/receiverList/1/role~1x"]
        );
        assert_eq!(pointers(&with(json!(["b", { "agentVersion": "^1" }]))), ["/receiverList/1"]);
        assert_eq!(pointers(&with(json!(["b", "c", { "agentId": "b" }]))), ["/receiverList/2"]);
        assert_eq!(pointers(&with(json!(["c", "b"]))), ["/toAgent"]);
    }

    #[test]
    fn a114_what_a_group_asks_for_can_be() {
        let with = |name: &str, value: Value| {
            let mut message = json!({ "toAgent": { "agentId": "b" }, "receiverList": ["b", "c"] });
            message[name] = value;
            pointers(&message)
        };
        assert_eq!(with("join", json!("quorum:2")), [""; 0]);
        assert_eq!(with("join", json!("quorum:3")), ["/join"]);
        assert_eq!(with("preferredAgents", json!([])), [""; 0]);
        assert_eq!(with("preferredAgents", json!(["d"])), ["/preferredAgents"]);
        for name in ["join", "onReject"] {
            assert_eq!(pointers(&json!({ name: "all" })), [format!("/{name}")]);
        }
    }
}
