//! Batches that are being received.

use crate::block::{Block, MemoryPool};
use crate::convert;
use crate::proto;
use reverie_core::batch::{Arrays, BatchLayout, Block as _, Head};
use reverie_core::sample::Lease;
use reverie_core::table::Tally;
use reverie_core::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Heads that are kept: the server counts on the same number.
const HEADS: usize = 16;

/// The heads of a connection.
#[derive(Default)]
pub(super) struct Heads(VecDeque<(u32, Arc<Head>)>);

impl Heads {
    /// The head of a batch.
    pub(super) fn of(&mut self, batch: &mut proto::Batch) -> Result<Arc<Head>> {
        if let Some(new) = batch.new_head.take() {
            let head = Arc::new(convert::batch::decode_head(new)?);
            self.0.retain(|(number, _)| *number != batch.head);
            if self.0.len() == HEADS {
                self.0.pop_front();
            }
            self.0.push_back((batch.head, Arc::clone(&head)));
            return Ok(head);
        }
        let known = self.0.iter().rev().find(|(number, _)| *number == batch.head);
        let (_, head) = known.ok_or_else(|| {
            Error::Protocol(format!("a batch refers to the head {}, which was never sent", batch.head))
        })?;
        Ok(Arc::clone(head))
    }
}

/// A batch that was announced and whose parts follow.
pub(super) struct ArrivingBatch {
    batch: Option<BatchParts>,
    filled: usize,
    size: usize,
    pub(super) last: bool,
}

struct BatchParts {
    head: Arc<Head>,
    num_draws: usize,
    smallest_probability: Option<f64>,
    tally: Option<Tally>,
    layout: BatchLayout,
    block: Block,
}

impl ArrivingBatch {
    /// Starts a batch from its announcement, in the memory that came with it if there is some.
    /// Errors: `Protocol` if the number of bytes does not match the arrays; `OutOfMemory`.
    pub(super) fn new(
        batch: &proto::Batch,
        head: Arc<Head>,
        block: Option<Block>,
        pool: &Arc<MemoryPool>,
        wanted: bool,
    ) -> Result<Self> {
        let num_draws = batch.num_draws as usize;
        let layout = BatchLayout::new(num_draws, &head.outputs)?;
        let size = layout.size_bytes;
        if size as u64 != batch.bulk_bytes || block.as_ref().is_some_and(|block| block.len() < size) {
            return Err(Error::Protocol(format!("a batch has {} bytes, and its arrays need {size}", batch.bulk_bytes)));
        }
        let filled = if block.is_some() { size } else { 0 };
        let (smallest_probability, last) = (batch.smallest_probability, batch.last);
        let tally = batch.tally.as_deref().map(|tally| convert::table::decode_tally(*tally)).transpose()?;
        let batch = match (wanted, block) {
            (false, _) => None,
            (true, block) => {
                let block = block.map_or_else(|| pool.take(size), Ok)?;
                Some(BatchParts { head, num_draws, smallest_probability, tally, layout, block })
            }
        };
        Ok(Self { batch, filled, size, last })
    }

    /// A batch for which there is no memory: its parts are skipped.
    pub(super) fn skipped(batch: &proto::Batch) -> Self {
        Self { batch: None, filled: 0, size: batch.bulk_bytes as usize, last: batch.last }
    }

    /// Copies a part into its place. `Protocol` if it is not the next part.
    pub(super) fn part(&mut self, part: &proto::Part) -> Result<()> {
        let end = self.filled.checked_add(part.data.len()).filter(|end| *end <= self.size);
        let end = end.filter(|_| part.offset == self.filled as u64).ok_or_else(|| {
            Error::Protocol(format!("a part of {} bytes is not the next one of its batch", part.data.len()))
        })?;
        if let Some(bytes) = self.batch.as_mut().and_then(|batch| batch.block.bytes_mut()) {
            bytes[self.filled..end].copy_from_slice(&part.data);
        }
        self.filled = end;
        Ok(())
    }

    /// True if all bytes have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.filled == self.size
    }

    /// The batch; `None` if no caller wants it.
    pub(super) fn finish(self) -> Option<Arrays> {
        let BatchParts { head, num_draws, smallest_probability, tally, layout, block } = self.batch?;
        Some(Arrays {
            head,
            num_draws,
            smallest_probability,
            tally,
            layout,
            block: block.settle(),
            lease: Lease::default(),
        })
    }
}
