//! The large bytes that belong to messages: the layout of a batch's arrays, and reading and writing them.

use reverie_core::batch::Output;
use reverie_core::chunk::fill;
use reverie_core::spec::Structure;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Arrays of 8-byte numbers before the outputs: the metadata of each draw.
pub const INFO_ARRAYS: usize = 7;
/// Outputs begin at multiples of this.
pub const ALIGN: usize = 64;

/// The places of a batch's arrays in its bulk bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// The arrays of numbers, in the order of the proto.
    pub info: [Range<usize>; INFO_ARRAYS],
    /// The arrays of the outputs.
    pub outputs: Vec<Range<usize>>,
    /// The total size.
    pub size_bytes: usize,
}

impl BatchLayout {
    /// The layout of a batch of `n` draws. `Protocol` if its size overflows.
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

/// The description of the arrays, shared by batches of the same form.
#[derive(Debug)]
pub struct Head {
    /// The arrays.
    pub outputs: Vec<Output>,
    /// The structure that the columns fill.
    pub structure: Structure,
    /// The number of outputs that are columns.
    pub num_columns: usize,
    /// True if the items are single steps.
    pub timestep: bool,
}

/// Bulk bytes of an insert, as the server reads them.
/// The peer may still be able to change the memory, so they are only ever copied.
pub trait BulkIn {
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
impl BulkIn for bytes::Bytes {
    fn len(&self) -> u64 {
        self[..].len() as u64
    }

    fn copy_to<'a>(&self, offset: u64, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        let from = usize::try_from(offset).ok().and_then(|start| self.get(start..)?.get(..to.len()));
        fill(to, from.expect("bytes that were checked to be there"))
    }
}

/// The destination of an insert's bulk bytes at the client.
pub trait BulkOut {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);

    /// The number of bytes.
    fn len(&self) -> u64;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
