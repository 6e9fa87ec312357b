//! The memory of batches that are sent as parts: reused, and bounded for the whole server.

use bytes::Bytes;
use reverie_core::{Error, Result};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which the bound is counted.
const PIECE: u64 = 64 << 10;
/// Bytes of idle blocks at most.
const MOST_IDLE: usize = 256 << 20;

/// Blocks for batches.
pub(super) struct BlockPool {
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
    room: Arc<Semaphore>,
    pieces: u32,
    most_idle: usize,
}

/// Permission to allocate a block.
pub(super) struct BlockPermit {
    _permit: OwnedSemaphorePermit,
}

/// The memory of one batch; returned to the pool when all its parts are sent.
pub(super) struct PooledBlock {
    bytes: Vec<u8>,
    len: usize,
    most_idle: usize,
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
    _leave: Arc<BlockPermit>,
}

/// The most bytes of idle blocks in a pool of that size.
fn idle_bytes(total_bytes: u64) -> usize {
    usize::try_from(total_bytes / 4).unwrap_or(usize::MAX).min(MOST_IDLE)
}

impl BlockPermit {
    fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: permit }
    }
}

impl BlockPool {
    /// A pool whose blocks have at most `total_bytes` together.
    pub(super) fn new(total_bytes: u64) -> Self {
        let pieces = u32::try_from((total_bytes / PIECE).max(1)).unwrap_or(u32::MAX);
        let room = Semaphore::new((pieces as usize).min(Semaphore::MAX_PERMITS));
        Self { idle: Arc::default(), room: Arc::new(room), pieces, most_idle: idle_bytes(total_bytes) }
    }

    /// Bytes of the blocks in use.
    pub(super) fn taken_bytes(&self) -> u64 {
        (self.pieces as usize).saturating_sub(self.room.available_permits()) as u64 * PIECE
    }

    fn pieces(&self, bytes: usize) -> u32 {
        u32::try_from((bytes as u64).div_ceil(PIECE)).unwrap_or(u32::MAX).min(self.pieces)
    }

    /// Permission for a block of that size, if available at once.
    pub(super) fn try_leave(&self, bytes: usize) -> Option<BlockPermit> {
        Arc::clone(&self.room).try_acquire_many_owned(self.pieces(bytes)).ok().map(BlockPermit::new)
    }

    /// Permission for a block of that size, in the order of requests.
    pub(super) fn leave(&self, bytes: usize) -> impl Future<Output = BlockPermit> + Send + 'static {
        let (room, pieces) = (Arc::clone(&self.room), self.pieces(bytes));
        async move { BlockPermit::new(room.acquire_many_owned(pieces).await.expect("the semaphore is never closed")) }
    }

    /// A block of `len` bytes with arbitrary content. `OutOfMemory`.
    pub(super) fn take(&self, len: usize, leave: &Arc<BlockPermit>) -> Result<PooledBlock> {
        let fits = |block: &Vec<u8>| block.len() >= len && block.len() / 4 <= len.max(PIECE as usize);
        let known = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.iter().position(fits).map(|at| idle.swap_remove(at))
        };
        let bytes = match known {
            Some(bytes) => bytes,
            None => {
                let mut bytes = Vec::new();
                let size = len.next_multiple_of(PIECE as usize);
                bytes.try_reserve_exact(size).map_err(|_| Error::OutOfMemory { needed: len as u64 })?;
                bytes.resize(size, 0);
                bytes
            }
        };
        let most_idle = self.most_idle;
        Ok(PooledBlock { bytes, len, most_idle, idle: Arc::clone(&self.idle), _leave: Arc::clone(leave) })
    }
}

impl PooledBlock {
    /// The memory to write. All of it must be written: it still has the bytes of another batch.
    pub(super) fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        crate::uninit::as_uninit(&mut self.bytes[..self.len])
    }

    /// The memory as shared bytes.
    pub(super) fn share(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.iter().map(Vec::len).sum::<usize>() + self.bytes.len() <= self.most_idle {
            idle.push(std::mem::take(&mut self.bytes));
        }
    }
}
