//! Cells of chunks that are not plain: each chunk is unpacked, or read from the disk, once.
//!
//! Much of it is done by several threads: those of a pool, as a disk answers many reads sooner than one after another.

use super::plan::{Plan, missing};
use super::run::{Bytes, Run};
use super::unpacked::Pause;
use crate::chunk::{Cells, Chunk, Decoder, OnDisk};
use crate::error::Result;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// From this many bytes on several threads unpack or read them: waking one takes as long as to unpack a tenth of it.
const FOR_SEVERAL: u64 = 512 << 10;
/// Bytes that are unpacked before they are copied to the batch.
const AT_ONCE: u64 = 16 << 20;
/// Threads at least: most of them wait where the bytes are on a disk.
const THREADS: usize = 8;

/// Cells of a chunk that is not plain: copied chunk by chunk at the end.
pub(super) struct Deferred<'a> {
    pub(super) chunk: &'a Chunk,
    /// The plan's column.
    pub(super) column: usize,
    /// The bytes of its item in the batch.
    pub(super) to: Range<usize>,
    pub(super) run: Run,
}

/// All cells of one chunk.
struct Group<'a> {
    cells: &'a [Deferred<'a>],
    /// For each column of the chunk the cells that are needed, and those between them.
    wanted: Vec<Option<Range<usize>>>,
    /// Bytes that are unpacked, or read from the disk; 0 for a raw chunk in memory.
    bytes: u64,
}

impl<'a> Group<'a> {
    fn new(cells: &'a [Deferred<'a>]) -> Self {
        let chunk = cells[0].chunk;
        let mut wanted: Vec<Option<Range<usize>>> = vec![None; chunk.layout().num_columns()];
        for Run { source, first, n, .. } in cells.iter().map(|cells| cells.run) {
            // A column that the chunk does not have is refused when it is copied.
            let Some(wanted) = wanted.get_mut(source) else { continue };
            let (start, end) = wanted.as_ref().map_or((first, first + n), |known| (known.start, known.end));
            *wanted = Some(start.min(first)..end.max(first + n));
        }
        let of =
            |(column, cells): (usize, &Option<Range<usize>>)| Some(chunk.unpacked_bytes(column, cells.as_ref()?.len()));
        let bytes = wanted.iter().enumerate().filter_map(of).sum();
        Self { cells, wanted, bytes }
    }

    fn read(&'a self, decoder: &'a mut Decoder) -> Result<Cells<'a>> {
        self.cells[0].chunk.read_with(decoder, &|column| self.wanted[column].clone())
    }
}

impl Plan {
    /// Copies the cells to the batch; calls `pause` before each chunk is unpacked or read.
    pub(super) fn gather_deferred(
        &self,
        mut deferred: Vec<Deferred<'_>>,
        out: &mut [&mut Bytes],
        pause: Pause<'_>,
    ) -> Result<()> {
        self.read_directly(&mut deferred, out, pause)?;
        deferred.sort_by_key(|cells| std::ptr::from_ref(cells.chunk));
        let groups = deferred.chunk_by(|left, right| std::ptr::eq(left.chunk, right.chunk));
        let mut groups: Vec<_> = groups.map(Group::new).collect();
        let bytes: u64 = groups.iter().map(|group| group.bytes).sum();
        if bytes > 0 {
            // In the order in which they lie on the disk.
            groups.sort_by_cached_key(|group| group.cells[0].chunk.place_on_disk());
        }
        let pool = if bytes >= FOR_SEVERAL && groups.len() > 1 { pool() } else { None };
        match pool {
            Some(pool) => self.gather_by_several(&pool, &groups, out, pause),
            None => {
                let mut decoder = Decoder::default();
                for group in &groups {
                    if group.bytes > 0 {
                        pause(group.bytes)?;
                    }
                    self.copy_cells(group.cells, &group.read(&mut decoder)?, out)?;
                }
                Ok(())
            }
        }
    }

    /// Reads the cells on the disk that fill a piece of the batch as they are, and takes them off the list.
    fn read_directly(&self, deferred: &mut Vec<Deferred<'_>>, out: &mut [&mut Bytes], pause: Pause<'_>) -> Result<()> {
        let mut reads: Vec<(usize, Range<usize>, OnDisk)> = Vec::new();
        deferred.retain(|cells| match self.direct(cells) {
            Some((to, on_disk)) => {
                reads.push((cells.column, to, on_disk));
                false
            }
            None => true,
        });
        if reads.is_empty() {
            return Ok(());
        }
        let bytes: u64 = reads.iter().map(|(_, to, _)| to.len() as u64).sum();
        pause(bytes)?;
        // The pieces of the batch, column by column from front to back.
        reads.sort_unstable_by_key(|(column, to, _)| (*column, to.start));
        let (mut columns, mut pieces) = (out.iter_mut().enumerate(), Vec::with_capacity(reads.len()));
        let mut rest: (usize, usize, &mut Bytes) = (usize::MAX, 0, &mut []);
        for (column, to, on_disk) in reads {
            if rest.0 != column {
                let (_, whole) = columns.find(|(index, _)| *index == column).expect("a column of the plan");
                rest = (column, 0, whole);
            }
            let (_, at, bytes) = rest;
            let (_, bytes) = bytes.split_at_mut(to.start - at);
            let (piece, bytes) = bytes.split_at_mut(to.len());
            rest = (column, to.end, bytes);
            pieces.push((on_disk, piece));
        }
        pieces.sort_unstable_by_key(|(on_disk, _)| on_disk.order());
        let read = |pieces: &mut [(OnDisk, &mut Bytes)]| pieces.iter_mut().try_for_each(|(from, to)| from.read(to));
        let pool = if bytes >= FOR_SEVERAL && pieces.len() > 1 { pool() } else { None };
        let Some(pool) = pool else { return read(&mut pieces) };
        let share = pieces.len().div_ceil(2 * pool.current_num_threads());
        let mut outcomes: Vec<_> = pieces.chunks_mut(share).map(|pieces| (pieces, Ok(()))).collect();
        pool.in_place_scope(|scope| {
            for (pieces, outcome) in &mut outcomes {
                scope.spawn(move |_| *outcome = read(pieces));
            }
        });
        outcomes.into_iter().try_for_each(|(_, outcome)| outcome)
    }

    /// Where cells lie on the disk and where in the batch, if one is a copy of the other.
    fn direct(&self, cells: &Deferred<'_>) -> Option<(Range<usize>, OnDisk)> {
        let (column, run) = (&self.columns[cells.column], &cells.run);
        let layout = cells.chunk.layout();
        let fits =
            column.outer == 1 && run.source < layout.num_columns() && layout.width(run.source) == column.cell_bytes();
        let from = fits.then(|| cells.chunk.on_disk(run.source, run.first..run.first + run.n))??;
        let (start, width) = (cells.to.start, column.cell_bytes());
        Some((start + run.at * width..start + (run.at + run.n) * width, from))
    }

    fn gather_by_several(
        &self,
        pool: &rayon_core::ThreadPool,
        mut groups: &[Group<'_>],
        out: &mut [&mut Bytes],
        pause: Pause<'_>,
    ) -> Result<()> {
        let mut decoders: Vec<Decoder> = Vec::new();
        while !groups.is_empty() {
            let mut bytes = 0;
            let more = |group: &&Group<'_>| {
                let fits = bytes < AT_ONCE;
                bytes += group.bytes;
                fits
            };
            let (now, later) = groups.split_at(groups.iter().take_while(more).count());
            groups = later;
            now.iter().filter(|group| group.bytes > 0).try_for_each(|group| pause(group.bytes))?;
            decoders.resize_with(decoders.len().max(now.len()), Decoder::default);
            let mut views: Vec<_> =
                now.iter().zip(&mut decoders).map(|(group, decoder)| (group, Some(decoder), None)).collect();
            let share = now.len().div_ceil(2 * pool.current_num_threads());
            pool.in_place_scope(|scope| {
                for views in views.chunks_mut(share) {
                    scope.spawn(move |_| {
                        for (group, decoder, view) in views {
                            *view = decoder.take().map(|decoder| group.read(decoder));
                        }
                    });
                }
            });
            for (group, _, view) in views {
                self.copy_cells(group.cells, &view.expect("every group is read")?, out)?;
            }
        }
        Ok(())
    }

    fn copy_cells(&self, cells: &[Deferred<'_>], view: &Cells<'_>, out: &mut [&mut Bytes]) -> Result<()> {
        for Deferred { chunk, column: index, to, run } in cells {
            let to = &mut out[*index][to.clone()];
            self.columns[*index].copy(view, chunk, *run, to).ok_or_else(|| missing(&self.outputs[*index].path))?;
        }
        Ok(())
    }
}

/// The threads of this process; `None` if they cannot be started.
fn pool() -> Option<Arc<rayon_core::ThreadPool>> {
    /// The process that started them: after a fork the child has none of them.
    static POOL: Mutex<Option<(u32, Arc<rayon_core::ThreadPool>)>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*pool {
        Some((process, pool)) if *process == std::process::id() => Some(Arc::clone(pool)),
        _ => {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let builder = rayon_core::ThreadPoolBuilder::new().num_threads(cores.max(THREADS));
            let new = Arc::new(builder.thread_name(|number| format!("reverie-read-{number}")).build().ok()?);
            // Ending the pool of a parent would wait for threads that are not here.
            std::mem::forget(pool.replace((std::process::id(), Arc::clone(&new))));
            Some(new)
        }
    }
}
