//! A client's connection that yields to the other tasks of its thread while there is much to read.
//!
//! The bytes read are copied to their place while they are in the processor's cache, and before the next bytes are read
//! into the same memory. Otherwise the connection reads as long as the server sends, each frame into new memory, and
//! touching fresh pages takes longer than the copy.

use super::connector::Stream;
use crate::write_through::write_through;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes that are read before the other tasks run.
/// A batch of small cells is a frame of about this size, and one of large cells several frames of a megabyte.
const TURN: usize = 256 << 10;

/// A client's connection that yields to the other tasks of its thread while there is much to read.
pub(super) struct TurnStream<S> {
    stream: S,
    /// Bytes read in this turn.
    read: usize,
}

impl<S: Stream> TurnStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, read: 0 }
    }
}

impl<S: Stream> AsyncRead for TurnStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read >= TURN {
            self.read = 0;
            // Run after the tasks that the bytes read so far have woken.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, to);
        match read {
            Poll::Ready(_) => self.read += to.filled().len() - before,
            Poll::Pending => self.read = 0,
        }
        read
    }
}

write_through!([S: Stream] TurnStream<S>, stream);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::io::AsyncWriteExt;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn others_have_their_turn_while_there_is_much_to_read_and_no_byte_is_lost() {
        let sent: Vec<u8> = (0..3 * TURN + 5).map(|at| (at % 251) as u8).collect();
        let (mut server, client) = tokio::io::duplex(sent.len());
        server.write_all(&sent).await.unwrap();
        drop(server);
        let (mut turns, woken) = (TurnStream::new(client), Arc::<WakeCounter>::default());
        let (waker, mut got, mut waited) = (Waker::from(Arc::clone(&woken)), Vec::new(), Vec::new());
        loop {
            let mut to = vec![0; TURN / 4];
            let mut to = ReadBuf::new(&mut to);
            match Pin::new(&mut turns).poll_read(&mut Context::from_waker(&waker), &mut to) {
                Poll::Pending => waited.push(got.len()),
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Ready(Ok(())) if to.filled().is_empty() => break,
                Poll::Ready(Ok(())) => got.extend_from_slice(to.filled()),
            }
        }
        assert!(got == sent);
        assert_eq!(waited, [TURN, 2 * TURN, 3 * TURN]);
        assert_eq!(woken.0.load(Ordering::Relaxed), 3, "a task that waits for itself is woken by itself");
    }
}
