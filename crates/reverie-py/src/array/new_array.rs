//! New writable output arrays.
//!
//! The storage of large ones comes from a bounded pool, and returns to it when the last array that uses it is gone.

use super::dtype::descr;
use super::numbers::Number;
use crate::errors::raise;
use crate::process_local::ProcessLocal;
use numpy::PY_ARRAY_API;
use numpy::npyffi::flags::NPY_ARRAY_CARRAY;
use numpy::npyffi::objects::_PyArray_GET_ITEM_DATA;
use numpy::npyffi::{NpyTypes, get_type_object, npy_intp};
use pyo3::prelude::*;
use reverie_core::Error;
use reverie_core::batch::Block;
use reverie_core::sample::ArrayMemory;
use reverie_core::spec::DType;
use smallvec::SmallVec;
use std::alloc::Layout;
use std::any::Any;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// A new array that is still private, and the destination of its bytes.
pub struct NewArray<'py> {
    array: Bound<'py, PyAny>,
    data: NonNull<u8>,
    len: usize,
}

impl<'py> NewArray<'py> {
    /// An uninitialised array. Every byte must be written before it is given out.
    pub fn new(py: Python<'py>, dtype: DType, itemsize: usize, shape: &[usize]) -> PyResult<Self> {
        let len = size_of_array(dtype, itemsize, shape);
        let slab = match len >= POOLED_BYTES {
            true => Some(Slab::take(len).ok_or_else(|| raise(py, Error::OutOfMemory { needed: len as u64 }))?),
            false => None,
        };
        Self::make(py, dtype, itemsize, shape, slab)
    }

    /// An array over memory that is filled; the memory must hold at least the array's bytes.
    pub fn over(py: Python<'py>, dtype: DType, itemsize: usize, shape: &[usize], slab: Slab) -> PyResult<Self> {
        assert!(slab.layout.size() >= size_of_array(dtype, itemsize, shape), "the memory is smaller than the array");
        Self::make(py, dtype, itemsize, shape, Some(slab))
    }

    fn make(py: Python<'py>, dtype: DType, itemsize: usize, shape: &[usize], slab: Option<Slab>) -> PyResult<Self> {
        let data = slab.as_ref().map(|slab| slab.data);
        let base = slab.map(|slab| Bound::new(py, Storage(Some(slab)))).transpose()?;
        // SAFETY: the memory is as long as the array (the callers check it) and lives as long as its base.
        let array = unsafe { array_over(py, dtype, itemsize, shape, data, base.map(Bound::into_any))? };
        // SAFETY: an array's fields, under the GIL.
        let data = unsafe { (*_PyArray_GET_ITEM_DATA(array.as_ptr().cast())).data };
        let len = size_of_array(dtype, itemsize, shape);
        Ok(Self { array, data: NonNull::new(data.cast()).unwrap_or(NonNull::dangling()), len })
    }

    /// The array's bytes, to be written.
    pub fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the array is ours alone until `done`, and its data is `len` bytes.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr().cast(), self.len) }
    }

    /// The array. Every byte must have been written.
    pub fn done(self) -> Bound<'py, PyAny> {
        self.array
    }
}

/// Makes an array; NumPy allocates if there is no `data`.
///
/// # Safety
/// `data` must be as long as the array, writable, aligned for the dtype, and live until `base` is gone.
unsafe fn array_over<'py>(
    py: Python<'py>,
    dtype: DType,
    itemsize: usize,
    shape: &[usize],
    data: Option<NonNull<u8>>,
    base: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let descr = descr(py, dtype, itemsize)?;
    let mut dims: SmallVec<[npy_intp; 4]> = shape.iter().map(|n| *n as npy_intp).collect();
    let flags = if data.is_some() { NPY_ARRAY_CARRAY } else { 0 };
    // SAFETY: the descriptor's reference is passed on as the call requires; `data` is null (NumPy allocates) or as long
    // as the array, and lives until the base object, set below, is gone.
    let array = unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descr.into_ptr().cast(),
            dims.len() as i32,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            data.map_or(std::ptr::null_mut(), |data| data.as_ptr().cast()),
            flags,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)?
    };
    if let Some(base) = base {
        // SAFETY: the call takes over the reference to the base.
        if unsafe { PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), base.into_ptr()) } < 0 {
            return Err(PyErr::fetch(py));
        }
    }
    Ok(array)
}

/// The memory of a batch that arrived over a network, lent to the arrays that view it.
pub struct LentBlock<'py> {
    base: Bound<'py, Loan>,
    block: Arc<dyn Block>,
}

impl<'py> LentBlock<'py> {
    /// The memory is returned when the last array over it is gone.
    pub fn new(py: Python<'py>, block: Arc<dyn Block>) -> PyResult<Self> {
        let base = Bound::new(py, Loan(ProcessLocal::new(Arc::clone(&block), "batch")))?;
        Ok(Self { base, block })
    }

    /// An array over some of the bytes, all of which are filled. Nothing else may use these bytes from then on.
    pub fn array(
        &self,
        dtype: DType,
        itemsize: usize,
        shape: &[usize],
        bytes: Range<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, len) = (self.base.py(), size_of_array(dtype, itemsize, shape));
        assert!(bytes.start <= bytes.end && bytes.end <= self.block.len(), "an array outside its batch's memory");
        let start = self.block.as_ptr().wrapping_add(bytes.start);
        if len > bytes.len() || !start.addr().is_multiple_of(8) {
            // Text of zero characters: NumPy requires at least one. No other array has this layout.
            let mut fresh = NewArray::new(py, dtype, itemsize, shape)?;
            assert!(fresh.len >= bytes.len(), "more bytes than the array has");
            fresh.bytes().fill(MaybeUninit::new(0));
            // SAFETY: the range lies within the block, and the fresh array is ours alone and long enough.
            unsafe { std::ptr::copy_nonoverlapping(start, fresh.data.as_ptr(), bytes.len()) };
            return Ok(fresh.done());
        }
        let base = Some(self.base.clone().into_any());
        // SAFETY: the bytes lie within the block, which the base keeps alive; nothing else uses the block while it
        // lives, as `Block` promises.
        unsafe { array_over(py, dtype, itemsize, shape, NonNull::new(start), base) }
    }
}

/// A one-dimensional array with one number per value.
pub fn column<'py, S, T: Number>(
    py: Python<'py>,
    values: &[S],
    number: impl Fn(&S) -> T,
) -> PyResult<Bound<'py, PyAny>> {
    let fresh = NewArray::new(py, T::DTYPE, size_of::<T>(), &[values.len()])?;
    for (index, value) in values.iter().enumerate() {
        // SAFETY: the array has as many elements of this size as there are values, aligned by NumPy, and is ours alone.
        unsafe { fresh.data.cast::<T>().add(index).write(number(value)) };
    }
    Ok(fresh.done())
}

/// Arrays of at least this size use storage from the pool.
/// The first touch of a fresh page of 4 kB takes 1.7 us, see docs/decisions/0021-freed-memory.md.
const POOLED_BYTES: usize = 256 << 10;
/// Bytes that the pool keeps at most.
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
    /// At least `len` bytes, from the pool if it has a fitting slab; `None` if the machine is out of memory.
    pub fn take(len: usize) -> Option<Self> {
        let fits = |slab: &Slab| slab.layout.size() >= len && slab.layout.size() <= len + len / 4;
        // Do not wait for a lock that is held (or was, when this process was forked): allocate.
        let pooled = if len < POOLED_BYTES { None } else { POOL.try_lock().ok() };
        if let Some(slab) = pooled.and_then(|mut pool| pool.iter().rposition(fits).map(|at| pool.swap_remove(at))) {
            return Some(slab);
        }
        let align = if len < POOLED_BYTES { 64 } else { 4096 };
        let size = len.max(1).next_multiple_of(align);
        let layout = Layout::from_size_align(size, align).ok()?;
        // SAFETY: the size is not zero.
        let data = unsafe { std::alloc::alloc(layout) };
        NonNull::new(data).map(|data| Slab { data, layout })
    }

    /// The first `len` bytes, to be written.
    pub fn first(&mut self, len: usize) -> &mut [MaybeUninit<u8>] {
        assert!(len <= self.layout.size(), "the memory is smaller than what is asked of it");
        // SAFETY: this many bytes are ours, and ours alone for the borrow.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr().cast(), len) }
    }
}

impl Slab {
    /// Memory for an array that is gathered without the interpreter.
    pub fn memory(len: usize) -> Option<Box<dyn ArrayMemory>> {
        Self::take(len).map(|slab| Box::new(slab) as _)
    }

    /// The memory that [`Slab::memory`] returned.
    pub fn from_memory(memory: Box<dyn ArrayMemory>) -> Self {
        let memory: Box<dyn Any> = memory;
        *memory.downcast().expect("memory that `Slab::memory` returned")
    }
}

impl ArrayMemory for Slab {
    fn bytes(&mut self, len: usize) -> &mut [MaybeUninit<u8>] {
        self.first(len)
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

/// The owner of arrays in a batch's memory, as their base. In a forked child it is leaked.
#[pyclass(frozen, module = "reverie._native")]
struct Loan(#[allow(dead_code)] ProcessLocal<Arc<dyn Block>>);

fn size_of_array(dtype: DType, itemsize: usize, shape: &[usize]) -> usize {
    // NumPy's narrowest text has one character.
    let itemsize = itemsize.max(match dtype {
        DType::Str => 4,
        _ => 1,
    });
    dtype.size().unwrap_or(itemsize) * shape.iter().product::<usize>()
}
