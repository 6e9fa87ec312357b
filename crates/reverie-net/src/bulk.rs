//! The large bytes that belong to messages: reading and writing them.

use reverie_core::chunk::fill;
use std::mem::MaybeUninit;

/// Bulk bytes of an insert, as the server reads them.
/// The peer may still be able to change the memory, so they are only ever copied.
pub trait BulkSource {
    /// The number of bytes.
    fn len(&self) -> u64;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes into `to`, starting at `offset`, and returns it filled.
    /// Panics if there are too few bytes: check against `len` first.
    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8];
}

/// Bytes in the message itself.
impl BulkSource for bytes::Bytes {
    fn len(&self) -> u64 {
        self[..].len() as u64
    }

    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..to.len()));
        fill(to, from.expect("bytes that were checked to be there"))
    }
}

/// The destination of an insert's bulk bytes at the client.
pub trait BulkSink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// The number of bytes.
    fn len(&self) -> u64;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
