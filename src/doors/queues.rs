//! Messages from queues instead of HTTP: verdicts of receivers on reply channels, and handoffs of senders.
//!
//! A queue carries no key: the message's own signature proves who sent it. The effects are those of the same request
//! over HTTP.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;

use handoffd_broker::intake::verdicts::channel::{ReplyDesk, ReplyOutcome};
use handoffd_broker::intake::{Intake, QueuedOutcome, Refusal};
use handoffd_broker::transport::{Disposition, Sink, UnfinishedHandoff};
use handoffd_domain::handoff::{DeliveryMode, HandoffStatus};
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_gate::reply::handoff_of;
use handoffd_store::store::HandoffFilter;

/// Writes the document of a refusal for the sender of a handoff with this id.
pub type RefusalDocument = fn(Refusal, &str) -> Bytes;

/// Pause before a message is taken again that the broker could not take: overloaded, or its store away.
const AGAIN: Duration = Duration::from_secs(1);

/// Handoffs that one query reads.
const PAGE: i64 = 500;

/// Takes the verdicts of a tenant's receivers.
pub struct Verdicts {
    pub desk: ReplyDesk,
    pub tenant: TenantId,
    pub mode: DeliveryMode,
}

#[async_trait]
impl Sink for Verdicts {
    async fn take(&self, message: Bytes) -> Disposition {
        match self.desk.take(&self.tenant, self.mode, &message).await {
            ReplyOutcome::Unavailable => Disposition::Later(AGAIN),
            ReplyOutcome::Malformed => Disposition::Park("no reply".to_owned()),
            ReplyOutcome::Taken | ReplyOutcome::Ignored => Disposition::Done,
        }
    }

    fn order(&self, message: &[u8]) -> Option<String> {
        handoff_of(message)
    }

    async fn unfinished(&self, agent: &AgentId) -> Option<Vec<UnfinishedHandoff>> {
        let mut unfinished = Vec::new();
        for status in
            [HandoffStatus::Pending, HandoffStatus::Accepted, HandoffStatus::InputRequired]
        {
            let (target, status) = (Some(agent.clone()), Some(status));
            let filter = HandoffFilter { target, status, ..HandoffFilter::default() };
            let mut after = None;
            loop {
                let page = self.desk.intake.store.list_handoffs(
                    &self.tenant,
                    &filter,
                    after.as_ref(),
                    PAGE,
                );
                let page = page.await.ok()?;
                after = page.last().map(|last| (last.created_at, last.id.to_string()));
                let more = page.len() == PAGE as usize;
                // A pending handoff without a deadline waits in the outbox: its receiver does not know it.
                let sent = page.into_iter().filter(|handoff| {
                    handoff.status != HandoffStatus::Pending || handoff.deadline_at.is_some()
                });
                unfinished.extend(sent.map(|handoff| UnfinishedHandoff {
                    task_id: handoff.task_id,
                    handoff_id: handoff.id,
                }));
                if !more {
                    break;
                }
            }
        }
        Some(unfinished)
    }
}

/// Takes the handoffs of one tenant's senders.
pub struct Handoffs {
    pub intake: Arc<Intake>,
    pub tenant: TenantId,
    pub mode: DeliveryMode,
    pub document: RefusalDocument,
}

#[async_trait]
impl Sink for Handoffs {
    async fn take(&self, message: Bytes) -> Disposition {
        let outcome = self.intake.submit_queued(&self.tenant, message).await;
        let (result, disposition) = match outcome {
            QueuedOutcome::Committed => ("committed", Disposition::Done),
            QueuedOutcome::Refused(refusal, id) => {
                ("refused", Disposition::Refused((self.document)(refusal, &id)))
            }
            QueuedOutcome::Poison(why) => ("parked", Disposition::Park(why.to_owned())),
            QueuedOutcome::Unavailable => ("later", Disposition::Later(AGAIN)),
        };
        let labels = [self.mode.as_str(), result];
        self.intake.metrics.queue_submissions.with_label_values(&labels).inc();
        disposition
    }

    fn order(&self, message: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Task {
            task_id: String,
        }
        serde_json::from_slice::<Task>(message).ok().map(|one| one.task_id)
    }
}
