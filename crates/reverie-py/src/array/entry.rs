//! The values of dicts whose keys are known.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// An entry of a dict as it was last seen, and the place of its value.
pub struct KnownEntry {
    /// The key object, compared by identity.
    pub key: Py<PyAny>,
    /// The value's class.
    pub class: Py<PyType>,
    /// The index of the value among the leaves.
    pub index: usize,
}

/// Puts the values of a dict into their places if it has exactly these key objects in this order, and these classes.
/// False if not; some values may have been put by then.
#[inline]
pub fn take_known<'py>(
    dict: &Bound<'py, PyDict>,
    known: &[KnownEntry],
    leaves: &mut [Option<Bound<'py, PyAny>>],
) -> bool {
    let (py, mut at, mut seen) = (dict.py(), 0, 0);
    let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a live dict, under the GIL; `at`, `key` and `value` are ours. No Python code runs between finding an
    // entry and taking a reference to its value: no leaf is dropped, as each place is still empty.
    unsafe {
        while ffi::PyDict_Next(dict.as_ptr(), &mut at, &mut key, &mut value) != 0 {
            let Some(entry) = known.get(seen).filter(|entry| entry.key.as_ptr() == key) else { return false };
            let Some(leaf) = leaves.get_mut(entry.index) else { return false };
            let value = Borrowed::<PyAny>::from_ptr(py, value);
            if value.get_type_ptr() != entry.class.as_ptr().cast() || leaf.is_some() {
                return false;
            }
            *leaf = Some(value.to_owned());
            seen += 1;
        }
    }
    seen == known.len()
}
