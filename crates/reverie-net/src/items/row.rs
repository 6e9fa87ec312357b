//! An item in a message.

use crate::convert::numbers::words;
use bytes::{Buf, BufMut};
use reverie_core::Result;

/// An item as a message names it; see `Insert.items` in the proto.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The number of its form.
    pub pattern: u32,
    /// The position that its cells are relative to.
    pub anchor: u32,
    /// The number of its chunk or body.
    pub body: u64,
    /// The priority of the item; NaN for the largest in the table.
    pub priority: f64,
    /// The number of the episode that it begins in; 0 for a step inserted alone.
    pub episode: u32,
    /// The number of its stream of steps; 0 if none is known.
    pub stream: u32,
}

impl Row {
    /// Bytes of a row.
    pub const BYTES: usize = 32;

    /// Appends the row.
    pub fn put(&self, bytes: &mut Vec<u8>) {
        let mut row = [0; Self::BYTES];
        let mut to = &mut row[..];
        to.put_u32_le(self.pattern);
        to.put_u32_le(self.anchor);
        to.put_u64_le(self.body);
        to.put_f64_le(self.priority);
        to.put_u32_le(self.episode);
        to.put_u32_le(self.stream);
        bytes.extend_from_slice(&row);
    }

    /// Reads a row.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let mut from = &bytes[..];
        Self {
            pattern: from.get_u32_le(),
            anchor: from.get_u32_le(),
            body: from.get_u64_le(),
            priority: from.get_f64_le(),
            episode: from.get_u32_le(),
            stream: from.get_u32_le(),
        }
    }

    /// The rows of a message. `Protocol` for a part of one.
    pub fn all(bytes: &[u8]) -> Result<&[[u8; Self::BYTES]]> {
        words(bytes, "items")
    }
}
