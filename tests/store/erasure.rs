//! Erasure, access and legal hold, on both stores.

use std::sync::Arc;
use std::time::Duration;

use handoffd::ledger::command::{Call, content};
use handoffd::ledger::commands::{
    EraseNext, FinishErasure, PlaceHold, PurgeNext, Queued, ReleaseHold, RequestErasure,
};
use handoffd::ledger::context::{Context, Rules, Spare};
use handoffd::ledger::reply::{ErasureReply, HoldReply, LedgerError};
use handoffd::ledger::{decide, plan::Plan};
use handoffd::store::erasure::{
    ERASED_CHECKPOINT, ErasureRow, ErasureStatus, HoldRow, PageNeed, PurgeNeed, SubjectRef,
};
use handoffd::store::streams::ChunkRow;
use handoffd::store::{ContentStorage, Needs, Store, Writes};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{ContentId, ErasureId, Micros};
use handoffd_domain::stream::StreamStatus;
use handoffd_evidence::commitment::unpack;
use handoffd_evidence::erasure::{DataSlot, ErasureScope};
use handoffd_evidence::record::{Actor, RecordKind};
use serde_json::json;
use uuid::Uuid;

use crate::attempts::{attempt, attempts_of, ended};
use crate::fixture::{
    Given, agent, content_id, given, handoff_id, needs, plan, submit, task_id, transact, write,
};
use crate::harness::{Bed, Side, acme};
use crate::streams::{opening, told};
use crate::tamper::verify;

fn erasure_id(n: u128) -> ErasureId {
    ErasureId(Uuid::from_u128(0xe5 << 96 | n))
}

fn subject(name: &str) -> SubjectRef {
    // Any one-to-one function of the name that does not show it.
    let mut key = [0; 32];
    key.iter_mut().zip(name.bytes()).for_each(|(byte, of_name)| *byte = !of_name);
    SubjectRef { tenant: acme(), id: name.to_owned(), key }
}

/// Carries a command out, as the ledger does.
async fn say<C: Queued>(store: &Arc<Store>, command: C) -> Result<C::Reply, LedgerError> {
    let call = Call { tenant: acme(), at: Micros(50), actor: Actor::broker() };
    let command = command.into_any();
    let mut rows = Needs::default();
    command.needs(&call, &mut rows);
    let mut reply = None;
    let done = transact(store, &rows, |state| {
        let mut plan = Plan::new(state);
        let context = Context {
            rules: Rules::default(),
            spare: Spare::new(Micros(0)),
            waited: Duration::ZERO,
            claim: None,
        };
        let decision = decide::decide(&plan.state, (&call, &command), &context);
        reply = Some(decision.map(|(changes, reply)| {
            plan.apply(changes);
            reply
        }));
        plan.writes
    })
    .await;
    done.unwrap();
    reply.unwrap().map(|reply| C::reply(reply).expect("its own reply"))
}

async fn row(store: &Arc<Store>, command: impl Queued<Reply = ErasureReply>) -> ErasureRow {
    say(store, command).await.unwrap().row
}

fn request(name: &str, n: u128, scope: ErasureScope) -> RequestErasure {
    RequestErasure {
        subject: subject(name),
        id: erasure_id(n),
        commitment: [9; 32],
        scope,
        reason: "ASKED".to_owned(),
        content: content(b"{}", Micros(40)),
    }
}

fn next(n: u128, part: u128, page: PageNeed) -> EraseNext {
    EraseNext {
        id: erasure_id(n),
        page,
        content_id: ContentId(Uuid::from_u128(0xcc << 96 | n << 32 | part)),
        salt: [5; 16],
    }
}

const ALL: PageNeed = PageNeed { upto: i64::MAX, limit: 3 };

/// From the request to the end, in pages of three.
async fn erase(store: &Arc<Store>, name: &str, n: u128, scope: ErasureScope) -> ErasureRow {
    row(store, request(name, n, scope)).await;
    let held = store.list_held(&acme(), name, None, 1000).await.unwrap().len() as i64;
    // A few pages, whatever there is.
    let page = PageNeed { limit: (held / 3).max(3), ..ALL };
    for part in 0.. {
        let now = row(store, next(n, part, page)).await;
        assert_eq!(verify(store, &acme()).await.first_fault, None, "after page {part}");
        if now.status != ErasureStatus::Running {
            break;
        }
    }
    store.scrub().await.unwrap();
    row(store, FinishErasure { id: erasure_id(n) }).await
}

fn hold(id: &str, name: Option<&str>, task: Option<u128>) -> PlaceHold {
    PlaceHold {
        row: HoldRow {
            tenant: acme(),
            id: id.to_owned(),
            subject_key: name.map(|name| subject(name).key),
            subject_id: name.map(str::to_owned),
            task_id: task.map(task_id),
            reason: "court order".to_owned(),
            placed_at: Micros(30),
            released_at: None,
        },
        commitment: None,
        content: content(b"{}", Micros(30)),
    }
}

pub async fn a_page_goes_whole_with_its_record(bed: Arc<Bed>) {
    for n in 0..8 {
        submit(&bed.store, &[given(n, n).about("jana", "{}").about("omar", "[2]")]).await;
    }
    let done = erase(&bed.store, "jana", 1, ErasureScope::PersonalData).await;
    assert_eq!((done.status, done.data, done.contents), (ErasureStatus::Completed, 8, 0));
    let kept = bed.store.find_erasure(&(acme(), erasure_id(1))).await.unwrap().unwrap();
    assert_eq!(kept.leaf_index, Some(8 + 1 + 3), "requested, three pages, completed");
    assert_eq!(kept.subject_id, None);
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.erased), (None, 8));
    let records = bed.store.list_records(&acme(), None, 0, 8, true).await.unwrap();
    for record in &records {
        assert_eq!((&record.personal[0].subject_id[..], &record.personal[0].kept), ("", &None));
        assert_eq!(record.personal[1].subject_id, "omar");
        assert!(
            record.personal[1].kept.is_some()
                && record.content.as_ref().unwrap().kept.hot().is_some()
        );
    }
    let handoff = bed.store.find_handoff(&(acme(), handoff_id(3))).await.unwrap().unwrap();
    assert_eq!((handoff.digest.len(), handoff.digest_salt.len()), (0, 0));
    let again = row(&bed.store, request("jana", 2, ErasureScope::PersonalData)).await;
    assert_eq!(again.id, erasure_id(1), "what is done is answered again");
}

pub async fn an_update_of_what_was_read_before_brings_nothing_erased_back(bed: Arc<Bed>) {
    let one = given(1, 1).about("jana", "{}");
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let before = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    assert!(!before.digest.is_empty() && !before.tracestate.is_empty());
    erase(&bed.store, "jana", 1, ErasureScope::PersonalData).await;
    let mut writes = Writes::default();
    writes.handoffs.insert(one.key(), (before, false));
    transact(&bed.store, &needs(std::slice::from_ref(&one)), |_| writes.clone()).await.unwrap();
    let after = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    assert!(after.digest.is_empty() && after.digest_salt.is_empty());
    assert_eq!(after.tracestate, "", "vendors of traces may have put anything there");

    // A batch that has read a handoff writes its reason. An erasure that comes meanwhile takes it.
    let three = given(3, 3).about("ines", "{}");
    submit(&bed.store, std::slice::from_ref(&three)).await;
    let (read, erasure_begins) = tokio::sync::oneshot::channel();
    let (erased, erasure_ends) = std::sync::mpsc::channel();
    let store = Arc::clone(&bed.store);
    let erasing = tokio::spawn(async move {
        erasure_begins.await.unwrap();
        erase(&store, "ines", 3, ErasureScope::Messages).await;
        // No task listens if it had to wait.
        let _ = erased.send(());
    });
    let (key, wanted) = (three.key(), needs(std::slice::from_ref(&three)));
    let mut read = Some(read);
    transact(&bed.store, &wanted, move |state| {
        if let Some(read) = read.take() {
            read.send(()).unwrap();
            let _ = erasure_ends.recv_timeout(Duration::from_millis(500));
        }
        let mut row = state.handoffs[&key].clone();
        row.reason = Some("Ines is away".to_owned());
        let mut writes = Writes::default();
        writes.handoffs.insert(key.clone(), (row, false));
        writes
    })
    .await
    .unwrap();
    erasing.await.unwrap();
    let row = bed.store.find_handoff(&three.key()).await.unwrap().unwrap();
    assert_eq!((row.reason, row.digest.len()), (None, 0));

    // A decision on a dead letter writes all columns back. An erasure that comes meanwhile waits for it.
    let two = given(2, 2).about("omar", "{}");
    submit(&bed.store, std::slice::from_ref(&two)).await;
    let letters = Writes { dead_letters: vec![two.dead_letter()], ..Writes::default() };
    write(&bed.store, letters).await.unwrap();
    let (read, erasure_begins) = tokio::sync::oneshot::channel();
    let (erased, erasure_ends) = std::sync::mpsc::channel();
    let store = Arc::clone(&bed.store);
    let erasing = tokio::spawn(async move {
        erasure_begins.await.unwrap();
        erase(&store, "omar", 2, ErasureScope::Messages).await;
        // No task listens if it had to wait.
        let _ = erased.send(());
    });
    let key = two.key();
    let wanted = Needs { dead_letters: [key.clone()].into(), ..Needs::default() };
    let mut read = Some(read);
    transact(&bed.store, &wanted, move |state| {
        if let Some(read) = read.take() {
            read.send(()).unwrap();
            let _ = erasure_ends.recv_timeout(Duration::from_millis(500));
        }
        let mut row = state.dead_letters[&key].clone();
        row.status = DeadLetterStatus::Discarded;
        Writes { dead_letters: vec![row], ..Writes::default() }
    })
    .await
    .unwrap();
    erasing.await.unwrap();
    let row = bed.store.find_dead_letter(&two.key()).await.unwrap().unwrap();
    assert_eq!((row.status, row.failures), (DeadLetterStatus::Discarded, vec![]));
}

/// Commits a handoff in the place of another: with its message, and with the personal data under its id.
async fn stand_in(store: &Arc<Store>, first: &Given, second: &Given) {
    let batch = std::slice::from_ref(second);
    let wanted = needs(batch);
    let written = transact(store, &wanted, |state| {
        let mut writes = plan(batch, state);
        let before = first.handoff();
        let handoff = &mut writes.handoffs.get_mut(&second.key()).unwrap().0;
        (handoff.origin, handoff.content_id) = (Some(first.id()), before.content_id);
        handoff.checkpoint = before.checkpoint;
        handoff.reason = Some("Jana is away".to_owned());
        writes.checkpoints.clear();
        let record = &mut writes.records[0];
        let content = first.submission().content.unwrap();
        record.content = None;
        record.shared = Some((content.id, content.part.commitment));
        record.checkpoint_commitment = Some(first.checkpoint().part.commitment);
        writes
    });
    written.await.unwrap();
}

pub async fn what_stands_in_for_a_handoff_goes_with_its_data(bed: Arc<Bed>) {
    let (first, second) = (given(1, 1).about("jana", "{}"), given(2, 1).to("carol"));
    submit(&bed.store, std::slice::from_ref(&first)).await;
    stand_in(&bed.store, &first, &second).await;
    let mut rejected = second.record(RecordKind::Rejected);
    rejected.content = Some(second.content(20, br#"{"reason":"Jana is away"}"#));
    write(&bed.store, Writes { records: vec![rejected], ..Writes::default() }).await.unwrap();
    let done = erase(&bed.store, "jana", 1, ErasureScope::Messages).await;
    assert_eq!((done.data, done.contents, done.checkpoints), (1, 3, 1), "the message is in two");
    for number in [1, 20] {
        let kept = bed.store.find_content(&acme(), content_id(number)).await.unwrap().unwrap().kept;
        assert_eq!(kept, ContentStorage::Erased, "{number}");
    }
    let row = bed.store.find_handoff(&second.key()).await.unwrap().unwrap();
    assert!(row.digest.is_empty() && row.digest_salt.is_empty() && row.tracestate.is_empty());
    assert_eq!((row.conversation_id, row.reason), (None, None));

    // If the messages stay, copies of the submission go all the same; others' handoffs of the task stay whole.
    let (third, fourth) = (given(3, 3).about("omar", "{}"), given(4, 3).to("carol"));
    let other = given(5, 3);
    submit(&bed.store, &[third.clone(), other.clone()]).await;
    stand_in(&bed.store, &third, &fourth).await;
    let done = erase(&bed.store, "omar", 2, ErasureScope::PersonalData).await;
    assert_eq!((done.data, done.contents, done.checkpoints), (1, 0, 0));
    let row = bed.store.find_handoff(&fourth.key()).await.unwrap().unwrap();
    assert!(row.digest.is_empty() && row.tracestate.is_empty());
    assert_eq!((row.conversation_id, row.reason.as_deref()), (None, Some("Jana is away")));
    let whole = bed.store.find_handoff(&other.key()).await.unwrap().unwrap();
    assert!(!whole.digest.is_empty() && !whole.tracestate.is_empty());
}

/// The end of retention takes a shared content with the page of the first record that has it.
pub async fn handoffs_that_share_a_content_are_cleaned_over_two_pages(bed: Arc<Bed>) {
    let batch = [given(1, 1).about("jana", "{}"), given(2, 1).to("carol")];
    submit(&bed.store, &batch[..1]).await;
    stand_in(&bed.store, &batch[0], &batch[1]).await;
    let wanted = needs(&batch);
    let ended = transact(&bed.store, &wanted, |state| {
        let mut writes = Writes::default();
        for (key, mut handoff) in state.handoffs {
            handoff.status = HandoffStatus::Completed;
            writes.handoffs.insert(key, (handoff, false));
        }
        writes
    });
    ended.await.unwrap();
    for (from, part, taken) in [(0, 0, (1, 2, 1)), (1, 1, (0, 0, 0)), (1, 2, (0, 0, 0))] {
        let need = PurgeNeed { from, before: Micros(10), limit: 1 };
        let content_id = ContentId(Uuid::from_u128(0xcd << 96 | part));
        let next = PurgeNext { need, content_id, salt: [5; 16] };
        let said = say(&bed.store, next).await;
        let Ok(page) = said else { panic!("{said:?}") };
        assert_eq!((page.data, page.contents, page.checkpoints), taken, "page {part}");
        assert_eq!((page.next, page.held), (from + 1, 0), "page {part}");
        assert_eq!(verify(&bed.store, &acme()).await.first_fault, None, "after page {part}");
    }
    for one in &batch {
        let row = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
        assert!(row.digest.is_empty() && row.tracestate.is_empty(), "{:?}", row.id);
        assert_eq!((row.conversation_id, row.reason), (None, None));
    }
    let size = bed.store.find_head(&acme()).await.unwrap().unwrap().size;
    assert_eq!(size, 3, "one record lists what went, and rows alone need none");
}

pub async fn messages_and_checkpoints_go_where_that_is_asked(bed: Arc<Bed>) {
    let with = given(1, 1).about("jana", "{}");
    submit(&bed.store, &[with.clone(), given(2, 1), given(3, 2)]).await;
    let done = erase(&bed.store, "jana", 1, ErasureScope::Messages).await;
    assert_eq!((done.data, done.contents, done.checkpoints), (1, 2, 2), "the whole task");
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
    let erased = bed.store.find_content(&acme(), content_id(1)).await.unwrap().unwrap();
    assert_eq!(erased.kept, ContentStorage::Erased);
    let later = bed.store.find_content(&acme(), content_id(2)).await.unwrap().unwrap();
    assert_eq!(later.kept, ContentStorage::Erased);
    let other = bed.store.find_content(&acme(), content_id(3)).await.unwrap().unwrap();
    assert!(other.kept.hot().is_some(), "another task is left alone");
    let run = (acme(), with.task, with.execution());
    let state = bed.store.find_checkpoint(&run, None, None).await.unwrap().unwrap();
    assert_eq!(unpack(state.part.codec, &state.part.bytes).unwrap(), ERASED_CHECKPOINT);
    assert!(state.part.salt.is_empty());
}

/// Answers of receivers may repeat what they answer.
pub async fn the_attempts_at_a_handoff_go_with_its_data_and_with_its_time(bed: Arc<Bed>) {
    const PLANTED: &str = "jana-PLANTED-IN-AN-ANSWER";
    let planted = [PLANTED.as_bytes().to_vec()];
    let (of, other) = (given(1, 1).about("jana", "{}"), given(2, 2));
    submit(&bed.store, &[of.clone(), other.clone()]).await;
    let made = async |of: &Given, number, answer| {
        let writes = attempts_of([attempt(of, number, answer)]);
        write(&bed.store, writes).await.unwrap();
    };
    made(&of, 1, PLANTED).await;
    made(&of, 2, PLANTED).await;
    made(&other, 1, "down").await;
    let stored = async || match bed.side {
        Side::Sqlite => bed.files(),
        _ => bed.rows().await,
    };
    assert_eq!(found_in(&stored().await, &planted).len(), 1, "the search finds what is there");
    erase(&bed.store, "jana", 1, ErasureScope::PersonalData).await;
    assert_eq!(found_in(&stored().await, &planted), [] as [&[u8]; 0]);
    assert_eq!(bed.store.list_attempts(&of.key()).await.unwrap(), []);
    assert_eq!(bed.store.list_attempts(&other.key()).await.unwrap().len(), 1);

    // Retention takes those of ended tasks, also where a later attempt than the erasure was kept.
    made(&of, 3, "later").await;
    transact(&bed.store, &needs(&[of.clone(), other.clone()]), ended).await.unwrap();
    for part in 0..2 {
        let need = PurgeNeed { from: 0, before: Micros(10), limit: 10 };
        let content_id = ContentId(Uuid::from_u128(0xcd << 96 | part));
        let next = PurgeNext { need, content_id, salt: [5; 16] };
        let Ok(page) = say(&bed.store, next).await else { panic!("no page") };
        assert_eq!((page.cleaned, page.contents), (true, if part == 0 { 2 } else { 0 }));
        for one in [&of, &other] {
            assert_eq!(bed.store.list_attempts(&one.key()).await.unwrap(), [], "{part}");
        }
        // Of a handoff whose content went before.
        made(&of, 4, "late").await;
    }
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
}

/// A handoff in pieces that names a person: opening, chunk and whole message go with the person's data.
pub async fn the_chunks_of_a_stream_go_with_its_message(bed: Arc<Bed>) {
    const PLANTED: &str = "jana-PLANTED-IN-A-CHUNK";
    let of = opening(1).about("jana", "{}");
    submit(&bed.store, std::slice::from_ref(&of)).await;
    let chunk = json!({ "seq": 1, "append": { "/taskSummary": [PLANTED] }, "close": true });
    let whole =
        json!({ "taskSummary": format!("a{PLANTED}"), "stream": { "open": false, "seq": 1 } });
    let closed = (StreamStatus::Closed, 1);
    let records = vec![
        told(&of, RecordKind::Chunk, closed, (10, &chunk)),
        told(&of, RecordKind::StreamClosed, closed, (11, &whole)),
    ];
    let chunks = vec![ChunkRow {
        tenant: acme(),
        handoff_id: of.id(),
        seq: 1,
        content: Some(content_id(10)),
        commitment: Some([7; 32]),
        ends: Some(StreamStatus::Closed),
        reason: None,
        created_at: Micros(1),
    }];
    write(&bed.store, Writes { records, chunks, ..Writes::default() }).await.unwrap();
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
    let kept = async || match bed.side {
        Side::Sqlite => bed.files(),
        _ => bed.rows().await,
    };
    let planted = [PLANTED.as_bytes().to_vec()];
    assert_eq!(found_in(&kept().await, &planted).len(), 1, "the search finds what is there");
    let done = erase(&bed.store, "jana", 1, ErasureScope::Messages).await;
    assert_eq!((done.data, done.contents), (1, 3), "opening, chunk and the message they made");
    assert_eq!(found_in(&kept().await, &planted), [] as [&[u8]; 0]);
    let read = bed.store.list_chunks(&of.key(), 0, 10).await.unwrap();
    assert_eq!((read.len(), &read[0].content), (1, &Some(ContentStorage::Erased)));
    let report = verify(&bed.store, &acme()).await;
    assert_eq!((report.first_fault, report.erased), (None, 4));
}

pub async fn what_came_back_from_a_backup_is_named(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1).about("jana", "{}")]).await;
    let mut raw = bed.raw().await;
    let bytes = raw.blob("SELECT bytes FROM personal_data WHERE leaf_index = 0").await;
    let salt = raw.blob("SELECT salt FROM personal_data WHERE leaf_index = 0").await;
    erase(&bed.store, "jana", 1, ErasureScope::PersonalData).await;
    raw.put("UPDATE personal_data SET bytes = $1", &bytes).await;
    raw.put("UPDATE personal_data SET salt = $1", &salt).await;
    let fault = verify(&bed.store, &acme()).await.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (2, "erasure"), "{}", fault.detail);
}

pub async fn a_hold_on_the_subject_or_on_a_task_is_seen(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1).about("jana", "{}"), given(2, 2).about("jana", "{}")]).await;
    submit(&bed.store, &[given(3, 3).about("omar", "{}")]).await;
    let forbidden = |id: &'static str| {
        let store = bed.store.clone();
        async move {
            let said = say(&store, request("jana", 1, ErasureScope::PersonalData)).await;
            assert!(matches!(&said, Err(LedgerError::Held { id: by, .. }) if by == id), "{said:?}");
        }
    };
    say(&bed.store, hold("on-her", Some("jana"), None)).await.unwrap();
    forbidden("on-her").await;
    let release = |id: &str| {
        let content = content(b"{}", Micros(60));
        ReleaseHold { id: id.to_owned(), content }
    };
    say(&bed.store, release("on-her")).await.unwrap();
    say(&bed.store, hold("on-task", None, Some(2))).await.unwrap();
    forbidden("on-task").await;
    erase(&bed.store, "omar", 9, ErasureScope::PersonalData).await;
    say(&bed.store, release("on-task")).await.unwrap();
    row(&bed.store, request("jana", 1, ErasureScope::PersonalData)).await;
    // A hold that comes between two pages stops the erasure where it is.
    row(&bed.store, next(1, 0, PageNeed { limit: 1, ..ALL })).await;
    say(&bed.store, hold("late", Some("jana"), None)).await.unwrap();
    let said = say(&bed.store, next(1, 1, ALL)).await;
    assert!(matches!(said, Err(LedgerError::Held { .. })), "{said:?}");
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
}

pub async fn holds_and_erasures_read_back_equal(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1).about("jana", "{}")]).await;
    let placed = match say(&bed.store, hold("h1", Some("jana"), None)).await.unwrap() {
        HoldReply { row, repeated: false } => row,
        other => panic!("{other:?}"),
    };
    say(&bed.store, hold("h2", None, Some(7))).await.unwrap();
    assert_eq!(bed.store.find_hold(&(acme(), "h1".to_owned())).await.unwrap(), Some(placed));
    assert_eq!(bed.store.find_hold(&(acme(), "h9".to_owned())).await.unwrap(), None);
    let tenant = acme();
    let all = bed.store.list_holds(&tenant, None, None, 10).await.unwrap();
    assert_eq!(all.iter().map(|row| &row.id[..]).collect::<Vec<_>>(), ["h1", "h2"]);
    let later = bed.store.list_holds(&tenant, None, Some("h1"), 10).await.unwrap();
    assert_eq!(later.len(), 1);
    let own = bed.store.list_holds(&tenant, Some(&subject("jana").key), None, 10).await.unwrap();
    assert_eq!(own.len(), 1);
    let again = say(&bed.store, hold("h1", Some("jana"), None)).await;
    assert!(matches!(again, Ok(HoldReply { repeated: true, .. })), "{again:?}");
    let other = say(&bed.store, hold("h1", Some("omar"), None)).await;
    assert!(matches!(other, Err(LedgerError::Conflict(_))), "{other:?}");
    let content = content(b"{}", Micros(60));
    let release = ReleaseHold { id: "h1".to_owned(), content };
    say(&bed.store, release).await.unwrap();
    let asked = row(&bed.store, request("jana", 1, ErasureScope::Messages)).await;
    let kept = bed.store.find_erasure(&(acme(), erasure_id(1))).await.unwrap().unwrap();
    assert_eq!(kept, asked);
    let unfinished = bed.store.list_unfinished_erasures(Micros(50)).await.unwrap();
    assert_eq!(unfinished, [(acme(), erasure_id(1))]);
    assert_eq!(bed.store.list_unfinished_erasures(Micros(49)).await.unwrap(), []);
    let of_her = bed.store.list_erasures(&tenant, &subject("jana").key).await.unwrap();
    assert_eq!(of_her, [kept]);
    assert_eq!(bed.store.list_newest_erasures(&tenant, None, 10).await.unwrap(), of_her);
    let before = Some(erasure_id(1));
    assert_eq!(bed.store.list_newest_erasures(&tenant, before, 10).await.unwrap(), []);
}

pub async fn what_is_held_is_listed_in_pages(bed: Arc<Bed>) {
    for n in 0..5 {
        submit(&bed.store, &[given(n, n).about("jana", "{\"x\":1}").about("jana", "{}")]).await;
    }
    let tenant = acme();
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = bed.store.list_held(&tenant, "jana", after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.slot);
        seen.extend(page);
    }
    let places: Vec<_> = seen.iter().map(|d| (d.slot.leaf_index, d.slot.ordinal)).collect();
    assert_eq!(places, (0..5).flat_map(|n| [(n, 0), (n, 1)]).collect::<Vec<_>>());
    assert_eq!(seen[2].handoff_id.as_deref(), Some(&handoff_id(1).to_string()[..]));
    let route = seen[2].route.as_ref().unwrap();
    assert_eq!((&route.source[..], &route.target[..]), (agent("alice").as_str(), "bob"));
    assert_eq!(bed.store.list_held(&tenant, "omar", None, 3).await.unwrap(), []);
    let other = "beta".parse().unwrap();
    assert_eq!(bed.store.list_held(&other, "jana", None, 3).await.unwrap(), []);
}

pub async fn a_page_ends_at_its_bound(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1).about("jana", "{}")]).await;
    row(&bed.store, request("jana", 1, ErasureScope::PersonalData)).await;
    submit(&bed.store, &[given(2, 2).about("jana", "{}")]).await;
    let bound = PageNeed { upto: 2, limit: 10 };
    let now = row(&bed.store, next(1, 0, bound)).await;
    assert_eq!((now.data, now.status), (1, ErasureStatus::Running));
    let now = row(&bed.store, next(1, 1, bound)).await;
    assert_eq!((now.data, now.status), (1, ErasureStatus::Scrubbing));
    let kept = bed.store.list_held(&acme(), "jana", None, 10).await.unwrap();
    assert_eq!(
        kept.iter().map(|d| d.slot).collect::<Vec<_>>(),
        [DataSlot { leaf_index: 2, ordinal: 0 }]
    );
}

pub async fn scrubbing_may_be_repeated(bed: Arc<Bed>) {
    submit(&bed.store, &[given(1, 1)]).await;
    bed.store.scrub().await.unwrap();
    bed.store.scrub().await.unwrap();
    submit(&bed.store, &[given(2, 2)]).await;
    assert_eq!(verify(&bed.store, &acme()).await.first_fault, None);
}

/// Text that does not compress, so that the packed form holds it as it is.
fn noise(seed: u64, length: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b'!' + u8::try_from(state % 90).unwrap())
        })
        .filter(|c| *c != '"' && *c != '\\')
        .collect()
}

pub async fn erased_data_is_in_no_file(bed: Arc<Bed>) {
    // Small and uncompressed, above zstd's threshold, and beyond a page, among many others, so that
    // pages of the tree have been split before.
    let mut planted = Vec::new();
    for n in 0..240u64 {
        let size = [24, 600, 9000][usize::try_from(n % 3).unwrap()];
        let datum = format!("{{\"x\":\"{}\"}}", noise(n + 1, size));
        let subject = if n % 2 == 0 { "jana-PLANTED-SUBJECT" } else { "omar" };
        let given = given(u128::from(n), u128::from(n % 7)).about(subject, &datum);
        submit(&bed.store, &[given]).await;
        if n % 2 == 0 {
            planted.push(datum.into_bytes()[6..26].to_vec());
        }
    }
    let held = bed.store.list_held(&acme(), "jana-PLANTED-SUBJECT", None, 1000).await.unwrap();
    let blobs = held.iter().map(|datum| {
        let middle = datum.kept.1.len() / 2;
        datum.kept.1[middle..middle + 12].to_vec()
    });
    planted.extend(blobs);
    planted.push(b"PLANTED-SUBJECT".to_vec());
    if bed.side == Side::Sqlite {
        let found = bed.files();
        let there = found_in(&found, &planted).len();
        assert!(there > planted.len() / 2, "the search finds what is there: {there}");
    }
    erase(&bed.store, "jana-PLANTED-SUBJECT", 1, ErasureScope::PersonalData).await;
    let left = match bed.side {
        Side::Sqlite => bed.files(),
        // Postgres's own files are the server's; what no row shows is what can be said here.
        Side::Memory => Vec::new(),
        _ => bed.rows().await,
    };
    let still = found_in(&left, &planted);
    let texts: Vec<_> = still.iter().map(|text| String::from_utf8_lossy(text)).collect();
    assert!(still.is_empty(), "still there: {texts:?}");
    let other = bed.store.list_held(&acme(), "omar", None, 1000).await.unwrap();
    assert_eq!(other.len(), 120);
}

/// Those of the texts that are there.
fn found_in<'a>(bytes: &[u8], texts: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    let search = aho_corasick::AhoCorasick::new(texts).unwrap();
    let found: std::collections::BTreeSet<_> =
        search.find_overlapping_iter(bytes).map(|hit| hit.pattern().as_usize()).collect();
    found.into_iter().map(|place| &texts[place][..]).collect()
}
