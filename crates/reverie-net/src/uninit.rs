//! Bytes of this process as memory that a gather writes.

use std::mem::MaybeUninit;

/// Bytes of this process as memory to be written. The caller must leave none of them uninitialised.
pub(crate) fn as_uninit(bytes: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, of the same layout; the code that the callers pass it to (a gather) writes bytes only.
    unsafe { &mut *(std::ptr::from_mut(bytes) as *mut [MaybeUninit<u8>]) }
}
