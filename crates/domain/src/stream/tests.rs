use proptest::prelude::*;
use serde_json::json;

use super::*;

fn chunk(value: &Value) -> Chunk {
    Chunk::parse(value).unwrap_or_else(|faults| panic!("{value}: {faults:?}"))
}

fn pointers(faults: &[Failure]) -> Vec<&str> {
    faults.iter().map(|fault| fault.pointer.as_str()).collect()
}

#[test]
fn a113_chunks_add_items_texts_and_values() {
    let mut message =
        json!({"currentState": {"a": 1}, "taskSummary": "one", "toolCallHistory": []});
    chunk(&json!({"seq": 1, "append": {"/taskSummary": [" and", " two"], "/toolCallHistory": [{"n": 1}]},
        "set": {"/currentState/b~1c": {"d": []}}}))
    .apply(&mut message)
    .unwrap();
    chunk(&json!({"seq": 2, "append": {"/currentState/b~1c/d": [5], "/relevantContext": ["x"]}, "close": true}))
        .apply(&mut message)
        .unwrap();
    mark_closed(&mut message, 2);
    assert_eq!(
        message,
        json!({"currentState": {"a": 1, "b/c": {"d": [5]}}, "taskSummary": "one and two",
            "toolCallHistory": [{"n": 1}], "relevantContext": ["x"], "stream": {"open": false, "seq": 2}})
    );
}

#[test]
fn what_the_opening_message_fixes_is_refused_by_its_pointer() {
    for fixed in [
        "/handoffId",
        "/toAgent/agentId",
        "/signature",
        "/costTracking",
        "/stream/open",
        "/personalDataPayload/subjects",
        "/constraints/x",
        "/taskDescription",
        "/nobodyKnows",
        "",
    ] {
        let faults = Chunk::parse(&json!({"seq": 1, "set": {fixed: 1}})).unwrap_err();
        assert_eq!(faults.len(), 1, "{fixed}: {faults:?}");
        assert_eq!(faults[0].pointer, at("set", fixed));
    }
}

#[test]
fn a_chunk_that_is_none_is_refused_with_every_fault() {
    let faults = Chunk::parse(&json!({"seq": 0, "append": {"/metadata/x": 1, "y": []}, "set": [],
        "close": true, "abort": true, "more": 1, "reason": 5}))
    .unwrap_err();
    assert_eq!(
        pointers(&faults),
        ["/more", "/seq", "/abort", "/append/~1metadata~1x", "/append/y", "/set", "/reason"]
    );
    for empty in [json!({"seq": 1}), json!([]), json!({"seq": 1, "close": false})] {
        assert_eq!(pointers(&Chunk::parse(&empty).unwrap_err()), [""], "{empty}");
    }
    let aborting = json!({"seq": 1, "abort": true, "set": {"/metadata/x": 1}});
    assert_eq!(pointers(&Chunk::parse(&aborting).unwrap_err()), ["/abort"]);
    assert!(Chunk::parse(&json!({"seq": 1, "abort": true, "reason": "no more"})).is_ok());
}

#[test]
fn no_chunk_nests_a_message_deeper_than_a_body_may_be() {
    // `["x"]` as deep as said.
    let nested = |depth: usize| (1..depth).fold(json!(["x"]), |inner, _| json!([inner]));
    let path = |segments: usize| format!("/metadata{}", "/d".repeat(segments - 1));
    for member in ["set", "append"] {
        for (segments, deep) in [(1, MAX_DEPTH - 1), (40, MAX_DEPTH - 40), (MAX_DEPTH - 1, 1)] {
            let said = |deep: usize| json!({"seq": 1, member: {path(segments): nested(deep)}});
            assert!(Chunk::parse(&said(deep)).is_ok(), "{member} {segments} {deep}");
            let faults = Chunk::parse(&said(deep + 1)).unwrap_err();
            assert_eq!(pointers(&faults), [at(member, &path(segments))]);
        }
    }
    // Nothing is built along a pointer of any length.
    let endless = path(1_000_000);
    let faults = Chunk::parse(&json!({"seq": 1, "set": {&endless: 1}})).unwrap_err();
    assert_eq!(pointers(&faults), ["/set"]);
}

#[test]
fn a_tilde_that_escapes_nothing_makes_no_pointer() {
    for wrong in ["/metadata/~", "/metadata/a~2b", "/metadata/~/x"] {
        let faults = Chunk::parse(&json!({"seq": 1, "set": {wrong: 1}})).unwrap_err();
        assert_eq!(pointers(&faults), [at("set", wrong)]);
    }
    let mut message = json!({"metadata": {}});
    chunk(&json!({"seq": 1, "set": {"/metadata/a~01~1": 1}})).apply(&mut message).unwrap();
    assert_eq!(message, json!({"metadata": {"a~1/": 1}}));
}

#[test]
fn a_chunk_of_too_many_changes_is_refused_before_they_are_compared() {
    let many: Map<String, Value> =
        (0..200_000).map(|at| (format!("/metadata/{at}"), json!(1))).collect();
    let faults = Chunk::parse(&json!({"seq": 1, "set": many})).unwrap_err();
    assert_eq!(pointers(&faults), [""]);
}

#[test]
fn changes_within_one_another_are_refused_and_a_shape_goes_both_ways() {
    let parse = |value: Value| Chunk::parse(&value);
    for (set, append) in [
        ("/metadata/a", "/metadata/a"),
        ("/metadata", "/metadata/a/b"),
        ("/metadata/a/b", "/metadata/a"),
    ] {
        let faults =
            parse(json!({"seq": 1, "set": {set: {}}, "append": {append: []}})).unwrap_err();
        assert_eq!(faults.len(), 1, "{set} {append}: {faults:?}");
    }
    let mut document = json!({"seq": 1, "set": {"/metadata/a~1b": 1, "/metadata/ab": "x"}, "append": {"/taskSummary": ["y"]}});
    let mut read = parse(document.clone()).unwrap();
    let (mut set, appended) = read.shapes();
    assert_eq!(set, json!({"metadata": {"a/b": 1, "ab": "x"}}));
    assert_eq!(appended, json!({"taskSummary": ["y"]}));
    set["metadata"]["ab"] = json!("[REDACTED]");
    read.reshape(&set, &appended).unwrap();
    read.write_to(&mut document);
    assert_eq!(document["set"], json!({"/metadata/a~1b": 1, "/metadata/ab": "[REDACTED]"}));
    let gone = read.reshape(&json!({"metadata": "[REDACTED]"}), &json!(null)).unwrap_err();
    assert_eq!(
        pointers(&gone),
        ["/set/~1metadata~1ab", "/set/~1metadata~1a~01b", "/append/~1taskSummary"]
    );
}

#[test]
fn a_change_that_finds_no_place_names_it() {
    let message = json!({"currentState": {"a": 1, "list": [{"b": 1}]}, "taskSummary": "t"});
    for (change, pointer) in [
        (json!({"set": {"/currentState/x/y": 1}}), "/set/~1currentState~1x~1y"),
        (json!({"set": {"/currentState/list/0": 1}}), "/set/~1currentState~1list~10"),
        (json!({"append": {"/currentState/a": [1]}}), "/append/~1currentState~1a"),
        (json!({"append": {"/taskSummary": [1]}}), "/append/~1taskSummary"),
    ] {
        let mut change = change;
        change["seq"] = json!(1);
        let faults = chunk(&change).apply(&mut message.clone()).unwrap_err();
        assert_eq!(pointers(&faults), [pointer]);
    }
}

proptest! {
    /// However a list is cut into chunks, the assembled message has it whole and in order.
    #[test]
    fn the_cuts_leave_no_mark(items in prop::collection::vec("[a-z]{0,5}", 0..40), cuts in prop::collection::vec(1_usize..7, 1..20)) {
        let mut message = json!({"conversationHistoryVerbatim": [], "taskSummary": ""});
        let (mut rest, mut seq) = (&items[..], 0);
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            rest = later;
            seq += 1;
            chunk(&json!({"seq": seq, "append": {"/conversationHistoryVerbatim": now, "/taskSummary": now}}))
                .apply(&mut message)
                .unwrap();
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(&message["conversationHistoryVerbatim"], &json!(items));
        prop_assert_eq!(&message["taskSummary"], &json!(items.concat()));
    }
}
