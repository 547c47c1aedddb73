//! Erasure decided over what was found: no store.

use std::time::Duration;

use super::command::content;
use super::commands::{
    AnyCommand, AnyReply, EraseNext, FinishErasure, PlaceHold, Queued, RequestErasure,
};
use super::context::{Context, Rules, Spare};
use super::decide_tests;
use super::decide_tests::{Order, decide};
use super::plan::{Change, Decision, Plan};
use super::reply::{ErasureReply, LedgerError};
use handoffd_domain::handoff::{Handoff, HandoffCommit};
use handoffd_domain::ids::{ContentId, ErasureId, HandoffId, Micros, TenantId};
use handoffd_domain::money::Usd;
use handoffd_evidence::erasure::{DataSlot, ErasureScope};
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::BatchState;
use handoffd_store::store::erasure::{
    ErasurePage, ErasureRow, ErasureStatus, HoldRow, PageNeed, SubjectRef, SubjectState,
};

fn context() -> Context {
    Context {
        rules: Rules::default(),
        spare: Spare::new(Micros(0)),
        waited: Duration::ZERO,
        claim: None,
    }
}

fn tenant() -> TenantId {
    "t".parse().unwrap()
}

fn id() -> ErasureId {
    ErasureId(uuid::Uuid::from_u128(7))
}

fn subject() -> SubjectRef {
    SubjectRef { tenant: tenant(), id: "jana".to_owned(), key: [1; 32] }
}

fn command(command: impl Queued) -> Order {
    super::decide_tests::command(9, command)
}

fn request() -> Order {
    command(RequestErasure {
        subject: subject(),
        id: id(),
        commitment: [2; 32],
        scope: ErasureScope::PersonalData,
        reason: "ASKED".to_owned(),
        content: content(b"{}", Micros(9)),
    })
}

fn next() -> Order {
    command(EraseNext {
        id: id(),
        page: PageNeed { upto: 100, limit: 10 },
        content_id: ContentId(uuid::Uuid::from_u128(1)),
        salt: [3; 16],
    })
}

fn hold(subject: bool) -> HoldRow {
    HoldRow {
        tenant: tenant(),
        id: "case-1".to_owned(),
        subject_key: subject.then_some([1; 32]),
        subject_id: subject.then(|| "jana".to_owned()),
        task_id: None,
        reason: "litigation".to_owned(),
        placed_at: Micros(1),
        released_at: None,
    }
}

fn knowing(known: SubjectState) -> BatchState {
    let mut state = BatchState::default();
    state.erasure.subjects.insert(subject(), known);
    state
}

fn asked() -> ErasureRow {
    let state = knowing(SubjectState { held: 2, ..SubjectState::default() });
    match decide(&state, &request(), &context()).unwrap().1 {
        AnyReply::RequestErasure(ErasureReply { row, repeated: false }) => row,
        other => panic!("{other:?}"),
    }
}

fn with_page(
    row: ErasureRow,
    holds: Vec<HoldRow>,
    data: Vec<(DataSlot, Option<HandoffId>)>,
) -> BatchState {
    let mut state = BatchState::default();
    let page =
        ErasurePage { row, holds, data, stand_ins: vec![], contents: vec![], checkpoints: vec![] };
    state.erasure.pages.insert((tenant(), id()), page);
    state
}

fn kinds(decision: &Decision<AnyReply>) -> Vec<RecordKind> {
    let (changes, _) = decision.as_ref().unwrap();
    changes
        .iter()
        .filter_map(|change| match change {
            Change::Record(draft) => Some(draft.kind),
            _ => None,
        })
        .collect()
}

#[test]
fn a_request_is_recorded_and_names_nobody() {
    let state = knowing(SubjectState { held: 2, ..SubjectState::default() });
    let decision = decide(&state, &request(), &context());
    assert_eq!(kinds(&decision), [RecordKind::ErasureRequested]);
    let (changes, _) = decision.unwrap();
    for change in &changes {
        if let Change::Record(draft) = change {
            let mut head = handoffd_evidence::record::LogHead {
                tenant: tenant(),
                log_id: "l".to_owned(),
                size: 0,
                hash: vec![],
                tree: handoffd_evidence::merkle::Frontier::default(),
            };
            let body = handoffd_evidence::record::seal(&mut head, draft).body;
            let body = String::from_utf8(body).unwrap();
            assert!(!body.contains("jana") && body.contains("subjectCommitment"), "{body}");
        }
    }
}

#[test]
fn a_hold_forbids_the_request_and_the_next_page() {
    let held = SubjectState { held: 2, holds: vec![hold(true)], ..SubjectState::default() };
    let said = decide(&knowing(held), &request(), &context()).unwrap_err();
    assert!(matches!(&said, LedgerError::Held { id, .. } if id == "case-1"), "{said:?}");
    let data = vec![(DataSlot { leaf_index: 1, ordinal: 0 }, None)];
    let said =
        decide(&with_page(asked(), vec![hold(true)], data), &next(), &context()).unwrap_err();
    assert!(matches!(said, LedgerError::Held { .. }), "{said:?}");
}

#[test]
fn a_hold_placed_in_the_same_batch_counts() {
    let data = vec![(DataSlot { leaf_index: 1, ordinal: 0 }, None)];
    let mut plan = Plan::new(with_page(asked(), vec![], data));
    let place = command(PlaceHold {
        row: hold(true),
        commitment: None,
        content: content(b"{}", Micros(9)),
    });
    let (changes, _) = decide(&plan.state, &place, &context()).unwrap();
    plan.apply(changes);
    assert!(matches!(decide(&plan.state, &next(), &context()), Err(LedgerError::Held { .. })));
}

#[test]
fn nothing_held_is_not_found_and_what_is_done_is_answered_again() {
    let said = decide(&knowing(SubjectState::default()), &request(), &context()).unwrap_err();
    assert!(matches!(said, LedgerError::NotFound(_)), "{said:?}");
    let done = ErasureRow { status: ErasureStatus::Completed, ..asked() };
    let known = SubjectState { held: 0, latest: Some(done.clone()), ..SubjectState::default() };
    let (changes, reply) = decide(&knowing(known), &request(), &context()).unwrap();
    assert!(changes.is_empty());
    assert!(matches!(reply, AnyReply::RequestErasure(ErasureReply { repeated: true, .. })));
    // Erased data are not found again for a wider scope; a narrower one is in it.
    let wider = |status| {
        let row = ErasureRow { status, ..done.clone() };
        let known = SubjectState { held: 0, latest: Some(row), ..SubjectState::default() };
        let AnyCommand::RequestErasure(mut request) = request().command else {
            panic!("an erasure is requested")
        };
        request.scope = ErasureScope::Messages;
        decide(&knowing(known), &command(*request), &context())
    };
    for status in [ErasureStatus::Running, ErasureStatus::Completed] {
        assert!(matches!(wider(status), Err(LedgerError::Conflict(_))), "{status:?}");
    }
    // If the earlier erasure left a trace of the tasks, the wider one begins.
    let known = SubjectState {
        held: 0,
        traced: true,
        latest: Some(done.clone()),
        ..SubjectState::default()
    };
    let AnyCommand::RequestErasure(mut wide) = request().command else {
        panic!("an erasure is requested")
    };
    wide.scope = ErasureScope::Messages;
    let begun = decide(&knowing(known), &command(*wide), &context());
    assert_eq!(kinds(&begun), [RecordKind::ErasureRequested]);
    let whole = ErasureRow { scope: ErasureScope::Messages, ..done.clone() };
    let known = SubjectState { held: 0, latest: Some(whole), ..SubjectState::default() };
    assert!(decide(&knowing(known), &request(), &context()).is_ok());
    // New data since: a new erasure.
    let known = SubjectState { held: 1, latest: Some(done), ..SubjectState::default() };
    assert_eq!(
        kinds(&decide(&knowing(known), &request(), &context())),
        [RecordKind::ErasureRequested]
    );
}

#[test]
fn pages_go_with_their_record_until_none_is_left() {
    let data = vec![
        (DataSlot { leaf_index: 1, ordinal: 0 }, Some(HandoffId(uuid::Uuid::from_u128(1)))),
        (DataSlot { leaf_index: 1, ordinal: 2 }, Some(HandoffId(uuid::Uuid::from_u128(1)))),
    ];
    let mut plan = Plan::new(with_page(asked(), vec![], data));
    let first = decide(&plan.state, &next(), &context());
    assert_eq!(kinds(&first), [RecordKind::Erased]);
    plan.apply(first.unwrap().0);
    assert_eq!((plan.writes.erased[0].data.len(), plan.writes.erased[0].handoffs.len()), (2, 1));
    // The same batch again: the page is gone, so this is the end of the rows.
    let (changes, reply) = decide(&plan.state, &next(), &context()).unwrap();
    let AnyReply::EraseNext(ErasureReply { row, .. }) = reply else { panic!() };
    assert_eq!((row.status, row.subject_id, row.data), (ErasureStatus::Scrubbing, None, 2));
    plan.apply(changes);
    let finish = command(FinishErasure { id: id() });
    let ended = decide(&plan.state, &finish, &context());
    assert_eq!(kinds(&ended), [RecordKind::ErasureCompleted]);
    plan.apply(ended.unwrap().0);
    assert_eq!(kinds(&decide(&plan.state, &finish, &context())), []);
}

#[test]
fn an_erasure_with_data_left_does_not_end() {
    let state = with_page(asked(), vec![], vec![]);
    let said = decide(&state, &command(FinishErasure { id: id() }), &context()).unwrap_err();
    assert!(matches!(said, LedgerError::Conflict(_)));
}

#[test]
fn what_begins_to_stand_in_for_a_handoff_in_the_batch_of_its_erasure_goes_with_it() {
    let of = |n: u8| {
        let mut handoff = decide_tests::handoff(n, 1).committed(HandoffCommit {
            content: (ContentId(uuid::Uuid::from_u128(5)), [5; 32]),
            checkpoint: None,
            fencing_token: 1,
            topped_up: Usd(0),
        });
        "vendor=jana".clone_into(&mut handoff.tracestate);
        handoff.conversation_id = Some("jana's".to_owned());
        handoff
    };
    let (first, mut second) = (of(1), of(2));
    second.origin = Some(first.id);
    let erased = |handoff: &Handoff| {
        (handoff.digest.is_empty(), handoff.tracestate.as_str(), handoff.conversation_id.is_none())
            == (true, "", true)
    };
    let data = vec![(DataSlot { leaf_index: 1, ordinal: 0 }, Some(first.id))];
    let mut plan = Plan::new(with_page(asked(), vec![], data));
    plan.state.handoffs.insert((tenant(), first.id), first.clone());
    plan.apply(vec![Change::Handoff(second.clone())]);
    let (changes, _) = decide(&plan.state, &next(), &context()).unwrap();
    plan.apply(changes);
    for id in [first.id, second.id] {
        assert!(erased(&plan.state.handoffs[&(tenant(), id)]), "{id}");
    }
    let (written, new) = &plan.writes.handoffs[&(tenant(), second.id)];
    assert!(*new && erased(written));
}
