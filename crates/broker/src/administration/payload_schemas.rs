//! Payload schemas: the registry's versions, and the changes that a version makes (seed 000 §14.3).

use semver::Version;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Administration, OWN_THREAD};
use crate::directory::Principal;
use crate::intake::refused::misfit;
use crate::intake::{Refusal, heavy};
use crate::ledger::command::content;
use crate::ledger::commands::{PutPayloadSchema, PutPayloadSchemaReply};
use crate::ledger::schemas::{failures, known};
use handoffd_domain::canonical;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_gate::contract::evolution::{Assessment, SchemaRelease, assess};
use handoffd_gate::contract::schema;
use handoffd_gate::contract::shelf::SchemaName;
use handoffd_store::store::schemas::PayloadSchemaRow;

/// The only dialect that the registry can compare, as `$schema` names it.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The most characters of a migration's text.
const MAX_MIGRATION: usize = 2_000;

/// A version of a payload schema as a request brings it.
#[derive(Debug)]
pub struct SchemaVersion {
    pub schema: Value,
    /// The steps by which a sender moves to this version.
    pub migration: Option<String>,
}

/// A version after it was put.
#[derive(Debug)]
pub struct StoredSchema {
    pub row: PayloadSchemaRow,
    /// Its changes; `None` if it was stored before.
    pub assessment: Option<Assessment>,
}

/// A candidate version, compared with the stored ones.
#[derive(Debug)]
pub struct CandidateSchema {
    pub assessment: Assessment,
    /// The reasons why the registry would refuse it; empty if it would accept it.
    pub failures: Vec<Failure>,
}

impl Administration<'_> {
    /// Registers a version of a payload schema. A version never changes: the same request again has no effect.
    ///
    /// # Errors
    /// The id, the version or the schema is invalid, or the version number does not match the kind of change.
    pub async fn put_payload_schema(
        &self,
        principal: &Principal,
        (id, version): (&str, &str),
        put: SchemaVersion,
    ) -> Result<StoredSchema, Refusal> {
        let name = SchemaName::new(id, version).map_err(|why| misfit("", why))?;
        let SchemaVersion { schema, migration } = checked(put).await?;
        let (doc, now) = (canonical::to_vec(&schema), self.now());
        let mut words = json!({ "schema": schema });
        if let Some(migration) = &migration {
            words["migration"] = json!(migration);
        }
        let row = PayloadSchemaRow {
            tenant: principal.tenant.clone(),
            id: name.id,
            version: name.version.to_string(),
            ordinal: 0,
            sha256: Sha256::digest(&doc).into(),
            doc: String::from_utf8_lossy(&doc).into_owned(),
            migration,
            created_by: principal.key_id.clone(),
            created_at: now,
        };
        let put = PutPayloadSchema { row, content: content(&canonical::to_vec(&words), now) };
        let reply = self.carry_out(principal, now, put).await?;
        let PutPayloadSchemaReply { row, assessment } = reply;
        Ok(StoredSchema { row: *row, assessment })
    }

    /// Compares a version with the stored ones; without a number, with the highest release. Writes nothing.
    ///
    /// # Errors
    /// The id, the version or the schema is invalid.
    pub async fn compare_payload_schema(
        &self,
        principal: &Principal,
        (id, version): (&str, Option<&str>),
        candidate: SchemaVersion,
    ) -> Result<CandidateSchema, Refusal> {
        let name = SchemaName::new(id, version.unwrap_or("1.0.0"));
        let name = name.map_err(|why| misfit("/version", why))?;
        let rows = self.intake.store.list_payload_schemas(&principal.tenant, Some(id)).await?;
        let versions = rows.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let version = version.map(|_| name.version);
        let candidate = checked(candidate).await?;
        let compared = heavy(OWN_THREAD, move || compared(&versions, version.as_ref(), &candidate));
        Ok(compared.await?)
    }
}

/// The version, if it is valid by itself.
async fn checked(version: SchemaVersion) -> Result<SchemaVersion, Refusal> {
    let checked = heavy(OWN_THREAD, move || (faults(&version), version));
    let (faults, version) = checked.await?;
    if faults.is_empty() { Ok(version) } else { Err(Refusal::Findings(faults)) }
}

/// The faults of a version, regardless of other versions.
fn faults(SchemaVersion { schema, migration }: &SchemaVersion) -> Vec<Failure> {
    let mut faults = Vec::new();
    match schema.get("$schema") {
        Some(dialect) if dialect.as_str().map(|uri| uri.trim_end_matches('#')) != Some(DIALECT) => {
            let why = format!("only {DIALECT} is compared; leave it out, or name it");
            faults.push(misfit("/schema/$schema", why));
        }
        _ => faults.extend(schema::compile(schema).err().map(|why| misfit("/schema", why))),
    }
    let fits = |words: &str| {
        !words.trim().is_empty() && words.chars().count() <= MAX_MIGRATION && !words.contains('\0')
    };
    if migration.as_deref().is_some_and(|words| !fits(words)) {
        faults.push(misfit("/migration", "1 to 2 000 characters, none of them NUL"));
    }
    faults
}

/// Compares a candidate with the stored versions. A copy of a stored version has no failures, because it changes nothing.
fn compared(
    versions: &[SchemaRelease],
    version: Option<&Version>,
    SchemaVersion { schema, migration }: &SchemaVersion,
) -> CandidateSchema {
    let assessment = assess(versions, version, schema, migration.is_some());
    let Some(taken) = versions.iter().find(|stored| Some(&stored.version) == version) else {
        let failures = failures(&assessment);
        return CandidateSchema { assessment, failures };
    };
    let mut failures = Vec::new();
    if canonical::to_vec(&taken.schema) != canonical::to_vec(schema) {
        let why = format!("version {} has another content", taken.version);
        failures.push(Failure::new(Stage::State, Code::Conflict, "/version", why));
    }
    CandidateSchema { assessment, failures }
}

/// The highest release of each schema, or its highest version if it has no release.
#[must_use]
pub fn latest(rows: &[PayloadSchemaRow]) -> Vec<&PayloadSchemaRow> {
    rows.chunk_by(|one, other| one.id == other.id)
        .filter_map(|versions| versions.iter().max_by_key(|row| rank(row)))
        .collect()
}

/// The order of versions: a release is above every prerelease, then the number decides.
fn rank(row: &PayloadSchemaRow) -> Option<(bool, Version)> {
    let version: Version = row.version.parse().ok()?;
    Some((version.pre.is_empty(), version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(schema: Value, migration: Option<&str>) -> SchemaVersion {
        SchemaVersion { schema, migration: migration.map(str::to_owned) }
    }

    #[test]
    fn each_fault_of_a_version_has_its_pointer() {
        let long = "a".repeat(MAX_MIGRATION + 1);
        let rows = [
            (json!({ "type": "object" }), None, vec![]),
            (json!({ "$schema": format!("{DIALECT}#") }), Some("add a title"), vec![]),
            (
                json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
                None,
                vec!["/schema/$schema"],
            ),
            (json!({ "type": 7 }), Some(" "), vec!["/schema", "/migration"]),
            (json!({}), Some(long.as_str()), vec!["/migration"]),
            (json!({}), Some("a\0"), vec!["/migration"]),
        ];
        for (schema, migration, pointers) in rows {
            let faults = faults(&version(schema.clone(), migration));
            let pointers_now: Vec<&str> =
                faults.iter().map(|fault| fault.pointer.as_str()).collect();
            assert_eq!(pointers_now, pointers, "{schema}");
        }
    }

    #[test]
    fn a_candidate_under_a_stored_number_has_that_content_or_cannot_be_put() {
        let release = |schema| SchemaRelease { version: Version::new(1, 0, 0), schema };
        let stored = [release(json!({ "type": "object" }))];
        let number = Version::new(1, 0, 0);
        let rows = [
            (json!({ "type": "object" }), Some(&number), vec![]),
            (json!({ "type": "array" }), Some(&number), vec!["/version"]),
            (json!({ "type": "object" }), None, vec![]),
        ];
        for (schema, number, pointers) in rows {
            let candidate = compared(&stored, number, &version(schema.clone(), None));
            let failures = &candidate.failures;
            let pointers_now: Vec<&str> = failures.iter().map(|one| one.pointer.as_str()).collect();
            assert_eq!(pointers_now, pointers, "{schema}");
        }
    }

    #[test]
    fn a_release_is_above_its_candidates_and_the_highest_version_is_the_latest() {
        let row = |id: &str, version: &str| PayloadSchemaRow {
            tenant: "t".parse().unwrap(),
            id: id.to_owned(),
            version: version.to_owned(),
            ordinal: 0,
            sha256: [0; 32],
            doc: "{}".to_owned(),
            migration: None,
            created_by: "k".to_owned(),
            created_at: handoffd_domain::ids::Micros(0),
        };
        let rows = [
            row("order", "1.9.0"),
            row("order", "1.10.0"),
            row("order", "2.0.0-rc.1"),
            row("ticket", "1.0.0-a"),
            row("ticket", "1.0.0-b"),
        ];
        let versions: Vec<&str> = latest(&rows).iter().map(|row| row.version.as_str()).collect();
        assert_eq!(versions, ["1.10.0", "1.0.0-b"]);
    }
}
