//! A handoff as a signal: workflow ids, request documents, and the answers of queries. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::super::text::{TextBody, attempt_text};
use handoffd_broker::transport::Attempt;
use handoffd_broker::transport::envelope::names;
use handoffd_domain::lenient;

/// Longest workflow id that Temporal takes.
const MAX_WORKFLOW_ID: usize = 1_000;

/// The names in a template of workflow ids.
const PLACEHOLDERS: [&str; 3] = ["taskId", "handoffId", "agentId"];

/// The ids that a workflow's id is made of.
#[derive(Debug, Clone, Copy)]
pub struct Ids<'a> {
    pub task: &'a str,
    pub handoff: &'a str,
    pub agent: &'a str,
}

/// Fills in a template such as `handoff-{taskId}`.
///
/// # Errors
/// The defect of the template.
pub fn workflow_id(template: &str, ids: Ids<'_>) -> Result<String, String> {
    let mut id = String::with_capacity(template.len() + ids.task.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) =
            after.split_once('}').ok_or_else(|| "has a { without a }".to_owned())?;
        id.push_str(before);
        id.push_str(match name {
            "taskId" => ids.task,
            "handoffId" => ids.handoff,
            "agentId" => ids.agent,
            _ => {
                let known = PLACEHOLDERS.map(|known| format!("{{{known}}}")).join(", ");
                return Err(format!("names {{{name}}}; it may name {known}"));
            }
        });
        rest = after;
    }
    id.push_str(rest);
    if id.len() > MAX_WORKFLOW_ID {
        return Err(format!("makes an id of more than {MAX_WORKFLOW_ID} bytes"));
    }
    // The HTTP API has the id as one part of a path, and decodes it before it looks for the parts.
    if id.contains('/') {
        return Err("holds a /, which Temporal's HTTP API cannot address".to_owned());
    }
    Ok(id)
}

/// The request that starts the workflow if it does not run, and signals it. Its payloads are exact bytes, in JSON as
/// every SDK reads it; the second value is the size of the signal's payload, which Temporal bounds.
#[must_use]
pub fn signal_request(attempt: &Attempt) -> (Value, usize) {
    let TextBody { text, coding } = attempt_text(attempt, |_| true);
    let Attempt { envelope, body, endpoint, .. } = attempt;
    let config = &endpoint.config;
    let mut headers: Map<String, Value> = envelope
        .headers(body)
        .into_iter()
        .filter(|(name, _)| *name != names::CONTENT_ENCODING)
        .map(|(name, value)| (name.to_owned(), value.into_owned().into()))
        .collect();
    if let Some(coding) = coding {
        headers.insert(names::CONTENT_ENCODING.to_owned(), coding.into());
    }
    let trace: Map<String, Value> = [names::TRACEPARENT, names::TRACESTATE]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), payload(headers.get(name)?).0)))
        .collect();
    let memo = json!({
        "handoffId": payload(&headers[names::HANDOFF_ID]).0,
        "taskId": payload(&headers[names::TASK_ID]).0,
    });
    let (input, size) = payload(&json!({"headers": headers, "body": text}));
    let request = json!({
        "workflowType": {"name": config.text("workflowType")},
        "taskQueue": {"name": config.text("taskQueue")},
        "requestId": envelope.deduplication_id(),
        "identity": concat!("handoffd/", env!("CARGO_PKG_VERSION")),
        "signalInput": {"payloads": [input]},
        "header": {"fields": trace},
        "memo": {"fields": memo},
    });
    (request, size)
}

/// A value as a payload of the encoding `json/plain`, and its size in bytes.
fn payload(value: &Value) -> (Value, usize) {
    let data = value.to_string();
    let payload = json!({
        "metadata": {"encoding": BASE64.encode("json/plain")},
        "data": BASE64.encode(&data),
    });
    (payload, data.len())
}

/// The verdicts that a query answered with: the elements of its list, objects or JSON texts, each as the exact bytes.
///
/// # Errors
/// Why the answer is none.
pub fn verdicts(answer: &Value) -> Result<Vec<Vec<u8>>, String> {
    let payloads = match answer.get("queryResult") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(result) => result.get("payloads").and_then(Value::as_array),
    };
    let Some(payload) = payloads.and_then(|payloads| payloads.first()) else {
        return Ok(Vec::new());
    };
    let metadata = |name: &str| {
        let text = payload.get("metadata")?.get(name)?.as_str()?;
        String::from_utf8(BASE64.decode(text).ok()?).ok()
    };
    let encoding = metadata("encoding").unwrap_or_default();
    if encoding == "binary/null" {
        return Ok(Vec::new());
    }
    if encoding != "json/plain" {
        return Err(format!("its payload has the encoding {encoding:?}, not json/plain"));
    }
    let data = payload.get("data").and_then(Value::as_str).unwrap_or_default();
    let data = BASE64.decode(data).map_err(|_| "its payload is not base64".to_owned())?;
    if data.trim_ascii() == b"null" {
        return Ok(Vec::new());
    }
    // A verdict may hold text that is not strict JSON: only its end is looked for.
    let list = lenient::elements(&data).ok_or_else(|| "its payload is not JSON".to_owned())?;
    Ok(list
        .into_iter()
        .map(|item| {
            serde_json::from_slice::<String>(item)
                .map_or_else(|_| item.to_vec(), String::into_bytes)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: Ids<'static> = Ids { task: "t-1", handoff: "h-1", agent: "a" };

    #[test]
    fn a_template_names_ids() {
        for (template, id) in [
            ("handoff-{taskId}", "handoff-t-1"),
            ("{agentId}:{taskId}:{handoffId}", "a:t-1:h-1"),
            ("inbox", "inbox"),
            ("a}b", "a}b"),
        ] {
            assert_eq!(workflow_id(template, IDS).as_deref(), Ok(id));
        }
        for (template, why) in [
            ("x-{tenant}", "{taskId}, {handoffId}, {agentId}"),
            ("x-{taskId", "without a }"),
            ("a/{taskId}", "a /"),
        ] {
            assert!(workflow_id(template, IDS).unwrap_err().contains(why), "{template}");
        }
        assert!(workflow_id(&"x".repeat(1_001), IDS).is_err());
    }

    fn answered(data: &str) -> Value {
        json!({"queryResult": {"payloads": [{
            "metadata": {"encoding": BASE64.encode("json/plain")},
            "data": BASE64.encode(data),
        }]}})
    }

    #[test]
    fn verdicts_are_the_exact_bytes_of_a_lists_elements() {
        let read = |data: &str| {
            let verdicts = verdicts(&answered(data)).unwrap();
            verdicts.into_iter().map(|one| String::from_utf8(one).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            read(r#"[{"b":1.0, "a":2}, "{\"c\":3}"]"#),
            [r#"{"b":1.0, "a":2}"#, r#"{"c":3}"#]
        );
        assert_eq!(read(r#"{"a":1}"#), [r#"{"a":1}"#]);
        assert_eq!(read("[]"), [""; 0]);
        assert_eq!(read("null"), [""; 0]);
        assert_eq!(verdicts(&json!({})), Ok(Vec::new()));
        let null = json!({"queryResult": {"payloads": [
            {"metadata": {"encoding": BASE64.encode("binary/null")}}]}});
        assert_eq!(verdicts(&null), Ok(Vec::new()));
        assert!(verdicts(&answered("[1")).is_err());
        let sealed = json!({"queryResult": {"payloads": [
            {"metadata": {"encoding": BASE64.encode("binary/encrypted")}, "data": "AA=="}]}});
        assert!(verdicts(&sealed).unwrap_err().contains("binary/encrypted"));
    }
}
