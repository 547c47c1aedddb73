//! JSON Web Keys (RFC 7517) that others publish, and which of them signs by which algorithm. Pure.

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse,
};
use serde::Deserialize as _;
use serde_json::Value;

/// Algorithms of signatures that are believed: those with a public key.
pub const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The keys of a set that can be read: one of an unknown kind does not take the others with it.
///
/// # Errors
/// Why this is not a set, or why none of its keys can be read.
pub fn key_set(set: &Value) -> Result<JwkSet, String> {
    let given = set.get("keys").and_then(Value::as_array);
    let given = given.ok_or_else(|| "it is not a key set: it has no list `keys`".to_owned())?;
    let (mut keys, mut why) = (Vec::new(), None);
    for (place, key) in given.iter().enumerate() {
        if let Ok(key) = Jwk::deserialize(key) {
            keys.push(key);
        } else {
            let reason = format!("key {place} of the set is of no kind that is known here");
            tracing::debug!(reason, "a key is passed over");
            why.get_or_insert(reason);
        }
    }
    match why.filter(|_| keys.is_empty()) {
        Some(why) => Err(why),
        None => Ok(JwkSet { keys }),
    }
}

/// Whether a key is one that signs by this algorithm.
#[must_use]
pub fn signs(key: &Jwk, algorithm: Algorithm) -> bool {
    unfit(key, algorithm).is_none()
}

/// Why a key proves no signature by this algorithm; `None` where it does.
#[must_use]
pub fn unfit(key: &Jwk, algorithm: Algorithm) -> Option<&'static str> {
    let common = &key.common;
    if common.public_key_use.as_ref().is_some_and(|uses| *uses != PublicKeyUse::Signature) {
        return Some("its `use` is not \"sig\"");
    }
    // Both sides of a key may be named: its owner signs, its reader verifies (RFC 7517 §4.3).
    let operations = common.key_operations.as_ref();
    if operations.is_some_and(|list| !list.contains(&KeyOperations::Verify)) {
        return Some("its `key_ops` lack \"verify\"");
    }
    if common.key_algorithm.is_some_and(|named| named.to_string().parse() != Ok(algorithm)) {
        return Some("its `alg` is another");
    }
    let able = match &key.algorithm {
        AlgorithmParameters::RSA(_) => matches!(
            algorithm,
            Algorithm::RS256
                | Algorithm::RS384
                | Algorithm::RS512
                | Algorithm::PS256
                | Algorithm::PS384
                | Algorithm::PS512
        ),
        AlgorithmParameters::EllipticCurve(curve) => matches!(
            (&curve.curve, algorithm),
            (EllipticCurve::P256, Algorithm::ES256) | (EllipticCurve::P384, Algorithm::ES384)
        ),
        AlgorithmParameters::OctetKeyPair(_) => algorithm == Algorithm::EdDSA,
        AlgorithmParameters::OctetKey(_) => false,
    };
    (!able).then_some("its type or curve is not the algorithm's")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(more: &Value) -> Jwk {
        let mut key = json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA", "kid": "a" });
        key.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(key).unwrap()
    }

    #[test]
    fn a_key_proves_what_it_says_that_it_is_for() {
        for (more, fits) in [
            (json!({}), true),
            (json!({ "use": "sig", "alg": "EdDSA", "key_ops": ["verify"] }), true),
            (json!({ "key_ops": ["sign", "verify"] }), true),
            (json!({ "use": "enc" }), false),
            (json!({ "use": "sig", "key_ops": ["encrypt"] }), false),
            (json!({ "key_ops": [] }), false),
            (json!({ "alg": "ES256" }), false),
        ] {
            assert_eq!(signs(&key(&more), Algorithm::EdDSA), fits, "{more}");
        }
        assert!(!signs(&key(&json!({})), Algorithm::ES256), "another type");
    }

    #[test]
    fn a_key_of_an_unknown_kind_takes_no_other_with_it() {
        let known = json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA" });
        let new =
            [json!({ "kty": "NEW" }), json!(7), json!({ "kty": "OKP", "crv": "X9", "x": "" })];
        let keys = |list: &[Value]| key_set(&json!({ "keys": list, "more": 1 }));
        let mixed = [&new[..], &[known]].concat();
        assert_eq!(keys(&mixed).unwrap().keys.len(), 1);
        assert_eq!(keys(&[]).unwrap().keys.len(), 0);
        assert!(keys(&new).unwrap_err().contains("key 0"));
        assert!(key_set(&json!([])).unwrap_err().contains("`keys`"));
    }
}
