//! The outbox: claims, releases, heartbeats.

use std::collections::{BTreeMap, BTreeSet};

use crate::store::{
    ClaimKey, ClaimRelease, DeliveryClaim, HandoffKey, OutboxRow, ReceiverKey, Result, ReturnRow,
    StoreError, TaskKey,
};
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::Micros;
use handoffd_evidence::commitment::unpack;

use super::tables::Tables;

fn bounded(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(0)
}

impl Tables {
    /// Unclaimed rows that are due and the first of their task.
    fn due(&self, now: Micros) -> impl Iterator<Item = (&HandoffKey, &OutboxRow)> {
        self.outbox.iter().filter(move |(_, row)| {
            row.visible_at <= now
                && !self.outbox.values().any(|before| {
                    before.tenant == row.tenant
                        && before.task_id == row.task_id
                        && before.seq < row.seq
                })
        })
    }

    fn due_of<'a>(
        &'a self,
        receiver: &'a ReceiverKey,
        now: Micros,
    ) -> impl Iterator<Item = (&'a HandoffKey, &'a OutboxRow)> {
        self.due(now).filter(|(_, row)| row.tenant == receiver.0 && row.target == receiver.1)
    }

    pub(super) fn list_due_receivers(
        &self,
        mode: DeliveryMode,
        now: Micros,
        limit: i64,
    ) -> Vec<ReceiverKey> {
        let mut oldest: BTreeMap<ReceiverKey, Micros> = BTreeMap::new();
        for (_, row) in self.due(now).filter(|(_, row)| row.mode.is_pushed() == mode.is_pushed()) {
            let receiver = (row.tenant.clone(), row.target.clone());
            let at = oldest.entry(receiver).or_insert(row.created_at);
            *at = row.created_at.min(*at);
        }
        let mut receivers: Vec<_> = oldest.into_iter().map(|(who, at)| (at, who)).collect();
        receivers.sort();
        receivers.into_iter().take(bounded(limit)).map(|(_, who)| who).collect()
    }

    fn due_returns(&self, now: Micros) -> impl Iterator<Item = &ReturnRow> {
        self.returns.values().filter(move |row| row.visible_at <= now)
    }

    pub(super) fn claim_returns(
        &mut self,
        receiver: &ReceiverKey,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Vec<ReturnRow> {
        let own = |row: &&ReturnRow| row.tenant == receiver.0 && row.agent == receiver.1;
        let mut rows: Vec<_> = self.due_returns(now).filter(own).cloned().collect();
        rows.sort_by_key(|row| (row.returned_at, row.handoff_id));
        rows.truncate(bounded(limit));
        for row in &mut rows {
            row.visible_at = until;
            self.returns.insert((row.tenant.clone(), row.handoff_id), row.clone());
        }
        rows
    }

    pub(super) fn list_due_among(
        &self,
        receivers: &[ReceiverKey],
        now: Micros,
    ) -> Vec<ReceiverKey> {
        let due = self.due(now).map(|(_, row)| (row.tenant.clone(), row.target.clone()));
        let returns = self.due_returns(now).map(|row| (row.tenant.clone(), row.agent.clone()));
        let due: BTreeSet<_> = due.chain(returns).collect();
        due.into_iter().filter(|receiver| receivers.contains(receiver)).collect()
    }

    pub(super) fn list_queued(&self, (tenant, task): &TaskKey, limit: i64) -> Vec<OutboxRow> {
        let own = |row: &&OutboxRow| row.tenant == *tenant && row.task_id == *task;
        let mut rows: Vec<_> = self.outbox.values().filter(own).cloned().collect();
        rows.sort_by_key(|row| row.seq);
        rows.truncate(bounded(limit));
        rows
    }

    pub(super) fn list_waiting(
        &self,
        receiver: &ReceiverKey,
        now: Micros,
        limit: i64,
    ) -> Vec<OutboxRow> {
        let mut rows: Vec<_> = self.due_of(receiver, now).map(|(_, row)| row.clone()).collect();
        rows.sort_by_key(|row| (row.priority, row.created_at));
        rows.truncate(bounded(limit));
        rows
    }

    pub(super) fn list_unpulled(&self, before: Micros, now: Micros, limit: i64) -> Vec<OutboxRow> {
        let asked = |row: &OutboxRow| {
            self.escalations
                .values()
                .any(|one| one.is_open() && one.tenant == row.tenant && one.task_id == row.task_id)
        };
        let old = self.due(now).filter(|(_, row)| {
            row.mode == DeliveryMode::Pull && row.created_at < before && !asked(row)
        });
        let mut rows: Vec<_> = old.map(|(_, row)| row.clone()).collect();
        rows.sort_by_key(|row| row.created_at);
        rows.truncate(bounded(limit));
        rows
    }

    pub(super) fn forget_refused_tasks(&mut self, before: Micros) -> u64 {
        let known = self.refused_tasks.len();
        self.refused_tasks.retain(|_, row| row.updated_at >= before);
        (known - self.refused_tasks.len()) as u64
    }

    pub(super) fn claim(
        &mut self,
        receiver: &ReceiverKey,
        mode: DeliveryMode,
        broker: &str,
        now: Micros,
        until: Micros,
        limit: i64,
    ) -> Result<Vec<DeliveryClaim>> {
        let mut found: Vec<_> = self
            .due_of(receiver, now)
            .map(|(key, row)| (row.priority, row.created_at, row.seq, key.clone()))
            .collect();
        found.sort();
        found.truncate(bounded(limit));
        let mut claims = Vec::with_capacity(found.len());
        for (.., key) in found {
            if let Some(row) = self.outbox.get_mut(&key) {
                row.visible_at = until;
                row.claimed_by = Some(broker.to_owned());
                if row.mode.is_pushed() != mode.is_pushed() {
                    row.mode = mode;
                }
                row.attempt += 1;
            }
            claims.push(self.claim_of(&key)?);
        }
        Ok(claims)
    }

    fn claim_of(&self, key: &HandoffKey) -> Result<DeliveryClaim> {
        let gone = || StoreError::Denied("a row without its handoff".to_owned());
        let row = self.outbox.get(key).ok_or_else(gone)?;
        let handoff = self.handoffs.get(key).ok_or_else(gone)?;
        let edge = handoff.ruling.as_ref().map(|ruling| &ruling.edge);
        let sent = handoff.sent_id.or(handoff.content_id);
        let content = sent.and_then(|id| self.contents.get(&(key.0.clone(), id)));
        let body = match content {
            Some(part) => unpack(part.codec, &part.bytes).map_err(StoreError::Refused)?,
            None => Vec::new(),
        };
        Ok(DeliveryClaim {
            tenant: row.tenant.clone(),
            handoff_id: row.handoff_id,
            task_id: row.task_id,
            target: row.target.clone(),
            attempt: row.attempt,
            fencing_token: handoff.fencing_token,
            idempotent: handoff.idempotent,
            unsettled: DeliveryClaim::follows_unsettled(
                row.attempt,
                handoff.attempts,
                handoff.reason.is_some(),
            ),
            busy: row.busy,
            deadline_at: handoff.deadline_at,
            to_person: handoff.ruling.as_ref().is_some_and(|ruling| ruling.is_to_person()),
            max_retries: edge.and_then(|edge| edge.max_retries),
            verdict_ms: edge.and_then(|edge| edge.timeout_ms),
            traceparent: handoff.traceparent.clone(),
            tracestate: handoff.tracestate.clone(),
            span: handoff.span.clone(),
            context: handoff.context,
            compressed: handoff.sent_id.is_some(),
            body: body.into(),
            personal: self.personal_of(&key.0, handoff.origin.unwrap_or(handoff.id))?,
        })
    }

    pub(super) fn beat(&mut self, broker: &str, now: Micros) {
        self.brokers
            .entry(broker.to_owned())
            .and_modify(|seen| *seen = now.max(Micros(seen.0 + 1)))
            .or_insert(now);
    }

    /// Claimed rows of dispatchers, with the claiming broker.
    fn claimed(&self) -> impl Iterator<Item = (&HandoffKey, &OutboxRow, &String)> {
        let posted = self.outbox.iter().filter(|(_, row)| row.mode.is_pushed());
        posted.filter_map(|(key, row)| Some((key, row, row.claimed_by.as_ref()?)))
    }

    pub(super) fn list_strangers(&self) -> Vec<String> {
        let unknown = self.claimed().filter(|(.., broker)| !self.brokers.contains_key(*broker));
        let unknown: BTreeSet<_> = unknown.map(|(.., broker)| broker.clone()).collect();
        unknown.into_iter().collect()
    }

    pub(super) fn list_claims(&self, broker: &str) -> Vec<ClaimKey> {
        let own = self.claimed().filter(|(.., holder)| *holder == broker);
        own.map(|(key, row, _)| (key.clone(), row.attempt)).collect()
    }

    pub(super) fn release(&mut self, whose: ClaimRelease<'_>) -> Vec<HandoffKey> {
        match whose {
            ClaimRelease::Everyone => self.brokers.clear(),
            ClaimRelease::Own(broker) => {
                self.brokers.remove(broker);
            }
            ClaimRelease::Silent(broker, seen) => {
                if self.brokers.get(broker).copied() != seen {
                    return Vec::new();
                }
                self.brokers.remove(broker);
            }
            ClaimRelease::These(..) => {}
        }
        let freed: Vec<HandoffKey> = self
            .claimed()
            .filter(|(key, row, holder)| match whose {
                ClaimRelease::Everyone => true,
                ClaimRelease::Own(broker) | ClaimRelease::Silent(broker, _) => *holder == broker,
                ClaimRelease::These(broker, held) => {
                    *holder == broker && held.contains(&((*key).clone(), row.attempt))
                }
            })
            .map(|(key, ..)| key.clone())
            .collect();
        for key in &freed {
            if let Some(row) = self.outbox.get_mut(key) {
                (row.visible_at, row.claimed_by) = (Micros(0), None);
            }
        }
        freed
    }
}
