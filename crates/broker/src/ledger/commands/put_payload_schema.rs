//! Register a version of a payload schema.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::LedgerError;
use crate::ledger::schemas::{failures, known};
use handoffd_evidence::record::{PayloadSchemaRef, RecordContent, RecordDraft, RecordKind};
use handoffd_gate::contract::evolution::{Assessment, assess};
use handoffd_store::store::BatchState;
use handoffd_store::store::schemas::PayloadSchemaRow;

/// A version of a payload schema to register.
#[derive(Debug, Clone)]
pub struct PutPayloadSchema {
    /// The row as it will be, but for its ordinal.
    pub row: PayloadSchemaRow,
    /// Its document, and what is said of it.
    pub content: RecordContent,
}

/// A version of a payload schema.
#[derive(Debug)]
pub struct PutPayloadSchemaReply {
    pub row: Box<PayloadSchemaRow>,
    /// The changes; none if the version was there before.
    pub assessment: Option<Assessment>,
}

impl Command for PutPayloadSchema {
    type Reply = PutPayloadSchemaReply;
    const NAME: &'static str = "put_payload_schema";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.payload_schema(self.row.id.clone());
    }

    /// Adds a version of a payload schema, if its number says what it changes. The same again is answered and
    /// changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, _context: &Context) -> Decision<Self::Reply> {
        let row = &self.row;
        if let Some(known) = state.payload_schemas.get(&row.key()) {
            if known.sha256 == row.sha256 && known.migration == row.migration {
                let row = Box::new(known.clone());
                return Ok((Vec::new(), PutPayloadSchemaReply { row, assessment: None }));
            }
            return Err(LedgerError::Conflict(format!(
                "payload schema {} has a version {} with another content: give it a new version",
                row.id, row.version
            )));
        }
        let kept: Vec<&PayloadSchemaRow> = state
            .payload_schemas
            .values()
            .filter(|kept| kept.tenant == row.tenant && kept.id == row.id)
            .collect();
        if kept.len() >= MAX_VERSIONS {
            return Err(LedgerError::Conflict(format!(
                "payload schema {} has {MAX_VERSIONS} versions, as many as are kept: give it a new id",
                row.id
            )));
        }
        let versions = kept.iter().map(|row| known(row)).collect::<Result<Vec<_>, _>>()?;
        let version = known(row)?;
        let assessment =
            assess(&versions, Some(&version.version), &version.schema, row.migration.is_some());
        if !assessment.faults.is_empty() {
            return Err(LedgerError::Contradicts(failures(&assessment)));
        }
        let ordinal = kept.iter().map(|row| row.ordinal + 1).max().unwrap_or(0);
        let row = PayloadSchemaRow { ordinal, ..row.clone() };
        let mut draft = RecordDraft::new(
            call.tenant.clone(),
            RecordKind::PayloadSchemaPut,
            call.at,
            call.actor.clone(),
        );
        draft.payload_schema =
            Some(PayloadSchemaRef { id: row.id.clone(), version: row.version.clone() });
        draft.content = Some(self.content.clone());
        Ok((
            vec![Change::PayloadSchema(row.clone()), Change::Record(Box::new(draft))],
            PutPayloadSchemaReply { row: Box::new(row), assessment: Some(assessment) },
        ))
    }
}

/// The most versions of one payload schema: each is held against the others when one is added.
const MAX_VERSIONS: usize = 256;
