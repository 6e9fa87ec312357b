//! Batches of windows: the arrays, and how they are filled from the items that the windows cover.

use super::deferred_cells::DeferredCells;
use super::output::ArrayBytes;
use super::output::missing;
use super::output::{BatchOptions, OutputArray, Role};
use super::plan::{Column, OutputKind, Plan, check_alike, width_of};
use super::select::select;
use super::sizes::refuse_variable;
use super::unpacked::UnpackCallback;
use crate::chunk::slab::fill;
use crate::error::{Error, Result};
use crate::item::Item;
use crate::sample::{Borders, Draws, Segment, Windows, segments};
use crate::spec::DType;

/// Decides how the windows of these draws become a batch; see [`super::plan`].
///
/// `Ragged` also if an item has no common time axis.
pub(super) fn plan(draws: &Draws, wanted: &Windows, options: &BatchOptions<'_>) -> Result<Plan> {
    let (Some(first), segments) = (draws.items.first(), segments(&draws.items, &draws.windows, wanted)?) else {
        return Err(Error::InvalidArgument("a batch of no items has no columns; ask for at least one".to_owned()));
    };
    let pattern = &first.pattern;
    let (sources, structure) = match options.columns {
        None => ((0..pattern.columns.len()).collect(), pattern.structure.clone()),
        Some(paths) => {
            let known = pattern.columns.iter().map(|column| column.spec.path.as_str()).collect::<Vec<_>>();
            select(&pattern.structure, &known, paths)?
        }
    };
    let (batch, steps) = (draws.items.len(), wanted.steps());
    let items: Vec<&Item> = segments.iter().map(|segment| &segment.item).collect();
    items.iter().try_for_each(|item| check_alike(pattern, &item.pattern, &sources))?;
    for item in &items {
        let mut specs = sources.iter().map(|source| &item.pattern.columns[*source].spec);
        specs.try_for_each(|spec| refuse_variable(spec, "a window"))?;
    }
    let (mut columns, mut outputs) = (Vec::with_capacity(sources.len()), Vec::with_capacity(sources.len() + 3));
    for source in &sources {
        let spec = &pattern.columns[*source].spec;
        let itemsize = width_of(spec, &items, *source)?;
        let kind = if pattern.columns[*source].squeeze { OutputKind::Squeezed } else { OutputKind::Dense };
        let size = if kind == OutputKind::Squeezed { 1 } else { steps };
        let mut shape = spec.shape.clone();
        if kind == OutputKind::Dense {
            shape.insert(0, steps);
        }
        shape.insert(0, batch);
        columns.push(Column {
            source: *source,
            kind,
            elements: spec.elements(),
            itemsize,
            outer: 1,
            steps: size,
            starts: Vec::new(),
            sizes: None,
        });
        outputs.push(OutputArray { path: spec.path.clone(), dtype: spec.dtype, itemsize, shape, role: Role::Column });
    }
    let of_all =
        |path: &str, dtype, itemsize, shape, role| OutputArray { path: path.to_owned(), dtype, itemsize, shape, role };
    if wanted.borders() == Borders::Pad {
        outputs.push(of_all("mask", DType::Bool, 1, vec![batch, steps], Role::Mask(None)));
    }
    outputs.push(of_all("is_first", DType::Bool, 1, vec![batch, steps], Role::First));
    outputs.push(of_all("start", DType::Int64, 8, vec![batch], Role::Start));
    outputs.iter().try_for_each(OutputArray::check_size)?;
    let num_columns = sources.len();
    Ok(Plan { outputs, structure, num_columns, batch, columns, counted: Vec::new(), pattern: None, reusable: false })
}

impl Plan {
    /// Like [`Plan::gather`], for draws: their items, or their windows. Reads only the windows' cells.
    pub fn gather_draws(&self, draws: &Draws, out: &mut [&mut ArrayBytes]) -> Result<()> {
        self.gather_draws_with(draws, out, &mut |_| Ok(()))
    }

    /// Like [`Plan::gather_draws`]; calls `pause` before each chunk is unpacked.
    pub fn gather_draws_with(
        &self,
        draws: &Draws,
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        let Some(wanted) = draws.wanted_windows else { return self.gather_with(&draws.items, out, pause) };
        self.check_sizes(draws.items.len(), out)?;
        let segments = segments(&draws.items, &draws.windows, &wanted)?;
        let (columns, others) = out.split_at_mut(self.num_columns);
        // One whole segment a row: gathered like ordinary items.
        if segments.len() == self.batch && segments.iter().all(|segment| segment.len == wanted.steps()) {
            let items: Vec<&Item> = segments.iter().map(|segment| &segment.item).collect();
            self.gather_columns(&items, columns, pause)?;
        } else {
            self.gather_segments(&segments, columns, pause)?;
        }
        for (output, out) in self.outputs[self.num_columns..].iter().zip(others) {
            write_places(output.role, &segments, draws, wanted.steps(), out);
        }
        Ok(())
    }

    /// Gathers segment by segment; chunks that are not plain come last, each unpacked once.
    fn gather_segments(
        &self,
        segments: &[Segment],
        out: &mut [&mut ArrayBytes],
        pause: UnpackCallback<'_>,
    ) -> Result<()> {
        let mut filled = vec![0; self.batch];
        segments.iter().for_each(|segment| filled[segment.row] += segment.len);
        for (column, out) in
            self.columns.iter().zip(out.iter_mut()).filter(|(column, _)| column.kind == OutputKind::Dense)
        {
            for row in (0..self.batch).filter(|row| filled[*row] < column.steps) {
                zero(&mut out[column.range(row)]);
            }
        }
        let (mut deferred, mut last) = (Vec::new(), None);
        for Segment { row, at, len, item, .. } in segments {
            for (index, (column, out)) in self.columns.iter().zip(out.iter_mut()).enumerate() {
                let source =
                    item.pattern.columns.get(column.source).ok_or_else(|| missing(&self.outputs[index].path))?;
                let (whole, cell) = (column.range(*row), column.cell_bytes());
                let to = match column.kind {
                    // Taken from the drawn item, which comes first.
                    OutputKind::Squeezed if last == Some(*row) => continue,
                    OutputKind::Squeezed => whole,
                    _ => whole.start + at * cell..whole.start + (at + len) * cell,
                };
                column.each_run(item, source, |chunk, run| {
                    if chunk.plain().is_none() {
                        deferred.push(DeferredCells { chunk, column: index, to: to.clone(), run });
                        return Ok(());
                    }
                    column
                        .copy(&chunk.read()?, chunk, run, &mut out[to.clone()])
                        .ok_or_else(|| missing(&source.spec.path))
                })?;
            }
            last = Some(*row);
        }
        self.gather_deferred(deferred, out, pause)
    }
}

/// Writes the outputs of windows other than their columns.
fn write_places(role: Role, segments: &[Segment], draws: &Draws, steps: usize, out: &mut ArrayBytes) {
    if role == Role::Start {
        for (window, out) in draws.windows.iter().zip(out.chunks_exact_mut(size_of::<i64>())) {
            fill(out, &window.start.to_ne_bytes());
        }
        return;
    }
    zero(out);
    for Segment { row, at, len, begins, .. } in segments {
        let first = row * steps + at;
        match role {
            Role::First => _ = out[first].write(u8::from(*begins)),
            _ => out[first..first + len].iter_mut().for_each(|byte| _ = byte.write(1)),
        }
    }
}

fn zero(bytes: &mut ArrayBytes) {
    bytes.iter_mut().for_each(|byte| _ = byte.write(0));
}
