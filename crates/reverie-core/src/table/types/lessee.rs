//! The holder of leased draws.

use super::senders::Sender;

/// The request that holds leased draws, on behalf of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lessee {
    /// The client: the unique name of its session.
    pub sender: Sender,
    /// The number of the request among all of the client.
    pub request: u64,
}

impl Lessee {
    /// A reader in the process of the tables, which ends with them.
    ///
    /// A client of a server that asks for leased draws passes it, too: its server has another name for the client.
    pub const HERE: Self = Self { sender: [0; 16], request: 0 };
}
