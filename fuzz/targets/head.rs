//! Messages as a server takes them: what is decoded takes no more memory than its size allows, and is what the decoder
//! makes of it without the bound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use reverie_net::head;
use reverie_net::proto::ClientMessage;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory for each byte of a message at most; `tests/heads.rs` of the crate measures what long messages take.
const FACTOR: usize = 128;
/// Memory that does not depend on the message: errors, and the first entries of lists.
const BESIDE: usize = 64 << 10;

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

fuzz_target!(|input: &[u8]| {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let decoded = head::decode::<ClientMessage>(input);
    let taken = PEAK.load(Ordering::Relaxed) - before;
    assert!(taken <= FACTOR * input.len() + BESIDE, "{taken} bytes for {}", input.len());
    // An input is shorter than the longest head.
    assert!(input.len() > head::MAX_HEAD_BYTES || decoded.is_ok() == ClientMessage::decode(input).is_ok());
});
