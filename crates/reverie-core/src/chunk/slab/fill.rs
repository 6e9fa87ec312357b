//! Memory that a callback fills, and the proof that it did.

use crate::stores::Stores;
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;

/// Fills `to` from `from`, and returns it as initialised bytes. Panics if their lengths differ.
#[inline]
pub fn fill<'a>(to: &'a mut [MaybeUninit<u8>], from: &[u8]) -> &'a mut [u8] {
    assert!(to.len() == from.len(), "{} bytes into {}", from.len(), to.len());
    // SAFETY: equal lengths, and a `&mut` cannot overlap a `&`; every byte of `to` is initialised then.
    unsafe {
        copy_small(from.as_ptr(), to.as_mut_ptr().cast(), from.len());
        slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len())
    }
}

/// Like [`fill`], by these stores, whose [`StoreFence`](crate::stores::StoreFence) is dropped before `to` is used.
#[inline]
pub(crate) fn fill_with(to: &mut [MaybeUninit<u8>], from: &[u8], stores: Stores) {
    if !stores.streams(from.len()) {
        fill(to, from);
        return;
    }
    assert!(to.len() == from.len(), "{} bytes into {}", from.len(), to.len());
    // SAFETY: equal lengths, and a `&mut` cannot overlap a `&`.
    unsafe { stores.copy(from.as_ptr(), to.as_mut_ptr().cast(), from.len()) };
}

/// Fills `to` with zeros, for a reader that takes no other memory, and returns it.
pub(crate) fn zeroed(to: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    // SAFETY: every byte of `to` is initialised then.
    unsafe {
        ptr::write_bytes(to.as_mut_ptr(), 0, to.len());
        slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len())
    }
}

/// `len` bytes from memory that can only be copied: `fill` fills all that it gets and returns it.
pub fn filled(len: usize, fill: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8]) -> Box<[u8]> {
    let mut bytes = Box::<[u8]>::new_uninit_slice(len);
    let start = bytes.as_ptr().cast::<u8>();
    let filled = fill(&mut bytes);
    assert!(filled.as_ptr() == start && filled.len() == len, "a filler gives back what it was given");
    // SAFETY: only a caller that filled all of it can return a slice of bytes at this address.
    unsafe { bytes.assume_init() }
}

/// Copies with one or two moves for the widths of scalars and small vectors.
///
/// # Safety
/// As `ptr::copy_nonoverlapping`.
#[inline(always)]
pub(super) unsafe fn copy_small(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as required of the caller; the lengths are the requested ones.
    unsafe {
        match len {
            1 => ptr::copy_nonoverlapping(from, to, 1),
            4 => ptr::copy_nonoverlapping(from, to, 4),
            8 => ptr::copy_nonoverlapping(from, to, 8),
            16 => ptr::copy_nonoverlapping(from, to, 16),
            _ => ptr::copy_nonoverlapping(from, to, len),
        }
    }
}
