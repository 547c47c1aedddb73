//! Answers that wait to be read. A finished body waits in memory until its client takes it: over HTTP/2 a client that
//! opens no window can have a hundred of them. So what waits is counted, goes out in pieces, and ends where nothing of it is taken
//! for the time for writes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::Instant;

use super::coding::Constant;
use super::places::{Ended, Place};
use handoffd_broker::metrics::Metrics;

/// A piece of a body: the most that a stream has beyond its window.
const PIECE: usize = 16 * 1024;

/// Bytes of an answer that are not counted: most answers are smaller.
const SMALL: u64 = 4 * 1024;

/// The count of a body of unknown length, in bytes: a stream of events, an export.
const STREAMED: usize = 64 * 1024;

/// The most that one answer counts, in bytes. A longer one is nothing that a client without a key can ask for.
const MOST: usize = 16 * 1024 * 1024;

/// Bytes that a request holds of its connection's share until the last of its answer is sent.
pub struct Held {
    place: Arc<Place>,
    bytes: usize,
}

impl Held {
    /// Notes a request.
    pub fn begin(place: &Arc<Place>, bytes: usize) -> Self {
        place.begin();
        if bytes > 0 {
            place.hold(bytes);
        }
        Self { place: Arc::clone(place), bytes }
    }

    fn more(&mut self, bytes: usize) {
        if bytes > 0 {
            self.place.hold(bytes);
            self.bytes += bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.place.finish(self.bytes);
    }
}

/// Counts an answer's body until it is sent.
pub fn unsent(response: Response, mut held: Held, sending: Option<Sending>) -> Response {
    let size = response.body().size_hint();
    // A constant document is in memory once, however many clients read it.
    let constant = response.extensions().get::<Constant>().is_some();
    held.more(match size.exact() {
        _ if constant => 0,
        // Counted with its connection.
        Some(bytes) if bytes <= SMALL => 0,
        Some(bytes) => usize::try_from(bytes).unwrap_or(MOST).min(MOST),
        None => STREAMED,
    });
    if size.exact() == Some(0) {
        return response;
    }
    if let Some(sending) = &sending {
        sending.waits();
    }
    response
        .map(|body| Body::new(Unsent { body, rest: Bytes::new(), held: Arc::new(held), sending }))
}

/// A body in pieces. Each keeps the count until it is sent.
struct Unsent {
    body: Body,
    rest: Bytes,
    held: Arc<Held>,
    sending: Option<Sending>,
}

struct Piece {
    bytes: Bytes,
    _held: Arc<Held>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Unsent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.held.place.progress();
        let frame = if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => {
                        self.rest = bytes;
                        None
                    }
                    Err(trailers) => Some(Poll::Ready(Some(Ok(trailers)))),
                },
                other => Some(other),
            }
        } else {
            None
        };
        if let Some(sending) = &self.sending {
            // Without a frame it is the broker that the client waits for.
            match frame {
                Some(Poll::Pending) => sending.made(),
                _ => sending.waits(),
            }
        }
        frame.unwrap_or_else(|| {
            let bytes = if self.rest.len() > PIECE {
                self.rest.split_to(PIECE)
            } else {
                std::mem::take(&mut self.rest)
            };
            let piece = Bytes::from_owner(Piece { bytes, _held: Arc::clone(&self.held) });
            Poll::Ready(Some(Ok(Frame::data(piece))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let mut hint = self.body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
    }
}

tokio::task_local! {
    static SENDING: Sending;
}

/// Since when a stream of HTTP/2 waits for its client, in milliseconds since it began and 1 more; 0 while it does not.
#[derive(Clone)]
pub struct Sending(Arc<(Instant, AtomicU64)>);

impl Sending {
    fn new() -> Self {
        Self(Arc::new((Instant::now(), AtomicU64::new(0))))
    }

    /// That of the stream whose task this is.
    #[must_use]
    pub fn current() -> Option<Self> {
        SENDING.try_with(Clone::clone).ok()
    }

    fn waits(&self) {
        let (began, since) = &*self.0;
        let at = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        since.store(at.saturating_add(1), Ordering::Relaxed);
    }

    fn made(&self) {
        self.0.1.store(0, Ordering::Relaxed);
    }

    /// Returns when the client has taken nothing for so long.
    async fn overdue(self, writes: Duration) {
        let (began, since) = &*self.0;
        loop {
            let now = Instant::now();
            let since = since.load(Ordering::Relaxed);
            let due = match since {
                0 => now + writes,
                since => *began + Duration::from_millis(since - 1) + writes,
            };
            if due <= now {
                return;
            }
            tokio::time::sleep_until(due).await;
        }
    }
}

/// Runs the streams of an HTTP/2 connection, each no longer than its client takes something of it.
#[derive(Clone)]
pub struct Streams {
    pub writes: Duration,
    pub metrics: Arc<Metrics>,
}

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let (sending, Self { writes, metrics }) = (Sending::new(), self.clone());
        let overdue = sending.clone().overdue(writes);
        tokio::spawn(SENDING.scope(sending, async move {
            tokio::select! {
                _ = stream => {}
                // Its end resets the stream; the others of the connection go on.
                () = overdue => metrics.http_ended.with_label_values(&[Ended::Slow.as_str()]).inc(),
            }
        }));
    }
}
