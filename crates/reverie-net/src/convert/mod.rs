//! Conversion between the core's types and the messages. Messages are checked: they may contain anything.

pub mod batch;
pub mod error;
pub mod item;
pub mod disk;
pub mod journal;
pub mod numbers;
pub mod query;
pub mod structure;
pub mod table;

use reverie_core::{Error, Result};

/// Axes of an array at most, as in NumPy.
const MAX_AXES: usize = 64;

fn broken(what: impl Into<String>) -> Error {
    Error::Protocol(what.into())
}

/// Requires a field of a message.
fn present<T>(field: Option<T>, name: &str) -> Result<T> {
    field.ok_or_else(|| broken(format!("a message lacks the field '{name}'")))
}

/// Decodes a shape whose bytes can be counted in any order of the axes: sizes of zero hide no overflow.
fn shape(sizes: &[u64], itemsize: usize, path: &str) -> Result<Vec<usize>> {
    let refuse = || broken(format!("column '{path}': the shape {sizes:?} is too large for the address space"));
    if sizes.len() > MAX_AXES {
        return Err(broken(format!("column '{path}' has {} axes, more than {MAX_AXES}", sizes.len())));
    }
    let shape = sizes.iter().map(|size| usize::try_from(*size)).collect::<Result<Vec<_>, _>>().map_err(|_| refuse())?;
    let most = shape.iter().try_fold(itemsize.max(1), |bytes, size| bytes.checked_mul((*size).max(1)));
    most.filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(refuse)?;
    Ok(shape)
}

fn dtype(name: &str, path: &str) -> Result<reverie_core::spec::DType> {
    reverie_core::spec::DType::from_name(name)
        .ok_or_else(|| broken(format!("column '{path}' has the dtype '{name}', which this version does not know")))
}
