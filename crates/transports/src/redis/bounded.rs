//! A connection whose server may send only so much between two writes: the client reads a reply into memory as a whole,
//! whatever size the server states.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Begins the text of the error of a reply over the bound.
pub(super) const TOO_LARGE: &str = "the reply is larger than";

/// The error of the first read that failed. The client's driver drops it where no command waits for a reply, and ends: the
/// next command then fails with a bare "broken pipe".
#[derive(Debug, Clone, Default)]
pub(super) struct ReadFailure(Arc<OnceLock<(io::ErrorKind, String)>>);

impl ReadFailure {
    pub(super) fn error(&self) -> Option<io::Error> {
        self.0.get().map(|(kind, text)| io::Error::new(*kind, text.clone()))
    }
}

/// A stream that fails once more than `largest` bytes came since the last write.
pub(super) struct Bounded<S> {
    stream: S,
    largest: usize,
    left: usize,
    /// Whether a read has succeeded.
    heard: bool,
    /// Shared with who opens the connection.
    ended: ReadFailure,
    /// Failure of a write whose cause is being read.
    failed: Option<io::Error>,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S, largest: usize) -> Self {
        let ended = ReadFailure::default();
        Self { stream, largest, left: largest, heard: false, ended, failed: None }
    }

    /// How its reads fail, once one does.
    pub(super) fn read_failure(&self) -> ReadFailure {
        self.ended.clone()
    }
}

impl<S: AsyncRead + Unpin> Bounded<S> {
    /// Why a first write failed. A TLS 1.3 server tells a client after the handshake that it refuses its certificate,
    /// and closes: the write may find the connection closed before anyone has read the alert. A read of a closed connection
    /// ends at once, so that the wait for it is short.
    fn poll_cause(&mut self, context: &mut Context<'_>, error: io::Error) -> Poll<io::Error> {
        if self.heard {
            return Poll::Ready(error);
        }
        if let Some(cause) = self.ended.error() {
            return Poll::Ready(cause);
        }
        let mut scratch = [0; 64];
        match Pin::new(&mut self.stream).poll_read(context, &mut ReadBuf::new(&mut scratch)) {
            Poll::Ready(Err(cause)) => Poll::Ready(cause),
            Poll::Ready(Ok(())) => Poll::Ready(error),
            Poll::Pending => {
                self.failed = Some(error);
                Poll::Pending
            }
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
        if let Err(error) = ready!(Pin::new(&mut self.stream).poll_read(context, into)) {
            let _ = self.ended.0.set((error.kind(), error.to_string()));
            return Poll::Ready(Err(error));
        }
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
        let outcome = match self.failed.take() {
            Some(error) => Err(error),
            None => ready!(Pin::new(&mut self.stream).poll_write(context, bytes)),
        };
        let written = match outcome {
            Ok(written) => written,
            Err(error) => return self.poll_cause(context, error).map(Err),
        };
        if written > 0 {
            self.left = self.largest;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = match self.failed.take() {
            Some(error) => Err(error),
            None => ready!(Pin::new(&mut self.stream).poll_flush(context)),
        };
        match outcome {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => self.poll_cause(context, error).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Takes no byte. A read ends as `read` says, once it was asked `pending` times before.
    struct Closed {
        pending: u32,
        read: Result<&'static [u8], &'static str>,
    }

    impl AsyncRead for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.pending > 0 {
                self.pending -= 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.read.map(|bytes| into.put_slice(bytes)).map_err(io::Error::other))
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

    const ALERT: &str = "received fatal alert";

    #[tokio::test]
    async fn a_first_write_fails_with_what_the_server_said_before_it_closed() {
        for pending in [0, 3] {
            let mut alerted = Bounded::new(Closed { pending, read: Err(ALERT) }, 9);
            assert_eq!(alerted.write(b"a").await.unwrap_err().to_string(), ALERT, "{pending}");
            alerted.stream.pending = pending;
            assert_eq!(alerted.flush().await.unwrap_err().to_string(), ALERT, "{pending}");
            let mut silent = Bounded::new(Closed { pending, read: Ok(b"") }, 9);
            assert_eq!(silent.write(b"a").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        }
    }

    #[tokio::test]
    async fn a_first_write_fails_with_what_a_read_before_it_said() {
        let mut alerted = Bounded::new(Closed { pending: 0, read: Err(ALERT) }, 9);
        let failure = alerted.read_failure();
        assert!(failure.error().is_none());
        assert_eq!(alerted.read(&mut [0; 9]).await.unwrap_err().to_string(), ALERT);
        assert_eq!(failure.error().unwrap().to_string(), ALERT);
        alerted.stream.read = Ok(b"");
        assert_eq!(alerted.write(b"a").await.unwrap_err().to_string(), ALERT);
    }

    #[tokio::test]
    async fn a_reply_that_waits_is_left_to_its_reader() {
        let mut stream = Bounded::new(Closed { pending: 0, read: Ok(b"+OK") }, 9);
        assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 3);
        stream.stream.read = Err(ALERT);
        assert_eq!(stream.write(b"a").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
