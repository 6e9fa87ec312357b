//! Batches whose large columns are sent directly from the chunks, without a gather.

use super::output::ArrayBytes;
use super::plan::{OutputKind, Plan};
use crate::chunk::Chunk;
use crate::chunk::slab::Slab;
use crate::error::Result;
use crate::sample::Draws;
use std::sync::Arc;

/// A plan in two parts: columns whose cells are large enough to be sent from their chunks, and the rest.
#[derive(Clone, Debug)]
pub struct Split {
    plan: Arc<Plan>,
    large: Vec<usize>,
    rest: Plan,
    least: usize,
}

/// Contiguous cells of a chunk. The chunk lives as long as this.
#[derive(Clone, Debug)]
pub struct ContiguousCells {
    chunk: Arc<Chunk>,
    /// The memory of a chunk that is not plain and was left raw.
    left_raw: Option<Arc<Slab>>,
    column: usize,
    first: usize,
    n: usize,
}

impl AsRef<[u8]> for ContiguousCells {
    fn as_ref(&self) -> &[u8] {
        let slab = self.left_raw.as_deref().or_else(|| self.chunk.plain());
        let cells = slab.and_then(|slab| slab.run(self.column, self.first, self.n));
        cells.expect("cells that were published once stay so")
    }
}

impl Split {
    /// Splits off columns of which an item's cells have `least` bytes or more together.
    ///
    /// `None` if there is no such column, or if the batch stores its cells in another form than the chunk.
    pub fn new(plan: &Arc<Plan>, least: usize) -> Option<Self> {
        let fits = |index: &usize| {
            let column = &plan.columns[*index];
            let as_they_are = matches!(column.kind, OutputKind::Squeezed | OutputKind::Dense) && column.outer == 1;
            as_they_are && column.sizes.is_none() && column.steps * column.cell_bytes() >= least.max(1)
        };
        let large: Vec<usize> = (0..plan.num_columns).filter(fits).collect();
        if large.is_empty() || !plan.counted.is_empty() {
            return None;
        }
        let (mut rest, mut index) = (Plan::clone(plan), 0);
        let mut small = || {
            index += 1;
            !large.contains(&(index - 1))
        };
        rest.columns.retain(|_| small());
        (rest.outputs, rest.num_columns) = (Vec::new(), rest.columns.len());
        rest.outputs
            .extend((0..plan.outputs.len()).filter(|at| !large.contains(at)).map(|at| plan.outputs[at].clone()));
        Some(Self { plan: Arc::clone(plan), large, rest, least })
    }

    /// The plan that was split.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The plan's outputs that are not gathered.
    pub fn large(&self) -> &[usize] {
        &self.large
    }

    /// The bytes of the large outputs, one output after another; `None` if the whole batch must be gathered.
    ///
    /// That is so if a chunk stores some of them in another form than the batch, or may do so later, or in pieces that are
    /// too small.
    pub fn contiguous_cells(&self, draws: &Draws) -> Option<Vec<ContiguousCells>> {
        if draws.wanted_windows.is_some() || draws.items.len() != self.plan.batch {
            return None;
        }
        let mut all = Vec::with_capacity(self.large.len() * draws.items.len());
        for column in self.large.iter().map(|index| &self.plan.columns[*index]) {
            for item in &draws.items {
                let source = item.pattern.columns.get(column.source)?;
                if source.cells.len() != column.steps {
                    return None;
                }
                let mut whole = true;
                let found = column.each_run(item, source, |chunk, run| {
                    let left_raw = chunk.left_raw();
                    let slab = left_raw.as_deref().or_else(|| chunk.plain());
                    let bytes = slab.and_then(|slab| column.whole(slab, run));
                    whole &= bytes.is_some_and(|bytes| bytes.len() >= self.least);
                    let (column, first, n) = (run.source, run.first, run.n);
                    all.push(ContiguousCells { chunk: Arc::clone(chunk), left_raw, column, first, n });
                    Ok(())
                });
                if found.is_err() || !whole {
                    return None;
                }
            }
        }
        Some(all)
    }

    /// Fills the other outputs, as [`Plan::gather`] does: `out` has one slice for each of them.
    pub fn gather_rest(&self, draws: &Draws, out: &mut [&mut ArrayBytes]) -> Result<()> {
        if self.rest.outputs.is_empty() { Ok(()) } else { self.rest.gather(&draws.items, out) }
    }
}
