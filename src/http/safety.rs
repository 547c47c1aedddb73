//! What the safety stage and the external classifier said of a committed message, from its records.

use serde::Deserialize;

use super::Api;
use super::problem::Problem;
use handoffd_core::domain::handoff::Handoff;
use handoffd_core::evidence::record::{ClassifierFacts, SafetyFacts, SealedRecord};
use handoffd_store::store::HandoffKey;

/// The members of a record that this room reads.
#[derive(Debug, Default, Deserialize)]
struct JudgedRecord {
    safety: Option<SafetyFacts>,
    opinion: Option<ClassifierFacts>,
}

impl From<&SealedRecord> for JudgedRecord {
    fn from(sealed: &SealedRecord) -> Self {
        serde_json::from_slice(&sealed.body).unwrap_or_default()
    }
}

/// The facts of a handoff's message. A handoff that stands in another's place has that one's message, and its facts.
pub(super) async fn of(api: &Api, handoff: &Handoff) -> Result<Option<SafetyFacts>, Problem> {
    let key = (handoff.tenant.clone(), handoff.origin.unwrap_or(handoff.id));
    match api.store.find_receipt(&key).await? {
        Some(sealed) => in_record(api, &key, &sealed).await,
        None => Ok(None),
    }
}

/// The facts in the record that committed a message; where the classifier was asked after the commit, with its answer
/// once that is recorded.
pub(super) async fn in_record(
    api: &Api,
    key: &HandoffKey,
    sealed: &SealedRecord,
) -> Result<Option<SafetyFacts>, Problem> {
    let Some(mut facts) = JudgedRecord::from(sealed).safety else { return Ok(None) };
    if facts.is_pending() {
        let answered = api.store.find_opinion(key).await?;
        let opinion = answered.and_then(|sealed| JudgedRecord::from(&sealed).opinion);
        facts.classifier = opinion.or(facts.classifier);
    }
    Ok(Some(facts))
}
