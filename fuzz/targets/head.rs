//! See `src/head.rs`.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the memory of the process: a target has one thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(more: usize, less: usize) {
    let live = LIVE.fetch_add(more, Ordering::Relaxed) + more;
    LIVE.fetch_sub(less, Ordering::Relaxed);
    PEAK.fetch_max(live - less, Ordering::Relaxed);
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as of the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as of the caller.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as of the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The bytes that a function took at once.
fn taken(run: &mut dyn FnMut()) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    run();
    PEAK.load(Ordering::Relaxed) - before
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    reverie_fuzz::head::check(input, taken);
});
