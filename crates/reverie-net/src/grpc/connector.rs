//! Connections to a server. The trait can be replaced: tests have a network of their own.

use super::metered_stream::MeteredStream;
use super::peeked_stream::ALERT;
use super::refusal::refusal;
use crate::own_stream::OwnStream;
use crate::transport::Traffic;
use crate::write_through::write_through;
use reverie_core::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection's byte stream, in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The future that [`Connector::connect`] returns.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Makes connections.
pub trait Connector: Send + Sync {
    /// Connects to `host:port`.
    fn connect(&self, address: &str) -> Connecting;
}

/// Makes connections over the machine's network.
pub struct Tcp;

impl Connector for Tcp {
    fn connect(&self, address: &str) -> Connecting {
        let address = address.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(OwnStream::new(stream)) as Box<dyn Stream>)
        })
    }
}

/// The server's refusal, if TLS reported one: every other connection to this server would end with it too.
pub(super) type TlsRefusal = Arc<OnceLock<Error>>;

/// A stream that counts its bytes, and notes an error that TLS reports instead of them.
pub(super) struct CountedStream<S> {
    stream: MeteredStream<S>,
    address: String,
    tls_refusal: TlsRefusal,
    /// True until something is read.
    untouched: bool,
}

impl<S> CountedStream<S> {
    /// A stream to the server at `address`. An error of TLS is stored in `tls_refusal`.
    pub(super) fn new(stream: S, traffic: &Traffic, address: String, tls_refusal: TlsRefusal) -> Self {
        let stream = MeteredStream::new(stream, Arc::clone(&traffic.bytes));
        Self { stream, address, tls_refusal, untouched: true }
    }

    fn note(&mut self, read: &Poll<io::Result<()>>, bytes: &[u8]) {
        let tls_refusal = match read {
            Poll::Ready(Ok(())) if self.untouched && bytes.first() == Some(&ALERT) => {
                Error::Unauthenticated(format!("{}: the server asks for TLS; pass tls=", self.address))
            }
            Poll::Ready(Err(error)) => match refusal(error, &self.address) {
                refused @ Error::Unauthenticated(_) => refused,
                _ => return,
            },
            _ => return self.untouched &= bytes.is_empty(),
        };
        // The first error counts.
        let _ = self.tls_refusal.set(tls_refusal);
    }
}

impl<S: Stream> AsyncRead for CountedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.untouched || matches!(read, Poll::Ready(Err(_))) {
            self.note(&read, &buffer.filled()[before..]);
        }
        read
    }
}

write_through!([S: Stream] CountedStream<S>, stream);
