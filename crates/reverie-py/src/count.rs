//! Counts among a call's arguments; errors use the caller's name for the argument.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

/// A count as given: any int. An int that does not fit is replaced by the nearest that does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count(i64);

impl Count {
    /// A default.
    pub const fn of(count: i64) -> Self {
        Self(count)
    }

    /// The count, if it is at least `least` and at most `most`; otherwise ValueError with its name.
    pub fn within(self, name: &str, least: usize, most: usize) -> PyResult<usize> {
        match usize::try_from(self.0) {
            Ok(count) if (least..=most).contains(&count) => Ok(count),
            Ok(count) if count > most => {
                Err(PyValueError::new_err(format!("{name} must be at most {most}, got {}", self.text())))
            }
            _ => Err(PyValueError::new_err(format!("{name} must be at least {least}, got {}", self.text()))),
        }
    }

    /// The count for a message; one that did not fit is shown as a bound.
    fn text(self) -> String {
        match self.0 {
            i64::MAX => "2**63 - 1 or more".into(),
            i64::MIN => "-2**63 or less".into(),
            count => count.to_string(),
        }
    }

    /// The count, if it is at least `least`; otherwise ValueError with its name.
    pub fn at_least(self, name: &str, least: usize) -> PyResult<usize> {
        self.within(name, least, i64::MAX as usize)
    }
}

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match value.extract::<i64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                Ok(Self(if value.lt(0)? { i64::MIN } else { i64::MAX }))
            }
            count => count.map(Self),
        }
    }
}
