//! Rows to be inserted into tables, and their priorities.

use crate::array::{Numbers, numbers};
use crate::enter::{QUICK_BYTES, locked};
use crate::intake::{LeafCells, Reader, columns};
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

/// Writes rows for one table; remembers the form of the last row.
pub struct Rows {
    table: String,
    batched: bool,
    signature: Option<Signature>,
    /// No Python code runs under this lock, since it may come back here.
    state: Mutex<RowsState>,
}

struct RowsState {
    /// Taken out while it reads with Python code; meanwhile another thread uses a new reader.
    reader: Reader,
    writer: RowWriter,
}

impl Rows {
    /// A writer of rows for this table: single steps, or (`batched`) nests with a leading axis of rows.
    /// `sibling` is the writer of the other kind, if there is one.
    pub fn new(sink: Arc<dyn Sink>, table: &str, batched: bool, sibling: Option<&Rows>) -> Result<Self> {
        let reader =
            sibling.and_then(|rows| rows.state.try_lock().ok().map(|state| Reader::with_hint_of(&state.reader)));
        let writer = RowWriter::new(Arc::clone(&sink), sink.compression(table)?, true);
        // `insert` is a name of dm-reverb's, whose tables may mix layouts.
        let writer = if batched { writer.of_alike() } else { writer };
        Ok(Self {
            table: table.to_owned(),
            batched,
            signature: sink.signature(table)?,
            state: Mutex::new(RowsState { reader: reader.unwrap_or_default(), writer }),
        })
    }

    /// True if it writes rows of this kind for this table.
    pub fn serves(&self, table: &str, batched: bool) -> bool {
        self.batched == batched && self.table == table
    }

    /// Closes the chunk that is being written.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        locked(py, &self.state, 0, |state| {
            state.writer.close();
            Ok(())
        })
    }

    /// Fast path for a single small step of the last form, a dict of arrays and NumPy numbers.
    /// Runs no Python code. `None`: nothing was stored; call [`Rows::append`].
    #[inline]
    pub fn append_known(&self, data: &Bound<'_, PyAny>) -> Result<Option<Item>> {
        let Some(mut state) = self.state.try_lock().ok().filter(|_| !self.batched) else { return Ok(None) };
        let RowsState { reader, writer } = &mut *state;
        let stored = reader.with_known_row(data, |schema, columns| {
            let bytes: usize = columns.iter().map(|cells| cells.bytes.len()).sum();
            (bytes <= QUICK_BYTES).then(|| writer.append_row(schema, columns))
        });
        stored.flatten().transpose()
    }

    /// Stores the rows of a nest; returns one item for each, the number of rows, and their bytes.
    pub fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<(SmallVec<[Item; 1]>, usize, usize)> {
        let rows = self.batched.then_some(None);
        let mut reader = self.state.try_lock().map(|mut state| std::mem::take(&mut state.reader)).unwrap_or_default();
        let mut given = LeafCells::new();
        let read = reader.read_into(&mut given, "", data, rows, self.signature.as_ref());
        let mut reader = Some(reader);
        let (schema, count) = read.inspect_err(|_| {
            if let (Ok(mut state), Some(reader)) = (self.state.try_lock(), reader.take()) {
                state.reader = reader;
            }
        })?;
        let columns = columns(&given);
        let bytes = columns.iter().map(|cells| cells.bytes.len()).sum();
        let items = locked(py, &self.state, bytes, |state| {
            // The other reader is dropped under the GIL.
            reader = reader.take().map(|reader| std::mem::replace(&mut state.reader, reader));
            state.writer.append(&schema, &columns, count)
        })?;
        Ok((items, count, bytes))
    }
}

/// The priorities of rows.
pub enum Priorities<'py> {
    /// One priority for all rows.
    Same(Priority),
    /// A priority for each row.
    Each(Numbers<'py, f64>),
}

impl<'py> Priorities<'py> {
    /// Reads the argument; without it the table chooses.
    pub fn read(value: Option<&Bound<'py, PyAny>>, count: usize) -> PyResult<Self> {
        let Some(value) = value else { return Ok(Self::Same(Priority::Default)) };
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
