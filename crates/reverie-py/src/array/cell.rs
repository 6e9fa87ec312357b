//! The bytes of a leaf of a nest.

use pyo3::prelude::*;
use reverie_core::spec::DType;
use smallvec::SmallVec;
use std::ptr::NonNull;

/// A shape; few arrays of experience have more axes.
pub type Dims = SmallVec<[usize; 4]>;

/// The bytes of one leaf.
pub struct Cell<'py> {
    /// Bytes of an element.
    pub itemsize: usize,
    /// The array or number that owns the bytes, if they were not copied.
    pub(super) _holder: Option<Bound<'py, PyAny>>,
    pub(super) data: Data,
}

pub(super) enum Data {
    Inline(AlignedNumber, u8),
    Lent(NonNull<u8>, usize),
}

/// One number, aligned as any number is.
#[repr(align(8))]
#[derive(Clone, Copy)]
pub(super) struct AlignedNumber([u8; 16]);

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
}

impl Leaf<'_> {
    pub(super) fn scalar(dtype: DType, bytes: &[u8]) -> Self {
        let mut inline = [0; 16];
        inline[..bytes.len()].copy_from_slice(bytes);
        let data = Data::Inline(AlignedNumber(inline), bytes.len() as u8);
        Self { dtype, shape: Dims::new(), cell: Cell { itemsize: bytes.len(), _holder: None, data } }
    }
}
