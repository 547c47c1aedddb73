//! `KEY=VALUE` of a transport's settings and credentials, by the descriptions that the API validates with.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use handoffd_domain::transport::{FieldDefault, FieldKind, TransportField};
use handoffd_transports::descriptions::DESCRIPTIONS;

/// Reads one option: the key stays, `@FILE` becomes the file's content.
pub(super) fn read(text: &str) -> Result<String, String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE or KEY=@FILE")?;
    let Some(path) = value.strip_prefix('@') else { return Ok(text.to_owned()) };
    let content = std::fs::read_to_string(path).map_err(|err| format!("{path}: {err}"))?;
    // The line's end is the editor's, except where a document has lines.
    let content = if content.starts_with("-----BEGIN ") { &content } else { content.trim_end() };
    Ok(format!("{key}={content}"))
}

/// The options as one object. A key that some transport describes as a number or a boolean becomes one.
pub(super) fn object(said: &[String]) -> Value {
    let mut object = Map::new();
    for (key, text) in said.iter().filter_map(|text| text.split_once('=')) {
        let kind = DESCRIPTIONS
            .iter()
            .flat_map(|one| one.config_fields.iter().chain(one.credential_fields))
            .find(|field| field.key == key)
            .map(|field| field.kind);
        let value = match kind {
            Some(FieldKind::Integer) => text.parse::<i64>().map_or(json!(text), Value::from),
            Some(FieldKind::Boolean) => text.parse::<bool>().map_or(json!(text), Value::from),
            _ => json!(text),
        };
        object.insert(key.to_owned(), value);
    }
    Value::Object(object)
}

/// The settings of each transport.
pub(super) fn help() -> String {
    let mut help = "Transports (GET /transports says which ones a broker serves):\n".to_owned();
    for one in DESCRIPTIONS {
        let _ = writeln!(help, "\n  --mode {}: {}", one.mode.as_str(), one.label);
        for (option, fields) in
            [("--setting", one.config_fields), ("--credential", one.credential_fields)]
        {
            for field in fields {
                let _ = writeln!(help, "    {option} {}=…  {}", field.key, described(field));
            }
        }
    }
    help
}

fn described(field: &TransportField) -> String {
    let mut text = field.description.to_owned();
    if field.required {
        text.push_str(" (required)");
    }
    match field.default {
        Some(FieldDefault::Text(value)) => _ = write!(text, " [default: {value}]"),
        Some(FieldDefault::Integer(value)) => _ = write!(text, " [default: {value}]"),
        Some(FieldDefault::Boolean(value)) => _ = write!(text, " [default: {value}]"),
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_type_of_their_field() {
        let said = ["maxLength=1000", "stream=a=b", "password=12345"].map(str::to_owned);
        let wanted = json!({ "maxLength": 1000, "stream": "a=b", "password": "12345" });
        assert_eq!(object(&said), wanted);
        assert!(read("no").is_err() && read("x=@/no/such/file").is_err());
    }

    #[test]
    fn the_help_names_every_field() {
        let help = help();
        for one in DESCRIPTIONS {
            for field in one.config_fields.iter().chain(one.credential_fields) {
                assert!(help.contains(&format!(" {}=…", field.key)), "{}", field.key);
            }
        }
    }
}
