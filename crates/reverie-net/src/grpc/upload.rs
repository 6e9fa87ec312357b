//! The client's messages on a stream, as the body of an HTTP/2 request.
//!
//! Small messages are joined; the bulk bytes of inserts are sent from where they are in memory.

use super::large::{LARGE, TOGETHER, put_head, put_whole};
use crate::proto::client_message::Body as ClientBody;
use crate::proto::{Bulk, ClientMessage, bulk::Place};
use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame};
use prost::Message;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The numbers of the fields that are encoded by hand, as in the proto.
const CLIENT_MESSAGE_INSERT: u32 = 4;
const INSERT_BULK: u32 = 9;
const BULK_INLINE: u32 = 1;

/// The messages of a queue; the body ends when all senders are dropped.
pub(super) struct Upload {
    queue: mpsc::Receiver<ClientMessage>,
    /// Complete messages, and the head of the message that `data` belongs to.
    together: BytesMut,
    data: Bytes,
}

impl Upload {
    pub(super) fn new(queue: mpsc::Receiver<ClientMessage>) -> Self {
        Self { queue, together: BytesMut::new(), data: Bytes::new() }
    }

    fn push(&mut self, mut message: ClientMessage) {
        match large(&mut message) {
            Some((insert, data)) => {
                let levels =
                    [(&message.encode_to_vec()[..], CLIENT_MESSAGE_INSERT), (&insert, INSERT_BULK), (&[], BULK_INLINE)];
                put_head(&levels, data.len(), &mut self.together);
                self.data = data;
            }
            None => put_whole(&message, &mut self.together),
        }
    }
}

/// Takes an insert with large bulk bytes out of the message; returns its other fields, encoded, and those bytes.
fn large(message: &mut ClientMessage) -> Option<(Vec<u8>, Bytes)> {
    let Some(ClientBody::Insert(insert)) = &mut message.body else { return None };
    match insert.bulk.take() {
        Some(Bulk { place: Some(Place::Inline(data)) }) if data.len() >= LARGE => {
            let insert = insert.encode_to_vec();
            message.body = None;
            Some((insert, data))
        }
        small => {
            insert.bulk = small;
            None
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while self.data.is_empty() && self.together.len() < TOGETHER {
            match self.queue.poll_recv(context) {
                Poll::Ready(Some(message)) => self.push(message),
                Poll::Pending if self.together.is_empty() => return Poll::Pending,
                Poll::Pending | Poll::Ready(None) => break,
            }
        }
        let bytes = match self.together.is_empty() {
            false => self.together.split().freeze(),
            true => std::mem::take(&mut self.data),
        };
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::numbers::encode;
    use crate::proto::{Insert, Received};

    #[test]
    fn an_insert_with_large_bytes_is_encoded_as_any_message() {
        for (first_id, below, len) in [(1, 0, LARGE), (300, 7, 1 << 20), (u64::MAX, u64::MAX, (1 << 21) + 1)] {
            let received = (below > 0).then(|| Received { below, ids: encode(&[1, below]), ..Default::default() });
            let bulk = Some(Bulk { place: Some(Place::Inline(vec![7; len].into())) });
            let insert = Insert { first_id, released: encode(&[5_u64, 6]), bulk, ..Default::default() };
            let message = ClientMessage {
                received,
                freed_slots: vec![3],
                body: Some(ClientBody::Insert(insert)),
                traced: Vec::new(),
            };
            let mut upload = Upload::new(mpsc::channel(1).1);
            upload.push(message.clone());
            assert_eq!(upload.data.len(), len);
            let sent = [&upload.together[..], &upload.data].concat();
            let length = u32::from_be_bytes(sent[1..5].try_into().unwrap()) as usize;
            assert_eq!((sent[0], length), (0, sent.len() - 5));
            assert!(ClientMessage::decode(&sent[5..]).unwrap() == message);
        }
    }
}
