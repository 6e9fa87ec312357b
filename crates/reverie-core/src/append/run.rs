//! The chunks that one writer fills for one column group, oldest first; the last ones are open.

use super::sink::ColumnCells;
use crate::chunk::{Chooser, Chunk, ChunkWriter, Compression, Layout, Meter};
use crate::item::Part;
use std::collections::VecDeque;
use std::sync::Arc;

/// The target size of a chunk in bytes.
///
/// Large enough that a header costs nothing, small enough that the last item on a chunk keeps little else alive.
const CHUNK_BYTES: usize = 16 << 10;
/// The most steps of a chunk.
const MAX_STEPS: usize = 128;
/// Below this many bytes a step's cells are stored together, so that a step is one or two cache lines.
const INTERLEAVED_BYTES: usize = 256;

/// The number of steps of a chunk whose items overlap.
pub(super) fn chunk_length(step_bytes: usize) -> usize {
    (CHUNK_BYTES / step_bytes.max(1)).clamp(4, MAX_STEPS)
}

/// The layout of cells by their widths and element sizes: row by row if a row is small, else column by column.
pub(super) fn layout(cells: &[(usize, usize)], capacity: usize) -> Arc<Layout> {
    let step_bytes: usize = cells.iter().map(|(width, _)| width).sum();
    let together = step_bytes <= INTERLEAVED_BYTES && cells.len() > 1;
    Arc::new(if together { Layout::interleaved(cells, capacity) } else { Layout::columnar(cells, capacity) })
}

/// The compression for a chunk of this layout.
pub(super) fn packing(compression: Compression, layout: &Layout) -> Compression {
    compression.for_steps_of((0..layout.num_columns()).map(|column| layout.width(column)).sum())
}

/// One chunk of a run: `start` is the step of its first cell.
pub(super) struct RunLink {
    pub(super) start: u64,
    pub(super) capacity: u64,
    pub(super) chunk: Arc<Chunk>,
    writer: Option<ChunkWriter>,
}

/// The chunks of one column group.
///
/// Steps count from the writer's start; every column has one cell per step, which may hold no value; columns may lag
/// behind one another.
pub(super) struct ChunkRun {
    links: VecDeque<RunLink>,
    layout: Arc<Layout>,
    compression: Compression,
    chooser: Chooser,
    meter: Arc<Meter>,
}

impl ChunkRun {
    pub(super) fn new(layout: Arc<Layout>, compression: Compression, meter: Arc<Meter>) -> Self {
        Self { links: VecDeque::new(), layout, compression, chooser: Chooser::new(compression), meter }
    }

    /// Sets the layout of later chunks; the present ones must be closed.
    pub(super) fn set_layout(&mut self, layout: Arc<Layout>) {
        self.layout = layout;
    }

    /// The open chunk that has the cell of `step`; begins the next chunk if the step is after the last.
    pub(super) fn writer(&mut self, step: u64) -> &mut ChunkWriter {
        if self.links.back().is_none_or(|link| link.writer.is_none() || step >= link.start + link.capacity) {
            let compression = packing(self.chooser.next(), &self.layout);
            debug_assert!(compression == self.compression || compression == Compression::None);
            let writer = ChunkWriter::new(Arc::clone(&self.layout), compression, &self.meter);
            let capacity = self.layout.capacity() as u64;
            self.links.push_back(RunLink {
                start: step,
                capacity,
                chunk: Arc::clone(writer.chunk()),
                writer: Some(writer),
            });
        }
        self.writer_at(step)
    }

    /// The open chunk that has the cell of a step begun earlier.
    pub(super) fn writer_at(&mut self, step: u64) -> &mut ChunkWriter {
        let link = self.links.iter_mut().rev().find(|link| link.start <= step).expect("a step that is still kept");
        link.writer.as_mut().expect("a chunk that is still open")
    }

    /// True if an open chunk has room for the step.
    pub(super) fn is_open_at(&self, step: u64) -> bool {
        self.links.back().is_some_and(|link| link.writer.is_some() && step < link.start + link.capacity)
    }

    /// Writes the cell of a column at a step.
    #[inline]
    pub(super) fn push(&mut self, step: u64, column: usize, cell: ColumnCells<'_>) {
        self.writer(step).push(column, cell.bytes);
    }

    /// Writes the one cell of a step whose width is its own: its chunk has room for no other step.
    pub(super) fn push_alone(&mut self, step: u64, cell: ColumnCells<'_>) {
        if self.layout.width(0) != cell.bytes.len() {
            self.layout = layout(&[(cell.bytes.len(), cell.itemsize)], 1);
        }
        self.push(step, 0, cell);
    }

    /// Closes the chunks that are full, and packs them if that pays.
    pub(super) fn seal_full(&mut self) {
        for link in &mut self.links {
            if link.writer.as_ref().is_some_and(ChunkWriter::is_full) {
                link.writer.take().expect("an open chunk").seal(&mut self.chooser);
            }
        }
    }

    /// Closes all chunks; the next step begins a new one.
    pub(super) fn seal(&mut self) {
        for link in &mut self.links {
            if let Some(writer) = link.writer.take() {
                writer.seal(&mut self.chooser);
            }
        }
    }

    /// Releases closed chunks whose steps are all before `step`; true if there was one.
    pub(super) fn forget_before(&mut self, step: u64) -> bool {
        let kept = self.links.len();
        while let Some(link) = self.links.front() {
            let end = self.links.get(1).map_or(link.start + link.capacity, |next| next.start);
            if link.writer.is_some() || end > step {
                break;
            }
            self.links.pop_front();
        }
        self.links.len() < kept
    }

    /// Releases all chunks; they must be closed.
    pub(super) fn clear(&mut self) {
        self.links.clear();
    }

    /// True if the column has a value at the step and the chunk is still kept.
    pub(super) fn has(&self, step: u64, column: usize) -> bool {
        self.link(step).is_some_and(|index| {
            let link = &self.links[index];
            link.chunk.has(column, (step - link.start) as usize)
        })
    }

    /// The index of the link that has the step.
    pub(super) fn link(&self, step: u64) -> Option<usize> {
        let index = self.links.partition_point(|link| link.start <= step).checked_sub(1)?;
        let link = &self.links[index];
        (step < link.start + link.capacity).then_some(index)
    }

    pub(super) fn get(&self, index: usize) -> &RunLink {
        &self.links[index]
    }

    /// The links `first` to `last` as a part of a body, with positions counted from `origin`.
    pub(super) fn part(&self, first: usize, last: usize, origin: u64) -> Part {
        let links = || (first..=last).map(|index| &self.links[index]);
        let relative = |step: u64| step as i64 - origin as i64;
        let end = &self.links[last];
        Part {
            chunks: links().map(|link| Arc::clone(&link.chunk)).collect(),
            starts: links().map(|link| relative(link.start)).chain([relative(end.start + end.capacity)]).collect(),
        }
    }
}
