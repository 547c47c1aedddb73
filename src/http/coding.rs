//! Content codings at the door (RFC 9110 §8.4, §12.5.3): what requests come in, and what answers go out in.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use tokio::sync::OnceCell;

use super::problem::{ACCEPTED, Problem};
use handoffd_domain::content_coding::{Coding, Encoder};
use handoffd_domain::failure::Code;

/// Size in bytes below which answers are not compressed: they fit one packet.
const MIN_BYTES: u64 = 1024;
/// Size in bytes above which answers are compressed on a blocking thread.
const INLINE_BYTES: u64 = 64 * 1024;

/// The coding of a request's body; `None` for a plain one.
///
/// # Errors
/// 415 for a coding that the broker does not read, or several on top of each other.
pub fn of_request(headers: &HeaderMap) -> Result<Option<Coding>, Problem> {
    let mut found = None;
    for value in headers.get_all(header::CONTENT_ENCODING) {
        for name in value.to_str().unwrap_or("?").split(',').map(str::trim) {
            if name.is_empty() || name.eq_ignore_ascii_case("identity") {
                continue;
            }
            let coding = Coding::parse(name).filter(|_| found.is_none());
            found = Some(coding.ok_or_else(unknown)?);
        }
    }
    Ok(found)
}

fn unknown() -> Problem {
    let what = format!("a body may have one Content-Encoding of: {ACCEPTED}");
    Problem { accept_encoding: true, ..Problem::new(Code::UnsupportedMediaType, what) }
}

/// The coding that a client prefers for its answer; `None` for a plain one.
#[must_use]
pub fn wanted(headers: &HeaderMap) -> Option<Coding> {
    let mut named: Vec<(String, f32)> = Vec::new();
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for entry in value.to_str().unwrap_or_default().split(',') {
            let (name, parameters) = entry.split_once(';').unwrap_or((entry, ""));
            let weight = match parameters.trim().split_once('=') {
                Some((q, weight)) if q.trim().eq_ignore_ascii_case("q") => weight.trim().parse(),
                _ => Ok(1.0),
            };
            named.push((name.trim().to_ascii_lowercase(), weight.unwrap_or(0.0)));
        }
    }
    let weight = |name: &str| named.iter().find(|(one, _)| one == name).map(|(_, weight)| *weight);
    let plain = weight("identity").unwrap_or(0.0);
    let mut best = None;
    for coding in Coding::ALL {
        let own = weight(coding.as_str()).or_else(|| weight("*")).unwrap_or(0.0);
        if own > 0.0 && own >= plain && best.is_none_or(|(_, most)| own > most) {
            best = Some((coding, own));
        }
    }
    best.map(|(coding, _)| coding)
}

/// Whether an answer is text of some size. A stream of events goes out as it comes, and so does what is compressed
/// in itself.
fn is_compressible(response: &Response) -> bool {
    let headers = response.headers();
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let text = match kind {
        "text/event-stream" => false,
        "application/json"
        | "application/x-ndjson"
        | "application/yaml"
        | "application/javascript"
        | "image/svg+xml" => true,
        other => other.starts_with("text/") || other.ends_with("+json"),
    };
    let partial =
        matches!(response.status(), StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED);
    let large = response.body().size_hint().exact().is_none_or(|size| size >= MIN_BYTES);
    text && large && !partial && !headers.contains_key(header::CONTENT_ENCODING)
}

/// A document that never changes: it is in memory once, and is compressed once in each coding.
#[derive(Debug, Clone, Copy)]
pub struct Constant(&'static str);

type Coded = Arc<OnceCell<Option<Bytes>>>;

/// The constant documents in each coding; `None` if they cannot be coded.
static CODED: LazyLock<Mutex<HashMap<(usize, &'static str), Coded>>> =
    LazyLock::new(Mutex::default);

impl Constant {
    #[must_use]
    pub const fn of(text: &'static str) -> Self {
        Self(text)
    }

    /// The document as an answer of this type.
    #[must_use]
    pub fn answer(self, kind: &'static str) -> Response {
        let mut response = ([(header::CONTENT_TYPE, kind)], self.0).into_response();
        response.extensions_mut().insert(self);
        response
    }

    async fn coded(self, coding: Coding) -> Option<Bytes> {
        let place = (self.0.as_ptr().addr(), coding.as_str());
        let made = {
            let mut coded = CODED.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(coded.entry(place).or_default())
        };
        let make = async || {
            let bytes = Bytes::from_static(self.0.as_bytes());
            whole(coding, bytes, self.0.len() as u64).await.map(Bytes::from)
        };
        made.get_or_init(make).await.clone()
    }
}

/// An answer in the coding that its client prefers, where that is worth it.
pub async fn coded(response: Response, wanted: Option<Coding>) -> Response {
    if !is_compressible(&response) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    let Some(coding) = wanted else { return Response::from_parts(parts, body) };
    let constant = parts.extensions.get::<Constant>().copied();
    let coded = match (constant, body.size_hint().exact()) {
        (Some(constant), _) => match constant.coded(coding).await {
            Some(coded) => Body::from(coded),
            None => return Response::from_parts(parts, body),
        },
        (None, Some(size)) => {
            let Ok(bytes) = axum::body::to_bytes(body, usize::MAX).await else {
                return Response::from_parts(parts, Body::empty());
            };
            match whole(coding, bytes.clone(), size).await {
                Some(coded) => Body::from(coded),
                None => return Response::from_parts(parts, Body::from(bytes)),
            }
        }
        (None, None) => match Encoder::new(coding) {
            Ok(encoder) => Body::from_stream(pieces(body.into_data_stream(), encoder)),
            Err(_) => return Response::from_parts(parts, body),
        },
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.as_str()));
    Response::from_parts(parts, coded)
}

async fn whole(coding: Coding, bytes: Bytes, size: u64) -> Option<Vec<u8>> {
    if size <= INLINE_BYTES {
        return coding.encode(&bytes).ok();
    }
    tokio::task::spawn_blocking(move || coding.encode(&bytes)).await.ok()?.ok()
}

/// A coded body whose plain one is still being made. A fault within it ends it without an end, as it would the
/// plain one.
fn pieces(plain: BodyDataStream, encoder: Encoder) -> impl Stream<Item = io::Result<Bytes>> + Send {
    futures_util::stream::unfold((plain, Some(encoder)), |(mut plain, encoder)| async move {
        let mut encoder = encoder?;
        loop {
            let piece = match plain.next().await {
                None => return Some((encoder.finish().map(Bytes::from), (plain, None))),
                Some(Ok(piece)) => encoder.write(&piece),
                Some(Err(err)) => Err(io::Error::other(err)),
            };
            match piece {
                Ok(coded) if coded.is_empty() => {}
                Ok(coded) => return Some((Ok(coded.into()), (plain, Some(encoder)))),
                Err(err) => return Some((Err(err), (plain, None))),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &header::HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn f5_2_the_coding_that_a_client_prefers() {
        for (accept, coding) in [
            (&["gzip"][..], Some(Coding::Gzip)),
            (&["gzip, deflate, br, zstd"], Some(Coding::Zstd)),
            (&["gzip;q=1.0, zstd;q=0.5"], Some(Coding::Gzip)),
            (&["deflate", "GZIP ; q=0.3"], Some(Coding::Gzip)),
            (&["*"], Some(Coding::Zstd)),
            (&["*;q=0.5, zstd;q=0"], Some(Coding::Gzip)),
            (&["identity, gzip;q=0.5"], None),
            (&["identity;q=0.5, gzip"], Some(Coding::Gzip)),
            (&["gzip;q=0"], None),
            (&["br"], None),
            (&["gzip;q=often"], None),
            (&[], None),
        ] {
            assert_eq!(wanted(&headers(&header::ACCEPT_ENCODING, accept)), coding, "{accept:?}");
        }
    }

    #[test]
    fn f5_2_a_request_has_one_coding_or_none() {
        let of = |values: &[&'static str]| of_request(&headers(&header::CONTENT_ENCODING, values));
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&["identity"]).unwrap(), None);
        assert_eq!(of(&["X-Gzip"]).unwrap(), Some(Coding::Gzip));
        for values in [&["br"][..], &["gzip, gzip"], &["gzip", "zstd"], &["deflate"]] {
            let problem = of(values).unwrap_err();
            assert_eq!(problem.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
            assert!(problem.accept_encoding);
        }
    }
}
