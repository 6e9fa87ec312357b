//! The specification of columns: dtype, cell shape, path; and the structure that they came from.

mod difference;
mod dtype;
pub mod nodes;
mod structure;

pub use dtype::DType;
pub use structure::{Structure, StructureKey};

use serde::{Deserialize, Serialize};
use std::fmt;

/// One column of a writer or an item: its path in the user's structure, and the type and shape of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// The path in the user's structure, `obs/pixels`; empty if the structure is one array.
    pub path: String,
    /// The type of an element.
    pub dtype: DType,
    /// The shape of one cell (no time axis); the first size may be [`ANY_SIZE`].
    pub shape: Vec<usize>,
}

/// The first size of cells whose sizes differ: each chunk defines it by the width of its cells.
pub const ANY_SIZE: usize = usize::MAX;

impl ColumnSpec {
    /// True if the cells differ in the size of their first axis.
    pub fn is_variable(&self) -> bool {
        self.shape.first() == Some(&ANY_SIZE)
    }

    /// This column with cells of any first size; `None` for cells that have no such axis, or no bytes along it.
    pub fn variable(&self) -> Option<Self> {
        let mut spec = self.clone();
        *spec.shape.first_mut()? = ANY_SIZE;
        spec.row_bytes().filter(|bytes| *bytes > 0).map(|_| spec)
    }

    /// True if cells of the other column may differ from this one's in the size of their first axis, and in nothing
    /// else.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.path == other.path
            && self.dtype == other.dtype
            && self.shape.len() == other.shape.len()
            && self.shape.iter().zip(&other.shape).skip(1).all(|(ours, theirs)| ours == theirs)
    }

    /// Elements in one cell; 0 if the cells differ.
    pub fn elements(&self) -> usize {
        if self.is_variable() { 0 } else { self.shape.iter().product() }
    }

    /// Bytes of one cell; `None` if the cells differ, or the dtype has no fixed width.
    pub fn cell_bytes(&self) -> Option<usize> {
        self.dtype.size().filter(|_| !self.is_variable()).map(|size| size * self.elements())
    }

    /// Bytes at one index of a cell's first axis; `None` if the dtype has no fixed width.
    pub fn row_bytes(&self) -> Option<usize> {
        self.dtype.size().map(|size| size * self.shape.iter().skip(1).product::<usize>())
    }

    /// The first size of a cell of `bytes`; `None` if it has no whole number of rows.
    pub fn rows_in(&self, bytes: usize) -> Option<usize> {
        let row = self.row_bytes().filter(|row| *row > 0)?;
        bytes.is_multiple_of(row).then_some(bytes / row)
    }

    /// The shape as people read it, `[any, 3]` where the first size differs.
    pub fn shape_text(&self) -> String {
        let size = |size: &usize| if *size == ANY_SIZE { "any".to_owned() } else { size.to_string() };
        format!("[{}]", self.shape.iter().map(size).collect::<Vec<_>>().join(", "))
    }
}

/// A table's requirements for one column of its items: dimensions may be open.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ColumnSignature {
    /// The path in the signature's structure.
    pub path: String,
    /// The type of an element.
    pub dtype: DType,
    /// The shape, time axis included unless the column is squeezed; `None` accepts any size.
    pub shape: Vec<Option<usize>>,
}

/// A table's requirements for its items.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signature {
    /// The columns in flattening order.
    pub columns: Vec<ColumnSignature>,
    /// The structure that the columns fill.
    pub structure: Structure,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, column) in self.columns.iter().enumerate() {
            let sizes: Vec<String> =
                column.shape.iter().map(|size| size.map_or("any".into(), |n| n.to_string())).collect();
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}: {} [{}]", column.path, column.dtype, sizes.join(", "))?;
        }
        f.write_str("}")
    }
}

/// The columns that a writer gets at each step, or in a group of rows, in flattening order, and their structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    /// The columns.
    pub columns: Vec<ColumnSpec>,
    /// The structure that they fill.
    pub structure: Structure,
}
