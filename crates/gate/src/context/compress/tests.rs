use serde_json::{Value, json};

use super::*;
use crate::context::count_value;

fn turn(at: usize, said: &str) -> Value {
    json!({ "role": if at.is_multiple_of(2) { "user" } else { "assistant" }, "content": said })
}

/// A message of so many turns, each of some forty words of talk; turn 3 has a decision, turn 7 a constraint.
fn message(turns: usize) -> Value {
    let said = |at: usize| {
        match at {
        3 => "We agreed on arbitration in Zürich because the courts are slow. The fee is EUR 4,200.00.".to_owned(),
        7 => "The reply must not name the client. It is due on 12 May 2027 under contract C-77/B.".to_owned(),
        _ => format!("{} Let us see what comes of it, and talk again soon about the rest.", "I went through the notes once more and they read well so far.".repeat(3)),
    }
    };
    json!({
        "schemaVersion": "2.1", "taskDescription": "Review",
        "conversationHistorySummary": "Earlier: the vendor was chosen.",
        "conversationHistoryVerbatim": (0..turns).map(|at| turn(at, &said(at))).collect::<Vec<_>>(),
        "toolState": { "cached_results": { "1": "cached" }, "active_calls": ["2"] },
        "signature": "hmac-sha256:00",
    })
}

fn plan(message: &Value, limit: u64) -> CompressionPlan {
    CompressionPlan::new(message, limit, 5, Tokenizer::O200k).unwrap()
}

fn extracted(message: &Value, limit: u64) -> CompressedMessage {
    let plan = plan(message, limit);
    plan.apply(&extractive::summary(&plan), CompressedBy::Extractive)
}

#[test]
fn a56_the_oldest_turns_become_a_summary_and_the_last_five_stay() {
    let message = message(40);
    let CompressedMessage { message: sent, facts } = extracted(&message, 800);
    let summary = sent["conversationHistorySummary"].as_str().unwrap();
    assert!(summary.starts_with("[Compressed: 35 of 40 turns are summarised below, 5 follow verbatim]\nEarlier: the vendor was chosen."));
    for kept in [
        "agreed on arbitration in Zürich because",
        "EUR 4,200.00",
        "must not name the client",
        "12 May 2027",
        "C-77/B",
    ] {
        assert!(summary.contains(kept), "{kept} in {summary}");
    }
    let original = message["conversationHistoryVerbatim"].as_array().unwrap();
    assert_eq!(sent["conversationHistoryVerbatim"].as_array().unwrap()[..], original[35..]);
    assert_eq!(
        sent["toolState"],
        json!({ "active_calls": ["2"] }),
        "what tools had cached goes first"
    );
    assert_eq!(
        (&sent["historyStrategy"], &sent["schemaVersion"]),
        (&json!("compressed"), &json!("2.2"))
    );
    assert!(sent.get("signature").is_none(), "the sender did not sign this");
    assert_eq!(sent["context"]["originalTurns"], 40);
    assert_eq!(sent["context"]["turns"], json!([35, 36, 37, 38, 39]));
    let counted = count_value(&sent, Tokenizer::O200k).unwrap().total();
    assert_eq!((facts.tokens, facts.fits), (counted, true), "{facts:?}");
    assert!(counted <= 800 && sent["context"]["tokens"] == counted);
    assert_eq!(facts.facts, facts.facts_kept);
    assert_eq!(
        extracted(&message, 800),
        CompressedMessage { message: sent, facts },
        "deterministic"
    );
}

#[test]
fn leaving_out_what_tools_cached_may_be_enough() {
    let mut message = message(4);
    message["toolState"]["cached_results"]["1"] = json!("a result ".repeat(400));
    let CompressedMessage { message: sent, facts } = extracted(&message, 600);
    assert_eq!((facts.by, facts.kept_turns, facts.fits), (CompressedBy::Trimming, 4, true));
    assert_eq!(sent["conversationHistoryVerbatim"], message["conversationHistoryVerbatim"]);
    assert_eq!(sent["conversationHistorySummary"], "Earlier: the vendor was chosen.");
}

#[test]
fn a_turn_with_a_personal_value_stays_whole_and_gets_it_back() {
    let mut message = message(40);
    message["conversationHistoryVerbatim"][10]["content"] =
        json!({ personal::MARKER: { "ordinal": 0 } });
    let sent = extracted(&message, 900).message;
    assert_eq!(sent["context"]["turns"], json!([10, 35, 36, 37, 38, 39]));
    assert!(!sent["conversationHistorySummary"].as_str().unwrap().contains("personal"));
    let body = handoffd_domain::canonical::to_vec(&sent);
    let datum = json!({ "subjectId": "jana", "pointer": "/conversationHistoryVerbatim/10/content", "value": "Jana called." });
    let datum = handoffd_domain::canonical::to_vec(&datum);
    let whole: Value = serde_json::from_slice(&personal::whole(&body, &[datum], true)).unwrap();
    assert_eq!(whole["conversationHistoryVerbatim"][0]["content"], "Jana called.");
}

#[test]
fn what_a_summary_loses_is_appended_with_the_words_around_it() {
    let plan = plan(&message(40), 800);
    let lying = "Everything is fine. The fee is EUR 9,999.00.";
    let CompressedMessage { message: sent, facts } = plan.apply(lying, CompressedBy::Model);
    let summary = sent["conversationHistorySummary"].as_str().unwrap();
    assert!(summary.contains("Also stated:\n- The reply must not name the client."), "{summary}");
    assert!(summary.contains("EUR 4,200.00") && summary.contains("C-77/B"), "{summary}");
    assert!(facts.facts_appended > 0 && facts.facts_kept == facts.facts, "{facts:?}");
    let without = plan.apply_unchecked(lying, CompressedBy::Model).facts;
    assert_eq!((without.facts_kept, without.facts_appended), (0, 0));
}

#[test]
fn a_limit_without_room_keeps_what_is_needed_most() {
    let message = message(40);
    let facts = extracted(&message, 300).facts;
    assert!(!facts.fits && facts.facts_kept > 0, "five turns alone are over it: {facts:?}");
    let summary =
        extracted(&message, 500).message["conversationHistorySummary"].as_str().unwrap().to_owned();
    assert!(summary.contains("must not name the client"), "{summary}");
}

#[test]
fn content_parts_and_tools_are_text_too() {
    let said = json!([
        { "role": "tool", "name": "ledger", "content": { "balance": 17, "currency": "EUR" } },
        { "role": "user", "content": [{ "type": "text", "text": "Is it 17?" }, { "type": "image_url", "image_url": "https://x.example/1" }] },
    ]);
    let text: Vec<String> = said.as_array().unwrap().iter().map(text_of).collect();
    assert_eq!(text[0], "ledger: {\"balance\":17,\"currency\":\"EUR\"}");
    assert!(
        text[1].starts_with("Is it 17?\n") && text[1].contains("https://x.example/1"),
        "{}",
        text[1]
    );
}

#[test]
fn any_message_is_compressed_or_left_alone_without_a_fault() {
    for odd in [
        json!([]),
        json!({}),
        json!({ "conversationHistoryVerbatim": 7, "toolState": [] }),
        json!({ "conversationHistorySummary": { personal::MARKER: { "ordinal": 0 } } }),
    ] {
        if let Some(plan) = CompressionPlan::new(&odd, 10, 5, Tokenizer::Estimate) {
            let _ = plan.apply(&extractive::summary(&plan), CompressedBy::Extractive);
        }
    }
}

/// Finding D2 of 0.3.0.
#[test]
fn the_turns_that_stay_have_no_result_without_its_call_and_no_call_without_its_result() {
    let call = |ids: &[&str]| {
        let calls: Vec<_> = ids.iter().map(|id| json!({ "id": id, "type": "function" })).collect();
        json!({ "role": "assistant", "content": "", "tool_calls": calls })
    };
    let result =
        |id: &str, said: &str| json!({ "role": "tool", "tool_call_id": id, "content": said });
    let mut message = message(40);
    let turns = message["conversationHistoryVerbatim"].as_array_mut().unwrap();
    // The fifth turn from the end is the second of three results.
    turns[33] = call(&["c1", "c2", "c3"]);
    turns[34] = result("c1", "one");
    turns[35] = result("c2", "two");
    turns[36] = result("c3", "three");
    // A result with a personal value keeps its call.
    turns[10] = call(&["p", "q"]);
    turns[11] = result("p", "");
    turns[11]["content"] = json!({ personal::MARKER: { "ordinal": 0 } });
    turns[12] = result("q", "more");
    let roomy = extracted(&message, 900).message;
    assert_eq!(
        roomy["context"]["turns"],
        json!([10, 11, 12, 33, 34, 35, 36, 37, 38, 39]),
        "more stay where they fit"
    );
    let turns = message["conversationHistoryVerbatim"].as_array_mut().unwrap();
    turns[34] = result("c1", &"a long result ".repeat(400));
    let tight = extracted(&message, 900).message;
    assert_eq!(tight["context"]["turns"], json!([10, 11, 12, 37, 38, 39]), "fewer where not");
}
