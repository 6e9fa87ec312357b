//! The decoding of messages, with a bound on the memory that one may take.
//!
//! An entry of a list may have two bytes in a message and a hundred in memory, so that a bound on the size of messages
//! alone would let 64 MiB become gigabytes. Bytes fields take no more memory than they have in the message. The rest of a
//! message is its head, and the head of a client's message is small: long lists of numbers are bytes fields, and the
//! encoder splits what is longer (`items`).

use crate::proto;
use bytes::{Buf, Bytes};
use prost::Message;

/// The largest head of a client's message. Decoded, it takes less than [`proto::MAX_MESSAGE_BYTES`] of memory, which
/// `tests/heads.rs` measures.
pub const MAX_HEAD_BYTES: usize = 512 << 10;

/// A message that a peer sends.
pub trait IncomingMessage: Message + Default + 'static {
    /// The largest head; as large as a message for those of a server, which the client chose to trust.
    const MAX_HEAD_BYTES: usize = proto::MAX_MESSAGE_BYTES;
}

impl IncomingMessage for proto::ClientMessage {
    const MAX_HEAD_BYTES: usize = MAX_HEAD_BYTES;
}
impl IncomingMessage for proto::DescribeRequest {}
impl IncomingMessage for proto::Description {}
impl IncomingMessage for proto::ServerMessage {}

/// Decodes the message in these bytes. Stops where its head becomes too large, before more memory is taken.
pub fn decode<M: IncomingMessage>(bytes: impl Buf) -> Result<M, String> {
    let mut head = HeadBytes { bytes, left: M::MAX_HEAD_BYTES, is_exceeded: false };
    let message = M::decode(&mut head);
    if head.is_exceeded {
        let most = M::MAX_HEAD_BYTES;
        return Err(format!(
            "a message has more than {most} bytes outside its bytes fields: send fewer entries at a time"
        ));
    }
    message.map_err(|error| format!("a message cannot be decoded: {error}"))
}

/// The bytes of a message for its decoder, which copies bytes fields and advances over all else.
struct HeadBytes<B> {
    bytes: B,
    /// The bytes left of the largest head.
    left: usize,
    /// Nothing follows for the decoder then.
    is_exceeded: bool,
}

impl<B: Buf> Buf for HeadBytes<B> {
    #[inline]
    fn remaining(&self) -> usize {
        if self.is_exceeded { 0 } else { self.bytes.remaining() }
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        if self.is_exceeded { &[] } else { self.bytes.chunk() }
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                self.bytes.advance(count);
            }
            None => self.is_exceeded = true,
        }
    }

    #[inline]
    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        self.bytes.copy_to_bytes(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::Pieces;
    use crate::proto::client_message::Body;
    use crate::proto::{Bulk, ClientMessage, Insert, bulk::Place};

    fn message(chunks: usize, bulk: usize) -> ClientMessage {
        let bulk = Some(Bulk { place: Some(Place::Inline(vec![7; bulk].into())) });
        let chunks = vec![proto::ChunkCells::default(); chunks];
        ClientMessage { body: Some(Body::Insert(Insert { chunks, bulk, ..Default::default() })), ..Default::default() }
    }

    #[test]
    fn a_head_at_the_bound_is_decoded_and_one_beyond_it_is_refused_however_it_is_cut() {
        let longest = (MAX_HEAD_BYTES - message(0, 0).encoded_len() - 8) / 2;
        for (chunks, fits) in [(longest, true), (longest + 8, false)] {
            let message = message(chunks, 0);
            let bytes = message.encode_to_vec();
            for size in [1000, bytes.len()] {
                let mut pieces = Pieces::default();
                bytes.chunks(size).for_each(|piece| pieces.push(Bytes::copy_from_slice(piece)));
                match decode::<ClientMessage>(pieces) {
                    Ok(decoded) => assert!(fits && decoded == message),
                    Err(reason) => assert!(!fits && reason.contains("send fewer"), "{reason}"),
                }
            }
        }
    }

    #[test]
    fn bytes_fields_are_not_of_the_head() {
        let message = message(3, MAX_HEAD_BYTES * 4);
        assert_eq!(decode::<ClientMessage>(&message.encode_to_vec()[..]), Ok(message));
    }

    #[test]
    fn skipped_fields_and_texts_count_for_the_head() {
        let mut unknown = vec![0xfa, 0x01];
        prost::encoding::encode_varint(MAX_HEAD_BYTES as u64, &mut unknown);
        unknown.resize(unknown.len() + MAX_HEAD_BYTES, 0);
        let why = proto::request::Body::Why("a".repeat(MAX_HEAD_BYTES));
        let request = proto::Request { body: Some(why), ..Default::default() };
        let text = ClientMessage { body: Some(Body::Request(request)), ..Default::default() };
        for bytes in [unknown, text.encode_to_vec()] {
            assert!(decode::<ClientMessage>(&bytes[..]).unwrap_err().contains("send fewer"));
        }
    }

    #[test]
    fn a_server_may_say_more_than_a_client() {
        let keys = vec![1; MAX_HEAD_BYTES / 4];
        let body = proto::server_message::Body::Inserted(proto::Inserted { keys, ..Default::default() });
        let message = proto::ServerMessage { body: Some(body) };
        assert_eq!(decode::<proto::ServerMessage>(&message.encode_to_vec()[..]), Ok(message));
    }
}
