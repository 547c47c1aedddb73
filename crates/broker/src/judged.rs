//! Reads the safety facts of a committed message (observed and marked rules, the classifier's verdict) from its records.

use serde::Deserialize;

use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::TaskId;
use handoffd_evidence::record::{ClassifierFacts, SafetyFacts, SealedRecord};
use handoffd_store::store::{HandoffKey, Store, StoreError};

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

/// The facts of a handoff's message, as it was judged last: at its release, if a person released it, and at the close of
/// its stream. A handoff that replaces another has that one's message, and its facts.
///
/// # Errors
/// [`StoreError`] where the log cannot be read.
pub async fn of(store: &Store, handoff: &Handoff) -> Result<Option<SafetyFacts>, StoreError> {
    // A handoff that replaces another is of the same task.
    let task = handoff.task_id;
    let own = (handoff.tenant.clone(), handoff.id);
    if let Some(sealed) = store.find_last_commit(&own, task).await? {
        return in_record(store, &own, task, &sealed).await;
    }
    let first = (handoff.tenant.clone(), handoff.origin.unwrap_or(handoff.id));
    let committed = match handoff.origin {
        Some(_) => store.find_last_commit(&first, task).await?,
        None => None,
    };
    // A dead letter was never committed: its record has the verdict.
    let sealed = match committed {
        None => store.find_receipt(&first).await?,
        committed => committed,
    };
    match sealed {
        Some(sealed) => in_record(store, &first, task, &sealed).await,
        None => Ok(None),
    }
}

/// The facts in the record that committed a message on a task; where the classifier was asked after the commit, with
/// its answer once that is recorded.
async fn in_record(
    store: &Store,
    key: &HandoffKey,
    task: TaskId,
    sealed: &SealedRecord,
) -> Result<Option<SafetyFacts>, StoreError> {
    let Some(mut facts) = JudgedRecord::from(sealed).safety else { return Ok(None) };
    if facts.is_pending() {
        let answered = store.find_opinion(key, task).await?;
        let opinion = answered.and_then(|sealed| JudgedRecord::from(&sealed).opinion);
        facts.classifier = opinion.or(facts.classifier);
    }
    Ok(Some(facts))
}

/// The label under which the classifier called a handoff's message unsafe: a code, empty where it gave none. `None`: it
/// did not, or was not asked, or has not answered yet.
///
/// # Errors
/// [`StoreError`] where the log cannot be read.
pub async fn unsafe_label(store: &Store, handoff: &Handoff) -> Result<Option<String>, StoreError> {
    let classified = of(store, handoff).await?.and_then(|facts| facts.classifier);
    Ok(classified
        .filter(|said| said.verdict == ClassifierFacts::UNSAFE)
        .map(|said| said.label.unwrap_or_default()))
}
