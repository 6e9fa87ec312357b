//! Errors of a whole call: a status code for any client, and the error as data for our clients.

use crate::convert;
use prost::Message;
use reverie_core::Error;
use tonic::{Code, Status};

/// The status of a call that failed with this error; its details are an `ErrorDetail`.
pub(super) fn status(error: &Error) -> Status {
    let code = match error {
        Error::Unauthenticated(_) => Code::Unauthenticated,
        Error::Unavailable(_) => Code::Unavailable,
        Error::UnknownTable { .. } | Error::UnknownKey { .. } => Code::NotFound,
        Error::ResourceExhausted { .. } | Error::OutOfMemory { .. } => Code::ResourceExhausted,
        Error::Deadline(_) | Error::NotCommitted { .. } => Code::DeadlineExceeded,
        Error::Closed { .. } => Code::Aborted,
        Error::Damaged(_) => Code::DataLoss,
        _ => Code::InvalidArgument,
    };
    let details = convert::error::encode(error).encode_to_vec();
    Status::with_details(code, error.to_string(), details.into())
}
