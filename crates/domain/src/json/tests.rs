use proptest::prelude::*;

use super::*;

fn fault(body: impl AsRef<[u8]>) -> JsonError {
    let fault = parse(body.as_ref()).expect_err("refused");
    assert_eq!(fault.failure().stage, Stage::Schema);
    assert_eq!(fault.failure().code, Code::SchemaInvalid);
    fault
}

#[test]
fn ordinary_messages_come_out_as_serde_json_reads_them() {
    let body = br#"{"a":[1,-2,3.5,true,null,"x\u00e9\ud83d\ude00"],"b":{"c":{}}, "d":0.1e-3}"#;
    let expected: Value = serde_json::from_slice(body).expect("JSON");
    assert_eq!(parse(body).expect("accepted"), expected);
}

#[test]
fn broken_json_is_malformed_and_tells_line_and_column() {
    let found = fault("{\n  \"a\": tru }");
    assert!(found.is_malformed());
    assert!(found.failure().message.contains("line 2, column"), "{found}");
    for body in ["", " ", "{", "{\"a\":1,}", "{\"a\":1}{}", "{'a':1}", "{\"a\":01}", "{\"a\":NaN}"]
    {
        assert!(fault(body).is_malformed(), "{body}");
    }
}

#[test]
fn invalid_utf8_is_malformed() {
    let found = fault(b"{\"a\":\"\xff\"}");
    assert!(found.is_malformed());
    assert!(found.failure().message.contains("UTF-8 at line 1, column 7"), "{found}");
}

#[test]
fn a_duplicate_key_is_named_with_its_pointer() {
    let found = fault(r#"{"a/b":[0,{"x":1,"y":{"k":1,"\u006b":2}}]}"#);
    assert!(found.is_malformed());
    assert_eq!(found.failure().pointer, "/a~1b/1/y/k");
    assert!(found.failure().message.contains("`k`"), "{found}");
}

#[test]
fn nesting_is_counted_to_the_limit_and_no_further() {
    let nested =
        |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    let found = fault(nested(MAX_DEPTH + 1));
    assert!(found.is_malformed());
    assert!(found.failure().message.contains("more than 64"), "{found}");
    assert!(
        parse(br#"{"a":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}"#)
            .is_ok()
    );
}

#[test]
fn lone_surrogates_are_malformed() {
    for body in [r#"{"a":"\ud800"}"#, r#"{"a":"\udc00x"}"#, r#"{"\ud83d":1}"#, r#"{"a":"\ud83dA"}"#]
    {
        assert!(fault(body).is_malformed(), "{body}");
    }
}

#[test]
fn numbers_beyond_a_double_are_refused() {
    assert!(fault(r#"{"a":1e400}"#).is_malformed());
    assert!(fault(r#"{"a":-1e999}"#).is_malformed());
}

#[test]
fn integers_that_a_double_cannot_hold_are_refused_with_their_pointer() {
    assert!(parse(br#"{"a":[9007199254740991,-9007199254740991]}"#).is_ok());
    for body in [
        r#"{"z":{"w":"1,[{"},"a":[1,{"b":9007199254740992}]}"#,
        r#"{"a":[[],{"c":{},"b":-9007199254740993}]}"#,
        r#"{"a":[{"b":7},{"b":123456789012345678901234567890}]}"#,
    ] {
        let found = fault(body);
        assert!(!found.is_malformed());
        assert_eq!(found.failure().pointer, "/a/1/b", "{body}");
    }
}

#[test]
fn the_top_level_must_be_an_object() {
    for body in ["[]", "1", "\"x\"", "null"] {
        let found = fault(body);
        assert!(!found.is_malformed());
        assert_eq!(found.failure().pointer, "");
    }
}

#[test]
fn ten_mebibytes_of_brackets_or_of_one_key_cost_no_stack() {
    const SIZE: usize = 10 << 20;
    assert!(fault("[".repeat(SIZE)).is_malformed());
    assert!(fault(format!("{{\"a\":{}", "{\"a\":".repeat(SIZE / 5))).is_malformed());
    assert!(fault(format!("{{{}\"k\":1}}", "\"k\":1,".repeat(SIZE / 6))).is_malformed());
    assert!(!fault(format!("{{\"a\":{}}}", "9".repeat(SIZE))).failure().message.is_empty());
    assert!(fault(format!("{{\"a\":\"{}", "\\".repeat(SIZE))).is_malformed());
}

proptest! {
    #[test]
    fn parse_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn parse_never_panics_on_almost_json(text in r#"[\[\]{},:"\\0-9eE.+a-u \n-]{0,80}"#) {
        if let Ok(value) = parse(text.as_bytes()) {
            prop_assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(value));
        }
    }
}
