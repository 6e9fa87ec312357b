//! Rows on their way into tables, and their priorities.

use crate::array::{Numbers, numbers};
use crate::enter::locked;
use crate::intake::{Given, Reader, columns};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use reverie_core::Result;
use reverie_core::append::{RowWriter, Sink};
use reverie_core::item::Item;
use reverie_core::spec::Signature;
use reverie_core::table::Priority;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// Rows on their way into one table, in the form of the last.
pub struct Rows {
    table: String,
    batched: bool,
    signature: Option<Signature>,
    /// Never waited for: it is used under the GIL.
    reader: Mutex<Reader>,
    writer: Mutex<RowWriter>,
}

impl Rows {
    /// Rows for this table: single steps, or (`batched`) nests with a leading axis of rows.
    /// `sibling` are the rows of the other kind, where there were some.
    pub fn new(sink: Arc<dyn Sink>, table: &str, batched: bool, sibling: Option<&Rows>) -> Result<Self> {
        let beside = sibling.and_then(|rows| rows.reader.try_lock().ok().map(|reader| Reader::beside(&reader)));
        Ok(Self {
            table: table.to_owned(),
            batched,
            signature: sink.signature(table)?,
            reader: Mutex::new(beside.unwrap_or_default()),
            writer: Mutex::new(RowWriter::new(Arc::clone(&sink), sink.compression(table)?, true)),
        })
    }

    /// True where they are rows for this table, of this kind.
    pub fn serves(&self, table: &str, batched: bool) -> bool {
        self.batched == batched && self.table == table
    }

    /// Closes the chunk that they are written to.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        locked(py, &self.writer, 0, |writer| {
            writer.close();
            Ok(())
        })
    }

    /// Stores the rows of a nest: one item for each. Also how many there are, and their bytes.
    pub fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<(SmallVec<[Item; 1]>, usize, usize)> {
        let rows = self.batched.then_some(None);
        // Reading may run Python code, which may let another thread in here: that one reads without memory.
        let (mut given, signature) = (Given::new(), self.signature.as_ref());
        let (schema, count) = match self.reader.try_lock() {
            Ok(mut reader) => reader.read_into(&mut given, "", data, rows, signature),
            Err(_) => Reader::default().read_into(&mut given, "", data, rows, signature),
        }?;
        let columns = columns(&given);
        let bytes = columns.iter().map(|cells| cells.bytes.len()).sum();
        let items = locked(py, &self.writer, bytes, |writer| writer.append(&schema, &columns, count))?;
        Ok((items, count, bytes))
    }
}

/// The priorities of rows.
pub enum Priorities<'py> {
    /// The same for all.
    Same(Priority),
    /// One each.
    Each(Numbers<'py, f64>),
}

impl<'py> Priorities<'py> {
    /// Reads the argument; without one every priority is 1.
    pub fn read(value: Option<&Bound<'py, PyAny>>, count: usize) -> PyResult<Self> {
        let Some(value) = value else { return Ok(Self::Same(Priority::Value(1.0))) };
        if value.is_instance_of::<PyString>() || value.len().is_err() {
            return priority(value).map(Self::Same);
        }
        let values = numbers::<f64>(value, "priorities")?;
        let got = values.as_slice().len();
        if got != count {
            return Err(PyValueError::new_err(format!("there are {count} rows and {got} priorities")));
        }
        Ok(Self::Each(values))
    }
}

/// One priority: a number, or "max" for the largest in the table.
pub fn priority(value: &Bound<'_, PyAny>) -> PyResult<Priority> {
    if let Ok(number) = value.extract::<f64>() {
        return Ok(Priority::Value(number));
    }
    match value.extract::<&str>() {
        Ok("max") => Ok(Priority::Max),
        _ => Err(PyTypeError::new_err(format!("a priority is a number or \"max\", got {}", value.repr()?))),
    }
}
