//! A batch that another process gathered: its arrays lie in one block of memory.

use super::OutputArray;
use crate::error::{Error, Result};
use crate::sample::Lease;
use crate::spec::Structure;
use crate::table::Tally;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// Arrays of 8-byte numbers before the outputs: the metadata of each draw.
///
/// In order: keys (i64), probabilities (f64), priorities (f64), table sizes, times sampled and versions (u64), and the
/// seconds at which the items were inserted (f64).
pub const INFO_ARRAYS: usize = 7;
/// Outputs begin at multiples of this.
pub const ALIGN: usize = 64;

/// The places of a batch's arrays in its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLayout {
    /// The arrays of numbers; see [`INFO_ARRAYS`].
    pub info: [Range<usize>; INFO_ARRAYS],
    /// The arrays of the outputs.
    pub outputs: Vec<Range<usize>>,
    /// The total size.
    pub size_bytes: usize,
}

impl BatchLayout {
    /// The layout of a batch of `n` draws. `Protocol` if its size overflows.
    pub fn new(n: usize, outputs: &[OutputArray]) -> Result<Self> {
        let overflow = || Error::Protocol(format!("a batch of {n} draws is too large for the address space"));
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

/// The description of a batch's arrays, shared by batches of the same form.
#[derive(Debug)]
pub struct Head {
    /// The arrays.
    pub outputs: Vec<OutputArray>,
    /// The structure that the columns fill.
    pub structure: Structure,
    /// The number of outputs that are columns.
    pub num_columns: usize,
    /// True if the items are single steps.
    pub timestep: bool,
}

/// The memory of a batch. Nothing else writes to it while it lives; it returns to its owner when it is dropped.
pub trait Block: Send + Sync {
    /// The start, a multiple of [`ALIGN`]; writable.
    fn as_ptr(&self) -> *mut u8;

    /// The number of bytes, all of which are filled.
    fn len(&self) -> usize;

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `start` on; panics if there are fewer than `to` has.
    fn copy_to(&self, start: usize, to: &mut [MaybeUninit<u8>]);

    /// A copy of some of the bytes; panics if there are fewer.
    fn copied(&self, range: Range<usize>) -> Vec<u8>;
}

/// A batch whose arrays were gathered by another process.
pub struct Arrays {
    /// The description of the arrays.
    pub head: Arc<Head>,
    /// The number of draws.
    pub num_draws: usize,
    /// See [`Draws::smallest_probability`](crate::sample::Draws::smallest_probability).
    pub smallest_probability: Option<f64>,
    /// See [`Draws::tally`](crate::sample::Draws::tally).
    pub tally: Option<Tally>,
    /// The places of the arrays in the block.
    pub layout: BatchLayout,
    /// The memory of the arrays.
    pub block: Arc<dyn Block>,
    /// See [`Draws::lease`](crate::sample::Draws::lease).
    pub lease: Lease,
}
