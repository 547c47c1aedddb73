//! Verdicts of receivers: accept, reject, heartbeat, complete, fail (specification §3), by callback and by reply channel.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::refused::Refusal;
use super::results::Statements;
use super::spoken::{Addressed, Spoken};
use super::{Intake, actor};
use crate::archive::Contents;
use crate::directory::Principal;
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{TakeOver, Verdict, VerdictKind};
use crate::ledger::reply::HandoffReply;
use handoffd_domain::canonical;
use handoffd_domain::failure::escaped;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::Micros;
use handoffd_domain::lenient::{self, UnreadableParts};
use handoffd_domain::warning::{Warning, WarningCode};
use handoffd_gate::reply::ReplyVerdict;

pub mod channel;
mod fitted;
mod words;
#[cfg(test)]
mod words_tests;

use super::refused::misfit;
use words::{Stated, kind_of, repeated, uncounted, without_effect};

/// A worker that takes a handoff over from one that is silent.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TakeoverBody {
    /// How often the broker will hear of the new holder. Without it the new lease cannot be taken over before it ends.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000))]
    pub heartbeat_interval_ms: Option<Value>,
    /// Members that the request does not have.
    #[serde(flatten)]
    #[cfg_attr(feature = "openapi", schema(ignore))]
    pub others: Map<String, Value>,
}

/// A receiver's verdict as a request or a reply brings it.
#[derive(Debug)]
pub struct Heard {
    pub verdict: ReplyVerdict,
    /// The token that came with the delivery.
    pub fencing_token: i64,
    /// The members of the body beside the token.
    pub members: Map<String, Value>,
    /// The parts of the body that could not be kept as they came.
    pub unreadable: UnreadableParts,
    /// The time at which it was said: a lease counts from then.
    pub at: Micros,
}

impl Intake {
    /// Carries out a verdict: reads its members, takes credentials out, scans a result, and gives the rest to the ledger.
    ///
    /// # Errors
    /// A member does not fit, the safety rules refuse the result, or the ledger refuses; the handoff stays as it is.
    pub async fn verdict(
        &self,
        contents: &Contents,
        addressed: Addressed<'_>,
        heard: Heard,
    ) -> Result<Spoken, Refusal> {
        let Addressed { receiver, handoff } = addressed;
        let Heard { verdict, fencing_token, mut members, unreadable, at } = heard;
        let most = self.limits.max_iterations;
        let stated = Stated::read(verdict, &mut members, &handoff, most)?;
        let Stated { interval_ms, spent, .. } = stated;
        let mut warnings = self.words_to_keep(receiver, &handoff, &mut members, &unreadable)?;
        // The row keeps the reason, too: as it is redacted.
        let kind = kind_of(verdict, &members)?;
        warnings.extend(uncounted(&members, spent.as_ref()));
        warnings.extend(self.lost_words(contents, &handoff, &kind, &members).await?);
        let now = self.clock.now();
        let mut kept_content = None;
        if !members.is_empty() {
            let words = Value::Object(members);
            let bytes = canonical::to_vec(&words);
            if kind == VerdictKind::Complete {
                let way = (&handoff.target, &handoff.source);
                warnings.extend(self.scan_words(&handoff, way, words, bytes.len(), now).await?);
            }
            kept_content = Some(content(&bytes, now));
        }
        let heard_at = if kind == VerdictKind::Heartbeat { at.min(now) } else { now };
        let verdict = Verdict {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            kind,
            fencing_token,
            content: kept_content,
            spent,
            said_at: heard_at,
            interval_ms,
            // A heartbeat that waited in a queue extends the lease from when it was said. An acceptance begins it now.
            lease_until: heard_at.plus(self.rules.lease),
        };
        let call = Call { tenant: receiver.tenant.clone(), at: now, actor: actor(receiver) };
        let HandoffReply { handoff, .. } = self.ledger.handle(call, verdict).await?;
        Ok(Spoken { handoff, warnings })
    }

    /// Redacts the members, and takes out of them what no record keeps.
    fn words_to_keep(
        &self,
        receiver: &Principal,
        handoff: &Handoff,
        members: &mut Map<String, Value>,
        unreadable: &UnreadableParts,
    ) -> Result<Vec<Warning>, Refusal> {
        let mut warnings = self.redact_words(members)?;
        // The broker follows remote tasks without a key, and notes itself the parts that it could not keep.
        if !receiver.key_id.is_empty() && members.remove(lenient::OWN).is_some() {
            let why = "is the broker's own: nothing of it is kept";
            warnings.push(without_effect(&format!("/{}", lenient::OWN), why));
        }
        unreadable.note_in(members);
        warnings.extend(
            unreadable.named.iter().map(|part| {
                Warning::new(WarningCode::Unreadable, &part.pointer, part.why.sentence())
            }),
        );
        if !unreadable.is_empty() {
            tracing::info!(handoff_id = %handoff.id, agent_id = %handoff.target, parts = unreadable.count, "members of a receiver's answer beside its verdict are unreadable");
        }
        Ok(warnings)
    }

    /// Warns where a verdict comes again with other words: those of the first one are kept.
    async fn lost_words(
        &self,
        contents: &Contents,
        handoff: &Handoff,
        kind: &VerdictKind,
        members: &Map<String, Value>,
    ) -> Result<Option<Warning>, Refusal> {
        let Some(kind) = repeated(kind, handoff).filter(|_| !members.is_empty()) else {
            return Ok(None);
        };
        let statements = Statements { store: &self.store, contents };
        let before = statements.of_kind(handoff, kind).await?;
        if before.as_ref().and_then(Value::as_object) == Some(members) {
            return Ok(None);
        }
        let why = format!("the handoff is {kind} already: these words are not kept");
        Ok(Some(without_effect("", &why)))
    }

    /// Takes an accepted handoff over from a silent worker of the same agent.
    ///
    /// # Errors
    /// A member does not fit, or the ledger refuses: the holder was heard of, or no lease runs.
    pub async fn take_over(
        &self,
        addressed: Addressed<'_>,
        body: TakeoverBody,
    ) -> Result<Handoff, Refusal> {
        let Addressed { receiver, handoff } = addressed;
        let interval_ms = words::interval(body.heartbeat_interval_ms)?;
        if let Some(name) = body.others.keys().next() {
            let pointer = format!("/{}", escaped(name));
            return Err(misfit(&pointer, "is not a member of a takeover").into());
        }
        let now = self.clock.now();
        let take = TakeOver {
            task_id: handoff.task_id,
            handoff_id: handoff.id,
            interval_ms,
            lease_until: now.plus(self.rules.lease),
        };
        let call = Call { tenant: receiver.tenant.clone(), at: now, actor: actor(receiver) };
        let HandoffReply { handoff, .. } = self.ledger.handle(call, take).await?;
        Ok(handoff)
    }
}
