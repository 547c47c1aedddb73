//! A line to a server that loses the answers of its first connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub struct CutLine {
    pub port: u16,
    answered: Arc<AtomicBool>,
    serving: JoinHandle<()>,
}

impl CutLine {
    /// A line to a local port; the server gets what the first `cut` connections send, and its answers are lost.
    pub async fn to(server: u16, cut: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answered = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&answered);
        let serving = tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let told = Arc::clone(&told);
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
                        return;
                    };
                    if number < cut {
                        lose_answer(client, server).await;
                    } else {
                        told.store(true, Ordering::SeqCst);
                        let (mut client, mut server) = (client, server);
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Self { port, answered, serving }
    }

    /// Whether a connection came whose answer gets through.
    pub fn answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }
}

impl Drop for CutLine {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Passes a request on, waits for the first bytes of its answer, and closes the connection without them.
async fn lose_answer(client: TcpStream, server: TcpStream) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let sending = tokio::spawn(async move {
        let _ = copy(&mut from_client, &mut to_server).await;
    });
    let mut first = [0; 1];
    let _ = from_server.read(&mut first).await;
    sending.abort();
    let _ = to_client.shutdown().await;
}
