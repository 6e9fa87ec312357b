//! Cells of chunks that are not plain: each chunk is unpacked, or read from the disk, once.
//!
//! Much of it is done by several threads: as many as cores to unpack, more to read, as a disk answers many reads sooner
//! than one after another.

use super::output::ArrayBytes;
use super::output::missing;
use super::pieces::pieces;
use super::plan::Plan;
use super::readers::{Readers, readers};
use super::run::{CellRun, copy_cells};
use super::unpacked::UnpackCallback;
use crate::chunk::{CellsOnDisk, CellsView, Chunk, Decoder, SpareDecoder};
use crate::error::Result;
use std::ops::Range;

/// Bytes that are unpacked or read between two pauses.
const AT_ONCE: u64 = 16 << 20;
/// Bytes that are unpacked before they are spread over the batch: no more than a processor's cache.
const SPREAD_AT_ONCE: u64 = 2 << 20;
/// Shares of the work for each thread: one that begins late, on a busy core, finds little left.
const SHARES: usize = 4;

/// Cells of a chunk that is not plain: copied chunk by chunk at the end.
pub(super) struct DeferredCells<'a> {
    pub(super) chunk: &'a Chunk,
    /// The plan's column.
    pub(super) column: usize,
    /// The bytes of its item in the batch.
    pub(super) to: Range<usize>,
    pub(super) run: CellRun,
}

/// All cells of one chunk.
struct ChunkCells<'a> {
    cells: &'a [DeferredCells<'a>],
    /// The needed cells of each column of the chunk, and those between them.
    wanted: Vec<Option<Range<usize>>>,
    /// Bytes that are unpacked, or read from the disk; 0 for a raw chunk in memory.
    bytes: u64,
}

impl<'a> ChunkCells<'a> {
    fn new(cells: &'a [DeferredCells<'a>]) -> Self {
        let chunk = cells[0].chunk;
        let mut wanted: Vec<Option<Range<usize>>> = vec![None; chunk.layout().num_columns()];
        for CellRun { source, first, n, .. } in cells.iter().map(|cells| cells.run) {
            // A column that the chunk does not have is refused when it is copied.
            let Some(wanted) = wanted.get_mut(source) else { continue };
            let (start, end) = wanted.as_ref().map_or((first, first + n), |known| (known.start, known.end));
            *wanted = Some(start.min(first)..end.max(first + n));
        }
        let of = |(column, cells): (usize, &Option<Range<usize>>)| Some(chunk.unpacked_bytes(column, cells.as_ref()?));
        let bytes = wanted.iter().enumerate().filter_map(of).sum();
        Self { cells, wanted, bytes }
    }

    fn read(&'a self, decoder: &'a mut Decoder) -> Result<CellsView<'a>> {
        self.cells[0].chunk.read_with(decoder, &|column| self.wanted[column].clone())
    }
}

impl Plan {
    /// Copies the cells to the batch; calls `pause` before each chunk is unpacked or read.
    pub(super) fn gather_deferred(
        &self,
        mut deferred: Vec<DeferredCells<'_>>,
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        self.read_directly(&mut deferred, out, pause)?;
        deferred.sort_by_key(|cells| std::ptr::from_ref(cells.chunk));
        let groups = deferred.chunk_by(|left, right| std::ptr::eq(left.chunk, right.chunk));
        let mut groups: Vec<_> = groups.map(ChunkCells::new).collect();
        let bytes: u64 = groups.iter().map(|group| group.bytes).sum();
        let on_disk = bytes > 0 && groups.iter().any(|group| group.cells[0].chunk.is_on_disk());
        if let Some(readers) = readers(bytes, on_disk).filter(|_| groups.len() > 1) {
            if deferred.iter().all(|cells| self.columns[cells.column].is_copied(cells.chunk, cells.run.source)) {
                return self.fill_by_several(&readers, groups, &deferred, out, pause);
            }
            groups.sort_by_cached_key(|group| group.cells[0].chunk.place_on_disk());
            return self.spread_by_several(&readers, &groups, out, pause);
        }
        if on_disk {
            // In the order in which they lie on the disk.
            groups.sort_by_cached_key(|group| group.cells[0].chunk.place_on_disk());
        }
        let mut decoder = SpareDecoder::take();
        for group in &groups {
            if group.bytes > 0 {
                pause(group.bytes)?;
            }
            self.copy_cells(group.cells, &group.read(&mut decoder)?, out)?;
        }
        Ok(())
    }

    /// Reads the cells on the disk that fill a piece of the batch as they are, and takes them off the list.
    fn read_directly(
        &self,
        deferred: &mut Vec<DeferredCells<'_>>,
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        let mut reads: Vec<(usize, Range<usize>, CellsOnDisk)> = Vec::new();
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
        let places = reads.iter().map(|(column, to, _)| (*column, to.clone()));
        let places = pieces(places.collect(), out);
        let mut pieces: Vec<_> = reads.into_iter().map(|(.., on_disk)| on_disk).zip(places).collect();
        pieces.sort_unstable_by_key(|(on_disk, _)| on_disk.order());
        let read =
            |pieces: &mut [(CellsOnDisk, &mut ArrayBytes)]| pieces.iter_mut().try_for_each(|(from, to)| from.read(to));
        match readers(bytes, true).filter(|_| pieces.len() > 1) {
            None => read(&mut pieces),
            Some(readers) => readers.each_share(&mut pieces, SHARES, || (), |(), pieces| read(pieces)),
        }
    }

    /// The places of cells on the disk and in the batch, if one is a copy of the other.
    fn direct(&self, cells: &DeferredCells<'_>) -> Option<(Range<usize>, CellsOnDisk)> {
        let (column, run) = (&self.columns[cells.column], &cells.run);
        let from = column
            .is_copied(cells.chunk, run.source)
            .then(|| cells.chunk.on_disk(run.source, run.first..run.first + run.n))??;
        Some((column.place(run, &cells.to), from))
    }

    /// Threads unpack the chunks and copy their cells to the batch: each cell has its own piece of it.
    fn fill_by_several(
        &self,
        readers: &Readers,
        groups: Vec<ChunkCells<'_>>,
        deferred: &[DeferredCells<'_>],
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        let place = |cells: &DeferredCells<'_>| (cells.column, self.columns[cells.column].place(&cells.run, &cells.to));
        let mut places = pieces(deferred.iter().map(place).collect(), out);
        let mut rest = &mut places[..];
        let mut tasks = Vec::with_capacity(groups.len());
        for group in groups {
            let (places, more) = rest.split_at_mut(group.cells.len());
            rest = more;
            tasks.push((group, places));
        }
        tasks.sort_by_cached_key(|(group, _)| group.cells[0].chunk.place_on_disk());
        let fill = |decoder: &mut SpareDecoder, tasks: &mut [(ChunkCells<'_>, &mut [&mut ArrayBytes])]| {
            for (group, places) in tasks {
                let view = group.read(decoder)?;
                for (cells, to) in group.cells.iter().zip(places.iter_mut()) {
                    copy_cells(&view, cells.run, to).ok_or_else(|| missing(&self.outputs[cells.column].path))?;
                }
            }
            Ok(())
        };
        let mut tasks = &mut tasks[..];
        while !tasks.is_empty() {
            let (now, later) = tasks.split_at_mut(at_once(tasks.iter().map(|(group, _)| group.bytes), AT_ONCE));
            tasks = later;
            now.iter().filter(|(group, _)| group.bytes > 0).try_for_each(|(group, _)| pause(group.bytes))?;
            readers.each_share(now, SHARES, SpareDecoder::take, fill)?;
        }
        Ok(())
    }

    /// Threads unpack the chunks, this one spreads their cells: those of several chunks alternate in the batch.
    fn spread_by_several(
        &self,
        readers: &Readers,
        mut groups: &[ChunkCells<'_>],
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        let mut decoders: Vec<SpareDecoder> = Vec::new();
        while !groups.is_empty() {
            let (now, later) = groups.split_at(at_once(groups.iter().map(|group| group.bytes), SPREAD_AT_ONCE));
            groups = later;
            now.iter().filter(|group| group.bytes > 0).try_for_each(|group| pause(group.bytes))?;
            decoders.resize_with(decoders.len().max(now.len()), SpareDecoder::take);
            let mut views: Vec<_> =
                now.iter().zip(&mut decoders).map(|(group, decoder)| (group, Some(decoder), None)).collect();
            readers.each_share(
                &mut views,
                SHARES,
                || (),
                |(), views| {
                    for (group, decoder, view) in views {
                        *view = decoder.take().map(|decoder| group.read(decoder)).transpose()?;
                    }
                    Ok(())
                },
            )?;
            for (group, _, view) in views {
                self.copy_cells(group.cells, &view.expect("every group is read"), out)?;
            }
        }
        Ok(())
    }

    fn copy_cells(&self, cells: &[DeferredCells<'_>], view: &CellsView<'_>, out: &mut [&mut ArrayBytes]) -> Result<()> {
        for DeferredCells { chunk, column: index, to, run } in cells {
            let to = &mut out[*index][to.clone()];
            self.columns[*index].copy(view, chunk, *run, to).ok_or_else(|| missing(&self.outputs[*index].path))?;
        }
        Ok(())
    }
}

/// The number of groups, one at least, of which the ones before the last have fewer bytes than `most`.
fn at_once(groups: impl Iterator<Item = u64>, most: u64) -> usize {
    let mut bytes = 0;
    groups
        .take_while(|more| {
            let fits = bytes < most;
            bytes += more;
            fits
        })
        .count()
}
