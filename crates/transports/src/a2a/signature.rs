//! The signatures of a remote agent's card (A2A 1.0 §8.4): a JWS over the RFC 8785 form of the card without its signatures, held
//! against the keys that the agent is registered with. The key that a signature itself points to (`jku`, `jwk`) is the signer's
//! own word and is not looked at. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde_json::Value;

use super::card::CardFault;
use handoffd_broker::web_keys::{ALGORITHMS, key_set, signs};
use handoffd_domain::canonical;

/// Signatures of one card that are looked at, and keys of one set.
const MOST: usize = 16;
/// Boolean members of a card that a protobuf writer leaves out only where they are not set: their `false` is signed.
const OPTIONAL: [&str; 3] = ["streaming", "pushNotifications", "extendedAgentCard"];

/// The keys of a JSON Web Key Set as an agent's registration has it; `None` where none of them can sign.
#[must_use]
pub fn registered_keys(text: &str) -> Option<JwkSet> {
    let set = key_set(&serde_json::from_str(text).ok()?).ok()?;
    let usable = |key: &Jwk| ALGORITHMS.iter().any(|algorithm| signs(key, *algorithm));
    set.keys.iter().any(usable).then_some(set)
}

/// Whether one signature of a card holds under one of the keys.
///
/// # Errors
/// [`CardFault::Unsigned`], [`CardFault::Signature`].
pub fn verify(card: &Value, keys: &JwkSet) -> Result<(), CardFault> {
    let signatures = card.get("signatures").and_then(Value::as_array);
    let signatures = signatures.filter(|list| !list.is_empty()).ok_or(CardFault::Unsigned)?;
    let payloads = payloads(card);
    let holds = |one: &Value| Signature::read(one).is_some_and(|one| one.holds(&payloads, keys));
    if signatures.iter().take(MOST).any(holds) { Ok(()) } else { Err(CardFault::Signature) }
}

/// One signature, its protected header read.
struct Signature<'a> {
    protected: &'a str,
    signature: &'a str,
    algorithm: Algorithm,
    kid: Option<String>,
}

impl<'a> Signature<'a> {
    /// `None`: not of a believed algorithm, or with extensions that its reader must understand (RFC 7515 §4.1.11).
    fn read(one: &'a Value) -> Option<Self> {
        let text = |name: &str| one.get(name).and_then(Value::as_str);
        let (protected, signature) = (text("protected")?, text("signature")?);
        let header = URL_SAFE_NO_PAD.decode(protected.trim_end_matches('=')).ok()?;
        let header: Value = serde_json::from_slice(&header).ok()?;
        let algorithm: Algorithm = serde_json::from_value(header.get("alg")?.clone()).ok()?;
        if header.get("crit").is_some() || !ALGORITHMS.contains(&algorithm) {
            return None;
        }
        let kid = header.get("kid").and_then(Value::as_str).map(str::to_owned);
        Some(Self { protected, signature, algorithm, kid })
    }

    fn holds(&self, payloads: &[String], keys: &JwkSet) -> bool {
        let named = |key: &&Jwk| self.kid.is_none() || key.common.key_id == self.kid;
        let able = keys.keys.iter().filter(named).filter(|key| signs(key, self.algorithm));
        able.take(MOST).filter_map(|key| DecodingKey::from_jwk(key).ok()).any(|key| {
            payloads.iter().any(|payload| {
                let signed = format!("{}.{payload}", self.protected);
                crypto::verify(self.signature, signed.as_bytes(), &key, self.algorithm)
                    .unwrap_or(false)
            })
        })
    }
}

/// Returns the forms of a card that its signer may have signed: the card as it came, without empty members, and without members that are
/// `false` too. Writers differ in whether they sign members with their default value; a reader takes a member's absence for the same.
fn payloads(card: &Value) -> Vec<String> {
    let mut bare = card.clone();
    if let Some(members) = bare.as_object_mut() {
        members.remove("signatures");
    }
    let cleaned = without(&bare, &|_: &str, value: &Value| is_empty(value)).unwrap_or_default();
    let defaults = |name: &str, value: &Value| {
        is_empty(value) || (*value == false && !OPTIONAL.contains(&name))
    };
    let plain = without(&bare, &defaults).unwrap_or_default();
    let mut forms: Vec<String> = [bare, cleaned, plain]
        .iter()
        .map(|form| URL_SAFE_NO_PAD.encode(canonical::to_vec(form)))
        .collect();
    forms.dedup();
    forms
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value without the members and items that `goes` names, from the inside out; `None` where nothing is left of it.
fn without(value: &Value, goes: &impl Fn(&str, &Value) -> bool) -> Option<Value> {
    let left = |name: &str, value: &Value| without(value, goes).filter(|kept| !goes(name, kept));
    let kept = match value {
        Value::Object(members) => {
            let kept =
                members.iter().filter_map(|(name, one)| Some((name.clone(), left(name, one)?)));
            Value::Object(kept.collect())
        }
        Value::Array(items) => Value::Array(items.iter().filter_map(|one| left("", one)).collect()),
        plain => plain.clone(),
    };
    (!is_empty(&kept)).then_some(kept)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use serde_json::json;

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn jwk(seed: u8, kid: &str) -> Value {
        let x = URL_SAFE_NO_PAD.encode(key(seed).verifying_key().as_bytes());
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": kid, "alg": "EdDSA", "use": "sig" })
    }

    fn keys(of: &[(u8, &str)]) -> JwkSet {
        let of: Vec<Value> = of.iter().map(|(seed, kid)| jwk(*seed, kid)).collect();
        registered_keys(&json!({ "keys": of }).to_string()).unwrap()
    }

    /// A signature of the card in this form.
    fn signature(seed: u8, header: &Value, form: &Value) -> Value {
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let payload = URL_SAFE_NO_PAD.encode(canonical::to_vec(form));
        let signed = key(seed).sign(format!("{protected}.{payload}").as_bytes());
        json!({ "protected": protected, "signature": URL_SAFE_NO_PAD.encode(signed.to_bytes()) })
    }

    fn header(kid: &str) -> Value {
        json!({ "alg": "EdDSA", "typ": "JOSE", "kid": kid, "jku": "https://evil.example/keys" })
    }

    fn plain() -> Value {
        json!({
            "name": "Ärztin", "version": "1", "skills": [], "iconUrl": "", "provider": null,
            "capabilities": { "streaming": false, "extensions": [{ "uri": "urn:x", "required": false }] },
            "supportedInterfaces": [{ "url": "https://a.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        })
    }

    fn with(signatures: &Value) -> Value {
        let mut card = plain();
        card["signatures"] = signatures.clone();
        card
    }

    #[test]
    fn a_signature_holds_under_its_own_key_and_under_no_other() {
        let signed = with(&json!([signature(1, &header("a"), &plain())]));
        assert_eq!(verify(&signed, &keys(&[(1, "a")])), Ok(()));
        assert_eq!(verify(&signed, &keys(&[(2, "a"), (1, "a")])), Ok(()), "a key that is rotated");
        for others in [keys(&[(2, "a")]), keys(&[(1, "b")])] {
            assert_eq!(verify(&signed, &others), Err(CardFault::Signature));
        }
        for unsigned in [plain(), with(&json!([])), with(&json!("x")), with(&Value::Null)] {
            assert_eq!(verify(&unsigned, &keys(&[(1, "a")])), Err(CardFault::Unsigned));
        }
    }

    #[test]
    fn a_card_that_was_changed_after_it_was_signed_is_refused() {
        let signed = with(&json!([signature(1, &header("a"), &plain())]));
        for (pointer, value) in [
            ("/name", json!("Arzt")),
            ("/supportedInterfaces/0/url", json!("https://a.example/other")),
            ("/capabilities/streaming", json!(true)),
            ("/capabilities/extensions/0/required", json!(true)),
        ] {
            let mut changed = signed.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(
                verify(&changed, &keys(&[(1, "a")])),
                Err(CardFault::Signature),
                "{pointer}"
            );
        }
        let mut more = signed;
        more["documentationUrl"] = "https://evil.example".into();
        assert_eq!(verify(&more, &keys(&[(1, "a")])), Err(CardFault::Signature));
    }

    #[test]
    fn members_with_their_default_value_may_be_left_out_of_what_is_signed() {
        let interfaces = plain()["supportedInterfaces"].clone();
        let cleaned = json!({
            "name": "Ärztin", "version": "1", "supportedInterfaces": interfaces,
            "capabilities": { "streaming": false, "extensions": [{ "uri": "urn:x", "required": false }] },
        });
        let mut protobuf = cleaned.clone();
        protobuf["capabilities"]["extensions"][0] = json!({ "uri": "urn:x" });
        for form in [cleaned, protobuf] {
            let signed = with(&json!([signature(1, &header("a"), &form)]));
            assert_eq!(verify(&signed, &keys(&[(1, "a")])), Ok(()), "{form}");
        }
    }

    #[test]
    fn one_signature_of_several_is_enough_and_headers_that_ask_for_more_are_none() {
        let good = signature(1, &header("a"), &plain());
        let other = signature(9, &header("z"), &plain());
        assert_eq!(verify(&with(&json!([7, {}, other, good])), &keys(&[(1, "a")])), Ok(()));
        let critical = json!({ "alg": "EdDSA", "kid": "a", "crit": ["b64"], "b64": false });
        for wrong in [
            critical,
            json!({ "alg": "none", "kid": "a" }),
            json!({ "alg": "HS256", "kid": "a" }),
            json!({ "alg": "ES256", "kid": "a" }),
            json!({ "kid": "a" }),
            json!([]),
        ] {
            let card = with(&json!([signature(1, &wrong, &plain())]));
            assert_eq!(verify(&card, &keys(&[(1, "a")])), Err(CardFault::Signature), "{wrong}");
        }
        let unnamed = with(&json!([signature(1, &json!({ "alg": "EdDSA" }), &plain())]));
        assert_eq!(verify(&unnamed, &keys(&[(2, "b"), (1, "a")])), Ok(()));
    }

    #[test]
    fn a_key_set_is_registered_where_one_of_its_keys_can_sign() {
        let mut strange = jwk(1, "a");
        strange["kty"] = "XYZ".into();
        assert!(registered_keys(&json!({ "keys": [strange, jwk(1, "a")] }).to_string()).is_some());
        let mut encrypts = jwk(1, "a");
        encrypts["use"] = "enc".into();
        let secret = json!({ "kty": "oct", "k": "AAAA" });
        for none in [
            json!({ "keys": [] }),
            json!({ "keys": [strange] }),
            json!({ "keys": [encrypts] }),
            json!({ "keys": [secret] }),
            json!({}),
            json!("x"),
            jwk(1, "a"),
        ] {
            assert!(registered_keys(&none.to_string()).is_none(), "{none}");
        }
        assert!(registered_keys("no JSON").is_none());
    }
}
