//! Decisions on payload schemas: which versions there are.

use semver::Version;

use super::command::{Command, LedgerError, PutPayloadSchema, Reply};
use super::plan::{Change, Decision};
use handoffd_core::contract::evolution::{Assessment, SchemaRelease, assess};
use handoffd_core::domain::failure::{Code, Failure, Stage};
use handoffd_core::evidence::record::{PayloadSchemaRef, RecordDraft, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::schemas::PayloadSchemaRow;

/// The most versions of one payload schema: each is held against the others when one is added.
const MAX_VERSIONS: usize = 256;

/// A version as it is compared.
///
/// # Errors
/// What is kept is no version of a schema.
pub fn known(row: &PayloadSchemaRow) -> Result<SchemaRelease, LedgerError> {
    let wrong = |why: &dyn std::fmt::Display| {
        LedgerError::Internal(format!("payload schema {} {}: {why}", row.id, row.version))
    };
    Ok(SchemaRelease {
        version: row.version.parse::<Version>().map_err(|err| wrong(&err))?,
        schema: serde_json::from_str(&row.doc).map_err(|err| wrong(&err))?,
    })
}

/// Adds a version of a payload schema, if its number says what it changes. The same again is answered and
/// changes nothing.
pub(super) fn put(state: &BatchState, command: &Command, put: &PutPayloadSchema) -> Decision {
    let row = &put.row;
    if let Some(known) = state.payload_schemas.get(&row.key()) {
        if known.sha256 == row.sha256 && known.migration == row.migration {
            let row = Box::new(known.clone());
            return Ok((Vec::new(), Reply::PayloadSchema { row, assessment: None }));
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
        command.tenant.clone(),
        RecordKind::PayloadSchemaPut,
        command.at,
        command.actor.clone(),
    );
    draft.payload_schema =
        Some(PayloadSchemaRef { id: row.id.clone(), version: row.version.clone() });
    draft.content = Some(put.content.clone());
    Ok((
        vec![Change::PayloadSchema(row.clone()), Change::Record(Box::new(draft))],
        Reply::PayloadSchema { row: Box::new(row), assessment: Some(assessment) },
    ))
}

/// Why a version is not taken, as the API tells it.
#[must_use]
pub fn failures(assessment: &Assessment) -> Vec<Failure> {
    assessment
        .faults
        .iter()
        .map(|fault| {
            Failure::new(Stage::State, Code::Conflict, fault.pointer.clone(), fault.message.clone())
        })
        .collect()
}
