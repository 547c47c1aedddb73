//! Intake: from the bytes a sender posts to the command that commits them, or the record that says
//! why not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::{Instrument, Span};

use crate::directory::{Agents, Directory, Principal};
use crate::ledger::context::Rules;
use crate::ledger::reply::{LedgerError, Undone};
use crate::ledger::{HandoffWatch, Ledger};
use crate::metrics::Metrics;
use crate::vault::{AgentSecrets, SecretKind, Vault};
use handoffd_domain::credential::{CredentialForms, SecretPolicy};
use handoffd_domain::failure::Failure;
use handoffd_domain::group::Group;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, Micros, TenantId};
use handoffd_domain::redaction::RedactionPolicy;
use handoffd_domain::trace_context::TraceContext;
use handoffd_domain::warning::Warning;
use handoffd_evidence::append::LoggedRecord;
use handoffd_evidence::record::Actor;
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::safety::Scanner;
use handoffd_gate::{Gate, GateLookup, GateVerdict, PassedMessage};
use handoffd_store::clock::Clock;
use handoffd_store::store::{Store, StoreError};

mod appeals;
mod counts;
pub mod data_subjects;
pub mod decisions;
mod draft;
mod dry_run;
mod earlier;
mod groups;
mod guarded;
pub mod matching;
mod opinion;
pub mod policies;
pub mod questions;
mod queued;
mod reassign;
mod refusal;
pub mod refused;
mod repeat;
pub mod results;
pub mod spoken;
pub mod stream;
mod submit;
pub mod tasks;
pub mod turns;
pub mod verdicts;
pub mod waiting;
pub mod what_if;

use counts::Noticed;
use refusal::bare_refusal;
use submit::submission;
use turns::Turn;

pub use appeals::Appeal;
use opinion::OpinionTime;
pub use opinion::{Opinion, SecondOpinion};
pub use queued::QueuedOutcome;
pub use refused::Refusal;

/// Bodies above this are judged on a thread of their own, so that a large message does not hold up
/// the small ones: to scan this much takes few milliseconds.
const INLINE_LIMIT: usize = 16 * 1024;

/// The answer to a submission.
#[derive(Debug)]
pub enum Answer {
    /// Committed, now or before.
    Submitted(SubmittedHandoff),
    /// Committed to many, now or before.
    Group(SubmittedGroup),
    /// Refused, and the refusal recorded.
    Refused {
        /// Every failure that the gate found, in the order of its stages.
        failures: Vec<Failure>,
        /// Whether an earlier call was refused.
        replayed: bool,
        /// Time until a cap has room.
        retry_after: Option<Duration>,
        /// The task's new state, where the refusal changed it.
        undone: Option<Undone>,
    },
    /// The body is not JSON; the refusal is recorded.
    Malformed(Failure),
}

/// A handoff that this call or an earlier one committed.
#[derive(Debug)]
pub struct SubmittedHandoff {
    /// Its current row.
    pub handoff: Box<Handoff>,
    /// Its record, where this call committed the handoff.
    pub record: Option<LoggedRecord>,
    /// Whether an earlier call committed the handoff.
    pub replayed: bool,
    /// Whether it is another message's handoff, whose present status is the answer.
    pub repeated: bool,
    /// The contract that rules its edge.
    pub contract: Option<Arc<CompiledContract>>,
    /// A watch from before the commit, with [`Request::awaited`].
    pub watch: Option<HandoffWatch>,
    /// Fields that the broker accepts without full effect.
    pub warnings: Vec<Warning>,
}

/// A message to several receivers that this call or an earlier one committed.
#[derive(Debug)]
pub struct SubmittedGroup {
    pub group: Box<Group>,
    /// Its handoffs in the list's order; of a replay the first alone.
    pub handoffs: Vec<Handoff>,
    /// The record of the first, where this call committed the group.
    pub record: Option<LoggedRecord>,
    /// Whether an earlier call committed the group.
    pub replayed: bool,
    /// Fields that the broker accepts without full effect.
    pub warnings: Vec<Warning>,
}

/// Reasons for which a request is neither committed nor refused by the gate.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The ledger refused the command.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store cannot be read.
    #[error("the store is unavailable")]
    Store,
    /// The required classifier does not answer.
    #[error("the safety classifier is unavailable")]
    Classifier,
}

impl From<Arc<StoreError>> for IntakeError {
    fn from(err: Arc<StoreError>) -> Self {
        tracing::warn!(error = %err, "a lookup failed");
        Self::Store
    }
}

/// Submissions: gate, then ledger.
pub struct Intake {
    pub gate: Arc<Gate>,
    /// The external classifier, if configured.
    pub second_opinion: Option<Arc<dyn SecondOpinion>>,
    /// Keys and agents.
    pub directory: Arc<Directory>,
    pub ledger: Ledger,
    pub store: Arc<Store>,
    /// Rules that replace personal data and credentials before a message is stored.
    pub redaction: Arc<RedactionPolicy>,
    /// Opens signing secrets.
    pub vault: Vault,
    /// Source of the times of commands.
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    pub rules: Rules,
    /// Bounds of words beside messages.
    pub limits: spoken::WordLimits,
    pub streams: stream::Streams,
    /// How many submissions are judged and committed at once, and whose is next.
    pub turns: Arc<turns::Turns>,
}

/// A request body with its share of the memory budget.
#[derive(Clone)]
pub struct Body {
    pub bytes: Bytes,
    /// Dropped after the work, also when the caller disconnects earlier.
    pub guard: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// A submission's headers, and the way by which it came.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub idempotency_key: Option<String>,
    /// The token by which the sender holds the task (`Handoff-Fencing-Token`).
    pub fencing_token: Option<i64>,
    /// The request's own trace context, which goes before the message's.
    pub trace: Option<TraceContext>,
    /// The caller waits for the verdict.
    pub awaited: bool,
    /// When its first byte was read; `None`: now.
    pub arrived_at: Option<Micros>,
    /// The name of the door that made the request; `None`: the client itself. The network cannot set it.
    pub door: Option<&'static str>,
    /// The reference to the user that the message names; the intake sets it.
    pub user_ref: Option<String>,
}

impl Intake {
    /// Runs the gate, and commits the handoff or the refusal.
    ///
    /// # Errors
    /// [`IntakeError`]; nothing was written then.
    pub async fn submit(
        &self,
        principal: &Principal,
        body: Body,
        request: Request,
    ) -> Result<Answer, IntakeError> {
        let span = submission(&body, request.trace.as_ref()).await;
        let mut noticed = Noticed::default();
        // On the heap: with a span around it, it is too large for its caller's frame.
        let gated = Box::pin(self.gated(principal, body, request, &mut noticed));
        let answered = gated.instrument(span).await;
        self.count(&noticed, &answered);
        self.count_sender(principal, &answered);
        answered
    }

    async fn gated(
        &self,
        principal: &Principal,
        body: Body,
        mut request: Request,
        noticed: &mut Noticed,
    ) -> Result<Answer, IntakeError> {
        let turn = self.turn(principal).await?;
        let verdict = self.judge(principal, body).await?;
        // The classifier is another system: while it is asked, others have their turn.
        let turn = if self.asks_a_classifier() && matches!(verdict, GateVerdict::Pass(_)) {
            drop(turn);
            None
        } else {
            Some(turn)
        };
        let (verdict, safety) =
            self.with_second_opinion(principal, verdict, OpinionTime::MayBeAfter).await?;
        let _turn = match turn {
            Some(turn) => turn,
            None => self.turn(principal).await?,
        };
        *noticed = Noticed::of(&verdict);
        let now = self.clock.now();
        let message = match &verdict {
            GateVerdict::Pass(passed) => Some(&passed.message),
            GateVerdict::Refused(refused) => refused.message.as_ref(),
            GateVerdict::Malformed(_) => None,
        };
        let user = message.and_then(draft::user);
        request.user_ref = user.map(|user| self.vault.user_ref(&principal.tenant, user));
        match verdict {
            GateVerdict::Pass(passed) if passed.group.is_some() => {
                self.commit_group(principal, *passed, safety, request, now).await
            }
            GateVerdict::Pass(passed) => {
                // Its state is large, and every other path would carry it.
                Box::pin(self.commit(principal, *passed, safety, request, now)).await
            }
            GateVerdict::Malformed(failure) => {
                let refuse = bare_refusal(vec![failure.clone()], (None, None), now);
                self.record(principal, refuse, now).await?;
                Ok(Answer::Malformed(failure))
            }
            GateVerdict::Refused(refused) => {
                self.refuse(principal, *refused, safety, request, now).await
            }
        }
    }

    /// Waits for the sender's turn.
    async fn turn(&self, principal: &Principal) -> Result<Turn, IntakeError> {
        let turn = self.turns.take(principal).await;
        turn.ok_or_else(|| {
            self.metrics.ledger_overloads.inc();
            IntakeError::Ledger(LedgerError::Overloaded)
        })
    }

    async fn judge(&self, principal: &Principal, body: Body) -> Result<GateVerdict, IntakeError> {
        self.judge_for(principal, None, body).await
    }

    /// Runs the gate for a sender, or for an agent that reads the sender's message as its receiver.
    async fn judge_for(
        &self,
        principal: &Principal,
        receiver: Option<AgentId>,
        body: Body,
    ) -> Result<GateVerdict, IntakeError> {
        let agents = self.directory.agents(&principal.tenant).await?;
        let mut verdict =
            self.run_gate(principal, receiver.as_ref(), body.clone(), Arc::clone(&agents)).await?;
        if matches!(verdict, GateVerdict::Refused(_))
            && let Some(newer) = self.directory.newer_agents(&principal.tenant, &agents).await?
        {
            verdict = self.run_gate(principal, receiver.as_ref(), body, newer).await?;
        }
        match receiver {
            // An agent that only names itself as the receiver learns nothing of the task's earlier messages.
            Some(_) => Ok(verdict),
            None => self.beside_earlier(&principal.tenant, verdict).await,
        }
    }

    /// Runs the gate over these agents.
    async fn run_gate(
        &self,
        principal: &Principal,
        receiver: Option<&AgentId>,
        body: Body,
        agents: Arc<Agents>,
    ) -> Result<GateVerdict, IntakeError> {
        let contracts = self.directory.contracts(&principal.tenant).await?;
        let secrets = self.signing_secrets(principal, &agents);
        let timer = self.metrics.gate_seconds.start_timer();
        let gate = Arc::clone(&self.gate);
        let redaction = Arc::clone(&self.redaction);
        let caller = principal.agent.clone();
        let tenant = principal.tenant.clone();
        let receiver = receiver.cloned();
        let at = self.clock.now();
        let large = body.bytes.len() > INLINE_LIMIT || contracts.has_schemas();
        let span = Span::current();
        let run = move || {
            let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
            let Body { bytes, guard } = body;
            let verdict = gate.run(
                &bytes,
                &GateLookup {
                    tenant: &tenant,
                    at,
                    caller: caller.as_ref(),
                    receiver: receiver.as_ref(),
                    roster: &agents.roster,
                    contracts: &contracts,
                    signing_secrets: &secrets,
                },
            );
            drop(guard);
            redacted(verdict, &redaction)
        };
        let verdict = if large {
            tokio::task::spawn_blocking(move || span.in_scope(run))
                .await
                .map_err(|err| LedgerError::Internal(err.to_string()))?
        } else {
            run()
        };
        timer.observe_duration();
        Ok(verdict)
    }

    /// The safety rules in use.
    #[must_use]
    pub fn scanner(&self) -> Scanner {
        self.gate.scanner.clone()
    }

    /// The valid signing secrets of an agent; none if it does not exist.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn secrets_of(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
    ) -> Result<Vec<zeroize::Zeroizing<Vec<u8>>>, Arc<StoreError>> {
        let agents = self.directory.agents(tenant).await?;
        Ok(self.secrets_in(Some(agent), &agents))
    }

    fn signing_secrets(
        &self,
        principal: &Principal,
        agents: &Agents,
    ) -> Vec<zeroize::Zeroizing<Vec<u8>>> {
        self.secrets_in(principal.agent.as_ref(), agents)
    }

    fn secrets_in(
        &self,
        agent: Option<&AgentId>,
        agents: &Agents,
    ) -> Vec<zeroize::Zeroizing<Vec<u8>>> {
        let Some(row) = agent.and_then(|id| agents.row(id)) else {
            return Vec::new();
        };
        let now = self.clock.now();
        AgentSecrets::parse(&row.secrets)
            .open(&self.vault, &row.tenant, &row.agent.agent_id, SecretKind::Signing, now)
            .unwrap_or_else(|err| {
                tracing::error!(error = %err, agent = %row.agent.agent_id, "a signing secret does not open");
                Vec::new()
            })
    }
}

/// Redacts a verdict's message; nothing after it sees a redacted value.
fn redacted(verdict: GateVerdict, policy: &RedactionPolicy) -> GateVerdict {
    match verdict {
        GateVerdict::Pass(passed) => {
            let message = passed.message.redacted(policy);
            GateVerdict::Pass(Box::new(PassedMessage { message, ..*passed }))
        }
        GateVerdict::Refused(mut refused) => {
            refused.message = refused.message.map(|message| message.redacted(policy));
            if policy.secrets != SecretPolicy::Warn {
                for finding in &mut refused.findings {
                    if let Some(safe) = CredentialForms::builtin().redact(&finding.excerpt, None) {
                        finding.excerpt = safe;
                    }
                }
            }
            if let Some(kept) = &mut refused.unread.checkpoint {
                policy.redact_checkpoint(kept);
            }
            GateVerdict::Refused(refused)
        }
        malformed @ GateVerdict::Malformed(_) => malformed,
    }
}

/// Runs work on a large text on a thread of its own.
pub(crate) async fn heavy<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LedgerError> {
    if size <= INLINE_LIMIT {
        return Ok(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|err| LedgerError::Internal(err.to_string()))
}

/// The caller as the actor of a record.
#[must_use]
pub fn actor(principal: &Principal) -> Actor {
    principal.actor()
}
