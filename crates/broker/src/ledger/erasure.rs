//! Decisions on erasure and legal hold. An erasure goes in pages: each takes data away and appends the
//! record that lists it, in one commit, so that at no moment anything is gone that no record explains.

use super::command::{
    Command, EraseNext, LedgerError, PlaceHold, PurgeNext, ReleaseHold, Reply, RequestErasure,
};
use super::plan::{Change, Decision};
use super::reply::Purged;
use handoffd_core::domain::ids::ErasureId;
use handoffd_core::domain::personal::user_ref;
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent, hash_text};
use handoffd_core::evidence::erasure::{
    DataSlot, ErasureCause, ErasureFacts, ErasureScope, HoldFacts, RetentionFacts, list,
};
use handoffd_core::evidence::record::{RecordContent, RecordDraft, RecordKind};
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::{
    ErasurePage, ErasureRow, ErasureStatus, ErasureWrite, HoldRow, PurgePage,
};

/// Why a record's content went: its time was over.
const RETENTION: &str = "RETENTION";

fn draft(command: &Command, kind: RecordKind) -> RecordDraft {
    RecordDraft::new(command.tenant.clone(), kind, command.at, command.actor.clone())
}

/// Places a legal hold; placing the same again changes nothing.
pub(super) fn place_hold(state: &BatchState, command: &Command, place: &PlaceHold) -> Decision {
    let row = &place.row;
    if let Some(known) = state.erasure.holds.get(&(command.tenant.clone(), row.id.clone())) {
        let same = known.released_at.is_none()
            && (known.subject_key, known.task_id, &known.reason)
                == (row.subject_key, row.task_id, &row.reason);
        return if same {
            Ok((Vec::new(), Reply::Hold { row: known.clone(), repeated: true }))
        } else {
            Err(LedgerError::Conflict(format!("legal hold {} exists, for something else", row.id)))
        };
    }
    let mut record = draft(command, RecordKind::LegalHoldPlaced);
    record.task_id = row.task_id;
    record.content = Some(place.content.clone());
    record.hold = Some(HoldFacts {
        id: row.id.clone(),
        subject_commitment: place.commitment.map(|commitment| hash_text(&commitment)),
    });
    Ok((
        vec![Change::Hold(row.clone()), Change::Record(Box::new(record))],
        Reply::Hold { row: row.clone(), repeated: false },
    ))
}

/// Releases a legal hold; releasing it again changes nothing. It no longer names whom it held.
pub(super) fn release_hold(
    state: &BatchState,
    command: &Command,
    release: &ReleaseHold,
) -> Decision {
    let key = (command.tenant.clone(), release.id.clone());
    let known = state.erasure.holds.get(&key).ok_or(LedgerError::NotFound("legal hold"))?;
    if known.released_at.is_some() {
        return Ok((Vec::new(), Reply::Hold { row: known.clone(), repeated: true }));
    }
    let row = HoldRow { released_at: Some(command.at), subject_id: None, ..known.clone() };
    let mut record = draft(command, RecordKind::LegalHoldReleased);
    record.task_id = row.task_id;
    record.content = Some(release.content.clone());
    record.hold = Some(HoldFacts { id: row.id.clone(), subject_commitment: None });
    Ok((
        vec![Change::Hold(row.clone()), Change::Record(Box::new(record))],
        Reply::Hold { row, repeated: false },
    ))
}

fn allowed(holds: &[HoldRow]) -> Result<(), LedgerError> {
    match holds.first() {
        Some(hold) => Err(LedgerError::Held { id: hold.id.clone(), reason: hold.reason.clone() }),
        None => Ok(()),
    }
}

/// Begins an erasure. One that is under way, or that left nothing to erase, is the answer to the
/// request that comes after it.
pub(super) fn request(state: &BatchState, command: &Command, request: &RequestErasure) -> Decision {
    let none = handoffd_store::store::erasure::SubjectState::default();
    let known = state.erasure.subjects.get(&request.subject).unwrap_or(&none);
    let mut widened = false;
    if let Some(latest) = &known.latest
        && (latest.status == ErasureStatus::Running || known.held == 0)
    {
        let wider =
            (latest.scope, request.scope) == (ErasureScope::PersonalData, ErasureScope::Messages);
        if !wider {
            return Ok((Vec::new(), Reply::Erasure { row: latest.clone(), repeated: true }));
        }
        if latest.status == ErasureStatus::Running {
            let why = "an erasure of the scope personal-data is under way for this person: ask again once it has ended";
            return Err(LedgerError::Conflict(why.to_owned()));
        }
        if !known.traced {
            let why = "this person was erased with the scope personal-data by a version before 0.4: nothing tells any more which messages the data came with";
            return Err(LedgerError::Conflict(why.to_owned()));
        }
        widened = true;
    }
    if known.held == 0 && !widened {
        return Err(LedgerError::NotFound("data subject"));
    }
    allowed(&known.holds)?;
    let row = ErasureRow {
        tenant: command.tenant.clone(),
        id: request.id,
        subject_key: request.subject.key,
        subject_id: Some(request.subject.id.clone()),
        commitment: request.commitment,
        scope: request.scope,
        reason: request.reason.clone(),
        status: ErasureStatus::Running,
        held: known.held,
        data: 0,
        contents: 0,
        checkpoints: 0,
        leaf_index: None,
        requested_at: command.at,
        updated_at: command.at,
        completed_at: None,
    };
    let mut record = draft(command, RecordKind::ErasureRequested);
    record.reason = Some(request.reason.clone());
    record.content = Some(request.content.clone());
    record.erasure = Some(facts(&row, (0, 0, 0)));
    Ok((
        vec![Change::Erasure(row.clone()), Change::Record(Box::new(record))],
        Reply::Erasure { row, repeated: false },
    ))
}

fn facts(row: &ErasureRow, (data, contents, checkpoints): (i64, i64, i64)) -> ErasureFacts {
    ErasureFacts {
        id: row.id,
        scope: row.scope,
        subject_commitment: hash_text(&row.commitment),
        data,
        contents,
        checkpoints,
        held: None,
        requested_at: None,
    }
}

fn page_of<'a>(
    state: &'a BatchState,
    command: &Command,
    id: ErasureId,
) -> Result<&'a ErasurePage, LedgerError> {
    let key = (command.tenant.clone(), id);
    state.erasure.pages.get(&key).ok_or(LedgerError::NotFound("erasure"))
}

/// Erases the next page. When there is none the rows hold nothing more: the subject's id goes too, and
/// the files are next.
pub(super) fn erase(state: &BatchState, command: &Command, next: &EraseNext) -> Decision {
    let page = page_of(state, command, next.id)?;
    let mut row = page.row.clone();
    if row.status != ErasureStatus::Running {
        return Ok((Vec::new(), Reply::Erasure { row, repeated: true }));
    }
    allowed(&page.holds)?;
    row.updated_at = command.at;
    if page.data.is_empty() && page.contents.is_empty() && page.checkpoints.is_empty() {
        row.status = ErasureStatus::Scrubbing;
        row.subject_id = None;
        // The reference to the person goes with the last of its data.
        let person = ErasureWrite {
            tenant: command.tenant.clone(),
            erasure: Some(row.id),
            data: Vec::new(),
            handoffs: Vec::new(),
            contents: Vec::new(),
            checkpoints: Vec::new(),
            words: false,
            purged_at: None,
            user_ref: Some(user_ref(&row.subject_key)),
        };
        let changes = vec![Change::Erasure(row.clone()), Change::Erase(person)];
        return Ok((changes, Reply::Erasure { row, repeated: false }));
    }
    let slots: Vec<DataSlot> = page.data.iter().map(|(slot, _)| *slot).collect();
    let leaves: Vec<i64> = page.contents.iter().map(|(leaf, _)| *leaf).collect();
    let mut handoffs: Vec<_> = page.data.iter().filter_map(|(_, handoff)| *handoff).collect();
    handoffs.extend(&page.stand_ins);
    handoffs.sort_unstable();
    handoffs.dedup();
    let counts = [slots.len(), leaves.len(), page.checkpoints.len()]
        .map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    row.data += counts[0];
    row.contents += counts[1];
    row.checkpoints += counts[2];
    let mut record = draft(command, RecordKind::Erased);
    record.reason = Some(row.reason.clone());
    record.erasure = Some(facts(&row, counts.into()));
    let list = list(ErasureCause::Erasure(row.id), &slots, &leaves, &page.checkpoints);
    record.content = Some(RecordContent {
        id: next.content_id,
        part: PackedContent::new(CommitmentSubject::Message, next.salt, &list),
    });
    let erase = ErasureWrite {
        tenant: command.tenant.clone(),
        erasure: Some(row.id),
        data: slots,
        handoffs,
        contents: page.contents.iter().map(|(_, id)| *id).collect(),
        checkpoints: page.checkpoints.clone(),
        words: row.scope == ErasureScope::Messages,
        purged_at: None,
        user_ref: None,
    };
    Ok((
        vec![Change::Erasure(row.clone()), Change::Erase(erase), Change::Record(Box::new(record))],
        Reply::Erasure { row, repeated: false },
    ))
}

/// Takes away the next page of what is past its time, and appends the record that lists it. Where a legal
/// hold was placed in this very batch the page is looked at again: it was read before the hold.
pub(super) fn purge(
    state: &BatchState,
    command: &Command,
    next: &PurgeNext,
) -> (Vec<Change>, Reply) {
    let none = PurgePage { next: next.need.from, again: true, ..PurgePage::default() };
    let page = state.erasure.purges.get(&command.tenant).unwrap_or(&none);
    let seen = Purged {
        next: page.next,
        ends: page.ends && !page.again,
        held: page.held,
        first_held: page.first_held,
        data: 0,
        contents: 0,
        checkpoints: 0,
        cleaned: !page.again && !page.handoffs.is_empty(),
    };
    if page.again {
        return (Vec::new(), Reply::Purged(Purged { next: next.need.from, ..seen }));
    }
    let counts = [page.data.len(), page.contents.len(), page.checkpoints.len()]
        .map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    let mut ids: Vec<_> = page.contents.iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    let erase = ErasureWrite {
        tenant: command.tenant.clone(),
        erasure: None,
        data: page.data.clone(),
        handoffs: page.handoffs.clone(),
        contents: ids,
        checkpoints: page.checkpoints.clone(),
        words: true,
        purged_at: Some(command.at),
        user_ref: None,
    };
    if counts == [0; 3] {
        // The record of an earlier page lists the contents that these handoffs had.
        let rows = (!erase.handoffs.is_empty()).then_some(Change::Erase(erase));
        return (rows.into_iter().collect(), Reply::Purged(seen));
    }
    let before = next.need.before.rfc3339();
    let leaves: Vec<i64> = page.contents.iter().map(|(leaf, _)| *leaf).collect();
    let list = list(ErasureCause::Retention(&before), &page.data, &leaves, &page.checkpoints);
    let mut record = draft(command, RecordKind::Erased);
    record.reason = Some(RETENTION.to_owned());
    record.retention = Some(RetentionFacts {
        before,
        data: counts[0],
        contents: counts[1],
        checkpoints: counts[2],
    });
    record.content = Some(RecordContent {
        id: next.content_id,
        part: PackedContent::new(CommitmentSubject::Message, next.salt, &list),
    });
    let [data, contents, checkpoints] = counts;
    (
        vec![Change::Erase(erase), Change::Record(Box::new(record))],
        Reply::Purged(Purged { data, contents, checkpoints, ..seen }),
    )
}

/// Ends an erasure whose files are clean; ending it again changes nothing.
pub(super) fn finish(state: &BatchState, command: &Command, id: ErasureId) -> Decision {
    let mut row = page_of(state, command, id)?.row.clone();
    match row.status {
        ErasureStatus::Completed => Ok((Vec::new(), Reply::Erasure { row, repeated: true })),
        ErasureStatus::Running => {
            Err(LedgerError::Conflict("this erasure has still data to erase".to_owned()))
        }
        ErasureStatus::Scrubbing => {
            row.status = ErasureStatus::Completed;
            row.updated_at = command.at;
            row.completed_at = Some(command.at);
            let mut record = draft(command, RecordKind::ErasureCompleted);
            record.reason = Some(row.reason.clone());
            record.erasure = Some(ErasureFacts {
                held: Some(row.held),
                requested_at: Some(row.requested_at.rfc3339()),
                ..facts(&row, (row.data, row.contents, row.checkpoints))
            });
            Ok((
                vec![Change::Erasure(row.clone()), Change::Record(Box::new(record))],
                Reply::Erasure { row, repeated: false },
            ))
        }
    }
}
