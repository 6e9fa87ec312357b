//! A connection that fails when its peer reads nothing for too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection that fails when its peer reads nothing for too long.
pub(super) struct WriteTimeoutStream<IO> {
    io: IO,
    patience: Duration,
    /// Set while a write waits for the peer.
    over: Option<Pin<Box<Sleep>>>,
}

impl<IO> WriteTimeoutStream<IO> {
    pub(super) fn new(io: IO, patience: Duration) -> Self {
        Self { io, patience, over: None }
    }

    /// The outcome of a write, or an error once writes have waited for too long.
    fn in_time<T>(&mut self, done: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.over = None;
            return done;
        }
        let patience = self.patience;
        let over = self.over.get_or_insert_with(|| Box::pin(sleep(patience)));
        over.as_mut().poll(context).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<IO> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, to)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(context, bytes);
        self.in_time(done, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_flush(context);
        self.in_time(done, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_shutdown(context);
        self.in_time(done, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_ends_the_connection_and_a_slow_one_does_not() {
        let (near, mut far) = duplex(4);
        let mut io = WriteTimeoutStream::new(near, Duration::from_secs(10));
        let slow = tokio::spawn(async move {
            for _ in 0..4 {
                sleep(Duration::from_secs(9)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
            far
        });
        io.write_all(&[0; 16]).await.unwrap();
        let _far = slow.await.unwrap();
        let stalled = io.write_all(&[0; 16]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
    }
}
