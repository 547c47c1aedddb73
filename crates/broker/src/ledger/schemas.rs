//! Decisions on payload schemas: which versions there are.

use semver::Version;

use super::reply::LedgerError;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_gate::contract::evolution::{Assessment, SchemaRelease};
use handoffd_store::store::schemas::PayloadSchemaRow;

/// A version as it is compared.
///
/// # Errors
/// The stored document is not a version of a schema.
pub fn known(row: &PayloadSchemaRow) -> Result<SchemaRelease, LedgerError> {
    let wrong = |why: &dyn std::fmt::Display| {
        LedgerError::Internal(format!("payload schema {} {}: {why}", row.id, row.version))
    };
    Ok(SchemaRelease {
        version: row.version.parse::<Version>().map_err(|err| wrong(&err))?,
        schema: serde_json::from_str(&row.doc).map_err(|err| wrong(&err))?,
    })
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
