//! NumPy arrays in and out: the only module of this crate with `unsafe`.
//!
//! In: a leaf of a nest becomes (dtype, shape, bytes), see `read`. Out: see `fresh`.

mod cell;
mod dtype;
mod entry;
mod new_array;
mod numbers;
mod read;
mod scalar;

pub use cell::{Cell, Leaf};
pub use dtype::{descr, dtype_from, is_array};
pub use entry::{KnownEntry, take_known};
pub use new_array::{LentBlock, NewArray, Slab, column};
pub use numbers::{Numbers, flags, numbers};
pub use read::{contiguous_bytes, describe, load, read};
