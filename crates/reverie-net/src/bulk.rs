//! Large bytes beside the messages: where the arrays of a batch lie in them, and how they are read and written.

use reverie_core::batch::Output;
use reverie_core::chunk::fill;
use reverie_core::spec::Structure;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Arrays of 8-byte numbers that stand before the outputs: what is known of each draw.
pub const INFO_ARRAYS: usize = 7;
/// Outputs begin at multiples of it.
pub const ALIGN: usize = 64;

/// Where the arrays of a batch are in its bulk bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// The arrays of numbers, in the order of the proto.
    pub info: [Range<usize>; INFO_ARRAYS],
    /// The outputs' arrays.
    pub outputs: Vec<Range<usize>>,
    /// All bytes.
    pub size_bytes: usize,
}

impl BatchLayout {
    /// The layout of a batch of `n` draws. `Protocol` where it fits no memory.
    pub fn new(n: usize, outputs: &[Output]) -> Result<Self> {
        let overflow = || Error::Protocol(format!("a batch of {n} draws that fits no memory"));
        let bytes = n.checked_mul(8).ok_or_else(overflow)?;
        let info_end = bytes.checked_mul(INFO_ARRAYS).ok_or_else(overflow)?;
        let info = std::array::from_fn(|index| index * bytes..(index + 1) * bytes);
        let (mut ranges, mut end) = (Vec::with_capacity(outputs.len()), info_end);
        for output in outputs {
            let size = output.shape.iter().try_fold(output.itemsize, |bytes, size| bytes.checked_mul(*size));
            let start = end.checked_next_multiple_of(ALIGN).ok_or_else(overflow)?;
            end = size.and_then(|size| start.checked_add(size)).ok_or_else(overflow)?;
            ranges.push(start..end);
        }
        isize::try_from(end).map_err(|_| overflow())?;
        Ok(Self { info, outputs: ranges, size_bytes: end })
    }
}

/// What the arrays of batches that look alike are.
#[derive(Debug)]
pub struct Head {
    /// The arrays.
    pub outputs: Vec<Output>,
    /// What the columns fill.
    pub structure: Structure,
    /// How many of the outputs are columns.
    pub num_columns: usize,
    /// The items are steps inserted alone.
    pub timestep: bool,
}

/// Bulk bytes of an insert, where the server reads them. They may lie in memory that the peer can still change, so
/// they are only ever copied.
pub trait BulkIn {
    /// How many bytes there are.
    fn len(&self) -> u64;

    /// True where there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `offset` on into `to`, and gives it back filled: all of it. Panics where there are not so
    /// many: check against `len` first.
    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8];
}

/// Bytes of the message itself.
impl BulkIn for bytes::Bytes {
    fn len(&self) -> u64 {
        self[..].len() as u64
    }

    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..to.len()));
        fill(to, from.expect("bytes that were checked to be there"))
    }
}

/// Where the client puts the bulk bytes of an insert.
pub trait BulkOut {
    /// Puts bytes behind those that are there.
    fn put(&mut self, bytes: &[u8]);

    /// How many there are.
    fn len(&self) -> u64;

    /// True where there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
