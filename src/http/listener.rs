//! The listener: takes connections within bounds, gives slow clients no more than their time, and ends in order.
//! `axum::serve` sets no time-out on headers, and hyper's begins with the first byte that is not HTTP/2, so a client
//! that sends nothing would hold its connection for ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connection::{MAX_HEAD, Peer, watched};
use super::places::{Bounds, Ended, Place, Places, Task};
use super::unsent::Streams;
use handoffd_broker::metrics::Metrics;

/// Pause after the operating system refused a connection (too many open files, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait in the operating system's queue to be accepted, which bounds it by a setting of its own
/// (`net.core.somaxconn`). The system may reset any further connection, and no client learns why: so the queue is as long as
/// Linux' default allows.
const BACKLOG: u32 = 4096;

/// Requests of one HTTP/2 connection that run side by side (RFC 9113 §6.5.2 advises against fewer).
const STREAMS: u32 = 100;
/// Bytes of a body that a client may send before any of it is read, on one HTTP/2 connection.
const WINDOW: u32 = 128 * 1024;
/// Bytes of an answer that a stream of HTTP/2 takes before they go out.
const SEND_BUFFER: usize = 64 * 1024;
/// The longest head of an HTTP/2 request, in bytes.
const HEAD_HTTP_2: u32 = 32 * 1024;

/// How often the log says that connections are not taken.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Bounds of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections, and what they hold in memory.
    pub places: Bounds,
    /// Time from its beginning within which a connection sends its first request's headers, within which it sends each later
    /// one's, and for which it may be idle between requests.
    pub headers: Duration,
    /// Time within which a client takes something of an answer that waits for it.
    pub writes: Duration,
}

/// Binds an address.
///
/// # Errors
/// When it cannot be listened on.
pub fn bind(at: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A broker that starts again takes its port while connections of the one before fade.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until `closing`, then lets requests under way end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
    closing: CancellationToken,
) {
    let listening = Listening {
        graceful: GracefulShutdown::new(),
        places: Places::new(limits.places),
        builder: builder(limits, &metrics),
        router,
        limits,
        metrics,
    };
    let mut said: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closing.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, address)) => (stream, Peer(address.ip())),
            // The client went away while it waited: the next may be there.
            Err(err) if is_of_one_connection(&err) => continue,
            Err(err) => {
                if said.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                    said = Some(Instant::now());
                    let open = listening.places.open();
                    tracing::warn!(error = %err, open, "a connection could not be taken");
                }
                // The descriptor of a connection without a request serves a new one.
                if !listening.places.give_way().await {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        // Dropped if there is no place: its client sees the end of the connection.
        if let Some((place, ended)) = listening.places.take().await {
            listening.serve(stream, place, ended);
        } else {
            listening.metrics.http_ended.with_label_values(&[Ended::Room.as_str()]).inc();
        }
    }
    drop(listener);
    listening.graceful.shutdown().await;
}

fn is_of_one_connection(err: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(err.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

fn builder(limits: Limits, metrics: &Arc<Metrics>) -> Builder<Streams> {
    let streams = Streams { writes: limits.writes, metrics: Arc::clone(metrics) };
    let mut builder = Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.headers)
        .keep_alive_timeout(limits.headers)
        .max_concurrent_streams(STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEAD_HTTP_2);
    builder
}

struct Listening {
    graceful: GracefulShutdown,
    places: Arc<Places>,
    builder: Builder<Streams>,
    router: Router,
    limits: Limits,
    metrics: Arc<Metrics>,
}

impl Listening {
    fn serve(
        &self,
        (stream, peer): (TcpStream, Peer),
        place: Arc<Place>,
        ended: oneshot::Receiver<Ended>,
    ) {
        // Small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let (stream, router) = watched(stream, peer, self.router.clone(), &place);
        let connection =
            self.builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
        let serving = self.graceful.watch(connection.into_owned());
        let (limits, metrics) = (self.limits, Arc::clone(&self.metrics));
        metrics.http_connections.inc();
        tokio::spawn(async move {
            let task = Task(place);
            let why = tokio::select! {
                served = serving => {
                    if let Err(err) = served {
                        tracing::debug!(error = %err, "a connection ended badly");
                    }
                    None
                }
                Ok(why) = ended => Some(why),
                why = task.0.overdue(limits.headers, limits.writes) => Some(why),
            };
            if let Some(why) = why {
                metrics.http_ended.with_label_values(&[why.as_str()]).inc();
                tracing::debug!(why = why.as_str(), "a connection was ended");
            }
            metrics.http_connections.dec();
            drop(task);
        });
    }
}
