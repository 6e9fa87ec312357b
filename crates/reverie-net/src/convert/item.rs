//! The forms of items.

use super::{broken, dtype, numbers, present, shape, structure};
use crate::proto::{self, pattern_column};
use reverie_core::Result;
use reverie_core::item::{Cells, Pattern, PatternColumn};
use reverie_core::spec::{ANY_SIZE, ColumnSpec};

/// Cells of one column of an item at most.
pub const MAX_CELLS: u32 = 1 << 24;

/// Encodes a column's description.
pub fn encode_spec(spec: &ColumnSpec) -> proto::ColumnSpec {
    proto::ColumnSpec {
        path: spec.path.clone(),
        dtype: spec.dtype.name().to_owned(),
        shape: spec.shape.iter().map(|size| *size as u64).collect(),
    }
}

/// Decodes a column's description; the size of a cell must not overflow.
pub fn decode_spec(message: proto::ColumnSpec) -> Result<ColumnSpec> {
    let dtype = dtype(&message.dtype, &message.path)?;
    // The width of a text element is given by its chunk, where the bytes of a cell are computed; so is a size that
    // differs from cell to cell.
    let any = dtype.size().is_some() && message.shape.first() == Some(&(ANY_SIZE as u64));
    let mut sizes = message.shape;
    if any {
        sizes[0] = 1;
    }
    let shape = shape(&sizes, dtype.size().unwrap_or(1), &message.path)?;
    let spec = ColumnSpec { path: message.path, dtype, shape };
    if any {
        spec.variable().ok_or_else(|| broken(format!("cells of {} of any size", spec.shape_text())))
    } else {
        Ok(spec)
    }
}

/// Encodes a form with the number that it gets.
pub fn encode_pattern(number: u32, pattern: &Pattern) -> proto::PatternDef {
    let cells = |cells: &Cells| match cells {
        Cells::Range { start, step, len } => {
            pattern_column::Cells::Range(proto::CellRange { start: *start, step: *step, len: *len })
        }
        Cells::List(list) => pattern_column::Cells::List(proto::CellList { cells: numbers::encode(list) }),
    };
    let column = |column: &PatternColumn| proto::PatternColumn {
        spec: Some(Box::new(encode_spec(&column.spec))),
        part: column.part,
        column: column.column,
        cells: Some(cells(&column.cells)),
        squeeze: column.squeeze,
        stack_axis: u32::from(column.stack_axis),
    };
    proto::PatternDef {
        pattern: number,
        structure: Some(structure::encode(&pattern.structure)),
        columns: pattern.columns.iter().map(column).collect(),
        timestep: pattern.timestep,
        alike: pattern.alike,
    }
}

/// Decodes a number and its form, which is checked as far as possible without the chunks.
pub fn decode_pattern(message: proto::PatternDef) -> Result<(u32, Pattern)> {
    let structure = structure::decode(present(message.structure, "structure")?)?;
    let columns = message.columns.into_iter().map(decode_column).collect::<Result<Box<[_]>>>()?;
    let leaves = structure.num_leaves();
    if columns.is_empty() || columns.len() != leaves {
        return Err(broken(format!("a form has {} columns for the {leaves} leaves of its structure", columns.len())));
    }
    Ok((message.pattern, Pattern { columns, structure, timestep: message.timestep, alike: message.alike }))
}

fn decode_column(mut message: proto::PatternColumn) -> Result<PatternColumn> {
    let spec = decode_spec(*present(message.spec.take(), "spec")?)?;
    let cells = match present(message.cells.take(), "cells")? {
        pattern_column::Cells::Range(proto::CellRange { start, step, len }) => {
            if step == 0 || len > MAX_CELLS {
                return Err(broken(format!(
                    "column '{}' is a range of {len} cells with the step {step}, which is invalid",
                    spec.path
                )));
            }
            Cells::Range { start, step, len }
        }
        pattern_column::Cells::List(list) => Cells::List(numbers::decode(&list.cells, "cells")?.into()),
    };
    let (count, axes) = (cells.len(), spec.shape.len());
    let fits = if message.squeeze { count == 1 } else { message.stack_axis as usize <= axes };
    let stack_axis =
        u8::try_from(message.stack_axis).ok().filter(|_| fits && (1..=MAX_CELLS as usize).contains(&count));
    let Some(stack_axis) = stack_axis else {
        return Err(broken(format!(
            "column '{}': {count} cells, stacked at axis {} of {axes}, squeezed: {}",
            spec.path, message.stack_axis, message.squeeze
        )));
    };
    let proto::PatternColumn { part, column, squeeze, .. } = message;
    Ok(PatternColumn { spec, part, column, cells, squeeze, stack_axis })
}
