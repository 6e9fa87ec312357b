//! The body of a call whose message is assembled elsewhere: its received bytes are charged like a session's.

use super::status::status;
use crate::server::Charge;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;

/// Charges the received bytes until it is dropped.
pub(super) struct CountedBody<B> {
    body: B,
    charge: Charge,
    bytes: u64,
}

impl<B> CountedBody<B> {
    pub(super) fn new(body: B, charge: Charge) -> Self {
        Self { body, charge, bytes: 0 }
    }
}

impl<B> Body for CountedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(error.into())))),
            Some(Ok(frame)) => frame,
        };
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        let bytes = self.bytes;
        Poll::Ready(Some(self.charge.receive(bytes).map(|()| frame).map_err(|error| status(&error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames_body::{FramesBody, data};
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_message_beyond_the_total_is_refused_while_it_comes() {
        let frames = || [data(&[0; 100_000]), data(&[0; 100_000])];
        for (total, comes) in [(100_000, 1), (200_000, 2)] {
            let mut body = CountedBody::new(FramesBody::new(frames()), Charge::of_total(total));
            let mut next = || match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(frame) => frame,
                Poll::Pending => panic!("a body that never waits"),
            };
            (0..comes).for_each(|_| assert!(next().unwrap().is_ok()));
            match next() {
                Some(Err(status)) => assert_eq!((status.code(), comes), (tonic::Code::ResourceExhausted, 1)),
                other => assert!(other.is_none() && comes == 2),
            }
        }
    }
}
