//! Makes the bundle of a task: its trace first, then the zip around it. The bundle is a temporary file, since the
//! evidence of a zip is at its end.

use std::fs::File;

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::write::{BundleOrder, WriteError, write};
use crate::archive::Contents;
use crate::reader::ShownWords;
use crate::trace::{self, TaskLog, TraceChunk};
use handoffd_domain::ids::{Micros, TaskId, TenantId};
use handoffd_evidence::receipt::Notary;
use handoffd_store::store::Store;

/// Attempts at a bundle while the task goes on. The trace of the last one may be ahead of its records.
const TRIES: u32 = 4;

#[derive(Clone, Copy)]
pub struct BundleSources<'a> {
    /// Store of records, proofs and handoffs.
    pub store: &'a Store,
    /// Reader of the contents.
    pub contents: &'a Contents,
    /// Signs the tree head.
    pub notary: &'a Notary,
}

/// Makes the bundle of a task in a temporary file, which is returned at its beginning; `None` where no record is of
/// that task.
///
/// # Errors
/// [`WriteError`].
pub async fn make(
    sources: BundleSources<'_>,
    tenant: &TenantId,
    task: TaskId,
    personal: bool,
    at: Micros,
) -> Result<Option<File>, WriteError> {
    let BundleSources { store, contents, notary } = sources;
    let mut tries = 1;
    loop {
        let Some(head) = store.find_head(tenant).await? else { return Ok(None) };
        if store.list_records(tenant, Some(task), 0, 1, false).await?.is_empty() {
            return Ok(None);
        }
        let until = i64::try_from(head.tree.size()).unwrap_or(i64::MAX);
        let found = store.find_task(&(tenant.clone(), task)).await?;
        let status = found.map(|task| task.status.as_str());
        let trace = spool(TaskLog { store, contents, tenant, id: task, until }, status).await?;
        // The trace must give the same state of a handoff as the records.
        store.settle_log(tenant).await?;
        let moved = !store.list_records(tenant, Some(task), until, 1, false).await?.is_empty();
        if moved && tries < TRIES {
            tries += 1;
            continue;
        }
        let head = &head;
        match write(BundleOrder {
            store,
            contents,
            notary,
            tenant,
            head,
            task,
            personal,
            trace,
            at,
        })
        .await
        {
            Err(WriteError::Moved) if tries < TRIES => tries += 1,
            made => return made.map(Some),
        }
    }
}

/// Writes the whole trace, as people read it, into a temporary file.
async fn spool(log: TaskLog<'_>, status: Option<&str>) -> Result<File, WriteError> {
    let (chunks, mut body) = mpsc::channel::<TraceChunk>(4);
    let saving = async {
        let mut file = tokio::fs::File::from_std(tempfile::tempfile()?);
        while let Some(chunk) = body.recv().await {
            file.write_all(&chunk?).await?;
        }
        file.flush().await?;
        Ok::<_, WriteError>(file.into_std().await)
    };
    let (written, saved) =
        tokio::join!(trace::write(&log, status, &ShownWords::All, chunks), saving);
    written?;
    saved
}
