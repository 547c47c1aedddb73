//! A connection whose server may send only so much between two writes: the client reads a reply into memory as a whole,
//! whatever size the server states.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Begins the text of the error of a reply over the bound.
pub(super) const TOO_LARGE: &str = "the reply is larger than";

/// A stream that fails once more than `largest` bytes came since the last write.
pub(super) struct Bounded<S> {
    stream: S,
    largest: usize,
    left: usize,
    /// Whether the server has sent anything.
    heard: bool,
}

impl<S> Bounded<S> {
    pub(super) const fn new(stream: S, largest: usize) -> Self {
        Self { stream, largest, left: largest, heard: false }
    }
}

impl<S: AsyncRead + Unpin> Bounded<S> {
    /// Why a first write failed. A TLS 1.3 server tells a client after the handshake that it refuses its certificate,
    /// and closes: the write may find the connection closed before anyone has read the alert.
    fn cause_of(&mut self, error: io::Error, context: &mut Context<'_>) -> io::Error {
        let mut scratch = [0; 64];
        let mut into = ReadBuf::new(&mut scratch);
        if self.heard {
            return error;
        }
        match Pin::new(&mut self.stream).poll_read(context, &mut into) {
            Poll::Ready(Err(cause)) => cause,
            Poll::Ready(Ok(())) | Poll::Pending => error,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        self.heard = true;
        let Some(left) = self.left.checked_sub(into.filled().len() - before) else {
            let why = format!("{TOO_LARGE} {} bytes", self.largest);
            return Poll::Ready(Err(io::Error::other(why)));
        };
        self.left = left;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))
            .map_err(|error| self.cause_of(error, context))?;
        if written > 0 {
            self.left = self.largest;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(flushed.map_err(|error| self.cause_of(error, context)))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Takes no byte; reads of it end as `read` says.
    struct Closed {
        read: Option<&'static str>,
    }

    impl AsyncRead for Closed {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match self.read {
                Some("") => {
                    into.put_slice(b"+OK");
                    Poll::Ready(Ok(()))
                }
                Some(alert) => Poll::Ready(Err(io::Error::other(alert))),
                None => Poll::Pending,
            }
        }
    }

    impl AsyncWrite for Closed {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_first_write_fails_with_what_the_server_said_before_it_closed() {
        let mut alerted = Bounded::new(Closed { read: Some("received fatal alert") }, 9);
        assert_eq!(alerted.write(b"a").await.unwrap_err().to_string(), "received fatal alert");
        assert_eq!(alerted.flush().await.unwrap_err().to_string(), "received fatal alert");
        let mut silent = Bounded::new(Closed { read: None }, 9);
        assert_eq!(silent.write(b"a").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_reply_that_waits_is_left_to_its_reader() {
        let mut stream = Bounded::new(Closed { read: Some("") }, 9);
        assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 3);
        stream.stream.read = Some("received fatal alert");
        assert_eq!(stream.write(b"a").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
