//! Copies into memory that is larger than the cache, past the cache.
//!
//! A store to a line that is not in the cache first reads that line, and evicts another one. A streaming store does
//! neither: it writes whole lines to memory. docs/measurements/limits.md has what that gains.

/// The bytes of the smallest batch whose stores stream: a few such batches do not fit into the last level of a cache.
/// Chosen between 2.6 MB, where streaming gains nothing, and 14.5 MB, where it does.
const LEAST_BATCH: usize = 8 << 20;
/// The shortest copy that streams: shorter ones have too many lines that they fill in part.
const LEAST_COPY: usize = 1 << 10;

/// The kind of stores that write the bytes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the cache.
    Cached,
    /// Past it. They are in order with what follows once the [`StoreFence`] of [`Stores::begin`] is dropped.
    Streamed,
}

/// Ends the stores of a batch when it is dropped, which must be before its memory is used.
#[must_use]
pub(crate) struct StoreFence(Stores);

impl Drop for StoreFence {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.0 == Stores::Streamed {
            // SAFETY: the instruction is part of the baseline of x86_64.
            unsafe { std::arch::x86_64::_mm_sfence() };
        }
    }
}

impl Stores {
    /// The stores of a batch of `bytes`, on this processor.
    pub(crate) fn of_batch(bytes: usize) -> Self {
        if bytes >= LEAST_BATCH && is_measured() { Self::Streamed } else { Self::Cached }
    }

    /// Called before the first copy of a batch.
    pub(crate) fn begin(self) -> StoreFence {
        StoreFence(self)
    }

    /// True if a copy of `len` bytes streams.
    #[inline(always)]
    pub(crate) fn streams(self, len: usize) -> bool {
        self == Self::Streamed && len >= LEAST_COPY
    }

    /// Copies bytes.
    ///
    /// # Safety
    /// As `ptr::copy_nonoverlapping`; and `to` is not used before the [`StoreFence`] of these stores is dropped.
    #[inline(always)]
    pub(crate) unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as required of the caller.
        unsafe {
            if self.streams(len) {
                streamed(from, to, len);
            } else {
                std::ptr::copy_nonoverlapping(from, to, len);
            }
        }
    }
}

/// True if streaming stores were measured to be faster on this maker's processors.
fn is_measured() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::sync::LazyLock;
        static IS_AMD: LazyLock<bool> = LazyLock::new(|| {
            // SAFETY: every x86_64 processor has the instruction.
            #[allow(unused_unsafe)] // it is safe from Rust 1.94 on
            let name = unsafe { std::arch::x86_64::__cpuid(0) };
            [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
        });
        *IS_AMD
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    false
}

/// Copies the bytes before the first whole line and those after the last one through the cache, the others past it.
///
/// # Safety
/// As `ptr::copy_nonoverlapping`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn streamed(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const LINE: usize = 64;
    const LANE: usize = size_of::<__m128i>();
    let before = to.align_offset(LINE).min(len);
    let end = before + (len - before) / LINE * LINE;
    // SAFETY: all ranges are within `len`; `to + before` is a multiple of a line, and of a lane. The instructions are
    // part of the baseline of x86_64.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, before);
        for line in (before..end).step_by(LINE) {
            let (from, to) = (from.add(line).cast::<__m128i>(), to.add(line).cast::<__m128i>());
            let lanes: [__m128i; LINE / LANE] = std::array::from_fn(|lane| _mm_loadu_si128(from.add(lane)));
            for (lane, bytes) in lanes.into_iter().enumerate() {
                _mm_stream_si128(to.add(lane), bytes);
            }
        }
        std::ptr::copy_nonoverlapping(from.add(end), to.add(end), len - end);
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
unsafe fn streamed(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as required of the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_kinds_of_stores_copy_the_bytes_and_no_others(
            len in prop_oneof![0..200_usize, LEAST_COPY - 1..LEAST_COPY + 400],
            (from, to) in (0..80_usize, 0..80_usize),
            streams in any::<bool>(),
        ) {
            let stores = if streams { Stores::Streamed } else { Stores::Cached };
            let source: Vec<u8> = (0..from + len).map(|byte| (byte % 251) as u8 + 1).collect();
            let mut target = vec![0; to + len + 80];
            let finish = stores.begin();
            // SAFETY: both have `len` bytes there, and they do not overlap.
            unsafe { stores.copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
            drop(finish);
            prop_assert_eq!(&target[to..to + len], &source[from..]);
            prop_assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0));
        }
    }

    #[test]
    fn only_large_batches_are_stored_past_the_cache() {
        assert_eq!(Stores::of_batch(LEAST_BATCH - 1), Stores::Cached);
        let large = if is_measured() { Stores::Streamed } else { Stores::Cached };
        assert_eq!(Stores::of_batch(LEAST_BATCH), large);
    }
}
