//! What the server sends on a stream, as the body of an HTTP/2 response: small messages together, and the bytes of
//! batches as they lie in memory, which encoding them would copy once more.

use super::large::{LARGE, TOGETHER, put_head, put_whole};
use super::stream::{Next, Queue};
use crate::proto::server_message::Body as Said;
use crate::proto::{Part, ServerMessage};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;

/// The numbers of fields that are written by hand, as in the proto.
const SERVER_MESSAGE_PART: u32 = 5;
const PART_DATA: u32 = 3;

/// The connection's end of a way: messages that are to be sent.
pub(super) struct Outgoing {
    queue: Arc<Queue>,
    /// Whole messages, and the head of the one that `data` belongs to.
    together: BytesMut,
    data: Bytes,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    Trailers,
    Ended,
}

impl Outgoing {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self { queue, together: BytesMut::new(), data: Bytes::new(), state: State::Open }
    }

    fn push(&mut self, message: ServerMessage) {
        match message.body {
            Some(Said::Part(part)) if part.data.len() >= LARGE => self.data = push_part(part, &mut self.together),
            _ => put_whole(&message, &mut self.together),
        }
    }
}

/// Encodes the message of a part up to its data, which must follow.
fn push_part(mut part: Part, out: &mut BytesMut) -> Bytes {
    let data = std::mem::take(&mut part.data);
    put_head(&[(&[], SERVER_MESSAGE_PART), (&part.encode_to_vec(), PART_DATA)], data.len(), out);
    data
}

/// The stream is reset: its client did not read to the end.
#[derive(Debug, thiserror::Error)]
#[error("the client did not read what was sent to it")]
pub(super) struct Abandoned;

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Abandoned;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        while self.state == State::Open && self.data.is_empty() && self.together.len() < TOGETHER {
            match self.queue.poll_next(context) {
                Poll::Ready(Next::Message(message)) => self.push(message),
                Poll::Ready(Next::End) => self.state = State::Trailers,
                Poll::Ready(Next::Abandoned) => return Poll::Ready(Some(Err(Abandoned))),
                Poll::Pending if self.together.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        let bytes = match self.together.is_empty() {
            false => self.together.split().freeze(),
            true => std::mem::take(&mut self.data),
        };
        if !bytes.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if std::mem::replace(&mut self.state, State::Ended) == State::Ended {
            return Poll::Ready(None);
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert(Status::GRPC_STATUS, http::HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Ended
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_encoded_as_any_message() {
        for (id, offset, len) in [(1, 0, LARGE), (300, 1 << 40, 1 << 20), (u64::MAX, 0, LARGE + 1), (0, 0, 1 << 21)] {
            let part = Part { id, offset, data: vec![7; len].into() };
            let message = ServerMessage { body: Some(Said::Part(part.clone())) };
            let mut out = BytesMut::new();
            let data = push_part(part, &mut out);
            out.extend_from_slice(&data);
            let mut want = vec![0];
            want.extend((message.encoded_len() as u32).to_be_bytes());
            want.extend(message.encode_to_vec());
            assert!(out == want, "{id} {offset} {len}");
        }
    }
}
