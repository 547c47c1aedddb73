//! `HandoffContext`: history, state of tools, metadata, and its bytes (seed 001).

use std::sync::LazyLock;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value, json};

use crate::schema::DocumentSchema;
use handoffd_domain::content_coding::{Coding, Undecoded};
use handoffd_domain::exchange::Exchanges;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::json;

/// The schema of a context, draft-07, as it is served.
pub const CONTEXT_SCHEMA: &str = include_str!("../../assets/handoff-context.json");

/// The pointer to a context in a request.
const SNAPSHOT: &str = "/context_snapshot";
/// The first bytes of a gzip member (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Members of `tool_state` that trimming keeps.
const UNDER_WAY: [&str; 2] = ["active_calls", "pending_approvals"];
/// Metadata that trimming adds.
const ORIGINAL_LENGTH: &str = "original_history_length";
const TRIMMED: &str = "trimmed";
/// Metadata that compression adds: the summary that replaces the turns that are not in the history.
const SUMMARY: &str = "conversation_history_summary";

static SCHEMA: LazyLock<DocumentSchema> = LazyLock::new(|| {
    let schema = serde_json::from_str(CONTEXT_SCHEMA).unwrap_or_default();
    DocumentSchema::draft7(&schema).expect("a test compiles it")
});

/// Base64 of either alphabet, with or without padding.
const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// An agent's state as handed over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HandoffContext {
    /// Turns, oldest first.
    pub conversation_history: Vec<Value>,
    pub tool_state: Map<String, Value>,
    pub metadata: Map<String, Value>,
    /// Members that the protocol does not name.
    pub others: Map<String, Value>,
}

/// Why a snapshot is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotError {
    /// The decoded bytes exceed the limit.
    TooLarge,
    /// Not a context: defects, as pointers into the request.
    Unfit(Vec<Failure>),
}

impl HandoffContext {
    /// Reads `context_snapshot`: JSON text, or base64 of the bytes of `serialize_context`, which may be gzip by their first two
    /// bytes. `limit` bounds the expanded bytes.
    ///
    /// # Errors
    /// [`SnapshotError`]: the cases of `deserialize_context`, and what the context's schema refuses.
    pub fn read(snapshot: &str, limit: usize) -> Result<Self, SnapshotError> {
        let text = snapshot.trim_ascii();
        let mut bytes = if text.starts_with(['{', '[']) {
            text.as_bytes().to_vec()
        } else {
            decoded(text).ok_or_else(|| unfit("is neither a JSON text nor base64"))?
        };
        if bytes.starts_with(&GZIP) {
            bytes = Coding::Gzip.decode(&bytes, limit).map_err(|undecoded| match undecoded {
                Undecoded::TooLarge => SnapshotError::TooLarge,
                Undecoded::Malformed => unfit("begins as gzip and cannot be expanded to its end"),
            })?;
        }
        if bytes.len() > limit {
            return Err(SnapshotError::TooLarge);
        }
        let document = json::parse(&bytes).map_err(|error| {
            let failure = error.into_failure();
            let why =
                format!("The context is not a JSON object that can be read: {}", failure.message);
            SnapshotError::Unfit(vec![below(Failure { message: why, ..failure })])
        })?;
        let failures = SCHEMA.check(&document);
        if !failures.is_empty() {
            return Err(SnapshotError::Unfit(failures.into_iter().map(below).collect()));
        }
        Ok(Self::of(document))
    }

    /// The context of a document; a member that is absent or of another type counts as empty, as in `from_dict`.
    #[must_use]
    pub fn of(document: Value) -> Self {
        let object = |value| match value {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        let mut others = object(document);
        let mut take = |name: &str| others.remove(name).unwrap_or_default();
        let conversation_history = match take("conversation_history") {
            Value::Array(turns) => turns,
            _ => Vec::new(),
        };
        let (tool_state, metadata) = (object(take("tool_state")), object(take("metadata")));
        Self { conversation_history, tool_state, metadata, others }
    }

    /// Trims it as `prepare_handoff_context` does: the last `most` turns, fewer where a tool's result among them would lack
    /// its call (and more only where none would stay), of the tools only what is under way or waits, and how
    /// long the history was. Metadata that the context has already stays; a history that was trimmed before keeps its first
    /// length.
    #[must_use]
    pub fn trimmed(mut self, most: usize) -> Self {
        let length = self.conversation_history.len();
        let turns = &self.conversation_history;
        let cut = Exchanges::of(turns).cut(length.saturating_sub(most));
        self.conversation_history.drain(..cut);
        self.tool_state = UNDER_WAY
            .map(|name| {
                let kept = self.tool_state.get(name).cloned();
                (name.to_owned(), kept.unwrap_or_else(|| json!([])))
            })
            .into_iter()
            .collect();
        self.mark(u64::try_from(length).unwrap_or(u64::MAX), cut > 0);
        self
    }

    /// Says that the broker compressed the history: of so many turns these are left, and a summary has the place of the
    /// others. A history that was trimmed before keeps its first length.
    #[must_use]
    pub fn compressed(mut self, original: u64, summary: Option<&str>) -> Self {
        let left = u64::try_from(self.conversation_history.len()).unwrap_or(u64::MAX);
        self.mark(original, original > left);
        self.summarised(summary)
    }

    /// Puts the summary of earlier turns beside the history.
    #[must_use]
    pub fn summarised(mut self, summary: Option<&str>) -> Self {
        if let Some(summary) = summary.filter(|summary| !summary.is_empty()) {
            self.metadata.insert(SUMMARY.to_owned(), summary.into());
        }
        self
    }

    fn mark(&mut self, length: u64, cut: bool) {
        let before = self.metadata.get(TRIMMED) == Some(&Value::Bool(true));
        let first = self.metadata.get(ORIGINAL_LENGTH).and_then(Value::as_u64).filter(|_| before);
        self.metadata.insert(ORIGINAL_LENGTH.to_owned(), first.unwrap_or(0).max(length).into());
        self.metadata.insert(TRIMMED.to_owned(), (cut || before).into());
    }

    /// The document, as `to_dict` makes it, with the other members. None of those takes the place of one of the three.
    #[must_use]
    pub fn to_document(&self) -> Value {
        let mut document = Value::Object(self.others.clone());
        document["conversation_history"] = json!(self.conversation_history);
        document["tool_state"] = json!(self.tool_state);
        document["metadata"] = json!(self.metadata);
        document
    }

    /// Its bytes as base64: compact JSON in UTF-8, as `serialize_context` makes it.
    #[must_use]
    pub fn to_snapshot(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(self.to_document().to_string())
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let alphabet = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    let engine = GeneralPurpose::new(&alphabet, LENIENT);
    if text.bytes().any(|byte| byte.is_ascii_whitespace()) {
        let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        return engine.decode(packed).ok();
    }
    engine.decode(text).ok()
}

fn unfit(why: &str) -> SnapshotError {
    let why = format!("`context_snapshot` {why}.");
    SnapshotError::Unfit(vec![Failure::new(Stage::Schema, Code::SchemaInvalid, SNAPSHOT, why)])
}

/// A failure of the context, as one of the request.
fn below(failure: Failure) -> Failure {
    Failure { pointer: format!("{SNAPSHOT}{}", failure.pointer), ..failure }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn sample() -> Value {
        json!({
            "conversation_history": [
                { "role": "user", "content": "Analyze Q3 – größer?", "timestamp": "2025-01-15T10:30:00Z" },
                { "role": "tool", "name": "query", "tool_call_id": "c1", "content": "{\"x\":1}", "later": [1, null] },
            ],
            "tool_state": { "active_calls": [{ "call_id": "c2" }], "cached_results": { "c1": { "x": 1.5 } }, "more": 7 },
            "metadata": { "agent_id": "a", "deep": { "list": [true, {}] } },
            "later": { "kept": [1, null] },
        })
    }

    fn failures(snapshot: &str) -> Vec<(String, Code)> {
        let Err(SnapshotError::Unfit(failures)) = HandoffContext::read(snapshot, LIMIT) else {
            panic!("read: {snapshot:.80}")
        };
        failures.into_iter().map(|one| (one.pointer, one.code)).collect()
    }

    #[test]
    fn b4_the_schema_is_draft_07_and_requires_all_three_members() {
        let schema: Value = serde_json::from_str(CONTEXT_SCHEMA).unwrap();
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
        assert_eq!(schema["required"], json!(["conversation_history", "tool_state", "metadata"]));
        assert!(jsonschema::draft7::meta::is_valid(&schema));
        assert!(DocumentSchema::draft7(&schema).is_ok());
    }

    #[test]
    fn b8_all_forms_of_the_bytes_are_one_context() {
        let document = sample();
        let text = document.to_string();
        let context = HandoffContext::of(document.clone());
        let zipped = Coding::Gzip.encode(text.as_bytes()).unwrap();
        let lines: String =
            STANDARD.encode(&text).as_bytes().chunks(76).fold(String::new(), |mut lines, line| {
                lines.push_str(std::str::from_utf8(line).unwrap());
                lines.push('\n');
                lines
            });
        for snapshot in [
            format!("  {}\n", serde_json::to_string_pretty(&document).unwrap()),
            STANDARD.encode(&text),
            STANDARD.encode(&text).trim_end_matches('=').to_owned(),
            URL_SAFE_NO_PAD.encode(&text),
            lines,
            STANDARD.encode(&zipped),
            context.to_snapshot(),
        ] {
            assert_eq!(
                HandoffContext::read(&snapshot, LIMIT),
                Ok(context.clone()),
                "{snapshot:.40}"
            );
        }
        assert_eq!(context.to_document(), document);
    }

    #[test]
    fn b9_what_the_sdk_cannot_deserialize_is_named() {
        let at = |pointer: &str| vec![(pointer.to_owned(), Code::SchemaInvalid)];
        for snapshot in [
            "",
            "%%%",
            "abc",
            "null",
            "{",
            "[]",
            "{\"a\":1,\"a\":2}",
            "H4sI",
            "{\"metadata\":9007199254740993}",
        ] {
            let found = failures(snapshot);
            assert!(
                found[0].0.starts_with(SNAPSHOT) && found[0].1 == Code::SchemaInvalid,
                "{snapshot}: {found:?}"
            );
        }
        assert_eq!(failures(&STANDARD.encode([0x7b, 0xff, 0x7d])), at(SNAPSHOT));
        assert_eq!(failures(&STANDARD.encode([0x1f, 0x8b, 8, 0, 1])), at(SNAPSHOT));
        let missing = failures("{}");
        let pointers: Vec<&str> = missing.iter().map(|(pointer, _)| pointer.as_str()).collect();
        assert_eq!(
            pointers,
            ["conversation_history", "tool_state", "metadata"]
                .map(|name| format!("{SNAPSHOT}/{name}"))
        );
        let deep = format!("{{\"metadata\":{}{}}}", "[".repeat(70), "]".repeat(70));
        assert_eq!(failures(&deep), at(SNAPSHOT));
    }

    #[test]
    fn b5_a_turn_has_a_role_and_a_content_that_are_texts() {
        let with = |turn: Value| {
            json!({ "conversation_history": [turn], "tool_state": {}, "metadata": {} }).to_string()
        };
        let first = format!("{SNAPSHOT}/conversation_history/0");
        for (turn, member) in [
            (json!({ "role": "user" }), "/content"),
            (json!({ "content": "x" }), "/role"),
            (json!({ "role": "user", "content": null }), "/content"),
            (json!({ "role": 7, "content": "x" }), "/role"),
            (json!({ "role": "user", "content": "x", "timestamp": "today" }), "/timestamp"),
            (json!({ "role": "user", "content": "x", "metadata": [] }), "/metadata"),
            (json!("x"), ""),
        ] {
            assert_eq!(failures(&with(turn.clone()))[0].0, format!("{first}{member}"), "{turn}");
        }
        let wrong = json!({ "conversation_history": {}, "tool_state": [], "metadata": 1 });
        assert_eq!(failures(&wrong.to_string()).len(), 3);
    }

    #[test]
    fn a_snapshot_expands_no_further_than_the_limit() {
        let bomb = Coding::Gzip.encode(&vec![b' '; 4 << 20]).unwrap();
        assert!(bomb.len() < 8192);
        let read = HandoffContext::read(&STANDARD.encode(&bomb), LIMIT);
        assert_eq!(read, Err(SnapshotError::TooLarge));
        let long = json!({ "conversation_history": [], "tool_state": {}, "metadata": { "x": "y".repeat(100) } });
        assert_eq!(HandoffContext::read(&long.to_string(), 64), Err(SnapshotError::TooLarge));
    }

    #[test]
    fn b23_trimming_keeps_the_last_turns_and_says_so() {
        let turns: Vec<Value> =
            (0..120).map(|n| json!({ "role": "user", "content": n.to_string() })).collect();
        let context = HandoffContext::of(json!({
            "conversation_history": turns,
            "tool_state": { "active_calls": [1], "cached_results": { "c": 1 }, "configurations": { "d": 1 } },
            "metadata": { "agent_id": "a" },
            "later": 7,
        }));
        let trimmed = context.clone().trimmed(50);
        assert_eq!(trimmed.to_document()["later"], 7);
        assert_eq!(trimmed.conversation_history.len(), 50);
        assert_eq!(trimmed.conversation_history[0]["content"], "70");
        assert_eq!(
            Value::Object(trimmed.tool_state.clone()),
            json!({ "active_calls": [1], "pending_approvals": [] })
        );
        assert_eq!(
            Value::Object(trimmed.metadata.clone()),
            json!({ "agent_id": "a", "original_history_length": 120, "trimmed": true })
        );
        let again = trimmed.trimmed(20);
        assert_eq!(again.conversation_history.len(), 20);
        assert_eq!(again.metadata["original_history_length"], 120);
        let short = context.trimmed(500);
        assert_eq!(
            (short.conversation_history.len(), &short.metadata["trimmed"]),
            (120, &json!(false))
        );
    }

    /// Finding D2 of 0.3.0.
    #[test]
    fn trimming_leaves_no_result_without_its_call() {
        let context = HandoffContext::of(json!({ "conversation_history": [
            { "role": "user", "content": "go" },
            { "role": "assistant", "content": "", "tool_calls": [{ "id": "c1" }, { "id": "c2" }] },
            { "role": "tool", "tool_call_id": "c1", "content": "x" },
            { "role": "tool", "tool_call_id": "c2", "content": "y" },
            { "role": "assistant", "content": "done" },
        ] }));
        let kept = |most| context.clone().trimmed(most).conversation_history.len();
        assert_eq!([kept(5), kept(4), kept(3), kept(2), kept(1), kept(0)], [5, 4, 1, 1, 1, 0]);
        let metadata = context.clone().trimmed(3).metadata;
        assert_eq!((&metadata[ORIGINAL_LENGTH], &metadata[TRIMMED]), (&json!(5), &json!(true)));
    }

    proptest! {
        #[test]
        fn no_snapshot_panics_and_a_context_comes_back(text in "\\PC{0,200}", content in "\\PC{0,80}") {
            let _ = HandoffContext::read(&text, LIMIT);
            let document = json!({
                "conversation_history": [{ "role": "user", "content": content }], "tool_state": { "k": content }, "metadata": { "m": [content] },
            });
            let context = HandoffContext::of(document);
            prop_assert_eq!(HandoffContext::read(&context.to_snapshot(), LIMIT), Ok(context));
        }
    }
}
