//! Signatures of Standard Webhooks 1.0.1, symmetric scheme (`v1`).
//!
//! The signed text is `{webhook-id}.{webhook-timestamp}.{body}`, with HMAC-SHA256 under the decoded bytes of the
//! `whsec_` key. The header carries one `v1,<base64>` for each valid key, separated by spaces, so that a receiver can
//! rotate keys without losing a delivery. Source: <https://www.standardwebhooks.com>, specification, "Signature
//! scheme".

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_PAD_INDIFFERENT};
use ring::hmac::{Context, HMAC_SHA256, Key, Tag};
use zeroize::Zeroizing;

/// Header that names the message; the same for every attempt at one delivery.
pub const HEADER_ID: &str = "webhook-id";
/// Header with the time of the attempt in whole Unix seconds.
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";
/// Header with the space-separated signatures.
pub const HEADER_SIGNATURE: &str = "webhook-signature";
/// Largest distance of a timestamp from the checker's clock, as in the reference libraries.
pub const TOLERANCE: Duration = Duration::from_mins(5);

const KEY_PREFIX: &str = "whsec_";
const VERSION_PREFIX: &str = "v1,";
/// Bounds of the key's length in bytes, from the specification.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A symmetric signing key, 24 to 64 bytes. Zeroized on drop; `Debug` never shows the key.
#[derive(Clone)]
pub struct WebhookSecret(Zeroizing<Vec<u8>>);

/// Why an input is not a [`WebhookSecret`]. Carries no part of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text does not start with `whsec_`.
    #[error("a webhook secret starts with `whsec_`")]
    Prefix,
    /// The text after the prefix is not standard base64.
    #[error("a webhook secret is `whsec_` and then standard base64")]
    Base64,
    /// The decoded key is shorter than 24 or longer than 64 bytes.
    #[error("a webhook secret holds 24 to 64 bytes, this one {0}")]
    Length(usize),
}

impl WebhookSecret {
    /// Reads `whsec_<base64>`; padding may be left out.
    ///
    /// # Errors
    /// [`SecretError`]: the text has no such prefix, is not base64, or holds fewer than 24 or more than 64 bytes.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.strip_prefix(KEY_PREFIX).ok_or(SecretError::Prefix)?;
        let bytes = STANDARD_PAD_INDIFFERENT
            .decode(encoded)
            .map(Zeroizing::new)
            .map_err(|_| SecretError::Base64)?;
        Self::from_bytes(&bytes)
    }

    /// A secret from raw key bytes.
    ///
    /// # Errors
    /// [`SecretError::Length`] for fewer than 24 or more than 64 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if KEY_BYTES.contains(&bytes.len()) {
            Ok(Self(Zeroizing::new(bytes.to_vec())))
        } else {
            Err(SecretError::Length(bytes.len()))
        }
    }

    /// The text form `whsec_<base64>`, for the key's owner or for sealed storage.
    pub fn expose(&self) -> Zeroizing<String> {
        let mut text =
            Zeroizing::new(String::with_capacity(KEY_PREFIX.len() + self.0.len().div_ceil(3) * 4));
        text.push_str(KEY_PREFIX);
        STANDARD.encode_string(self.0.as_slice(), &mut text);
        text
    }

    fn key(&self) -> Key {
        Key::new(HMAC_SHA256, &self.0)
    }

    fn tag(&self, signed: [&[u8]; 5]) -> Tag {
        let mut mac = Context::with_key(&self.key());
        for part in signed {
            mac.update(part);
        }
        mac.sign()
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(redacted)")
    }
}

/// The parts of the signed text.
const fn signed<'a>(id: &'a str, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body]
}

/// The value of `webhook-signature`: one `v1,<base64>` for each secret, in the given order.
///
/// `timestamp_s` is in whole Unix seconds and must equal the sent `webhook-timestamp`. Without secrets the result is
/// empty; callers treat that as "cannot be sent".
pub fn signature(secrets: &[WebhookSecret], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let timestamp = timestamp_s.to_string();
    let mut header = String::new();
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        header.push_str(VERSION_PREFIX);
        let tag = secret.tag(signed(id, &timestamp, body));
        STANDARD.encode_string(tag, &mut header);
    }
    header
}

/// Why a signed request is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// `webhook-timestamp` is not a whole number of seconds.
    #[error("webhook-timestamp is not a whole number of seconds")]
    Timestamp,
    /// The timestamp lies too far in the past: a possible replay.
    #[error("webhook-timestamp is too old")]
    TooOld,
    /// The timestamp lies too far in the future.
    #[error("webhook-timestamp lies in the future")]
    TooNew,
    /// No `v1` signature matches a secret.
    #[error("no signature matches")]
    Mismatch,
}

/// Checks a received request: some `v1` signature must match some secret, compared in constant time.
///
/// `timestamp` and `signatures` are the header values as received, `now_s` the checker's clock in Unix seconds.
/// Entries of other versions (`v1a`) and malformed ones are skipped.
///
/// # Errors
/// [`VerifyError`]: the timestamp is not a number or is further from `now_s` than `tolerance`, or no signature matches.
pub fn verify(
    secrets: &[WebhookSecret],
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
    now_s: i64,
    tolerance: Duration,
) -> Result<(), VerifyError> {
    let sent_s: i64 = timestamp.parse().map_err(|_| VerifyError::Timestamp)?;
    let tolerance_s = i64::try_from(tolerance.as_secs()).unwrap_or(i64::MAX);
    if now_s.saturating_sub(sent_s) > tolerance_s {
        return Err(VerifyError::TooOld);
    }
    if sent_s.saturating_sub(now_s) > tolerance_s {
        return Err(VerifyError::TooNew);
    }
    let signed = signed(id, timestamp, body).concat();
    let fits = signatures
        .split_ascii_whitespace()
        .filter_map(|entry| entry.strip_prefix(VERSION_PREFIX))
        .filter_map(|encoded| STANDARD_PAD_INDIFFERENT.decode(encoded).ok())
        .any(|tag| {
            secrets.iter().any(|secret| ring::hmac::verify(&secret.key(), &signed, &tag).is_ok())
        });
    if fits { Ok(()) } else { Err(VerifyError::Mismatch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const EXPECTED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn secret(text: &str) -> WebhookSecret {
        WebhookSecret::parse(text).expect("a secret")
    }

    fn check(signatures: &str, body: &[u8], now_s: i64) -> Result<(), VerifyError> {
        let secrets = [secret(SECRET)];
        verify(&secrets, ID, &AT.to_string(), signatures, body, now_s, TOLERANCE)
    }

    #[test]
    fn signs_the_published_vector() {
        assert_eq!(signature(&[secret(SECRET)], ID, AT, BODY), EXPECTED);
        assert_eq!(check(EXPECTED, BODY, AT), Ok(()));
    }

    #[test]
    fn two_secrets_give_two_signatures_and_either_receiver_is_content() {
        let other = WebhookSecret::from_bytes(&[7; 32]).expect("a secret");
        let both = signature(&[secret(SECRET), other.clone()], ID, AT, BODY);
        assert_eq!(both.split(' ').count(), 2);
        assert!(both.starts_with(EXPECTED));
        assert_eq!(check(&both, BODY, AT), Ok(()));
        let at = AT.to_string();
        assert_eq!(verify(&[other], ID, &at, &both, BODY, AT, TOLERANCE), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let rows: [(&str, &[u8], i64, VerifyError); 7] = [
            ("", BODY, AT, VerifyError::Mismatch),
            ("v1,", BODY, AT, VerifyError::Mismatch),
            (&EXPECTED[3..], BODY, AT, VerifyError::Mismatch),
            (&EXPECTED.replace("v1,", "v1a,"), BODY, AT, VerifyError::Mismatch),
            (EXPECTED, b"{}", AT, VerifyError::Mismatch),
            (EXPECTED, BODY, AT + 301, VerifyError::TooOld),
            (EXPECTED, BODY, AT - 301, VerifyError::TooNew),
        ];
        for (signatures, body, now_s, error) in rows {
            assert_eq!(check(signatures, body, now_s), Err(error), "{signatures} at {now_s}");
        }
        assert_eq!(check(EXPECTED, BODY, AT + 300), Ok(()));
        assert_eq!(
            verify(&[secret(SECRET)], ID, "soon", EXPECTED, BODY, AT, TOLERANCE),
            Err(VerifyError::Timestamp)
        );
    }

    #[test]
    fn secrets_are_read_strictly_and_never_shown() {
        assert_eq!(WebhookSecret::parse("MfKQ").err(), Some(SecretError::Prefix));
        assert_eq!(WebhookSecret::parse("whsec_%%").err(), Some(SecretError::Base64));
        assert_eq!(WebhookSecret::parse("whsec_AAAA").err(), Some(SecretError::Length(3)));
        let parsed = secret(SECRET);
        assert_eq!(parsed.expose().as_str(), SECRET);
        assert_eq!(format!("{parsed:?}"), "WebhookSecret(redacted)");
    }

    proptest! {
        #[test]
        fn agrees_with_the_official_library(
            key in proptest::collection::vec(any::<u8>(), 24..=64),
            id in "[A-Za-z0-9_-]{1,40}",
            at in 0_i64..4_102_444_800,
            body in ".{0,300}",
        ) {
            let ours = WebhookSecret::from_bytes(&key).expect("a secret");
            let oracle = standardwebhooks::Webhook::new(&ours.expose()).expect("oracle");
            let header = signature(std::slice::from_ref(&ours), &id, at, body.as_bytes());
            prop_assert_eq!(&header, &oracle.sign(&id, at, body.as_bytes()).expect("signed"));
            let at_text = at.to_string();
            prop_assert_eq!(
                verify(&[ours], &id, &at_text, &header, body.as_bytes(), at, TOLERANCE),
                Ok(())
            );
        }
    }
}
