//! The gate's verdict on a chunk, and on the message that the last one closes.

use std::sync::Arc;

use serde_json::Value;

use super::{Assembled, ReadChunk, refused};
use crate::directory::{Agents, Principal};
use crate::intake::opinion::{self, Opinion, OpinionTime};
use crate::intake::{Intake, IntakeError, heavy, redacted};
use crate::ledger::command::content;
use crate::ledger::commands::{ClosedStream, StreamEnd};
use handoffd_domain::canonical;
use handoffd_domain::course::subtasks_of;
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::Micros;
use handoffd_domain::redaction::RedactionPolicy;
use handoffd_domain::stream::{Chunk, ChunkEnd, STREAM_REFUSED, mark_closed};
use handoffd_domain::warning::Warning;
use handoffd_evidence::record::SafetyFacts;
use handoffd_gate::safety::policy::PolicyContext;
use handoffd_gate::safety::{SafetyFinding, to_failure};
use handoffd_gate::stream::{ChunkLookup, PassedChunk};
use handoffd_gate::{Gate, GateLookup, GateVerdict, PassedMessage};

/// The outcome of a judged chunk.
pub(super) struct JudgedChunk {
    pub(super) end: Option<StreamEnd>,
    pub(super) safety: Option<SafetyFacts>,
    pub(super) warnings: Vec<Warning>,
    pub(super) failures: Vec<Failure>,
}

impl Intake {
    /// Applies a chunk and judges what it makes; a large message on a thread of its own.
    pub(super) async fn judge_chunk(
        &self,
        principal: &Principal,
        agents: &Arc<Agents>,
        handoff: &Handoff,
        before: Assembled,
        read: &ReadChunk,
    ) -> Result<(Assembled, JudgedChunk), IntakeError> {
        let size = before.size + read.bytes.len();
        let mut assembled = Assembled { seq: read.chunk.seq, size, ..before };
        if let Err(failures) = read.chunk.apply(&mut assembled.message) {
            return Ok((assembled, JudgedChunk::refused(failures)));
        }
        if read.chunk.end == Some(ChunkEnd::Close) {
            mark_closed(&mut assembled.message, read.chunk.seq);
            let message = std::mem::take(&mut assembled.message);
            let judged = self.judge_close(principal, agents, handoff, message).await?;
            return Ok((assembled, judged));
        }
        let (gate, at) = (Arc::clone(&self.gate), self.clock.now());
        let (chunk, of, agents) = (read.chunk.clone(), handoff.clone(), Arc::clone(agents));
        let (assembled, result) = heavy(size, move || {
            let result = judge_one(&gate, &assembled, &chunk, &of, &agents, at);
            (assembled, result)
        })
        .await?;
        let judged = match result {
            Err(failures) => JudgedChunk::refused(failures),
            Ok(passed) => self.with_opinion(principal, handoff, &assembled, passed).await?,
        };
        Ok((assembled, judged))
    }

    /// Asks the external classifier about a chunk where nothing passes without its word. Elsewhere it is asked at the
    /// close.
    async fn with_opinion(
        &self,
        principal: &Principal,
        handoff: &Handoff,
        assembled: &Assembled,
        passed: PassedChunk,
    ) -> Result<JudgedChunk, IntakeError> {
        let PassedChunk { observed, marked, warnings } = passed;
        let safety = self.facts(&observed, &marked);
        let judged = JudgedChunk { end: None, safety, warnings, failures: Vec::new() };
        let asked = self.second_opinion.as_ref().filter(|asked| asked.required());
        let Some(asked) = asked.filter(|asked| !asked.marked_only() || !marked.is_empty()) else {
            return Ok(judged);
        };
        let (label, pointer) = match asked.ask(&assembled.message).await {
            Opinion::Safe => return Ok(judged),
            Opinion::None(_) => return Err(IntakeError::Classifier),
            Opinion::Unsafe { label, pointer } => (label, pointer),
        };
        let finding = opinion::finding(label, pointer);
        let case = PolicyContext {
            tenant: &principal.tenant,
            agent: &handoff.source,
            to: Some(&handoff.target),
            at: self.clock.now(),
        };
        let (refused, _) = self.gate.policies.part(&case, vec![finding]);
        Ok(JudgedChunk { failures: refused.iter().map(to_failure).collect(), ..judged })
    }

    /// The record's entry on findings that refuse nothing.
    fn facts(&self, observed: &[SafetyFinding], marked: &[SafetyFinding]) -> Option<SafetyFacts> {
        let rules = |findings: &[SafetyFinding]| {
            let mut rules: Vec<String> = findings.iter().map(|one| one.rule.clone()).collect();
            rules.sort();
            rules.dedup();
            rules
        };
        let (observed, marked) = (rules(observed), rules(marked));
        let said = !observed.is_empty() || !marked.is_empty();
        let rules = self.gate.scanner.version().to_owned();
        said.then_some(SafetyFacts { rules, observed, marked, classifier: None })
    }

    /// Runs the whole gate over the assembled message.
    async fn judge_close(
        &self,
        principal: &Principal,
        agents: &Arc<Agents>,
        handoff: &Handoff,
        message: Value,
    ) -> Result<JudgedChunk, IntakeError> {
        let contracts = self.directory.contracts(&principal.tenant).await?;
        let (gate, redaction) = (Arc::clone(&self.gate), Arc::clone(&self.redaction));
        let (tenant, at) = (principal.tenant.clone(), self.clock.now());
        let (source, target) = (handoff.source.clone(), handoff.target.clone());
        let roster = Arc::clone(agents);
        // The gate takes many times what the chunks took.
        let verdict = heavy(usize::MAX, move || {
            let lookup = GateLookup {
                tenant: &tenant,
                at,
                caller: Some(&source),
                // Who has it already need not be free.
                receiver: Some(&target),
                roster: &roster.roster,
                contracts: &contracts,
                signing_secrets: &[],
            };
            unaltered(gate.again(message, &lookup), &redaction)
        })
        .await?;
        let verdict = match verdict {
            Ok(verdict) => verdict,
            Err(failure) => return Ok(JudgedChunk::close_refused(vec![failure], self.clock.now())),
        };
        let verdict = self.beside_earlier(&principal.tenant, verdict).await?;
        let (verdict, safety) =
            self.with_second_opinion(principal, verdict, OpinionTime::Before).await?;
        let now = self.clock.now();
        Ok(match verdict {
            GateVerdict::Pass(passed) if passed.target.agent_id == handoff.target => {
                let PassedMessage { message, warnings, context, .. } = *passed;
                let closed = ClosedStream {
                    content: content(&message.content(), now),
                    context,
                    subtasks: subtasks_of(message.envelope().task_id, message.value()),
                    safety: safety.clone(),
                };
                let end = Some(StreamEnd::Closed(Box::new(closed)));
                JudgedChunk { end, safety, warnings, failures: Vec::new() }
            }
            GateVerdict::Pass(_) => JudgedChunk::close_refused(
                refused(
                    Stage::Route,
                    Code::NoCapableAgent,
                    "/toAgent",
                    "the receiver takes no handoffs now",
                ),
                now,
            ),
            GateVerdict::Malformed(failure) => JudgedChunk::close_refused(vec![failure], now),
            GateVerdict::Refused(refused) => JudgedChunk::close_refused(refused.failures, now),
        })
    }
}

impl JudgedChunk {
    pub(super) const fn aborted() -> Self {
        let end = Some(StreamEnd::Aborted);
        Self { end, safety: None, warnings: Vec::new(), failures: Vec::new() }
    }

    const fn refused(failures: Vec<Failure>) -> Self {
        Self { end: None, safety: None, warnings: Vec::new(), failures }
    }

    fn close_refused(failures: Vec<Failure>, now: Micros) -> Self {
        let reason = primary(&failures).map_or(STREAM_REFUSED, Code::as_str).to_owned();
        let text = canonical::to_vec(&serde_json::json!({ "failures": failures }));
        let end = Some(StreamEnd::Refused { reason, content: content(&text, now) });
        Self { end, safety: None, warnings: Vec::new(), failures }
    }
}

fn judge_one(
    gate: &Gate,
    assembled: &Assembled,
    chunk: &Chunk,
    handoff: &Handoff,
    agents: &Agents,
    at: Micros,
) -> Result<PassedChunk, Vec<Failure>> {
    let case = PolicyContext {
        tenant: &handoff.tenant,
        agent: &handoff.source,
        to: Some(&handoff.target),
        at,
    };
    let target = agents.roster.find(&handoff.target);
    let edge = handoff.ruling.as_ref().map(|ruling| &ruling.edge);
    let lookup = ChunkLookup { case, target, edge };
    gate.chunk(&assembled.message, assembled.size, chunk, &lookup)
}

/// The verdict with its text redacted. A value that redaction would replace in the message itself was sent before,
/// chunk by chunk: a message that is not what opening and chunks make cannot close them.
fn unaltered(verdict: GateVerdict, policy: &RedactionPolicy) -> Result<GateVerdict, Failure> {
    let sent = match &verdict {
        GateVerdict::Pass(passed) => Some(passed.message.content()),
        _ => None,
    };
    let verdict = redacted(verdict, policy);
    match (&verdict, sent) {
        (GateVerdict::Pass(passed), Some(sent)) if passed.message.content() != sent => {
            let why = "the message that the chunks make has what redaction replaces, across their borders: it was sent";
            Err(Failure::new(Stage::Safety, Code::CredentialFound, "", why))
        }
        _ => Ok(verdict),
    }
}
