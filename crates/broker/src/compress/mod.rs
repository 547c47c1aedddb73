//! Compression as a step of delivery (`docs/context.md`): after the commit and before the first attempt. A claim whose
//! message is over its receiver's limit gets the compressed message here, once that and its record are durable. Who
//! claims next after a crash finds either nothing, and compresses, or the compressed message.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::directory::Directory;
use crate::ledger::Ledger;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::Compress;
use crate::ledger::reply::{LedgerError, Noted};
use crate::metrics::Metrics;
use handoffd_domain::canonical;
use handoffd_domain::money::Usd;
use handoffd_domain::residency::Crossing;
use handoffd_domain::window::{CompressedBy, CompressionFacts, ContextSettings, Tokenizer};
use handoffd_evidence::record::Actor;
use handoffd_gate::context::compress::{CompressedMessage, CompressionPlan, extractive};
use handoffd_store::clock::Clock;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::DeliveryClaim;

/// First pause before a commit that the ledger could not take is repeated.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two such commits.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The largest message, in bytes, that is compressed where it is: a fraction of a millisecond.
const INLINE_LIMIT: usize = 4 * 1024;

/// The most that a model's summary may cost, as a share of the sender's stated spending (seed 000 §9).
pub const COST_SHARE: f64 = 0.05;

/// The input of a model: what it condenses, and how much it may write.
#[derive(Debug, Clone)]
pub struct SummaryRequest {
    /// The turns to condense, a line or more each, behind the role.
    pub turns: String,
    /// The sender's own summary of the earlier turns.
    pub earlier: String,
    /// Tokens that the summary may have.
    pub room: u64,
    /// Tokens of the turns.
    pub tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSummary {
    pub text: String,
    /// The price of the tokens that the endpoint states, in US dollars.
    pub cost: Usd,
}

/// Why a model gave no summary: a code for record and metrics, and words for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryError {
    /// `TIMEOUT`, `UNAVAILABLE`, `UNREADABLE`, `UNSAFE` or `COST_BOUND`.
    pub code: &'static str,
    /// The cause, without an address or a sender's words.
    pub why: String,
}

/// Whether turns went to the model, whatever came of it.
fn was_sent(asked: &Result<ModelSummary, SummaryError>) -> bool {
    asked.as_ref().err().is_none_or(|err| err.code != COST_BOUND)
}

/// The code of a call that is not made, since it may cost too much.
const COST_BOUND: &str = "COST_BOUND";

/// A model that condenses turns.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// The transfer of data by which it is asked, where it is in another region.
    fn crossing(&self) -> Option<Crossing> {
        None
    }
    /// Returns the price of a call that uses all the room of its answer, in US dollars.
    fn most(&self, request: &SummaryRequest) -> Usd;
    /// Condenses turns, within the settings' time.
    async fn summarize(&self, request: &SummaryRequest) -> Result<ModelSummary, SummaryError>;
}

/// Why a claim has no message to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpreparedReason {
    /// The claim is no longer the current one.
    Superseded,
    /// The ledger cannot be reached, or the broker stops.
    Away,
}

/// The step: its compressors and what it counts.
pub struct CompressionStep {
    /// Agents, for their tokenizers.
    pub directory: Arc<Directory>,
    /// The clock that stamps commands.
    pub clock: Arc<dyn Clock>,
    /// The instruments of compression.
    pub metrics: Arc<Metrics>,
    /// How many turns stay.
    pub settings: ContextSettings,
    /// The model, where one is set; without one the embedded compressor serves.
    pub model: Option<Arc<dyn Summarizer>>,
    /// Ends the wait for the ledger.
    pub stopping: CancellationToken,
}

impl CompressionStep {
    /// Puts the compressed message into a claim whose message is to be compressed; any other claim stays as it is.
    /// Returns once the message and its record are durable.
    ///
    /// # Errors
    /// [`UnpreparedReason`]: nothing may be sent.
    pub async fn prepare(
        &self,
        ledger: &Ledger,
        claim: &mut DeliveryClaim,
    ) -> Result<(), UnpreparedReason> {
        if !claim.is_to_compress() {
            return Ok(());
        }
        let timer = self.metrics.compression_seconds.start_timer();
        let Some((compressed, body)) = self.compressed(claim).await else {
            timer.stop_and_discard();
            return Ok(());
        };
        timer.observe_duration();
        fault::at(Step::CompressBegin);
        self.commit(ledger, claim, &compressed.facts, &body).await?;
        fault::at(Step::CompressDone);
        self.count(&compressed.facts, spent(&compressed.message));
        claim.body = body;
        claim.compressed = true;
        Ok(())
    }

    /// The compressed message; `None` where the exact count says that the message fits, or nothing can be compressed.
    async fn compressed(&self, claim: &DeliveryClaim) -> Option<(CompressedMessage, Bytes)> {
        let facts = claim.context?;
        let limit = facts.limit?;
        let agents = self.directory.agents(&claim.tenant).await.ok();
        let row = agents.as_ref().and_then(|agents| agents.row(&claim.target));
        let tokenizer = row.and_then(|row| row.agent.tokenizer).unwrap_or(facts.tokenizer);
        let (body, keep) = (claim.body.clone(), self.settings.keep_turns);
        let size = body.len();
        let plan = heavy(size, move || plan(&body, limit, keep, tokenizer)).await??;
        let plan = Arc::new(plan);
        let mut fallback = None;
        let mut written = None;
        let mut crossing = None;
        if let Some(model) = self.model.as_ref().filter(|_| plan.needs_summary()) {
            let asked = self.ask(&**model, &plan, &claim.body).await;
            crossing = model.crossing().filter(|_| was_sent(&asked));
            match asked {
                Ok(summary) => written = Some(summary),
                Err(err) => {
                    let SummaryError { code, why } = err;
                    tracing::warn!(handoff_id = %claim.handoff_id, code, why, "the model gave no summary");
                    self.metrics.compression_fallbacks.with_label_values(&[code]).inc();
                    fallback = Some(code.to_owned());
                }
            }
        }
        heavy(size, move || {
            let mut compressed = match &written {
                Some(ModelSummary { text, .. }) => plan.apply(text, CompressedBy::Model),
                None => plan.apply(&extractive::summary(&plan), CompressedBy::Extractive),
            };
            compressed.facts.cost = written.map(|summary| summary.cost);
            compressed.facts.fallback = fallback;
            compressed.facts.crossing = crossing;
            let body = Bytes::from(canonical::to_vec(&compressed.message));
            (compressed, body)
        })
        .await
    }

    async fn ask(
        &self,
        model: &dyn Summarizer,
        plan: &CompressionPlan,
        body: &[u8],
    ) -> Result<ModelSummary, SummaryError> {
        let turns = plan.replaced_turns();
        let tokens = handoffd_gate::context::tokens::count(&turns, plan.tokenizer);
        let request =
            SummaryRequest { turns, earlier: plan.earlier.clone(), room: plan.room, tokens };
        let stated = serde_json::from_slice::<Value>(body).ok().and_then(|message| spent(&message));
        let bound = stated.unwrap_or_default() * COST_SHARE;
        let most = model.most(&request);
        if most.as_f64() > bound {
            return Err(SummaryError {
                code: COST_BOUND,
                why: format!("the call may cost {most} US dollars, the bound is {bound:.6}"),
            });
        }
        model.summarize(&request).await
    }

    /// Commits the compressed message, for as long as the ledger is away and the broker does not stop.
    async fn commit(
        &self,
        ledger: &Ledger,
        claim: &DeliveryClaim,
        facts: &CompressionFacts,
        body: &[u8],
    ) -> Result<(), UnpreparedReason> {
        let now = self.clock.now();
        let call = Call { tenant: claim.tenant.clone(), at: now, actor: Actor::broker() };
        let command = Compress {
            task_id: claim.task_id,
            handoff_id: claim.handoff_id,
            attempt: claim.attempt,
            content: content(body, now),
            facts: facts.clone(),
        };
        let mut pause = PAUSE;
        loop {
            match ledger.handle(call.clone(), command.clone()).await {
                Ok(Noted::Recorded) => return Ok(()),
                Ok(Noted::Superseded) => return Err(UnpreparedReason::Superseded),
                Err(LedgerError::Unavailable | LedgerError::Overloaded) => {
                    tokio::select! {
                        biased;
                        () = self.stopping.cancelled() => return Err(UnpreparedReason::Away),
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(err) => {
                    tracing::error!(error = %err, "a compressed message could not be kept");
                    return Err(UnpreparedReason::Away);
                }
            }
        }
    }

    fn count(&self, facts: &CompressionFacts, stated: Option<f64>) {
        self.metrics.compressions.with_label_values(&[facts.by.as_str()]).inc();
        let lost = facts.facts.saturating_sub(facts.facts_kept);
        let written = facts.facts_kept.saturating_sub(facts.facts_appended);
        for (result, count) in
            [("kept", written), ("appended", facts.facts_appended), ("lost", lost)]
        {
            self.metrics.compression_facts.with_label_values(&[result]).inc_by(count);
        }
        if !facts.fits {
            self.metrics.compressions_over.inc();
        }
        if let (Some(cost), Some(stated)) = (facts.cost, stated.filter(|usd| *usd > 0.0)) {
            self.metrics.compression_cost_share.observe(cost.as_f64() / stated);
        }
    }
}

/// Reads `costSpentSoFarUSD` of a message, in US dollars.
fn spent(message: &Value) -> Option<f64> {
    message.pointer("/costTracking/costSpentSoFarUSD")?.as_f64()
}

fn plan(
    body: &[u8],
    limit: u64,
    keep_turns: usize,
    tokenizer: Tokenizer,
) -> Option<CompressionPlan> {
    let message: Value = serde_json::from_slice(body).ok()?;
    CompressionPlan::new(&message, limit, keep_turns, tokenizer).filter(CompressionPlan::is_over)
}

/// Runs work on a message of so many bytes: of milliseconds on a thread of its own, `None` where that ended by a panic.
async fn heavy<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if size <= INLINE_LIMIT {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}
