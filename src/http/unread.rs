//! The bytes that a client still sends when its answer is there already (RFC 9112 §9.6).
//!
//! A connection that is closed with unread bytes in it is reset, and the reset takes the answer with it: a client
//! that writes its whole body first sees a broken pipe, and no 413. So the rest is read and dropped, within a bound
//! of bytes and time, while the answer is on its way.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use futures_util::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

type Shared = Arc<Mutex<Option<BodyDataStream>>>;

/// A request's body, lent to its handler.
pub struct Unread {
    body: Shared,
    /// The client waits for leave to send it.
    expects: bool,
}

/// Bounds of reading a body that no handler reads.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most bytes.
    pub bytes: usize,
    /// Longest time.
    pub time: Duration,
}

struct Lent(Shared);

impl Stream for Lent {
    type Item = Result<Bytes, axum::Error>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stream) = body.as_mut() else { return Poll::Ready(None) };
        let next = ready!(stream.poll_next_unpin(cx));
        if !matches!(next, Some(Ok(_))) {
            *body = None;
        }
        Poll::Ready(next)
    }
}

impl Unread {
    /// Lends a request's body out. None where it has no body, or where HTTP/2 can end its stream alone.
    #[must_use]
    pub fn lend(request: Request) -> (Request, Option<Self>) {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return (request, None);
        }
        let expects = request.headers().contains_key(header::EXPECT);
        let (parts, body) = request.into_parts();
        let body = Arc::new(Mutex::new(Some(body.into_data_stream())));
        let lent = Body::from_stream(Lent(Arc::clone(&body)));
        (Request::from_parts(parts, lent), Some(Self { body, expects }))
    }

    /// Drops the bytes that the client still sends, beside its answer. Called when no layer is left between the answer
    /// and the connection: a read before its first byte is written would give a waiting client leave to send.
    pub fn drain(self, response: &mut Response, bounds: Bounds, stopping: CancellationToken) {
        let rest = self.body.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut rest) = rest.filter(|rest| !rest.is_end_stream()) else { return };
        let late = response.status() == StatusCode::REQUEST_TIMEOUT;
        if self.expects || late {
            // Whether the body still comes is open: what follows on this connection cannot be told from it.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if late {
            return;
        }
        tokio::spawn(async move {
            let dropping = async {
                let mut left = bounds.bytes;
                while let Some(Ok(piece)) = rest.next().await {
                    match left.checked_sub(piece.len()) {
                        Some(fewer) => left = fewer,
                        None => return,
                    }
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(bounds.time, dropping) => {}
                () = stopping.cancelled() => {}
            }
        });
    }
}
