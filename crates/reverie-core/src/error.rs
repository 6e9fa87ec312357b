//! Every way in which the engine can refuse, as data. No caller ever has to read the text.

use crate::key::Key;
use std::borrow::Cow;

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// So many of something, as one says it: "1 item", "2 items".
pub(crate) struct Counted(pub(crate) u64, pub(crate) &'static str);

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(count, what) = self;
        write!(f, "{count} {what}{}", if *count == 1 { "" } else { "s" })
    }
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that cannot be right, whatever the state.
    #[error("{0}")]
    InvalidArgument(String),

    /// A table that the server does not have.
    #[error("there is no table '{name}'; the server has {}", list(known))]
    UnknownTable {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },

    /// Data that does not fit what was promised or what came before.
    #[error("{}: got {got}, want {want}", column(path))]
    Signature {
        /// The column, as the user knows it.
        path: String,
        /// What was given.
        got: String,
        /// What fits.
        want: String,
    },

    /// Items of one batch that cannot become one array per column.
    #[error("{}: {reason}", column(path))]
    Ragged {
        /// The column, as the user knows it.
        path: String,
        /// What differs, and what to ask for.
        reason: String,
    },

    /// Something larger than any room that could be made for it.
    #[error("{what} needs {needed} bytes, {budget} are allowed; {hint}")]
    ResourceExhausted {
        /// What asked for the room.
        what: String,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that there are.
        budget: u64,
        /// What to do about it.
        hint: String,
    },

    /// The machine has no memory for an array of a batch.
    #[error("no memory for an array of {needed} bytes; ask for fewer samples, or for fewer columns")]
    OutOfMemory {
        /// Bytes of the array.
        needed: u64,
    },

    /// The table, or its server, was closed while or before this was asked.
    #[error("the table '{name}' is closed")]
    Closed {
        /// The table.
        name: String,
    },

    /// The client was closed while or before this was asked of it.
    #[error("the client of {address} is closed; make another one")]
    ClientClosed {
        /// The server's.
        address: String,
    },

    /// An item whose key is not (or no longer) in the table.
    #[error("table '{table}' has no item with the key {key}")]
    UnknownKey {
        /// The table.
        table: String,
        /// The key asked for.
        key: Key,
    },

    /// The server, or the way to it, is not there.
    #[error("{0}")]
    Unavailable(String),

    /// A server that does not let this client in: no or a wrong token, a certificate that is not trusted.
    #[error("{0}")]
    Unauthenticated(String),

    /// A peer that does not keep to the protocol, or speaks another version of it.
    #[error("{0}")]
    Protocol(String),

    /// A withdrawn insert of which the server has not said yet whether it is in its table.
    #[error("whether the insert is in its table is not known: the server has not answered since it was withdrawn")]
    UnknownFate {
        /// The insert, to ask later what became of it.
        number: u64,
    },

    /// The deadline passed, or the request was withdrawn, before all of it was done.
    #[error("the timeout passed; {0}")]
    Deadline(String),

    /// Bytes that are not what was written.
    #[error("damaged chunk: {0}")]
    Damaged(String),

    /// A file that is not what was written. Nothing of it was used.
    #[error("{path} is damaged at byte {offset}: {what}; restore another checkpoint, or delete this one to do without")]
    DamagedFile {
        /// The file.
        path: String,
        /// What is wrong there.
        what: String,
        /// Where the part that is wrong begins.
        offset: u64,
    },

    /// The file system refused.
    #[error("cannot {action} {path}: {reason}")]
    Storage {
        /// The file or folder.
        path: String,
        /// What was tried.
        action: Cow<'static, str>,
        /// What the file system says.
        reason: String,
    },
}

fn column(path: &str) -> String {
    if path.is_empty() { "the data".to_owned() } else { format!("column '{path}'") }
}

/// How many names a text has; the error itself has them all.
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
