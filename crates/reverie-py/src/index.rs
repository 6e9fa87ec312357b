//! An index of Python into the steps of a column: read once, and resolved by a length without Python.

use crate::array::numbers;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use reverie_core::item::Cells;

/// The index between the brackets.
pub enum Index {
    /// `[i]`
    One(i64),
    /// `[start:stop:step]`; a bound that was left out is none.
    Slice { start: Option<i64>, stop: Option<i64>, step: i64 },
    /// `[[i, j]]`
    List(Vec<i64>),
}

/// Cells of a column: the first one, the others relative to it, and whether it is one cell without an axis.
pub type CellSelection = (u64, Cells, bool);

impl Index {
    /// Reads an int, a slice or ints.
    pub fn read(key: &Bound<'_, PyAny>, path: &str) -> PyResult<Self> {
        if key.is_instance_of::<PySlice>() {
            let py = key.py();
            let step = bound(&key.getattr(intern!(py, "step"))?)?.unwrap_or(1);
            if step == 0 {
                return Err(PyValueError::new_err("slice step cannot be zero"));
            }
            let start = bound(&key.getattr(intern!(py, "start"))?)?;
            return Ok(Self::Slice { start, stop: bound(&key.getattr(intern!(py, "stop"))?)?, step });
        }
        if let Ok(index) = key.extract::<i64>() {
            return Ok(Self::One(index));
        }
        if key.is_instance_of::<PyTuple>() {
            return Err(PyTypeError::new_err(format!("column '{path}' takes an int, a slice or a list of ints")));
        }
        Ok(Self::List(numbers::<i64>(key, path)?.as_slice().to_vec()))
    }

    /// Refuses a slice of a history of `len` steps that begins before its first step.
    /// As for a list, it would have fewer cells than were asked for, and the items of the table would differ in length.
    pub fn begins_within(&self, len: usize, path: &str) -> PyResult<()> {
        match self {
            Self::Slice { start: Some(start), .. } if *start < -(len as i64) => Err(PyValueError::new_err(format!(
                "column '{path}': the slice begins {} steps back, and there are {len}",
                start.unsigned_abs()
            ))),
            _ => Ok(()),
        }
    }

    /// The cells of a sequence of `len`. Raises `IndexError` for a step that does not exist.
    pub fn resolve(&self, len: usize, path: &str) -> PyResult<CellSelection> {
        let at = |index: i64| {
            let found = if index < 0 { index + len as i64 } else { index };
            match (0..len as i64).contains(&found) {
                true => Ok(found),
                false => Err(PyIndexError::new_err(format!("column '{path}': step {index} of {len} does not exist"))),
            }
        };
        match self {
            Self::One(index) => Ok((at(*index)? as u64, Cells::one(0), true)),
            Self::Slice { start, stop, step } => Ok(range(*start, *stop, *step, len as i64)),
            Self::List(indices) => {
                let indices: Vec<i64> = indices.iter().map(|index| at(*index)).collect::<PyResult<_>>()?;
                let first = indices.first().copied().unwrap_or(0);
                Ok((first as u64, Cells::List(indices.iter().map(|index| (index - first) as i32).collect()), false))
            }
        }
    }
}

/// A bound of a slice. One that is too large for 64 bits is the largest of its sign, as Python has it.
fn bound(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    match value.extract::<Option<i64>>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Ok(Some(if value.lt(0)? { i64::MIN } else { i64::MAX }))
        }
        read => read,
    }
}

/// The cells that Python's slices of a list have.
fn range(start: Option<i64>, stop: Option<i64>, step: i64, len: i64) -> CellSelection {
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let within = |at: i64| if at < 0 { at.saturating_add(len).max(low) } else { at.min(high) };
    let (begin, end) = if step > 0 { (low, high) } else { (high, low) };
    let (begin, end) = (start.map_or(begin, within), stop.map_or(end, within));
    let distance = if step > 0 { end - begin } else { begin - end };
    let len = if distance <= 0 { 0 } else { (distance as u64 - 1) / step.unsigned_abs() + 1 };
    // A step that does not fit leads to no second cell.
    let step = i32::try_from(step).unwrap_or(1);
    (begin.max(0) as u64, Cells::Range { start: 0, step, len: len as u32 }, false)
}
