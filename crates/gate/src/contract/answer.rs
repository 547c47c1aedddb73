//! The form of an answer (specification §10.3): a JSON Schema that a receiver sends with its question, held to the bounds
//! of a contract's payload schema.

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use super::schema::{self, SchemaVerdict, TOO_COSTLY};
use handoffd_domain::failure::{Code, Failure, Stage};

/// The most faults that are named.
const MAX_FAULTS: usize = 20;

/// Checks that a value is a schema within the bounds.
///
/// # Errors
/// A failure at `/schema`.
pub fn check_schema(document: &Value) -> Result<(), Failure> {
    let wrong = |why: String| Failure::new(Stage::Schema, Code::SchemaInvalid, "/schema", why);
    schema::compile(document).map(|_| ()).map_err(wrong)
}

/// Places of an answer that do not fit the question's schema, as pointers into a body with `answer`.
#[must_use]
pub fn faults(document: &Value, answer: &Value) -> Vec<Failure> {
    let wrong = |at: &str, why: &str| {
        Failure::new(Stage::Schema, Code::SchemaInvalid, format!("/answer{at}"), why)
    };
    let Ok(schema) = schema::compile_known(document) else {
        return vec![wrong("", "the question's schema cannot be compiled")];
    };
    let faults = match schema.judge(document, answer, MAX_FAULTS) {
        SchemaVerdict::Fits => return Vec::new(),
        SchemaVerdict::TooCostly => return vec![wrong("", &format!("the answer {TOO_COSTLY}"))],
        SchemaVerdict::Unfit(faults) => faults,
    };
    if faults.is_empty() {
        return vec![wrong("", "the answer does not satisfy the question's schema")];
    }
    let fault = |error: jsonschema::ValidationError<'_>| {
        let at = error.instance_path().as_str();
        // The validator's own words repeat values; its keyword does not.
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                wrong(at, &format!("{property} is missing; the question's schema requires it"))
            }
            kind => {
                let keyword = kind.keyword();
                wrong(at, &format!("does not satisfy `{keyword}` of the question's schema"))
            }
        }
    };
    faults.into_iter().map(fault).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_fault_of_an_answer_is_named_at_its_place() {
        let form = json!({
            "type": "object", "required": ["choice"],
            "properties": { "choice": { "enum": ["a", "b"] }, "why": { "type": "string" } },
        });
        assert!(check_schema(&form).is_ok());
        assert_eq!(faults(&form, &json!({ "choice": "a" })), []);
        let found = faults(&form, &json!({ "choice": "c", "why": 7 }));
        let mut pointers: Vec<_> = found.iter().map(|one| one.pointer.as_str()).collect();
        pointers.sort_unstable();
        assert_eq!(pointers, ["/answer/choice", "/answer/why"]);
        let missing = faults(&form, &json!({}));
        assert_eq!(missing[0].pointer, "/answer");
        assert!(missing[0].message.contains("choice"), "{missing:?}");
    }

    #[test]
    fn a_schema_that_leads_outside_or_is_none_is_refused() {
        for wrong in
            [json!({ "$ref": "https://elsewhere.test/s" }), json!("x"), json!({ "type": 7 })]
        {
            let failure = check_schema(&wrong).unwrap_err();
            assert_eq!((failure.pointer.as_str(), failure.code), ("/schema", Code::SchemaInvalid));
        }
    }
}
