//! Arguments that are a single array of numbers: keys, priorities, rewards, flags.

use super::cell::Leaf;
use super::dtype::{descr, is_array, numpy};
use super::read::read;
use super::scalar::python_scalar;
use crate::errors::signature;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use reverie_core::spec::DType;
use smallvec::SmallVec;

/// Number types of metadata columns (keys, priorities).
pub trait Number: Copy {
    /// The dtype of the array.
    const DTYPE: DType;
}

impl Number for i64 {
    const DTYPE: DType = DType::Int64;
}

impl Number for f64 {
    const DTYPE: DType = DType::Float64;
}

/// Numbers of one dtype from anything array-like; not copied if it is an array of that dtype already.
pub enum Numbers<'py, T> {
    /// The caller's array.
    Borrowed(Leaf<'py>),
    /// Converted.
    Owned(Vec<T>),
}

impl<T: Number> Numbers<'_, T> {
    /// The numbers.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Numbers::Owned(numbers) => numbers,
            Numbers::Borrowed(leaf) => {
                let bytes = leaf.cell.bytes();
                // SAFETY: `numbers` checked the dtype and the alignment, and any bits are a number.
                unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
            }
        }
    }
}

/// A list or a tensor as an array: `reverie._nest.as_array`.
fn as_array<'py>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    AS_ARRAY.import(value.py(), "reverie._nest", "as_array")?.call1((value, name))
}

/// Reads an argument that is one array of numbers (of any shape; C order). `name` is the argument's, for errors.
/// Refuses floats if integers are wanted.
pub fn numbers<'py, T: Number>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Numbers<'py, T>> {
    let py = value.py();
    let path = || name.to_owned();
    let value = if is_array(value) {
        value.clone()
    } else if let Some(leaf) = python_scalar(value, Some(T::DTYPE)).filter(|leaf| leaf.dtype == T::DTYPE) {
        return Ok(Numbers::Borrowed(leaf));
    } else {
        let array = as_array(value, name)?;
        let empty = array.getattr(intern!(py, "size"))?.extract::<usize>()? == 0;
        if empty { numpy(py)?.call_method1(intern!(py, "zeros"), (0, descr(py, T::DTYPE, 0)?))? } else { array }
    };
    let leaf = read(&value, None, &path)?;
    if leaf.dtype == T::DTYPE && leaf.cell.bytes().as_ptr().cast::<T>().is_aligned() {
        return Ok(Numbers::Borrowed(leaf));
    }
    let integer = |dtype: DType| dtype.name().contains("int");
    let fits = match T::DTYPE {
        DType::Float64 => !matches!(leaf.dtype, DType::Bytes | DType::Str | DType::Complex64 | DType::Complex128),
        // Keys in ported code are uint64; one beyond int64 becomes negative, which no item's key is.
        _ => integer(leaf.dtype),
    };
    if !fits {
        return Err(signature(py, name, leaf.dtype.name(), T::DTYPE.name()));
    }
    if let (DType::Float32, DType::Float64) = (leaf.dtype, T::DTYPE) {
        let floats = leaf.cell.bytes().chunks_exact(4).map(|b| f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]])));
        let mut numbers: Vec<T> = Vec::with_capacity(leaf.cell.bytes().len() / 4);
        for (index, float) in floats.enumerate() {
            // SAFETY: T is f64 here, and there is room for every element.
            unsafe { numbers.as_mut_ptr().cast::<f64>().add(index).write(float) };
        }
        // SAFETY: all elements were written.
        unsafe { numbers.set_len(leaf.cell.bytes().len() / 4) };
        return Ok(Numbers::Owned(numbers));
    }
    let cast = value.call_method1(intern!(py, "astype"), (descr(py, T::DTYPE, 0)?, "C"))?;
    Ok(Numbers::Borrowed(read(&cast, None, &path)?))
}

/// Reads an argument that is one array of flags: bools, or integers that are zero or not.
pub fn flags(value: &Bound<'_, PyAny>, name: &str) -> PyResult<SmallVec<[bool; 16]>> {
    let py = value.py();
    let array = match is_array(value) || python_scalar(value, None).is_some() {
        true => value.clone(),
        false => as_array(value, name)?,
    };
    let leaf = read(&array, None, &|| name.to_owned())?;
    if leaf.dtype != DType::Bool && !leaf.dtype.name().contains("int") {
        return Err(signature(py, name, leaf.dtype.name(), "bool"));
    }
    Ok(leaf.cell.bytes().chunks_exact(leaf.cell.itemsize).map(|flag| flag.iter().any(|byte| *byte != 0)).collect())
}
