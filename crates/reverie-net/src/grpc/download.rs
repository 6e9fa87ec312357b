//! The server's messages, decoded from the body of its response.
//!
//! A part of a batch is passed on in pieces as its bytes arrive: they are copied to their place while they are in the
//! processor's cache, and the receive buffers are reused.

use super::frames::{message, prefix};
use crate::pieces::Pieces;
use crate::proto::server_message::Body as ServerBody;
use crate::proto::{Part, ServerMessage};
use bytes::{Buf, Bytes};
use http::HeaderMap;
use hyper::body::Body;
use prost::encoding::{WireType, decode_key, decode_varint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The numbers of the fields that are decoded by hand, as in the proto.
const SERVER_MESSAGE_PART: u32 = 5;
const PART_ID: u32 = 1;
const PART_OFFSET: u32 = 2;
const PART_DATA: u32 = 3;
/// Bytes of a message before a part's data, at most: four keys and four numbers.
const HEAD: usize = 4 * 11;

/// The reason why there are no more messages.
#[derive(Debug)]
pub(super) enum DownloadFailure {
    /// Malformed bytes.
    Broken(String),
    /// The connection was lost.
    Lost(String),
    /// The trailers that the server sent at the end.
    Trailers(HeaderMap),
}

/// The messages of a body.
pub(super) struct Download<B> {
    body: B,
    arrived: Pieces,
    coming: ExpectedBytes,
}

/// The kind of the next bytes.
enum ExpectedBytes {
    /// The length of a message.
    Prefix,
    Message(usize),
    /// The data of this part.
    Data(OpenPart),
}

/// A part whose data is being received.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OpenPart {
    id: u64,
    /// The offset of the next byte.
    offset: u64,
    left: usize,
}

impl<B> Download<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    pub(super) fn new(body: B) -> Self {
        Self { body, arrived: Pieces::default(), coming: ExpectedBytes::Prefix }
    }

    /// The next message, or the next piece of a part; `None` if the response ends without trailers.
    /// Dropping a pending wait loses nothing.
    pub(super) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ServerMessage, DownloadFailure>>> {
        loop {
            match self.decode() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(None) => {}
                Err(why) => return Poll::Ready(Some(Err(DownloadFailure::Broken(why)))),
            }
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
                let whole = self.arrived.remaining() == 0 && matches!(self.coming, ExpectedBytes::Prefix);
                let cut = || Err(DownloadFailure::Lost("the answer ended within a message".to_owned()));
                return Poll::Ready((!whole).then(cut));
            };
            match frame.map(|frame| frame.into_data()) {
                Err(error) => return Poll::Ready(Some(Err(DownloadFailure::Lost(error.to_string())))),
                Ok(Ok(data)) => self.arrived.push(data),
                Ok(Err(frame)) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Poll::Ready(Some(Err(DownloadFailure::Trailers(trailers))));
                    }
                }
            }
        }
    }

    /// The next message or piece, if it has arrived.
    fn decode(&mut self) -> Result<Option<ServerMessage>, String> {
        if let ExpectedBytes::Prefix = self.coming {
            match prefix(&mut self.arrived)? {
                Some(len) => self.coming = ExpectedBytes::Message(len),
                None => return Ok(None),
            }
        }
        if let ExpectedBytes::Message(len) = self.coming {
            let mut head = [0; HEAD];
            let seen = self.arrived.peek(&mut head[..HEAD.min(len)]);
            match open(&head[..seen], len) {
                Some((open, size)) => {
                    self.arrived.advance(size);
                    self.coming = ExpectedBytes::Data(open);
                }
                None if len <= self.arrived.remaining() => {
                    self.coming = ExpectedBytes::Prefix;
                    return message(&mut self.arrived, len).map(Some);
                }
                None => return Ok(None),
            }
        }
        let ExpectedBytes::Data(OpenPart { id, offset, left }) = self.coming else { return Ok(None) };
        let data = self.arrived.piece(left);
        if data.is_empty() {
            return Ok(None);
        }
        let left = left - data.len();
        self.coming = match left {
            0 => ExpectedBytes::Prefix,
            _ => ExpectedBytes::Data(OpenPart { id, offset: offset + data.len() as u64, left }),
        };
        Ok(Some(ServerMessage { body: Some(ServerBody::Part(Part { id, offset, data })) }))
    }
}

/// The part whose data begins in these first bytes of a message of `len` bytes, and where the data begins.
/// `None` if there are too few bytes, or if the data is not the last field: such a message is decoded as a whole.
fn open(bytes: &[u8], len: usize) -> Option<(OpenPart, usize)> {
    let field = |rest: &mut &[u8]| {
        let key = decode_key(rest).ok()?;
        Some((key, decode_varint(rest).ok()?))
    };
    let mut rest = bytes;
    let (key, size) = field(&mut rest)?;
    if key != (SERVER_MESSAGE_PART, WireType::LengthDelimited) || size != (len - (bytes.len() - rest.len())) as u64 {
        return None;
    }
    let (mut id, mut offset) = (0, 0);
    loop {
        match field(&mut rest)? {
            ((PART_ID, WireType::Varint), number) => id = number,
            ((PART_OFFSET, WireType::Varint), number) => offset = number,
            ((PART_DATA, WireType::LengthDelimited), size) => {
                let at = bytes.len() - rest.len();
                let left = len - at;
                return (left > 0 && size == left as u64).then_some((OpenPart { id, offset, left }, at));
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames_body::{FramesBody, data, framed, sent};
    use super::*;
    use crate::proto::{Inserted, MAX_MESSAGE_BYTES};
    use hyper::body::Frame;

    fn download(frames: impl IntoIterator<Item = Result<Frame<Bytes>, String>>) -> Download<FramesBody> {
        Download::new(FramesBody::new(frames))
    }

    fn next(download: &mut Download<FramesBody>) -> Option<Result<ServerMessage, DownloadFailure>> {
        match download.poll_next(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => panic!("a body that never waits"),
        }
    }

    fn part(id: u64, offset: u64, len: usize) -> ServerMessage {
        let data = (0..len).map(|byte| (byte as u64 + offset) as u8).collect();
        ServerMessage { body: Some(ServerBody::Part(Part { id, offset, data })) }
    }

    /// All messages, with the pieces of each part joined.
    fn all(mut download: Download<FramesBody>) -> Vec<ServerMessage> {
        let mut all: Vec<ServerMessage> = Vec::new();
        while let Some(message) = next(&mut download) {
            let message = message.unwrap();
            if let (Some(ServerBody::Part(piece)), Some(last)) = (&message.body, all.last_mut())
                && let Some(ServerBody::Part(part)) = &mut last.body
                && (part.id, part.offset + part.data.len() as u64) == (piece.id, piece.offset)
            {
                part.data = [&part.data[..], &piece.data].concat().into();
                continue;
            }
            all.push(message);
        }
        all
    }

    #[test]
    fn messages_arrive_as_they_were_sent_however_they_are_cut_into_frames() {
        let inserted =
            ServerMessage { body: Some(ServerBody::Inserted(Inserted { keys: vec![1, -1], ..Inserted::default() })) };
        let parts = [part(1, 0, 0), part(2, 1 << 40, 10_000), part(u64::MAX, 0, 1), part(0, 7, 70_000), part(0, 0, 1)];
        let others = [inserted, ServerMessage::default()];
        let messages = [&parts[..2], &others, &parts[2..]].concat();
        let bytes = messages.iter().flat_map(sent).collect::<Vec<u8>>();
        for size in [1, 2, 5, 4096, 9_999, bytes.len()] {
            let arrived = all(download(bytes.chunks(size).flat_map(|chunk| [data(chunk), data(&[])])));
            assert!(arrived == messages, "{size}");
        }
    }

    #[test]
    fn a_part_is_passed_on_as_its_bytes_arrive_and_not_copied() {
        let bytes = sent(&part(1, 5, 100_000));
        let (first, second) = (Bytes::copy_from_slice(&bytes[..60_000]), Bytes::copy_from_slice(&bytes[60_000..]));
        let mut download = download([Ok(Frame::data(first.clone())), Ok(Frame::data(second.clone()))]);
        let mut offset = 5;
        for frame in [first, second] {
            let Some(ServerBody::Part(part)) = next(&mut download).unwrap().unwrap().body else {
                panic!("a part was sent")
            };
            assert_eq!((part.id, part.offset), (1, offset));
            assert!(frame.as_ptr_range().contains(&part.data.as_ptr()));
            offset += part.data.len() as u64;
        }
        assert_eq!(offset, 100_005);
    }

    #[test]
    fn a_part_that_others_write_differently_is_read_as_any_message() {
        // The data first, then the number twice.
        let inner = [&[0x1a, 3, 1, 2, 3][..], &[0x08, 9, 0x08, 4]].concat();
        let encoded = [&[0x2a, inner.len() as u8][..], &inner].concat();
        let want =
            ServerMessage { body: Some(ServerBody::Part(Part { id: 4, offset: 0, data: vec![1, 2, 3].into() })) };
        assert_eq!(all(download([data(&framed(&encoded))])), [want]);
    }

    #[test]
    fn bytes_that_are_no_message_differ_from_a_message_that_ends_early() {
        let too_long = [&[0][..], &(MAX_MESSAGE_BYTES as u32 + 1).to_be_bytes()].concat();
        for broken in [&[1, 0, 0, 0, 0][..], &too_long, &[0, 0, 0, 0, 1, 0xff], &framed(&[0x2a, 5, 0x1a, 9, 1, 1, 1])] {
            assert!(matches!(next(&mut download([data(broken)])), Some(Err(DownloadFailure::Broken(_)))), "{broken:?}");
        }
        for cut in [&[0, 0][..], &[0, 0, 0, 0, 1]] {
            assert!(matches!(next(&mut download([data(cut)])), Some(Err(DownloadFailure::Lost(_)))), "{cut:?}");
        }
        let mut within = download([data(&sent(&part(1, 0, 100))[..50])]);
        assert!(next(&mut within).unwrap().is_ok());
        assert!(matches!(next(&mut within), Some(Err(DownloadFailure::Lost(_)))));
        assert!(matches!(next(&mut download([Err("reset".to_owned())])), Some(Err(DownloadFailure::Lost(_)))));
        let trailers = Frame::trailers(HeaderMap::new());
        let mut ended = download([data(&sent(&part(1, 0, 1))), Ok(trailers)]);
        assert!(next(&mut ended).unwrap().is_ok());
        assert!(matches!(next(&mut ended), Some(Err(DownloadFailure::Trailers(_)))));
    }
}
