//! The options of a batch, and its arrays.

use crate::error::{Error, Result};
use crate::spec::DType;
use std::mem::MaybeUninit;

/// The memory of an array that is filled.
pub(super) type ArrayBytes = [MaybeUninit<u8>];

/// The handling of a column whose items have unequal lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ragged {
    /// An error that names the column and the lengths.
    #[default]
    Refuse,
    /// `[B, longest, ...]`, with zeros after each item's last cell, and a mask.
    Pad,
    /// `[sum of lengths, ...]` and the lengths.
    ///
    /// A column whose cells are stacked behind other axes (`stack_axis > 0`) has no leading axis to concatenate along:
    /// its lengths must be equal, and it stays stacked.
    Values,
    /// Unequal lengths are refused. Cells that differ in size are padded to the largest, and each column of such cells
    /// has a mask of its own, also if there is one of them.
    PadCells,
}

/// The options of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchOptions<'a> {
    /// The handling of unequal lengths.
    pub ragged: Ragged,
    /// The paths to read; `None` for all. A path above columns (`obs`) means every column below it.
    pub columns: Option<&'a [String]>,
}

/// The options of draws that a caller takes apart item by item.
pub const ONE_BY_ONE: BatchOptions<'static> = BatchOptions { ragged: Ragged::PadCells, columns: None };

/// The content of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The cells of a column; these come first, in the order of the plan's structure.
    Column,
    /// bool `[B, longest]`: true where an item has a cell.
    ///
    /// For the column output with that index; `None` for every column with a time axis.
    Mask(Option<usize>),
    /// int64 `[B]`: the number of cells of each item.
    ///
    /// For the column output with that index; `None` for every column that is returned as values.
    Lengths(Option<usize>),
    /// The starts in windows: bool `[B, T]`, true where an episode or the window begins.
    First,
    /// The positions of windows: int64 `[B]`, the step of the item at which each begins; below 0 if it begins with
    /// padding.
    Start,
}

/// One array to allocate: contiguous, in C order and native byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputArray {
    /// The column's path; `mask` or `lengths` if it applies to all columns.
    pub path: String,
    /// The type of an element.
    pub dtype: DType,
    /// Bytes of an element: for bytes and str the widest of the batch; narrower ones are padded with zeros.
    pub itemsize: usize,
    /// The whole shape, batch axis included.
    pub shape: Vec<usize>,
    /// The content.
    pub role: Role,
}

impl OutputArray {
    /// Refuses an array that is too large for memory.
    pub(super) fn check_size(&self) -> Result<()> {
        let fits = self.shape.iter().try_fold(self.itemsize, |bytes, size| bytes.checked_mul(*size));
        if fits.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            let reason =
                format!("an array of shape {:?} is too large for the address space; ask for fewer items", self.shape);
            return Err(Error::Ragged { path: self.path.clone(), reason });
        }
        Ok(())
    }

    /// Bytes of the array.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.itemsize
    }
}

/// The error for cells that an item's chunks do not have.
pub(super) fn missing(path: &str) -> Error {
    Error::Signature {
        path: path.to_owned(),
        got: "an item refers to cells that its chunks do not have".to_owned(),
        want: "items that a table has taken".to_owned(),
    }
}
