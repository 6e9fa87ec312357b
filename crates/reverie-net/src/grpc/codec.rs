//! The codec of calls other than sessions: as any gRPC codec for protobuf, except for messages that [`weigh`] refuses.

use crate::weigh::{self, Incoming};
use bytes::Buf;
use prost::Message;
use std::marker::PhantomData;
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

/// Encodes `T`, decodes `U`.
pub(crate) struct Codec<T, U>(PhantomData<fn() -> (T, U)>);

/// The half that decodes.
pub(crate) struct Weighing<U>(PhantomData<fn() -> U>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<U> Default for Weighing<U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Incoming + Send> tonic::codec::Codec for Codec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Weighing<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Weighing::default()
    }
}

impl<U: Incoming> Decoder for Weighing<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // The message is contiguous.
        let bytes = message.chunk();
        weigh::check::<U>([bytes].into_iter(), bytes.len()).map_err(Status::invalid_argument)?;
        let decoded = U::decode(message).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(decoded))
    }
}
