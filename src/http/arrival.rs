//! When a request arrived: the time at which its first byte was read. Latency is measured from there, so that a
//! body that comes slowly, the gate and the classifier count.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, Version};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tower_service::Service;

use handoffd_core::domain::ids::Micros;

/// The time at which a request's first byte was read.
#[derive(Debug, Clone, Copy)]
pub struct Arrival(Instant);

impl Arrival {
    /// The arrival of a request whose first byte is read now.
    #[must_use]
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// Converts the arrival to the broker's clock, which shows `now`.
    #[must_use]
    pub fn before(&self, now: Micros) -> Micros {
        let elapsed = i64::try_from(self.0.elapsed().as_micros()).unwrap_or(i64::MAX);
        Micros(now.0.saturating_sub(elapsed))
    }
}

/// The time at which a connection's first byte since its last answer was read.
#[derive(Debug, Clone, Default)]
struct FirstByte(Arc<Mutex<Option<Instant>>>);

impl FirstByte {
    fn note(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    fn take(&self) -> Option<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Wraps a connection and its router: each request carries its [`Arrival`].
pub fn timed<S>(stream: S, router: Router) -> (TimedStream<S>, TimedRouter) {
    let first = FirstByte::default();
    (TimedStream { stream, first: first.clone() }, TimedRouter { router, first })
}

/// A stream that records the time of its first byte.
pub struct TimedStream<S> {
    stream: S,
    first: FirstByte,
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.first.note();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The router of one connection.
#[derive(Clone)]
pub struct TimedRouter {
    router: Router,
    first: FirstByte,
}

impl<B> Service<Request<B>> for TimedRouter
where
    B: axum::body::HttpBody<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request<B>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The requests of an HTTP/2 connection arrive side by side: which bytes were whose is not known here, but
        // a request's head comes in one frame or a few.
        let first = self.first.take().filter(|_| request.version() < Version::HTTP_2);
        request.extensions_mut().insert(first.map_or_else(Arrival::now, Arrival));
        let answered = self.router.call(request);
        let first = self.first.clone();
        async move {
            let response = answered.await;
            // Bytes of the body were recorded, too; they are no part of the next request.
            first.take();
            response
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn f4_1_a_request_arrived_before_its_head_was_whole() {
        let first = FirstByte::default();
        first.note();
        tokio::time::advance(Duration::from_millis(700)).await;
        first.note();
        let arrival = Arrival(first.take().unwrap());
        assert_eq!(arrival.before(Micros(1_000_000)), Micros(300_000));
        assert!(first.take().is_none());
    }
}
