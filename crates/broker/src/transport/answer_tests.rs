//! Every row of the answer table, and the cases between rows.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Sat, 21 Nov 2026 12:00:00 GMT.
const NOW_S: i64 = 1_795_262_400;

fn accepted() -> AttemptOutcome {
    AttemptOutcome::Accepted(AnswerFields::default())
}

fn rejected(reason: &str, details: Option<Value>) -> AttemptOutcome {
    AttemptOutcome::Rejected {
        reason: Some(reason.to_owned()),
        fields: AnswerFields { details, ..AnswerFields::default() },
    }
}

fn plain(status: u16, body: &str) -> AttemptOutcome {
    classify(status, None, body.as_bytes(), NOW_S)
}

#[test]
fn verdicts() {
    let bare_no = AttemptOutcome::Rejected { reason: None, fields: AnswerFields::default() };
    let rows = [
        (200, r#"{"status":"ACCEPTED"}"#, accepted()),
        (200, r#"{"status":"accepted","other":[1]}"#, accepted()),
        (200, r#"{"accepted":true}"#, accepted()),
        (200, r#"{"accepted":true,"status":"Accepted"}"#, accepted()),
        (201, r#"{"status":"ACCEPTED"}"#, accepted()),
        (202, r#"{"status":"ACCEPTED"}"#, accepted()),
        (200, "", accepted()),
        (200, " \r\n", accepted()),
        (204, "", accepted()),
        (
            200,
            r#"{"status":"ACCEPTED","details":{"eta":3}}"#,
            AttemptOutcome::Accepted(AnswerFields {
                details: Some(json!({"eta":3})),
                ..AnswerFields::default()
            }),
        ),
        (200, r#"{"status":"REJECTED"}"#, bare_no.clone()),
        (200, r#"{"accepted":false,"details":null}"#, bare_no),
        (
            200,
            r#"{"status":"REJECTED","reason":"NO_SKILL","details":{"a":1}}"#,
            rejected("NO_SKILL", Some(json!({"a":1}))),
        ),
        (200, r#"{"accepted":false,"rejection_reason":"full"}"#, rejected("full", None)),
        (202, r#"{"status":"rejected","reason":"no"}"#, rejected("no", None)),
        (409, r#"{"status":"REJECTED","reason":"no"}"#, rejected("no", None)),
        (422, r#"{"accepted":false,"rejection_reason":"no"}"#, rejected("no", None)),
        (200, r#"{"status":"REJECTED","reason":{"code":7}}"#, rejected(r#"{"code":7}"#, None)),
        (202, "", AttemptOutcome::Received),
        (202, r#"{"queued":true}"#, AttemptOutcome::Received),
        (202, "<p>later</p>", AttemptOutcome::Received),
        (410, "", AttemptOutcome::Gone),
        (410, r#"{"status":"ACCEPTED"}"#, AttemptOutcome::Gone),
    ];
    for (status, body, outcome) in rows {
        assert_eq!(plain(status, body), outcome, "{status} {body}");
    }
}

#[test]
fn what_says_nothing_is_never_accepted() {
    use FailureClass::{Protocol, Redirect, Status};
    let rows = [
        (200, "<html>ok</html>", Protocol),
        (200, "OK", Protocol),
        (200, "{}", Protocol),
        (200, "null", Protocol),
        (200, "true", Protocol),
        (200, r#"["ACCEPTED"]"#, Protocol),
        (200, r#"[{"status":"ACCEPTED"}]"#, Protocol),
        (200, r#"{"status":"COMPLETED","result":1}"#, Protocol),
        (200, r#"{"status":"ACCEPTED""#, Protocol),
        (200, r#"{"status":"ACCEPTED"} trailing"#, Protocol),
        (200, r#"{"status":"ACCEPTED","status":"REJECTED"}"#, Protocol),
        (200, r#"{"status":"PENDING"}"#, Protocol),
        (200, r#"{"status":"ACCEPTED","accepted":null,"accepted":true}"#, Protocol),
        (200, r#"{"status":"ACCEPTED","accepted":"no"}"#, Protocol),
        (200, r#"{"accepted":"true"}"#, Protocol),
        (200, r#"{"accepted":1}"#, Protocol),
        (200, r#"{"result":{"status":"ACCEPTED"}}"#, Protocol),
        (201, "", Protocol),
        (206, "", Protocol),
        (301, "", Redirect),
        (302, r#"{"status":"ACCEPTED"}"#, Redirect),
        (304, "", Redirect),
        (308, "", Redirect),
        (400, "", Status),
        (400, r#"{"status":"REJECTED"}"#, Status),
        (401, "", Status),
        (404, "", Status),
        (409, "", Status),
        (409, r#"{"status":"ACCEPTED"}"#, Status),
        (422, r#"{"error":"no"}"#, Status),
        (500, r#"{"status":"REJECTED"}"#, Status),
        (502, "", Status),
        (504, "", Status),
        (101, "", Status),
        (999, "", Status),
    ];
    for (status, body, class) in rows {
        let AttemptOutcome::Failed(failure) = plain(status, body) else {
            panic!("{status} {body} does not fail");
        };
        assert_eq!(failure.class, class, "{status} {body}");
        assert_eq!(failure.status, Some(status));
        assert!(failure.reached, "an answer proves that it was reached");
        assert!(failure.detail.contains(&status.to_string()));
    }
}

#[test]
fn details_hold_nothing_of_the_body() {
    for status in [200, 409, 500] {
        let AttemptOutcome::Failed(failure) = plain(status, "secret-word") else {
            panic!("no failure");
        };
        assert!(!failure.detail.contains("secret-word"));
    }
}

#[test]
fn busy_and_its_retry_after() {
    let secs = |n| Some(Duration::from_secs(n));
    let rows = [
        (None, None),
        (Some("0"), secs(0)),
        (Some(" 7 "), secs(7)),
        (Some("3600"), secs(3600)),
        (Some("3601"), secs(3600)),
        (Some("99999999999999999999999999"), secs(3600)),
        (Some("Sat, 21 Nov 2026 12:00:30 GMT"), secs(30)),
        (Some("Saturday, 21-Nov-26 12:00:30 GMT"), secs(30)),
        (Some("Sat Nov 21 12:00:30 2026"), secs(30)),
        (Some("Sun, 22 Nov 2026 12:00:30 GMT"), secs(3600)),
        (Some("Sat, 21 Nov 2026 11:59:00 GMT"), secs(0)),
        (Some(""), None),
        (Some("-1"), None),
        (Some("1.5"), None),
        (Some("+5"), None),
        (Some("soon"), None),
    ];
    for status in [429, 503] {
        for (header, retry_after) in rows {
            assert_eq!(
                classify(status, header, b"busy", NOW_S),
                AttemptOutcome::Busy { retry_after, reached: true },
                "{status} {header:?}"
            );
        }
    }
    assert_eq!(classify(202, Some("5"), b"", NOW_S), AttemptOutcome::Received);
}

#[test]
fn long_reasons_are_cut_between_characters() {
    let body = json!({"status":"REJECTED","reason":"é".repeat(5_000)}).to_string();
    let AttemptOutcome::Rejected { reason, .. } = plain(200, &body) else {
        panic!("no rejection");
    };
    assert_eq!(reason.expect("reason").chars().count(), REASON_MAX_CHARS);
}

proptest! {
    #[test]
    fn total_and_only_explicit_or_empty_answers_are_accepted(
        status in 100_u16..1000, header in proptest::option::of(".{0,40}"),
        body in proptest::collection::vec(any::<u8>(), 0..200), now_s in any::<i64>(),
    ) {
        if let AttemptOutcome::Accepted(_) = classify(status, header.as_deref(), &body, now_s) {
            prop_assert!(body.trim_ascii().is_empty());
            prop_assert!(status == 200 || status == 204);
        }
    }
}

#[test]
fn f2_6_accepted_decides_over_status_and_metadata_is_kept() {
    let meta = |value| AnswerFields { metadata: Some(value), ..AnswerFields::default() };
    for status in ["PENDING", "REJECTED", "QUEUED", "ACCEPTED"] {
        let yes = json!({"status": status, "accepted": true, "metadata": {"agent": "b"}});
        let said = AttemptOutcome::Accepted(meta(json!({"agent": "b"})));
        assert_eq!(plain(200, &yes.to_string()), said, "{status}");
        let no = json!({"status": status, "accepted": false, "rejection_reason": "full"});
        assert_eq!(plain(200, &no.to_string()), rejected("full", None), "{status}");
    }
    let all = AnswerFields {
        details: Some(json!({"eta": 3})),
        metadata: Some(json!([1])),
        ..AnswerFields::default()
    };
    let kept = json!({"details": {"eta": 3}, "metadata": [1]});
    assert_eq!(all.into_content().map(Value::Object), Some(kept));
    assert_eq!(AnswerFields::default().into_content(), None);
}

/// Finding D1 of 0.3.0.
#[test]
fn an_unreadable_text_beside_a_clear_verdict_does_not_undo_it() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let texts: [&[u8]; 8] = [
        br#""half \ud83d""#,
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"\"caf\xe9\"",
        br#""caf\u00""#,
        b"\"a\nb\"",
        deep.as_bytes(),
    ];
    let verdicts = [
        (r#""status":"REJECTED""#, false),
        (r#""accepted":false"#, false),
        (r#""status":"ACCEPTED""#, true),
        (r#""accepted":true"#, true),
    ];
    for text in texts {
        for member in ["reason", "details", "metadata", "other"] {
            for (verdict, yes) in verdicts {
                let beside = [format!("\"{member}\":").as_bytes(), text].concat();
                for parts in [[verdict.as_bytes(), &beside], [&beside, verdict.as_bytes()]] {
                    let body = [b"\xef\xbb\xbf{", parts[0], b",", parts[1], b"}"].concat();
                    let outcome = classify(200, None, &body, NOW_S);
                    let fits = match &outcome {
                        AttemptOutcome::Accepted(_) => yes,
                        AttemptOutcome::Rejected { .. } => !yes,
                        _ => false,
                    };
                    assert!(fits, "{} {outcome:?}", String::from_utf8_lossy(&body));
                }
            }
        }
    }
    let outcome = plain(422, r#"{"accepted":false,"reason":"a\ud800","details":{"n":NaN}}"#);
    let AttemptOutcome::Rejected { reason, fields } = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason.as_deref(), Some("a\u{fffd}"));
    let content = Value::Object(fields.into_content().expect("a note"));
    assert_eq!(content["details"], json!({}));
    assert_eq!(
        content["handoffd"],
        json!({"unreadableCount": 2, "unreadable": [
            {"pointer": "/reason", "why": "LONE_SURROGATE", "kept": "REPLACED"},
            {"pointer": "/details/n", "why": "NO_VALUE", "kept": "DROPPED"},
        ]})
    );
}

#[test]
fn a_refused_repeat_of_a_request_that_may_have_been_taken_reached_the_receiver() {
    let refused = AttemptFailure::unreached(FailureClass::Unauthorized, "expired");
    let busy = AttemptOutcome::Busy { retry_after: None, reached: false };
    for outcome in [AttemptOutcome::Failed(refused.clone()), AttemptOutcome::Away(refused), busy] {
        let after = AttemptFailure::after_unknown(outcome);
        assert!(matches!(&after, AttemptOutcome::Away(failure) if failure.reached), "{after:?}");
    }
    let received = AttemptFailure::after_unknown(AttemptOutcome::Received);
    assert_eq!(received, AttemptOutcome::Received);
}
