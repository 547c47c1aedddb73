//! Statements of receivers beside their verdicts, read from the log for the parties of a handoff (specification §10.3).

use std::collections::HashMap;

use serde_json::Value;

use crate::archive::{Contents, opened};
use handoffd_domain::handoff::{DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{HandoffId, TaskId, TenantId};
use handoffd_domain::lenient;
use handoffd_store::store::{Result, Store, StoredRecord};

/// Records read at once.
const PAGE: i64 = 256;

/// Reads statements of receivers.
#[derive(Clone, Copy)]
pub struct Statements<'a> {
    pub store: &'a Store,
    pub contents: &'a Contents,
}

/// The result in the body of a `/complete`.
#[must_use]
pub fn result(body: Value) -> Option<Value> {
    match body {
        Value::Object(mut members) => members.remove("result"),
        _ => None,
    }
}

impl Statements<'_> {
    /// The body of the receiver's `/complete`, from the last record that has one. `None`: it had none, or it was erased or is
    /// past its time.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn completion(&self, handoff: &Handoff) -> Result<Option<Value>> {
        self.of_kind(handoff, HandoffStatus::Completed.as_str()).await
    }

    /// `details`, `metadata` and `error` of the receiver's verdict, and what of it could not be kept, where the handoff has one
    /// and the receiver gave any.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn verdict(&self, handoff: &Handoff) -> Result<Option<Value>> {
        if handoff.status == HandoffStatus::Failed {
            let body = self.of_kind(handoff, HandoffStatus::Failed.as_str()).await?;
            if let Some(Value::Object(mut members)) = body {
                members.retain(|name, _| ["details", "metadata", "error"].contains(&name.as_str()));
                if !members.is_empty() {
                    return Ok(Some(Value::Object(members)));
                }
            }
        }
        let kind = match handoff.status {
            HandoffStatus::Rejected => HandoffStatus::Rejected,
            _ if handoff.accepted_at.is_some() => HandoffStatus::Accepted,
            _ => return Ok(None),
        };
        let body = self.of_kind(handoff, kind.as_str()).await?;
        let Some(Value::Object(mut members)) = body else { return Ok(None) };
        members.retain(|name, _| matches!(name.as_str(), "details" | "metadata" | lenient::OWN));
        // An A2A agent's answer by a message is in its acceptance. The result shows it once the API judged it.
        if handoff.mode == DeliveryMode::A2a
            && members.get("metadata").is_some_and(|own| own.pointer("/a2a/message").is_some())
        {
            members.remove("metadata");
        }
        Ok((!members.is_empty()).then_some(Value::Object(members)))
    }

    /// Content of a handoff's last record of a kind; `None` as for [`Self::completion`].
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn of_kind(&self, handoff: &Handoff, kind: &str) -> Result<Option<Value>> {
        let (tenant, task) = (&handoff.tenant, handoff.task_id);
        let id = handoff.id.to_string();
        let is_it = |record: &StoredRecord| {
            record.kind == kind && record.handoff_id.as_deref() == Some(id.as_str())
        };
        let mut last = None;
        let mut pages = self.pages(tenant, task, handoff.id).await?;
        while let Some(page) = pages.next().await? {
            let newest = page.iter().rev().find(|record| is_it(record));
            last = newest.map(|record| record.leaf_index).or(last);
        }
        match last {
            Some(leaf_index) => self.content(tenant, task, leaf_index).await,
            None => Ok(None),
        }
    }

    /// The results of several handoffs of a task, by handoff: what each receiver's `/complete` named as its `result`, from
    /// the last record that has one. `first` is the handoff that was committed first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn results(
        &self,
        tenant: &TenantId,
        task: TaskId,
        first: HandoffId,
        handoffs: &[HandoffId],
    ) -> Result<HashMap<HandoffId, Value>> {
        let kind = HandoffStatus::Completed.as_str();
        let mut places: HashMap<HandoffId, i64> = HashMap::new();
        let mut pages = self.pages(tenant, task, first).await?;
        while let Some(page) = pages.next().await? {
            for record in page.iter().filter(|record| record.kind == kind) {
                let id = record.handoff_id.as_deref().and_then(|id| id.parse().ok());
                if let Some(id) = id.filter(|id| handoffs.contains(id)) {
                    places.insert(id, record.leaf_index);
                }
            }
        }
        let mut results = HashMap::new();
        for (id, leaf_index) in places {
            if let Some(value) = self.content(tenant, task, leaf_index).await?.and_then(result) {
                results.insert(id, value);
            }
        }
        Ok(results)
    }

    /// The records of a task from the commit of a handoff on.
    async fn pages<'a>(
        &'a self,
        tenant: &'a TenantId,
        task: TaskId,
        handoff: HandoffId,
    ) -> Result<RecordPages<'a>> {
        let committed = self.store.find_receipt(&(tenant.clone(), handoff)).await?;
        let from = committed.map_or(0, |sealed| sealed.leaf_index);
        Ok(RecordPages { store: self.store, tenant, task, from, ended: false })
    }

    async fn content(&self, tenant: &TenantId, task: TaskId, leaf: i64) -> Result<Option<Value>> {
        let records = self.contents.list_records(tenant, Some(task), leaf, 1).await?;
        Ok(records.first().and_then(opened))
    }
}

/// Records of a task without their contents, page by page.
struct RecordPages<'a> {
    store: &'a Store,
    tenant: &'a TenantId,
    task: TaskId,
    from: i64,
    ended: bool,
}

impl RecordPages<'_> {
    async fn next(&mut self) -> Result<Option<Vec<StoredRecord>>> {
        if self.ended {
            return Ok(None);
        }
        let page = self.store.list_records(self.tenant, Some(self.task), self.from, PAGE, false);
        let page = page.await?;
        self.ended = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        let Some(end) = page.last() else { return Ok(None) };
        self.from = end.leaf_index + 1;
        Ok(Some(page))
    }
}
