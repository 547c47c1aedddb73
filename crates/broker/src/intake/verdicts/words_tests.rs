//! Members beside a verdict, row by row.

use serde_json::{Map, Value, json};

use super::fitted::fit;
use super::words::{Stated, interval, kind_of, repeated, spent, uncounted};
use crate::ledger::commands::VerdictKind;
use crate::reader::tests::handoff;
use handoffd_domain::funds::Spending;
use handoffd_domain::handoff::{HANDED_ON, Handoff, HandoffStatus};
use handoffd_domain::lenient::UnreadableParts;
use handoffd_domain::money::Usd;
use handoffd_domain::ruling::Ruling;
use handoffd_gate::reply::ReplyVerdict;

/// The rounds that a handoff allows that states no number.
const ROUNDS: u64 = 15;

fn members(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn read(verdict: ReplyVerdict, body: &Value, handoff: &Handoff) -> Result<Stated, String> {
    let stated = Stated::read(verdict, &mut members(body), handoff, ROUNDS);
    stated.map_err(|failure| format!("{}: {}", failure.pointer, failure.message))
}

fn ended(status: HandoffStatus, reason: Option<&str>) -> Handoff {
    Handoff { status, reason: reason.map(str::to_owned), ..handoff() }
}

#[test]
fn a_verdict_takes_its_reason_from_its_members() {
    let failed = |reason: &str| VerdictKind::Fail(reason.to_owned());
    let rejected = |reason: &str| VerdictKind::Reject(reason.to_owned());
    let rows = [
        (ReplyVerdict::Accept, json!({ "reason": 1 }), VerdictKind::Accept),
        (ReplyVerdict::Heartbeat, json!({}), VerdictKind::Heartbeat),
        (ReplyVerdict::Complete, json!({ "result": 1 }), VerdictKind::Complete),
        (ReplyVerdict::Reject, json!({}), rejected("REJECTED")),
        (ReplyVerdict::Reject, json!({ "reason": null }), rejected("REJECTED")),
        (ReplyVerdict::Reject, json!({ "reason": "NO_CLAUSE" }), rejected("NO_CLAUSE")),
        (ReplyVerdict::Fail, json!({}), failed("FAILED")),
        (ReplyVerdict::Fail, json!({ "error": null }), failed("FAILED")),
        (ReplyVerdict::Fail, json!({ "error": "no disk" }), failed("no disk")),
        (ReplyVerdict::Fail, json!({ "error": {} }), failed("FAILED")),
        (ReplyVerdict::Fail, json!({ "error": { "code": "IO", "message": "m" } }), failed("IO")),
        (ReplyVerdict::Fail, json!({ "error": { "code": "", "message": "m" } }), failed("m")),
        (ReplyVerdict::Fail, json!({ "error": { "code": null, "message": "m" } }), failed("m")),
    ];
    for (verdict, body, kind) in rows {
        assert_eq!(kind_of(verdict, &members(&body)), Ok(kind), "{body}");
    }
}

#[test]
fn a_member_of_another_form_is_refused_by_its_pointer() {
    let rows = [
        (ReplyVerdict::Reject, json!({ "reason": "" }), "/reason: must be a non-empty string"),
        (ReplyVerdict::Reject, json!({ "reason": 7 }), "/reason: must be a non-empty string"),
        (
            ReplyVerdict::Fail,
            json!({ "error": 7 }),
            "/error: must be a non-empty string or an object",
        ),
        (
            ReplyVerdict::Fail,
            json!({ "error": { "code": 7 } }),
            "/error: its code and its message must be strings",
        ),
        (
            ReplyVerdict::Accept,
            json!({ "heartbeatIntervalMs": 0 }),
            "/heartbeatIntervalMs: must be whole milliseconds from 1 to 86400000",
        ),
        (
            ReplyVerdict::Heartbeat,
            json!({ "heartbeatIntervalMs": 86_400_001 }),
            "/heartbeatIntervalMs: must be whole milliseconds from 1 to 86400000",
        ),
        (
            ReplyVerdict::Complete,
            json!({ "iterations": -1 }),
            "/iterations: must be the rounds that it took: a whole number from 0",
        ),
        (
            ReplyVerdict::Complete,
            json!({ "conversationSummary": {} }),
            "/conversationSummary: must be a text",
        ),
        (ReplyVerdict::Complete, json!({ "costTracking": 1 }), "/costTracking: must be an object"),
        (
            ReplyVerdict::Fail,
            json!({ "costTracking": { "costSpentSoFarUSD": 1, "tokenSpent": { "cached": 1 } } }),
            "/costTracking/tokenSpent/cached: is not counted: prompt and completion are",
        ),
        (
            ReplyVerdict::Fail,
            json!({ "costTracking": { "costSpentSoFarUSD": 1, "tokenSpent": { "prompt": 1.5 } } }),
            "/costTracking/tokenSpent/prompt: must be a whole number from 0",
        ),
    ];
    for (verdict, body, why) in rows {
        assert_eq!(read(verdict, &body, &handoff()), Err(why.to_owned()), "{body}");
    }
}

#[test]
fn an_interval_counts_with_a_verdict_that_holds_the_lease() {
    let body = json!({ "heartbeatIntervalMs": 5_000 });
    for (verdict, interval_ms) in [
        (ReplyVerdict::Accept, Some(5_000)),
        (ReplyVerdict::Heartbeat, Some(5_000)),
        (ReplyVerdict::Complete, None),
        (ReplyVerdict::Fail, None),
    ] {
        let stated = read(verdict, &body, &handoff()).unwrap();
        assert_eq!(stated.interval_ms, interval_ms, "{verdict:?}");
    }
    let mut stated = members(&body);
    Stated::read(ReplyVerdict::Accept, &mut stated, &handoff(), 15).unwrap();
    assert!(stated.is_empty(), "no record keeps the interval");
    assert_eq!(interval(None), Ok(None));
}

#[test]
fn an_amount_counts_at_the_end_with_the_tokens_beside_it() {
    let spending = |prompt, completion| Spending { usd: Usd::from_f64(0.5), prompt, completion };
    let whole = json!({ "costSpentSoFarUSD": 0.5, "tokenSpent": { "prompt": 3, "completion": 4 } });
    let rows = [
        (VerdictKind::Complete, whole.clone(), Some(spending(3, 4))),
        (VerdictKind::Fail("F".to_owned()), whole.clone(), Some(spending(3, 4))),
        (VerdictKind::Accept, whole.clone(), None),
        (VerdictKind::Reject("R".to_owned()), whole, None),
        (VerdictKind::Complete, json!({ "costSpentSoFarUSD": 0.5 }), Some(spending(0, 0))),
        (VerdictKind::Complete, json!({ "tokenSpent": { "prompt": "many" } }), None),
        (VerdictKind::Complete, json!(null), None),
    ];
    for (kind, tracking, counted) in rows {
        let body = members(&json!({ "costTracking": tracking }));
        assert_eq!(spent(&kind, &body), Ok(counted), "{kind:?} {tracking}");
    }
    for usd in [json!(-0.1), json!(1e10), json!("1")] {
        let body = members(&json!({ "costTracking": { "costSpentSoFarUSD": usd } }));
        let failure = spent(&VerdictKind::Complete, &body).unwrap_err();
        assert_eq!(failure.pointer, "/costTracking/costSpentSoFarUSD", "{usd}");
    }
}

#[test]
fn costs_that_do_not_count_are_warned_of() {
    let tracking = json!({ "costSpentSoFarUSD": 1, "tokenSpent": {} });
    let body = members(&json!({ "costTracking": tracking }));
    let warnings = uncounted(&body, None);
    let pointers: Vec<&str> = warnings.iter().map(|warning| warning.pointer.as_str()).collect();
    assert_eq!(pointers, ["/costTracking/costSpentSoFarUSD", "/costTracking/tokenSpent"]);
    let counted = Spending { usd: Usd(1), prompt: 0, completion: 0 };
    assert_eq!(uncounted(&body, Some(&counted)), []);
    assert_eq!(uncounted(&Map::new(), None), []);
}

#[test]
fn a_result_is_held_to_the_rounds_of_its_handoff_until_it_has_ended() {
    let ruling = Ruling { max_iterations: Some(3), ..Ruling::default() };
    let narrow = Handoff { ruling: Some(Box::new(ruling)), ..handoff() };
    let after = |status, reason| Handoff { ruling: narrow.ruling.clone(), ..ended(status, reason) };
    let rows = [
        (handoff(), ROUNDS, true),
        (handoff(), ROUNDS + 1, false),
        (narrow.clone(), 3, true),
        (narrow.clone(), 4, false),
        (after(HandoffStatus::Completed, None), 4, true),
        (after(HandoffStatus::Completed, Some(HANDED_ON)), 4, false),
    ];
    for (handoff, rounds, fits) in rows {
        let body = json!({ "iterations": rounds });
        let stated = read(ReplyVerdict::Complete, &body, &handoff);
        assert_eq!(stated.is_ok(), fits, "{rounds} of {:?}", handoff.status);
    }
}

#[test]
fn a_verdict_is_repeated_once_the_handoff_has_come_to_it() {
    let rows = [
        (VerdictKind::Accept, ended(HandoffStatus::Accepted, None), Some("ACCEPTED")),
        (VerdictKind::Accept, ended(HandoffStatus::Pending, None), None),
        (VerdictKind::Complete, ended(HandoffStatus::Completed, None), Some("COMPLETED")),
        (VerdictKind::Complete, ended(HandoffStatus::Completed, Some(HANDED_ON)), None),
        (VerdictKind::Heartbeat, ended(HandoffStatus::Accepted, None), None),
        (
            VerdictKind::Fail("IO".to_owned()),
            ended(HandoffStatus::Failed, Some("IO")),
            Some("FAILED"),
        ),
    ];
    for (kind, handoff, record) in rows {
        assert_eq!(repeated(&kind, &handoff), record, "{kind:?} {:?}", handoff.status);
    }
}

#[test]
fn a_reply_is_made_to_fit_and_each_change_is_noted() {
    let rows = [
        (ReplyVerdict::Reject, json!({ "reason": ["a"] }), json!({ "reason": "[\"a\"]" }), 1),
        (ReplyVerdict::Reject, json!({ "reason": "" }), json!({}), 0),
        (ReplyVerdict::Fail, json!({ "error": 7 }), json!({ "error": "7" }), 1),
        (
            ReplyVerdict::Fail,
            json!({ "error": { "code": 7, "message": null, "more": [] } }),
            json!({ "error": { "code": "7", "message": null, "more": [] } }),
            1,
        ),
        (
            ReplyVerdict::Complete,
            json!({ "iterations": "two", "result": 1 }),
            json!({ "result": 1 }),
            1,
        ),
        (ReplyVerdict::Complete, json!({ "costTracking": 1 }), json!({}), 1),
        (ReplyVerdict::Accept, json!({ "iterations": "two" }), json!({ "iterations": "two" }), 0),
    ];
    for (verdict, before, after, changes) in rows {
        let (mut body, mut unreadable) = (members(&before), UnreadableParts::default());
        fit(verdict, &mut body, &mut unreadable);
        assert_eq!((Value::Object(body.clone()), unreadable.count), (after, changes), "{before}");
        assert!(Stated::read(verdict, &mut body, &handoff(), ROUNDS).is_ok(), "{before}");
    }
}
