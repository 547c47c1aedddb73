//! Bodies on transports that carry text.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use bytes::Bytes;

use handoffd_broker::transport::{Attempt, Encoded};
use handoffd_domain::content_coding::Coding;

/// A body as text, and the codings to undo, last first: the value of `Content-Encoding`.
#[derive(Debug, PartialEq, Eq)]
pub struct TextBody<'a> {
    pub text: Cow<'a, str>,
    pub coding: Option<String>,
}

/// Bytes that the headers of an attempt do not exceed.
const HEADERS_MAX: usize = 16 * 1024;

/// Whether a body is small enough for a limit however it is written: in base64, or with each character escaped.
#[must_use]
pub const fn fits_surely(body: usize, limit: usize) -> bool {
    body * 2 + HEADERS_MAX <= limit
}

/// The body of an attempt as text.
#[must_use]
pub fn attempt_text(attempt: &Attempt, carried: fn(char) -> bool) -> TextBody<'_> {
    if attempt.envelope.claim_check.is_some() {
        let text = String::from_utf8_lossy(&attempt.sent_body()).into_owned();
        return TextBody { text: text.into(), coding: None };
    }
    text_body(&attempt.body, attempt.encoded.as_ref(), carried)
}

/// Writes a body as text: its compressed form in base64 where that is the smaller one, else the body itself, in base64
/// if it holds a character that the transport does not carry.
#[must_use]
pub fn text_body<'a>(
    body: &'a [u8],
    encoded: Option<&Encoded>,
    carried: fn(char) -> bool,
) -> TextBody<'a> {
    if let Some(Encoded { coding, bytes }) = encoded
        && bytes.len().div_ceil(3) * 4 < body.len()
    {
        let coding = Some(format!("{}, base64", coding.as_str()));
        return TextBody { text: BASE64.encode(bytes).into(), coding };
    }
    match std::str::from_utf8(body) {
        Ok(text) if text.chars().all(carried) => TextBody { text: text.into(), coding: None },
        _ => TextBody { text: BASE64.encode(body).into(), coding: Some("base64".to_owned()) },
    }
}

/// The bytes of a text after its codings were undone, the last one first.
///
/// # Errors
/// Why they cannot be.
pub fn original(text: &str, codings: Option<&str>, limit: usize) -> Result<Bytes, String> {
    let mut body = text.as_bytes().to_vec();
    for name in codings.into_iter().flat_map(|codings| codings.rsplit(',')).map(str::trim) {
        body = if name.eq_ignore_ascii_case("base64") {
            BASE64.decode(body.trim_ascii()).map_err(|_| "the body is not base64".to_owned())?
        } else {
            let coding =
                Coding::parse(name).ok_or_else(|| format!("{name:?} is not a known coding"))?;
            coding.decode(&body, limit).map_err(|why| why.to_string())?
        };
    }
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn no_question_mark(character: char) -> bool {
        character != '?'
    }

    #[test]
    fn a_text_that_the_transport_carries_stays_as_it_is() {
        let body = text_body("{\"a\":\"é\"}".as_bytes(), None, no_question_mark);
        assert_eq!(body, TextBody { text: "{\"a\":\"é\"}".into(), coding: None });
    }

    #[test]
    fn characters_that_it_does_not_carry_and_bytes_go_in_base64() {
        for body in [&b"what?"[..], b"\xff\xfe"] {
            let TextBody { text, coding } = text_body(body, None, no_question_mark);
            assert_eq!(coding.as_deref(), Some("base64"));
            assert_eq!(BASE64.decode(text.as_ref()).unwrap(), body);
        }
    }

    #[test]
    fn a_compressed_body_is_taken_where_it_is_smaller_as_text() {
        let small = Encoded { coding: Coding::Gzip, bytes: vec![1, 2, 3].into() };
        let TextBody { text, coding } = text_body(b"five!", Some(&small), no_question_mark);
        assert_eq!((text.as_ref(), coding.as_deref()), ("AQID", Some("gzip, base64")));
        let TextBody { text, coding } = text_body(b"four", Some(&small), no_question_mark);
        assert_eq!((text.as_ref(), coding), ("four", None));
    }

    #[test]
    fn codings_are_undone_from_the_last_to_the_first() {
        let body = "a text ".repeat(100);
        for coding in Coding::ALL {
            let bytes = coding.encode(body.as_bytes()).unwrap().into();
            let encoded = Encoded { coding, bytes };
            let sent = text_body(body.as_bytes(), Some(&encoded), no_question_mark);
            let read = |limit| original(&sent.text, sent.coding.as_deref(), limit);
            assert_eq!(read(10_000).as_deref(), Ok(body.as_bytes()));
            assert!(read(100).unwrap_err().contains("too large"));
        }
        assert_eq!(original("plain", None, 9).as_deref(), Ok(&b"plain"[..]));
        assert!(original("x", Some("br"), 9).unwrap_err().contains("br"));
        assert!(original("?", Some("base64"), 9).is_err());
    }
}
