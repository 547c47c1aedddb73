//! A handoff as doors read it: its own page, and that of its replacement. Each door says in its own words what it is.

use serde_json::Value;

use crate::http::views::HandoffView;
use handoffd_domain::handoff::HandoffStatus;

/// A handoff and its replacement.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// The handoff's own page.
    pub(super) view: Box<HandoffView>,
    /// The page of its last successor, where the caller may read it.
    pub(super) successor: Option<Box<HandoffView>>,
}

impl Standing {
    /// A handoff without a replacement.
    pub(super) fn alone(view: impl Into<Box<HandoffView>>) -> Self {
        Self { view: view.into(), successor: None }
    }

    /// The handoff's id, also after a replacement.
    pub(super) fn id(&self) -> &str {
        &self.view.handoff_id
    }

    /// The page that counts.
    pub(super) fn last(&self) -> &HandoffView {
        self.successor.as_deref().unwrap_or(&self.view)
    }

    /// The status that counts; none of a group whose status no handoff has.
    pub(super) fn status(&self) -> Option<HandoffStatus> {
        HandoffStatus::parse(&self.last().status)
    }

    /// The handoff's message; null where the page has none.
    pub(super) fn message(&self) -> &Value {
        message_of(&self.view)
    }
}

/// The message on a handoff's page; null where the page has none.
pub(super) fn message_of(view: &HandoffView) -> &Value {
    view.message.as_ref().unwrap_or(&Value::Null)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// The members that a page has beside those that a test names. A name with a question mark is of a member that is
    /// filled where it is there.
    fn needed() -> Value {
        let party = json!({ "agentId": "", "agentVersion": "" });
        let asked = json!({ "number": 0, "state": "", "askedAt": "", "answerBy": "" });
        json!({
            "handoffId": "", "taskId": "", "status": "", "fromAgent": party, "toAgent": party, "deliveryMode": "", "attempts": 0,
            "fencingToken": 0, "traceparent": "", "tracestate": "", "createdAt": "", "links": { "self": "", "trace": "" },
            "costTracking": { "costSpentSoFarUSD": 0, "costBudgetRemainingUSD": 0, "tokenSpent": { "prompt": 0, "completion": 0 } },
            "?asked": asked, "?questions": asked, "?warnings": { "code": "", "pointer": "", "message": "" },
            "?group": {
                "groupId": "", "of": 0, "join": "", "onReject": "",
                "?branches": { "index": 0, "handoffId": "", "agentId": "", "status": "", "acknowledged": false, "self": "" },
            },
        })
    }

    fn fill(value: &mut Value, needed: &Value) {
        match (value, needed) {
            (Value::Array(items), _) => items.iter_mut().for_each(|item| fill(item, needed)),
            (Value::Object(members), Value::Object(needed)) => {
                for (name, needed) in needed {
                    match name.strip_prefix('?') {
                        Some(name) => {
                            members.get_mut(name).into_iter().for_each(|it| fill(it, needed));
                        }
                        None => fill(members.entry(name).or_insert_with(|| needed.clone()), needed),
                    }
                }
            }
            _ => {}
        }
    }

    /// A page with these members.
    pub(in super::super) fn page(mut members: Value) -> Box<HandoffView> {
        fill(&mut members, &needed());
        Box::new(serde_json::from_value(members).unwrap())
    }
}
