//! Credentials in what is said beside messages: checkpoints stored ahead, verdicts, outputs.

use serde_json::{Map, Value};

use super::Api;
use super::problem::{Problem, WarningView};
use handoffd_core::domain::credential::{self, SecretPolicy};
use handoffd_core::gate::unheld;

/// Applies `redaction.secrets` to a document: what to warn of.
///
/// # Errors
/// A refusal that names each place, where none may pass.
pub fn judged(api: &Api, document: &Value) -> Result<Vec<WarningView>, Problem> {
    let treatment = api.intake.redaction.secrets;
    let found = credential::sightings("", document);
    if treatment == SecretPolicy::Refuse && !found.is_empty() {
        let failures = found.iter().map(unheld::refused_credential).collect();
        return Err(Problem::refusal(failures, false));
    }
    Ok(found.iter().map(|one| WarningView::from(&unheld::credential(one, treatment))).collect())
}

/// The same of what somebody said, which is then redacted by the whole policy.
///
/// # Errors
/// As for [`judged`].
pub fn redacted(api: &Api, said: &mut Map<String, Value>) -> Result<Vec<WarningView>, Problem> {
    let whole = Value::Object(std::mem::take(said));
    let warnings = judged(api, &whole);
    if let Value::Object(whole) = whole {
        *said = whole;
    }
    api.intake.redaction.redact_words(said);
    warnings
}
