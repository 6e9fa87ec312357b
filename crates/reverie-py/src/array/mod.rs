//! NumPy arrays in and out: the only module of this crate with `unsafe`.
//!
//! In: a leaf of a nest becomes (dtype, shape, bytes), without a copy if it is a C-contiguous array in native byte
//! order. Out: see `fresh`.

mod fresh;
mod numbers;
mod scalar;

pub use fresh::{Fresh, Lent, Slab, column};
pub use numbers::{Number, Numbers, flags, numbers};
use scalar::{exact_scalar, known_scalar, python_scalar};

use crate::errors::signature;
use numpy::npyffi::flags::NPY_ARRAY_C_CONTIGUOUS;
use numpy::npyffi::objects::{_PyArray_GET_ITEM_DATA, _PyDataType_GET_ITEM_DATA, PyArrayObject};
use numpy::npyffi::{PyArray_Check, PyArray_CheckExact, npy_intp};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};
use pyo3::{ffi, intern};
use reverie_core::spec::{ColumnSpec, DType};
use smallvec::SmallVec;
use std::ptr::NonNull;

/// A shape; few arrays of experience have more axes.
pub type Dims = SmallVec<[usize; 4]>;

/// The bytes of one leaf.
pub struct Cell<'py> {
    /// Bytes of an element.
    pub itemsize: usize,
    /// The array or number that owns the bytes, if they were not copied.
    _holder: Option<Bound<'py, PyAny>>,
    data: Data,
}

enum Data {
    Inline(Aligned, u8),
    Lent(NonNull<u8>, usize),
}

/// One number, aligned as any number is.
#[repr(align(8))]
#[derive(Clone, Copy)]
struct Aligned([u8; 16]);

/// One leaf of a nest, as a column would hold it.
pub struct Leaf<'py> {
    /// The type of an element.
    pub dtype: DType,
    /// The shape.
    pub shape: Dims,
    /// The bytes.
    pub cell: Cell<'py>,
}

impl<'py> Cell<'py> {
    /// The elements in C order and the machine's byte order.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Inline(bytes, len) => &bytes.0[..usize::from(*len)],
            // SAFETY: the array is alive (we hold it), C-contiguous and `len` bytes long. NumPy never moves the data of
            // an array that something else references (`resize` refuses). A thread that writes into the array while we
            // read it without the GIL tears its own numbers, as under any NumPy call that releases the GIL. A number
            // (`exact_scalar`) is alive for the same reason, and never changes.
            Data::Lent(data, len) => unsafe { std::slice::from_raw_parts(data.as_ptr(), *len) },
        }
    }

    /// Fast path: a leaf of the type and shape that its column already holds; `None` otherwise.
    /// With `rows`, the leaf has a leading axis of that many rows, or of any number, which is then stored there.
    #[inline]
    pub fn known(leaf: &Bound<'py, PyAny>, spec: &ColumnSpec, rows: Option<&mut Option<usize>>) -> Option<Self> {
        Self::taken(&mut Some(leaf.clone()), spec, rows)
    }

    /// As [`Cell::known`]; takes the leaf out of its slot if its bytes are read in place.
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
pub fn lying<'a>(leaf: &'a Bound<'_, PyAny>, spec: &ColumnSpec) -> Option<&'a [u8]> {
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

impl Leaf<'_> {
    fn scalar(dtype: DType, bytes: &[u8]) -> Self {
        let mut inline = [0; 16];
        inline[..bytes.len()].copy_from_slice(bytes);
        let data = Data::Inline(Aligned(inline), bytes.len() as u8);
        Self { dtype, shape: Dims::new(), cell: Cell { itemsize: bytes.len(), _holder: None, data } }
    }
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

/// The dtype of a NumPy type number; `None` if the engine does not support it.
#[inline]
fn dtype_of(py: Python<'_>, number: i32, descr: *mut ffi::PyObject) -> Option<DType> {
    if !(256..=2047).contains(&number) {
        return own_dtype(number);
    }
    // User types: those of ml_dtypes are recognised by the name of their dtype, which Python code creates.
    // SAFETY: `descr` is the live descriptor of an array that the caller holds.
    let descr = unsafe { Borrowed::from_ptr(py, descr) };
    let name = descr.getattr(intern!(py, "name")).ok()?;
    DType::from_name(&name.cast::<PyString>().ok()?.to_cow().ok()?)
}

/// As [`dtype_of`], for NumPy's own types.
#[inline]
fn own_dtype(number: i32) -> Option<DType> {
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

/// The module `numpy`.
pub fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || PyModule::import(py, "numpy").map(Bound::unbind))?.bind(py))
}

/// The dtype and the shape that a leaf would have as a column.
#[pyfunction]
pub fn describe(leaf: &Bound<'_, PyAny>, path: String) -> PyResult<(Py<PyAny>, Vec<usize>)> {
    let read = read(leaf, None, &|| path.clone())?;
    Ok((descr(leaf.py(), read.dtype, read.cell.itemsize)?.unbind(), read.shape.to_vec()))
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
                    // NumPy knows the names of ml_dtypes only after that module is imported.
                    let types = PyModule::import(py, "ml_dtypes")?;
                    return Ok(numpy(py)?.call_method1("dtype", (types.getattr(dtype.name())?,))?.unbind());
                };
                Ok(descr.unbind())
            })?;
            Ok(known.bind(py).clone())
        }
    }
}

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

/// True for a NumPy array.
#[inline]
pub fn is_array(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object, under the GIL.
    unsafe { PyArray_Check(value.py(), value.as_ptr()) != 0 }
}
