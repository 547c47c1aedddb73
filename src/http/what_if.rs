//! `/what-if`: the decisions of a candidate contract, payload schema or set of safety rules on past
//! messages, before it is switched on.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::auth::Operator;
use super::extract::Json;
use super::open;
use super::problem::{BadBody, Problem, wrong};
use super::sorted::Sorted;
use handoffd_broker::administration::candidates::{Candidate, SafetyCandidate};
use handoffd_broker::config::{SafetyException, SafetyMode};
use handoffd_broker::intake::what_if::{Changed, Judged, Outcome, Scope, Tally};
use handoffd_domain::failure::{Code, Stage};
use handoffd_domain::policy::Orders;

/// Messages judged: default and maximum.
const MESSAGES: (i64, i64) = (500, 10_000);
/// Seconds of a run: default and maximum.
const SECONDS: (u64, u64) = (10, 60);

/// The candidate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CandidateBody {
    /// A contract, as `PUT /contracts/{id}` takes it.
    #[schema(value_type = Option<super::contracts::ContractDocument>)]
    contract: Option<Value>,
    /// A payload schema, in the place of the one that contracts name.
    schema: Option<SchemaBody>,
    /// Safety rules and policies.
    safety: Option<SafetyBody>,
    /// Whether every edge must have a contract.
    require_contract: Option<bool>,
}

/// A payload schema for every contract that names it, in whatever version.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchemaBody {
    /// Its id in the registry.
    schema_id: String,
    /// The schema.
    #[schema(value_type = super::schemas::JsonSchema)]
    schema: Value,
}

/// A missing member stays as it is now.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SafetyBody {
    /// `enforce`, `observe` or `allow`: the action on a finding that no exception covers.
    #[schema(value_type = Option<String>)]
    mode: Option<SafetyMode>,
    /// `mark`, `refuse` or `allow`: the action on an order inside data that no exception covers.
    orders: Option<Orders>,
    /// Exceptions, as `[[safety.exceptions]]` has them; all of them.
    exceptions: Option<Vec<SafetyException>>,
    /// Rules, of the form of `config/safety-rules.json`; all of them.
    #[schema(value_type = Option<SafetyRulesBody>)]
    rules: Option<Value>,
}

/// Safety rules, of the form of `config/safety-rules.json`.
#[derive(ToSchema)]
pub struct SafetyRulesBody {}

/// The answer that the candidate would give.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfView {
    /// Of the newest handoffs.
    pub handoffs: WhatIfCounts,
    /// Of the newest open dead letters.
    pub dead_letters: WhatIfCounts,
    /// Each message of which something else would be said.
    pub changed: Vec<ChangedVerdict>,
}

/// The answers that the candidate would give to some messages, counted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfCounts {
    /// Messages that were examined.
    pub examined: usize,
    /// Messages that were judged under both rules.
    pub replayed: usize,
    /// Messages that cannot be replayed.
    pub not_replayable: NotReplayable,
    /// Refused under the present rules, whatever was said then.
    pub refused_at_present: usize,
    /// As it is now.
    pub same: usize,
    /// Pass now, and would be refused.
    pub newly_refused: usize,
    /// Are refused now, and would pass.
    pub newly_passed: usize,
    /// Are refused either way, for something else.
    pub refused_differently: usize,
    /// Pass either way, and something else is recorded.
    pub observed_differently: usize,
    /// Newly refused messages by the primary reason, a code.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub reasons: BTreeMap<&'static str, usize>,
    /// All that were asked for, or all that there are, were looked at in the time.
    pub complete: bool,
}

/// Messages that are not at hand, counted.
#[derive(Debug, Serialize, ToSchema)]
pub struct NotReplayable {
    /// Number of messages that were erased.
    pub erased: usize,
    /// Messages in the archive.
    pub archived: usize,
}

/// A message of which something else would be said.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedVerdict {
    /// UUID of the handoff; of a message to several receivers of the group.
    pub handoff_id: String,
    /// UUID of the handoff's task.
    pub task_id: String,
    /// Id of the agent that sent it.
    pub from_agent: String,
    /// Id of the agent that received it; of several the first, as addressed.
    pub to_agent: String,
    /// Of a message to several receivers all of them, as addressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receivers: Option<Vec<String>>,
    /// Its status.
    #[schema(value_type = open::HandoffStatus)]
    pub status: &'static str,
    /// The change of the verdict.
    #[schema(value_type = open::WhatIfChange)]
    pub change: &'static str,
    /// Under the present rules.
    pub before: VerdictView,
    /// The verdict under the candidate rules.
    pub after: VerdictView,
}

/// The gate's verdict on a message.
#[derive(Debug, Serialize, ToSchema)]
pub struct VerdictView {
    /// Whether the message passes the gate.
    #[schema(value_type = open::WhatIfVerdict)]
    pub verdict: &'static str,
    /// The primary reason of a refusal.
    #[schema(required, value_type = Option<open::ErrorCode>)]
    pub reason: Option<Code>,
    /// The contract that rules, with its version; of several receivers that of the first edge.
    #[schema(required)]
    pub contract: Option<String>,
    /// Of a message to several receivers that passes, the contract of each edge in the list's order; null where none rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contracts: Option<Vec<Option<String>>>,
    /// Findings of the gate on the message.
    pub findings: Vec<GateFinding>,
    /// Safety rules that fired and are only recorded.
    pub observed: Vec<ObservedRule>,
}

/// Something that the gate found, without its words.
#[derive(Debug, Serialize, ToSchema)]
pub struct GateFinding {
    /// Stage of the gate that found it.
    #[schema(value_type = open::GateStage)]
    pub stage: Stage,
    /// Code of the error, as a refusal names it.
    #[schema(value_type = open::ErrorCode)]
    pub code: Code,
    /// RFC 6901 pointer into the message.
    pub pointer: String,
    /// The safety rule, or the contract's clause.
    #[schema(required)]
    pub rule: Option<String>,
}

/// A safety rule that fired and is only recorded.
#[derive(Debug, Serialize, ToSchema)]
pub struct ObservedRule {
    /// The rule.
    pub rule: String,
    /// RFC 6901 pointer into the message.
    pub pointer: String,
}

/// The question: how other rules would decide.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhatIfBody {
    /// The candidate; at least one member.
    candidate: CandidateBody,
    /// Judge so many of the newest handoffs, 0 to 10 000; 500 unless said.
    #[schema(minimum = 0, maximum = 10000)]
    handoffs: Option<i64>,
    /// Judge so many of the newest open dead letters, 0 to 10 000; 500 unless said.
    #[schema(minimum = 0, maximum = 10000)]
    dead_letters: Option<i64>,
    /// Judge for so many seconds, 1 to 60; 10 unless said.
    #[schema(minimum = 1, maximum = 60)]
    seconds: Option<u64>,
}

fn scope(body: &WhatIfBody) -> Result<Scope, Problem> {
    let count = |said: Option<i64>, pointer: &str| {
        let said = said.unwrap_or(MESSAGES.0);
        let fits = (0..=MESSAGES.1).contains(&said);
        fits.then_some(said).ok_or_else(|| wrong(pointer, format!("0 to {}", MESSAGES.1)))
    };
    let seconds = body.seconds.unwrap_or(SECONDS.0);
    if !(1..=SECONDS.1).contains(&seconds) {
        return Err(wrong("/seconds", format!("1 to {}", SECONDS.1)));
    }
    Ok(Scope {
        handoffs: count(body.handoffs, "/handoffs")?,
        dead_letters: count(body.dead_letters, "/deadLetters")?,
        time: Duration::from_secs(seconds),
    })
}

/// Say what would be said of the newest handoffs and the open dead letters if a candidate were put:
/// a contract, a payload schema, safety rules or policies. Each kept message is judged by the gate under
/// the present rules and under the candidate. Writes nothing.
#[utoipa::path(
    post, path = "/what-if", tag = "contracts", operation_id = "whatIf",
    request_body = WhatIfBody,
    responses(
        (status = 200, description = "Counts, and each message of which something else would be said, with both verdicts: codes, places and rules, never the content", body = WhatIfView),
        (status = 403, description = "Not an operator"),
        BadBody,
        (status = 422, description = "The candidate cannot be put so"),
        (status = 503, description = "Another one is under way, or the store is away"),
    )
)]
pub(super) async fn ask(
    State(api): State<Api>,
    Operator(principal): Operator,
    Json(body): Json<WhatIfBody>,
) -> Result<Sorted<WhatIfView>, Problem> {
    let scope = scope(&body)?;
    let Ok(_turn) = api.what_ifs.try_acquire() else {
        return Err(Problem::new(Code::Overloaded, "another what-if is under way; try again"));
    };
    let candidate = body.candidate.into();
    let candidate = api.administration().candidate_regime(&principal, candidate).await?;
    let outcome = api.intake.what_if(&principal.tenant, candidate, scope).await?;
    Ok(Sorted(WhatIfView::from(&outcome)))
}

impl From<CandidateBody> for Candidate {
    fn from(body: CandidateBody) -> Self {
        let CandidateBody { contract, schema, safety, require_contract } = body;
        let schema = schema.map(|SchemaBody { schema_id, schema }| (schema_id, schema));
        let safety = safety.map(|SafetyBody { mode, orders, exceptions, rules }| SafetyCandidate {
            mode,
            orders,
            exceptions,
            rules,
        });
        Self { contract, schema, safety, require_contract }
    }
}

impl From<&Outcome> for WhatIfView {
    fn from(outcome: &Outcome) -> Self {
        Self {
            handoffs: (&outcome.handoffs).into(),
            dead_letters: (&outcome.dead_letters).into(),
            changed: outcome.changed.iter().map(ChangedVerdict::from).collect(),
        }
    }
}

impl From<&Tally> for WhatIfCounts {
    fn from(tally: &Tally) -> Self {
        let of = |name: &str| tally.shifts.get(name).copied().unwrap_or(0);
        Self {
            examined: tally.examined,
            replayed: tally.replayed,
            not_replayable: NotReplayable { erased: tally.erased, archived: tally.archived },
            refused_at_present: tally.refused_at_present,
            same: of("same"),
            newly_refused: of("newlyRefused"),
            newly_passed: of("newlyPassed"),
            refused_differently: of("refusedDifferently"),
            observed_differently: of("observedDifferently"),
            reasons: tally.reasons.clone(),
            complete: tally.complete,
        }
    }
}

impl From<&Changed> for ChangedVerdict {
    fn from(one: &Changed) -> Self {
        let [from_agent, to_agent] = one.edge.clone();
        Self {
            handoff_id: one.handoff.to_string(),
            task_id: one.task.to_string(),
            from_agent,
            to_agent,
            receivers: Some(one.receivers.clone()).filter(|all| !all.is_empty()),
            status: one.status.as_str(),
            change: one.shift.as_str(),
            before: (&one.before).into(),
            after: (&one.after).into(),
        }
    }
}

impl From<&Judged> for VerdictView {
    fn from(judged: &Judged) -> Self {
        let findings = judged.found.iter().map(|finding| GateFinding {
            stage: finding.stage,
            code: finding.code,
            pointer: finding.pointer.clone(),
            rule: finding.rule.clone(),
        });
        let observed = judged
            .observed
            .iter()
            .map(|(rule, pointer)| ObservedRule { rule: rule.clone(), pointer: pointer.clone() });
        Self {
            verdict: if judged.reason.is_some() { "refuse" } else { "pass" },
            reason: judged.reason,
            contract: judged.contract.clone(),
            contracts: Some(judged.contracts.clone()).filter(|all| !all.is_empty()),
            findings: findings.collect(),
            observed: observed.collect(),
        }
    }
}
