//! Messages over a Unix socket: each follows its length (4 bytes, little-endian); descriptors are sent with them.
//!
//! Descriptors arrive in the order of their messages, with or before their message's bytes.

use crate::head::{self, IncomingMessage};
use crate::mapping::watch;
use crate::proto::MAX_MESSAGE_BYTES;
use bytes::{Buf, BytesMut};
use prost::Message;
use reverie_core::inherited::ListedDescriptor;
use reverie_core::{Error, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// Bytes of the length before each message.
const PREFIX: usize = 4;
/// Bytes received at once; messages inside are decoded in place.
const BUFFER_BYTES: usize = 32 << 10;
/// Descriptors in one system call.
const DESCRIPTORS: usize = 8;
/// Descriptors that may arrive ahead of their messages.
const DESCRIPTORS_AHEAD: usize = 64;
/// Memory of a long message is allocated as its bytes arrive; this is the first allocation.
const LONG_AT_FIRST: usize = 256 << 10;

/// The two directions of a connection, for separate tasks. Needs a tokio runtime.
pub(crate) fn split(stream: UnixStream, descriptors: DescriptorPolicy) -> io::Result<(SocketReader, Writer)> {
    stream.set_nonblocking(true)?;
    let stream = watch(stream)?;
    let listed = Arc::new(ListedDescriptor::of(&stream));
    let stream = Arc::new(stream);
    let reader = SocketReader {
        _listed: Arc::clone(&listed),
        stream: Arc::clone(&stream),
        buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        ready: 0..0,
        long: None,
        descriptors: VecDeque::new(),
        allowed: descriptors,
        longest: MAX_MESSAGE_BYTES,
        received: 0,
    };
    Ok((
        reader,
        Writer { _listed: listed, stream, out: BytesMut::new(), descriptors: VecDeque::new(), queued: 0, sent: 0 },
    ))
}

/// The policy for descriptors: whether the peer may send them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorPolicy {
    /// Allowed with messages that name one.
    Accept,
    /// Each one is a protocol violation.
    Refused,
}

/// The receiving direction.
#[derive(Debug)]
pub(crate) struct SocketReader {
    /// The listed descriptor of the stream. It is declared before the stream, whose descriptor is closed after it.
    _listed: Arc<ListedDescriptor>,
    stream: Arc<AsyncFd<UnixStream>>,
    buffer: Box<[u8]>,
    /// Bytes of the buffer that were received and not decoded yet.
    ready: std::ops::Range<usize>,
    /// A message that does not fit in the buffer, and the number of its missing bytes.
    long: Option<(BytesMut, usize)>,
    descriptors: VecDeque<OwnedFd>,
    allowed: DescriptorPolicy,
    /// Bytes of a message at most.
    longest: usize,
    received: u64,
}

impl SocketReader {
    /// The next message; `None` if the peer closed the connection between two messages.
    /// `Protocol`: a message that is too long or malformed, or a forbidden descriptor. `Unavailable`: the connection
    /// ended inside a message.
    pub(crate) fn poll_next<M: IncomingMessage>(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<M>>> {
        loop {
            if let Some(message) = self.buffered()? {
                return Poll::Ready(Ok(Some(message)));
            }
            if ready!(self.poll_fill(context)).map_err(|error| lost(&error))? {
                continue;
            }
            if self.ready.is_empty() && self.long.is_none() {
                return Poll::Ready(Ok(None));
            }
            return Poll::Ready(Err(Error::Unavailable("the connection ended within a message".to_owned())));
        }
    }

    /// [`SocketReader::poll_next`] as a future. Cancel safe.
    pub(crate) async fn next<M: IncomingMessage>(&mut self) -> Result<Option<M>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next message, if it was received completely.
    pub(crate) fn buffered<M: IncomingMessage>(&mut self) -> Result<Option<M>> {
        if self.refused() {
            return Err(Error::Protocol("an unexpected file descriptor".to_owned()));
        }
        if let Some((bytes, lacking)) = &mut self.long {
            let n = (*lacking).min(self.ready.len());
            bytes.extend_from_slice(&self.buffer[self.ready.start..self.ready.start + n]);
            (*lacking, self.ready.start) = (*lacking - n, self.ready.start + n);
            if *lacking > 0 {
                return Ok(None);
            }
            let bytes = self.long.take().map(|(bytes, _)| bytes.freeze()).unwrap_or_default();
            return decode(bytes).map(Some);
        }
        let Some(prefix) = self.buffer[self.ready.clone()].first_chunk::<PREFIX>() else { return Ok(None) };
        let len = u32::from_le_bytes(*prefix) as usize;
        if len > self.longest {
            return Err(Error::Protocol(format!("a message of {len} bytes; {} are allowed", self.longest)));
        }
        let body = self.ready.start + PREFIX;
        if PREFIX + len > self.buffer.len() {
            self.ready.start = body;
            self.long = Some((BytesMut::with_capacity(len.min(LONG_AT_FIRST)), len));
            return self.buffered();
        }
        if self.ready.end - body < len {
            return Ok(None);
        }
        self.ready.start = body + len;
        decode(&self.buffer[body..body + len]).map(Some)
    }

    /// The descriptor of the last message. `Protocol` if none came with it.
    pub(crate) fn descriptor(&mut self) -> Result<OwnedFd> {
        let missing = || Error::Protocol("a slot arrived without its file descriptor".to_owned());
        self.descriptors.pop_front().ok_or_else(missing)
    }

    /// Received bytes of an incomplete long message.
    pub(crate) fn unfinished_bytes(&self) -> u64 {
        self.long.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64)
    }

    /// Sets the largest size of messages from now on.
    pub(crate) fn set_longest(&mut self, bytes: usize) {
        self.longest = bytes;
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    fn refused(&self) -> bool {
        self.descriptors.len() > DESCRIPTORS_AHEAD
    }

    /// Receives what is available, at least one byte; false at the end of the connection.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.ready.is_empty() {
            self.ready = 0..0;
        } else if self.ready.end == self.buffer.len() {
            self.buffer.copy_within(self.ready.clone(), 0);
            self.ready = 0..self.ready.len();
        }
        loop {
            let mut guard = ready!(self.stream.poll_read_ready(context))?;
            let room = &mut self.buffer[self.ready.end..];
            let (asked, before) = (room.len(), self.descriptors.len());
            match receive(self.stream.get_ref().as_fd(), room, &mut self.descriptors, self.allowed) {
                Ok(n) => {
                    // Fewer bytes than there was room for: the socket is empty, unless a descriptor stopped the read.
                    if n < asked && n > 0 && self.descriptors.len() == before {
                        guard.clear_ready();
                    }
                    self.ready.end += n;
                    self.received += n as u64;
                    return Poll::Ready(Ok(n > 0));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// One system call. Refused descriptors are closed.
fn receive(
    stream: BorrowedFd<'_>,
    room: &mut [u8],
    descriptors: &mut VecDeque<OwnedFd>,
    allowed: DescriptorPolicy,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let space = if allowed == DescriptorPolicy::Accept { &mut space[..] } else { &mut [][..] };
    let mut control = RecvAncillaryBuffer::new(space);
    let message = recvmsg(stream, &mut [IoSliceMut::new(room)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            descriptors.extend(fds);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message has too many file descriptors"));
    }
    Ok(message.bytes)
}

/// The sending direction. Messages are queued and sent together.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The listed descriptor of the stream. It is declared before the stream, whose descriptor is closed after it.
    _listed: Arc<ListedDescriptor>,
    stream: Arc<AsyncFd<UnixStream>>,
    out: BytesMut,
    /// Descriptors, each with the position in the stream at or before which it must be sent.
    descriptors: VecDeque<(u64, OwnedFd)>,
    /// Bytes queued since the connection was made.
    queued: u64,
    sent: u64,
}

impl Writer {
    /// Queues a message with its descriptor.
    /// `Protocol` if the message is too long; nothing is queued then.
    pub(crate) fn queue<M: Message>(&mut self, message: &M, descriptor: Option<OwnedFd>) -> Result<()> {
        let len = message.encoded_len();
        let prefix = u32::try_from(len).ok().filter(|_| len <= MAX_MESSAGE_BYTES);
        let Some(prefix) = prefix else {
            return Err(Error::Protocol(format!("a message of {len} bytes; {MAX_MESSAGE_BYTES} are allowed")));
        };
        self.out.reserve(PREFIX + len);
        self.out.extend_from_slice(&prefix.to_le_bytes());
        message.encode_raw(&mut self.out);
        self.descriptors.extend(descriptor.map(|fd| (self.queued, fd)));
        self.queued += (PREFIX + len) as u64;
        Ok(())
    }

    /// Bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Bytes sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends everything queued; pending while the peer does not read. `Unavailable` if the connection is lost.
    pub(crate) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.out.is_empty() {
            let mut guard = ready!(self.stream.poll_write_ready(context)).map_err(|error| lost(&error))?;
            match send(self.stream.get_ref().as_fd(), &self.out, self.sent, self.descriptors.make_contiguous()) {
                Ok((bytes, descriptors)) => {
                    self.descriptors.drain(..descriptors);
                    self.out.advance(bytes);
                    self.sent += bytes as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(lost(&error))),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// [`Writer::poll_flush`] as a future. Cancel safe.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        poll_fn(|context| self.poll_flush(context)).await
    }

    /// Ends the connection in both directions; the peer receives what was sent before.
    pub(crate) fn close(&self) {
        // Fails only if the connection is gone already.
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Both);
    }
}

/// One system call; returns the number of bytes and descriptors sent.
fn send(stream: BorrowedFd<'_>, out: &[u8], sent: u64, waiting: &[(u64, OwnedFd)]) -> io::Result<(usize, usize)> {
    let now = &waiting[..waiting.len().min(DESCRIPTORS)];
    // Stop before the message of the first descriptor that does not fit in this call.
    let end = waiting.get(DESCRIPTORS).map_or(out.len(), |(at, _)| out.len().min((at - sent) as usize));
    let fds = now.iter().map(|(_, fd)| fd.as_fd()).collect::<smallvec::SmallVec<[_; DESCRIPTORS]>>();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(&fds));
        debug_assert!(fits, "the space is for so many");
    }
    let bytes = sendmsg(stream, &[IoSlice::new(&out[..end])], &mut control, SendFlags::NOSIGNAL)?;
    Ok((bytes, now.len()))
}

fn lost(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => Error::Protocol(error.to_string()),
        _ => Error::Unavailable(format!("the connection is lost: {error}")),
    }
}

fn decode<M: IncomingMessage>(message: impl Buf) -> Result<M> {
    head::decode(message).map_err(Error::Protocol)
}

#[cfg(test)]
mod tests;
