//! Inserts that a client may retry after a lost connection: their sender, number and keys.

use super::inserts::Keys;

/// The sender of inserts over connections that may be lost: the unique name of a session.
pub type Sender = [u8; 16];

/// An insert of a sender, identified by its number. Later inserts have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentInsert {
    /// The sender.
    pub sender: Sender,
    /// The number of the insert among all that the sender sends.
    pub number: u64,
}

/// The inserted part of a sender's inserts.
///
/// That is their numbers, ascending, and the keys of their first items or of all items.
pub type Arrivals = Vec<(u64, Keys)>;
