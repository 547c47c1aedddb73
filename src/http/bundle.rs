//! `GET /tasks/{taskId}/trace?format=bundle`: the regulator's bundle, streamed from its temporary file.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;

use super::Api;
use super::problem::Problem;
use handoffd_broker::bundle::{BundleSources, WriteError, make};
use handoffd_broker::directory::Principal;
use handoffd_domain::failure::Code;
use handoffd_domain::ids::TaskId;
use handoffd_store::store::StoreError;

/// Bytes sent at once.
const CHUNK: usize = 64 * 1024;

/// Streams the bundle of a task.
pub(super) async fn answer(
    api: &Api,
    principal: &Principal,
    task: TaskId,
    personal: bool,
) -> Result<Response, Problem> {
    let sources = BundleSources { store: &api.store, contents: &api.contents, notary: &api.notary };
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
