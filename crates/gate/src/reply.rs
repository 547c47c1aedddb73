//! A verdict on a reply channel: a queue carries no key, so each reply proves itself by its own signature (specification
//! §12, docs/transports/README.md).
//!
//! The signature is that of messages: `hmac-sha256:<hex>` over the RFC 8785 form without `signature`, under the
//! receiver's signing secret. A repeated reply changes nothing: the fencing token and the handoff's status decide, and a
//! heartbeat counts from its own timestamp.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::signature;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::ids::{HandoffId, Micros};
use handoffd_domain::lenient::{Lenient, UnreadableParts};

/// How far a reply's clock may be ahead of the broker's.
const AHEAD: Duration = Duration::from_mins(1);

/// The receiver's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyVerdict {
    Accept,
    Reject,
    Heartbeat,
    Complete,
    Fail,
}

impl ReplyVerdict {
    const ALL: [(&str, Self); 5] = [
        ("accept", Self::Accept),
        ("reject", Self::Reject),
        ("heartbeat", Self::Heartbeat),
        ("complete", Self::Complete),
        ("fail", Self::Fail),
    ];
}

/// Why a reply has no effect. The text is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Not a JSON object, or a member is missing or of the wrong type.
    #[error("malformed")]
    Malformed,
    /// No valid secret made the signature.
    #[error("signature")]
    Signature,
    /// The timestamp is too old, or in the future.
    #[error("timestamp")]
    Timestamp,
}

/// The members beside the verdict. One that occurs twice makes the reply malformed: its values could differ.
const OWN_MEMBERS: [&str; 5] =
    ["handoffId", "verdict", "timestamp", "fencingToken", signature::FIELD];

/// The handoff that a reply is about, before anything of it is proven.
#[must_use]
pub fn handoff_of(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Handoff {
        handoff_id: String,
    }
    // Nearly all replies are read at once, without a copy of their other members.
    let strict = serde_json::from_slice::<Handoff>(bytes).map(|one| one.handoff_id);
    strict
        .ok()
        .or_else(|| Lenient::read(bytes)?.members.get("handoffId")?.as_str().map(str::to_owned))
}

/// A reply that was read, but not yet proven.
#[derive(Debug)]
pub struct Reply {
    pub handoff_id: HandoffId,
    pub fencing_token: i64,
    pub verdict: ReplyVerdict,
    pub timestamp: Micros,
    /// The members beside those above, as the body of a callback has them.
    pub said: Map<String, Value>,
    /// The parts that could not be kept in their original form.
    pub unreadable: UnreadableParts,
    canonical: CanonicalObject,
    signature: Value,
}

impl Reply {
    /// Reads a reply.
    ///
    /// # Errors
    /// [`ReplyError::Malformed`].
    pub fn read(bytes: &[u8]) -> Result<Self, ReplyError> {
        let malformed = ReplyError::Malformed;
        let read = Lenient::read(bytes).ok_or(malformed)?;
        if OWN_MEMBERS.iter().any(|name| read.repeats(name)) {
            return Err(malformed);
        }
        let canonical = read.canonical();
        let Lenient { members: mut said, unreadable, .. } = read;
        let mut text = |key: &str| match said.remove(key) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(malformed),
        };
        let handoff_id = text("handoffId")?.parse().map_err(|_| malformed)?;
        let verdict = text("verdict")?;
        let (_, verdict) =
            ReplyVerdict::ALL.into_iter().find(|(word, _)| *word == verdict).ok_or(malformed)?;
        let timestamp = text("timestamp")?;
        let timestamp = OffsetDateTime::parse(&timestamp, &Rfc3339).map_err(|_| malformed)?;
        let timestamp = i64::try_from(timestamp.unix_timestamp_nanos() / 1_000);
        let signature = said.remove(signature::FIELD).ok_or(ReplyError::Signature)?;
        let fencing_token =
            said.remove("fencingToken").and_then(|token| token.as_i64()).ok_or(malformed)?;
        Ok(Self {
            handoff_id,
            fencing_token,
            verdict,
            timestamp: Micros(timestamp.map_err(|_| malformed)?),
            said,
            unreadable,
            canonical,
            signature,
        })
    }

    /// Checks that the receiver made the reply, and when.
    ///
    /// # Errors
    /// [`ReplyError::Signature`] or [`ReplyError::Timestamp`].
    pub fn prove(
        &self,
        secrets: &[&[u8]],
        now: Micros,
        max_age: Duration,
    ) -> Result<(), ReplyError> {
        signature::verify(&self.canonical, Some(&self.signature), secrets, true)
            .map_err(|_| ReplyError::Signature)?;
        let (late, early) = (now.since(self.timestamp), self.timestamp.since(now));
        if late > max_age || early > AHEAD { Err(ReplyError::Timestamp) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SECRET: &[u8] = b"hss_the-receivers-signing-secret";
    const AGE: Duration = Duration::from_hours(1);
    /// 2026-11-24T08:00:00Z.
    const NOW: Micros = Micros(1_795_507_200_000_000);

    fn signed(mut reply: Value) -> Vec<u8> {
        let canonical = CanonicalObject::from_value(&reply).unwrap();
        reply["signature"] = signature::sign(&canonical, SECRET).into();
        serde_json::to_vec(&reply).unwrap()
    }

    fn accept() -> Value {
        json!({
            "handoffId": "0193a6c8-5b1c-7c4e-8f00-0242ac120002",
            "fencingToken": 7,
            "verdict": "accept",
            "timestamp": "2026-11-24T07:59:58Z",
        })
    }

    /// The test vector of docs/transports/README.md.
    #[test]
    fn the_documented_vector_holds() {
        let text = String::from_utf8(signed(accept())).unwrap();
        let page = include_str!("../../../docs/transports/README.md");
        let signature = serde_json::from_str::<Value>(&text).unwrap()["signature"].clone();
        let signature = signature.as_str().unwrap();
        assert!(page.contains(signature), "the page does not show {signature}");
    }

    #[test]
    fn a_signed_reply_counts_and_a_changed_one_does_not() {
        let reply = Reply::read(&signed(accept())).unwrap();
        assert_eq!((reply.verdict, reply.fencing_token), (ReplyVerdict::Accept, 7));
        assert!(reply.said.is_empty());
        assert_eq!(reply.prove(&[b"old", SECRET], NOW, AGE), Ok(()));
        assert_eq!(reply.prove(&[b"other"], NOW, AGE), Err(ReplyError::Signature));
        assert_eq!(reply.prove(&[], NOW, AGE), Err(ReplyError::Signature));
        let mut forged: Value = serde_json::from_slice(&signed(accept())).unwrap();
        forged["verdict"] = json!("complete");
        let forged = Reply::read(&serde_json::to_vec(&forged).unwrap()).unwrap();
        assert_eq!(forged.prove(&[SECRET], NOW, AGE), Err(ReplyError::Signature));
    }

    /// Finding D1 of 0.3.0.
    #[test]
    fn an_unreadable_text_beside_a_signed_verdict_does_not_undo_it() {
        // As JavaScript signs it: half a character as its escape.
        let signed_with = |details: &str| {
            let members = [
                ("details", details),
                ("fencingToken", "7"),
                ("handoffId", r#""0193a6c8-5b1c-7c4e-8f00-0242ac120002""#),
                ("timestamp", r#""2026-11-24T07:59:58Z""#),
                ("verdict", r#""reject""#),
            ];
            let members = members.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
            let canonical = CanonicalObject::of_members(members.into_iter());
            let tag = signature::sign(&canonical, SECRET);
            let text = String::from_utf8(canonical.all()).unwrap();
            text.replacen('{', &format!(r#"{{"signature":"{tag}","#), 1)
        };
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        for (details, kept) in [
            (r#""half \ud83d""#, Some(json!("half \u{fffd}"))),
            ("[NaN]", Some(json!([null]))),
            (&deep, None),
        ] {
            for before in ["", "\u{feff}"] {
                let text = format!("{before}{}", signed_with(details));
                let reply = Reply::read(text.as_bytes()).unwrap();
                assert_eq!(reply.prove(&[SECRET], NOW, AGE), Ok(()), "{details}");
                assert_eq!(reply.prove(&[b"other"], NOW, AGE), Err(ReplyError::Signature));
                assert_eq!(reply.unreadable.count, 1);
                assert_eq!(reply.said.get("details").filter(|_| kept.is_some()), kept.as_ref());
            }
        }
        let twice = signed_with("1").replacen('{', r#"{"verdict":"accept","#, 1);
        assert_eq!(Reply::read(twice.as_bytes()).unwrap_err(), ReplyError::Malformed);
    }

    #[test]
    fn old_replies_and_those_of_the_future_do_not_count() {
        let reply = Reply::read(&signed(accept())).unwrap();
        let at = |seconds: i64| Micros(NOW.0 + seconds * 1_000_000);
        assert_eq!(reply.prove(&[SECRET], at(3_598), AGE), Ok(()));
        assert_eq!(reply.prove(&[SECRET], at(3_599), AGE), Err(ReplyError::Timestamp));
        assert_eq!(reply.prove(&[SECRET], at(-62), AGE), Ok(()));
        assert_eq!(reply.prove(&[SECRET], at(-63), AGE), Err(ReplyError::Timestamp));
    }

    #[test]
    fn what_is_no_reply_is_malformed() {
        for (key, value) in [
            ("handoffId", json!("x")),
            ("verdict", json!("maybe")),
            ("fencingToken", json!("7")),
            ("timestamp", json!(7)),
            ("timestamp", json!("yesterday")),
        ] {
            let mut reply = accept();
            reply[key] = value;
            assert_eq!(Reply::read(&signed(reply)).unwrap_err(), ReplyError::Malformed, "{key}");
        }
        let unsigned = serde_json::to_vec(&accept()).unwrap();
        assert_eq!(Reply::read(&unsigned).unwrap_err(), ReplyError::Signature);
        assert_eq!(Reply::read(b"[1]").unwrap_err(), ReplyError::Malformed);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            if let Ok(reply) = Reply::read(&bytes) {
                prop_assert!(reply.prove(&[SECRET], NOW, AGE).is_err());
            }
        }
    }
}
