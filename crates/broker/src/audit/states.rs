//! The rows that steer the broker against the states that records commit to.

use std::collections::{HashMap, HashSet};

use super::PAGE;
use crate::archive::Contents;
use crate::vault::{AgentSecrets, Vault};
use handoffd_domain::event::Subscriber;
use handoffd_domain::ids::TenantId;
use handoffd_evidence::commitment::{hash_text, unpack};
use handoffd_evidence::record::StateObject;
use handoffd_evidence::verify::states::{Judgement, StateBook, StateRecord, is_about_state};
use handoffd_evidence::verify::{LogDefect, Verifier};
use handoffd_store::store::states::{ObjectState, list_states};
use handoffd_store::store::{ContentStorage, Result, Store, StoredRecord};

/// Enters a record about state into a book.
pub fn enter(book: &mut StateBook, record: &StoredRecord) {
    if !is_about_state(&record.kind) {
        return;
    }
    let content = record.content.as_ref().and_then(|content| match &content.kept {
        ContentStorage::Hot(_, codec, bytes) => {
            serde_json::from_slice(&unpack(*codec, bytes).ok()?).ok()
        }
        _ => None,
    });
    book.add(StateRecord {
        leaf_index: record.leaf_index,
        kind: &record.kind,
        recorded_at: record.recorded_at.0,
        body: &record.body,
        content,
    });
}

/// Enters a log's records about state, from a leaf index on.
///
/// # Errors
/// The store cannot be read.
pub async fn read_on(
    store: &Store,
    contents: Option<&Contents>,
    tenant: &TenantId,
    (book, mut from): (&mut StateBook, i64),
) -> Result<i64> {
    loop {
        let page = match contents {
            Some(contents) => contents.list_state_records(tenant, from, PAGE).await?,
            None => store.list_state_records(tenant, from, PAGE).await?,
        };
        let Some(last) = page.last() else { return Ok(from) };
        from = last.leaf_index + 1;
        for record in &page {
            enter(book, record);
        }
    }
}

/// The result of comparing all rows with their records.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) committed: u64,
    pub(super) uncommitted: u64,
    pub(super) secrets_not_compared: u64,
    pub(super) fault: Option<LogDefect>,
}

/// Times that rows and records are read again where they differ: they may have changed between the reads.
const READS: u32 = 5;

/// Compares the rows of a tenant with the states that the log commits to.
pub(super) async fn compare(
    store: &Store,
    tenant: &TenantId,
    (book, size): (&mut StateBook, i64),
    (contents, vault): (Option<&Contents>, Option<&Vault>),
    verifier: &mut Verifier,
) -> Result<()> {
    let mut from = size;
    let mut compared = Compared::default();
    for _ in 0..READS {
        let rows = list_states(store, tenant).await?;
        store.settle_log(tenant).await?;
        let before = from;
        from = read_on(store, contents, tenant, (book, from)).await?;
        compared = compare_all(tenant, book, &rows, vault, size);
        // No record was added between the two reads, so the difference is not a change under way.
        if compared.fault.is_none() || from == before {
            break;
        }
    }
    let Compared { committed, uncommitted, secrets_not_compared, fault } = compared;
    verifier.rows(committed, uncommitted, secrets_not_compared);
    if let Some(fault) = fault {
        verifier.fault(fault);
    }
    Ok(())
}

fn compare_all(
    tenant: &TenantId,
    book: &StateBook,
    rows: &[ObjectState],
    vault: Option<&Vault>,
    size: i64,
) -> Compared {
    let mut compared = Compared::default();
    let mut unnamed: HashMap<(StateObject, Option<&str>), u64> = HashMap::new();
    let mut met: HashSet<(StateObject, &str)> = HashSet::new();
    for row in rows {
        let (object, id, agent) = (row.object, row.id.as_str(), row.agent.as_deref());
        met.insert((object, id));
        let name = format!("{} {id}", object.words());
        let fault = match book.judge(object, (id, agent), &row.state) {
            Judgement::Same => {
                compared.committed += 1;
                compare_secrets(tenant, book, row, vault, &mut compared)
            }
            Judgement::Differs { leaf_index, difference } => {
                let (place, is, was) = (difference.pointer, difference.is, difference.was);
                Some((leaf_index, format!("{name} has {place} {is}, its record says {was}")))
            }
            Judgement::Unread => None,
            Judgement::Uncommitted => {
                compared.uncommitted += 1;
                let met = unnamed.entry((object, agent)).or_default();
                *met += 1;
                let most = book.unnamed_count(object, agent);
                let is_named = matches!(object, StateObject::Agent | StateObject::LegalHold);
                most.filter(|most| !is_named && *met > *most).map(|most| {
                    let why = format!(
                        "{name} exists, and no record commits to it: {most} records of an earlier version account for \
                         such rows, and there are more"
                    );
                    (size, why)
                })
            }
            Judgement::Added(Some(leaf_index)) => Some((
                leaf_index,
                format!("{name} exists, and its record says that it was removed"),
            )),
            Judgement::Added(None) => {
                Some((size, format!("{name} exists, and no record knows it: the row was added")))
            }
        };
        if let (None, Some((leaf_index, detail))) = (&compared.fault, fault) {
            compared.fault = Some(LogDefect { leaf_index, fault: "state", detail });
        }
    }
    if compared.fault.is_none() {
        compared.fault = removed(book, &met);
    }
    compared
}

/// The first object that the log knows and no row has.
fn removed(book: &StateBook, met: &HashSet<(StateObject, &str)>) -> Option<LogDefect> {
    use StateObject::{Agent, Cap, Contract, Key, LegalHold, PayloadSchema, Subscription};
    let objects = [Agent, Key, LegalHold, Cap, Subscription, Contract, PayloadSchema];
    objects.into_iter().find_map(|object| {
        let (id, leaf_index) =
            book.present(object).find(|(id, _)| !met.contains(&(object, *id)))?;
        let detail = format!("{} {id} has this record, and its row is gone", object.words());
        Some(LogDefect { leaf_index, fault: "state", detail })
    })
}

/// Compares what only who has the master key can: secrets, and the name of a person on hold. Returns a fault.
fn compare_secrets(
    tenant: &TenantId,
    book: &StateBook,
    row: &ObjectState,
    vault: Option<&Vault>,
    compared: &mut Compared,
) -> Option<(i64, String)> {
    let name = format!("{} {}", row.object.words(), row.id);
    let leaf_index = book.leaf_index(row.object, &row.id)?;
    if let Some(subject) = &row.subject {
        let Some(vault) = vault else {
            compared.secrets_not_compared += 1;
            return None;
        };
        let key = hash_text(&vault.subject_key(tenant, subject));
        let other = row.state["subjectKey"] != key;
        return other.then(|| (leaf_index, format!("{name} has another person than its record")));
    }
    let sealed = AgentSecrets::parse(row.sealed.as_ref()?);
    let Some((vault, committed)) = vault.zip(book.secrets(row.object, &row.id)) else {
        compared.secrets_not_compared += 1;
        return None;
    };
    let opens = match row.object {
        StateObject::Subscription => {
            let id = row.id.parse().ok()?;
            sealed.opens(vault, tenant, &Subscriber::Subscription(id), committed)
        }
        _ => sealed.opens(vault, tenant, &row.id, committed),
    };
    match opens {
        Ok(true) => None,
        Ok(false) => Some((leaf_index, format!("{name} has other secrets than its record"))),
        Err(err) => Some((leaf_index, format!("{name}: {err}"))),
    }
}
