//! Numbers that are not arrays: Python's own and NumPy's.

use super::cell::Leaf;
use super::dtype::{descr, dtype_of};
use numpy::PY_ARRAY_API;
use numpy::npyffi::objects::_PyDataType_GET_ITEM_DATA;
use numpy::npyffi::{NpyTypes, get_type_object};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt};
use pyo3::{ffi, intern};
use reverie_core::spec::DType;
use std::ptr::NonNull;

/// The address of the value of a number of exactly NumPy's class for this dtype; valid as long as the number lives.
#[inline(always)]
pub(super) fn exact_scalar(value: &Bound<'_, PyAny>, dtype: DType) -> Option<NonNull<u8>> {
    value_of(value, class_of(value.py(), dtype)?)
}

/// Like [`exact_scalar`], if the class was looked up before: runs no Python code.
#[inline(always)]
pub(super) fn known_scalar(value: &Bound<'_, PyAny>, dtype: DType) -> Option<NonNull<u8>> {
    value_of(value, CLASSES[dtype as usize].get(value.py())?)
}

#[inline(always)]
fn value_of(value: &Bound<'_, PyAny>, class: &Py<PyAny>) -> Option<NonNull<u8>> {
    if value.get_type_ptr() != class.as_ptr().cast() {
        return None;
    }
    // SAFETY: an instance of one of NumPy's own classes of numbers is, by its public ABI (`arrayscalars.h`), an object
    // header followed by the value.
    NonNull::new(unsafe { value.as_ptr().cast::<u8>().add(size_of::<ffi::PyObject>()) })
}

/// NumPy's classes of numbers, for those of its own dtypes whose values are inside the object.
static CLASSES: [PyOnceLock<Py<PyAny>>; DType::ALL.len()] = [const { PyOnceLock::new() }; DType::ALL.len()];

/// NumPy's class of numbers for one of its own dtypes.
#[inline(always)]
fn class_of(py: Python<'_>, dtype: DType) -> Option<&Py<PyAny>> {
    use DType::*;
    let integer = matches!(dtype, Bool | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64);
    let own = integer || matches!(dtype, Float16 | Float32 | Float64 | Complex64 | Complex128);
    let make = || descr(py, dtype, 0)?.getattr(intern!(py, "type")).map(Bound::unbind);
    if own { CLASSES[dtype as usize].get_or_try_init(py, make).ok() } else { None }
}

/// Python's own numbers, if the column's dtype holds them unchanged.
#[inline]
pub(super) fn python_scalar<'py>(value: &Bound<'py, PyAny>, want: Option<DType>) -> Option<Leaf<'py>> {
    if let Ok(number) = value.cast::<PyFloat>() {
        return match want {
            None | Some(DType::Float64) => Some(Leaf::scalar(DType::Float64, &number.value().to_ne_bytes())),
            Some(DType::Float32) => Some(Leaf::scalar(DType::Float32, &(number.value() as f32).to_ne_bytes())),
            _ => None,
        };
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        let fits = matches!(want, None | Some(DType::Bool));
        return fits.then(|| Leaf::scalar(DType::Bool, &[u8::from(flag.is_true())]));
    }
    if value.is_instance_of::<PyInt>() {
        let number = value.extract::<i64>().ok()?;
        return match want {
            None | Some(DType::Int64) => Some(Leaf::scalar(DType::Int64, &number.to_ne_bytes())),
            Some(DType::Int32) => i32::try_from(number).ok().map(|n| Leaf::scalar(DType::Int32, &n.to_ne_bytes())),
            _ => None,
        };
    }
    numpy_scalar(value)
}

/// NumPy's own numbers.
fn numpy_scalar<'py>(value: &Bound<'py, PyAny>) -> Option<Leaf<'py>> {
    let py = value.py();
    // SAFETY: a live object and NumPy's own type object, under the GIL. The descriptor is a new reference. A number of
    // 16 bytes at most is copied into 16 bytes; text, whose value is a pointer, is left to the caller.
    unsafe {
        if ffi::PyObject_TypeCheck(value.as_ptr(), get_type_object(py, NpyTypes::PyGenericArrType_Type)) == 0 {
            return None;
        }
        let descr = PY_ARRAY_API.PyArray_DescrFromScalar(py, value.as_ptr());
        let descr = Bound::from_owned_ptr_or_opt(py, descr.cast())?;
        let fields = &*_PyDataType_GET_ITEM_DATA(descr.as_ptr().cast());
        let dtype = dtype_of(py, fields.type_num, descr.as_ptr())?;
        let size = dtype.size()?;
        let mut inline = [0u8; 16];
        PY_ARRAY_API.PyArray_ScalarAsCtype(py, value.as_ptr(), inline.as_mut_ptr().cast());
        Some(Leaf::scalar(dtype, &inline[..size]))
    }
}
