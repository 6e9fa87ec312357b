//! A leaf as (dtype, shape, bytes): without a copy if it is a C-contiguous array in native byte order.

use super::cell::{Cell, Data, Dims, Leaf};
use super::dtype::{descr, dtype_of, is_array, numpy, own_dtype};
use super::scalar::{exact_scalar, known_scalar, python_scalar};
use crate::errors::signature;
use numpy::npyffi::flags::NPY_ARRAY_C_CONTIGUOUS;
use numpy::npyffi::objects::{_PyArray_GET_ITEM_DATA, _PyDataType_GET_ITEM_DATA, PyArrayObject};
use numpy::npyffi::{PyArray_Check, PyArray_CheckExact, npy_intp};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::{ffi, intern};
use reverie_core::spec::{ColumnSpec, DType};
use std::ptr::NonNull;

impl<'py> Cell<'py> {
    /// Fast path: a leaf of the type and shape that its column already holds; `None` otherwise.
    /// With `rows`, the leaf has a leading axis of that many rows, or of any number, which is then stored there.
    #[inline]
    pub fn known(leaf: &Bound<'py, PyAny>, spec: &ColumnSpec, rows: Option<&mut Option<usize>>) -> Option<Self> {
        Self::taken(&mut Some(leaf.clone()), spec, rows)
    }

    /// Like [`Cell::known`]; takes the leaf out of its slot if its bytes are read in place.
    #[inline(always)]
    pub fn taken(
        slot: &mut Option<Bound<'py, PyAny>>,
        spec: &ColumnSpec,
        rows: Option<&mut Option<usize>>,
    ) -> Option<Self> {
        let (itemsize, leaf) = (spec.dtype.size()?, slot.as_ref()?);
        if spec.shape.is_empty()
            && rows.is_none()
            && let Some(value) = exact_scalar(leaf, spec.dtype)
        {
            return Some(Self { itemsize, data: Data::Lent(value, itemsize), _holder: slot.take() });
        }
        if !is_array(leaf) {
            let fits = rows.is_none() && spec.shape.is_empty();
            return python_scalar(leaf, Some(spec.dtype))
                .filter(|leaf| fits && leaf.dtype == spec.dtype)
                .map(|leaf| leaf.cell);
        }
        let py = leaf.py();
        let (start, len) = array_of(leaf, spec, itemsize, rows, |number, descr| dtype_of(py, number, descr))?;
        Some(Self { itemsize, data: Data::Lent(start, len), _holder: slot.take() })
    }
}

/// The bytes of a leaf of the type and shape that a cell of its column already holds; `None` otherwise.
/// Runs no Python code, and makes nothing.
#[inline(always)]
pub fn contiguous_bytes<'a>(leaf: &'a Bound<'_, PyAny>, spec: &ColumnSpec) -> Option<&'a [u8]> {
    let itemsize = spec.dtype.size()?;
    let number = if spec.shape.is_empty() { known_scalar(leaf, spec.dtype) } else { None };
    let (start, len) = match number {
        Some(value) => (value, itemsize),
        None if is_array(leaf) => array_of(leaf, spec, itemsize, None, |number, _| own_dtype(number))?,
        None => return None,
    };
    // SAFETY: as in `Cell::bytes`: the leaf is held as long as the slice.
    Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
}

/// The address and number of the bytes of an array of the type and shape that its column already holds.
#[inline]
fn array_of(
    array: &Bound<'_, PyAny>,
    spec: &ColumnSpec,
    itemsize: usize,
    rows: Option<&mut Option<usize>>,
    dtype_of: impl Fn(i32, *mut ffi::PyObject) -> Option<DType>,
) -> Option<(NonNull<u8>, usize)> {
    let (dtype, dims, start) = fields(array, dtype_of)?;
    if dtype != spec.dtype || dims.len() != spec.shape.len() + usize::from(rows.is_some()) {
        return None;
    }
    let (leading, dims) = dims.split_at(dims.len() - spec.shape.len());
    let mut len = itemsize;
    for (got, want) in dims.iter().zip(&spec.shape) {
        if *got as usize != *want {
            return None;
        }
        len *= *want;
    }
    if let (Some(rows), [leading]) = (rows, leading) {
        if *rows.get_or_insert(*leading as usize) != *leading as usize {
            return None;
        }
        len *= *leading as usize;
    }
    Some((start, len))
}

/// Reads a leaf. `want` is the column's dtype if known.
/// Python's own numbers are cast to it if that keeps their value (or rounds a float). `path` is called only for an
/// error.
#[inline]
pub fn read<'py>(value: &Bound<'py, PyAny>, want: Option<DType>, path: &dyn Fn() -> String) -> PyResult<Leaf<'py>> {
    let py = value.py();
    // SAFETY: the pointer is a live object and we hold the GIL.
    if unsafe { PyArray_Check(py, value.as_ptr()) } != 0 {
        return plain(value).map_or_else(|| convert(value, want, path), Ok);
    }
    python_scalar(value, want).map_or_else(|| convert(value, want, path), Ok)
}

/// An array that can be read in place.
fn plain<'py>(value: &Bound<'py, PyAny>) -> Option<Leaf<'py>> {
    let (dtype, dims, data) = fields(value, |number, descr| dtype_of(value.py(), number, descr))?;
    let shape: Dims = dims.iter().map(|n| *n as usize).collect();
    let itemsize = match dtype.size() {
        Some(size) => size,
        None => value.getattr(intern!(value.py(), "itemsize")).ok()?.extract().ok()?,
    };
    let data = Data::Lent(data, itemsize * shape.iter().product::<usize>());
    Some(Leaf { dtype, shape, cell: Cell { itemsize, _holder: Some(value.clone()), data } })
}

/// `numpy.memmap`, once `load` was called.
static MEMMAP: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// True if an array is nothing more than its bytes. Additions of subclasses, such as a mask, cannot be handled here.
#[inline]
fn is_bytes_alone(array: &Bound<'_, PyAny>) -> bool {
    let py = array.py();
    // SAFETY: a live object, under the GIL.
    let exact = unsafe { PyArray_CheckExact(py, array.as_ptr()) } != 0;
    exact || MEMMAP.get(py).is_some_and(|memmap| array.get_type_ptr() == memmap.bind(py).as_type_ptr())
}

/// The dtype, the shape and the bytes of an array that can be read in place.
#[inline]
fn fields<'a>(
    array: &'a Bound<'_, PyAny>,
    dtype_of: impl Fn(i32, *mut ffi::PyObject) -> Option<DType>,
) -> Option<(DType, &'a [npy_intp], NonNull<u8>)> {
    if !is_bytes_alone(array) {
        return None;
    }
    // SAFETY: the callers checked that this is an array; its fields are NumPy's public ABI, and we hold the GIL. The
    // shape lives as long as the array, and nothing that we call changes it.
    unsafe {
        let fields = &*_PyArray_GET_ITEM_DATA(array.as_ptr().cast::<PyArrayObject>());
        let descr = &*_PyDataType_GET_ITEM_DATA(fields.descr);
        if fields.flags & NPY_ARRAY_C_CONTIGUOUS == 0 || descr.byteorder as u8 == b'>' {
            return None;
        }
        let dtype = dtype_of(descr.type_num, fields.descr.cast())?;
        let dims = match fields.nd {
            0 => &[],
            nd => std::slice::from_raw_parts(fields.dimensions, nd as usize),
        };
        Some((dtype, dims, NonNull::new(fields.data.cast::<u8>()).unwrap_or(NonNull::dangling())))
    }
}

/// Converts any other value: `reverie._nest.as_column` returns an array that can be read in place, or refuses.
#[cold]
fn convert<'py>(value: &Bound<'py, PyAny>, want: Option<DType>, path: &dyn Fn() -> String) -> PyResult<Leaf<'py>> {
    static AS_COLUMN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let want = want.map(DType::name);
    let array = AS_COLUMN.import(py, "reverie._nest", "as_column")?.call1((value, want, path()))?;
    plain(&array).ok_or_else(|| signature(py, &path(), "an array of another kind", "numbers, bytes or str"))
}

/// Loads NumPy and its C interface now: an interrupt during the first array could leave it half loaded.
pub fn load(py: Python<'_>) -> PyResult<()> {
    numpy(py)?;
    is_array(&py.None().into_bound(py));
    MEMMAP.import(py, "numpy", "memmap").map(drop)
}

/// The dtype and the shape that a leaf would have as a column.
#[pyfunction]
pub fn describe(leaf: &Bound<'_, PyAny>, path: String) -> PyResult<(Py<PyAny>, Vec<usize>)> {
    let read = read(leaf, None, &|| path.clone())?;
    Ok((descr(leaf.py(), read.dtype, read.cell.itemsize)?.unbind(), read.shape.to_vec()))
}
