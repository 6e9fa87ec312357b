//! The objects that a connection identifies by their address, and the outcome of a push.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The result of pushing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The whole request is in the message.
    Whole,
    /// The message has no room for all of the request; the cells that fit are in it, but no item.
    /// Send the message that [`Encoder::take`](super::Encoder::take) returns and push the request again, until it is
    /// whole.
    NoRoom {
        /// Bulk bytes that the next piece needs at least: an empty message must have room for them.
        needed: u64,
    },
}

/// Named things that are checked for use whenever a message is begun.
/// Two more are checked for each that was named in the message before.
pub(super) const SWEPT_AT_ONCE: usize = 8;

/// A map by address.
pub(super) type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// A hasher for addresses. No peer can choose them to collide.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}
