//! The log as public tlog clients, mirrors and witnesses read it: checkpoint and tiles after C2SP
//! tlog-tiles, as raw bytes. The monitoring prefix is `/audit` with a key, and `/audit/logs/{logId}`,
//! which needs none where `audit.public` opens it: such clients send no `Authorization`.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::Api;
use super::audit::head_of;
use super::auth::{Auditor, Open};
use super::extract::{Id, Ids};
use super::problem::Problem;
use handoffd_broker::tree;
use handoffd_domain::ids::TenantId;
use handoffd_evidence::tiles::TilePath;

/// The latest checkpoint of the caller's log: where witnesses are set, the latest that one cosigned.
#[utoipa::path(
    get, path = "/audit/checkpoint", tag = "audit", operation_id = "getCheckpointNote",
    responses(
        (status = 200, description = "A C2SP tlog-checkpoint", body = String, content_type = "text/plain"),
        (status = 403, description = "An agent's key"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn checkpoint(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
) -> Result<Response, Problem> {
    note(&api, &principal.tenant).await
}

/// A tile of the caller's log.
#[utoipa::path(
    get, path = "/audit/tile/{*path}", tag = "audit", operation_id = "getTile",
    params(("path" = String, Path, description = "`<L>/<N>[.p/<W>]` for hashes, `entries/<N>[.p/<W>]` for records; `<N>` in groups of three digits: `x001/x234/067`")),
    responses(
        (status = 200, description = "Hashes of 32 bytes, or records each after its length in two bytes", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "The log has no such tile (yet)"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn tile(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Id(path): Id<String>,
) -> Result<Response, Problem> {
    let path = TilePath::parse(&path).ok_or_else(no_tile)?;
    bytes(&api, &principal.tenant, &path, "private").await
}

/// The latest checkpoint of a log: where witnesses are set, the latest that one cosigned.
#[utoipa::path(
    get, path = "/audit/logs/{logId}/checkpoint", tag = "audit", operation_id = "getLogCheckpoint",
    params(("logId" = String, Path, description = "As receipts and tree heads have it")),
    responses(
        (status = 200, description = "A C2SP tlog-checkpoint", body = String, content_type = "text/plain"),
        (status = 401, description = "No valid key, and `audit.public` is off"),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such log, or not the caller's"),
        (status = 503, description = "The store is away"),
    ),
    security((), ("bearer" = []), ("apiKey" = []))
)]
pub(super) async fn log_checkpoint(
    State(api): State<Api>,
    caller: Result<Open<Auditor>, Problem>,
    Id(log_id): Id<String>,
) -> Result<Response, Problem> {
    let tenant = owner(&api, caller, &log_id, api.config.audit.public).await?;
    note(&api, &tenant).await
}

/// A tile of a log.
#[utoipa::path(
    get, path = "/audit/logs/{logId}/tile/{*path}", tag = "audit", operation_id = "getLogTile",
    params(
        ("logId" = String, Path, description = "As receipts and tree heads have it"),
        ("path" = String, Path, description = "As at `/audit/tile/{path}`")
    ),
    responses(
        (status = 200, description = "Hashes of 32 bytes, or records each after its length in two bytes", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 401, description = "No valid key, and `audit.public` is off, or records are asked for and `audit.public_entries` is off"),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such log, or not the caller's, or no such tile (yet)"),
        (status = 503, description = "The store is away"),
    ),
    security((), ("bearer" = []), ("apiKey" = []))
)]
pub(super) async fn log_tile(
    State(api): State<Api>,
    caller: Result<Open<Auditor>, Problem>,
    Ids(log_id, path): Ids<String, String>,
) -> Result<Response, Problem> {
    let path = TilePath::parse(&path);
    let entries = path.is_none_or(|path| path.level.is_none());
    let open = api.config.audit.public && (!entries || api.config.audit.public_entries);
    let tenant = owner(&api, caller, &log_id, open).await?;
    let path = path.ok_or_else(no_tile)?;
    bytes(&api, &tenant, &path, if open { "public" } else { "private" }).await
}

/// The tenant of a log that the caller may read.
async fn owner(
    api: &Api,
    caller: Result<Open<Auditor>, Problem>,
    log_id: &str,
    open: bool,
) -> Result<TenantId, Problem> {
    let no_log = || Problem::not_found("log");
    if open {
        return api.store.find_log(log_id).await?.ok_or_else(no_log);
    }
    let Open(Auditor(principal)) = caller?;
    let own = head_of(api, &principal.tenant).await?.log_id == log_id;
    if own { Ok(principal.tenant.clone()) } else { Err(no_log()) }
}

async fn note(api: &Api, tenant: &TenantId) -> Result<Response, Problem> {
    let head = head_of(api, tenant).await?;
    // A cosigned tree head is better evidence than a newer one without cosignatures.
    let cosigned = api.cosigned.find(&head.log_id);
    let note = cosigned.unwrap_or_else(|| api.notary.tree_head(&head.log_id, &head.tree));
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, note).into_response())
}

async fn bytes(
    api: &Api,
    tenant: &TenantId,
    path: &TilePath,
    scope: &str,
) -> Result<Response, Problem> {
    let bytes = tree::tile(&api.store, tenant, path).await?.ok_or_else(no_tile)?;
    let mut response = bytes.into_response();
    if path.is_full() {
        let cache = format!("{scope}, max-age=31536000, immutable");
        if let Ok(cache) = HeaderValue::from_str(&cache) {
            response.headers_mut().insert(header::CACHE_CONTROL, cache);
        }
    }
    Ok(response)
}

fn no_tile() -> Problem {
    Problem::not_found("tile")
}
