//! Prefetches memory ahead of its use, so that the misses of a batch overlap.

const LINE: usize = 64;

/// Prefetches the cache line at which `value` starts.
///
/// A hint: it changes no state that a program can see, and does nothing on a processor without such an instruction.
#[inline(always)]
pub(crate) fn prefetch<T: ?Sized>(value: &T) {
    hint(std::ptr::from_ref(value).cast());
}

/// Like [`prefetch`] for every cache line of a value that is longer than one.
#[inline(always)]
pub(crate) fn prefetch_whole<T>(value: &T) {
    prefetch_whole_at(std::slice::from_ref(value), 0);
}

/// Like [`prefetch`] for `slice[index]`, without the bounds check: an index past the end is a wasted hint.
#[inline(always)]
pub(crate) fn prefetch_at<T>(slice: &[T], index: usize) {
    hint(slice.as_ptr().wrapping_add(index).cast());
}

/// Like [`prefetch_whole`] for `slice[index]`, without the bounds check.
#[inline(always)]
pub(crate) fn prefetch_whole_at<T>(slice: &[T], index: usize) {
    let start: *const u8 = slice.as_ptr().wrapping_add(index).cast();
    (0..size_of::<T>()).step_by(LINE).for_each(|offset| hint(start.wrapping_add(offset)));
}

/// Like [`prefetch`] for any address: an unmapped one is a wasted hint.
#[inline(always)]
pub(crate) fn prefetch_address(address: *const u8) {
    hint(address);
}

#[inline(always)]
fn hint(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is part of the baseline of x86_64, reads nothing that the program can see, and
    // faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction is part of the baseline of aarch64, reads nothing that the program can see, and
    // faults at no address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}
