//! A TCP connection of this process, which its forked children close.

use crate::write_through::write_through;
use reverie_core::inherited::ListedDescriptor;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

/// A connection that ends with this process, though a child that it forked lives on.
#[derive(Debug)]
pub(crate) struct OwnStream {
    /// The listed descriptor of the stream. It is declared before the stream, whose descriptor is closed after it.
    _listed: ListedDescriptor,
    stream: TcpStream,
}

impl OwnStream {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { _listed: ListedDescriptor::of(&stream), stream }
    }
}

impl AsyncRead for OwnStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

write_through!([] OwnStream, stream);
