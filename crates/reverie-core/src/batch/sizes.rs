//! Columns whose cells differ in the size of their first axis: the sizes, and the place of each cell in the batch.

use super::output::{Output, Ragged, Role};
use super::plan::{Column, Kind, missing};
use super::run::Bytes;
use crate::chunk::Chunk;
use crate::chunk::slab::fill;
use crate::error::{Error, Result};
use crate::item::{Item, Pattern, PatternColumn};
use crate::spec::ColumnSpec;
use std::borrow::Borrow;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// The sizes of a column's cells.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// The first size of each cell, item after item.
    rows: Vec<usize>,
    /// For each item its first cell in `rows`, then the number of all cells.
    first: Vec<usize>,
    /// The bytes at one index of a cell's first axis.
    row_bytes: usize,
    /// The items have a time axis: each has up to `steps` cells.
    has_time: bool,
}

/// True if a pattern leaves the size of the column's cells to the chunks.
pub(super) fn is_variable(patterns: &[&Pattern], source: usize) -> bool {
    patterns.iter().any(|pattern| pattern.columns[source].spec.is_variable())
}

impl Sizes {
    /// Reads the widths of the cells' chunks.
    pub(super) fn of<T: Borrow<Item>>(items: &[T], source: usize) -> Result<Self> {
        let first_column = &items[0].borrow().pattern.columns[source];
        let (path, row_bytes) = (&first_column.spec.path, first_column.spec.row_bytes().unwrap_or(0));
        let (mut rows, mut first) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len() + 1));
        for item in items.iter().map(Borrow::borrow) {
            first.push(rows.len());
            let PatternColumn { spec, part, column, cells, .. } = &item.pattern.columns[source];
            for relative in cells.iter() {
                let size = match spec.is_variable() {
                    false => spec.shape.first().copied(),
                    true => item.locate(*part, relative).and_then(|(chunk, _)| {
                        let layout = chunk.layout();
                        let at = *column as usize;
                        (at < layout.num_columns()).then(|| spec.rows_in(layout.width(at))).flatten()
                    }),
                };
                rows.push(size.ok_or_else(|| missing(path))?);
            }
        }
        first.push(rows.len());
        Ok(Self { rows, first, row_bytes, has_time: !first_column.squeeze })
    }

    /// The size of all cells, if it is one; 0 without cells.
    pub(super) fn common(&self) -> Option<usize> {
        let size = self.rows.first().copied().unwrap_or(0);
        self.rows.iter().all(|rows| *rows == size).then_some(size)
    }

    /// The sizes that occur, in order, as a message names them.
    fn named(&self) -> String {
        let mut sizes = self.rows.clone();
        sizes.sort_unstable();
        sizes.dedup();
        super::plan::named(&sizes)
    }

    /// The number of cells of an item.
    pub(super) fn cells_of(&self, item: usize) -> usize {
        self.first[item + 1] - self.first[item]
    }

    /// The column as the batch has it, padded or as values, and its array.
    pub(super) fn plan(self, spec: &ColumnSpec, source: &PlanSource, ragged: Ragged) -> Result<(Column, Output)> {
        if source.stack_axis > 0 && self.has_time {
            let reason = "cells of different sizes cannot be stacked behind other axes; make stack_axis 0".to_owned();
            return Err(Error::Ragged { path: spec.path.clone(), reason });
        }
        let (mut shape, row) = (spec.shape.clone(), spec.shape.iter().skip(1).product::<usize>());
        let (kind, elements, mut starts) = match ragged {
            Ragged::Refuse => {
                let advice = "pass ragged=\"pad\" for zeros and a mask, or ragged=\"values\" for values and lengths";
                let reason = format!("its cells have the sizes {}; {advice}", self.named());
                return Err(Error::Ragged { path: spec.path.clone(), reason });
            }
            Ragged::Pad => {
                let largest = self.rows.iter().copied().max().unwrap_or(0);
                shape[0] = largest;
                if self.has_time {
                    shape.insert(0, source.steps);
                }
                shape.insert(0, source.batch);
                let kind = if self.has_time { Kind::Padded } else { Kind::Squeezed };
                (kind, largest.checked_mul(row), Vec::new())
            }
            Ragged::Values => (Kind::Values, Some(row), vec![0]),
        };
        if kind == Kind::Values {
            let mut end = 0_usize;
            for item in 0..source.batch {
                end += self.rows[self.first[item]..self.first[item + 1]].iter().sum::<usize>();
                starts.push(end);
            }
            shape[0] = end;
        }
        let itemsize = spec.dtype.size().unwrap_or(1);
        let output = Output { path: spec.path.clone(), dtype: spec.dtype, itemsize, shape, role: Role::Column };
        output.check_size()?;
        let column = Column {
            source: source.column,
            kind,
            elements: elements.unwrap_or(0),
            itemsize,
            outer: 1,
            steps: if self.has_time { source.steps } else { 1 },
            starts,
            sizes: Some(Arc::new(self)),
        };
        Ok((column, output))
    }

    /// The shape of the mask, or of the lengths.
    pub(super) fn counts_shape(&self, column: &Column, batch: usize) -> Vec<usize> {
        let mut shape = vec![batch];
        if self.has_time {
            shape.push(column.steps);
        }
        if column.kind != Kind::Values {
            shape.push(self.largest(column));
        }
        shape
    }

    /// The first size of a padded cell.
    fn largest(&self, column: &Column) -> usize {
        column.cell_bytes() / self.row_bytes.max(1)
    }

    /// Writes the mask, or the lengths: zeros for cells that an item does not have.
    pub(super) fn write_counts(&self, column: &Column, out: &mut Bytes) {
        out.fill(MaybeUninit::new(0));
        let (values, largest) = (column.kind == Kind::Values, self.largest(column));
        let width = if values { size_of::<i64>() } else { largest };
        for (item, pair) in self.first.windows(2).enumerate() {
            for (at, rows) in self.rows[pair[0]..pair[1]].iter().enumerate() {
                let to = &mut out[(item * column.steps + at) * width..][..width];
                match values {
                    true => _ = fill(to, &(*rows as i64).to_ne_bytes()),
                    false => to[..*rows].fill(MaybeUninit::new(1)),
                }
            }
        }
    }

    /// Calls `each` for the cells of an item, with the chunk, the cell's index in it, and its place in the column.
    ///
    /// Writes zeros where a padded item has no data. Fails for a cell of another width than planned.
    pub(super) fn each_cell<'a>(
        &self,
        column: &Column,
        (number, item): (usize, &'a Item),
        source: &PatternColumn,
        out: &mut Bytes,
        mut each: impl FnMut(&'a Arc<Chunk>, usize, Range<usize>),
    ) -> Result<()> {
        let (place, sizes) = (column.range(number), &self.rows[self.first[number]..]);
        let (mut at, padded) = (place.start, column.kind != Kind::Values);
        column.each_run(item, source, |chunk, run| {
            for index in 0..run.n {
                let end = at + sizes[run.at + index] * self.row_bytes;
                let layout = chunk.layout();
                if run.source >= layout.num_columns() || layout.width(run.source) != end - at {
                    return Err(missing(&source.spec.path));
                }
                if end > at {
                    each(chunk, run.first + index, at..end);
                }
                at = if padded { place.start + (run.at + index + 1) * column.cell_bytes() } else { end };
                if padded {
                    out[end..at].fill(MaybeUninit::new(0));
                }
            }
            Ok(())
        })?;
        out[at..place.end].fill(MaybeUninit::new(0));
        Ok(())
    }
}

/// A column of the items' patterns that is planned.
pub(super) struct PlanSource {
    pub(super) column: usize,
    pub(super) stack_axis: u8,
    /// The cells of the longest item.
    pub(super) steps: usize,
    pub(super) batch: usize,
}

/// Refuses columns whose cells differ in size, where a batch cannot have them.
pub(super) fn refuse_variable(spec: &ColumnSpec, what: &str) -> Result<()> {
    if !spec.is_variable() {
        return Ok(());
    }
    let reason = format!("its cells may differ in size, which {what} cannot have; leave it out with columns=");
    Err(Error::Ragged { path: spec.path.clone(), reason })
}
