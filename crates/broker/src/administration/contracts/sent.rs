//! Contracts as a request brings them: one under the id of its path, or several to lint. Pure.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::intake::Refusal;
use crate::intake::refused::misfit;
use handoffd_domain::canonical;
use handoffd_domain::failure::{Failure, escaped};
use handoffd_gate::contract::catalog::Catalog;
use handoffd_gate::contract::document::{Document, DocumentError};
use handoffd_gate::contract::enforce::CompiledContract;
use handoffd_gate::contract::registry::Registry;
use handoffd_gate::contract::{Contract, ContractDefect, read, whole};

/// The most contracts that one call lints.
const MAX_LINTED: usize = 1_000;

/// Contracts to lint, each under its place in the request.
#[derive(Debug)]
pub(super) struct Sent {
    pub documents: Vec<(String, Document)>,
    /// A registry in place of the tenant's agents.
    pub registry: Option<Registry>,
}

/// Reads a contract's text as a document under an id. The comment that justifies `full` becomes a member, as the linter reads
/// it; a version that is stored without it stays the same.
pub(super) fn one(
    text: &str,
    named: &str,
    catalog: &Catalog,
) -> Result<(Document, Contract, Vec<ContractDefect>), Refusal> {
    let document = Document::parse(text).map_err(|err| Refusal::Malformed(unread("", &err)))?;
    let under_id = |mut value: Value| {
        if let Some(object) = value.as_object_mut() {
            object.entry("id").or_insert_with(|| json!(named));
        }
        Document::from_value(value)
    };
    let plain = under_id(document.value().clone());
    let Some(justified) = whole::justified(&document, "").map(under_id) else {
        let (contract, defects) = read(&plain);
        return Ok((plain, contract, defects));
    };
    let (contract, defects) = read(&justified);
    let stored = catalog.find(named, Some(&contract.version()));
    let is_same = |ready: &CompiledContract| {
        ready.doc().as_bytes() == canonical::to_vec(plain.value()).as_slice()
    };
    if stored.is_some_and(|ready| is_same(ready)) {
        let (contract, defects) = read(&plain);
        return Ok((plain, contract, defects));
    }
    Ok((justified, contract, defects))
}

/// Reads one contract, or `{contracts: [contract, or its text], registry?}`.
pub(super) fn many(text: &str) -> Result<Sent, Refusal> {
    let sent = Document::parse_large(text).map_err(|err| Refusal::Malformed(unread("", &err)))?;
    let Some(contracts) = sent.value().get("contracts") else {
        return Ok(Sent { documents: vec![(String::new(), sent)], registry: None });
    };
    let mut members = sent.value().as_object().into_iter().flat_map(|members| members.keys());
    if let Some(name) = members.find(|name| !["contracts", "registry"].contains(&name.as_str())) {
        let why = "is not a member of this body: contracts and registry are";
        return Err(misfit(&format!("/{}", escaped(name)), why).into());
    }
    let listed = contracts.as_array().filter(|listed| listed.len() <= MAX_LINTED);
    let listed = listed.ok_or_else(|| {
        misfit("/contracts", format!("`contracts` must be a list of at most {MAX_LINTED}"))
    })?;
    let registry = sent.value().get("registry").filter(|value| !value.is_null());
    let registry = registry.map(Registry::deserialize).transpose();
    let registry = registry.map_err(|err| misfit("/registry", err.to_string()))?;
    let documents = listed.iter().enumerate().map(|(at, one)| listed_at(&sent, at, one));
    Ok(Sent { documents: documents.collect::<Result<_, _>>()?, registry })
}

/// A contract of a list, with its place in the request.
fn listed_at(sent: &Document, at: usize, one: &Value) -> Result<(String, Document), Refusal> {
    let place = format!("/contracts/{at}");
    let document = if let Some(text) = one.as_str() {
        Document::parse(text).map_err(|err| unread(&place, &err))?
    } else {
        let justified = whole::justified(sent, &place);
        Document::from_value(justified.unwrap_or_else(|| one.clone()))
    };
    Ok((place, document))
}

/// The failure of a text that is neither JSON nor YAML.
fn unread(pointer: &str, err: &DocumentError) -> Failure {
    let DocumentError { place, message } = err;
    misfit(pointer, format!("line {}, column {}: {message}", place.line, place.column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_contract_and_a_list_are_read_with_their_places() {
        let places = |text: &str| -> Vec<String> {
            many(text).unwrap().documents.into_iter().map(|(place, _)| place).collect()
        };
        assert_eq!(places("id: a-to-b\nversion: 1.0.0\n"), [""]);
        assert_eq!(
            places(r#"{"contracts": [{"id": "a"}, "id: b"]}"#),
            ["/contracts/0", "/contracts/1"]
        );
        assert!(places(r#"{"contracts": []}"#).is_empty());
    }

    #[test]
    fn a_list_that_cannot_be_linted_is_refused_at_its_place() {
        let many_more = json!({ "contracts": vec![json!({}); MAX_LINTED + 1] }).to_string();
        let rows = [
            (r#"{"contracts": [], "agents": []}"#, "/agents"),
            (r#"{"contracts": {}}"#, "/contracts"),
            (many_more.as_str(), "/contracts"),
            (r#"{"contracts": [], "registry": 7}"#, "/registry"),
            (r#"{"contracts": ["{}", "{"]}"#, "/contracts/1"),
        ];
        for (text, pointer) in rows {
            let Err(Refusal::Findings(failures)) = many(text) else {
                panic!("{text} is not refused with a finding")
            };
            assert_eq!(failures[0].pointer, pointer, "{text}");
        }
        assert!(matches!(many("{"), Err(Refusal::Malformed(_))));
    }

    #[test]
    fn a_contract_takes_the_id_of_its_path_where_it_states_none() {
        let catalog = Catalog::default();
        let (_, contract, _) = one("version: 1.0.0\n", "a-to-b", &catalog).unwrap();
        assert_eq!(contract.id, "a-to-b");
        let (_, contract, _) = one("id: other\n", "a-to-b", &catalog).unwrap();
        assert_eq!(contract.id, "other");
    }
}
