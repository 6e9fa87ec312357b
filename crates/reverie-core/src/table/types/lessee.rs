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
