//! `/audit/*`: the log as evidence. Tree heads, records, proofs and the keys that signed. Anyone who has
//! these can check the log without trusting who runs it; see docs/evidence.md.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Auditor, Open};
use super::extract::{Params, page_size, parameter};
use super::problem::Problem;
use super::views::base64_hash;
use handoffd_broker::tree;
use handoffd_domain::ids::{HandoffId, Micros, TenantId};
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::LogHead;
use handoffd_store::store::StoredRecord;

/// A tree head with what it says.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeHeadView {
    /// Id of the log whose tree it is.
    pub log_id: String,
    /// The name of the log in its tree heads, and its keys.
    pub origin: String,
    /// Records in the tree.
    pub tree_size: u64,
    /// The tree's root (RFC 6962 §2.1), in base64.
    pub root_hash: String,
    /// The signed note (C2SP tlog-checkpoint).
    pub tree_head: String,
}

/// The head of a tenant's log.
pub(super) async fn head_of(api: &Api, tenant: &TenantId) -> Result<LogHead, Problem> {
    api.store.find_head(tenant).await?.ok_or_else(|| Problem::not_found("log"))
}

/// The latest tree head: a signed statement of the log's size and root.
#[utoipa::path(
    get, path = "/audit/tree-head", tag = "audit", operation_id = "getTreeHead",
    responses(
        (status = 200, description = "The tree head; with `Accept: text/plain` the signed note alone", content(
            (TreeHeadView = "application/json"), (String = "text/plain")
        )),
        (status = 403, description = "An agent's key"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn tree_head(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let head = head_of(&api, &principal.tenant).await?;
    let note = api.notary.tree_head(&head.log_id, &head.tree);
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.trim_start().starts_with("text/plain")) {
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], note).into_response());
    }
    let view = TreeHeadView {
        origin: api.notary.origin(&head.log_id),
        tree_size: head.tree.size(),
        root_hash: base64_hash(&head.tree.root()),
        tree_head: note,
        log_id: head.log_id,
    };
    Ok(axum::Json(view).into_response())
}

/// A record of the log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordView {
    /// Place of the record in the log, from 0.
    pub leaf_index: i64,
    /// `sha256:…` over a zero byte and the record: the leaf's hash.
    pub record_hash: String,
    /// The record, in the very bytes that were hashed; RFC 8785 gives them back after parsing. Null if
    /// the stored bytes are not JSON (the log was tampered with).
    #[schema(value_type = Option<super::record::Record>)]
    pub record: Option<Box<RawValue>>,
    /// The stored bytes in base64, if they are not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
}

impl From<StoredRecord> for RecordView {
    fn from(row: StoredRecord) -> Self {
        use base64::Engine as _;
        let text = String::from_utf8(row.body).map_err(std::string::FromUtf8Error::into_bytes);
        let (record, bytes) = match text {
            Ok(text) => match serde_json::from_str::<&RawValue>(&text) {
                Ok(record) => (Some(record.to_owned()), None),
                Err(_) => (None, Some(text.into_bytes())),
            },
            Err(bytes) => (None, Some(bytes)),
        };
        Self {
            leaf_index: row.leaf_index,
            record_hash: hash_text(&row.hash),
            record,
            bytes: bytes.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes)),
        }
    }
}

/// A page of the log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordsView {
    /// The records, in log order.
    pub records: Vec<RecordView>,
    /// `from` of the next page; absent at the log's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_from: Option<i64>,
}

/// Query of the records.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RecordsParams {
    /// The first record's place; 0 unless said. The log's size asks for what comes next.
    #[param(minimum = 0)]
    from: Option<i64>,
    /// Records a page, 1 to 500; 50 unless said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<i64>,
}

/// Records as they were hashed, in log order.
#[utoipa::path(
    get, path = "/audit/records", tag = "audit", operation_id = "listRecords",
    params(RecordsParams),
    responses(
        (status = 200, description = "One page. Each `record` has exactly the bytes that were hashed: SHA-256 over a zero byte and these is `recordHash`", body = RecordsView),
        (status = 400, description = "A malformed parameter, or `from` beyond the log's end"),
        (status = 403, description = "An agent's key"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn records(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Params(params): Params<RecordsParams>,
) -> Result<axum::Json<RecordsView>, Problem> {
    let limit = page_size(params.limit)?;
    let from = params.from.unwrap_or(0);
    let head = head_of(&api, &principal.tenant).await?;
    if !(0..=head.size).contains(&from) {
        return Err(if from < 0 {
            Problem::invalid("from is a number from 0")
        } else {
            Problem::ahead("from", head.size)
        });
    }
    let rows = api.store.list_records(&principal.tenant, None, from, limit + 1, false).await?;
    let more = rows.len() as i64 > limit;
    let records: Vec<RecordView> =
        rows.into_iter().take(limit as usize).map(RecordView::from).collect();
    let next_from = records.last().filter(|_| more).map(|last| last.leaf_index + 1);
    Ok(axum::Json(RecordsView { records, next_from }))
}

/// Proof that a record is in the tree of a size (RFC 6962).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InclusionView {
    /// Place of the record in the log, from 0.
    pub leaf_index: u64,
    /// Records of the tree that it is proven to be in.
    pub tree_size: u64,
    /// The record's hash, in base64.
    pub leaf_hash: String,
    /// The tree's root, in base64.
    pub root_hash: String,
    /// From the leaf up, each hash in base64 (RFC 6962 §2.1.1).
    pub proof: Vec<String>,
    /// The signed note, where the tree is the log's latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_head: Option<String>,
}

/// Query of an inclusion proof.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct InclusionParams {
    /// The record's place. One of `leafIndex`, `recordHash` and `handoffId` is needed.
    #[param(minimum = 0)]
    leaf_index: Option<u64>,
    /// `sha256:…`; found among the newest 65 536 records of the tree.
    record_hash: Option<String>,
    /// The handoff whose commit the record tells of.
    handoff_id: Option<String>,
    /// Records of the tree; all that the log has unless said.
    #[param(minimum = 1)]
    tree_size: Option<u64>,
}

/// Proof that a record is in the log.
#[utoipa::path(
    get, path = "/audit/proofs/inclusion", tag = "audit", operation_id = "getInclusionProof",
    params(InclusionParams),
    responses(
        (status = 200, description = "The proof (RFC 6962 §2.1.1)", body = InclusionView),
        (status = 400, description = "A malformed parameter, or a size or index out of range"),
        (status = 403, description = "An agent's key"),
        (status = 404, description = "No such record"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn inclusion(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Params(params): Params<InclusionParams>,
) -> Result<axum::Json<InclusionView>, Problem> {
    let tenant = &principal.tenant;
    let head = head_of(&api, tenant).await?;
    let size = size_within("treeSize", params.tree_size, &head)?;
    let index = leaf_of(&api, tenant, &params, size).await?;
    if index >= size {
        return Err(Problem::ahead("leafIndex", size.saturating_sub(1)));
    }
    let leaf = api.store.list_hashes(tenant, 0, index as i64, 1).await?;
    let proof = tree::inclusion(&api.store, tenant, index, size).await?;
    let root = tree::root(&api.store, tenant, size).await?;
    let (Some(leaf), Some(proof), Some(root)) = (leaf.first(), proof, root) else {
        return Err(incomplete());
    };
    Ok(axum::Json(InclusionView {
        leaf_index: index,
        tree_size: size,
        leaf_hash: base64_hash(leaf),
        root_hash: base64_hash(&root),
        proof: proof.iter().map(base64_hash).collect(),
        tree_head: (size == head.tree.size())
            .then(|| api.notary.tree_head(&head.log_id, &head.tree)),
    }))
}

async fn leaf_of(
    api: &Api,
    tenant: &TenantId,
    params: &InclusionParams,
    size: u64,
) -> Result<u64, Problem> {
    let one = "give one of leafIndex, recordHash and handoffId";
    match (params.leaf_index, &params.record_hash, &params.handoff_id) {
        (Some(index), None, None) => Ok(index),
        (None, Some(hash), None) => {
            let hash = read_hash(hash)
                .ok_or_else(|| Problem::invalid("recordHash must be sha256: and 64 hex digits"))?;
            tree::find_leaf(&api.store, tenant, &hash, size).await?.ok_or_else(|| {
                Problem::not_found("record among the newest 65536; name it by its leafIndex")
            })
        }
        (None, None, Some(id)) => {
            let id = parameter::<HandoffId>("handoffId", Some(id))?;
            let id = id.ok_or_else(|| Problem::invalid(one))?;
            let found = api.store.find_receipt(&(tenant.clone(), id)).await?;
            let index = found.and_then(|sealed| u64::try_from(sealed.leaf_index).ok());
            index.ok_or_else(|| Problem::not_found("handoff"))
        }
        _ => Err(Problem::invalid(one)),
    }
}

fn read_hash(text: &str) -> Option<Hash> {
    hex::decode(text.strip_prefix("sha256:")?).ok()?.try_into().ok()
}

/// Proof that a tree continues an earlier one (RFC 6962).
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConsistencyView {
    /// Records of the earlier tree.
    pub from: u64,
    /// Records of the later tree.
    pub to: u64,
    /// The earlier tree's root, in base64.
    pub from_root_hash: String,
    /// The later tree's root, in base64.
    pub to_root_hash: String,
    /// Each hash in base64, in the order of RFC 6962 §2.1.2.
    pub proof: Vec<String>,
    /// The signed note, where the later tree is the log's latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_head: Option<String>,
}

/// Query of a consistency proof.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConsistencyParams {
    /// Records of the earlier tree.
    #[param(minimum = 1)]
    from: u64,
    /// Records of the later tree; all that the log has unless said.
    #[param(minimum = 1)]
    to: Option<u64>,
}

/// Proof that the log only grew between two sizes.
#[utoipa::path(
    get, path = "/audit/proofs/consistency", tag = "audit", operation_id = "getConsistencyProof",
    params(ConsistencyParams),
    responses(
        (status = 200, description = "The proof (RFC 6962 §2.1.2)", body = ConsistencyView),
        (status = 400, description = "A malformed parameter, or a size out of range"),
        (status = 403, description = "An agent's key"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn consistency(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
    Params(params): Params<ConsistencyParams>,
) -> Result<axum::Json<ConsistencyView>, Problem> {
    let tenant = &principal.tenant;
    let head = head_of(&api, tenant).await?;
    let to = size_within("to", params.to, &head)?;
    let from = size_within("from", Some(params.from), &head)?;
    if from > to {
        return Err(Problem::invalid(format!("from {from} is above to {to}")));
    }
    let store = &*api.store;
    let proof = tree::consistency(store, tenant, from, to).await?;
    let (old, new) = (tree::root(store, tenant, from).await?, tree::root(store, tenant, to).await?);
    let (Some(proof), Some(old), Some(new)) = (proof, old, new) else { return Err(incomplete()) };
    Ok(axum::Json(ConsistencyView {
        from,
        to,
        from_root_hash: base64_hash(&old),
        to_root_hash: base64_hash(&new),
        proof: proof.iter().map(base64_hash).collect(),
        tree_head: (to == head.tree.size()).then(|| api.notary.tree_head(&head.log_id, &head.tree)),
    }))
}

/// A size as asked, between 1 and the log's; the log's where none was.
fn size_within(name: &str, asked: Option<u64>, head: &LogHead) -> Result<u64, Problem> {
    let most = head.tree.size();
    match asked.unwrap_or(most) {
        0 if most == 0 => Err(Problem::invalid("the log has no records yet")),
        size if (1..=most).contains(&size) => Ok(size),
        size if size > most => Err(Problem::ahead(name, most)),
        size => Err(Problem::invalid(format!("{name} must be between 1 and {most}, not {size}"))),
    }
}

/// The head covers leaves that are missing; `handoffd verify` names them.
fn incomplete() -> Problem {
    tracing::error!(
        "a proof cannot be made: records or tree nodes are missing; run handoffd verify"
    );
    Problem::new(
        handoffd_domain::failure::Code::Unavailable,
        "the log is not whole, so this cannot be proven; run handoffd verify",
    )
}

/// A key that signs tree heads, or did.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeKeyView {
    /// `name+hash+base64`, as C2SP signed-note has it (a "vkey").
    pub key: String,
    /// Since when, RFC 3339.
    pub created_at: String,
    /// Until when; what it signed before stays signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<String>,
    /// It signs the tree heads of now.
    pub current: bool,
}

/// The keys of a log.
#[derive(Debug, Serialize, ToSchema)]
pub struct TreeKeysView {
    /// The keys, oldest first.
    pub keys: Vec<TreeKeyView>,
}

/// The public keys that sign the log's tree heads, or did.
#[utoipa::path(
    get, path = "/audit/keys", tag = "audit", operation_id = "listTreeKeys",
    responses(
        (status = 200, description = "Every key, also those that were replaced", body = TreeKeysView),
        (status = 403, description = "An agent's key"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn keys(
    State(api): State<Api>,
    Open(Auditor(principal)): Open<Auditor>,
) -> Result<axum::Json<TreeKeysView>, Problem> {
    let head = head_of(&api, &principal.tenant).await?;
    let own = api.notary.public_bytes();
    let rows = api.store.list_tree_keys().await?;
    let view = rows.iter().filter_map(|row| {
        Some(TreeKeyView {
            key: api.notary.public(&head.log_id, Some(&row.public))?.to_string(),
            created_at: row.created_at.rfc3339(),
            retired_at: row.retired_at.map(Micros::rfc3339),
            current: row.public == own && row.retired_at.is_none(),
        })
    });
    Ok(axum::Json(TreeKeysView { keys: view.collect() }))
}
