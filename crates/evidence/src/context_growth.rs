//! How a task's context grows, hop by hop, from its records.

use std::collections::HashMap;

use serde_json::{Value, json};

/// The contexts of one task so far. Records are taken in log order.
#[derive(Debug, Default)]
pub struct ContextGrowth {
    hops: Vec<Option<Value>>,
    by_id: HashMap<String, HopContext>,
}

/// The size of a handoff's context.
#[derive(Debug)]
struct HopContext {
    place: usize,
    tokens: Option<i64>,
    /// The tokens of the handoff before it.
    before: Option<i64>,
}

impl ContextGrowth {
    /// Takes a record: that of a handoff, or that of the end of its stream, whose context is then the handoff's.
    pub fn take(&mut self, body: &Value) {
        let text = |name| body.get(name).and_then(Value::as_str);
        let (Some(kind), Some(id)) = (text("kind"), text("handoffId")) else { return };
        let context = body.get("context");
        let tokens = context.and_then(|context| context.get("tokens")?.as_i64());
        match kind {
            "HANDOFF" => {
                let parent = text("parentHandoffId").and_then(|id| self.by_id.get(id));
                let before = parent.and_then(|parent| parent.tokens);
                let place = self.hops.len();
                self.by_id.insert(id.to_owned(), HopContext { place, tokens, before });
                self.hops.push(grown(context, tokens, before));
            }
            "STREAM_CLOSED" if tokens.is_some() => {
                let Some(hop) = self.by_id.get_mut(id) else { return };
                hop.tokens = tokens;
                self.hops[hop.place] = grown(context, tokens, hop.before);
            }
            _ => {}
        }
    }

    /// The context of each handoff in log order, with `growth`: its tokens over those of the handoff before it; `None` where
    /// the record has none, as those of older versions.
    #[must_use]
    pub fn hops(&self) -> &[Option<Value>] {
        &self.hops
    }
}

fn grown(context: Option<&Value>, tokens: Option<i64>, before: Option<i64>) -> Option<Value> {
    let (mut context, tokens) = (context?.clone(), tokens?);
    if let Some(before) = before {
        context.as_object_mut()?.insert("growth".to_owned(), json!(tokens - before));
    }
    Some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: &str, id: &str, parent: Option<&str>, tokens: i64) -> Value {
        json!({ "kind": kind, "handoffId": id, "parentHandoffId": parent, "context": { "tokens": tokens, "action": "none" } })
    }

    fn told(records: &[Value]) -> Vec<Option<(i64, Option<i64>)>> {
        let mut growth = ContextGrowth::default();
        for record in records {
            growth.take(record);
        }
        let figures = |context: &Value| {
            (context["tokens"].as_i64().unwrap(), context.get("growth").and_then(Value::as_i64))
        };
        growth.hops().iter().map(|hop| hop.as_ref().map(figures)).collect()
    }

    #[test]
    fn growth_is_told_from_the_second_hop_on() {
        let hop = |id: &str, parent: Option<&str>, tokens| record("HANDOFF", id, parent, tokens);
        let bare = json!({ "kind": "HANDOFF", "handoffId": "4" });
        let accepted = record("ACCEPTED", "3", None, 9);
        assert_eq!(
            told(&[
                hop("1", None, 400),
                hop("2", Some("1"), 900),
                hop("3", Some("2"), 300),
                bare,
                accepted
            ]),
            [Some((400, None)), Some((900, Some(500))), Some((300, Some(-600))), None]
        );
    }

    #[test]
    fn a_stream_has_the_size_of_its_assembled_message() {
        let hop = |id: &str, parent: Option<&str>, tokens| record("HANDOFF", id, parent, tokens);
        let closed = record("STREAM_CLOSED", "2", Some("1"), 1000);
        assert_eq!(
            told(&[
                hop("1", None, 400),
                hop("2", Some("1"), 100),
                closed,
                hop("3", Some("2"), 1500)
            ]),
            [Some((400, None)), Some((1000, Some(600))), Some((1500, Some(500)))]
        );
    }
}
