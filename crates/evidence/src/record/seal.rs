//! A record's bytes, and their hash.

use serde::Serialize;

use super::{
    Actor, AdoptionFacts, ChangeFacts, ClassifierFacts, LogHead, PayloadSchemaRef, RecordDraft,
    RecordParty, RulingContract, SafetyFacts, SpendingFacts, StreamFacts,
};
use crate::commitment::{hash_text, sha256};
use crate::erasure::{ErasureFacts, HoldFacts, RetentionFacts};
use handoffd_domain::canonical;
use handoffd_domain::group::GroupFacts;
use handoffd_domain::handoff::Cost;
use handoffd_domain::ids::{HandoffId, TaskId};
use handoffd_domain::residency::ResidencyFacts;
use handoffd_domain::window::{CompressionFacts, ContextFacts};

/// The record as serialized; RFC 8785 sorts the fields.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordBody<'a> {
    v: u8,
    log_id: &'a str,
    tenant: &'a str,
    leaf_index: i64,
    previous_record_hash: Option<String>,
    kind: &'static str,
    time: String,
    actor: &'a Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handoff_id: Option<HandoffId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_handoff_id: Option<HandoffId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_agent: Option<&'a RecordParty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_agent: Option<&'a RecordParty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<&'a RulingContract>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_schema: Option<&'a PayloadSchemaRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_at_handoff: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent: Option<SpendingFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_commitment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_commitment: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    personal_data_commitments: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    erasure: Option<&'a ErasureFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<&'a RetentionFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    legal_hold: Option<&'a HoldFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety: Option<&'a SafetyFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit_event: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    residency: Option<&'a ResidencyFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a ContextFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<&'a CompressionFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<StreamFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opinion: Option<&'a ClassifierFacts>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changes: &'a [ChangeFacts],
    #[serde(skip_serializing_if = "Option::is_none")]
    adoption: Option<AdoptionFacts>,
}

/// A record with its leaf index and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedRecord {
    pub log_id: String,
    /// Leaf index of the record, from 0.
    pub leaf_index: i64,
    /// `SHA-256(0x00 || body)`.
    pub hash: [u8; 32],
    /// The bytes hashed and stored: RFC 8785 JSON.
    pub body: Vec<u8>,
    /// Number of records after the transaction that appended the record: its receipt is always over that tree. 0
    /// where a version without a tree wrote the record.
    pub tree_size: i64,
}

/// The hash of a record's bytes: RFC 6962 §2.1's leaf hash.
#[must_use]
pub fn record_hash(body: &[u8]) -> [u8; 32] {
    sha256(&[&[0], body])
}

/// Seals a draft at the head of its log and advances the head.
#[must_use]
pub fn seal(head: &mut LogHead, draft: &RecordDraft) -> SealedRecord {
    let body = RecordBody {
        v: 1,
        log_id: &head.log_id,
        tenant: draft.tenant.as_str(),
        leaf_index: head.size,
        previous_record_hash: (!head.hash.is_empty()).then(|| hash_text(&head.hash)),
        kind: draft.kind.as_str(),
        time: draft.at.rfc3339(),
        actor: &draft.actor,
        task_id: draft.task_id,
        handoff_id: draft.handoff_id,
        parent_handoff_id: draft.parent_handoff_id,
        from_agent: draft.from.as_ref(),
        to_agent: draft.to.as_ref(),
        contract: draft.contract.as_ref(),
        payload_schema: draft.payload_schema.as_ref(),
        status: draft.status,
        reason: draft.reason.as_deref(),
        cost_at_handoff: draft.cost,
        spent: draft.spent.map(SpendingFacts::from),
        message_commitment: draft
            .content
            .as_ref()
            .map(|content| content.part.commitment)
            .or(draft.shared.map(|(_, commitment)| commitment))
            .map(|commitment| hash_text(&commitment)),
        checkpoint_commitment: draft.checkpoint_commitment.map(|c| hash_text(&c)),
        personal_data_commitments: draft
            .personal
            .iter()
            .map(|datum| hash_text(&datum.part.commitment))
            .collect(),
        erasure: draft.erasure.as_ref(),
        retention: draft.retention.as_ref(),
        legal_hold: draft.hold.as_ref(),
        safety: draft.safety.as_ref(),
        audit_event: draft.audit_event.as_deref(),
        attempts: draft.attempts,
        residency: draft.residency.as_ref(),
        context: draft.context.as_ref(),
        compression: draft.compression.as_ref(),
        question: draft.question,
        stream: draft.stream,
        group: draft.group,
        opinion: draft.opinion.as_ref(),
        changes: &draft.changes,
        adoption: draft.adoption,
    };
    // A struct of texts and finite numbers always serialises.
    let body = canonical::to_vec(&serde_json::to_value(&body).unwrap_or_default());
    let hash = record_hash(&body);
    let sealed = SealedRecord {
        log_id: head.log_id.clone(),
        leaf_index: head.size,
        hash,
        body,
        tree_size: 0,
    };
    head.size += 1;
    head.hash = hash.to_vec();
    sealed
}
