//! Rows of many slabs, gathered column by column; in the `unsafe` module of slabs.

use super::Slab;
use super::fill::copy_small;
use crate::chunk::layout::Layout;
use crate::prefetch::prefetch_address;
use crate::stores::Stores;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of plain chunks with one layout, to gather column by column without reading the chunks again.
#[derive(Debug)]
pub(crate) struct SlabRows<'a> {
    layout: &'a Arc<Layout>,
    /// The layout last found to be equal.
    alike: &'a Arc<Layout>,
    /// The cells, relative to each row's anchor, that are known to be published.
    cells: Range<i64>,
    rows: Vec<SlabRow<'a>>,
    /// The largest place plus one.
    places: usize,
}

/// A position in a slab, and the place of the batch that it fills.
#[derive(Clone, Copy, Debug)]
struct SlabRow<'a> {
    base: *const u8,
    anchor: u32,
    place: u32,
    slab: PhantomData<&'a Slab>,
}

impl<'a> SlabRows<'a> {
    /// Creates an empty list. For each added row, `cells` relative to its anchor can be gathered.
    pub(crate) fn new(layout: &'a Arc<Layout>, cells: Range<i64>, capacity: usize) -> Self {
        Self { layout, alike: layout, cells, rows: Vec::with_capacity(capacity), places: 0 }
    }

    /// Adds the position `anchor` of the slab, for the place `place`.
    ///
    /// False if the slab has another layout or has not published the cells in all columns.
    #[inline(always)]
    pub(crate) fn push(&mut self, slab: &'a Slab, anchor: u32, place: u32) -> bool {
        let known = Arc::ptr_eq(self.layout, &slab.layout) || Arc::ptr_eq(self.alike, &slab.layout);
        let alike = known || self.layout.places() == slab.layout.places();
        let published = i64::from(slab.rows.load(Ordering::Acquire));
        // Saturated bounds are beyond every anchor, as the sums would be.
        let (least, most) = (self.cells.start.saturating_neg(), published.saturating_sub(self.cells.end));
        let fits = alike && (least..=most).contains(&i64::from(anchor));
        if fits {
            self.alike = &slab.layout;
            self.places = self.places.max(place as usize + 1);
            self.rows.push(SlabRow { base: slab.base.as_ptr(), anchor, place, slab: PhantomData });
        }
        fits
    }

    /// The number of rows.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Prefetches the cache line of a column's cell, `relative` to the anchor of each of these rows.
    ///
    /// A loop of its own, and a short one: a processor looks a few hundred instructions ahead, and the more rows are in
    /// them, the more of their misses overlap.
    pub(crate) fn prefetch(&self, rows: Range<usize>, column: usize, relative: i64) {
        let place = *self.layout.place(column);
        for row in &self.rows[rows] {
            let index = i64::from(row.anchor).wrapping_add(relative) as usize;
            prefetch_address(row.base.wrapping_add(place.offset.wrapping_add(index.wrapping_mul(place.stride))));
        }
    }

    /// Copies `n` cells of the column from each row to its place in `out`; the first cell is `relative` to the anchor.
    ///
    /// A place is as large as `n` cells. `stores` have begun, and are finished before `out` is read. Panics if the cells are not among those of [`SlabRows::new`], or `out` lacks the
    /// place.
    pub(crate) fn gather(&self, column: usize, relative: i64, n: usize, out: &mut [MaybeUninit<u8>], stores: Stores) {
        let place = *self.layout.place(column);
        assert!(self.cells.start <= relative && n as i64 <= self.cells.end - relative, "cells that were not promised");
        if n > 1 && place.stride != place.width {
            return self.gather_with(relative, n * place.width, out, |row, first, to| {
                for index in 0..n {
                    let from = row.base.wrapping_add(place.offset + (first + index) * place.stride);
                    // SAFETY: as below, cell by cell; `to` has room for `n` cells.
                    unsafe { copy_small(from, to.add(index * place.width), place.width) };
                }
            });
        }
        let bytes = n * place.width;
        macro_rules! copies {
            ($($width:literal)*) => {
                match bytes {
                    $($width => self.gather_with(relative, $width, out, |row, first, to| {
                        let from = row.base.wrapping_add(place.offset + first * place.stride);
                        // SAFETY: `push` checked that the row's cells are published, `gather_with` that `to` has room
                        // for as many bytes, and a `&mut` does not overlap published bytes.
                        unsafe { ptr::copy_nonoverlapping(from, to, $width) }
                    }),)*
                    _ => self.gather_with(relative, bytes, out, |row, first, to| {
                        let from = row.base.wrapping_add(place.offset + first * place.stride);
                        // SAFETY: as above; the caller of `gather` began these stores, and drops their `StoreFence`.
                        unsafe { stores.copy(from, to, bytes) }
                    }),
                }
            };
        }
        copies!(1 2 4 8 12 16 20 24 28 32 48 64)
    }

    /// Calls `copy(row, first cell, destination)` for each row; the destination has room for `bytes`.
    #[inline(always)]
    fn gather_with(
        &self,
        relative: i64,
        bytes: usize,
        out: &mut [MaybeUninit<u8>],
        copy: impl Fn(&SlabRow<'_>, usize, *mut u8),
    ) {
        // One check for all rows: none has a place beyond `places`.
        let out = out[..self.places * bytes].as_mut_ptr().cast::<u8>();
        for row in &self.rows {
            let to = out.wrapping_add(row.place as usize * bytes);
            copy(row, (i64::from(row.anchor) + relative) as usize, to);
        }
    }
}
