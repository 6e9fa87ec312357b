//! Large unused allocations, kept for reuse.
//!
//! An allocator returns large allocations to the system when they are freed, and the first touch of a fresh page of 4
//! kB takes 1.7 us: see docs/decisions/0021-freed-memory.md.

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Mutex, TryLockError};

/// Smaller allocations are left to the allocator.
///
/// An allocator returns larger ones to the system, too: a writer's chunks of 25 kB, freed several at once when they are
/// confirmed, are at the top of its heap, which it trims when more than 128 KiB there are free.
const LARGE: usize = 8 << 10;

/// The number of the youngest allocations that are searched for a layout.
const MAX_SEARCHED: usize = 64;

/// The most bytes that the process keeps. They belong to no chunk and are counted for none.
const MOST_BYTES: usize = 64 << 20;

/// Guards the list only: memory is allocated and freed outside.
///
/// Only `try_lock` is used, because a child that was forked while another thread held the lock finds it locked for
/// ever.
static RESERVE: Mutex<Reserve> = Mutex::new(Reserve::new(MOST_BYTES));

/// Allocates memory like `alloc`: not zeroed, and perhaps used before.
///
/// # Safety
/// As `alloc`.
pub(super) unsafe fn allocate(layout: Layout) -> NonNull<u8> {
    let kept = (layout.size() >= LARGE).then(|| tried(|reserve| reserve.take(layout))).flatten().flatten();
    // SAFETY: as required of the caller.
    let fresh = || NonNull::new(unsafe { alloc::alloc(layout) }).unwrap_or_else(|| alloc::handle_alloc_error(layout));
    kept.map_or_else(fresh, |FreeAllocation(memory)| memory)
}

/// Frees memory that `allocate` returned for this layout.
///
/// # Safety
/// As `dealloc`.
pub(super) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    if layout.size() < LARGE || layout.size() > MOST_BYTES {
        // SAFETY: as required of the caller.
        return unsafe { alloc::dealloc(memory.as_ptr(), layout) };
    }
    let mut unused = Some(FreeAllocation(memory));
    let mut over = tried(|reserve| reserve.give(unused.take()?, layout)).flatten();
    if let Some(FreeAllocation(memory)) = unused {
        // SAFETY: as required of the caller; it was not kept.
        unsafe { alloc::dealloc(memory.as_ptr(), layout) };
    }
    while let Some((FreeAllocation(memory), layout)) = over {
        // SAFETY: kept with the layout that it was allocated with, and taken off the list: nothing else refers to it.
        unsafe { alloc::dealloc(memory.as_ptr(), layout) };
        over = tried(Reserve::pop_oldest).flatten();
    }
}

/// Runs `work` on the list; `None` if another thread holds it just now.
fn tried<T>(work: impl FnOnce(&mut Reserve) -> T) -> Option<T> {
    match RESERVE.try_lock() {
        Ok(mut reserve) => Some(work(&mut reserve)),
        Err(TryLockError::Poisoned(poisoned)) => Some(work(&mut poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The start of an unused allocation.
#[derive(Debug, PartialEq)]
struct FreeAllocation(NonNull<u8>);

// SAFETY: the holder has the only reference to the memory.
unsafe impl Send for FreeAllocation {}

/// The kept allocations, see the module. The youngest are at the end.
#[derive(Debug)]
struct Reserve {
    free: VecDeque<(FreeAllocation, Layout)>,
    bytes: usize,
    most: usize,
}

impl Reserve {
    const fn new(most: usize) -> Self {
        Self { free: VecDeque::new(), bytes: 0, most }
    }

    /// The youngest allocation of exactly this layout: it is most likely in the cache.
    fn take(&mut self, layout: Layout) -> Option<FreeAllocation> {
        let first = self.free.len().saturating_sub(MAX_SEARCHED);
        let at = first + self.free.range(first..).rposition(|(_, kept)| *kept == layout)?;
        let (free, _) = self.free.remove(at)?;
        self.bytes -= layout.size();
        Some(free)
    }

    /// Keeps the memory; returns the result of [`Reserve::pop_oldest`].
    fn give(&mut self, free: FreeAllocation, layout: Layout) -> Option<(FreeAllocation, Layout)> {
        self.bytes += layout.size();
        self.free.push_back((free, layout));
        self.pop_oldest()
    }

    /// Removes and returns the oldest allocation, if more is kept than allowed.
    fn pop_oldest(&mut self) -> Option<(FreeAllocation, Layout)> {
        let (free, layout) = (self.bytes > self.most).then(|| self.free.pop_front()).flatten()?;
        self.bytes -= layout.size();
        Some((free, layout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: usize = 1000;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 16).unwrap()
    }

    /// A number in place of an address; there is no memory behind it.
    fn named(number: usize) -> FreeAllocation {
        FreeAllocation(NonNull::new(std::ptr::without_provenance_mut(number)).unwrap())
    }

    proptest! {
        #[test]
        fn kept_memory_is_given_once_the_youngest_of_its_size_first_and_the_oldest_is_freed_beyond_the_limit(
            steps in prop::collection::vec((any::<bool>(), 1usize..8), 1..200),
        ) {
            let (mut reserve, mut model) = (Reserve::new(MOST), Vec::<(usize, usize)>::new());
            for (number, (gives, size)) in steps.into_iter().enumerate() {
                let (number, size) = (number + 1, size * 60);
                if gives {
                    model.push((number, size));
                    let mut over = reserve.give(named(number), layout(size));
                    while model.iter().map(|(_, size)| size).sum::<usize>() > MOST {
                        let (oldest, size) = model.remove(0);
                        prop_assert_eq!(over, Some((named(oldest), layout(size))));
                        over = reserve.pop_oldest();
                    }
                    prop_assert_eq!(over, None);
                } else {
                    let at = model.iter().rposition(|(_, kept)| *kept == size);
                    let want = at.map(|at| named(model.remove(at).0));
                    prop_assert_eq!(reserve.take(layout(size)), want);
                }
                prop_assert_eq!(reserve.bytes, model.iter().map(|(_, size)| size).sum::<usize>());
            }
        }
    }

    /// The number of times, in a hundred attempts, that freed memory is returned by the next allocation.
    fn used_again(size: usize) -> usize {
        let layout = layout(size);
        let once = |_: &usize| {
            // SAFETY: not of size zero, freed once with its own layout, and never touched.
            let (first, second) = unsafe {
                let first = allocate(layout);
                free(first, layout);
                (first, allocate(layout))
            };
            // Two allocations held at the same time must differ.
            // SAFETY: as above.
            unsafe {
                let third = allocate(layout);
                assert_ne!(second, third);
                free(third, layout);
                free(second, layout);
            }
            let kept = RESERVE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            first == second && kept.free.iter().any(|(free, of)| (free.0, *of) == (second, layout))
        };
        (0..100).filter(once).count()
    }

    #[test]
    fn large_memory_is_used_again_and_small_or_huge_memory_is_the_allocators() {
        // Another thread may hold the list for a moment; the memory is then freed as usual.
        assert!(used_again(LARGE + 4711) > 0);
        assert_eq!((used_again(LARGE - 1), used_again(MOST_BYTES + 1)), (0, 0));
    }
}
