//! One connection: its stream and its router. Notes when bytes come and go, so that a client that sends nothing or
//! reads nothing ends in time ([`Place`]), and turns away what the connection may not ask for.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, Version};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use super::arrival::{Arrival, FirstByte};
use super::authority;
use super::layer::{self, Refused};
use super::places::Place;
use super::unsent::{Held, Sending, unsent};

/// How a connection of HTTP/2 begins, before anything that could be HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// Memory of a connection until it has sent a byte: its task.
const SILENT: usize = 4 * 1024;
/// With a buffer to read into, which grows to twice its first size at most ([`READ`]).
const HTTP_1: usize = 20 * 1024;
/// With buffers to read and write, tables of compressed headers, and frames that wait to be written.
const HTTP_2: usize = 64 * 1024;
/// Memory of an HTTP/2 request until its answer is sent: requests of one connection run side by side.
const STREAM: usize = 4 * 1024;

/// The longest head of an HTTP/1 request, in bytes. hyper answers 431 to a longer one.
pub const MAX_HEAD: usize = 64 * 1024;
/// The largest read: hyper doubles a buffer that is filled, and gives nothing back.
const READ: usize = 16 * 1024 - 1;
/// Steps in which an unfinished head is counted.
const STEP: usize = 8 * 1024;

/// The address of the other end of a request's connection: the client's, or that of the proxy before the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Wraps a connection and its router.
pub fn watched<S>(
    stream: S,
    peer: Peer,
    router: Router,
    place: &Arc<Place>,
) -> (Watched<S>, Connected) {
    let first = FirstByte::default();
    place.buffers(SILENT);
    let watched = Watched {
        stream,
        first: first.clone(),
        place: Arc::clone(place),
        preface: Some(0),
        head: 0,
        served: 0,
        held: SILENT,
        blocked: false,
    };
    (watched, Connected { router, peer, first, place: Arc::clone(place) })
}

/// The stream of one connection.
pub struct Watched<S> {
    stream: S,
    first: FirstByte,
    place: Arc<Place>,
    /// How much of [`PREFACE`] was read; `None` once another byte was.
    preface: Option<usize>,
    /// Bytes of an HTTP/1 head that is not whole, and the requests before it.
    head: usize,
    served: u64,
    held: usize,
    blocked: bool,
}

impl<S> Watched<S> {
    fn noted(&mut self, read: &[u8]) {
        if read.is_empty() {
            return;
        }
        self.first.note();
        let buffers = match self.preface {
            Some(PREFACE_READ) => HTTP_2,
            Some(matched) => {
                let rest = &PREFACE[matched..];
                let same = rest.iter().zip(read).take_while(|(a, b)| a == b).count();
                let whole = same == rest.len();
                self.preface = (whole || same == read.len()).then_some(matched + same);
                if whole { HTTP_2 } else { self.of_head(read.len()) }
            }
            None => self.of_head(read.len()),
        };
        // A buffer that grew stays large.
        if buffers > self.held {
            self.held = buffers;
            self.place.buffers(buffers);
        }
    }

    /// Memory that HTTP/1 uses after so many bytes more.
    fn of_head(&mut self, read: usize) -> usize {
        let served = self.place.served();
        if served != self.served || self.place.busy() {
            self.served = served;
            self.head = 0;
        } else {
            self.head += read;
        }
        // A first buffer has room for two steps.
        HTTP_1 + self.head.min(MAX_HEAD).saturating_sub(2 * STEP).next_multiple_of(STEP)
    }

    fn wrote(&mut self, polled: &Poll<io::Result<usize>>) {
        let blocked = polled.is_pending();
        if blocked != self.blocked {
            self.blocked = blocked;
            self.place.blocked(blocked);
        }
    }
}

const PREFACE_READ: usize = PREFACE.len();

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = if buffer.remaining() > READ {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(READ));
            let polled = Pin::new(&mut self.stream).poll_read(context, &mut part);
            let read = part.filled().len();
            buffer.advance(read);
            polled
        } else {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        };
        self.noted(&buffer.filled()[before..]);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(&polled);
        polled
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

/// The router of one connection: each request carries its [`Arrival`] and [`Peer`], and [`Refused`] where it is not served.
#[derive(Clone)]
pub struct Connected {
    router: Router,
    peer: Peer,
    first: FirstByte,
    place: Arc<Place>,
}

impl Connected {
    fn refused<B>(&self, request: &Request<B>) -> Option<Refused> {
        if self.place.kept() {
            return Some(Refused::Connections);
        }
        // Over HTTP/1 the answer before is sent when the next request is read.
        if request.version() >= Version::HTTP_2 && self.place.crowded() {
            return Some(Refused::Unread);
        }
        if let Err(fault) = authority::of(request) {
            return Some(Refused::Host(fault));
        }
        layer::repeated(request.headers()).map(Refused::Repeated)
    }
}

impl<B> Service<Request<B>> for Connected
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
        let side_by_side = request.version() >= Version::HTTP_2;
        let first = self.first.take().filter(|_| !side_by_side);
        let held = Held::begin(&self.place, if side_by_side { STREAM } else { 0 });
        if let Some(refused) = self.refused(&request) {
            request.extensions_mut().insert(refused);
        }
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(first.map_or_else(Arrival::now, Arrival::at));
        let answered = self.router.call(request);
        let first = self.first.clone();
        async move {
            let Ok(response) = answered.await;
            // Bytes of the body were recorded, too; they are no part of the next request.
            first.take();
            Ok(unsent(response, held, Sending::current()))
        }
        .boxed()
    }
}
