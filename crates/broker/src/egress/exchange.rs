//! The end of an exchange over HTTP: an answer with its content codings undone, or the failure of the attempt.

use std::error::Error;
use std::io;

use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

use super::EgressDenied;
use crate::transport::{AttemptFailure, FailureClass};
use handoffd_domain::content_coding::{Coding, Undecoded};

/// Largest number of bytes read of an answer.
pub const ANSWER_MAX_BYTES: usize = 1024 * 1024;

/// The codings of an answer, in the order in which they were applied; `identity` is none.
pub fn codings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONTENT_ENCODING);
    let names = values.iter().flat_map(|value| value.to_str().unwrap_or("?").split(','));
    let names = names.map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !name.is_empty() && name != "identity").collect()
}

/// Undoes an answer's codings. None was asked for, and some servers and proxies apply one all the same.
fn decoded(mut body: Vec<u8>, codings: &[String], status: u16) -> Result<Vec<u8>, AttemptFailure> {
    let failed = |class, detail| AttemptFailure::reached(class, Some(status), detail);
    if body.is_empty() {
        return Ok(body);
    }
    for name in codings.iter().rev() {
        let coding = Coding::parse(name).ok_or_else(|| {
            let why = format!("answered {status} in a Content-Encoding that was not asked for");
            failed(FailureClass::Protocol, why)
        })?;
        body = coding.decode(&body, ANSWER_MAX_BYTES).map_err(|why| match why {
            Undecoded::TooLarge => {
                let why = format!("answered {status} with more than {ANSWER_MAX_BYTES} bytes");
                failed(FailureClass::BodyTooLarge, why)
            }
            Undecoded::Malformed => {
                failed(FailureClass::Protocol, format!("answered {status}, and {why}"))
            }
        })?;
    }
    Ok(body)
}

/// Reads an answer's body, up to [`ANSWER_MAX_BYTES`] before its codings are undone and after.
///
/// # Errors
/// The answer is too large, is in an unknown or malformed coding, or its connection broke.
pub async fn read_body(mut response: Response) -> Result<Vec<u8>, AttemptFailure> {
    let status = response.status().as_u16();
    let codings = codings(response.headers());
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => return decoded(body, &codings, status),
            Ok(Some(chunk)) if body.len() + chunk.len() <= ANSWER_MAX_BYTES => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => {
                return Err(AttemptFailure::reached(
                    FailureClass::BodyTooLarge,
                    Some(status),
                    format!("answered {status} with more than {ANSWER_MAX_BYTES} bytes"),
                ));
            }
            Err(_) => {
                return Err(AttemptFailure::reached(
                    FailureClass::Protocol,
                    Some(status),
                    format!("answered {status}, but the connection broke within its body"),
                ));
            }
        }
    }
}

pub fn denied(why: EgressDenied) -> AttemptFailure {
    AttemptFailure::unreached(FailureClass::Egress, why.to_string())
}

/// Classifies a client error.
///
/// "Connect" errors cover resolution, TCP and the TLS handshake, all of which end before the first byte of the request
/// is written. Any other error may have happened afterwards and counts as `reached`.
pub fn failure_of(error: &reqwest::Error) -> AttemptFailure {
    if let Some(why) = find::<EgressDenied>(error) {
        return denied(*why);
    }
    if error.is_builder() {
        return AttemptFailure::unreached(FailureClass::Request, "the URL cannot be requested");
    }
    if error.is_connect() {
        let (class, detail) = if error.is_dns() {
            let detail = "the receiver's name does not resolve";
            (FailureClass::Dns, detail.to_owned())
        } else if error.is_timeout() {
            let detail = "no connection in time";
            (FailureClass::Timeout, detail.to_owned())
        } else if let Some(tls) = find::<rustls::Error>(error) {
            (FailureClass::Tls, format!("TLS handshake failed: {tls}"))
        } else if let Some(io) = find::<io::Error>(error) {
            (FailureClass::Connect, format!("no connection: {}", io.kind()))
        } else {
            (FailureClass::Connect, "no connection".to_owned())
        };
        return AttemptFailure::unreached(class, detail);
    }
    if error.is_timeout() {
        return AttemptFailure::reached(FailureClass::Timeout, None, "no answer in time");
    }
    AttemptFailure::reached(
        FailureClass::Protocol,
        None,
        "the connection broke, or what came was not HTTP, before an answer was there",
    )
}

/// Finds an error of type `E` among an error and its causes.
///
/// An `io::Error` that wraps another error names that error's source as its own and skips the error itself, so the
/// wrapper is opened explicitly.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
