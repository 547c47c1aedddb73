//! The network between a broker and Postgres: it passes everything on, hangs up, or says nothing more.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Passing,
    /// Open connections are closed, and new ones are turned away.
    Cut,
    /// Open connections stay open, new ones are let in, and not a byte goes through.
    Stalled,
}

/// A proxy; it lives as long as the case.
pub struct Proxy {
    /// The address for clients instead of the server's.
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
}

impl Proxy {
    /// In front of `server`, a host and a port.
    pub async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, watched) = watch::channel(Mode::Passing);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *watched.borrow() != Mode::Cut {
                    tokio::spawn(serve(client, server.clone(), watched.clone()));
                }
            }
        });
        Self { address, mode }
    }

    /// Closes open connections, and lets no new one in.
    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Keeps everything open and passes nothing on.
    pub fn stall(&self) {
        self.mode.send_replace(Mode::Stalled);
    }

    /// Passes everything on again, also what came while nothing went through.
    pub fn mend(&self) {
        self.mode.send_replace(Mode::Passing);
    }
}

async fn serve(client: TcpStream, server: String, mode: watch::Receiver<Mode>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = mode.clone();
    // Whichever ends first takes the other with it: dropping the halves closes both connections.
    tokio::select! {
        () = pass(from_client, to_server, mode.clone()) => {}
        () = pass(from_server, to_client, mode) => {}
        _ = cut.wait_for(|mode| *mode == Mode::Cut) => {}
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mode: watch::Receiver<Mode>,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        // Through a silent network goes neither a sent byte nor the end of a connection.
        let passing = mode.wait_for(|mode| *mode != Mode::Stalled).await.is_ok();
        if read == 0 || !passing || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
