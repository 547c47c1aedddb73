//! `GET /tasks/{taskId}/trace?format=bundle`: the regulator's bundle. It is written to a temporary file
//! first, since the evidence of a zip stands at its end, and then streamed.

use std::fs::File;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::Api;
use super::problem::Problem;
use super::trace::{Log, spool};
use handoffd_broker::archive::Contents;
use handoffd_broker::bundle::{self, BundleOrder, WriteError};
use handoffd_broker::directory::Principal;
use handoffd_core::domain::failure::Code;
use handoffd_core::domain::ids::{Micros, TaskId, TenantId};
use handoffd_core::evidence::receipt::Notary;
use handoffd_store::store::{Role, Store, StoreError};

/// Bytes that are sent at once.
const CHUNK: usize = 64 * 1024;

/// How often a bundle is begun anew because the task went on meanwhile. The last one may hold a trace
/// that is ahead of its records.
const TRIES: u32 = 4;

/// What a bundle is made from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// Records, proofs, the state of handoffs.
    pub store: &'a dyn Store,
    /// Contents of records.
    pub contents: &'a Contents,
    /// Signs the tree head.
    pub notary: &'a Notary,
}

/// Makes the bundle of a task, as a temporary file at its beginning; `None` where no record is of that
/// task.
///
/// # Errors
/// [`WriteError`].
pub async fn make(
    sources: Sources<'_>,
    tenant: &TenantId,
    task: TaskId,
    personal: bool,
    at: Micros,
) -> Result<Option<File>, WriteError> {
    let Sources { store, contents, notary } = sources;
    let mut tries = 1;
    loop {
        let Some(head) = store.find_head(tenant).await? else { return Ok(None) };
        if store.list_records(tenant, Some(task), 0, 1, false).await?.is_empty() {
            return Ok(None);
        }
        let until = i64::try_from(head.tree.size()).unwrap_or(i64::MAX);
        let found = store.find_task(&(tenant.clone(), task)).await?;
        let status = found.map(|task| task.status.as_str());
        let trace = spool(Log { store, contents, tenant, id: task, until }, status).await?;
        // What the trace says of a handoff's state must be what the records say.
        store.settle_log(tenant).await?;
        let moved = !store.list_records(tenant, Some(task), until, 1, false).await?.is_empty();
        if moved && tries < TRIES {
            tries += 1;
            continue;
        }
        let head = &head;
        match bundle::write(BundleOrder {
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

/// The bundle as an answer.
pub(super) async fn answer(
    api: &Api,
    principal: &Principal,
    task: TaskId,
    personal: bool,
) -> Result<Response, Problem> {
    if principal.role == Role::Agent {
        return Err(Problem::new(Code::Forbidden, "only an auditor or operator may do this"));
    }
    if personal && !matches!(principal.role, Role::Operator | Role::Admin) {
        let why = "only an operator may have personal data in a bundle";
        return Err(Problem::new(Code::Forbidden, why));
    }
    let sources = Sources { store: &*api.store, contents: &api.contents, notary: &api.notary };
    let made = make(sources, &principal.tenant, task, personal, api.now()).await;
    let file = made?.ok_or_else(|| Problem::not_found("task"))?;
    let length = file.metadata().map_err(|err| Problem::from(WriteError::Io(err)))?.len();
    let headers = [
        (header::CONTENT_TYPE, "application/zip".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"task-{task}.zip\"")),
    ];
    let file = tokio::fs::File::from_std(file);
    let body = futures_util::stream::unfold(Some(file), |file| async move {
        let mut file = file?;
        let mut chunk = BytesMut::with_capacity(CHUNK);
        match file.read_buf(&mut chunk).await {
            Ok(0) => None,
            Ok(_) => Some((Ok::<Bytes, std::io::Error>(chunk.freeze()), Some(file))),
            Err(err) => Some((Err(err), None)),
        }
    });
    Ok((headers, Body::from_stream(body)).into_response())
}

impl From<WriteError> for Problem {
    fn from(err: WriteError) -> Self {
        match err {
            WriteError::Store(err) => err.into(),
            WriteError::Away => Self::archive_away(),
            WriteError::Moved => {
                Self::new(Code::Unavailable, "the task's data is being erased; try again")
            }
            WriteError::Io(err) => {
                Self::from(StoreError::Refused(format!("the bundle cannot be written: {err}")))
            }
        }
    }
}
