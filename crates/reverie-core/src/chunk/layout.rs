//! Where each column's cells lie inside a chunk's one allocation.

/// The place of one column: the cell `index` begins at `offset + index * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) width: usize,
    pub(super) itemsize: usize,
}

/// Where the columns of a chunk lie: shared by all chunks that a writer cuts alike.
///
/// The allocation holds the cells, then one published length per column, then one bit per cell for those
/// that hold no value.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    places: Box<[Place]>,
    capacity: usize,
    lengths_at: usize,
    holes_at: usize,
    size_bytes: usize,
}

/// Columns begin this far apart at least, so that two of them share no cache line but at their ends.
const LINE: usize = 64;

/// What every allocator gives without asking, and enough for every element type. A stricter one costs memory: glibc
/// then asks for more and gives the rest back in front, so that the room of a packed chunk never fits the next open
/// one, and a table of packed frames grew as if they were raw.
pub(super) const ALIGN: usize = 16;

impl Layout {
    /// Column after column, each contiguous: a trajectory is one copy per column.
    ///
    /// `cells` has for each column the bytes of a cell and of one of its elements; `capacity` is the cells
    /// that each column can hold. Panics where the size overflows or `capacity` is zero or above `u32::MAX`.
    pub fn columnar(cells: &[(usize, usize)], capacity: usize) -> Self {
        let mut end = 0_usize;
        let places = cells
            .iter()
            .map(|&(width, itemsize)| {
                let offset = end.next_multiple_of(LINE);
                end =
                    width.checked_mul(capacity).and_then(|bytes| bytes.checked_add(offset)).expect("a chunk too large");
                Place { offset, stride: width, width, itemsize }
            })
            .collect();
        Self::finish(places, capacity, end)
    }

    /// Row after row, the cells of a step together: a small transition is in one or two cache lines.
    /// Arguments and panics as [`Layout::columnar`].
    pub fn interleaved(cells: &[(usize, usize)], capacity: usize) -> Self {
        let align_of = |itemsize: usize| match itemsize {
            0 => 1,
            size => (1 << size.trailing_zeros().min(3)) as usize,
        };
        let (mut row, mut align) = (0_usize, 1);
        let mut places: Box<[Place]> = cells
            .iter()
            .map(|&(width, itemsize)| {
                let offset = row.next_multiple_of(align_of(itemsize));
                align = align.max(align_of(itemsize));
                row = offset.checked_add(width).expect("a row too large");
                Place { offset, stride: 0, width, itemsize }
            })
            .collect();
        let stride = row.next_multiple_of(align);
        places.iter_mut().for_each(|place| place.stride = stride);
        let end = stride.checked_mul(capacity).expect("a chunk too large");
        Self::finish(places, capacity, end)
    }

    fn finish(places: Box<[Place]>, capacity: usize, end: usize) -> Self {
        assert!(capacity > 0 && u32::try_from(capacity).is_ok(), "a chunk of {capacity} steps");
        let lengths_at = end.next_multiple_of(size_of::<u32>());
        let holes_at = lengths_at + size_of::<u32>() * places.len();
        let size_bytes = holes_at + places.len() * capacity.div_ceil(8);
        assert!(size_bytes < isize::MAX as usize - LINE, "a chunk of {size_bytes} bytes");
        Self { places, capacity, lengths_at, holes_at, size_bytes }
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn place(&self, column: usize) -> &Place {
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

    /// Bytes of one element of the column: of interest for bytes and str, whose dtype has no width.
    pub fn itemsize(&self, column: usize) -> usize {
        self.places[column].itemsize
    }

    /// Number of columns.
    pub fn num_columns(&self) -> usize {
        self.places.len()
    }

    /// Cells that each column can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of the whole allocation.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}
