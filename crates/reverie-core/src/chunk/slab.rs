//! The memory of chunks, in an `unsafe` module: an allocation that one pen fills while others read.
//!
//! A slab is not zeroed. Bytes become readable when a column's published length passes them, and never change after
//! that: readers hold plain slices of published cells while the pen writes after them. The functions here are safe to
//! call with any arguments; each `unsafe` states its reason.

mod fill;
mod reserve;
mod rows;

use fill::copy_small;
pub use fill::{fill, filled};
pub(crate) use fill::{fill_with, zeroed};
pub(crate) use rows::SlabRows;

use super::layout::{ALIGN, ColumnPlace, Layout};
use std::alloc;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The memory of one chunk.
#[derive(Debug)]
pub(crate) struct Slab {
    /// The start of `layout.size_bytes()` bytes, owned.
    base: NonNull<u8>,
    /// The number of cells that every column has published: one load serves all columns.
    rows: AtomicU32,
    /// True once a cell without a value exists; only then are the bits at `holes_at` initialised.
    holes: AtomicBool,
    /// Identifies the pen that may write.
    id: u64,
    layout: Arc<Layout>,
}

/// The right to write one slab: created with it, exactly once; cannot be copied.
#[derive(Debug)]
pub(super) struct SlabWriteToken {
    id: u64,
    /// The number of columns whose length is `rows`: when the last of them grows, `rows` does.
    lagging: usize,
}

// SAFETY: `base` is owned. Cells below a published length are never written again, cells above it are touched only
// through the slab's one `SlabWriteToken` (`&mut`), lengths and bits are atomics.
unsafe impl Send for Slab {}
// SAFETY: as for `Send`.
unsafe impl Sync for Slab {}

impl Slab {
    /// Memory for `layout`, empty, and the one pen that writes it.
    pub(super) fn new(layout: Arc<Layout>) -> (Self, SlabWriteToken) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `alloc_layout` never has size zero.
        let base = unsafe { reserve::allocate(alloc_layout(&layout)) };
        // SAFETY: `lengths_at` is a multiple of four with room for one `u32` per column, inside the allocation,
        // whose start has at least that alignment. All-zero bytes are valid lengths.
        unsafe { ptr::write_bytes(base.add(layout.lengths_at()).as_ptr(), 0, size_of::<u32>() * layout.num_columns()) };
        let write_token = SlabWriteToken { id, lagging: layout.num_columns() };
        (Self { base, rows: AtomicU32::new(0), holes: AtomicBool::new(false), id, layout }, write_token)
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    fn lengths(&self) -> &[AtomicU32] {
        // SAFETY: initialised in `new`, aligned and in bounds as said there, and only ever used as atomics.
        unsafe {
            slice::from_raw_parts(self.base.add(self.layout.lengths_at()).cast().as_ptr(), self.layout.num_columns())
        }
    }

    /// The number of published cells of the column.
    pub(super) fn len(&self, column: usize) -> usize {
        self.lengths()[column].load(Ordering::Acquire) as usize
    }

    /// True if the cell is published: one load from the slab's header if its row is complete.
    #[inline]
    fn published(&self, column: usize, end: usize) -> bool {
        end <= self.rows.load(Ordering::Acquire) as usize || end <= self.len(column)
    }

    /// The published bytes of one cell; zeros if it holds no value.
    #[inline]
    pub(super) fn cell(&self, column: usize, index: usize) -> Option<&[u8]> {
        let place = self.layout.place(column);
        // SAFETY: published cells are in bounds, initialised, and never written again.
        (index < usize::MAX && self.published(column, index + 1))
            .then(|| unsafe { slice::from_raw_parts(self.at(place, index), place.width) })
    }

    /// `n` published cells in one slice, if the column's cells are contiguous.
    #[inline]
    pub(crate) fn run(&self, column: usize, first: usize, n: usize) -> Option<&[u8]> {
        let place = self.layout.place(column);
        let end = first.checked_add(n)?;
        // SAFETY: published cells are in bounds, initialised and never written again, and with the stride equal to
        // the width there are no other bytes between them.
        (place.stride == place.width && n > 0 && self.published(column, end))
            .then(|| unsafe { slice::from_raw_parts(self.at(place, first), n * place.width) })
    }

    /// The address of a cell. Sound to use for an `index` up to the layout's capacity.
    #[inline]
    fn at(&self, place: &ColumnPlace, index: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(place.offset + index * place.stride)
    }

    /// True if the cell is published and holds a value.
    pub(super) fn has(&self, column: usize, index: usize) -> bool {
        index < self.len(column) && !(self.has_holes() && self.hole(column, index))
    }

    /// True if all these cells are published and hold values.
    pub(super) fn has_run(&self, column: usize, first: usize, n: usize) -> bool {
        let end = first.checked_add(n).filter(|end| *end <= self.len(column));
        end.is_some_and(|end| !self.has_holes() || !(first..end).any(|index| self.hole(column, index)))
    }

    /// The number of cells that every column has published.
    pub(super) fn rows(&self) -> usize {
        self.rows.load(Ordering::Acquire) as usize
    }

    /// True if some published cell may hold no value.
    pub(super) fn has_holes(&self) -> bool {
        self.holes.load(Ordering::Acquire)
    }

    fn hole(&self, column: usize, index: usize) -> bool {
        self.hole_bits()[column * self.layout.capacity().div_ceil(8) + index / 8].load(Ordering::Relaxed)
            & (1 << (index % 8))
            != 0
    }

    /// The bits of cells without a value. Call it only after `holes` was read as true.
    fn hole_bits(&self) -> &[AtomicU8] {
        let len = self.layout.num_columns() * self.layout.capacity().div_ceil(8);
        assert!(self.holes.load(Ordering::Acquire));
        // SAFETY: zeroed before `holes` was set, in bounds by `Layout::finish`, only ever used as atomics.
        unsafe { slice::from_raw_parts(self.base.add(self.layout.holes_at()).cast().as_ptr(), len) }
    }

    /// Writes the next `n` cells of the column and publishes them. `cells` has their contiguous bytes.
    ///
    /// Panics if they do not fit, or if the pen is of another slab.
    #[inline]
    pub(super) fn push(&self, write_token: &mut SlabWriteToken, column: usize, cells: &[u8], n: usize) {
        let (first, place) = self.claim(write_token, column, n);
        // SAFETY: `claim` checked it.
        unsafe { self.write(&place, first, cells, n) };
        self.publish(write_token, column, first, n);
    }

    /// Like [`Slab::push`], for all columns in order, published together. Also panics if their number is wrong.
    #[inline]
    pub(super) fn push_rows<'a>(
        &self,
        write_token: &mut SlabWriteToken,
        columns: impl Iterator<Item = &'a [u8]>,
        n: usize,
    ) {
        let lengths = self.lengths();
        if write_token.lagging < lengths.len() || lengths.is_empty() {
            let written = columns.enumerate().map(|(column, cells)| self.push(write_token, column, cells, n)).count();
            return assert!(written == lengths.len(), "{written} columns for {}", lengths.len());
        }
        let (first, _) = self.claim(write_token, 0, n);
        let mut written = 0;
        for (place, cells) in self.layout.places().iter().zip(columns) {
            // SAFETY: the cells claimed in the first column exist in every other column, because the pen has checked
            // that none lags: all are equally long, and have the same capacity.
            unsafe { self.write(place, first, cells, n) };
            written += 1;
        }
        assert!(written == lengths.len(), "{written} columns for {}", lengths.len());
        let end = (first + n) as u32;
        lengths.iter().for_each(|length| length.store(end, Ordering::Release));
        self.rows.store(end, Ordering::Release);
    }

    /// Writes the bytes of `n` cells. Panics if their number is wrong.
    ///
    /// # Safety
    /// The cells must be in bounds, unpublished, and only the caller's pen may write them.
    #[inline(always)]
    unsafe fn write(&self, place: &ColumnPlace, first: usize, cells: &[u8], n: usize) {
        assert!(cells.len() == n * place.width, "{} bytes for {n} cells of {} bytes", cells.len(), place.width);
        if place.stride == place.width || n == 1 {
            // SAFETY: as required of the caller; `cells` cannot overlap them, as no slice of unpublished cells exists.
            unsafe { copy_small(cells.as_ptr(), self.at(place, first), cells.len()) };
        } else {
            for index in 0..n {
                let cell = &cells[index * place.width..][..place.width];
                // SAFETY: as above, cell by cell.
                unsafe { copy_small(cell.as_ptr(), self.at(place, first + index), place.width) };
            }
        }
    }

    /// Like [`Slab::push`], with the bytes from `fill(at, to)`.
    ///
    /// It fills all of `to` with the bytes `at` bytes after the first, and returns it. Called once, or for each cell if
    /// the cells are not contiguous.
    pub(super) fn push_with(
        &self,
        write_token: &mut SlabWriteToken,
        column: usize,
        n: usize,
        mut fill: impl for<'a> FnMut(usize, &'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) {
        let (first, place) = self.claim(write_token, column, n);
        let whole = place.stride == place.width || place.width == 0;
        let (pieces, cells) = if whole { (1, n) } else { (n, 1) };
        for piece in 0..pieces {
            let (start, bytes) = (self.at(&place, first + piece), cells * place.width);
            // SAFETY: `claim` checked that the cells are in bounds, unpublished, and only the pen's to write, and the
            // pen is borrowed as long as the slice lives: nothing else refers to these bytes.
            let to = unsafe { slice::from_raw_parts_mut(start.cast::<MaybeUninit<u8>>(), bytes) };
            let filled = fill(piece * place.width, to);
            // Published bytes are initialised: only a caller that filled `to` can return a slice of bytes at this
            // address.
            assert!(filled.as_ptr() == start && filled.len() == bytes, "a filler gives back what it was given");
        }
        self.publish(write_token, column, first, n);
    }

    /// Publishes one cell without a value.
    pub(super) fn skip(&self, write_token: &mut SlabWriteToken, column: usize) {
        let (index, place) = self.claim(write_token, column, 1);
        if !self.has_holes() {
            let bytes = self.layout.num_columns() * self.layout.capacity().div_ceil(8);
            // SAFETY: in bounds by `Layout::finish`, and no thread has read them: `holes` is false.
            unsafe { ptr::write_bytes(self.base.add(self.layout.holes_at()).as_ptr(), 0, bytes) };
            self.holes.store(true, Ordering::Release);
        }
        let bits = &self.hole_bits()[column * self.layout.capacity().div_ceil(8) + index / 8];
        bits.fetch_or(1 << (index % 8), Ordering::Relaxed);
        // SAFETY: as in `push`. Zeros, so that every published byte is initialised.
        unsafe { ptr::write_bytes(self.at(&place, index), 0, place.width) };
        self.publish(write_token, column, index, 1);
    }

    /// Checks that the pen may write `n` more cells of the column; returns the first.
    #[inline]
    fn claim(&self, write_token: &SlabWriteToken, column: usize, n: usize) -> (usize, ColumnPlace) {
        assert!(write_token.id == self.id, "the pen of another chunk");
        let first = self.lengths()[column].load(Ordering::Relaxed) as usize;
        let capacity = self.layout.capacity();
        assert!(n <= capacity - first, "{n} more cells in column {column}, which has {first} of {capacity}");
        (first, *self.layout.place(column))
    }

    #[inline]
    fn publish(&self, write_token: &mut SlabWriteToken, column: usize, first: usize, n: usize) {
        let (lengths, rows) = (self.lengths(), self.rows.load(Ordering::Relaxed) as usize);
        lengths[column].store((first + n) as u32, Ordering::Release);
        if first == rows && n > 0 {
            write_token.lagging -= 1;
            if write_token.lagging == 0 {
                let all = || lengths.iter().map(|length| length.load(Ordering::Relaxed));
                let rows = all().min().expect("a column was written");
                write_token.lagging = all().filter(|length| *length == rows).count();
                self.rows.store(rows, Ordering::Release);
            }
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and no slice of it can exist any more.
        unsafe { reserve::free(self.base, alloc_layout(&self.layout)) };
    }
}

fn alloc_layout(layout: &Layout) -> alloc::Layout {
    alloc::Layout::from_size_align(layout.size_bytes().max(1), ALIGN).expect("checked by `Layout::finish`")
}
