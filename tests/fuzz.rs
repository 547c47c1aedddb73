//! Input from outside is read without a panic and in linear time: the JSON parser, the canonicaliser,
//! the scanner, predicates and contracts, under inputs made of their own words, of noise, and of both.
//! Each case runs for [`seconds`]; by hand it can run as long as one likes:
//!
//!     HANDOFFD_TEST_FUZZ_SECONDS=600 cargo test --release --test fuzz
//!
//! A case that fails is made smaller and shown. Time is compared between an input and four times as much of
//! the same: where work is linear that is four times as long, where it is quadratic sixteen times.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::time::Duration;

use handoffd_domain::canonical;
use handoffd_domain::json::parse;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::lint::{LintContext, LintSubject, SchemaFile, lint};
use handoffd_gate::contract::predicate::{Facts, Predicate};
use handoffd_gate::contract::read;
use handoffd_gate::safety::{FieldClass, Scanner};
use proptest::prelude::*;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::time::Instant;

/// How often the same is measured before it counts as slow: a busy machine is slow now and then, what is
/// not linear is slow each time.
const LOOKS: usize = 6;
/// More than four times as long for four times as much, less than sixteen.
const RATIO: u32 = 9;
/// Below this nothing can be told from a busy machine.
const SLACK: Duration = Duration::from_millis(20);

fn seconds() -> Duration {
    let said = std::env::var("HANDOFFD_TEST_FUZZ_SECONDS").ok();
    Duration::from_secs(said.and_then(|text| text.parse().ok()).unwrap_or(8))
}

/// Runs a property over fresh inputs until the time is over.
fn fuzz<S>(inputs: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>)
where
    S: Strategy,
    S::Value: Debug + Clone,
{
    let config = Config { failure_persistence: None, max_shrink_time: 10_000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let until = Instant::now() + seconds();
    let mut cases = 0_u64;
    while Instant::now() < until {
        let case = inputs.new_tree(&mut runner).unwrap();
        if let Err(err) = runner.run_one(case, &property) {
            panic!("{err}");
        }
        cases += 1;
    }
    println!("{cases} cases");
    assert!(cases > 0);
}

/// Processor time of this thread: other work on the machine does not lengthen it as it does the clock's.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = processor_time();
    std::hint::black_box(work());
    processor_time().saturating_sub(begun)
}

/// Four times as much takes no more than [`RATIO`] times as long, at the best of a few looks.
fn is_linear<T>(once: impl Fn() -> T, four: impl Fn() -> T) -> Result<(), TestCaseError> {
    let (mut least, mut most) = (Duration::MAX, Duration::MAX);
    for _ in 0..LOOKS {
        least = least.min(time(&once));
        most = most.min(time(&four));
        if most <= least * RATIO + SLACK {
            return Ok(());
        }
    }
    Err(TestCaseError::fail(format!("{least:?} and then {most:?} for four times as much")))
}

/// Words of a language, noise, and words repeated.
fn soup(words: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(words).prop_map(|word| word.as_bytes().to_vec());
    let noise = prop::collection::vec(any::<u8>(), 0..6);
    let text = any::<String>().prop_map(String::into_bytes);
    let many = (prop::sample::select(words), 1..60_usize)
        .prop_map(|(word, times)| word.repeat(times).into_bytes());
    let part = prop_oneof![12 => word, 1 => noise, 1 => text, 1 => many];
    prop::collection::vec(part, 0..most).prop_map(|parts| parts.concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// JSON as messages have it, and as they have not.
fn value() -> impl Strategy<Value = Value> {
    let number =
        prop_oneof![any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from)];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\",
    "\\u0061",
    "\\ud800",
    "\\udc00",
    "\"a\":",
    "\"\":",
    "1",
    "-0",
    "1e309",
    "1E-400",
    "9007199254740993",
    "0.1",
    "true",
    "null",
    "\u{feff}",
    " ",
    "\n",
    "\"é\"",
    "{\"a\":{\"a\":",
    "[[[[",
    "]]]]",
    "//",
    "NaN",
];

#[test]
fn the_parser_takes_whatever_comes() {
    fuzz(&soup(JSON, 60), |bytes| {
        if let Ok(read) = parse(&bytes) {
            // A parsed value is parsed again, and is the same.
            let written = canonical::to_vec(&read);
            prop_assert_eq!(
                parse(&written).map_err(|err| TestCaseError::fail(err.to_string()))?,
                read
            );
        }
        let member = |times: usize| [b"{\"a\":[", bytes.repeat(times).as_slice(), b"0]}"].concat();
        let times = 16_384 / bytes.len().max(64);
        let (once, four) = (member(times), member(times * 4));
        is_linear(|| parse(&once).is_ok(), || parse(&four).is_ok())
    });
}

#[test]
fn the_canonical_form_is_one_and_is_made_in_linear_time() {
    fuzz(&value(), |value| {
        let bytes = canonical::to_vec(&value);
        let again: Value =
            serde_json::from_slice(&bytes).map_err(|err| TestCaseError::fail(err.to_string()))?;
        prop_assert_eq!(canonical::to_vec(&again), bytes.clone());
        let many = |times: usize| -> Value {
            let members = (0..times).map(|n| (format!("{n}{}", n % 7), value.clone()));
            Value::Object(members.collect())
        };
        let times = 16_384 / bytes.len().max(16);
        let (once, four) = (many(times), many(times * 4));
        is_linear(|| canonical::to_vec(&once), || canonical::to_vec(&four))
    });
}

const ATTACKS: &[&str] = &[
    "ignore ",
    "all ",
    "previous ",
    "instructions ",
    "you must ",
    "<|im_start|>",
    "system:",
    "<!--",
    "![x](https://e.example/?q=",
    "aWdub3JlIGFsbCBwcmV2aW91cyBpbnN0cnVjdGlvbnM=",
    "69676e6f7265",
    "%69%67%6e",
    "&#105;",
    "\\u0069\\u0067",
    "i g n o r e ",
    "vtaber cerivbhf ",
    "\u{200b}",
    "\u{202e}",
    "ｉｇｎｏｒｅ",
    "іgnоrе",
    "忽略之前的指令",
    "игнорируй ",
    "\n",
    "{\"",
    "\"}",
    "=",
    "A",
    "0",
];

#[test]
fn the_scanner_reads_whatever_comes() {
    let scanner = Scanner::builtin();
    fuzz(&soup(ATTACKS, 40), |bytes| {
        let text = text(&bytes);
        for class in [FieldClass::ToolOutput, FieldClass::UserTurn, FieldClass::Data] {
            for finding in scanner.scan_text(&text, class) {
                prop_assert!(finding.offset <= text.len(), "{finding:?}");
            }
        }
        let _ = scanner.scan(&json!({ &text: [&text], "taskDescription": &text }));
        // Work is counted here, not timed.
        // A few readings begin at some hundred bytes: what is compared is longer.
        let long = text.repeat((1_024 / text.len().max(1) + 1).max(2));
        let (once, four) = (scanner.work(&long), scanner.work(&long.repeat(4)));
        prop_assert!(four <= 6 * once + 20_000, "{once} and then {four}");
        Ok(())
    });
}

const CEL: &[&str] = &[
    "state",
    "payload",
    "message",
    "source",
    "target",
    ".",
    "a",
    "b",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "'",
    "\"",
    "==",
    "!=",
    "<",
    ">=",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "?",
    ":",
    ",",
    "in ",
    "1",
    "1u",
    "0.5",
    "'x'",
    "true",
    "null",
    "size(",
    "has(",
    ".all(x, ",
    ".exists(x, ",
    "x",
    " and ",
    " or ",
    " not ",
    "state.a",
    "state.a == 1",
    "message.b.size() > 0",
    ".startsWith('x')",
    "int(",
    "string(",
    " matches ",
    "\\",
    "/*",
    "//",
    "9223372036854775807",
];

#[test]
fn predicates_are_refused_or_answered() {
    let inputs = (soup(CEL, 40), value());
    fuzz(&inputs, |(source, value)| {
        let source = text(&source);
        let Ok(predicate) = Predicate::compile(&source) else { return Ok(()) };
        let facts = |times: usize| json!({ "a": vec![value.clone(); times], "b": value.clone() });
        let (small, large) = (facts(8), facts(32));
        let holds = |fact: &Value| {
            let facts =
                Facts { state: fact, payload: fact, message: fact, source: fact, target: fact };
            predicate.holds(&facts).is_ok()
        };
        is_linear(|| holds(&small), || holds(&large))
    });
}

const YAML: &[&str] = &[
    "id: a\n",
    "version: 1.0.0\n",
    "source: a\n",
    "target: b\n",
    "trigger: {intent: x}\n",
    "trigger:\n  predicate: state.a == 1\n",
    "payload: {schema: {type: object}}\n",
    "acceptance_criteria:\n  required_fields: [a.b, c]\n",
    "recovery: {on_reject: source}\n",
    "idempotency: {idempotent: false}\n",
    "  ",
    "- ",
    ": ",
    "#",
    "&a ",
    "*a ",
    "<<: *a\n",
    "? ",
    "|\n",
    ">-\n",
    "'",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    "!!binary ",
    "---\n",
    "...\n",
    "\t",
    "null\n",
    "1e400\n",
    "%YAML 1.2\n",
    "schemas:\n  s: {$ref: '#'}\n",
    "a: [a, b]\n",
];

#[test]
fn contracts_are_read_or_named_unreadable() {
    let load = |text: &str| match Document::parse(text) {
        Ok(document) => {
            let _ = read(&document);
            let schema = SchemaFile::NotLooked;
            let subject = LintSubject { file: "f".to_owned(), document: Ok(document), schema };
            lint(&[subject], LintContext::default()).len()
        }
        Err(_) => 0,
    };
    fuzz(&soup(YAML, 40), |bytes| {
        let text = text(&bytes);
        load(&text);
        // As parts of one document, under keys of their own where that makes one.
        let line = text.lines().next().unwrap_or_default().to_owned();
        let many = |times: usize| {
            let lines = (0..times).map(|n| format!("k{n}:\n  - {line}\n"));
            lines.collect::<Vec<_>>().concat()
        };
        let times = 8_192 / (line.len() + 10);
        let (once, four) = (many(times), many(times * 4));
        is_linear(|| load(&once), || load(&four))
    });
}
