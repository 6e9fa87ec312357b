//! The sizes of cells that differ in their first axis, and the arrays that they make.

use super::output::{ArrayBytes, Ragged, missing};
use crate::chunk::slab::fill;
use crate::error::{Error, Result};
use crate::item::{Item, Pattern, PatternColumn};
use crate::spec::ColumnSpec;
use std::borrow::Borrow;
use std::mem::MaybeUninit;

/// The sizes of a column's cells.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// The first size of each cell, item after item.
    rows: Vec<usize>,
    /// The first cell of each item in `rows`, then the number of all cells.
    first: Vec<usize>,
    /// The bytes at one index of a cell's first axis.
    row_bytes: usize,
    /// The cells of the longest item, if items have a time axis.
    steps: Option<usize>,
    /// Cells are padded to the largest, and not put one behind the other.
    pub(super) padded: bool,
}

/// True if a pattern leaves the size of the column's cells to the chunks.
pub(super) fn is_variable(patterns: &[&Pattern], source: usize) -> bool {
    patterns.iter().any(|pattern| pattern.columns[source].spec.is_variable())
}

/// Refuses columns whose cells differ in size, where a batch cannot have them.
pub(super) fn refuse_variable(spec: &ColumnSpec, what: &str) -> Result<()> {
    if !spec.is_variable() {
        return Ok(());
    }
    let reason = format!("its cells may differ in size, which {what} cannot have; leave it out with columns=");
    Err(Error::Ragged { path: spec.path.clone(), reason })
}

/// The first of these numbers and the last.
pub(super) fn named(numbers: &[usize]) -> String {
    let (few, more) = numbers.split_at(numbers.len().min(8));
    let mut named = few.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if let Some(last) = more.last() {
        named.push_str(&format!(", ... {last}"));
    }
    named
}

impl Sizes {
    /// Reads the widths of the cells' chunks. `longest`: the cells of the longest item.
    pub(super) fn of<T: Borrow<Item>>(items: &[T], source: usize, longest: usize, ragged: Ragged) -> Result<Self> {
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
                        let (layout, at) = (chunk.layout(), *column as usize);
                        (at < layout.num_columns()).then(|| spec.rows_in(layout.width(at))).flatten()
                    }),
                };
                rows.push(size.ok_or_else(|| missing(path))?);
            }
        }
        first.push(rows.len());
        let steps = (!first_column.squeeze).then_some(longest);
        Ok(Self { rows, first, row_bytes, steps, padded: ragged != Ragged::Values })
    }

    /// The size of all cells, if it is one; 0 without cells.
    pub(super) fn common(&self) -> Option<usize> {
        let size = self.rows.first().copied().unwrap_or(0);
        self.rows.iter().all(|rows| *rows == size).then_some(size)
    }

    /// Refuses a batch of cells of several sizes.
    pub(super) fn refused(&self, path: &str) -> Error {
        let mut sizes = self.rows.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let advice = "pass ragged=\"pad\" for zeros and a mask, or ragged=\"values\" for values and lengths";
        Error::Ragged { path: path.to_owned(), reason: format!("its cells have the sizes {}; {advice}", named(&sizes)) }
    }

    /// The number of cells of an item.
    pub(super) fn cells_of(&self, item: usize) -> usize {
        self.first[item + 1] - self.first[item]
    }

    /// The bytes of each cell of an item.
    pub(super) fn bytes_of(&self, item: usize) -> impl Fn(usize) -> usize + '_ {
        move |cell| self.rows[self.first[item] + cell] * self.row_bytes
    }

    /// The rows before each item, then all of them.
    pub(super) fn starts(&self) -> Vec<usize> {
        let rows = |pair: &[usize]| self.rows[pair[0]..pair[1]].iter().sum::<usize>();
        let ends = self.first.windows(2).scan(0, |end, pair| {
            *end += rows(pair);
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// The first size of a padded cell.
    pub(super) fn largest(&self) -> usize {
        self.rows.iter().copied().max().unwrap_or(0)
    }

    /// The places of an item's cells: one without a time axis.
    fn places(&self) -> usize {
        self.steps.unwrap_or(1)
    }

    /// The shape of the column's array, from that of a cell.
    pub(super) fn shape(&self, cell: &[usize]) -> Vec<usize> {
        let mut shape = cell.to_vec();
        if self.padded {
            shape[0] = self.largest();
            shape.splice(0..0, std::iter::once(self.first.len() - 1).chain(self.steps));
        } else {
            shape[0] = self.rows.iter().sum();
        }
        shape
    }

    /// The shape of the mask, or of the lengths.
    pub(super) fn counts_shape(&self) -> Vec<usize> {
        let largest = self.padded.then(|| self.largest());
        std::iter::once(self.first.len() - 1).chain(self.steps).chain(largest).collect()
    }

    /// Writes the mask, or the lengths: zeros for cells that an item does not have.
    pub(super) fn write_counts(&self, out: &mut ArrayBytes) {
        out.fill(MaybeUninit::new(0));
        let width = if self.padded { self.largest() } else { size_of::<i64>() };
        for (item, pair) in self.first.windows(2).enumerate() {
            for (at, rows) in self.rows[pair[0]..pair[1]].iter().enumerate() {
                let to = &mut out[(item * self.places() + at) * width..][..width];
                match self.padded {
                    true => to[..*rows].fill(MaybeUninit::new(1)),
                    false => _ = fill(to, &(*rows as i64).to_ne_bytes()),
                }
            }
        }
    }
}
