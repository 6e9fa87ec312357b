//! NumPy arrays in and out: the only file of this crate with `unsafe`.
//!
//! In: a leaf of a nest becomes (dtype, shape, bytes), without a copy where it is a C-contiguous array of the
//! machine's byte order. Out: fresh arrays, writable; the storage of large ones comes from a bounded pool and goes back
//! to it when the last array that looks at it is gone.

use crate::errors::signature;
use numpy::PY_ARRAY_API;
use numpy::npyffi::flags::{NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_CARRAY};
use numpy::npyffi::objects::{_PyArray_GET_ITEM_DATA, _PyDataType_GET_ITEM_DATA, PyArrayObject};
use numpy::npyffi::{NpyTypes, PyArray_Check, get_type_object, npy_intp};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};
use pyo3::{ffi, intern};
use reverie_core::spec::{ColumnSpec, DType};
use smallvec::SmallVec;
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Mutex;

/// A shape; few arrays of experience have more axes.
pub type Dims = SmallVec<[usize; 4]>;

/// The bytes of one leaf.
pub struct Cell<'py> {
    /// Bytes of an element.
    pub itemsize: usize,
    /// Holds the bytes, where they are an array's.
    _holder: Bound<'py, PyAny>,
    data: Data,
}

enum Data {
    Inline(Aligned, u8),
    Array(NonNull<u8>, usize),
}

/// One number, aligned as any number is.
#[repr(align(16))]
#[derive(Clone, Copy)]
struct Aligned([u8; 16]);

/// One leaf of a nest, and what a column of it would hold.
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
            // SAFETY: the array is alive (we hold it), C-contiguous and `len` bytes long. NumPy never moves the data
            // of an array that somebody else holds (`resize` refuses). A thread that writes into the array while we
            // read it without the GIL tears its own numbers, as it does under any NumPy call that lets the GIL go.
            Data::Array(data, len) => unsafe { std::slice::from_raw_parts(data.as_ptr(), *len) },
        }
    }

    /// The usual case, quickly: a leaf that is what its column holds already. With `rows`, a leading axis of as many
    /// rows as it says, or of any number, which it then says. `None`: look closer.
    #[inline]
    pub fn known(leaf: &Bound<'py, PyAny>, spec: &ColumnSpec, rows: Option<&mut Option<usize>>) -> Option<Self> {
        let itemsize = spec.dtype.size()?;
        if !is_array(leaf) {
            let fits = rows.is_none() && spec.shape.is_empty();
            return python_scalar(leaf, Some(spec.dtype))
                .filter(|leaf| fits && leaf.dtype == spec.dtype)
                .map(|leaf| leaf.cell);
        }
        let (dtype, dims, data) = fields(leaf)?;
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
        Some(Self { itemsize, data: Data::Array(data, len), _holder: leaf.clone() })
    }
}

impl<'py> Leaf<'py> {
    fn scalar(value: &Bound<'py, PyAny>, dtype: DType, bytes: &[u8]) -> Self {
        let mut inline = [0; 16];
        inline[..bytes.len()].copy_from_slice(bytes);
        let data = Data::Inline(Aligned(inline), bytes.len() as u8);
        Self { dtype, shape: Dims::new(), cell: Cell { itemsize: bytes.len(), _holder: value.clone(), data } }
    }
}

/// Reads a leaf. `want` is the column's dtype where it is known: Python's own numbers are cast to it where that keeps
/// their value (or rounds a float). `path` is asked for only when something is refused.
#[inline]
pub fn read<'py>(value: &Bound<'py, PyAny>, want: Option<DType>, path: &dyn Fn() -> String) -> PyResult<Leaf<'py>> {
    let py = value.py();
    // SAFETY: the pointer is a live object and we hold the GIL.
    if unsafe { PyArray_Check(py, value.as_ptr()) } != 0 {
        return plain(value).map_or_else(|| convert(value, want, path), Ok);
    }
    python_scalar(value, want).map_or_else(|| convert(value, want, path), Ok)
}

/// An array that can be read as it lies.
fn plain<'py>(value: &Bound<'py, PyAny>) -> Option<Leaf<'py>> {
    let (dtype, dims, data) = fields(value)?;
    let shape: Dims = dims.iter().map(|n| *n as usize).collect();
    let itemsize = match dtype.size() {
        Some(size) => size,
        None => value.getattr(intern!(value.py(), "itemsize")).ok()?.extract().ok()?,
    };
    let data = Data::Array(data, itemsize * shape.iter().product::<usize>());
    Some(Leaf { dtype, shape, cell: Cell { itemsize, _holder: value.clone(), data } })
}

/// The dtype, the shape and the bytes of an array that can be read as it lies.
#[inline]
fn fields<'a>(array: &'a Bound<'_, PyAny>) -> Option<(DType, &'a [npy_intp], NonNull<u8>)> {
    // SAFETY: the callers checked that this is an array; its fields are NumPy's public ABI, and we hold the GIL. The
    // shape lives as long as the array, and is changed by nothing that we call.
    unsafe {
        let fields = &*_PyArray_GET_ITEM_DATA(array.as_ptr().cast::<PyArrayObject>());
        let descr = &*_PyDataType_GET_ITEM_DATA(fields.descr);
        if fields.flags & NPY_ARRAY_C_CONTIGUOUS == 0 || descr.byteorder as u8 == b'>' {
            return None;
        }
        let dtype = dtype_of(array.py(), descr.type_num, fields.descr.cast())?;
        let dims = match fields.nd {
            0 => &[],
            nd => std::slice::from_raw_parts(fields.dimensions, nd as usize),
        };
        Some((dtype, dims, NonNull::new(fields.data.cast::<u8>()).unwrap_or(NonNull::dangling())))
    }
}

/// The dtype behind a NumPy type number; `None` for what the engine does not hold.
#[inline]
fn dtype_of(py: Python<'_>, number: i32, descr: *mut ffi::PyObject) -> Option<DType> {
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
        256..=2047 => {
            // User types: those of ml_dtypes are known by the name of their dtype.
            // SAFETY: `descr` is the live descriptor of an array that the caller holds.
            let descr = unsafe { Borrowed::from_ptr(py, descr) };
            let name = descr.getattr(intern!(py, "name")).ok()?;
            DType::from_name(&name.cast::<PyString>().ok()?.to_cow().ok()?)?
        }
        _ => return None,
    })
}

/// The dtype of a NumPy dtype-like object (`np.float32`, `"f4"`, a dtype); `None` for what the engine does not hold.
pub fn dtype_from(value: &Bound<'_, PyAny>) -> PyResult<Option<DType>> {
    let py = value.py();
    let dtype = numpy(py)?.call_method1(intern!(py, "dtype"), (value,))?;
    let number: i32 = dtype.getattr(intern!(py, "num"))?.extract()?;
    Ok(dtype_of(py, number, dtype.as_ptr()))
}

/// Python's own numbers, where the column's dtype holds them as they are.
#[inline]
fn python_scalar<'py>(value: &Bound<'py, PyAny>, want: Option<DType>) -> Option<Leaf<'py>> {
    if let Ok(number) = value.cast::<PyFloat>() {
        return match want {
            None | Some(DType::Float64) => Some(Leaf::scalar(value, DType::Float64, &number.value().to_ne_bytes())),
            Some(DType::Float32) => Some(Leaf::scalar(value, DType::Float32, &(number.value() as f32).to_ne_bytes())),
            _ => None,
        };
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        let fits = matches!(want, None | Some(DType::Bool));
        return fits.then(|| Leaf::scalar(value, DType::Bool, &[u8::from(flag.is_true())]));
    }
    if value.is_instance_of::<PyInt>() {
        let number = value.extract::<i64>().ok()?;
        return match want {
            None | Some(DType::Int64) => Some(Leaf::scalar(value, DType::Int64, &number.to_ne_bytes())),
            Some(DType::Int32) => {
                i32::try_from(number).ok().map(|n| Leaf::scalar(value, DType::Int32, &n.to_ne_bytes()))
            }
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
        Some(Leaf::scalar(value, dtype, &inline[..size]))
    }
}

/// Everything else, by `reverie._nest.as_column`: it gives an array that can be read as it lies, or refuses.
#[cold]
fn convert<'py>(value: &Bound<'py, PyAny>, want: Option<DType>, path: &dyn Fn() -> String) -> PyResult<Leaf<'py>> {
    static AS_COLUMN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let want = want.map(DType::name);
    let array = AS_COLUMN.import(py, "reverie._nest", "as_column")?.call1((value, want, path()))?;
    plain(&array).ok_or_else(|| signature(py, &path(), "an array of another kind", "numbers, bytes or str"))
}

/// The module `numpy`.
pub fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || PyModule::import(py, "numpy").map(Bound::unbind))?.bind(py))
}

/// The dtype's name and the shape that a leaf would have as a column.
#[pyfunction]
pub fn describe(leaf: &Bound<'_, PyAny>, path: String) -> PyResult<(Py<PyAny>, Vec<usize>)> {
    let read = read(leaf, None, &|| path.clone())?;
    Ok((descr(leaf.py(), read.dtype, read.cell.itemsize)?.unbind(), read.shape.to_vec()))
}

/// NumPy's dtype object. `itemsize` counts for bytes and str alone (bytes of one element).
pub fn descr<'py>(py: Python<'py>, dtype: DType, itemsize: usize) -> PyResult<Bound<'py, PyAny>> {
    static DESCRS: [PyOnceLock<Py<PyAny>>; DType::ALL.len()] = [const { PyOnceLock::new() }; DType::ALL.len()];
    let make = |name: &str| numpy(py)?.call_method1(intern!(py, "dtype"), (name,));
    match dtype {
        DType::Bytes => make(&format!("S{}", itemsize.max(1))),
        DType::Str => make(&format!("U{}", (itemsize / 4).max(1))),
        _ => {
            let known = DESCRS[dtype as usize].get_or_try_init(py, || -> PyResult<Py<PyAny>> {
                let Ok(descr) = make(dtype.name()) else {
                    // NumPy learns the names of ml_dtypes when that is imported.
                    let types = PyModule::import(py, "ml_dtypes")?;
                    return Ok(numpy(py)?.call_method1("dtype", (types.getattr(dtype.name())?,))?.unbind());
                };
                Ok(descr.unbind())
            })?;
            Ok(known.bind(py).clone())
        }
    }
}

/// A fresh array that nobody has seen yet, and where its bytes go.
pub struct Fresh<'py> {
    array: Bound<'py, PyAny>,
    data: NonNull<u8>,
    len: usize,
}

impl<'py> Fresh<'py> {
    /// An uninitialised array. Every byte has to be written before it is given out.
    pub fn new(py: Python<'py>, dtype: DType, itemsize: usize, shape: &[usize]) -> PyResult<Self> {
        let len = size_of_array(dtype, itemsize, shape);
        Self::make(py, dtype, itemsize, shape, (len >= POOLED_BYTES).then(|| Slab::take(len)))
    }

    /// An array over memory that is filled; it must hold at least the array's bytes.
    pub fn over(py: Python<'py>, dtype: DType, itemsize: usize, shape: &[usize], slab: Slab) -> PyResult<Self> {
        assert!(slab.layout.size() >= size_of_array(dtype, itemsize, shape), "the memory is smaller than the array");
        Self::make(py, dtype, itemsize, shape, Some(slab))
    }

    fn make(py: Python<'py>, dtype: DType, itemsize: usize, shape: &[usize], slab: Option<Slab>) -> PyResult<Self> {
        let descr = descr(py, dtype, itemsize)?;
        let mut dims: SmallVec<[npy_intp; 4]> = shape.iter().map(|n| *n as npy_intp).collect();
        let (data, flags) = match &slab {
            Some(slab) => (slab.data.as_ptr().cast(), NPY_ARRAY_CARRAY),
            None => (std::ptr::null_mut(), 0),
        };
        // SAFETY: the descriptor's reference is handed over as the call demands; `data` is null (NumPy allocates) or
        // as long as the array, and lives until the base object, set below, is gone.
        let array = unsafe {
            let array = PY_ARRAY_API.PyArray_NewFromDescr(
                py,
                get_type_object(py, NpyTypes::PyArray_Type),
                descr.into_ptr().cast(),
                dims.len() as i32,
                dims.as_mut_ptr(),
                std::ptr::null_mut(),
                data,
                flags,
                std::ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(py, array)?
        };
        if let Some(slab) = slab {
            let base = Bound::new(py, Storage(Some(slab)))?.into_any();
            // SAFETY: the call takes over the reference to the base.
            if unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_ptr()) } < 0 {
                return Err(PyErr::fetch(py));
            }
        }
        // SAFETY: an array's fields, under the GIL.
        let data = unsafe { (*_PyArray_GET_ITEM_DATA(array.as_ptr().cast())).data };
        let len = size_of_array(dtype, itemsize, shape);
        Ok(Self { array, data: NonNull::new(data.cast()).unwrap_or(NonNull::dangling()), len })
    }

    /// Where the bytes go.
    pub fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the array is ours alone until `done`, and its data is `len` bytes.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr().cast(), self.len) }
    }

    /// The array, every byte of which has been written.
    pub fn done(self) -> Bound<'py, PyAny> {
        self.array
    }
}

/// Numbers that a column of figures (keys, priorities) is made of.
pub trait Number: Copy {
    /// The dtype of the array.
    const DTYPE: DType;
}

impl Number for i64 {
    const DTYPE: DType = DType::Int64;
}

impl Number for i32 {
    const DTYPE: DType = DType::Int32;
}

impl Number for f64 {
    const DTYPE: DType = DType::Float64;
}

impl Number for bool {
    const DTYPE: DType = DType::Bool;
}

/// A one-dimensional array made of one number per value.
pub fn column<'py, S, T: Number>(
    py: Python<'py>,
    values: &[S],
    number: impl Fn(&S) -> T,
) -> PyResult<Bound<'py, PyAny>> {
    let fresh = Fresh::new(py, T::DTYPE, size_of::<T>(), &[values.len()])?;
    for (index, value) in values.iter().enumerate() {
        // SAFETY: the array has as many elements of this size as there are values, aligned by NumPy, and is ours alone.
        unsafe { fresh.data.cast::<T>().add(index).write(number(value)) };
    }
    Ok(fresh.done())
}

/// Numbers of one dtype from anything array-like: without a copy where it is an array of that dtype already.
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
                // SAFETY: `numbers` made sure of the dtype and of the alignment, and any bits are a number.
                unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
            }
        }
    }
}

/// Reads an argument that is one array of numbers (of any shape; C order). `name` is the argument's, for errors. Floats
/// are no integers: they are refused where integers are wanted.
pub fn numbers<'py, T: Number>(value: &Bound<'py, PyAny>, name: &str) -> PyResult<Numbers<'py, T>> {
    let py = value.py();
    let path = || name.to_owned();
    let value = if is_array(value) {
        value.clone()
    } else if let Some(leaf) = python_scalar(value, Some(T::DTYPE)).filter(|leaf| leaf.dtype == T::DTYPE) {
        return Ok(Numbers::Borrowed(leaf));
    } else {
        let array = numpy(py)?.call_method1(intern!(py, "asarray"), (value,))?;
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
        _ => integer(leaf.dtype) && leaf.dtype != DType::UInt64,
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

/// Reads an argument that is one array of flags: bools, or integers that are none or not.
pub fn flags(value: &Bound<'_, PyAny>, name: &str) -> PyResult<SmallVec<[bool; 16]>> {
    let py = value.py();
    let array = match is_array(value) || python_scalar(value, None).is_some() {
        true => value.clone(),
        false => numpy(py)?.call_method1(intern!(py, "asarray"), (value,))?,
    };
    let leaf = read(&array, None, &|| name.to_owned())?;
    if leaf.dtype != DType::Bool && !leaf.dtype.name().contains("int") {
        return Err(signature(py, name, leaf.dtype.name(), "bool"));
    }
    Ok(leaf.cell.bytes().chunks_exact(leaf.cell.itemsize).map(|flag| flag.iter().any(|byte| *byte != 0)).collect())
}

/// Arrays of at least so many bytes take their storage from the pool: fresh pages cost 1.6 ms a megabyte on first
/// touch, thirty times a warm copy.
const POOLED_BYTES: usize = 256 << 10;
/// What the pool keeps at most for later.
const POOL_BUDGET: usize = 256 << 20;

/// Memory for one array.
pub struct Slab {
    data: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a slab is plain memory with one owner.
unsafe impl Send for Slab {}
// SAFETY: a shared slab gives nothing out but its address.
unsafe impl Sync for Slab {}

impl Slab {
    /// At least so many bytes, from the pool where it has some.
    pub fn take(len: usize) -> Self {
        let fits = |slab: &Slab| slab.layout.size() >= len && slab.layout.size() <= len + len / 4;
        // A lock that is held (or was, when this process was forked) is no reason to wait: allocate.
        let pooled = if len < POOLED_BYTES { None } else { POOL.try_lock().ok() };
        if let Some(slab) = pooled.and_then(|mut pool| pool.iter().rposition(fits).map(|at| pool.swap_remove(at))) {
            return slab;
        }
        let align = if len < POOLED_BYTES { 64 } else { 4096 };
        let size = len.max(1).next_multiple_of(align);
        let layout = Layout::from_size_align(size, align).expect("an array fits in memory");
        // SAFETY: the size is not zero.
        let data = unsafe { std::alloc::alloc(layout) };
        let data = NonNull::new(data).unwrap_or_else(|| std::alloc::handle_alloc_error(layout));
        Slab { data, layout }
    }

    /// The first bytes, to be written.
    pub fn first(&mut self, len: usize) -> &mut [MaybeUninit<u8>] {
        assert!(len <= self.layout.size(), "the memory is smaller than what is asked of it");
        // SAFETY: so many bytes are ours, and ours alone for the borrow.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr().cast(), len) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { std::alloc::dealloc(self.data.as_ptr(), self.layout) }
    }
}

static POOL: Mutex<Vec<Slab>> = Mutex::new(Vec::new());

/// The owner of an array's bytes, as the array's base.
#[pyclass(frozen, module = "reverie._native")]
struct Storage(Option<Slab>);

impl Drop for Storage {
    fn drop(&mut self) {
        let large = self.0.take().filter(|slab| slab.layout.size() >= POOLED_BYTES);
        if let (Some(slab), Ok(mut pool)) = (large, POOL.try_lock()) {
            let held: usize = pool.iter().map(|slab| slab.layout.size()).sum();
            if held + slab.layout.size() <= POOL_BUDGET {
                pool.push(slab);
            }
        }
    }
}

fn size_of_array(dtype: DType, itemsize: usize, shape: &[usize]) -> usize {
    // NumPy's narrowest text has one character.
    let itemsize = itemsize.max(match dtype {
        DType::Str => 4,
        _ => 1,
    });
    dtype.size().unwrap_or(itemsize) * shape.iter().product::<usize>()
}

/// True for a NumPy array.
#[inline]
pub fn is_array(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object, under the GIL.
    unsafe { PyArray_Check(value.py(), value.as_ptr()) != 0 }
}
