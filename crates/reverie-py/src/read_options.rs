//! The read options of batches, as Python gives them.

use crate::count::Count;
use crate::enter::quick;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use reverie_core::batch::{BatchOptions, Ragged};
use reverie_core::sample::{Borders, Windows};

/// The read options of a batch.
#[derive(Clone, Default, PartialEq)]
pub struct ReadOptions {
    /// Paths; `None` for all.
    pub columns: Option<Vec<String>>,
    /// The handling of unequal lengths.
    pub ragged: Ragged,
}

impl ReadOptions {
    /// Reads the arguments `columns=` and `ragged=`.
    pub fn new(columns: Option<ColumnPaths>, ragged: Option<&str>) -> PyResult<Self> {
        let ragged = match ragged {
            None => Ragged::Refuse,
            Some("pad") => Ragged::Pad,
            Some("values") => Ragged::Values,
            Some(other) => {
                return Err(PyValueError::new_err(format!(
                    "ragged must be None, \"pad\" or \"values\", got {other:?}"
                )));
            }
        };
        Ok(Self { columns: columns.map(|columns| columns.0), ragged })
    }

    /// The options, as the engine reads them.
    pub fn options(&self) -> BatchOptions<'_> {
        BatchOptions { ragged: self.ragged, columns: self.columns.as_deref() }
    }
}

/// The argument `columns=`: paths, at least one.
pub struct ColumnPaths(Vec<String>);

impl<'py> FromPyObject<'_, 'py> for ColumnPaths {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let paths = if value.is_instance_of::<PyString>() { None } else { value.extract::<Vec<String>>().ok() };
        match paths {
            Some(paths) if paths.is_empty() => {
                Err(PyValueError::new_err("columns: an empty list selects nothing; leave it out to read all"))
            }
            Some(paths) => Ok(Self(paths)),
            None => {
                let got = value.repr()?;
                Err(PyTypeError::new_err(format!(
                    "columns must be a list of paths, as [\"obs\", \"action\"], got {got}"
                )))
            }
        }
    }
}

/// `(length, burn_in, borders)`.
pub struct WindowsArgument(pub Windows);

impl<'py> FromPyObject<'_, 'py> for WindowsArgument {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (length, burn_in, borders) = value.extract::<(Count, Count, String)>()?;
        let borders = match borders.as_str() {
            "drop" => Borders::Drop,
            "pad" => Borders::Pad,
            "cross" => Borders::Cross,
            other => {
                let reason = format!("borders must be \"drop\", \"pad\" or \"cross\", got \"{other}\"");
                return Err(PyValueError::new_err(reason));
            }
        };
        let (length, burn_in) = (length.at_least("length", 1)?, burn_in.at_least("burn_in", 0)?);
        quick(value.py(), || Windows::new(length as u64, burn_in as u64, borders)).map(Self)
    }
}
