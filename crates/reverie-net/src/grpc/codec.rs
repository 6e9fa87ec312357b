//! The codec of calls other than sessions: as any gRPC codec for protobuf, but the heads of messages are bounded.

use crate::head::{self, IncomingMessage};
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

/// Encodes `T`, decodes `U`.
pub(crate) struct Codec<T, U>(PhantomData<fn() -> (T, U)>);

/// The half that decodes.
pub(crate) struct BoundedDecoder<U>(PhantomData<fn() -> U>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<U> Default for BoundedDecoder<U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: IncomingMessage + Send> tonic::codec::Codec for Codec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder::default()
    }
}

impl<U: IncomingMessage> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        head::decode(message).map(Some).map_err(Status::invalid_argument)
    }
}
