//! The listener: takes connections within a bound, gives slow clients no more than their time, and
//! ends in order. `axum::serve` sets no time-out on headers, so a client that never ends them would
//! hold its connection for ever.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::arrival::timed;

/// Pause after the operating system refused a connection (too many open files, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait in the operating system's queue to be accepted, which bounds it by a setting of its own
/// (`net.core.somaxconn`). What comes beyond them may be reset, and no client learns why: so the queue is as long as Linux' default allows.
const BACKLOG: u32 = 4096;

/// Bounds of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections at most; more wait in the operating system's queue.
    pub connections: usize,
    /// Time within which a client sends a request's headers, and for which a connection may be idle between requests.
    pub headers: Duration,
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
    closing: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place,
            () = closing.cancelled() => break,
        };
        let Ok(place) = place else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closing.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => connection(stream, router.clone(), limits, &graceful, place),
            Err(err) => {
                tracing::warn!(error = %err, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
}

fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
    graceful: &GracefulShutdown,
    place: OwnedSemaphorePermit,
) {
    // Small answers are sent at once.
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.headers);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.headers)
        .keep_alive_timeout(limits.headers);
    let (stream, router) = timed(stream, router);
    let connection = builder
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .into_owned();
    let serving = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(err) = serving.await {
            tracing::debug!(error = %err, "a connection ended badly");
        }
        drop(place);
    });
}
