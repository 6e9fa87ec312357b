//! All errors of the engine, as data. No caller has to parse the text.

use crate::key::{Key, Keys};
use std::borrow::Cow;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A count with its noun: "1 item", "2 items".
pub(crate) struct CountedNoun(pub(crate) u64, pub(crate) &'static str);

impl std::fmt::Display for CountedNoun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(count, what) = self;
        write!(f, "{count} {what}{}", if *count == 1 { "" } else { "s" })
    }
}

/// The advice for a damaged file.
fn remedy(path: &str) -> String {
    let path = std::path::Path::new(path);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("checkpoint" | "segment") => {
            let folder = path.parent().unwrap_or(path).display();
            format!(
                "restore it from a copy, or save what is whole in its folder: reverie checkpoint repair {folder} \
                 --to NEW"
            )
        }
        _ => "check the disk that it is on".to_owned(),
    }
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that is invalid in any state.
    #[error("{0}")]
    InvalidArgument(String),

    /// A table that the server does not have.
    #[error("there is no table '{name}'; the server has {}", list(known))]
    UnknownTable {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },

    /// Data that does not match a signature or earlier data.
    #[error("{}: got {got}, want {want}", column(path))]
    Signature {
        /// The user's name for the column.
        path: String,
        /// The given data.
        got: String,
        /// The expected data.
        want: String,
    },

    /// Items of one batch that cannot become one array per column.
    #[error("{}: {reason}", column(path))]
    Ragged {
        /// The user's name for the column.
        path: String,
        /// The difference, and the option that would allow it.
        reason: String,
    },

    /// Something larger than its budget allows.
    #[error("{what} needs {needed} bytes, {budget} are allowed; {hint}")]
    ResourceExhausted {
        /// The request that needs the memory.
        what: String,
        /// The bytes that it needs.
        needed: u64,
        /// The bytes allowed.
        budget: u64,
        /// Advice for the user.
        hint: String,
    },

    /// The machine has no memory for an array of a batch.
    #[error("no memory for an array of {needed} bytes; ask for fewer samples, or for fewer columns")]
    OutOfMemory {
        /// Bytes of the array.
        needed: u64,
    },

    /// The table, or its server, was closed before or during the request.
    #[error("the table '{name}' is closed")]
    Closed {
        /// The table.
        name: String,
    },

    /// The client was closed before or during the request.
    #[error("the client of {address} is closed; make another one")]
    ClientClosed {
        /// The server's address.
        address: String,
    },

    /// An item whose key is not, or no longer, in the table.
    #[error("table '{table}' has no item with the key {key}")]
    UnknownKey {
        /// The table.
        table: String,
        /// The requested key.
        key: Key,
    },

    /// The server, or the connection to it, is not available.
    #[error("{0}")]
    Unavailable(String),

    /// A request without a response, which may have been done and must not be done twice.
    #[error("{0}")]
    Undecided(String),

    /// The server refuses this client: a missing or wrong token, or an untrusted certificate.
    #[error("{0}")]
    Unauthenticated(String),

    /// A peer that violates the protocol, or uses another version of it.
    #[error("{0}")]
    Protocol(String),

    /// A withdrawn insert for which the server has not reported yet whether it is in its table.
    #[error("the outcome of the insert is unknown: the server has not answered since it was withdrawn")]
    UnknownOutcome {
        /// The number of the insert, to ask for its outcome later.
        number: u64,
    },

    /// The deadline passed, or the request was withdrawn, before it was complete.
    #[error("the timeout passed; {0}")]
    Deadline(String),

    /// The deadline passed, or the request was withdrawn, when it was done, or done in part, and its journal had not
    /// committed that.
    ///
    /// The effect lasts while the server runs, and may be undone if the server is killed.
    #[error("the timeout passed; {why}")]
    NotCommitted {
        /// The keys of the items of an insert that are in the table: all of them, or the first.
        keys: Keys,
        /// The reason why the journal waits.
        why: String,
    },

    /// An insert whose rest was refused, or ended with its table: its first items are in the table.
    #[error("{error}; the table keeps {} of the insert", CountedNoun(keys.len() as u64, "item"))]
    PartlyInserted {
        /// The keys of the first items.
        keys: Keys,
        /// The refusal of the others.
        error: Box<Error>,
    },

    /// Bytes that are not what was written.
    #[error("damaged chunk: {0}")]
    Damaged(String),

    /// A file whose content is not what was written. Nothing of it was used.
    #[error("{path} is damaged at byte {offset}: {what}; {}", remedy(path))]
    DamagedFile {
        /// The file.
        path: String,
        /// The problem.
        what: String,
        /// The offset of the damaged part.
        offset: u64,
    },

    /// The file system returned an error.
    #[error("cannot {action} {path}: {reason}")]
    Storage {
        /// The file or folder.
        path: String,
        /// The attempted operation.
        action: Cow<'static, str>,
        /// The file system's message.
        reason: String,
    },
}

impl Error {
    /// The error of an insert of which the items with these keys are in the table, if there are any.
    pub fn with_part(self, keys: Keys) -> Self {
        match self {
            // It has them.
            Self::NotCommitted { .. } | Self::PartlyInserted { .. } => self,
            error if keys.is_empty() => error,
            error => Self::PartlyInserted { keys, error: Box::new(error) },
        }
    }
}

fn column(path: &str) -> String {
    if path.is_empty() { "the data".to_owned() } else { format!("column '{path}'") }
}

/// The most names that a text lists; the error itself has them all.
const NAMED: usize = 20;

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let text = names.iter().take(NAMED).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}
