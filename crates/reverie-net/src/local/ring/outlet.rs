//! The client's end of an insert slot.

use crate::bulk::BulkSink;
use crate::mapping::Mapping;
use crate::proto::{Slot, SlotRange};
use bytes::Bytes;
use reverie_core::{Error, Result};
use std::os::fd::OwnedFd;

/// From this position on, an empty slot is used from its start again, where bytes are warm and pages are present.
pub(super) const WARM: u64 = 512 << 10;

/// The client's end: takes the bytes of one message at a time.
#[derive(Debug)]
pub(crate) struct RingOutlet {
    number: u32,
    mapping: Mapping,
    /// The position where the next range may begin.
    end: u64,
    consumed: u64,
    /// The start, the room and the length of the current message's bytes.
    start: u64,
    room: u64,
    len: u64,
    /// All bytes of the message, if they turned out to be more than there was room for.
    spilled: Option<Vec<u8>>,
}

/// The place of a message's bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum BulkPlacement {
    /// In the slot.
    Slot(SlotRange),
    /// The bytes did not fit, and go inside the message.
    Spilled(Bytes),
}

impl RingOutlet {
    /// Maps the slot that the server gave. `Protocol` if it is not as described.
    pub(crate) fn open(slot: &Slot, fd: &OwnedFd) -> Result<Self> {
        let size = usize::try_from(slot.size_bytes)
            .map_err(|_| Error::Protocol(format!("an insert slot of {} bytes", slot.size_bytes)))?;
        let mapping = Mapping::open(fd, size)?;
        Ok(Self { number: slot.slot, mapping, end: 0, consumed: 0, start: 0, room: 0, len: 0, spilled: None })
    }

    /// The size of the slot.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// True if a range was put in.
    pub(crate) fn is_used(&self) -> bool {
        self.end > 0
    }

    /// Notes that the server has copied everything before `end`. `Protocol` if it cannot have.
    pub(crate) fn consumed(&mut self, number: u32, end: u64) -> Result<()> {
        if number != self.number {
            // The previous slot.
            return Ok(());
        }
        if end < self.consumed || end > self.end {
            return Err(Error::Protocol(format!("bytes before {end} were consumed, but {} were sent", self.end)));
        }
        self.consumed = end;
        Ok(())
    }

    /// Makes room for a message of about `size` bytes; drops bytes of a message that was not ended.
    /// False if there is no room until more is consumed, or never if the slot is too small.
    pub(crate) fn begin(&mut self, size: u64) -> bool {
        let all = self.size_bytes();
        let begins_again = all - self.end % all < size || (self.consumed == self.end && self.end % all >= WARM);
        let start = if begins_again { self.end.next_multiple_of(all) } else { self.end };
        let until = self.consumed_before(start) + all;
        (self.start, self.len, self.spilled) = (start, 0, None);
        self.room = (all - start % all).min(until.saturating_sub(start));
        self.room >= size
    }

    /// The consumed position when a range begins at `start`: in an empty ring, everything before it.
    fn consumed_before(&self, start: u64) -> u64 {
        if self.consumed == self.end { start } else { self.consumed }
    }

    /// Ends the message's bytes.
    pub(crate) fn end(&mut self) -> BulkPlacement {
        let len = std::mem::take(&mut self.len);
        if let Some(bytes) = self.spilled.take() {
            return BulkPlacement::Spilled(Bytes::from(bytes));
        }
        self.consumed = self.consumed_before(self.start);
        self.end = self.start + len;
        self.room -= len;
        BulkPlacement::Slot(SlotRange { slot: self.number, start: self.start, size_bytes: len })
    }

    fn offset(&self) -> usize {
        (self.start % self.size_bytes()) as usize
    }
}

impl BulkSink for RingOutlet {
    fn put(&mut self, bytes: &[u8]) {
        let more = bytes.len() as u64;
        if self.spilled.is_none() && self.len + more > self.room {
            // Chunks grow while they are encoded: bytes that were expected to fit may not.
            self.spilled = Some(self.mapping.read(self.offset(), self.len as usize));
        }
        match &mut self.spilled {
            Some(all) => all.extend_from_slice(bytes),
            None => self.mapping.copy_in(self.offset() + self.len as usize, bytes),
        }
        self.len += more;
    }

    fn len(&self) -> u64 {
        self.len
    }
}
