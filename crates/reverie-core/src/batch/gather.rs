//! Fills a plan's arrays.

use super::copies::{self, CellCopy, ask_for_bodies, ask_for_chunks};
use super::deferred_cells::DeferredCells;
use super::output::ArrayBytes;
use super::output::Role;
use super::output::missing;
use super::plan::{Column, OutputKind, Plan};
use super::run::CellRun;
use super::unpacked::UnpackCallback;
use crate::chunk::slab::{SlabRows, fill};
use crate::chunk::{Chunk, Layout};
use crate::error::{Error, Result};
use crate::item::{Body, Cells, Form, Item, PatternColumn};
use crate::stores::Stores;
use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;

/// The number of kinds of items (pattern and layout) that are gathered together, each in its own pass.
///
/// The items at the ends of episodes often have their own patterns. The remaining items are gathered one by one.
const KINDS_ALIKE: usize = 4;

/// The number of items that are tried as the leader of a kind.
const LEADERS_TRIED: usize = 8;

/// Rows whose cells are prefetched together, while the rows before arrive: about as many misses as a processor has in
/// flight.
const PREFETCH_ROWS: usize = 32;

/// `n` cells of a chunk's column; the first is at `start` relative to the item's anchor.
#[derive(Clone, Copy)]
struct LeadingRun {
    column: usize,
    start: i64,
    n: usize,
}

impl Plan {
    /// Fills every byte of every output. Takes no lock while it copies or unpacks.
    ///
    /// `items` are those that the plan was made for; `out` has one slice per output, each
    /// [`OutputArray::bytes`](super::output::OutputArray::bytes) long.
    ///
    /// `InvalidArgument`: other sizes. `Signature`: an item whose cells do not exist or do not have the width of their
    /// dtype, which no table accepts. `Damaged`: a packed chunk that does not unpack. After an error the outputs may be
    /// partly filled.
    pub fn gather<T: Borrow<Item>>(&self, items: &[T], out: &mut [&mut ArrayBytes]) -> Result<()> {
        self.gather_with(items, out, &mut |_| Ok(()))
    }

    /// Like [`Plan::gather`]; calls `pause` before each chunk is unpacked.
    pub(super) fn gather_with<T: Borrow<Item>>(
        &self,
        items: &[T],
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        self.check_sizes(items.len(), out)?;
        let (columns, lengths) = out.split_at_mut(self.num_columns);
        self.gather_columns(items, columns, pause)?;
        for (index, out) in lengths.iter_mut().enumerate() {
            self.write_lengths(index, items, out);
        }
        Ok(())
    }

    pub(super) fn gather_columns<T: Borrow<Item>>(
        &self,
        items: &[T],
        columns: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        let stores = Stores::of_batch(columns.iter().map(|column| column.len()).sum());
        self.gather_columns_by(stores, items, columns, pause)
    }

    fn gather_columns_by<T: Borrow<Item>>(
        &self,
        stores: Stores,
        items: &[T],
        columns: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        ask_for_bodies(items);
        let _finish = stores.begin();
        let mut left = self.gather_alike(items, 0..items.len(), columns, stores);
        for _ in 1..KINDS_ALIKE {
            let before = left.len();
            left = self.gather_alike(items, left.into_iter(), columns, stores);
            if left.is_empty() || left.len() == before {
                break;
            }
        }
        self.gather_any(items, &left, columns, stores, pause)
    }

    pub(super) fn check_sizes(&self, items: usize, out: &[&mut ArrayBytes]) -> Result<()> {
        let fits = items == self.batch
            && out.len() == self.outputs.len()
            && self.outputs.iter().zip(out).all(|(output, out)| output.bytes() == out.len());
        if fits {
            return Ok(());
        }
        let want = self.outputs.iter().map(super::output::OutputArray::bytes).collect::<Vec<_>>();
        let got = out.iter().map(|out| out.len()).collect::<Vec<_>>();
        Err(Error::InvalidArgument(format!(
            "gather: {items} items into arrays of {got:?} bytes; the plan is for {} into {want:?}",
            self.batch
        )))
    }

    /// The common case: gathers the items of one pattern, in plain chunks of one layout, one run of cells per column.
    ///
    /// `numbers` are the items to consider. Returns the numbers of the others.
    fn gather_alike<T: Borrow<Item>>(
        &self,
        items: &[T],
        numbers: impl ExactSizeIterator<Item = usize> + Clone,
        out: &mut [&mut ArrayBytes],
        stores: Stores,
    ) -> Vec<usize> {
        let candidates = numbers.clone().map(|number| items[number].borrow()).filter_map(|item: &Item| {
            let chunk = item.single_chunk()?;
            chunk.plain().map(|_| (&item.pattern, chunk.layout()))
        });
        let leader = candidates.take(LEADERS_TRIED).find_map(|(pattern, layout)| {
            let runs = self.leading_runs(pattern, layout)?;
            Some((pattern, layout, runs))
        });
        let Some((pattern, layout, runs)) = leader else { return numbers.collect() };
        let first = runs.iter().map(|run| run.start).min().unwrap_or(0);
        let end = runs.iter().map(|run| run.start + run.n as i64).max().unwrap_or(0);
        let ahead = lines(layout, &runs);
        let (mut rows, mut left) = (SlabRows::new(layout, first..end, numbers.len()), Vec::new());
        let mut prefetched = 0;
        let prefetch = |rows: &SlabRows<'_>, some: Range<usize>| {
            ahead.iter().for_each(|(column, relative)| rows.prefetch(some.clone(), *column, *relative));
        };
        for number in numbers {
            let item: &Item = items[number].borrow();
            let chunk = item.single_chunk().filter(|_| item.pattern.same(pattern));
            let slab = chunk.and_then(|chunk| chunk.plain());
            if !slab.is_some_and(|slab| rows.push(slab, item.anchor, number as u32)) {
                left.push(number);
            } else if rows.len() == prefetched + PREFETCH_ROWS {
                prefetch(&rows, prefetched..rows.len());
                prefetched = rows.len();
            }
        }
        prefetch(&rows, prefetched..rows.len());
        runs.iter().zip(out).for_each(|(run, out)| rows.gather(run.column, run.start, run.n, out, stores));
        left
    }

    /// The run of each column in the chunk, if all columns are runs that fill the place of their item.
    fn leading_runs(&self, pattern: &Form, layout: &Layout) -> Option<Vec<LeadingRun>> {
        let only = self.pattern.as_ref().is_some_and(|only| only.same(pattern));
        let run = |column: &Column| {
            let source = pattern.columns.get(column.source)?;
            let Cells::Range { start, step, len } = &source.cells else { return None };
            let (at, n) = (source.column as usize, *len as usize);
            let fills = match column.kind {
                OutputKind::Squeezed | OutputKind::Dense => n == column.steps,
                OutputKind::Values => only,
                OutputKind::Padded => false,
            };
            let plain = column.sizes.is_none() && column.outer == 1 && (*step == 1 || n == 1) && source.part == 0;
            let fits = at < layout.num_columns() && layout.width(at) == column.cell_bytes();
            (fills && plain && fits).then_some(LeadingRun { column: at, start: i64::from(*start), n })
        };
        self.columns.iter().map(run).collect()
    }

    /// Every other case: cell runs one by one; chunks that are not plain come last, each unpacked once.
    fn gather_any<T: Borrow<Item>>(
        &self,
        items: &[T],
        left: &[usize],
        out: &mut [&mut ArrayBytes],
        stores: Stores,
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        ask_for_chunks(items, left);
        let (mut copies, mut deferred) = (Vec::with_capacity(2 * left.len() * self.columns.len()), Vec::new());
        // Item by item: columns that share cells, such as obs and next_obs, find them in the cache.
        for number in left.iter().copied() {
            let item: &Item = items[number].borrow();
            for (index, (column, out)) in self.columns.iter().zip(out.iter_mut()).enumerate() {
                let source = self.source(item, number, column)?;
                if let Some(sizes) = &column.sizes {
                    column.each_cell(sizes, (number, item), source, out, |chunk, first, to| {
                        let run = CellRun { source: source.column as usize, first, n: 1, at: 0 };
                        match chunk.plain().and_then(|slab| slab.run(run.source, first, 1)) {
                            Some(from) => copies.push(CellCopy { from, column: index, at: to.start }),
                            None => deferred.push(DeferredCells { chunk, column: index, to, run }),
                        }
                    })?;
                    continue;
                }
                let place = column.range(number);
                column.zero_tail(source.cells.len(), &mut out[place.clone()]);
                column.each_run(item, source, |chunk, run| {
                    let Some(slab) = chunk.plain() else {
                        deferred.push(DeferredCells { chunk, column: index, to: place.clone(), run });
                        return Ok(());
                    };
                    if let Some(from) = column.whole(slab, run) {
                        copies.push(CellCopy { from, column: index, at: place.start + run.at * column.cell_bytes() });
                        return Ok(());
                    }
                    let to = &mut out[place.clone()];
                    column.copy(&chunk.read()?, chunk, run, to).ok_or_else(|| missing(&source.spec.path))
                })?;
            }
        }
        copies::run(&copies, out, stores);
        self.gather_deferred(deferred, out, pause)
    }

    /// The item's column, if its cells fill its place in the batch exactly.
    fn source<'a>(&self, item: &'a Item, number: usize, column: &Column) -> Result<&'a PatternColumn> {
        let source = item.pattern.columns.get(column.source);
        source
            .filter(|source| match column.kind {
                _ if column.sizes.is_some() => {
                    column.sizes.as_ref().is_some_and(|sizes| source.cells.len() == sizes.cells_of(number))
                }
                OutputKind::Padded => source.cells.len() <= column.steps,
                OutputKind::Values => source.cells.len() == column.starts[number + 1] - column.starts[number],
                OutputKind::Squeezed | OutputKind::Dense => source.cells.len() == column.steps,
            })
            .ok_or_else(|| Error::InvalidArgument("gather: the items are not those of the plan".to_owned()))
    }

    fn write_lengths<T: Borrow<Item>>(&self, index: usize, items: &[T], out: &mut ArrayBytes) {
        let column = &self.columns[self.counted[index]];
        if let Some(sizes) = &column.sizes {
            return sizes.write_counts(out);
        }
        let lengths = items.iter().map(|item| item.borrow().pattern.columns[column.source].cells.len());
        match self.outputs[self.num_columns + index].role {
            Role::Mask(_) => {
                for (length, out) in lengths.zip(out.chunks_exact_mut(column.steps.max(1))) {
                    out.iter_mut().enumerate().for_each(|(step, out)| {
                        out.write(u8::from(step < length));
                    });
                }
            }
            _ => {
                for (length, out) in lengths.zip(out.chunks_exact_mut(size_of::<i64>())) {
                    fill(out, &(length as i64).to_ne_bytes());
                }
            }
        }
    }
}

impl Item {
    fn single_chunk(&self) -> Option<&Arc<Chunk>> {
        match &self.body {
            Body::Chunk(chunk) => Some(chunk),
            Body::Span(_) => None,
        }
    }
}

/// One (column, cell) for each cache line in which the runs of a row begin: interleaved cells share lines.
fn lines(layout: &Layout, runs: &[LeadingRun]) -> Vec<(usize, i64)> {
    const LINE: i64 = 64;
    let mut places = runs
        .iter()
        .map(|LeadingRun { column, start, .. }| {
            let stride = layout.stride(*column) as i64;
            (stride, layout.offset(*column) as i64 + start * stride, (*column, *start))
        })
        .collect::<Vec<_>>();
    places.sort_unstable();
    let last = places.last().copied();
    let mut kept: Vec<(i64, i64, (usize, i64))> = Vec::with_capacity(places.len());
    for place in places {
        let near = kept.last().is_some_and(|(stride, at, _)| *stride == place.0 && place.1 - at < LINE / 2);
        if !near || Some(place) == last {
            kept.push(place);
        }
    }
    kept.into_iter().map(|(.., cell)| cell).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{BatchOptions, plan};
    use super::*;
    use crate::chunk::{Chooser, ChunkWriter, Compression, Meter};
    use crate::item::Pattern;
    use crate::spec::{ColumnSpec, DType, Structure, StructureKey};
    use std::mem::MaybeUninit;

    /// Bytes of a cell: no multiple of a line, and enough of them to be stored past the cache.
    const WIDE: usize = 3001;

    fn chunk() -> Arc<Chunk> {
        let layout = Arc::new(Layout::columnar(&[(WIDE, 1), (8, 8)], 6));
        let mut writer = ChunkWriter::new(layout, Compression::None, &Arc::new(Meter::new()));
        for step in 0..6_u8 {
            writer.push(0, &(0..WIDE).map(|at| (at % 241) as u8 ^ step).collect::<Vec<_>>());
            writer.push(1, &u64::from(step).to_ne_bytes());
        }
        writer.seal(&mut Chooser::new(Compression::None))
    }

    fn items(cells: &Cells) -> Vec<Item> {
        let column = |path: &str, dtype, shape: &[usize], at| PatternColumn {
            spec: ColumnSpec { path: path.to_owned(), dtype, shape: shape.to_vec() },
            part: 0,
            column: at,
            cells: cells.clone(),
            squeeze: false,
            stack_axis: 0,
        };
        let columns = vec![column("wide", DType::UInt8, &[WIDE], 0), column("number", DType::Int64, &[], 1)];
        let entries = columns.iter().map(|one| (StructureKey::Str(one.spec.path.clone()), Structure::Leaf)).collect();
        let pattern = Form::new(Pattern {
            columns: columns.into(),
            structure: Structure::Dict(entries),
            timestep: false,
            alike: false,
        });
        let chunk = chunk();
        let item =
            |anchor| Item { body: Body::Chunk(chunk.clone()), pattern: pattern.clone(), anchor, episode: 0, stream: 0 };
        [2, 0, 3, 1].map(item).to_vec()
    }

    #[test]
    fn stores_past_the_cache_gather_what_others_do() {
        for cells in [Cells::one(0), Cells::range(0, 3), Cells::List([2, 0, 1].into())] {
            let items = items(&cells);
            let plan = plan(&items, &BatchOptions::default()).unwrap();
            let [cached, streamed] = [Stores::Cached, Stores::Streamed].map(|stores| {
                let mut arrays: Vec<Vec<MaybeUninit<u8>>> =
                    plan.outputs.iter().map(|output| vec![MaybeUninit::new(0xaa); output.bytes()]).collect();
                let mut out = arrays.iter_mut().map(|array| &mut array[..]).collect::<Vec<_>>();
                plan.gather_columns_by(stores, &items, &mut out, &mut |_| Ok(())).unwrap();
                // SAFETY: every byte was initialised above.
                let read =
                    |array: Vec<MaybeUninit<u8>>| array.iter().map(|byte| unsafe { byte.assume_init() }).collect();
                arrays.into_iter().map(read).collect::<Vec<Vec<u8>>>()
            });
            assert_eq!(cached, streamed, "{cells:?}");
            let first = (2 + cells.get(0)) as u8;
            assert!(streamed[0][..WIDE].iter().enumerate().all(|(at, byte)| *byte == (at % 241) as u8 ^ first));
        }
    }
}
