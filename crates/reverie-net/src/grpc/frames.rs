//! A client's messages, decoded from the body of its call.
//!
//! Large bytes stay in the HTTP/2 frame in which they arrived until they are copied to their place.

use crate::head::{self, IncomingMessage};
use crate::pieces::Pieces;
use crate::proto::MAX_MESSAGE_BYTES;
use bytes::{Buf, Bytes};
use hyper::body::Body;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// The bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The reason why there are no more messages.
#[derive(Debug)]
pub(super) enum FramesFailure {
    /// Malformed bytes.
    Broken(String),
    /// The connection was lost.
    Lost,
}

/// The messages of a body.
pub(super) struct Messages<B, M> {
    body: B,
    arrived: Pieces,
    /// The length of the message that is being received.
    coming: Option<usize>,
    /// Received bytes of an incomplete message.
    unfinished: Arc<AtomicU64>,
    message: PhantomData<fn() -> M>,
}

impl<B, M> Messages<B, M>
where
    B: Body<Data = Bytes> + Unpin,
    M: IncomingMessage,
{
    pub(super) fn new(body: B) -> Self {
        Self { body, arrived: Pieces::default(), coming: None, unfinished: Arc::default(), message: PhantomData }
    }

    /// Received bytes of an incomplete message, valid while the next message is waited for.
    pub(super) fn unfinished(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.unfinished)
    }

    /// The next message; `None` if the call ended normally. Dropping a pending wait loses nothing.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<M, FramesFailure>>> {
        loop {
            match self.decode() {
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Ok(None) => {}
                Err(why) => return Poll::Ready(Some(Err(FramesFailure::Broken(why)))),
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
                self.unfinished.store(self.arrived.remaining() as u64, Ordering::Relaxed);
                return Poll::Pending;
            };
            let Some(frame) = frame else {
                let whole = self.arrived.remaining() == 0 && self.coming.is_none();
                return Poll::Ready((!whole).then_some(Err(FramesFailure::Lost)));
            };
            match frame.map(|frame| frame.into_data()) {
                Err(_) => return Poll::Ready(Some(Err(FramesFailure::Lost))),
                Ok(Ok(data)) => self.arrived.push(data),
                // Trailers, which have no meaning in a request.
                Ok(Err(_)) => {}
            }
        }
    }

    /// The next message, if it is complete.
    fn decode(&mut self) -> Result<Option<M>, String> {
        if self.coming.is_none() {
            self.coming = prefix(&mut self.arrived)?;
        }
        let Some(len) = self.coming.filter(|len| *len <= self.arrived.remaining()) else { return Ok(None) };
        self.coming = None;
        message(&mut self.arrived, len).map(Some)
    }
}

/// Reads the length of the next message, if it has arrived; the message follows.
pub(super) fn prefix(arrived: &mut Pieces) -> Result<Option<usize>, String> {
    if arrived.remaining() < PREFIX {
        return Ok(None);
    }
    let (compressed, len) = (arrived.get_u8() != 0, arrived.get_u32() as usize);
    if compressed {
        return Err("a message is compressed, which this version cannot read".to_owned());
    }
    if len > MAX_MESSAGE_BYTES {
        return Err(format!("a message of {len} bytes; {MAX_MESSAGE_BYTES} are allowed"));
    }
    Ok(Some(len))
}

/// Decodes the message of the next `len` bytes, all of which have arrived.
pub(super) fn message<M: IncomingMessage>(arrived: &mut Pieces, len: usize) -> Result<M, String> {
    head::decode(arrived.take(len))
}

#[cfg(test)]
mod tests {
    use super::super::frames_body::{FramesBody, data, sent};
    use super::*;
    use crate::proto::server_message::Body as ServerBody;
    use crate::proto::{Inserted, Part, ServerMessage};
    use hyper::body::Frame;

    fn messages(frames: impl IntoIterator<Item = Result<Frame<Bytes>, String>>) -> Messages<FramesBody, ServerMessage> {
        Messages::new(FramesBody::new(frames))
    }

    fn next(messages: &mut Messages<FramesBody, ServerMessage>) -> Option<Result<ServerMessage, FramesFailure>> {
        match messages.poll_next(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => panic!("a body that never waits"),
        }
    }

    fn part(id: u64, len: usize) -> ServerMessage {
        let data = (0..len).map(|byte| byte as u8).collect();
        ServerMessage { body: Some(ServerBody::Part(Part { id, offset: 7, data })) }
    }

    #[test]
    fn messages_arrive_as_they_were_sent_however_they_are_cut_into_frames() {
        let keys = vec![1, -1, i64::MAX];
        let inserted = ServerMessage { body: Some(ServerBody::Inserted(Inserted { first_id: 1, requests: 3, keys })) };
        let all = [part(1, 0), part(2, 10_000), inserted, part(3, 1), ServerMessage::default(), part(4, 70_000)];
        let bytes = all.iter().flat_map(sent).collect::<Vec<u8>>();
        for size in [1, 2, 5, 4096, 9_999, bytes.len()] {
            let mut messages = messages(bytes.chunks(size).flat_map(|chunk| [data(chunk), data(&[])]));
            for message in &all {
                assert!(next(&mut messages).unwrap().unwrap() == *message, "{size}");
            }
            assert!(next(&mut messages).is_none());
            assert_eq!(messages.arrived.num_pieces(), 0);
        }
    }

    #[test]
    fn large_bytes_stay_in_the_frame_that_brought_them() {
        let frame = Bytes::from(sent(&part(1, 100_000)));
        let within = frame.as_ptr_range();
        let mut messages = messages([Ok(Frame::data(frame))]);
        let Some(ServerBody::Part(part)) = next(&mut messages).unwrap().unwrap().body else {
            panic!("a part was sent")
        };
        assert!(within.contains(&part.data.as_ptr()) && part.data.len() == 100_000);
    }

    #[test]
    fn small_frames_are_put_together_so_that_their_list_is_no_longer_than_their_bytes() {
        let bytes = sent(&part(1, 100_000));
        let mut messages = messages(bytes[..90_000].chunks(1).map(data));
        assert!(matches!(next(&mut messages), Some(Err(FramesFailure::Lost))));
        assert!(
            messages.arrived.num_pieces() <= 90_000 / (crate::pieces::SMALL / 2),
            "{}",
            messages.arrived.num_pieces()
        );
    }

    #[test]
    fn bytes_that_are_no_message_differ_from_a_message_that_ends_early() {
        let too_long = [&[0][..], &(MAX_MESSAGE_BYTES as u32 + 1).to_be_bytes()].concat();
        for broken in [&[1, 0, 0, 0, 0][..], &too_long, &[0, 0, 0, 0, 1, 0xff]] {
            assert!(matches!(next(&mut messages([data(broken)])), Some(Err(FramesFailure::Broken(_)))), "{broken:?}");
        }
        for cut in [&[0, 0][..], &[0, 0, 0, 0, 1]] {
            assert!(matches!(next(&mut messages([data(cut)])), Some(Err(FramesFailure::Lost))), "{cut:?}");
        }
        assert!(matches!(next(&mut messages([Err("reset".to_owned())])), Some(Err(FramesFailure::Lost))));
        let trailers = Frame::trailers(http::HeaderMap::new());
        assert!(next(&mut messages([data(&sent(&part(1, 1))), Ok(trailers)])).unwrap().is_ok());
    }
}
