//! The memory of batches: from a bounded pool of warm memory, or a slot that the server lent.

use reverie_core::batch::{self, ALIGN};
use reverie_core::chunk::fill;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The memory of a batch: from this process's pool, or a slot lent by the server. Returned when dropped.
pub struct Block(BlockPlace);

enum BlockPlace {
    Pooled { memory: Vec<u8>, start: AtomicPtr<u8>, offset: usize, len: usize, pool: Arc<MemoryPool> },
    Lent(Box<dyn batch::Block>),
}

impl Block {
    /// A block in memory that another owner lent: it is returned when it is dropped.
    pub fn lent(lent: Box<dyn batch::Block>) -> Self {
        Self(BlockPlace::Lent(lent))
    }

    /// The bytes, while the block is not shared; `None` for a slot, which the server fills.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            BlockPlace::Pooled { memory, start, offset, len, .. } => {
                // The pointer that others write through later must be created last.
                *start = AtomicPtr::new(memory[*offset..].as_mut_ptr());
                Some(&mut memory[*offset..*offset + *len])
            }
            BlockPlace::Lent(_) => None,
        }
    }

    /// Creates the pointer again after the last use of [`Block::bytes_mut`], before the block is shared.
    pub(crate) fn settle(mut self) -> Arc<Self> {
        if let BlockPlace::Pooled { memory, start, offset, .. } = &mut self.0 {
            *start = AtomicPtr::new(memory[*offset..].as_mut_ptr());
        }
        Arc::new(self)
    }
}

impl batch::Block for Block {
    fn as_ptr(&self) -> *mut u8 {
        match &self.0 {
            BlockPlace::Pooled { start, .. } => start.load(Ordering::Relaxed),
            BlockPlace::Lent(lent) => lent.as_ptr(),
        }
    }

    fn len(&self) -> usize {
        match &self.0 {
            BlockPlace::Pooled { len, .. } => *len,
            BlockPlace::Lent(lent) => lent.len(),
        }
    }

    fn copy_to(&self, start: usize, to: &mut [MaybeUninit<u8>]) {
        match &self.0 {
            BlockPlace::Pooled { memory, offset, len, .. } => {
                fill(to, &memory[*offset..*offset + *len][start..start + to.len()]);
            }
            BlockPlace::Lent(lent) => lent.copy_to(start, to),
        }
    }

    fn copied(&self, range: Range<usize>) -> Vec<u8> {
        match &self.0 {
            BlockPlace::Pooled { memory, offset, len, .. } => memory[*offset..*offset + *len][range].to_vec(),
            BlockPlace::Lent(lent) => lent.copied(range),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let BlockPlace::Pooled { memory, pool, .. } = &mut self.0 {
            pool.give(std::mem::take(memory));
        }
    }
}

/// Warm memory: touching fresh pages takes many times as long as a copy.
pub(crate) struct MemoryPool {
    /// Guards the list only.
    free: Mutex<FreeBlocks>,
    max_bytes: usize,
}

#[derive(Default)]
struct FreeBlocks {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

/// Rounds up to an eighth of the power of two, so that batches of varying sizes can reuse each other's blocks.
fn rounded(len: usize) -> usize {
    let step = (len.next_power_of_two() / 16).max(4096);
    len.next_multiple_of(step)
}

impl MemoryPool {
    /// A pool that keeps at most `max_bytes` of unused memory.
    pub(crate) fn new(max_bytes: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::default(), max_bytes })
    }

    /// A block of that size; its bytes may be those of an earlier batch.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Result<Block> {
        let out_of_memory = || Error::OutOfMemory { needed: len as u64 };
        let wanted = rounded(len.checked_add(ALIGN).filter(|size| *size < usize::MAX / 4).ok_or_else(out_of_memory)?);
        let found = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            // The last freed first: it is the warmest.
            let fits = |block: &Vec<u8>| block.len() >= wanted && block.len() / 2 <= wanted;
            let at = free.blocks.iter().rposition(fits);
            at.map(|at| {
                let block = free.blocks.remove(at);
                free.bytes -= block.len();
                block
            })
        };
        let mut memory = match found {
            Some(memory) => memory,
            None => zeros(wanted).ok_or_else(out_of_memory)?,
        };
        let offset = memory.as_ptr().align_offset(ALIGN);
        let start = AtomicPtr::new(memory[offset..].as_mut_ptr());
        Ok(Block(BlockPlace::Pooled { memory, start, offset, len, pool: Arc::clone(self) }))
    }

    fn give(&self, memory: Vec<u8>) {
        let mut dropped = Vec::new();
        {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if memory.len() > self.max_bytes / 2 {
                dropped.push(memory);
            } else {
                free.bytes += memory.len();
                free.blocks.push(memory);
                while free.bytes > self.max_bytes {
                    let oldest = free.blocks.remove(0);
                    free.bytes -= oldest.len();
                    dropped.push(oldest);
                }
            }
        }
        drop(dropped);
    }

    #[cfg(test)]
    fn free_bytes(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

/// Zeroed memory whose pages the system provides at first use; `None` if there is no memory.
fn zeros(len: usize) -> Option<Vec<u8>> {
    // `vec![0; n]` gets zeroed pages but aborts the process if there are none: try first.
    Vec::<u8>::new().try_reserve_exact(len).ok()?;
    Some(vec![0; len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use reverie_core::batch::Block as _;

    #[test]
    fn a_block_begins_where_arrays_may_and_has_the_size_that_was_asked_for() {
        let pool = MemoryPool::new(1 << 20);
        for len in [0, 1, 63, 64, 65, 4096, 100_000] {
            let mut block = pool.take(len).unwrap();
            assert_eq!((block.as_ptr() as usize % ALIGN, block.len()), (0, len));
            block.bytes_mut().unwrap().fill(7);
        }
    }

    #[test]
    fn memory_is_used_again_only_after_its_last_holder_let_go() {
        let pool = MemoryPool::new(1 << 20);
        let first = pool.take(10_000).unwrap().settle();
        let shared = Arc::clone(&first);
        let start = first.as_ptr();
        drop(first);
        let second = pool.take(10_000).unwrap();
        assert_ne!(second.as_ptr(), start, "the block is still held");
        drop(shared);
        assert_eq!(pool.take(9_999).unwrap().as_ptr(), start, "the block was given back");
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_bytes_and_no_huge_block() {
        let pool = MemoryPool::new(100_000);
        let blocks: Vec<_> = (0..20).map(|_| pool.take(20_000).unwrap()).collect();
        drop(blocks);
        assert!((60_000..=100_000).contains(&pool.free_bytes()), "{}", pool.free_bytes());
        drop(pool.take(1 << 20).unwrap());
        assert!(pool.free_bytes() <= 100_000);
    }

    #[test]
    fn a_block_that_fits_no_memory_is_an_error() {
        let pool = MemoryPool::new(0);
        assert!(matches!(pool.take(usize::MAX - 3), Err(Error::OutOfMemory { .. })));
        assert!(matches!(pool.take(usize::MAX / 8), Err(Error::OutOfMemory { .. })));
    }
}
