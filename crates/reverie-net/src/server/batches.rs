//! The messages of a batch, made from draws: the plan, the head, and the gathered bytes.
//!
//! The bytes are gathered once, into a slot or into a block that is sent as parts. If the transport takes bytes from
//! several places, large cells are sent from their chunks.

use super::pool::{BlockPermit, BlockPool};
use super::read_options::ReadOptions;
use crate::convert;
use crate::pieces::Pieces;
use crate::proto::server_message::Body;
use crate::proto::{self, PART_BYTES, ServerMessage, Slot};
use crate::transport::server::ServerConnection;
use bytes::{Buf, Bytes};
use reverie_core::Result;
use reverie_core::batch::{
    BatchLayout, ContiguousCells, INFO_ARRAYS, Plan, Planner, Split, UnpackCallback, UnpackCost,
};
use reverie_core::chunk;
use reverie_core::sample::Draws;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Heads that a client keeps.
const HEADS: usize = 16;
/// The read options for which a connection keeps a plan.
const READINGS: usize = 16;
/// Work on more bytes moves the runtime's other tasks to another thread.
/// It takes well over a hundred microseconds; waking the thread takes about ten.
const HEAVY_BYTES: usize = 2 << 20;
/// Batches of this size are gathered by another thread, so that the session answers small requests meanwhile.
/// It takes about a millisecond; starting the thread and waking the session take some tens of microseconds.
const APART_BYTES: usize = 4 << 20;
/// If an item has this many bytes in a column, they are sent from their chunk: a piece costs less than a copy.
/// Pieces of 4 KiB cost more: h2 passes 16 of them to the socket at a time.
const LARGE_CELLS: usize = 8 << 10;

/// The heads that a connection's client has, and the latest plans, which mostly serve the next batch.
#[derive(Default)]
pub(super) struct Batches {
    planners: VecDeque<(ReadOptions, Planner)>,
    /// The plan that was split last, and its split.
    split: Option<(Arc<Plan>, Option<Arc<Split>>)>,
    heads: VecDeque<SentHead>,
    next_head: u32,
}

struct SentHead {
    number: u32,
    plan: Arc<Plan>,
    timestep: bool,
}

/// A batch that is planned and not gathered yet.
pub(super) struct PlannedBatch {
    plan: Arc<Plan>,
    layout: BatchLayout,
    /// Set if the transport takes pieces and cells are large.
    split: Option<Arc<Split>>,
    /// The chunks that must be unpacked or read from the disk before.
    unpacking: UnpackCost,
}

impl PlannedBatch {
    /// The size of the batch.
    pub(super) fn size_bytes(&self) -> usize {
        self.layout.size_bytes
    }

    /// The unpacked size of the packed chunks that it is gathered from, and the bytes that are read from the disk.
    pub(super) fn unpacked_bytes(&self) -> u64 {
        self.unpacking.bytes
    }

    /// True if chunks must be unpacked for it, which takes long, or read from the disk.
    pub(super) fn unpacks(&self) -> bool {
        self.unpacking.bytes > HEAVY_BYTES as u64 || self.unpacking.reads_disk
    }

    /// The large cells where they are in memory, if they are sent from there.
    pub(super) fn contiguous_cells(&self, draws: &Draws) -> Option<Vec<ContiguousCells>> {
        self.split.as_ref()?.contiguous_cells(draws)
    }

    /// True if a thread other than the session's gathers it. `lies`: large cells are sent from where they are.
    pub(super) fn is_gathered_by_thread(&self, draws: &Draws, lies: bool) -> bool {
        let large = |index: &usize| self.layout.outputs[*index].len();
        let away: usize = match &self.split {
            Some(split) if lies => split.large().iter().map(large).sum(),
            _ => 0,
        };
        let copies = self.size_bytes() - away >= APART_BYTES && !draws.items.is_empty();
        (copies || self.unpacks()) && has_threads()
    }
}

impl Batches {
    /// Plans the batch of these draws. The errors are the planner's.
    pub(super) fn plan(
        &mut self,
        connection: &dyn ServerConnection,
        read_options: &ReadOptions,
        draws: &Draws,
    ) -> Result<PlannedBatch> {
        if draws.items.is_empty() {
            let layout = BatchLayout::new(draws.len(), &[])?;
            return Ok(PlannedBatch {
                plan: Arc::new(Plan::nothing()),
                layout,
                split: None,
                unpacking: UnpackCost::default(),
            });
        }
        let known = self.planners.iter().position(|(known, _)| known == read_options);
        let mut entry = match known.and_then(|at| self.planners.remove(at)) {
            Some(entry) => entry,
            None => (read_options.clone(), read_options.planner()),
        };
        let plan = entry.1.plan_draws(draws);
        self.planners.truncate(READINGS - 1);
        self.planners.push_front(entry);
        let plan = plan?;
        let layout = BatchLayout::new(draws.len(), &plan.outputs)?;
        let unpacking = plan.unpacking(draws)?;
        let split =
            if connection.takes_pieces() && unpacking == UnpackCost::default() { self.split(&plan) } else { None };
        Ok(PlannedBatch { plan, layout, split, unpacking })
    }

    fn split(&mut self, plan: &Arc<Plan>) -> Option<Arc<Split>> {
        let (_, split) = match self.split.take().filter(|(known, _)| Arc::ptr_eq(known, plan)) {
            Some(known) => self.split.insert(known),
            None => self.split.insert((Arc::clone(plan), Split::new(plan, LARGE_CELLS).map(Arc::new))),
        };
        split.clone()
    }

    /// Gathers the batch and sends it, from a slot of the transport or else from a block.
    /// `kind`: whether it is the last of its request, and whether it is leased. After an error nothing was sent.
    pub(super) fn send(
        &mut self,
        connection: &mut dyn ServerConnection,
        pool: &BlockPool,
        batch: (u64, &PlannedBatch, &Draws),
        contiguous: Option<Vec<ContiguousCells>>,
        leave: Option<BlockPermit>,
        kind: (bool, bool),
    ) -> Result<SendOutcome> {
        let (_, planned, draws) = batch;
        let size = planned.size_bytes();
        let (mut slot, mut pieces) = (None, Pieces::default());
        if let Some(mut lent) = connection.lend(size) {
            heavy(size, || fill(planned, draws, lent.bytes()))?;
            slot = Some(lent.give());
        } else {
            let Some(leave) = leave else { return Ok(SendOutcome::Refused) };
            let leave = Arc::new(leave);
            pieces = match planned.split.as_ref().zip(contiguous) {
                Some((split, contiguous)) => scattered(planned, split, contiguous, draws, pool, &leave)?,
                None => {
                    let mut block = pool.take(size, &leave)?;
                    heavy(size, || fill(planned, draws, block.as_uninit()))?;
                    block.share().into()
                }
            };
        }
        self.announce(connection, batch, slot, pieces, kind);
        Ok(SendOutcome::Whole)
    }

    /// Sends a gathered batch, whose bytes are in the slot or in the pieces.
    pub(super) fn announce(
        &mut self,
        connection: &mut dyn ServerConnection,
        (id, planned, draws): (u64, &PlannedBatch, &Draws),
        slot: Option<Slot>,
        mut pieces: Pieces,
        (last, leased): (bool, bool),
    ) {
        let (head, new_head) = self.head(planned, draws);
        let batch = proto::Batch {
            id,
            head,
            new_head,
            num_draws: draws.len() as u32,
            smallest_probability: draws.smallest_probability,
            tally: draws.tally.as_ref().map(|tally| Box::new(convert::table::encode_tally(tally))),
            bulk_bytes: planned.size_bytes() as u64,
            slot,
            last,
            leased,
        };
        connection.send(ServerMessage { body: Some(Body::Batch(batch)) });
        let mut offset = 0;
        while pieces.has_remaining() {
            let part = pieces.split_to(pieces.remaining().min(PART_BYTES));
            let len = part.remaining() as u64;
            connection.send_part(id, offset, part);
            offset += len;
        }
    }

    /// The number of the batch's head, and the head itself if the client does not have it.
    fn head(&mut self, planned: &PlannedBatch, draws: &Draws) -> (u32, Option<proto::BatchHead>) {
        let Plan { outputs, structure, num_columns, .. } = &*planned.plan;
        let timestep = draws.items.first().is_some_and(|item| item.pattern.is_one_step());
        let alike = |head: &&SentHead| {
            let same = Arc::ptr_eq(&head.plan, &planned.plan)
                || (head.plan.outputs == *outputs
                    && head.plan.structure == *structure
                    && head.plan.num_columns == *num_columns);
            same && head.timestep == timestep
        };
        if let Some(head) = self.heads.iter().find(alike) {
            return (head.number, None);
        }
        self.next_head = self.next_head.wrapping_add(1);
        self.heads.truncate(HEADS - 1);
        self.heads.push_front(SentHead { number: self.next_head, plan: Arc::clone(&planned.plan), timestep });
        let head = convert::batch::encode_head(outputs, structure, *num_columns, timestep);
        (self.next_head, Some(head))
    }
}

/// The outcome of sending a batch.
pub(super) enum SendOutcome {
    /// The batch is queued.
    Whole,
    /// There was no slot, and no permission to allocate a block.
    Refused,
    /// Another thread gathers it, or will when the batch before it is done.
    OtherThread,
}

/// Cells that are being sent.
struct SentCells {
    cells: ContiguousCells,
    /// The permit for the cells: they count for the bytes of unsent batches, as a block does.
    _leave: Arc<BlockPermit>,
}

impl AsRef<[u8]> for SentCells {
    fn as_ref(&self) -> &[u8] {
        self.cells.as_ref()
    }
}

/// The batch's bytes: large columns from their chunks, and the gathered rest between them.
fn scattered(
    planned: &PlannedBatch,
    split: &Split,
    contiguous: Vec<ContiguousCells>,
    draws: &Draws,
    pool: &BlockPool,
    leave: &Arc<BlockPermit>,
) -> Result<Pieces> {
    let BatchLayout { info, outputs, size_bytes } = &planned.layout;
    let (mut near, mut away) = (Vec::with_capacity(outputs.len()), 0);
    for (index, range) in outputs.iter().enumerate() {
        match split.large().contains(&index) {
            true => away += range.len(),
            false => near.push(range.start - away..range.end - away),
        }
    }
    let mut block = pool.take(size_bytes - away, leave)?;
    let bytes = block.as_uninit();
    heavy(bytes.len(), || fill_with(draws, info, &near, bytes, |arrays| split.gather_rest(draws, arrays)))?;
    let (mut near, mut end, mut contiguous) = (block.share(), 0, contiguous.into_iter());
    let mut pieces = Pieces::default();
    for range in split.large().iter().map(|index| &outputs[*index]) {
        pieces.push(near.split_to(range.start - end));
        end = range.start;
        while end < range.end {
            let cells = contiguous.next().expect("the cells of all large columns");
            let bytes = Bytes::from_owner(SentCells { cells, _leave: Arc::clone(leave) });
            end += bytes.len();
            pieces.push(bytes);
        }
    }
    pieces.push(near);
    Ok(pieces)
}

/// Writes every byte of the batch.
fn fill(planned: &PlannedBatch, draws: &Draws, bytes: &mut [MaybeUninit<u8>]) -> Result<()> {
    let BatchLayout { info, outputs, .. } = &planned.layout;
    fill_with(draws, info, outputs, bytes, |arrays| planned.plan.gather_draws(draws, arrays))
}

/// Like [`fill`], with a pause before each chunk that is unpacked.
pub(super) fn fill_pausing(
    planned: &PlannedBatch,
    draws: &Draws,
    bytes: &mut [MaybeUninit<u8>],
    pause: UnpackCallback<'_>,
) -> Result<()> {
    let BatchLayout { info, outputs, .. } = &planned.layout;
    fill_with(draws, info, outputs, bytes, |arrays| planned.plan.gather_draws_with(draws, arrays, pause))
}

/// Writes the metadata of the draws, the arrays in these places, and zeros between them.
fn fill_with(
    draws: &Draws,
    info: &[Range<usize>; INFO_ARRAYS],
    places: &[Range<usize>],
    bytes: &mut [MaybeUninit<u8>],
    gather: impl FnOnce(&mut [&mut [MaybeUninit<u8>]]) -> Result<()>,
) -> Result<()> {
    fill_info(draws, info, bytes);
    let mut end = info[info.len() - 1].end;
    let mut rest = &mut bytes[end..];
    let mut arrays = Vec::with_capacity(places.len());
    for place in places {
        let (before, behind) = rest.split_at_mut(place.end - end);
        let (gap, array) = before.split_at_mut(place.start - end);
        gap.fill(MaybeUninit::new(0));
        arrays.push(array);
        (rest, end) = (behind, place.end);
    }
    rest.fill(MaybeUninit::new(0));
    gather(&mut arrays)
}

fn fill_info(draws: &Draws, info: &[Range<usize>; INFO_ARRAYS], bytes: &mut [MaybeUninit<u8>]) {
    fn put<T>(out: &mut [MaybeUninit<u8>], numbers: &[T], as_bytes: impl Fn(&T) -> [u8; 8]) {
        for (out, number) in out.chunks_exact_mut(8).zip(numbers) {
            chunk::fill(out, &as_bytes(number));
        }
    }
    let [keys, probabilities, priorities, table_sizes, times_sampled, versions, inserted_at] = info;
    put(&mut bytes[keys.clone()], &draws.keys, |key| key.get().to_le_bytes());
    put(&mut bytes[probabilities.clone()], &draws.probabilities, |p| p.to_le_bytes());
    put(&mut bytes[priorities.clone()], &draws.priorities, |p| p.to_le_bytes());
    put(&mut bytes[table_sizes.clone()], &draws.table_sizes, |n| n.to_le_bytes());
    put(&mut bytes[times_sampled.clone()], &draws.times_sampled, |n| u64::from(*n).to_le_bytes());
    put(&mut bytes[versions.clone()], &draws.versions, |n| u64::from(*n).to_le_bytes());
    put(&mut bytes[inserted_at.clone()], &draws.inserted_at, |nanos| (*nanos as f64 * 1e-9).to_le_bytes());
}

/// True if the runtime has threads for long work.
fn has_threads() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Runs the work. If it is on many bytes and the runtime has more threads, this thread's other tasks move to another.
pub(super) fn heavy<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > HEAVY_BYTES && has_threads() { tokio::task::block_in_place(work) } else { work() }
}
