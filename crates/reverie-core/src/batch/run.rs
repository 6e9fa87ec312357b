//! Consecutive cells of a chunk, and how they become the cells of an item in the batch.

use super::output::{ArrayBytes, missing};
use super::plan::{Column, OutputKind};
use super::sizes::Sizes;
use crate::chunk::slab::{Slab, fill};
use crate::chunk::{CellsView, Chunk, Layout};
use crate::error::Result;
use crate::item::{Body, Cells, Item, PatternColumn};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// `n` consecutive cells of a chunk's column, which become the cells from `at` on of their item.
#[derive(Clone, Copy)]
pub(super) struct CellRun {
    pub(super) source: usize,
    pub(super) first: usize,
    pub(super) n: usize,
    pub(super) at: usize,
}

/// Copies the cells of a run to a place of as many bytes; `None` if they are not there.
pub(super) fn copy_cells(
    view: &CellsView<'_>,
    CellRun { source, first, n, .. }: CellRun,
    to: &mut ArrayBytes,
) -> Option<()> {
    if let Some(cells) = view.run(source, first, n) {
        fill(to, cells);
        return Some(());
    }
    let width = to.len() / n.max(1);
    for index in 0..n {
        fill(&mut to[index * width..][..width], view.cell(source, first + index)?);
    }
    Some(())
}

impl Column {
    /// Calls `each` for the runs that the item's cells fall into, in order. Fails for a cell beyond the body.
    pub(super) fn each_run<'a>(
        &self,
        item: &'a Item,
        source: &PatternColumn,
        mut each: impl FnMut(&'a Arc<Chunk>, CellRun) -> Result<()>,
    ) -> Result<()> {
        let len = source.cells.len();
        let consecutive = matches!(source.cells, Cells::Range { step: 1, .. });
        let mut at = 0;
        while at < len {
            let relative = source.cells.get(at);
            let (chunk, first) = item.locate(source.part, relative).ok_or_else(|| missing(&source.spec.path))?;
            let n = match (&item.body, consecutive) {
                (_, false) => 1,
                (Body::Chunk(_), true) => len - at,
                (Body::Span(parts), true) => {
                    let starts = &parts[source.part as usize].starts;
                    let position = i64::from(item.anchor) + relative;
                    let end = starts[starts.partition_point(|start| *start <= position)..].first();
                    end.map_or(len - at, |end| (len - at).min((end - position) as usize))
                }
            };
            each(chunk, CellRun { source: source.column as usize, first, n, at })?;
            at += n;
        }
        Ok(())
    }

    /// Calls `each` for the cells of an item, with the chunk, the cell's index in it, and its place in the column.
    ///
    /// Writes zeros where a padded item has no data. Fails for a cell of another width than planned.
    pub(super) fn each_cell<'a>(
        &self,
        sizes: &Sizes,
        (number, item): (usize, &'a Item),
        source: &PatternColumn,
        out: &mut ArrayBytes,
        mut each: impl FnMut(&'a Arc<Chunk>, usize, Range<usize>),
    ) -> Result<()> {
        let (place, bytes) = (self.range(number), sizes.bytes_of(number));
        let mut at = place.start;
        self.each_run(item, source, |chunk, run| {
            for index in 0..run.n {
                let (layout, end) = (chunk.layout(), at + bytes(run.at + index));
                if run.source >= layout.num_columns() || layout.width(run.source) != end - at {
                    return Err(missing(&source.spec.path));
                }
                if end > at {
                    each(chunk, run.first + index, at..end);
                }
                at = end;
                if sizes.padded {
                    at = place.start + (run.at + index + 1) * self.cell_bytes();
                    out[end..at].fill(MaybeUninit::new(0));
                }
            }
            Ok(())
        })?;
        out[at..place.end].fill(MaybeUninit::new(0));
        Ok(())
    }

    /// Writes zeros after the last cell of an item shorter than the longest.
    pub(super) fn zero_tail(&self, cells: usize, to: &mut ArrayBytes) {
        if self.kind == OutputKind::Padded && cells < self.steps {
            let first = if self.outer == 1 { cells * self.cell_bytes() } else { 0 };
            to[first..].iter_mut().for_each(|byte| {
                byte.write(0);
            });
        }
    }

    /// The bytes of a run that can be copied to the batch in one piece.
    #[inline]
    pub(super) fn whole<'a>(&self, slab: &'a Slab, run: CellRun) -> Option<&'a [u8]> {
        if self.fits(slab.layout(), run.source) { slab.run(run.source, run.first, run.n) } else { None }
    }

    /// True if the cells of the chunk's column become those of the batch as they are, one behind the other.
    pub(super) fn is_copied(&self, chunk: &Chunk, source: usize) -> bool {
        self.sizes.is_some() || self.fits(chunk.layout(), source)
    }

    #[inline]
    fn fits(&self, layout: &Layout, source: usize) -> bool {
        self.outer == 1 && source < layout.num_columns() && layout.width(source) == self.cell_bytes()
    }

    /// The place of a run that is copied, in its column of the batch; `to` is that of its item.
    pub(super) fn place(&self, run: &CellRun, to: &Range<usize>) -> Range<usize> {
        if self.sizes.is_some() {
            return to.clone(); // The place of one cell.
        }
        let width = self.cell_bytes();
        to.start + run.at * width..to.start + (run.at + run.n) * width
    }

    /// Copies a run to its place in the item's part of the batch.
    ///
    /// `None` if the chunk does not have the cells, or not in this width.
    pub(super) fn copy(&self, view: &CellsView<'_>, chunk: &Chunk, run: CellRun, to: &mut ArrayBytes) -> Option<()> {
        if self.sizes.is_some() {
            return copy_cells(view, run, to);
        }
        let CellRun { source, first, n, at } = run;
        let layout = chunk.layout();
        if source >= layout.num_columns() {
            return None;
        }
        if self.is_copied(chunk, source) {
            let width = self.cell_bytes();
            return copy_cells(view, run, &mut to[at * width..(at + n) * width]);
        }
        let (width, itemsize) = (layout.width(source), layout.itemsize(source));
        let narrow = width != self.cell_bytes();
        if narrow && (width != self.elements * itemsize || itemsize > self.itemsize) {
            return None;
        }
        for index in 0..n {
            self.spread(view.cell(source, first + index)?, itemsize, at + index, to);
        }
        Some(())
    }

    /// Writes one cell whose pieces are not contiguous in the batch.
    ///
    /// The counting axis comes after others, or the elements are narrower than in the batch.
    fn spread(&self, cell: &[u8], itemsize: usize, at: usize, to: &mut ArrayBytes) {
        let inner = self.elements / self.outer.max(1);
        if self.outer > 1 && (inner, itemsize, self.itemsize) == (1, 1, 1) {
            // Frames stacked along their last axis: every byte has its own destination.
            to.chunks_exact_mut(self.steps).zip(cell).for_each(|(to, byte)| {
                to[at].write(*byte);
            });
            return;
        }
        for outer in 0..self.outer {
            let start = (outer * self.steps + at) * inner;
            let to = &mut to[start * self.itemsize..(start + inner) * self.itemsize];
            let from = &cell[outer * inner * itemsize..(outer + 1) * inner * itemsize];
            if itemsize == self.itemsize {
                fill(to, from);
            } else {
                for element in 0..inner {
                    let to = &mut to[element * self.itemsize..(element + 1) * self.itemsize];
                    let (text, rest) = to.split_at_mut(itemsize);
                    fill(text, &from[element * itemsize..(element + 1) * itemsize]);
                    rest.iter_mut().for_each(|byte| {
                        byte.write(0);
                    });
                }
            }
        }
    }
}
