//! A connection from which the server reads only a greeting before it is admitted.
//!
//! Whatever the peer sends, and however it is split into frames, messages and streams, the server holds no more for it.
//! The rest stays with the peer.

use crate::admission::AdmissionGuard;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, Take};

/// The bytes that a pending connection may send: a TLS handshake with a certificate chain, and the headers of its first
/// requests.
const GREETING_BYTES: u64 = 64 << 10;

/// A connection from which the server reads only a greeting before it is admitted.
pub(super) struct BoundedStream<IO> {
    io: Take<IO>,
    /// Set until it is admitted.
    admission: Option<Arc<AdmissionGuard>>,
}

impl<IO: AsyncRead> BoundedStream<IO> {
    pub(super) fn new(io: IO, admission: Arc<AdmissionGuard>) -> Self {
        Self { io: io.take(GREETING_BYTES), admission: Some(admission) }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for BoundedStream<IO> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(admission) = &self.admission {
            if self.io.limit() == 0 {
                ready!(admission.poll_admitted(context));
            }
            if admission.is_admitted() {
                self.admission = None;
                self.io.set_limit(u64::MAX);
            }
        }
        Pin::new(&mut self.io).poll_read(context, to)
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for BoundedStream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(self.io.get_mut()).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.io.get_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.io.get_mut()).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.get_ref().is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.io.get_mut()).poll_write_vectored(context, slices)
    }
}
