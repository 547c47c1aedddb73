//! The gate's verdicts on past messages under other rules: kept messages are judged twice, under the
//! present rules and under a candidate. Writes nothing.
//!
//! Both judgements are made now, with the agents as they are: a difference comes from the candidate
//! alone, and not from changes since then. Only the message itself is judged. The ledger's checks (the
//! loop guard, the budget relay) depend on the state of its task at that time, and an external classifier
//! is not asked again.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{Intake, IntakeError};
use crate::directory::Agents;
use crate::ledger::reply::LedgerError;
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::message::fans_out;
use handoffd_evidence::commitment::unpack;
use handoffd_gate::contract::catalog::Catalog;
use handoffd_gate::safety::SafetyFinding;
use handoffd_gate::{Gate, GateLookup, GateVerdict, PassedBranch};
use handoffd_store::store::{ContentStorage, Cursor, DeadLetterFilter, HandoffFilter, StoreError};

/// Messages that are read and judged together.
const PAGE: i64 = 50;
/// Rows that are looked at for each that is judged: dead letters stand among handoffs.
const ROWS: i64 = 10;
/// The most changed messages that are told.
const MAX_TOLD: usize = 500;

/// Rules to judge by.
#[derive(Clone)]
pub struct Regime {
    /// Stages, safety rules and policies, and which edges must have a contract.
    pub gate: Arc<Gate>,
    pub contracts: Arc<Catalog>,
}

/// How much is judged.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Of the newest handoffs, so many.
    pub handoffs: i64,
    /// Of the newest open dead letters, so many.
    pub dead_letters: i64,
    pub time: Duration,
}

/// A finding of the gate without its sentence, which may repeat the message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateFinding {
    pub stage: Stage,
    pub code: Code,
    /// RFC 6901 pointer into the message.
    pub pointer: String,
    /// The safety rule, or the contract's clause.
    pub rule: Option<String>,
}

/// The gate's verdict on a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The primary reason of a refusal; none: it passes.
    pub reason: Option<Code>,
    pub found: BTreeSet<GateFinding>,
    /// Safety rules that fired or marked and are only recorded, with their places.
    pub observed: BTreeSet<(String, String)>,
    /// The contract that rules, with its version; of several receivers that of the first edge.
    pub contract: Option<String>,
    /// Of a message to several receivers that passes, the contract of each edge in the list's order.
    pub contracts: Vec<Option<String>>,
}

/// The change of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The verdict stays.
    Same,
    /// The message passes now, and would be refused.
    NewlyRefused,
    /// The message is refused now, and would pass.
    NewlyPassed,
    /// The message is refused either way, for another reason.
    RefusedDifferently,
    /// The message passes either way, and another finding is recorded.
    ObservedDifferently,
}

impl Shift {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::NewlyRefused => "newlyRefused",
            Self::NewlyPassed => "newlyPassed",
            Self::RefusedDifferently => "refusedDifferently",
            Self::ObservedDifferently => "observedDifferently",
        }
    }

    /// From one judgement to another.
    #[must_use]
    pub fn of(before: &Judged, after: &Judged) -> Self {
        match (before.reason, after.reason) {
            (None, Some(_)) => Self::NewlyRefused,
            (Some(_), None) => Self::NewlyPassed,
            (Some(_), Some(_)) if before.found != after.found => Self::RefusedDifferently,
            (None, None) if before.observed != after.observed => Self::ObservedDifferently,
            _ => Self::Same,
        }
    }
}

/// A message of which something else would be said.
#[derive(Debug, Clone)]
pub struct Changed {
    /// Its handoff; of a message to several receivers the group.
    pub handoff: HandoffId,
    pub task: TaskId,
    /// From whom and to whom it went; of several receivers the first.
    pub edge: [String; 2],
    /// Of a message to several receivers all of them, as addressed.
    pub receivers: Vec<String>,
    /// The state of its handoff.
    pub status: HandoffStatus,
    /// The change of its verdict.
    pub shift: Shift,
    /// Its verdict under the present rules.
    pub before: Judged,
    pub after: Judged,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub examined: usize,
    /// Judged twice.
    pub replayed: usize,
    /// Not at hand: erased.
    pub erased: usize,
    /// Not at hand: in the archive.
    pub archived: usize,
    /// Refused under the present rules, whatever was said then.
    pub refused_at_present: usize,
    /// The counts by change of the verdict.
    pub shifts: BTreeMap<&'static str, usize>,
    /// Would be refused and pass now, by the primary reason.
    pub reasons: BTreeMap<&'static str, usize>,
    /// All that were asked for, or all that there are, were looked at in the time.
    pub complete: bool,
}

/// The result.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Of the newest handoffs.
    pub handoffs: Tally,
    /// Of the open dead letters.
    pub dead_letters: Tally,
    /// Messages whose verdict would change; the first 500.
    pub changed: Vec<Changed>,
}

/// Messages to judge, and the time limit.
struct Replay {
    tenant: TenantId,
    agents: Arc<Agents>,
    now: Micros,
    present: Regime,
    candidate: Regime,
    deadline: Instant,
}

/// A message to judge: a handoff's, or the one that a group sent to all of its receivers.
struct Examined {
    /// The handoff; of a group one of its branches.
    handoff: Handoff,
    /// The id and the status that the answer names.
    id: HandoffId,
    status: HandoffStatus,
    message: Message,
}

/// The outcome of a kept message.
enum Message {
    Whole(Value),
    Erased,
    Archived,
}

fn judged(verdict: GateVerdict) -> Judged {
    let of = |failures: &[Failure], findings: &[SafetyFinding]| -> BTreeSet<GateFinding> {
        let stages = failures.iter().filter(|failure| failure.stage != Stage::Safety);
        let stages = stages.map(|failure| GateFinding {
            stage: failure.stage,
            code: failure.code,
            pointer: failure.pointer.clone(),
            rule: failure.rule.clone(),
        });
        let safety = findings.iter().map(|finding| GateFinding {
            stage: Stage::Safety,
            code: Code::SafetyViolation,
            pointer: finding.pointer.clone(),
            rule: Some(finding.rule.clone()),
        });
        stages.chain(safety).collect()
    };
    match verdict {
        GateVerdict::Pass(passed) => Judged {
            contracts: passed.group.iter().flat_map(|group| &group.branches).map(named).collect(),
            reason: None,
            found: BTreeSet::new(),
            observed: passed
                .observed
                .iter()
                .chain(&passed.marked)
                .map(|finding| (finding.rule.clone(), finding.pointer.clone()))
                .collect(),
            contract: passed.contract.map(|ready| ready.contract().to_string()),
        },
        GateVerdict::Refused(refused) => Judged {
            reason: Some(refused.reason()),
            found: of(&refused.failures, &refused.findings),
            observed: BTreeSet::new(),
            contract: refused.contract.map(|ready| ready.contract().to_string()),
            contracts: Vec::new(),
        },
        GateVerdict::Malformed(failure) => Judged {
            reason: primary(std::slice::from_ref(&failure)),
            found: of(std::slice::from_ref(&failure), &[]),
            observed: BTreeSet::new(),
            contract: None,
            contracts: Vec::new(),
        },
    }
}

/// The contract of a receiver's edge.
fn named(branch: &PassedBranch) -> Option<String> {
    branch.contract.as_ref().map(|ready| ready.contract().to_string())
}

/// The receivers of a message to several, as addressed; none of any other.
fn receivers_of(message: &Value) -> Vec<String> {
    if !fans_out(message) {
        return Vec::new();
    }
    let list = message.get("receiverList").and_then(Value::as_array);
    let address = |one: &Value| {
        let mut by = ["agentId", "agentType", "capability"].into_iter();
        let named = by.find_map(|name| one.get(name)?.as_str());
        one.as_str().or(named).unwrap_or_default().to_owned()
    };
    list.into_iter().flatten().map(address).collect()
}

/// Leaves one branch of each group: its message is judged for all of its receivers at once.
fn once_a_group(page: &mut Vec<Handoff>, groups: &mut HashSet<HandoffId>) {
    page.retain(|one| one.branch().is_none_or(|place| groups.insert(place.id)));
}

impl Replay {
    fn judge(&self, handoff: &Handoff, value: Value, regime: &Regime) -> Judged {
        judged(regime.gate.again(
            value,
            &GateLookup {
                tenant: &self.tenant,
                at: self.now,
                caller: Some(&handoff.source),
                receiver: None,
                roster: &self.agents.roster,
                contracts: &regime.contracts,
                signing_secrets: &[],
            },
        ))
    }

    /// Judges a page, as far as the time goes; false where it did not go far enough.
    fn page(&self, page: Vec<Examined>, tally: &mut Tally, changed: &mut Vec<Changed>) -> bool {
        for Examined { handoff, id, status, message } in page {
            if Instant::now() >= self.deadline {
                return false;
            }
            tally.examined += 1;
            let value = match message {
                Message::Whole(value) => value,
                Message::Erased => {
                    tally.erased += 1;
                    continue;
                }
                Message::Archived => {
                    tally.archived += 1;
                    continue;
                }
            };
            tally.replayed += 1;
            let receivers = receivers_of(&value);
            let before = self.judge(&handoff, value.clone(), &self.present);
            let after = self.judge(&handoff, value, &self.candidate);
            let shift = Shift::of(&before, &after);
            *tally.shifts.entry(shift.as_str()).or_default() += 1;
            tally.refused_at_present += usize::from(before.reason.is_some());
            if let (Shift::NewlyRefused, Some(reason)) = (shift, after.reason) {
                *tally.reasons.entry(reason.as_str()).or_default() += 1;
            }
            if shift != Shift::Same && changed.len() < MAX_TOLD {
                let target = receivers.first().cloned();
                let target = target.unwrap_or_else(|| handoff.target.to_string());
                changed.push(Changed {
                    handoff: id,
                    task: handoff.task_id,
                    edge: [handoff.source.to_string(), target],
                    receivers,
                    status,
                    shift,
                    before,
                    after,
                });
            }
        }
        true
    }
}

impl Intake {
    /// The rules that hold now.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn regime(&self, tenant: &TenantId) -> Result<Regime, IntakeError> {
        Ok(Regime {
            gate: Arc::clone(&self.gate),
            contracts: self.directory.contracts(tenant).await?,
        })
    }

    /// Judges kept messages under the present rules and under a candidate.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn what_if(
        &self,
        tenant: &TenantId,
        candidate: Regime,
        scope: Scope,
    ) -> Result<Outcome, IntakeError> {
        let replay = Arc::new(Replay {
            tenant: tenant.clone(),
            agents: self.directory.agents(tenant).await?,
            now: self.clock.now(),
            present: self.regime(tenant).await?,
            candidate,
            deadline: Instant::now() + scope.time,
        });
        let mut outcome = Outcome::default();
        let mut changed = Vec::new();
        // Handoffs that wait for a person first: there are few of them, and a change is often made for them.
        let (mut after, mut rows) = (None, 0);
        while rows < scope.dead_letters {
            let limit = PAGE.min(scope.dead_letters - rows);
            let page = self.open_letters(tenant, &mut after, limit).await?;
            let last = page.is_empty();
            rows += limit;
            if !self.judged_page(&replay, page, &mut outcome.dead_letters, &mut changed).await? {
                outcome.changed = changed;
                return Ok(outcome);
            }
            if last {
                break;
            }
        }
        outcome.dead_letters.complete = true;
        let (mut after, mut rows): (Option<Cursor>, i64) = (None, 0);
        let mut wanted = scope.handoffs;
        let mut all = false;
        let mut groups = HashSet::new();
        while wanted > 0 && rows < scope.handoffs.saturating_mul(ROWS) {
            let filter = HandoffFilter::default();
            let page = self.store.list_handoffs(tenant, &filter, after.as_ref(), PAGE).await;
            let page = page.map_err(away)?;
            let Some(last) = page.last() else {
                all = true;
                break;
            };
            after = Some((last.created_at, last.id.to_string()));
            rows += PAGE;
            // A handoff that replaces another has the other's message.
            let mut page: Vec<Handoff> = page
                .into_iter()
                .filter(|one| one.status != HandoffStatus::DeadLettered && one.origin.is_none())
                .collect();
            once_a_group(&mut page, &mut groups);
            page.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            wanted -= i64::try_from(page.len()).unwrap_or(i64::MAX);
            if !self.judged_page(&replay, page, &mut outcome.handoffs, &mut changed).await? {
                outcome.changed = changed;
                return Ok(outcome);
            }
        }
        outcome.handoffs.complete = all || wanted == 0;
        outcome.changed = changed;
        Ok(outcome)
    }

    /// The next open dead letters with their handoffs.
    async fn open_letters(
        &self,
        tenant: &TenantId,
        after: &mut Option<Cursor>,
        limit: i64,
    ) -> Result<Vec<Handoff>, IntakeError> {
        let filter = DeadLetterFilter {
            status: Some(DeadLetterStatus::Open),
            ..DeadLetterFilter::default()
        };
        let rows = self.store.list_dead_letters(tenant, &filter, after.as_ref(), limit).await;
        let rows = rows.map_err(away)?;
        if let Some(last) = rows.last() {
            *after = Some((last.created_at, last.handoff_id.to_string()));
        }
        let mut page = Vec::with_capacity(rows.len());
        for row in rows {
            let key = (tenant.clone(), row.handoff_id);
            page.extend(self.store.find_handoff(&key).await.map_err(away)?);
        }
        Ok(page)
    }

    /// Reads the messages of a page and judges them, beside what the broker else does.
    async fn judged_page(
        &self,
        replay: &Arc<Replay>,
        page: Vec<Handoff>,
        tally: &mut Tally,
        changed: &mut Vec<Changed>,
    ) -> Result<bool, IntakeError> {
        let page = self.with_messages(&replay.tenant, page).await?;
        let replay = Arc::clone(replay);
        let (mut counted, mut told) = (std::mem::take(tally), std::mem::take(changed));
        let judging = tokio::task::spawn_blocking(move || {
            let whole = replay.page(page, &mut counted, &mut told);
            (whole, counted, told)
        });
        let judged = judging.await.map_err(|err| LedgerError::Internal(err.to_string()))?;
        (*tally, *changed) = (judged.1, judged.2);
        Ok(judged.0)
    }

    async fn with_messages(
        &self,
        tenant: &TenantId,
        page: Vec<Handoff>,
    ) -> Result<Vec<Examined>, IntakeError> {
        let ids: Vec<_> = page.iter().filter_map(|handoff| handoff.content_id).collect();
        let kept = self.store.list_contents(tenant, &ids).await.map_err(away)?;
        let mut kept: HashMap<String, ContentStorage> =
            kept.into_iter().map(|content| (content.id, content.kept)).collect();
        let mut whole = Vec::with_capacity(page.len());
        for handoff in page {
            let content = handoff.content_id.and_then(|id| kept.remove(&id.to_string()));
            let message = match content {
                Some(ContentStorage::Hot(_, codec, bytes)) => {
                    let value = unpack(codec, &bytes).ok();
                    let value = value.and_then(|bytes| serde_json::from_slice(&bytes).ok());
                    let value = value.ok_or_else(|| {
                        LedgerError::Internal("a kept message cannot be read".to_owned())
                    })?;
                    Message::Whole(self.message_of(&handoff, Some(value)).await?)
                }
                Some(ContentStorage::Cold(_) | ContentStorage::Unavailable(_)) => Message::Archived,
                Some(ContentStorage::Erased | ContentStorage::Purged) | None => Message::Erased,
            };
            let (id, status) = self.named(&handoff).await?;
            whole.push(Examined { handoff, id, status, message });
        }
        Ok(whole)
    }

    /// The id and the status of a handoff; of a branch those of its group.
    async fn named(&self, handoff: &Handoff) -> Result<(HandoffId, HandoffStatus), IntakeError> {
        let Some(place) = handoff.branch() else { return Ok((handoff.id, handoff.status)) };
        let key = (handoff.tenant.clone(), handoff.task_id);
        let task = self.store.find_task(&key).await.map_err(away)?;
        let group = task.as_ref().and_then(|task| task.course.group(place.id));
        let status = group.map_or(handoff.status, |group| group.status.as_handoff());
        Ok((place.id, status))
    }
}

fn away(err: StoreError) -> IntakeError {
    Arc::new(err).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(reason: Option<Code>, pointers: &[&str], observed: &[&str]) -> Judged {
        let found = |pointer: &&str| GateFinding {
            stage: Stage::Contract,
            code: Code::ContractViolation,
            pointer: (*pointer).to_owned(),
            rule: None,
        };
        Judged {
            reason,
            found: pointers.iter().map(found).collect(),
            observed: observed.iter().map(|rule| ((*rule).to_owned(), String::new())).collect(),
            contract: None,
            contracts: Vec::new(),
        }
    }

    #[test]
    fn receivers_are_named_as_they_are_addressed() {
        let list = serde_json::json!(["b", { "agentId": "c" }, { "agentType": "d", "agentVersion": "^1" }, { "capability": "e" }]);
        let message = serde_json::json!({ "schemaVersion": "2.2", "receiverList": list });
        assert_eq!(receivers_of(&message), ["b", "c", "d", "e"]);
        let older = serde_json::json!({ "schemaVersion": "2.1", "receiverList": list });
        assert!(receivers_of(&older).is_empty(), "the list has no effect there");
    }

    #[test]
    fn what_becomes_of_a_verdict_is_told_by_both_sides() {
        let refused = Some(Code::ContractViolation);
        let cases = [
            (said(None, &[], &[]), said(None, &[], &[]), Shift::Same),
            (said(None, &[], &[]), said(refused, &["/a"], &[]), Shift::NewlyRefused),
            (said(refused, &["/a"], &[]), said(None, &[], &[]), Shift::NewlyPassed),
            (said(refused, &["/a"], &[]), said(refused, &["/a"], &[]), Shift::Same),
            (said(refused, &["/a"], &[]), said(refused, &["/b"], &[]), Shift::RefusedDifferently),
            (said(None, &[], &["x"]), said(None, &[], &[]), Shift::ObservedDifferently),
            (said(refused, &["/a"], &["x"]), said(refused, &["/a"], &[]), Shift::Same),
        ];
        for (before, after, shift) in cases {
            assert_eq!(Shift::of(&before, &after), shift, "{before:?} {after:?}");
        }
    }

    #[test]
    fn a_judgement_has_places_and_names_and_no_words() {
        let failure = Failure::new(
            Stage::Contract,
            Code::ContractViolation,
            "/currentState/order_id",
            "the payload is a secret",
        )
        .of_rule("payload.schema");
        let judged = judged(GateVerdict::Malformed(failure));
        assert_eq!(judged.reason, Some(Code::ContractViolation));
        let found = judged.found.into_iter().next().unwrap();
        assert_eq!(found.rule.as_deref(), Some("payload.schema"));
        assert!(!format!("{found:?}").contains("secret"));
    }
}
