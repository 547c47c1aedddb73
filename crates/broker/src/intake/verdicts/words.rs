//! The meaning of the members beside a verdict: pure, from a receiver's words to the ledger's terms.

use serde_json::{Map, Value};

use crate::intake::refused::misfit;
use crate::ledger::commands::VerdictKind;
use handoffd_domain::failure::{Code, Failure, Stage, escaped};
use handoffd_domain::funds::Spending;
use handoffd_domain::handoff::{HANDED_ON, Handoff, HandoffStatus};
use handoffd_domain::lease::LONGEST_INTERVAL_MS;
use handoffd_domain::message::whole_number;
use handoffd_domain::money::Usd;
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_gate::reply::ReplyVerdict;

/// The largest amount that a receiver may state, as in a message.
const MOST_USD: f64 = 1e9;

/// The member by which a holder states how often it will be heard of.
pub(super) const INTERVAL: &str = "heartbeatIntervalMs";

/// The counts of `tokenSpent`.
const TOKENS: [&str; 2] = ["prompt", "completion"];

/// A verdict in the ledger's terms, from words that fit their members.
#[derive(Debug, PartialEq)]
pub(super) struct Stated {
    pub(super) kind: VerdictKind,
    /// How often the holder will be heard of, where it states that.
    pub(super) interval_ms: Option<u64>,
    /// The amount spent so far, where the receiver ends with one.
    pub(super) spent: Option<Spending>,
}

impl Stated {
    /// Reads a verdict on a handoff. The interval leaves the members: no record keeps it.
    ///
    /// # Errors
    /// The first member that does not fit.
    pub(super) fn read(
        verdict: ReplyVerdict,
        members: &mut Map<String, Value>,
        handoff: &Handoff,
        max_iterations: u64,
    ) -> Result<Self, Failure> {
        let kind = kind_of(verdict, members)?;
        let lives = matches!(kind, VerdictKind::Accept | VerdictKind::Heartbeat);
        let interval_ms = if lives { interval(members.remove(INTERVAL))? } else { None };
        let spent = spent(&kind, members)?;
        if kind == VerdictKind::Complete {
            hold_iterations(handoff, members, max_iterations)?;
            let summary = members.get("conversationSummary");
            if summary.is_some_and(|summary| !summary.is_string() && !summary.is_null()) {
                return Err(misfit("/conversationSummary", "must be a text"));
            }
        }
        Ok(Self { kind, interval_ms, spent })
    }
}

/// How often the holder of a lease will be heard of, in milliseconds.
///
/// # Errors
/// The member is not a number of milliseconds within a day.
pub(in crate::intake) fn interval(stated: Option<Value>) -> Result<Option<u64>, Failure> {
    let Some(value) = stated.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let interval = whole_number(&value).filter(|ms| (1..=LONGEST_INTERVAL_MS).contains(ms));
    interval.map(Some).ok_or_else(|| {
        let why = format!("must be whole milliseconds from 1 to {LONGEST_INTERVAL_MS}");
        misfit(&format!("/{INTERVAL}"), why)
    })
}

fn text(members: &Map<String, Value>, name: &str) -> Result<Option<String>, Failure> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(misfit(&format!("/{name}"), "must be a non-empty string")),
    }
}

/// The amount that a receiver has spent, where it is done or gave up. Tokens count beside an amount alone; any other member
/// of `costTracking` is kept with the record and not looked at.
///
/// # Errors
/// The amount or a count does not fit.
pub(super) fn spent(
    kind: &VerdictKind,
    members: &Map<String, Value>,
) -> Result<Option<Spending>, Failure> {
    if !matches!(kind, VerdictKind::Complete | VerdictKind::Fail(_)) {
        return Ok(None);
    }
    let tracking = match members.get("costTracking") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(tracking)) => tracking,
        Some(_) => return Err(misfit("/costTracking", "must be an object")),
    };
    let Some(usd) = tracking.get("costSpentSoFarUSD") else { return Ok(None) };
    let usd = usd.as_f64().filter(|usd| (0.0..=MOST_USD).contains(usd)).ok_or_else(|| {
        misfit(
            "/costTracking/costSpentSoFarUSD",
            "must be the amount that is spent so far, from 0 to 1 000 000 000 US dollars",
        )
    })?;
    let [prompt, completion] = tokens(tracking.get("tokenSpent"))?;
    Ok(Some(Spending { usd: Usd::from_f64(usd), prompt, completion }))
}

/// The counts of `tokenSpent`, in the order of [`TOKENS`].
fn tokens(counts: Option<&Value>) -> Result<[u64; 2], Failure> {
    let counts = match counts {
        None | Some(Value::Null) => return Ok([0; 2]),
        Some(Value::Object(counts)) => counts,
        Some(_) => return Err(misfit("/costTracking/tokenSpent", "must be an object")),
    };
    if let Some(name) = counts.keys().find(|name| !TOKENS.contains(&name.as_str())) {
        let pointer = format!("/costTracking/tokenSpent/{}", escaped(name));
        return Err(misfit(&pointer, "is not counted: prompt and completion are"));
    }
    let count = |name: &str| match counts.get(name) {
        None => Ok(0),
        Some(count) => count.as_u64().ok_or_else(|| {
            misfit(&format!("/costTracking/tokenSpent/{name}"), "must be a whole number from 0")
        }),
    };
    let [prompt, completion] = TOKENS.map(count);
    Ok([prompt?, completion?])
}

/// Holds a result to the rounds that its handoff allows (`maxIterations`, seed 004). The verdict again, of a handoff that
/// has ended, is not measured again.
fn hold_iterations(
    handoff: &Handoff,
    members: &Map<String, Value>,
    max_iterations: u64,
) -> Result<(), Failure> {
    let taken = match members.get("iterations") {
        None | Some(Value::Null) => return Ok(()),
        Some(value) => whole_number(value).ok_or_else(|| {
            misfit("/iterations", "must be the rounds that it took: a whole number from 0")
        })?,
    };
    let stated = handoff.ruling.as_ref().and_then(|ruling| ruling.max_iterations);
    let most = stated.unwrap_or(max_iterations);
    let ended = handoff.status.is_final() && handoff.reason.as_deref() != Some(HANDED_ON);
    if taken <= most || ended {
        return Ok(());
    }
    let why = format!(
        "the handoff allows {most} iterations (maxIterations), and the receiver took {taken}: fail the handoff instead"
    );
    Err(Failure::new(Stage::State, Code::MaxIterations, "/iterations", why))
}

/// A receiver's verdict as the ledger takes it.
///
/// # Errors
/// The reason or the error is of another form.
pub(super) fn kind_of(
    verdict: ReplyVerdict,
    members: &Map<String, Value>,
) -> Result<VerdictKind, Failure> {
    Ok(match verdict {
        ReplyVerdict::Accept => VerdictKind::Accept,
        ReplyVerdict::Reject => {
            VerdictKind::Reject(text(members, "reason")?.unwrap_or_else(|| "REJECTED".to_owned()))
        }
        ReplyVerdict::Heartbeat => VerdictKind::Heartbeat,
        ReplyVerdict::Complete => VerdictKind::Complete,
        ReplyVerdict::Fail => VerdictKind::Fail(error_of(members)?),
    })
}

/// Why a receiver gives up, for the handoff's row. The code is what readers tell failures by; the message stays in the record's
/// content.
fn error_of(members: &Map<String, Value>) -> Result<String, Failure> {
    let object = match members.get("error") {
        None | Some(Value::Null) => return Ok("FAILED".to_owned()),
        Some(Value::Object(object)) => object,
        Some(_) => {
            let error = text(members, "error");
            let error =
                error.map_err(|_| misfit("/error", "must be a non-empty string or an object"))?;
            return Ok(error.unwrap_or_default());
        }
    };
    let texts = ["code", "message"].into_iter().filter_map(|name| object.get(name));
    let texts: Vec<&Value> = texts.filter(|value| !value.is_null()).collect();
    if texts.iter().any(|value| !value.is_string()) {
        return Err(misfit("/error", "its code and its message must be strings"));
    }
    let first = texts.into_iter().filter_map(Value::as_str).find(|text| !text.is_empty());
    Ok(first.unwrap_or("FAILED").to_owned())
}

/// The kind of the record that has a verdict's content, where the handoff has come to it before.
pub(super) fn repeated(kind: &VerdictKind, handoff: &Handoff) -> Option<&'static str> {
    let leads_to = match kind {
        VerdictKind::Accept => HandoffStatus::Accepted,
        VerdictKind::Reject(_) => HandoffStatus::Rejected,
        VerdictKind::Complete => HandoffStatus::Completed,
        VerdictKind::Fail(_) => HandoffStatus::Failed,
        VerdictKind::Heartbeat => return None,
    };
    // A receiver that handed on gives its result afterwards.
    let gives_more = handoff.reason.as_deref() == Some(HANDED_ON);
    (handoff.status == leads_to && !gives_more).then(|| leads_to.as_str())
}

/// A warning that a member is kept, or dropped, without effect.
pub(super) fn without_effect(pointer: &str, why: &str) -> Warning {
    Warning::new(WarningCode::WithoutEffect, pointer, why)
}

/// Warns of costs that are kept with the record and do not count.
pub(super) fn uncounted(members: &Map<String, Value>, spent: Option<&Spending>) -> Vec<Warning> {
    let costs = [
        (
            "costSpentSoFarUSD",
            "is kept with the record and not counted: it counts in complete and fail",
        ),
        (
            "tokenSpent",
            "is kept with the record and not counted: tokens count in complete and fail, beside costSpentSoFarUSD",
        ),
    ];
    let tracking = members.get("costTracking").filter(|_| spent.is_none());
    let has = |name: &str| tracking.is_some_and(|tracking| tracking.get(name).is_some());
    let costs = costs.into_iter().filter(|(name, _)| has(name));
    costs.map(|(name, why)| without_effect(&format!("/costTracking/{name}"), why)).collect()
}
