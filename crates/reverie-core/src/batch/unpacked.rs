//! The bytes that a batch has to unpack before it is gathered.

use super::copies::ask_for_bodies;
use super::output::missing;
use super::plan::Plan;
use crate::chunk::Chunk;
use crate::error::Result;
use crate::item::{Body, Item};
use crate::sample::{Draws, segments};
use std::borrow::Borrow;
use std::collections::HashSet;

/// Called before a chunk is unpacked, with the number of unpacked bytes. An error ends the gather.
pub type UnpackCallback<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// The work that a batch is before its bytes can be copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackCost {
    /// The bytes that unpacking and reading yield.
    pub bytes: u64,
    /// Some of them are on the disk.
    pub reads_disk: bool,
}

/// Items with more chunks are not searched to find out whether all of them are plain.
const FEW_CHUNKS: usize = 64;

impl Plan {
    /// The bytes that [`Plan::gather_draws`] unpacks, the columns read of each packed chunk once, and reads from the
    /// disk.
    ///
    /// The errors are those of the gather.
    pub fn unpacking(&self, draws: &Draws) -> Result<UnpackCost> {
        ask_for_bodies(&draws.items);
        if draws.items.iter().all(is_plain) {
            return Ok(UnpackCost::default());
        }
        match draws.wanted_windows {
            None => self.unpacking_of(&draws.items),
            Some(wanted) => {
                let segments = segments(&draws.items, &draws.windows, &wanted)?;
                let items = segments.iter().map(|segment| &segment.item).collect::<Vec<_>>();
                self.unpacking_of(&items)
            }
        }
    }

    fn unpacking_of<T: Borrow<Item>>(&self, items: &[T]) -> Result<UnpackCost> {
        let (mut read, mut work) = (HashSet::new(), UnpackCost::default());
        for item in items.iter().map(Borrow::borrow) {
            for (column, output) in self.columns.iter().zip(&self.outputs) {
                let source = item.pattern.columns.get(column.source).ok_or_else(|| missing(&output.path))?;
                column.each_run(item, source, |chunk, run| {
                    if chunk.plain().is_none() && run.source < chunk.layout().num_columns() {
                        // A packed column is unpacked once; of a column on the disk each run of cells is read.
                        let first = read.insert((std::ptr::from_ref::<Chunk>(chunk), run.source));
                        let on_disk = chunk.is_on_disk();
                        work.reads_disk |= on_disk;
                        if first || on_disk {
                            let cells = if on_disk { run.first..run.first + run.n } else { 0..usize::MAX };
                            work.bytes += chunk.unpacked_bytes(run.source, &cells);
                        }
                    }
                    Ok(())
                })?;
            }
        }
        Ok(work)
    }
}

/// True if the first of the items is read where it lies: nothing is unpacked or read from the disk then, mostly.
///
/// Does not look at the others, for callers that only choose how to wait.
pub fn reads_in_place<T: Borrow<Item>>(items: &[T]) -> bool {
    items.first().is_none_or(|item| is_plain(item.borrow()))
}

/// True if none of the item's chunks is or can be packed. Also false for an item of many chunks.
fn is_plain(item: &Item) -> bool {
    match &item.body {
        Body::Chunk(chunk) => chunk.stays_raw(),
        Body::Span(span) => {
            let mut chunks = span.parts.iter().flat_map(|part| &part.chunks[..]);
            chunks.by_ref().take(FEW_CHUNKS).all(|chunk| chunk.stays_raw()) && chunks.next().is_none()
        }
    }
}
