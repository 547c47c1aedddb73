//! Earlier messages of a task, read where a text may repeat the output of a tool in one of them: the class of that output
//! goes with its words over all later hops.

use std::sync::Arc;

use serde_json::Value;

use super::{Intake, IntakeError};
use crate::ledger::reply::LedgerError;
use handoffd_domain::ids::{HandoffId, TaskId, TenantId};
use handoffd_evidence::commitment::{Codec, unpack};
use handoffd_gate::safety::Explanation;
use handoffd_gate::{GateVerdict, PassedMessage};
use handoffd_store::store::{ContentStorage, HandoffFilter};

/// The most messages of a task that are read: as many as it may have hops.
const MOST: i64 = 32;

/// The most bytes of them, packed.
const MOST_BYTES: usize = 8 << 20;

/// A message as the store packs it.
type PackedMessage = (Codec, Vec<u8>);

fn read((codec, bytes): &PackedMessage) -> Option<Value> {
    unpack(*codec, bytes).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

impl Intake {
    /// Judges a message that passed once more if a text of it may repeat a tool's output of an earlier hop.
    pub(super) async fn beside_earlier(
        &self,
        tenant: &TenantId,
        verdict: GateVerdict,
    ) -> Result<GateVerdict, IntakeError> {
        let GateVerdict::Pass(passed) = verdict else { return Ok(verdict) };
        let envelope = passed.message.envelope();
        if !passed.may_repeat || envelope.parent_handoff_id.is_none() {
            return Ok(GateVerdict::Pass(passed));
        }
        let earlier = self.messages_of(tenant, envelope.task_id, envelope.handoff_id).await?;
        if earlier.is_empty() {
            return Ok(GateVerdict::Pass(passed));
        }
        let (gate, tenant, at) = (Arc::clone(&self.gate), tenant.clone(), self.clock.now());
        let run = move |passed: Box<PassedMessage>| {
            let earlier: Vec<Value> = earlier.iter().filter_map(read).collect();
            gate.beside_earlier(passed, (&tenant, at), &earlier)
        };
        // A thread of its own: packed, a long message may be as small as a short one.
        let judging = tokio::task::spawn_blocking(move || run(passed));
        Ok(judging.await.map_err(|err| LedgerError::Internal(err.to_string()))?)
    }

    /// Explains what the safety rules find in a kept message, beside the earlier messages of its task. Nothing of it is kept.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn explain(
        &self,
        tenant: &TenantId,
        (task, handoff): (TaskId, HandoffId),
        message: Value,
    ) -> Result<(Vec<Explanation>, Value), IntakeError> {
        let earlier = self.messages_of(tenant, task, handoff).await?;
        let scanner = self.scanner();
        let explaining = tokio::task::spawn_blocking(move || {
            let earlier: Vec<Value> = earlier.iter().filter_map(read).collect();
            (scanner.explain(&message, &earlier), message)
        });
        Ok(explaining.await.map_err(|err| LedgerError::Internal(err.to_string()))?)
    }

    /// The packed messages of a task, except one handoff's, as far as they are at hand.
    async fn messages_of(
        &self,
        tenant: &TenantId,
        task: TaskId,
        except: HandoffId,
    ) -> Result<Vec<PackedMessage>, IntakeError> {
        let filter = HandoffFilter { task_id: Some(task), ..HandoffFilter::default() };
        let found = self.store.list_handoffs(tenant, &filter, None, MOST).await;
        let found = found.map_err(Arc::new)?;
        let (mut messages, mut left) = (Vec::new(), MOST_BYTES);
        let others = found.iter().filter(|one| one.id != except);
        let ids: Vec<_> = others.filter_map(|one| one.content_id).collect();
        for content in self.store.list_contents(tenant, &ids).await.map_err(Arc::new)? {
            if let ContentStorage::Hot(_, codec, bytes) = content.kept {
                let Some(rest) = left.checked_sub(bytes.len()) else { break };
                left = rest;
                messages.push((codec, bytes));
            }
        }
        Ok(messages)
    }
}
