//! Handoffs in pieces: numbers of a stream, what is idle, and the lines to webhook receivers.

use std::sync::Arc;

use handoffd::store::streams::{ChunkRow, LineSettle, StreamLine};
use handoffd::store::{ContentStorage, Writes};
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::Micros;
use handoffd_domain::stream::{Stream, StreamStatus};
use handoffd_evidence::record::{RecordDraft, RecordKind, StreamFacts};
use serde_json::{Value, json};

use crate::fixture::{Given, content_id, given, settle, submit, write};
use crate::harness::Bed;
use crate::tamper::verify;

fn chunk(of: &Given, seq: i64, ends: Option<StreamStatus>) -> ChunkRow {
    ChunkRow {
        tenant: of.key().0,
        handoff_id: of.id(),
        seq,
        // The first has the content of the submission, the broker's end none.
        content: (seq == 1).then(|| content_id(1)),
        commitment: (seq == 1).then_some([7; 32]),
        ends,
        reason: ends.map(|_| "STREAM_TIMEOUT".to_owned()),
        created_at: Micros(seq),
    }
}

fn streaming(of: &Given, due_at: Option<i64>) -> Writes {
    let mut stream = Stream::opened(Micros(0));
    stream.due_at = due_at.map(Micros);
    let handoff = Handoff { stream: Some(stream), ..of.handoff() };
    Writes { handoffs: [(of.key(), (handoff, false))].into(), ..Writes::default() }
}

pub async fn the_numbers_of_a_stream_are_kept_once_and_read_in_order(bed: Arc<Bed>) {
    let (one, other) = (given(1, 1), given(2, 2));
    submit(&bed.store, &[one.clone(), other.clone()]).await;
    let ended = Some(StreamStatus::Aborted);
    let chunks = vec![chunk(&one, 2, ended), chunk(&one, 1, None), chunk(&other, 1, None)];
    write(&bed.store, Writes { chunks, ..Writes::default() }).await.unwrap();
    let read = bed.store.list_chunks(&one.key(), 0, 10).await.unwrap();
    let rows: Vec<_> = read.iter().map(|stored| stored.row.clone()).collect();
    assert_eq!(rows, [chunk(&one, 1, None), chunk(&one, 2, ended)]);
    assert!(matches!(&read[0].content, Some(ContentStorage::Hot(..))), "{read:?}");
    assert_eq!(read[1].content, None);
    let behind = bed.store.list_chunks(&one.key(), 1, 10).await.unwrap();
    assert_eq!((behind.len(), behind[0].row.seq), (1, 2));
    assert_eq!(bed.store.list_chunks(&one.key(), 0, 1).await.unwrap().len(), 1);
    // A number is taken once.
    let again = Writes { chunks: vec![chunk(&one, 2, None)], ..Writes::default() };
    write(&bed.store, again).await.unwrap_err();
    assert_eq!(bed.store.list_chunks(&one.key(), 0, 10).await.unwrap(), read);
}

pub async fn an_open_stream_past_its_time_is_found_until_it_has_ended(bed: Arc<Bed>) {
    let (one, other) = (given(1, 1), given(2, 2));
    submit(&bed.store, &[one.clone(), other.clone()]).await;
    let idle = async |now: i64| {
        let found = bed.store.list_idle_streams(Micros(now), 10).await.unwrap();
        found.iter().map(|handoff| handoff.id).collect::<Vec<_>>()
    };
    assert_eq!(idle(i64::MAX).await, []);
    write(&bed.store, streaming(&one, Some(200))).await.unwrap();
    write(&bed.store, streaming(&other, Some(100))).await.unwrap();
    assert_eq!(idle(99).await, []);
    assert_eq!(idle(100).await, [other.id()]);
    assert_eq!(idle(500).await, [other.id(), one.id()], "the first due first");
    let kept = bed.store.find_handoff(&one.key()).await.unwrap().unwrap();
    assert_eq!(kept.stream.unwrap().due_at, Some(Micros(200)));
    write(&bed.store, streaming(&other, None)).await.unwrap();
    assert_eq!(idle(500).await, [one.id()]);
}

pub async fn a_line_is_served_by_one_broker_once_the_delivery_is_settled(bed: Arc<Bed>) {
    let one = given(1, 1);
    submit(&bed.store, std::slice::from_ref(&one)).await;
    let lines = Writes { stream_lines: vec![one.key()], ..Writes::default() };
    write(&bed.store, lines).await.unwrap();
    let due = async |now: i64| bed.store.list_due_lines(Micros(now), 10).await.unwrap();
    assert_eq!(due(100).await, [], "no chunk");
    let chunks = vec![chunk(&one, 1, None), chunk(&one, 2, None)];
    write(&bed.store, Writes { chunks, ..Writes::default() }).await.unwrap();
    assert_eq!(due(100).await, [], "the handoff itself is not delivered");
    settle(&bed.store, &one).await;
    assert_eq!(due(100).await, [one.key()]);
    let claim = async |broker: &str, now: i64| {
        let until = Micros(now + 50);
        bed.store.claim_line(&one.key(), broker, Micros(now), until).await.unwrap()
    };
    let begun = StreamLine { sent: 0, failures: 0 };
    assert_eq!(claim("b1", 100).await, Some(begun));
    assert_eq!((claim("b2", 101).await, due(101).await), (None, vec![]));
    let sent = |sent, next_at, lease_until| LineSettle::Sent {
        line: StreamLine { sent, failures: 3 },
        next_at: Micros(next_at),
        lease_until: Micros(lease_until),
    };
    let write_line = async |broker: &str, settle| {
        bed.store.settle_line(&one.key(), broker, settle).await.unwrap()
    };
    assert!(!write_line("b2", sent(1, 0, 0)).await, "not its lease");
    assert!(write_line("b1", sent(1, 300, 110)).await);
    // It pauses; then another broker goes on behind what was sent.
    assert_eq!((claim("b2", 200).await, due(299).await), (None, vec![]));
    assert_eq!(due(300).await, [one.key()]);
    assert_eq!(claim("b2", 300).await, Some(StreamLine { sent: 1, failures: 3 }));
    assert!(!write_line("b1", LineSettle::Done).await, "the lease is another's");
    assert!(write_line("b2", sent(2, 0, 0)).await);
    assert_eq!(due(400).await, [], "nothing is left");
    assert_eq!(claim("b2", 400).await, Some(StreamLine { sent: 2, failures: 3 }));
    assert!(write_line("b2", LineSettle::Done).await);
    assert_eq!(claim("b1", 900).await, None);
}

/// A submission whose message opens a stream.
pub fn opening(n: u128) -> Given {
    let body = json!({ "taskSummary": "a", "stream": { "open": true } }).to_string().into_bytes();
    Given { body, ..given(n, n) }
}

/// A record of the stream, with a content of that number.
pub fn told(
    of: &Given,
    kind: RecordKind,
    (status, seq): (StreamStatus, i64),
    (number, content): (u128, &Value),
) -> RecordDraft {
    let mut draft = of.record(kind);
    draft.stream = Some(StreamFacts { status, seq });
    draft.content = Some(of.content(number, content.to_string().as_bytes()));
    draft
}

/// A chunk that appends a text.
fn adding(of: &Given, seq: i64, text: &str, ends: bool) -> RecordDraft {
    let mut content = json!({ "seq": seq, "append": { "/taskSummary": [text] } });
    if ends {
        content["close"] = json!(true);
    }
    let status = if ends { StreamStatus::Closed } else { StreamStatus::Open };
    // The same chunk once more is another content.
    let number = of.n * 1000 + u128::from(text.as_bytes()[0]);
    told(of, RecordKind::Chunk, (status, seq), (number, &content))
}

fn closing(of: &Given, seq: i64, summary: &str) -> RecordDraft {
    let message = json!({ "taskSummary": summary, "stream": { "open": false, "seq": seq } });
    told(of, RecordKind::StreamClosed, (StreamStatus::Closed, seq), (of.n * 1000 + 1, &message))
}

type Forged = fn(&Given) -> Vec<RecordDraft>;

/// The log of a broker that writes what no sound broker writes: its hashes are right, and the stream is not.
pub async fn a_stream_that_no_sound_broker_writes_is_found_and_named(bed: Arc<Bed>) {
    let whole = |of: &Given| {
        vec![adding(of, 1, "b", false), adding(of, 2, "c", true), closing(of, 2, "abc")]
    };
    let forged: [(&str, Forged, i64, &str); 6] = [
        (
            "gap",
            |of| vec![adding(of, 1, "b", false), adding(of, 3, "c", false)],
            2,
            "chunk 2 of handoff",
        ),
        (
            "twice",
            |of| vec![adding(of, 1, "b", false), adding(of, 1, "c", false)],
            2,
            "is there twice",
        ),
        ("none", |of| vec![closing(of, 0, "a")], 1, "does not say so"),
        (
            "other",
            |of| vec![adding(of, 1, "b", true), closing(of, 1, "ax")],
            2,
            "is not what its opening and chunks make",
        ),
        (
            "lost",
            |of| vec![adding(of, 1, "b", true), of.record(RecordKind::Completed)],
            2,
            "its assembled message is missing",
        ),
        (
            "after",
            |of| vec![adding(of, 1, "b", true), closing(of, 1, "ab"), adding(of, 2, "c", false)],
            3,
            "whose stream is not open",
        ),
    ];
    let made = async |name: &str| {
        let log = format!("log-{name}");
        bed.store.ensure_tenant(&name.parse().unwrap(), &log, Micros(1)).await.unwrap();
    };
    made("sound").await;
    let sound = opening(1).of("sound");
    submit(&bed.store, std::slice::from_ref(&sound)).await;
    write(&bed.store, Writes { records: whole(&sound), ..Writes::default() }).await.unwrap();
    let report = verify(&bed.store, &sound.tenant).await;
    assert_eq!((report.first_fault, report.records, report.contents), (None, 4, 4));
    for (n, (name, records, leaf, why)) in (2..).zip(forged) {
        made(name).await;
        let of = opening(n).of(name);
        submit(&bed.store, std::slice::from_ref(&of)).await;
        write(&bed.store, Writes { records: records(&of), ..Writes::default() }).await.unwrap();
        let fault = verify(&bed.store, &of.tenant).await.first_fault.unwrap();
        assert_eq!((fault.leaf_index, fault.fault), (leaf, "stream"), "{name}: {}", fault.detail);
        assert!(fault.detail.contains(why), "{name}: {}", fault.detail);
    }
}
