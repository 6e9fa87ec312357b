//! Scripted bodies for tests, and messages as they are sent in them.

use crate::proto::ServerMessage;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use prost::Message;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The frames of a body, then trailers or an error.
pub(super) struct FramesBody(VecDeque<Result<Frame<Bytes>, String>>);

impl FramesBody {
    pub(super) fn new(frames: impl IntoIterator<Item = Result<Frame<Bytes>, String>>) -> Self {
        Self(frames.into_iter().collect())
    }
}

impl Body for FramesBody {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        Poll::Ready(self.0.pop_front())
    }
}

pub(super) fn data(bytes: &[u8]) -> Result<Frame<Bytes>, String> {
    Ok(Frame::data(Bytes::copy_from_slice(bytes)))
}

pub(super) fn sent(message: &ServerMessage) -> Vec<u8> {
    framed(&message.encode_to_vec())
}

/// Adds the prefix of an uncompressed message.
pub(super) fn framed(encoded: &[u8]) -> Vec<u8> {
    [&[0][..], &(encoded.len() as u32).to_be_bytes(), encoded].concat()
}
