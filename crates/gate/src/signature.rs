//! The sender's HMAC (seed 000 §10.2, specification §2.2 stage 2): `hmac-sha256:<hex>` over the RFC 8785
//! canonical form of the message without its top-level `signature`.
//!
//! Runs before the schema stage and so takes any JSON object.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::failure::{Code, Failure, Stage};

/// The prefix of a signature: the one algorithm there is.
pub const PREFIX: &str = "hmac-sha256:";

/// The top-level field that holds the signature.
pub const FIELD: &str = "signature";

/// Length of an HMAC-SHA-256 tag in bytes.
const TAG_BYTES: usize = 32;

/// The signature of a message under `secret`: [`PREFIX`] and 64 lower-case hexadecimal digits.
///
/// ```
/// use handoffd_domain::canonical::CanonicalObject;
/// use handoffd_gate::signature::{sign, verify};
///
/// let mut message = serde_json::json!({ "taskId": "7d9e0f1a", "cost": 1.0 });
/// let canonical = CanonicalObject::from_value(&message).expect("an object");
/// message["signature"] = sign(&canonical, b"the sender's secret").into();
///
/// let received = CanonicalObject::from_value(&message).expect("an object");
/// let secrets: [&[u8]; 1] = [b"the sender's secret"];
/// assert!(verify(&received, message.get("signature"), &secrets, true).is_ok());
///
/// message["cost"] = 2.0.into();
/// let tampered = CanonicalObject::from_value(&message).expect("an object");
/// assert!(verify(&tampered, message.get("signature"), &secrets, true).is_err());
/// ```
#[must_use]
pub fn sign(canon: &CanonicalObject, secret: &[u8]) -> String {
    format!("{PREFIX}{}", hex::encode(tag(&canon.without(&[FIELD]), secret)))
}

/// Checks the signature of a message.
///
/// `signature` is the value of the message's `signature` field, if it has one; `secrets` are all those
/// valid at the moment (two while one is rotated out), any of which will do. A signature that is
/// present is checked even where none is `required`. The comparison takes the same time whichever
/// secret fits, and however much of the tag does.
///
/// # Errors
///
/// A [`Code::SignatureInvalid`] failure at `/signature`: missing though required, not a string, not of
/// the form above, or not made with any of the secrets over this content.
pub fn verify(
    canon: &CanonicalObject,
    signature: Option<&Value>,
    secrets: &[&[u8]],
    required: bool,
) -> Result<(), Failure> {
    let Some(signature) = signature else {
        return if required {
            Err(invalid("The sender's messages must be signed, and this one has no `signature`."))
        } else {
            Ok(())
        };
    };
    let Some(claimed) = signature.as_str().and_then(decode) else {
        return Err(invalid("`signature` must be `hmac-sha256:` and 64 hexadecimal digits."));
    };
    let content = canon.without(&[FIELD]);
    let matches = secrets.iter().fold(Choice::from(0), |any, secret| {
        any | tag(&content, secret).as_slice().ct_eq(claimed.as_slice())
    });
    if bool::from(matches) {
        Ok(())
    } else {
        Err(invalid(
            "The signature does not fit the message: it was changed after signing, signed with another secret, or not signed over its RFC 8785 form without `signature`.",
        ))
    }
}

fn decode(signature: &str) -> Option<[u8; TAG_BYTES]> {
    let mut tag = [0_u8; TAG_BYTES];
    hex::decode_to_slice(signature.strip_prefix(PREFIX)?, &mut tag).ok()?;
    Some(tag)
}

fn tag(content: &[u8], secret: &[u8]) -> [u8; TAG_BYTES] {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length (RFC 2104)");
    mac.update(content);
    mac.finalize().into_bytes().into()
}

fn invalid(message: &str) -> Failure {
    Failure::new(Stage::Signature, Code::SignatureInvalid, "/signature", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OLD: &[u8] = b"the-old-secret";
    const NEW: &[u8] = b"the-new-secret";

    fn canon(message: &Value) -> CanonicalObject {
        CanonicalObject::from_value(message).expect("object")
    }

    fn signed(secret: &[u8]) -> Value {
        let mut message: Value =
            serde_json::from_str(include_str!("../../../tests/vectors/messages/review.json"))
                .expect("JSON");
        message[FIELD] = json!(sign(&canon(&message), secret));
        message
    }

    fn outcome(message: &Value, secrets: &[&[u8]], required: bool) -> Result<(), Failure> {
        verify(&canon(message), message.get(FIELD), secrets, required)
    }

    #[test]
    fn the_tag_is_that_of_a_known_vector() {
        // RFC 4231, test case 2; its data replace a canonical form.
        assert_eq!(
            hex::encode(tag(b"what do ya want for nothing?", b"Jefe")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_signed_message_passes_under_either_secret_of_a_rotation() {
        assert_eq!(outcome(&signed(OLD), &[NEW, OLD], true), Ok(()));
        assert_eq!(outcome(&signed(NEW), &[NEW, OLD], true), Ok(()));
        assert!(outcome(&signed(OLD), &[NEW], true).is_err());
        assert!(outcome(&signed(OLD), &[], false).is_err());
    }

    #[test]
    fn signing_again_ignores_the_signature_that_is_there() {
        let message = signed(NEW);
        assert_eq!(json!(sign(&canon(&message), NEW)), message[FIELD]);
    }

    #[test]
    fn hexadecimal_digits_may_be_upper_case() {
        let mut message = signed(NEW);
        let digits = message[FIELD].as_str().expect("text")[PREFIX.len()..].to_uppercase();
        message[FIELD] = json!(format!("{PREFIX}{digits}"));
        assert_eq!(outcome(&message, &[NEW], true), Ok(()));
    }

    #[test]
    fn a107_a_tampered_field_fails_the_signature() {
        let original = signed(NEW);
        let mut tampered = original.clone();
        tampered["remainingSubtasks"].as_array_mut().expect("array").remove(0);
        let failure = outcome(&tampered, &[NEW], false).expect_err("tampered");
        assert_eq!(failure.code, Code::SignatureInvalid);
        assert_eq!(failure.stage, Stage::Signature);
        assert_eq!(failure.pointer, "/signature");
        for (name, _) in original.as_object().expect("object") {
            let mut changed = original.clone();
            changed[name.as_str()] = json!("changed");
            assert!(outcome(&changed, &[NEW], false).is_err(), "{name}");
        }
    }

    #[test]
    fn a_missing_signature_fails_only_where_one_is_required() {
        let mut message = signed(NEW);
        message.as_object_mut().expect("object").remove(FIELD);
        assert_eq!(outcome(&message, &[NEW], false), Ok(()));
        assert!(outcome(&message, &[NEW], true).is_err());
    }

    #[test]
    fn malformed_signatures_are_invalid_even_where_none_is_required() {
        let mut message = signed(NEW);
        for bad in [
            json!(null),
            json!(7),
            json!(""),
            json!("hmac-sha256:"),
            json!("hmac-sha256:zz"),
            json!("hmac-sha1:00"),
            json!(format!("{PREFIX}{}", "0".repeat(66))),
            json!(["hmac-sha256:00"]),
        ] {
            message[FIELD] = bad;
            assert_eq!(
                outcome(&message, &[NEW], false).map_err(|f| f.code),
                Err(Code::SignatureInvalid)
            );
        }
    }
}
