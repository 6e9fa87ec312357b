//! A connection whose first byte was read, to detect the peer's protocol.

use crate::write_through::write_through;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The first byte of HTTP/2; a TLS record begins with another byte.
const PREFACE: u8 = b'P';
/// The first byte of a TLS alert, by which a peer ends the handshake.
pub(super) const ALERT: u8 = 21;

/// A stream that returns the byte that was already read again.
pub(super) struct PeekedStream<IO> {
    io: IO,
    first: Option<u8>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> PeekedStream<IO> {
    /// Reads the first byte. An error if the peer closes the connection before.
    pub(super) async fn read(mut io: IO) -> io::Result<Self> {
        let first = Some(io.read_u8().await?);
        Ok(Self { io, first })
    }

    /// True if the peer uses HTTP/2 without TLS.
    pub(super) fn is_http2(&self) -> bool {
        self.first == Some(PREFACE)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for PeekedStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.first.take_if(|_| buffer.remaining() > 0) {
            Some(first) => {
                buffer.put_slice(&[first]);
                Poll::Ready(Ok(()))
            }
            None => Pin::new(&mut self.io).poll_read(context, buffer),
        }
    }
}

write_through!([IO: AsyncWrite + Unpin] PeekedStream<IO>, io);
