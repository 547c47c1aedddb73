//! The worked example in docs/signing.md is what the code makes of it.

use handoffd_domain::canonical::CanonicalObject;
use handoffd_gate::signature;
use serde_json::Value;

const PAGE: &str = include_str!("../../docs/signing.md");

/// The first fenced block of that language after a phrase.
fn block<'a>(phrase: &str, language: &str) -> &'a str {
    let (_, rest) = PAGE.split_once(phrase).unwrap_or_else(|| panic!("no `{phrase}`"));
    let (_, rest) = rest.split_once(&format!("```{language}\n")).expect("a block");
    rest.split_once("\n```").expect("its end").0
}

/// The work of a snippet of the page, in this package's versions of the crates.
fn as_on_the_page(message: &mut Value, secret: &str) {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::Sha256;
    if let Some(members) = message.as_object_mut() {
        members.remove("signature");
    }
    let canonical = serde_json_canonicalizer::to_vec(message).expect("JSON");
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(&canonical);
    let tag = hex::encode(mac.finalize().into_bytes());
    message["signature"] = format!("hmac-sha256:{tag}").into();
}

#[test]
fn the_worked_example_is_true() {
    let mut message: Value =
        serde_json::from_str(block("A worked example", "json")).expect("the message");
    let canonical = CanonicalObject::from_value(&message).expect("an object");
    assert_eq!(String::from_utf8_lossy(canonical.as_bytes()), block("Canonical form", "text"));
    let (_, rest) = PAGE.split_once("Under the signing secret `").expect("the secret");
    let secret = rest.split_once('`').expect("the secret").0;
    let expected = block("Under the signing secret", "text");
    assert_eq!(signature::sign(&canonical, secret.as_bytes()), expected);
    as_on_the_page(&mut message, secret);
    assert_eq!(message["signature"], expected);
}
