//! A handoff as a `HandoffResponse`, and the places of a refusal in this door's documents (docs/doors/sw4rm.md). Pure.

use serde_json::{Map, Value, json};

use super::super::state::Standing;
use super::request::Addressee;
use crate::http::problem::{ProblemDetails, WarningView};
use crate::http::views::{HandoffView, SubmittedView};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::warning::Warning;
use handoffd_gate::sw4rm::{ALL_UNAVAILABLE, Status};

/// Whether a page is of an agent's own work: the agent is its receiver.
fn receives(page: &HandoffView, agent: Option<&str>) -> bool {
    agent == Some(page.to_agent.agent_id.as_str())
}

impl Standing {
    /// The page that counts for an agent: a receiver's own handoff, and for others its last replacement.
    fn page_for(&self, agent: Option<&str>) -> &HandoffView {
        let own = receives(&self.view, agent);
        self.successor.as_ref().filter(|_| !own).unwrap_or(&self.view)
    }

    /// Whether none of the preferred agents took the handoff. A handoff that an agent accepted, or that its sender or the
    /// broker ended, has a reason of its own.
    fn is_unavailable(&self, page: &HandoffView) -> bool {
        let message = self.message();
        let preferred = message.get("preferredAgents").is_some()
            || message.pointer("/extensions/sw4rm/preferred").is_some();
        let ended = HandoffStatus::parse(&page.status);
        let untaken = matches!(
            ended,
            Some(HandoffStatus::Rejected | HandoffStatus::Expired | HandoffStatus::Failed)
        );
        preferred && untaken && [&self.view, page].iter().all(|one| one.accepted_at.is_none())
    }

    /// The response for an agent.
    pub(super) fn response(&self, agent: Option<&str>) -> Value {
        let page = self.page_for(agent);
        let status = HandoffStatus::parse(&page.status).map_or(Status::Rejected, Status::of);
        let own = receives(page, agent);
        let mut metadata = facts(page, status, own);
        let mut reason = page.reason.as_deref().filter(|_| !status.is_accepted());
        if self.is_unavailable(page) && !own {
            if let Some(last) = reason.filter(|last| *last != ALL_UNAVAILABLE) {
                metadata.insert("last_rejection".to_owned(), last.into());
            }
            reason = Some(ALL_UNAVAILABLE);
        }
        if self.successor.is_some() && !own {
            metadata.insert("successor_id".to_owned(), page.handoff_id.as_str().into());
        }
        json!({
            "accepted": status.is_accepted(),
            "handoff_id": self.id(),
            "rejection_reason": reason,
            "status": status.as_str(),
            "metadata": metadata,
        })
    }
}

type Fact = (&'static str, fn(&HandoffView) -> Value);

/// Members of a response's metadata, and the facts of a page that they tell; null for none.
const FACTS: [Fact; 13] = [
    ("handoff_status", |page| json!(page.status)),
    ("task_id", |page| json!(page.task_id)),
    ("from_agent", |page| json!(page.from_agent.agent_id)),
    ("to_agent", |page| json!(page.to_agent.agent_id)),
    ("created_at", |page| json!(page.created_at)),
    ("accepted_at", |page| json!(page.accepted_at)),
    ("details", |page| json!(said(page, "details"))),
    ("result", |page| json!(page.result)),
    ("iterations", |page| json!(page.iterations)),
    ("conversation_summary", |page| json!(page.conversation_summary)),
    ("question", |page| json!(page.asked)),
    ("receipt", |page| json!(page.receipt)),
    ("warnings", |page| json!(Some(&page.warnings).filter(|list| !list.is_empty()))),
];
/// The same for the receiver alone.
const RECEIVERS: [Fact; 2] = [
    ("fencing_token", |page| json!(page.fencing_token)),
    ("deadline_at", |page| json!(page.deadline_at)),
];
/// The other members that the broker says.
const OTHERS: [&str; 8] = [
    "rejected_at",
    "completed_at",
    "expired_at",
    "last_rejection",
    "successor_id",
    "context",
    "code",
    "failures",
];

/// Whether the broker alone says a member of a response's metadata.
fn is_brokers(name: &str) -> bool {
    OTHERS.contains(&name) || FACTS.iter().chain(&RECEIVERS).any(|(own, _)| *own == name)
}

/// A member of the receiver's verdict.
fn said<'a>(page: &'a HandoffView, name: &str) -> Option<&'a Value> {
    page.verdict.as_ref()?.get(name)
}

/// The other facts of a page: the receiver's own metadata, times, and the broker's facts. The receiver's words never
/// appear under a name of the broker's.
fn facts(page: &HandoffView, status: Status, own: bool) -> Map<String, Value> {
    let mut metadata = match said(page, "metadata") {
        Some(Value::Object(said)) => said.clone(),
        _ => Map::new(),
    };
    metadata.retain(|name, _| !is_brokers(name));
    let ended = match status {
        Status::Completed => "completed_at",
        Status::Expired => "expired_at",
        _ => "rejected_at",
    };
    let ended: Fact = (ended, |page| json!(page.ended_at));
    let known = FACTS.into_iter().chain([ended]).map(|(name, of)| (name.to_owned(), of(page)));
    metadata.extend(known.filter(|(_, value)| !value.is_null()));
    if own {
        metadata.extend(RECEIVERS.map(|(name, of)| (name.to_owned(), of(page))));
    }
    metadata
}

/// The response to a fresh submission.
pub(super) fn submitted(view: &SubmittedView, warnings: &[Warning]) -> Value {
    let status = HandoffStatus::parse(&view.status).map_or(Status::Pending, Status::of);
    let mut metadata = Map::new();
    metadata.insert("handoff_status".to_owned(), view.status.as_str().into());
    metadata.insert("task_id".to_owned(), view.task_id.as_str().into());
    if let Some(receipt) = &view.receipt {
        metadata.insert("receipt".to_owned(), json!(receipt));
    }
    if let Some(context) = &view.context {
        metadata.insert("context".to_owned(), json!(context));
    }
    let mut response = json!({
        "accepted": status.is_accepted(),
        "handoff_id": view.handoff_id,
        "rejection_reason": null,
        "status": status.as_str(),
        "metadata": metadata,
    });
    warn(&mut response, warnings);
    warn_of(&mut response, &view.warnings);
    response
}

/// Adds the warnings of the API's answer to the submission.
pub(super) fn warn_of(response: &mut Value, warnings: &[WarningView]) {
    add_warnings(response, warnings.iter().map(|one| json!(one)).collect());
}

/// The response to a request that no agent can take.
pub(super) fn unrouted(
    handoff_id: &str,
    reason: &str,
    problem: &ProblemDetails,
    warnings: &[Warning],
) -> Value {
    let mut response = json!({
        "accepted": false,
        "handoff_id": handoff_id,
        "rejection_reason": reason,
        "status": Status::Rejected.as_str(),
        "metadata": { "code": problem.code, "failures": problem.failures },
    });
    warn(&mut response, warnings);
    response
}

/// Adds the door's own warnings.
pub(super) fn warn(response: &mut Value, warnings: &[Warning]) {
    warn_of(response, &warnings.iter().map(WarningView::from).collect::<Vec<_>>());
}

fn add_warnings(response: &mut Value, more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    let list = &mut response["metadata"]["warnings"];
    match list {
        Value::Array(told) => told.extend(more),
        other => *other = more.into(),
    }
}

/// Members of a message, and where a request has them.
const PLACES: [(&str, &str); 12] = [
    ("/fromAgent", "/from_agent"),
    ("/taskDescription", "/reason"),
    ("/taskSummary", "/reason"),
    ("/conversationHistoryVerbatim", "/context_snapshot/conversation_history"),
    ("/toolState", "/context_snapshot/tool_state"),
    ("/currentState", "/context_snapshot/metadata"),
    ("/capabilitiesRequired", "/capabilities_required"),
    ("/preferredAgents", "/preferred_agents"),
    ("/extensions/sw4rm/members", ""),
    ("/extensions/sw4rm/context", "/context_snapshot"),
    ("/fencingToken", "/fencing_token"),
    ("/conversationSummary", "/conversation_summary"),
];

/// A place in a message as the place in the request that became it.
fn place(pointer: &str, addressee: Option<&Addressee>) -> String {
    if let Some(rest) = pointer.strip_prefix("/toAgent") {
        return match addressee {
            Some(Addressee::Preferred(_)) => "/preferred_agents/0".to_owned(),
            Some(Addressee::Capability) => "/capabilities_required".to_owned(),
            Some(Addressee::Agent(_)) => "/to_agent".to_owned(),
            None => format!("/toAgent{rest}"),
        };
    }
    if let Some(rest) = pointer.strip_prefix("/preferredAgents/")
        && matches!(addressee, Some(Addressee::Preferred(_)))
        && let Ok(number) = rest.parse::<usize>()
    {
        return format!("/preferred_agents/{}", number + 1);
    }
    let found = PLACES.iter().find_map(|(member, own)| {
        let rest = pointer.strip_prefix(member)?;
        let whole = rest.is_empty() || rest.starts_with('/');
        // One text is the whole of some members.
        let inner = if matches!(*own, "/from_agent" | "/reason") { "" } else { rest };
        whole.then(|| format!("{own}{inner}"))
    });
    found.unwrap_or_else(|| pointer.to_owned())
}

/// Names the places of a refusal as this door's documents have them.
pub(super) fn relocate(problem: &mut ProblemDetails, addressee: Option<&Addressee>) {
    for one in &mut problem.failures {
        one.pointer = place(&one.pointer, addressee);
    }
}

/// The same for the places of warnings.
pub(super) fn relocate_warnings(warnings: &mut [WarningView], addressee: Option<&Addressee>) {
    for one in warnings {
        one.pointer = place(&one.pointer, addressee);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::state::tests::page;

    fn standing(view: Value, successor: Option<Value>) -> Standing {
        Standing { view: page(view), successor: successor.map(page) }
    }

    #[test]
    fn b11_a_page_is_a_response() {
        let view = json!({
            "handoffId": "h", "taskId": "t", "status": "ACCEPTED", "reason": null, "fromAgent": { "agentId": "a" }, "toAgent": { "agentId": "b" },
            "createdAt": "2026-11-24T10:00:00Z", "acceptedAt": "2026-11-24T10:00:01Z", "endedAt": null, "fencingToken": 3,
            "verdict": { "metadata": { "capabilities": ["x"] } },
        });
        let response = standing(view.clone(), None).response(Some("a"));
        assert_eq!(
            (&response["accepted"], &response["status"], &response["rejection_reason"]),
            (&json!(true), &json!("ACCEPTED"), &Value::Null)
        );
        assert_eq!(response["metadata"]["capabilities"], json!(["x"]));
        assert_eq!(response["metadata"]["accepted_at"], "2026-11-24T10:00:01Z");
        assert!(response["metadata"].get("fencing_token").is_none(), "the token is the receiver's");
        assert_eq!(standing(view, None).response(Some("b"))["metadata"]["fencing_token"], 3);
    }

    #[test]
    fn a_receiver_says_nothing_in_the_brokers_name() {
        let names = FACTS.iter().chain(&RECEIVERS).map(|(name, _)| *name).chain(OTHERS);
        let mut said: Map<String, Value> =
            names.map(|name| (name.to_owned(), "forged".into())).collect();
        said.insert("capabilities".to_owned(), json!(["x"]));
        let view = json!({ "handoffId": "h", "status": "COMPLETED", "toAgent": { "agentId": "b" }, "verdict": { "metadata": said } });
        for agent in ["a", "b"] {
            let told = standing(view.clone(), None).response(Some(agent));
            assert!(!told.to_string().contains("forged"), "{told}");
            assert_eq!(told["metadata"]["capabilities"], json!(["x"]));
        }
    }

    #[test]
    fn what_stands_in_its_place_counts_for_the_sender_alone() {
        let view = json!({ "handoffId": "h", "status": "REJECTED", "reason": "Agent busy: BUSY", "toAgent": { "agentId": "b" }, "message": { "preferredAgents": ["c"] } });
        let next = json!({ "handoffId": "i", "status": "ACCEPTED", "toAgent": { "agentId": "c" } });
        let both = standing(view.clone(), Some(next));
        let told = both.response(Some("a"));
        assert_eq!(
            (&told["handoff_id"], &told["status"], &told["metadata"]["successor_id"]),
            (&json!("h"), &json!("ACCEPTED"), &json!("i"))
        );
        let told = both.response(Some("b"));
        assert_eq!(
            (&told["status"], &told["rejection_reason"]),
            (&json!("REJECTED"), &json!("Agent busy: BUSY"))
        );
        let told = standing(view, None).response(Some("a"));
        assert_eq!(
            (&told["rejection_reason"], &told["metadata"]["last_rejection"]),
            (&json!(ALL_UNAVAILABLE), &json!("Agent busy: BUSY"))
        );
    }

    #[test]
    fn the_preferred_agents_are_unavailable_only_where_none_accepted() {
        let reason = |status: &str, accepted: Value| {
            let view = json!({
                "handoffId": "h", "status": status, "reason": "its own", "acceptedAt": accepted, "toAgent": { "agentId": "b" },
                "message": { "preferredAgents": ["c"] },
            });
            standing(view, None).response(Some("a"))["rejection_reason"].clone()
        };
        for status in ["REJECTED", "EXPIRED", "FAILED"] {
            assert_eq!(reason(status, Value::Null), ALL_UNAVAILABLE, "{status}");
        }
        for status in ["CANCELED", "DEAD_LETTERED"] {
            assert_eq!(reason(status, Value::Null), "its own", "{status}");
        }
        for status in ["REJECTED", "EXPIRED", "FAILED", "CANCELED", "DEAD_LETTERED"] {
            assert_eq!(reason(status, json!("2026-11-24T10:00:01Z")), "its own", "{status}");
        }
        // The first accepted and failed; another that stood in for it rejected.
        let view = json!({ "handoffId": "h", "status": "FAILED", "acceptedAt": "x", "message": { "preferredAgents": ["c"] } });
        let next = json!({ "handoffId": "i", "status": "REJECTED", "reason": "its own" });
        let told = standing(view, Some(next)).response(Some("a"));
        assert_eq!(told["rejection_reason"], "its own");
    }

    #[test]
    fn an_expired_handoff_is_no_acceptance() {
        let told = standing(json!({ "handoffId": "h", "status": "EXPIRED", "reason": "VERDICT_TIMEOUT", "endedAt": "x" }), None).response(None);
        assert_eq!(
            (&told["accepted"], &told["status"], &told["metadata"]["expired_at"]),
            (&json!(false), &json!("EXPIRED"), &json!("x"))
        );
    }

    #[test]
    fn places_are_those_of_the_request() {
        let named = Addressee::Agent("b".to_owned());
        let listed = Addressee::Preferred("c".to_owned());
        for (pointer, addressee, expected) in [
            (
                "/conversationHistoryVerbatim/3/content",
                &named,
                "/context_snapshot/conversation_history/3/content",
            ),
            (
                "/toolState/configurations/db",
                &named,
                "/context_snapshot/tool_state/configurations/db",
            ),
            ("/currentState/x", &named, "/context_snapshot/metadata/x"),
            ("/fromAgent/agentId", &named, "/from_agent"),
            ("/taskDescription", &named, "/reason"),
            ("/toAgent/agentId", &named, "/to_agent"),
            ("/toAgent/agentId", &listed, "/preferred_agents/0"),
            ("/preferredAgents/0", &listed, "/preferred_agents/1"),
            ("/preferredAgents/0", &named, "/preferred_agents/0"),
            ("/toAgent/capability", &Addressee::Capability, "/capabilities_required"),
            ("/extensions/sw4rm/members/later/0", &named, "/later/0"),
            ("/extensions/sw4rm/context/plan", &named, "/context_snapshot/plan"),
            ("/metadata/x", &named, "/metadata/x"),
            ("/toolStateless", &named, "/toolStateless"),
            ("", &named, ""),
        ] {
            assert_eq!(place(pointer, Some(addressee)), expected);
        }
    }

    #[test]
    fn warnings_of_both_sides_are_told() {
        let mine =
            [Warning::new(handoffd_domain::warning::WarningCode::WithoutEffect, "/timeout", "x")];
        let view = json!({
            "handoffId": "h", "taskId": "t", "status": "PENDING", "links": { "self": "", "trace": "" },
            "warnings": [{ "code": "", "pointer": "/y", "message": "" }],
        });
        let told = submitted(&serde_json::from_value(view).unwrap(), &mine);
        let pointers: Vec<&Value> = told["metadata"]["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["pointer"])
            .collect();
        assert_eq!(pointers, ["/timeout", "/y"]);
        assert_eq!((&told["accepted"], &told["status"]), (&json!(true), &json!("PENDING")));
    }
}
