//! The server's messages on a stream, as the body of an HTTP/2 response.
//!
//! Small messages are joined; the bytes of batches are sent from where they are in memory, in a block or in chunks.

use super::large::{LARGE, TOGETHER, put_head, put_whole};
use super::queue::{MessageQueue, NextMessage, QueuedMessage};
use crate::pieces::Pieces;
use crate::proto::Part;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::Message;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;

/// The numbers of the fields that are encoded by hand, as in the proto.
const SERVER_MESSAGE_PART: u32 = 5;
const PART_DATA: u32 = 3;

/// The connection's end of the queue: messages to be sent.
pub(super) struct SessionBody {
    queue: Arc<MessageQueue>,
    /// Complete messages, and the head of the message that `data` belongs to.
    together: BytesMut,
    data: Pieces,
    state: BodyState,
}

#[derive(Clone, Copy, PartialEq)]
enum BodyState {
    Open,
    Trailers,
    Ended,
}

impl SessionBody {
    pub(super) fn new(queue: Arc<MessageQueue>) -> Self {
        Self { queue, together: BytesMut::new(), data: Pieces::default(), state: BodyState::Open }
    }

    fn push(&mut self, queued: QueuedMessage) {
        match queued {
            QueuedMessage::Message(message) => put_whole(&message, &mut self.together),
            QueuedMessage::Part { id, offset, data } => {
                put_part(id, offset, data.remaining(), &mut self.together);
                match data.remaining() < LARGE {
                    true => self.together.put(data),
                    false => self.data = data,
                }
            }
        }
    }
}

/// Encodes the message of a part up to its data, which must follow.
fn put_part(id: u64, offset: u64, len: usize, out: &mut BytesMut) {
    let part = Part { id, offset, data: Bytes::new() };
    put_head(&[(&[], SERVER_MESSAGE_PART), (&part.encode_to_vec(), PART_DATA)], len, out);
}

/// The error that resets the stream: the client did not read all of it.
#[derive(Debug, thiserror::Error)]
#[error("the client did not read what was sent to it")]
pub(super) struct UnreadBodyError;

impl Body for SessionBody {
    type Data = Pieces;
    type Error = UnreadBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        while self.state == BodyState::Open && !self.data.has_remaining() && self.together.len() < TOGETHER {
            match self.queue.poll_next(context) {
                Poll::Ready(NextMessage::Message(message)) => self.push(message),
                Poll::Ready(NextMessage::End) => self.state = BodyState::Trailers,
                Poll::Ready(NextMessage::Abandoned) => return Poll::Ready(Some(Err(UnreadBodyError))),
                Poll::Pending if self.together.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !self.together.is_empty() || self.data.has_remaining() {
            let mut pieces = Pieces::from(self.together.split().freeze());
            pieces.append(std::mem::take(&mut self.data));
            return Poll::Ready(Some(Ok(Frame::data(pieces))));
        }
        if std::mem::replace(&mut self.state, BodyState::Ended) == BodyState::Ended {
            return Poll::Ready(None);
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert(Status::GRPC_STATUS, http::HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.state == BodyState::Ended
    }
}

impl Drop for SessionBody {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The body of a response.
pub(super) enum HttpResponseBody {
    /// The response of a call that the generated service answers.
    Routed(tonic::body::Body),
    /// The messages of a session.
    Session(SessionBody),
}

impl Body for HttpResponseBody {
    type Data = Pieces;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.get_mut() {
            Self::Routed(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(Pieces::from)).map_err(Into::into))),
            Self::Session(outgoing) => {
                Pin::new(outgoing).poll_frame(context).map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Routed(body) => body.is_end_stream(),
            Self::Session(outgoing) => outgoing.is_end_stream(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ServerMessage;
    use crate::proto::server_message::Body as ServerBody;

    #[test]
    fn a_part_is_encoded_as_any_message() {
        for (id, offset, len) in [(1, 0, 1), (300, 1 << 40, 1 << 20), (u64::MAX, 0, 8193), (0, 0, 1 << 21)] {
            let part = Part { id, offset, data: vec![7; len].into() };
            let message = ServerMessage { body: Some(ServerBody::Part(part.clone())) };
            let mut out = BytesMut::new();
            put_part(id, offset, len, &mut out);
            out.extend_from_slice(&part.data);
            let mut want = vec![0];
            want.extend((message.encoded_len() as u32).to_be_bytes());
            want.extend(message.encode_to_vec());
            assert!(out == want, "{id} {offset} {len}");
        }
    }
}
