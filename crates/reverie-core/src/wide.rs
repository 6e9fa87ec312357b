//! Loops over many numbers, compiled for the widest instructions that the processor at hand has.
//!
//! The same source runs everywhere, and no operation is contracted or reordered: results are the same to the bit.

/// A loop to be compiled more than once. `run` is to be `#[inline(always)]`, as is all that it calls: what is not
/// inlined stays as it is.
pub(crate) trait Wide {
    /// What comes of it.
    type Output;

    /// The loop.
    fn run(self) -> Self::Output;
}

/// Runs the loop. Finding out which version to take costs a load and a branch.
#[inline]
pub(crate) fn wide<W: Wide>(work: W) -> W::Output {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the processor has the instructions.
        return unsafe { with_avx512(work) };
    } else if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { with_avx2(work) };
    }
    work.run()
}

/// # Safety
/// Only where the processor has the instructions.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
unsafe fn with_avx512<W: Wide>(work: W) -> W::Output {
    work.run()
}

/// # Safety
/// Only where the processor has the instructions.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn with_avx2<W: Wide>(work: W) -> W::Output {
    work.run()
}
