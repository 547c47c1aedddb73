use super::super::append::LogAppender;
use super::super::commitment::PackedContent;
use super::super::merkle::Frontier;
use super::super::record::{
    Actor, LogHead, PersonalPart, RecordContent, RecordDraft, RecordKind, SealedRecord, record_hash,
};
use super::*;
use handoffd_domain::ids::{ContentId, Micros};

/// A record as a table holds it: the index is a column, and may lie.
#[derive(Clone)]
struct Row {
    index: i64,
    sealed: SealedRecord,
    draft: RecordDraft,
}

fn log(n: i64) -> (Vec<Row>, LogHead) {
    let tenant: handoffd_domain::ids::TenantId = "t".parse().unwrap();
    let mut log = LogAppender::new(LogHead {
        tenant: tenant.clone(),
        log_id: "log".to_owned(),
        size: 0,
        hash: vec![],
        tree: Frontier::default(),
    });
    let rows = (0..n)
        .map(|i| {
            let mut draft =
                RecordDraft::new(tenant.clone(), RecordKind::Handoff, Micros(i), Actor::broker());
            draft.content = Some(RecordContent {
                id: ContentId(uuid::Uuid::nil()),
                part: PackedContent::new(
                    CommitmentSubject::Message,
                    [7; 16],
                    format!("{{\"n\":{i}}}").as_bytes(),
                ),
            });
            draft.personal = vec![PersonalPart {
                subject_id: "s".to_owned(),
                part: PackedContent::new(CommitmentSubject::PersonalData, [9; 16], b"{}"),
            }];
            Row { index: i, sealed: log.append(&draft), draft }
        })
        .collect();
    (rows, log.head())
}

fn verify_against(heads: Vec<TrustedHead>, rows: &[Row], head: &LogHead) -> VerificationReport {
    let mut verifier = Verifier::against("log", heads);
    for row in rows {
        let part = &row.draft.content.as_ref().unwrap().part;
        let personal = &row.draft.personal[0].part;
        verifier.entry(&LogEntry {
            leaf_index: row.index,
            hash: &row.sealed.hash,
            kind: row.draft.kind.as_str(),
            task_id: None,
            handoff_id: None,
            recorded_at: row.draft.at.0,
            body: &row.sealed.body,
            content: Some(if part.salt.is_empty() {
                RemainingContent::Gone
            } else {
                RemainingContent::Whole(&part.salt, part.codec, &part.bytes)
            }),
            personal: vec![(
                0,
                RemainingContent::Whole(&personal.salt, personal.codec, &personal.bytes),
            )],
        });
    }
    verifier.finish(head.size, &head.hash, Some(&head.tree.to_bytes()))
}

fn verify(rows: &[Row], head: &LogHead) -> VerificationReport {
    verify_against(Vec::new(), rows, head)
}

fn kept(head: &LogHead) -> TrustedHead {
    TrustedHead { size: head.tree.size(), root: head.tree.root() }
}

/// Replaces a record by another of its own hash, as someone does who knows the format.
fn rewrite(row: &mut Row) {
    let body = String::from_utf8(row.sealed.body.clone()).unwrap().replace("HANDOFF", "REFUSED");
    row.sealed.hash = record_hash(body.as_bytes());
    row.sealed.body = body.into_bytes();
    row.draft.kind = RecordKind::Refused;
}

#[test]
fn a_sound_log_is_well_also_when_empty_and_a_gap_is_a_fault() {
    let (mut rows, head) = log(5);
    let report = verify_against(vec![kept(&log(3).1), kept(&head)], &rows, &head);
    assert_eq!((report.records, report.contents, &report.first_fault), (5, 10, &None));
    assert_eq!(report.tree_heads, 2);
    assert_eq!(report.root, Some(hash_text(&head.tree.root())));
    rows[2].draft.content.as_mut().unwrap().part.salt.clear();
    let report = verify(&rows, &head);
    assert_eq!((report.erased, report.first_erased), (1, Some(2)));
    let fault = report.first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (2, "content-gone"));
    let (rows, head) = log(0);
    assert_eq!(verify_against(vec![kept(&head)], &rows, &head).first_fault, None);
}

#[test]
fn the_tree_and_its_nodes_are_those_of_the_writer() {
    let (rows, head) = log(600);
    let mut verifier = Verifier::new("log");
    let mut tree = super::tree::VerifiedTree::default();
    for row in &rows {
        tree.push(row.sealed.hash);
    }
    assert_eq!((tree.root(), tree.edge()), (head.tree.root(), head.tree.to_bytes()));
    let nodes: Vec<_> = tree.take_nodes().iter().map(|node| (node.0, node.1)).collect();
    assert_eq!(nodes, [(1, 0), (1, 1)]);
    assert!(verifier.take_nodes().is_empty());
}

type Tampering = fn(&mut Vec<Row>, &mut LogHead);

#[test]
fn each_kind_of_tampering_is_found_where_it_is_and_told_apart() {
    let cases: &[(&str, i64, &str, Tampering)] = &[
        ("a flipped byte", 3, "flip", |rows, _| rows[3].sealed.body[10] ^= 1),
        ("a flipped hash", 3, "flip", |rows, _| rows[3].sealed.hash[0] ^= 1),
        ("a changed kind", 3, "flip", |rows, _| rows[3].draft.kind = RecordKind::NoOp),
        ("a changed time", 3, "flip", |rows, _| rows[3].draft.at = Micros(77)),
        ("a dropped record", 3, "drop", |rows, _| {
            rows.remove(2);
        }),
        ("a dropped record, closed up", 2, "drop", |rows, head| {
            rows.remove(2);
            rows.iter_mut().zip(0..).for_each(|(row, index)| row.index = index);
            head.size -= 1;
        }),
        ("a record put in", 2, "insert", |rows, head| {
            rows.insert(2, rows[0].clone());
            rows.iter_mut().zip(0..).for_each(|(row, index)| row.index = index);
            head.size += 1;
        }),
        ("a later record put in", 2, "insert", |rows, head| {
            rows.insert(2, rows[4].clone());
            rows.iter_mut().zip(0..).for_each(|(row, index)| row.index = index);
            head.size += 1;
        }),
        ("a record appended past the head", 5, "insert", |rows, _| {
            let (more, _) = log(6);
            rows.push(more[5].clone());
        }),
        ("two that changed places", 1, "swap", |rows, _| {
            rows.swap(1, 3);
            (rows[1].index, rows[3].index) = (1, 3);
        }),
        ("neighbours that changed places", 1, "swap", |rows, _| {
            rows.swap(1, 2);
            (rows[1].index, rows[2].index) = (1, 2);
        }),
        ("a record replaced, hash and all", 4, "rewrite", |rows, _| rewrite(&mut rows[3])),
        ("the last record replaced", 4, "head", |rows, _| rewrite(&mut rows[4])),
        ("a record of another log", 2, "foreign", |rows, _| {
            let body = String::from_utf8(rows[2].sealed.body.clone()).unwrap();
            let body = body.replace("\"logId\":\"log\"", "\"logId\":\"gol\"");
            rows[2].sealed.hash = record_hash(body.as_bytes());
            rows[2].sealed.body = body.into_bytes();
        }),
        ("the end cut off", 4, "truncation", |rows, _| {
            rows.pop();
        }),
        ("another content", 1, "content", |rows, _| {
            let part = PackedContent::new(CommitmentSubject::Message, [7; 16], b"{\"n\":9}");
            rows[1].draft.content.as_mut().unwrap().part = part;
        }),
        ("other personal data", 4, "personal-data", |rows, _| {
            rows[4].draft.personal[0].part =
                PackedContent::new(CommitmentSubject::PersonalData, [9; 16], b"[]");
        }),
        ("another head", 4, "head", |_, head| head.hash[0] ^= 1),
        ("another edge of the tree", 4, "tree", |_, head| head.tree = log(4).1.tree),
    ];
    for (what, place, name, tamper) in cases {
        let (mut rows, mut head) = log(5);
        tamper(&mut rows, &mut head);
        let fault = verify(&rows, &head).first_fault.unwrap_or_else(|| panic!("{what}: unseen"));
        assert_eq!((fault.leaf_index, fault.fault), (*place, *name), "{what}: {}", fault.detail);
    }
}

/// A tree head kept elsewhere shows faults that the log alone cannot show.
#[test]
fn a_kept_tree_head_finds_a_cut_and_a_rewrite_that_left_no_trace() {
    let (_, whole) = log(5);
    let (rows, head) = log(3);
    assert_eq!(verify(&rows, &head).first_fault, None, "cut with its head: nothing shows");
    let fault = verify_against(vec![kept(&whole)], &rows, &head).first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (3, "truncation"));

    let (mut rows, _) = log(5);
    let mut log = LogAppender::new(LogHead {
        tenant: "t".parse().unwrap(),
        log_id: "log".to_owned(),
        size: 0,
        hash: vec![],
        tree: Frontier::default(),
    });
    for row in &mut rows {
        if row.index == 2 {
            row.draft.at = Micros(1_000);
        }
        row.sealed = log.append(&row.draft);
    }
    let head = log.head();
    assert_eq!(verify(&rows, &head).first_fault, None, "rewritten to the end: nothing shows");
    let fault = verify_against(vec![kept(&whole)], &rows, &head).first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (4, "rewrite"));
    let early = super::tests::log(2).1;
    let report = verify_against(vec![kept(&early)], &rows, &head);
    assert_eq!((report.first_fault, report.tree_heads), (None, 1), "before it all is the same");
}

#[test]
fn two_heads_of_one_size_with_different_roots_are_a_fork() {
    let (rows, head) = log(5);
    let other = TrustedHead { root: [1; 32], ..kept(&head) };
    let fault = verify_against(vec![kept(&head), other], &rows, &head).first_fault.unwrap();
    assert_eq!((fault.leaf_index, fault.fault), (5, "fork"));
}
