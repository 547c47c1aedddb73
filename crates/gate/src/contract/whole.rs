//! A contract as one document: the YAML comment that justifies a full history and the payload schema in a file are written
//! into it, so that linter, broker and record read the same.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::HistoryStrategy;
use super::document::Document;
use super::lint::{schema_path, schema_text};
use handoffd_domain::canonical;

/// The contract at `base` (a pointer; empty for the whole document) with the comment that justifies its `full` history as
/// `payload.history_justification`; `None` where nothing is added.
#[must_use]
pub fn justified(document: &Document, base: &str) -> Option<Value> {
    let contract = document.value().pointer(base)?;
    let payload = contract.get("payload")?.as_object()?;
    let strategy = payload.get("history_strategy").and_then(Value::as_str);
    if strategy.and_then(HistoryStrategy::parse) != Some(HistoryStrategy::Full)
        || payload.contains_key("history_justification")
    {
        return None;
    }
    let comment = document.comment(&format!("{base}/payload/history_strategy"))?;
    let mut contract = contract.clone();
    contract["payload"]["history_justification"] = comment.into();
    Some(contract)
}

/// The contract with the payload schema that it names as a file, under `schemas`; `file` reads one by its name. A review
/// that names the SHA-256 of the file names that of the schema's canonical form instead: the file does not go along.
#[must_use]
pub fn with_schema(document: Document, file: impl FnOnce(&str) -> Option<Vec<u8>>) -> Document {
    let Some(name) = schema_path(&document).map(str::to_owned) else { return document };
    let Some(bytes) = file(&name) else { return document };
    let mut value = justified(&document, "").unwrap_or_else(|| document.value().clone());
    let (Ok(schema), Some(clauses)) = (schema_text(&bytes), value.as_object_mut()) else {
        return document;
    };
    let sha256 = |bytes: &[u8]| hex::encode(Sha256::digest(bytes));
    let (of_file, of_schema) = (sha256(&bytes), sha256(&canonical::to_vec(&schema)));
    let reviews = match clauses.get_mut("reviewed_by") {
        Some(Value::Array(entries)) => entries.iter_mut().collect(),
        Some(entry) => vec![entry],
        None => Vec::new(),
    };
    for hash in reviews.into_iter().filter_map(|entry| entry.get_mut("sha256")) {
        let named = hash.as_str().map(|text| text.strip_prefix("sha256:").unwrap_or(text));
        if named.is_some_and(|named| named.eq_ignore_ascii_case(&of_file)) {
            *hash = of_schema.clone().into();
        }
    }
    let schemas = clauses.entry("schemas").or_insert_with(|| Value::Object(Map::new()));
    if let Some(schemas) = schemas.as_object_mut() {
        schemas.entry(name).or_insert(schema);
    }
    Document::from_value(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::contract::level::Level;
    use crate::contract::lint::level_of;
    use crate::contract::read;
    use crate::contract::tests::WORKED_EXAMPLE;

    const SCHEMA: &str =
        include_str!("../../../../tests/contracts/schemas/refund-handoff@1.2.0.json");

    /// FINDINGS G6
    #[test]
    fn a_review_by_the_hash_of_the_file_counts_where_the_file_does_not_go_along() {
        let hash = hex::encode(Sha256::digest(SCHEMA));
        for entry in [
            format!("{{name: j.doe, at: 2026-11-02, sha256: {hash}}}"),
            format!("[{{name: j.doe, at: 2026-11-02, sha256: 'sha256:{}'}}]", hash.to_uppercase()),
        ] {
            let text = format!("{WORKED_EXAMPLE}reviewed_by: {entry}\n");
            let document = Document::parse(&text).unwrap();
            let whole = with_schema(document, |_| Some(SCHEMA.as_bytes().to_vec()));
            let (contract, faults) = read(&whole);
            assert_eq!(faults, []);
            assert_eq!(level_of(&contract, whole), Some(Level::L3), "{entry}");
        }
    }

    #[test]
    fn a_review_of_another_file_is_left_as_it_is() {
        let stale = "ab".repeat(32);
        let text = format!(
            "{WORKED_EXAMPLE}reviewed_by: {{name: j.doe, at: 2026-11-02, sha256: {stale}}}\n"
        );
        let document = Document::parse(&text).unwrap();
        let whole = with_schema(document, |_| Some(SCHEMA.as_bytes().to_vec()));
        assert_eq!(whole.value()["reviewed_by"]["sha256"], stale);
        assert_eq!(level_of(&read(&whole).0, whole), Some(Level::L2));
    }

    /// FINDINGS G6
    #[test]
    fn the_comment_that_justifies_a_full_history_becomes_a_member() {
        let full = |rest: &str| {
            let text = WORKED_EXAMPLE.replace("history_strategy: summary", rest);
            Document::parse(&text).unwrap()
        };
        let said = full("history_strategy: full # disputes quote it");
        let shown = justified(&said, "").unwrap();
        assert_eq!(shown["payload"]["history_justification"], "disputes quote it");
        let whole = with_schema(said, |_| Some(SCHEMA.as_bytes().to_vec()));
        assert_eq!(whole.value()["payload"]["history_justification"], "disputes quote it");
        for rest in [
            "history_strategy: full",
            "history_strategy: summary # short",
            "history_justification: by law\n  history_strategy: full # disputes quote it",
        ] {
            assert_eq!(justified(&full(rest), ""), None, "{rest}");
        }
        let list = "contracts:\n- payload:\n    # by law\n    history_strategy: full\n";
        let list = Document::parse(list).unwrap();
        let part = justified(&list, "/contracts/0").unwrap();
        assert_eq!(
            part["payload"],
            json!({"history_strategy": "full", "history_justification": "by law"})
        );
    }
}
