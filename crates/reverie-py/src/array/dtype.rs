//! NumPy's dtypes and the engine's.

use numpy::npyffi::PyArray_Check;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use pyo3::{ffi, intern};
use reverie_core::spec::DType;

/// The dtype of a NumPy type number; `None` if the engine does not support it.
#[inline]
pub(super) fn dtype_of(py: Python<'_>, number: i32, descr: *mut ffi::PyObject) -> Option<DType> {
    if !(256..=2047).contains(&number) {
        return own_dtype(number);
    }
    // User types: those of ml_dtypes are recognised by the name of their dtype, which Python code creates.
    // SAFETY: `descr` is the live descriptor of an array that the caller holds.
    let descr = unsafe { Borrowed::from_ptr(py, descr) };
    let name = descr.getattr(intern!(py, "name")).ok()?;
    DType::from_name(&name.cast::<PyString>().ok()?.to_cow().ok()?)
}

/// Like [`dtype_of`], for NumPy's own types.
#[inline]
pub(super) fn own_dtype(number: i32) -> Option<DType> {
    use DType::*;
    const LONG_IS_64: bool = size_of::<std::ffi::c_long>() == 8;
    Some(match number {
        0 => Bool,
        1 => Int8,
        2 => UInt8,
        3 => Int16,
        4 => UInt16,
        5 => Int32,
        6 => UInt32,
        7 if LONG_IS_64 => Int64,
        7 => Int32,
        8 if LONG_IS_64 => UInt64,
        8 => UInt32,
        9 => Int64,
        10 => UInt64,
        11 => Float32,
        12 => Float64,
        14 => Complex64,
        15 => Complex128,
        18 => Bytes,
        19 => Str,
        23 => Float16,
        _ => return None,
    })
}

/// The dtype of a NumPy dtype-like object (`np.float32`, `"f4"`, a dtype); `None` if the engine does not support it.
pub fn dtype_from(value: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let py = value.py();
    let dtype = numpy(py)?.call_method1(intern!(py, "dtype"), (value,))?;
    let number: i32 = dtype.getattr(intern!(py, "num"))?.extract()?;
    Ok(dtype_of(py, number, dtype.as_ptr()))
}

/// The module `numpy`.
pub fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || PyModule::import(py, "numpy").map(Bound::unbind))?.bind(py))
}

/// NumPy's dtype object. `itemsize` (bytes of one element) is used for bytes and str only.
pub fn descr<'py>(py: Python<'py>, dtype: DType, itemsize: usize) -> PyResult<Bound<'py, PyAny>> {
    static DESCRS: [PyOnceLock<Py<PyAny>>; DType::ALL.len()] = [const { PyOnceLock::new() }; DType::ALL.len()];
    let make = |name: &str| numpy(py)?.call_method1(intern!(py, "dtype"), (name,));
    match dtype {
        DType::Bytes => make(&format!("S{}", itemsize.max(1))),
        DType::Str => make(&format!("U{}", (itemsize / 4).max(1))),
        _ => {
            let known = DESCRS[dtype as usize].get_or_try_init(py, || -> PyResult<Py<PyAny>> {
                let Ok(descr) = make(dtype.name()) else {
                    // NumPy has the names of ml_dtypes only after that module is imported.
                    let types = PyModule::import(py, "ml_dtypes")?;
                    return Ok(numpy(py)?.call_method1("dtype", (types.getattr(dtype.name())?,))?.unbind());
                };
                Ok(descr.unbind())
            })?;
            Ok(known.bind(py).clone())
        }
    }
}

/// True for a NumPy array.
#[inline]
pub fn is_array(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object, under the GIL.
    unsafe { PyArray_Check(value.py(), value.as_ptr()) != 0 }
}
