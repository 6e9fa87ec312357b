//! Errors as data, in both directions.

use crate::proto::{self, error_detail::Kind};
use reverie_core::Error;
use reverie_core::item::Key;

/// Encodes an error.
pub fn encode(error: &Error) -> proto::ErrorDetail {
    if let Error::PartlyInserted { keys, error } = error {
        return proto::ErrorDetail { keys: keys.iter().map(|key| key.get()).collect(), ..encode(error) };
    }
    let kind = match error.clone() {
        Error::InvalidArgument(reason) => Kind::InvalidArgument(reason),
        Error::UnknownTable { name, known } => Kind::UnknownTable(proto::UnknownTable { name, known }),
        Error::Signature { path, got, want } => Kind::Signature(proto::SignatureMismatch { path, got, want }),
        Error::Ragged { path, reason } => Kind::Ragged(proto::RaggedError { path, reason }),
        Error::ResourceExhausted { what, needed, budget, hint } => {
            Kind::ResourceExhausted(proto::ResourceExhausted { what, needed, budget, hint })
        }
        Error::OutOfMemory { needed } => Kind::OutOfMemory(needed),
        Error::Closed { name } => Kind::Closed(name),
        Error::UnknownKey { table, key } => Kind::UnknownKey(proto::UnknownKey { table, key: key.get() }),
        Error::Damaged(what) => Kind::Damaged(what),
        Error::Deadline(why) => Kind::Deadline(proto::Deadline { why, ..proto::Deadline::default() }),
        Error::NotCommitted { keys, why } => {
            let keys = keys.iter().map(|key| key.get()).collect();
            Kind::Deadline(proto::Deadline { why, keys, not_committed: true })
        }
        Error::Protocol(rule) => Kind::Violation(rule),
        Error::Unauthenticated(reason) => Kind::Unauthenticated(reason),
        Error::Unavailable(reason) => Kind::Unavailable(reason),
        Error::Storage { path, action, reason } => {
            Kind::Storage(proto::StorageError { path, action: action.into_owned(), reason })
        }
        Error::DamagedFile { path, what, offset } => Kind::DamagedFile(proto::DamagedFile { path, what, offset }),
        // The core's error type may grow; a new variant must still reach the client as an error.
        other => Kind::Internal(other.to_string()),
    };
    kind.into()
}

impl From<Kind> for proto::ErrorDetail {
    fn from(kind: Kind) -> Self {
        Self { kind: Some(kind), keys: Vec::new() }
    }
}

/// Decodes an error. A kind that this version does not know is `Protocol`.
pub fn decode(message: proto::ErrorDetail) -> Error {
    let proto::ErrorDetail { kind, keys } = message;
    if !keys.is_empty() {
        let error = Box::new(decode(proto::ErrorDetail { kind, keys: Vec::new() }));
        return Error::PartlyInserted { keys: keys.into_iter().map(Key::from).collect(), error };
    }
    let Some(kind) = kind else {
        return Error::Protocol("the peer refused, for a reason that this version of Reverie does not know".to_owned());
    };
    match kind {
        Kind::InvalidArgument(reason) => Error::InvalidArgument(reason),
        Kind::UnknownTable(proto::UnknownTable { name, known }) => Error::UnknownTable { name, known },
        Kind::Signature(proto::SignatureMismatch { path, got, want }) => Error::Signature { path, got, want },
        Kind::Ragged(proto::RaggedError { path, reason }) => Error::Ragged { path, reason },
        Kind::ResourceExhausted(proto::ResourceExhausted { what, needed, budget, hint }) => {
            Error::ResourceExhausted { what, needed, budget, hint }
        }
        Kind::OutOfMemory(needed) => Error::OutOfMemory { needed },
        Kind::Closed(name) => Error::Closed { name },
        Kind::UnknownKey(proto::UnknownKey { table, key }) => Error::UnknownKey { table, key: Key::from(key) },
        Kind::Damaged(what) => Error::Damaged(what),
        Kind::Deadline(proto::Deadline { why, keys, not_committed: true }) => {
            Error::NotCommitted { keys: keys.into_iter().map(Key::from).collect(), why }
        }
        Kind::Deadline(proto::Deadline { why, .. }) => Error::Deadline(why),
        Kind::Violation(rule) => Error::Protocol(rule),
        Kind::Unauthenticated(reason) => Error::Unauthenticated(reason),
        Kind::Unavailable(reason) => Error::Unavailable(reason),
        Kind::Storage(proto::StorageError { path, action, reason }) => {
            Error::Storage { path, action: action.into(), reason }
        }
        Kind::DamagedFile(proto::DamagedFile { path, what, offset }) => Error::DamagedFile { path, what, offset },
        Kind::Incompatible(reason) => Error::Protocol(reason),
        Kind::Internal(reason) => Error::Protocol(format!("a defect of the peer: {reason}")),
    }
}
