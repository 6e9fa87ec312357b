//! Inserts that may be sent again: which, of which sender, and the keys of their items that are in.

use super::inserts::Keys;

/// Who sends inserts over connections that may be lost: the name of a session, unlike any other.
pub type Sender = [u8; 16];

/// The insert of a sender, by its number: later ones have larger numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Who sent it.
    pub sender: Sender,
    /// Which it is of all that he sends.
    pub number: u64,
}

/// What is in of a sender's inserts: their numbers, ascending, and the keys of their first items or of all.
pub type Arrivals = Vec<(u64, Keys)>;
