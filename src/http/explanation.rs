//! `?explain=true` of a dead letter: why the safety rules refuse it, in words of the message. It is for the people who decide
//! and is computed from the kept content: no record, log line or answer to a sender has any of it.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::problem::{FailureView, Problem, view};
use handoffd_domain::failure::{Failure, Stage};
use handoffd_gate::safety::Explanation;
use handoffd_store::store::DeadLetterRow;

/// Why the safety rules refuse a message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplanationView {
    /// Version of the rules that explain it: those of now.
    pub rules: String,
    /// Each finding that refused it and that the rules of now find as well.
    pub findings: Vec<ExplainedFinding>,
    /// Findings of the safety stage that cannot be explained: a classifier's, one in content that is not kept (personal data,
    /// erased, past its time), or one that the rules of now do not find.
    pub unexplained: Vec<FailureView>,
}

/// A finding, in words.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedFinding {
    /// The rule.
    pub rule: String,
    /// Its family of attacks.
    pub family: String,
    /// JSON pointer of the text.
    pub pointer: String,
    /// First byte of the match in that text.
    pub offset: usize,
    /// The class of the text: `tool_output`, `user_turn`, `task` or `data`.
    pub field_class: String,
    /// The words that the rule matched, as the scan read them (decoded, disguises undone). It may be an attack: show it as text.
    pub words: String,
    /// Why it is certain: `ORDER_FOLLOWS`, `ORDER_ITSELF`, `FORM`, `ADDRESSED_AND_TOGETHER`, `TOGETHER`, or `MARK` where it is
    /// not and `orders` refuses it.
    pub certain: String,
    /// The same as a sentence.
    pub because: String,
    /// The words that follow the match, for `ORDER_FOLLOWS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Other rules that count beside it.
    pub with: Vec<String>,
    /// The entry of `waive` with which a release lets it pass, this once.
    pub waive: String,
    /// The exception for the future.
    pub exception: FittingException,
}

/// Members of a `[[safety.exceptions]]` that would let a finding pass.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FittingException {
    /// `observe`: recorded, and delivered. Of a finding that is certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// `mark`: fenced, and delivered. Of a mark; the contract of the edge and the receiver have the same member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orders: Option<String>,
    /// The sender.
    pub agent: String,
    /// The receiver, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The field and all below it.
    pub field: String,
    /// The rule.
    pub rules: Vec<String>,
}

/// Explains a dead letter by its kept message.
pub(super) async fn explained(
    api: &Api,
    row: &DeadLetterRow,
    message: &mut Option<Value>,
) -> Result<ExplanationView, Problem> {
    let mut found = Vec::new();
    if let Some(kept) = message.take() {
        let place = (row.task_id, row.handoff_id);
        let (explained, kept) = api.intake.explain(&row.tenant, place, kept).await?;
        *message = Some(kept);
        found = explained;
    }
    let safety: Vec<&Failure> =
        row.failures.iter().filter(|failure| failure.stage == Stage::Safety).collect();
    let of = |one: &Explanation, failure: &Failure| {
        failure.pointer == one.finding.pointer
            && failure.rule.as_deref() == Some(one.finding.rule.as_str())
    };
    // A place that is refused may be marked by the same rule as well: it is told once, as what refuses comes first.
    let mut told = HashSet::new();
    found.retain(|one| {
        let place = (one.finding.rule.clone(), one.finding.pointer.clone());
        safety.iter().any(|failure| of(one, failure)) && told.insert(place)
    });
    let unexplained = safety.iter().filter(|failure| !found.iter().any(|one| of(one, failure)));
    Ok(ExplanationView {
        rules: api.intake.scanner().version().to_owned(),
        unexplained: unexplained.map(|failure| view(failure)).collect(),
        findings: found.into_iter().map(|one| finding(row, one)).collect(),
    })
}

fn finding(row: &DeadLetterRow, one: Explanation) -> ExplainedFinding {
    let (setting, value) = one.setting();
    let set = |name: &str| (setting == name).then(|| value.to_owned());
    ExplainedFinding {
        field_class: one.class.as_str().to_owned(),
        certain: one.certainty.as_str().to_owned(),
        because: one.certainty.because().to_owned(),
        waive: one.waive(),
        exception: FittingException {
            mode: set("mode"),
            orders: set("orders"),
            agent: row.source.to_string(),
            to: row.target.as_ref().map(ToString::to_string),
            field: one.field(),
            rules: vec![one.finding.rule.clone()],
        },
        rule: one.finding.rule,
        family: one.finding.family,
        pointer: one.finding.pointer,
        offset: one.finding.offset,
        words: one.words,
        order: one.order,
        with: one.with,
    }
}
