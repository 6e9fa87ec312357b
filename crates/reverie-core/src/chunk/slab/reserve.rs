//! Large allocations that nobody uses, kept to be used again: a first touch of fresh pages takes ten times as long as
//! the copy that follows, and an allocator gives large allocations back to the system when they are freed.

use std::alloc::{self, Layout};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Mutex, TryLockError};

/// Smaller allocations are the allocator's. Larger ones it gives back too, in the end: a writer's chunks of 25 kB, freed
/// some together when they are confirmed, are the end of its memory, which it cuts off from 128 KiB on.
const LARGE: usize = 8 << 10;

/// So many of the youngest are looked at for one of the layout that is wanted.
const LOOKED_AT: usize = 64;

/// Bytes that the process keeps at most. They are no chunk's, and counted for none.
const MOST_BYTES: usize = 64 << 20;

/// Guards the list only: memory is asked for and given back outside. Only ever tried, since a child that was forked
/// while another thread held it finds it locked for ever.
static RESERVE: Mutex<Reserve> = Mutex::new(Reserve::new(MOST_BYTES));

/// Memory as `alloc` gives it: not zeroed, and perhaps used before.
///
/// # Safety
/// As `alloc`.
pub(super) unsafe fn allocate(layout: Layout) -> NonNull<u8> {
    let kept = (layout.size() >= LARGE).then(|| tried(|reserve| reserve.take(layout))).flatten().flatten();
    // SAFETY: the caller's.
    let fresh = || NonNull::new(unsafe { alloc::alloc(layout) }).unwrap_or_else(|| alloc::handle_alloc_error(layout));
    kept.map_or_else(fresh, |Free(memory)| memory)
}

/// Takes back what `allocate` gave for this layout.
///
/// # Safety
/// As `dealloc`.
pub(super) unsafe fn free(memory: NonNull<u8>, layout: Layout) {
    if layout.size() < LARGE || layout.size() > MOST_BYTES {
        // SAFETY: the caller's.
        return unsafe { alloc::dealloc(memory.as_ptr(), layout) };
    }
    let mut unused = Some(Free(memory));
    let mut over = tried(|reserve| reserve.give(unused.take()?, layout)).flatten();
    if let Some(Free(memory)) = unused {
        // SAFETY: the caller's; it was not kept.
        unsafe { alloc::dealloc(memory.as_ptr(), layout) };
    }
    while let Some((Free(memory), layout)) = over {
        // SAFETY: kept with the layout that it was allocated with, and taken off the list: nobody has it but us.
        unsafe { alloc::dealloc(memory.as_ptr(), layout) };
        over = tried(Reserve::shed).flatten();
    }
}

/// `None` where somebody else has the list just now.
fn tried<T>(work: impl FnOnce(&mut Reserve) -> T) -> Option<T> {
    match RESERVE.try_lock() {
        Ok(mut reserve) => Some(work(&mut reserve)),
        Err(TryLockError::Poisoned(poisoned)) => Some(work(&mut poisoned.into_inner())),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The start of an allocation that nobody uses.
#[derive(Debug, PartialEq)]
struct Free(NonNull<u8>);

// SAFETY: who has it is the only one who knows of the memory.
unsafe impl Send for Free {}

/// See the module. The last to come are at the end.
#[derive(Debug)]
struct Reserve {
    free: VecDeque<(Free, Layout)>,
    bytes: usize,
    most: usize,
}

impl Reserve {
    const fn new(most: usize) -> Self {
        Self { free: VecDeque::new(), bytes: 0, most }
    }

    /// The youngest of exactly this layout: it is the warmest.
    fn take(&mut self, layout: Layout) -> Option<Free> {
        let first = self.free.len().saturating_sub(LOOKED_AT);
        let at = first + self.free.range(first..).rposition(|(_, kept)| *kept == layout)?;
        let (free, _) = self.free.remove(at)?;
        self.bytes -= layout.size();
        Some(free)
    }

    /// Keeps the memory; gives what [`Reserve::shed`] does.
    fn give(&mut self, free: Free, layout: Layout) -> Option<(Free, Layout)> {
        self.bytes += layout.size();
        self.free.push_back((free, layout));
        self.shed()
    }

    /// The oldest, where there is more than may be kept.
    fn shed(&mut self) -> Option<(Free, Layout)> {
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

    /// No memory: a number that stands for some.
    fn named(number: usize) -> Free {
        Free(NonNull::new(std::ptr::without_provenance_mut(number)).unwrap())
    }

    proptest! {
        #[test]
        fn what_is_kept_is_given_once_the_youngest_of_its_size_first_and_the_oldest_goes_where_it_is_too_much(
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
                        over = reserve.shed();
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

    /// How often, of a hundred times, memory that was freed is given to the next who asks.
    fn used_again(size: usize) -> usize {
        let layout = layout(size);
        let once = |_: &usize| {
            // SAFETY: not of size zero, freed once with its own layout, and never touched.
            let (first, second) = unsafe {
                let first = allocate(layout);
                free(first, layout);
                (first, allocate(layout))
            };
            // Of two that are held at a time, none can be the other.
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
        // Another thread may have the list for a moment, and the memory then goes its usual way.
        assert!(used_again(LARGE + 4711) > 0);
        assert_eq!((used_again(LARGE - 1), used_again(MOST_BYTES + 1)), (0, 0));
    }
}
