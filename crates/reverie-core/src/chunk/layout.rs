//! The positions of each column's cells inside a chunk's one allocation.

use crate::error::{Error, Result};

/// The place of one column: the cell `index` begins at `offset + index * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnPlace {
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) width: usize,
    pub(super) itemsize: usize,
}

/// The layout of a chunk's columns, shared by all chunks of a writer with the same columns.
///
/// The allocation holds the cells, then one published length per column, then one bit per cell, which is set if the
/// cell holds no value.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    places: Box<[ColumnPlace]>,
    capacity: usize,
    lengths_at: usize,
    holes_at: usize,
    size_bytes: usize,
    interleaved: bool,
}

/// Columns begin at least this far apart, so that two of them share no cache line except at their ends.
const LINE: usize = 64;

/// The alignment of allocations: every allocator guarantees it, and it is enough for every element type.
///
/// A stricter one costs memory: glibc then allocates more and returns the rest in front, so that the memory of a packed
/// chunk never fits the next open one, and a table of packed frames grew as if they were raw.
pub(super) const ALIGN: usize = 16;

impl Layout {
    /// Column after column, each contiguous: a trajectory is one copy per column.
    ///
    /// `cells` has for each column the bytes of a cell and of one of its elements; `capacity` is the number of cells of
    /// each column. Panics if the size overflows or `capacity` is zero or above `u32::MAX`.
    pub fn columnar(cells: &[(usize, usize)], capacity: usize) -> Self {
        Self::columns(cells, capacity).unwrap_or_else(|| panic!("a chunk of {capacity} steps is too large"))
    }

    /// Row after row, the cells of a step together: a small transition is in one or two cache lines.
    ///
    /// Arguments and panics as for [`Layout::columnar`].
    pub fn interleaved(cells: &[(usize, usize)], capacity: usize) -> Self {
        Self::rows(cells, capacity).unwrap_or_else(|| panic!("a chunk of {capacity} steps is too large"))
    }

    /// A layout from unchecked numbers.
    ///
    /// `InvalidArgument`: no columns, a capacity of zero or above `u32::MAX`, cells that are not whole elements, a size
    /// that overflows.
    pub fn checked(cells: &[(usize, usize)], capacity: usize, interleaved: bool) -> Result<Self> {
        let whole = |(width, itemsize): &(usize, usize)| match itemsize {
            0 => *width == 0,
            itemsize => width % itemsize == 0,
        };
        let layout = match interleaved {
            true => Self::rows(cells, capacity),
            false => Self::columns(cells, capacity),
        };
        layout.filter(|_| !cells.is_empty() && cells.iter().all(whole)).ok_or_else(|| {
            Error::InvalidArgument(format!("{capacity} steps of {} columns cannot be laid out", cells.len()))
        })
    }

    fn columns(cells: &[(usize, usize)], capacity: usize) -> Option<Self> {
        let mut end = 0_usize;
        let place = |&(width, itemsize): &(usize, usize)| {
            let offset = end.checked_next_multiple_of(LINE)?;
            end = width.checked_mul(capacity)?.checked_add(offset)?;
            Some(ColumnPlace { offset, stride: width, width, itemsize })
        };
        let places = cells.iter().map(place).collect::<Option<_>>()?;
        Self::finish(places, capacity, end, false)
    }

    fn rows(cells: &[(usize, usize)], capacity: usize) -> Option<Self> {
        let align_of = |itemsize: usize| match itemsize {
            0 => 1,
            size => (1 << size.trailing_zeros().min(3)) as usize,
        };
        let (mut row, mut align) = (0_usize, 1);
        let place = |&(width, itemsize): &(usize, usize)| {
            let offset = row.checked_next_multiple_of(align_of(itemsize))?;
            align = align.max(align_of(itemsize));
            row = offset.checked_add(width)?;
            Some(ColumnPlace { offset, stride: 0, width, itemsize })
        };
        let mut places = cells.iter().map(place).collect::<Option<Box<[ColumnPlace]>>>()?;
        let stride = row.checked_next_multiple_of(align)?;
        places.iter_mut().for_each(|place| place.stride = stride);
        Self::finish(places, capacity, stride.checked_mul(capacity)?, true)
    }

    fn finish(places: Box<[ColumnPlace]>, capacity: usize, end: usize, interleaved: bool) -> Option<Self> {
        u32::try_from(capacity).ok().filter(|capacity| *capacity > 0)?;
        let lengths_at = end.checked_next_multiple_of(size_of::<u32>())?;
        let holes_at = size_of::<u32>().checked_mul(places.len())?.checked_add(lengths_at)?;
        let size_bytes = capacity.div_ceil(8).checked_mul(places.len())?.checked_add(holes_at)?;
        (size_bytes < isize::MAX as usize - LINE).then_some(Self {
            places,
            capacity,
            lengths_at,
            holes_at,
            size_bytes,
            interleaved,
        })
    }

    /// True if the cells of a step are stored together.
    pub fn is_interleaved(&self) -> bool {
        self.interleaved
    }

    pub(super) fn places(&self) -> &[ColumnPlace] {
        &self.places
    }

    pub(super) fn place(&self, column: usize) -> &ColumnPlace {
        &self.places[column]
    }

    pub(super) fn lengths_at(&self) -> usize {
        self.lengths_at
    }

    pub(super) fn holes_at(&self) -> usize {
        self.holes_at
    }

    /// Bytes of one cell of the column.
    pub fn width(&self, column: usize) -> usize {
        self.places[column].width
    }

    /// Bytes before the first cell of the column.
    pub fn offset(&self, column: usize) -> usize {
        self.places[column].offset
    }

    /// Bytes from one cell of the column to the next.
    pub fn stride(&self, column: usize) -> usize {
        self.places[column].stride
    }

    /// Bytes of one element of the column: needed for bytes and str, whose dtype has no width.
    pub fn itemsize(&self, column: usize) -> usize {
        self.places[column].itemsize
    }

    /// The number of columns.
    pub fn num_columns(&self) -> usize {
        self.places.len()
    }

    /// The number of cells of each column.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the whole allocation.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}
