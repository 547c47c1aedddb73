//! JSON Web Keys (RFC 7517) that others publish, and which of them signs by which algorithm. Pure.

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
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

/// The keys of a set that can be read: one of an unknown kind does not take the others with it. `None`: this is no set.
#[must_use]
pub fn key_set(mut set: Value) -> Option<JwkSet> {
    if let Some(keys) = set.get_mut("keys").and_then(Value::as_array_mut) {
        keys.retain(|key| serde_json::from_value::<Jwk>(key.clone()).is_ok());
    }
    serde_json::from_value(set).ok()
}

/// Whether a key is one that signs by this algorithm.
#[must_use]
pub fn signs(key: &Jwk, algorithm: Algorithm) -> bool {
    let uses = key.common.public_key_use.as_ref();
    if uses.is_some_and(|uses| *uses != PublicKeyUse::Signature) {
        return false;
    }
    let named = key.common.key_algorithm;
    if named.is_some_and(|named| named.to_string().parse() != Ok(algorithm)) {
        return false;
    }
    match &key.algorithm {
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
    }
}
