//! Batches that take long to gather: large ones, and those whose chunks must be unpacked or read from the disk.
//!
//! Threads gather them, so that the runtime's own threads and other requests go on; where chunks are unpacked, they
//! wait for their turn at each chunk.

use super::batches::{PlannedBatch, fill_pausing};
use super::outcome_future::OutcomeFuture;
use super::pool::{BlockPermit, BlockPool, PooledBlock};
use crate::proto::Slot;
use crate::transport::server::WritableSlot;
use bytes::Bytes;
use reverie_core::sample::Draws;
use reverie_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

/// Batches that are unpacked at a time: most of their threads wait for a turn. Others wait without a thread.
const MOST_THREADS: usize = 32;

/// The limits that the batches of all connections share.
pub(super) struct GatherLimits {
    /// Permits to unpack a chunk, in the order of requests.
    chunks: Arc<Semaphore>,
    /// The turns of batches that are unpacked: their threads wait for each other.
    unpacking: Arc<Semaphore>,
    /// The turns of batches that are copied: one for each processor.
    copying: Arc<Semaphore>,
}

impl GatherLimits {
    /// Lets half of the processors, at least one, unpack chunks at a time: the others serve.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let chunks = Arc::new(Semaphore::new((processors / 2).max(1)));
        let [unpacking, copying] = [MOST_THREADS, processors].map(|threads| Arc::new(Semaphore::new(threads)));
        Self { chunks, unpacking, copying }
    }
}

#[cfg(test)]
impl GatherLimits {
    /// Stops all unpacking while the permit is held.
    pub(super) fn hold(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = self.chunks.available_permits() as u32;
        Arc::clone(&self.chunks).try_acquire_many_owned(all).expect("no thread waits")
    }

    /// Like [`GatherLimits::hold`] of `all` permits, after those that wait for them.
    pub(super) async fn hold_next(&self, all: usize) -> tokio::sync::OwnedSemaphorePermit {
        Arc::clone(&self.chunks).acquire_many_owned(all as u32).await.expect("never closed")
    }

    /// Lets no further batch be unpacked (true) or copied (false) while the permit is held.
    pub(super) fn hold_threads(&self, unpacking: bool) -> tokio::sync::OwnedSemaphorePermit {
        let threads = if unpacking { &self.unpacking } else { &self.copying };
        let all = threads.available_permits() as u32;
        Arc::clone(threads).try_acquire_many_owned(all).expect("no batch is gathered")
    }

    /// The number of threads that unpack.
    pub(super) fn num_threads(&self) -> usize {
        MOST_THREADS - self.unpacking.available_permits()
    }
}

/// The memory that a batch is gathered into.
pub(super) enum GatherTarget {
    /// A slot of the transport.
    Slot(Box<dyn WritableSlot>),
    /// A block of the pool.
    Block(PooledBlock),
}

impl GatherTarget {
    /// A slot if there is one, else a block. `None` without permission for a block.
    pub(super) fn take(
        slot: Option<Box<dyn WritableSlot>>,
        pool: &BlockPool,
        size: usize,
        leave: Option<BlockPermit>,
    ) -> Result<Option<Self>> {
        match (slot, leave) {
            (Some(slot), _) => Ok(Some(Self::Slot(slot))),
            (None, Some(leave)) => Ok(Some(Self::Block(pool.take(size, &Arc::new(leave))?))),
            (None, None) => Ok(None),
        }
    }

    fn bytes(&mut self) -> &mut [std::mem::MaybeUninit<u8>] {
        match self {
            Self::Slot(slot) => slot.bytes(),
            Self::Block(block) => block.as_uninit(),
        }
    }

    /// The batch's bytes: in a slot, or to be sent as parts.
    pub(super) fn give(self) -> (Option<Slot>, Bytes) {
        match self {
            Self::Slot(slot) => (Some(slot.give()), Bytes::new()),
            Self::Block(block) => (None, block.share()),
        }
    }
}

/// A batch that a thread gathers. If it is dropped, the work does not begin, or ends before the next chunk is unpacked.
pub(super) struct Gathering {
    /// The request.
    pub(super) id: u64,
    gathered: OutcomeFuture<Result<GatherTarget>>,
    ended: Arc<GatherCancellation>,
}

/// The cancellation of gathering: set once the batch is no longer wanted.
#[derive(Default)]
struct GatherCancellation {
    is_ended: AtomicBool,
    /// Wakes the thread that gathers it, now or when it waits next.
    wakes: Notify,
}

impl Gathering {
    /// Starts to gather.
    pub(super) fn begin(
        turns: &GatherLimits,
        id: u64,
        planned: &Arc<PlannedBatch>,
        draws: Draws,
        room: GatherTarget,
    ) -> Self {
        let (ended, chunks) = (Arc::<GatherCancellation>::default(), Arc::clone(&turns.chunks));
        let threads = Arc::clone(if planned.unpacks() { &turns.unpacking } else { &turns.copying });
        let (planned, theirs) = (Arc::clone(planned), Arc::clone(&ended));
        let gathered = async move {
            let thread = threads.acquire_owned().await;
            let runtime = Handle::current();
            let work = move || {
                let _thread = thread;
                gather(&runtime, &chunks, &theirs, &planned, &draws, room)
            };
            let gathered = tokio::task::spawn_blocking(work).await;
            gathered.unwrap_or_else(|panic| Err(Error::Unavailable(format!("gathering a batch: {panic}"))))
        };
        Self { id, gathered: Box::pin(gathered), ended }
    }

    /// The batch's bytes, once they are complete.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<GatherTarget>> {
        self.gathered.as_mut().poll(context)
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.ended.is_ended.store(true, Ordering::Relaxed);
        self.ended.wakes.notify_one();
    }
}

fn gather(
    runtime: &Handle,
    chunks: &Arc<Semaphore>,
    ended: &GatherCancellation,
    planned: &PlannedBatch,
    draws: &Draws,
    mut room: GatherTarget,
) -> Result<GatherTarget> {
    let check = || match ended.is_ended.load(Ordering::Relaxed) {
        true => Err(Error::Unavailable("no caller waits for the request any more".to_owned())),
        false => Ok(()),
    };
    check()?;
    let mut turn = None;
    let mut pause = |_bytes| {
        if !planned.unpacks() {
            return check();
        }
        // Queue behind the threads that wait already.
        drop(turn.take());
        check()?;
        turn = runtime.block_on(async {
            tokio::select! {
                turn = Arc::clone(chunks).acquire_owned() => turn.ok(),
                () = ended.wakes.notified() => None,
            }
        });
        check()
    };
    fill_pausing(planned, draws, room.bytes(), &mut pause)?;
    Ok(room)
}
