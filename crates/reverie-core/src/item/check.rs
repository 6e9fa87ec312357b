//! Checks that an item refers to existing cells.

use super::{Body, Cells, Item, Part, PatternColumn};
use crate::chunk::Chunk;
use crate::error::{Error, Result};
use crate::spec::DType;

impl Item {
    /// Checks an item from outside for what tables and batches rely on.
    ///
    /// Every cell must exist and hold a value, with the width of its dtype and shape.
    pub fn check(&self) -> Result<()> {
        self.pattern.columns.iter().try_for_each(|column| self.check_column(column))
    }

    fn check_column(&self, column: &PatternColumn) -> Result<()> {
        let Cells::Range { start, step: 1, len } = &column.cells else {
            return column.cells.iter().try_for_each(|relative| self.check_run(column, relative, 1).map(|_| ()));
        };
        let (mut at, end) = (i64::from(*start), i64::from(*start) + i64::from(*len));
        while at < end {
            at += self.check_run(column, at, (end - at) as usize)? as i64;
        }
        Ok(())
    }

    /// Checks as many of `n` consecutive cells as are in one chunk; returns their number.
    fn check_run(&self, column: &PatternColumn, relative: i64, n: usize) -> Result<usize> {
        let missing = || refuse(column, "a cell that was never written", "cells that were appended before the item");
        let (chunk, first) = self.locate(column.part, relative).ok_or_else(missing)?;
        let n = match &self.body {
            Body::Chunk(_) => n,
            Body::Span(parts) => n.min(left(&parts[column.part as usize], i64::from(self.anchor) + relative)),
        };
        let at = column.column as usize;
        if !chunk.has_run(at, first, n) {
            return Err(missing());
        }
        check_width(column, chunk, at)?;
        Ok(n)
    }
}

/// The number of positions from this one on that are in the same chunk.
fn left(part: &Part, position: i64) -> usize {
    let end = part.starts[part.starts.partition_point(|start| *start <= position)..].first();
    end.map_or(usize::MAX, |end| (end - position) as usize)
}

fn check_width(column: &PatternColumn, chunk: &Chunk, at: usize) -> Result<()> {
    let (layout, spec) = (chunk.layout(), &column.spec);
    if spec.is_variable() && spec.rows_in(layout.width(at)).is_some() {
        return Ok(());
    }
    let itemsize = spec.dtype.size().unwrap_or(layout.itemsize(at));
    let whole = spec.dtype != DType::Str || itemsize % 4 == 0;
    if whole && itemsize.checked_mul(spec.elements()) == Some(layout.width(at)) {
        return Ok(());
    }
    let got = format!("cells of {} bytes with elements of {}", layout.width(at), layout.itemsize(at));
    Err(refuse(column, &got, &format!("{} {}", spec.dtype, spec.shape_text())))
}

fn refuse(column: &PatternColumn, got: &str, want: &str) -> Error {
    Error::Signature { path: column.spec.path.clone(), got: got.to_owned(), want: want.to_owned() }
}
