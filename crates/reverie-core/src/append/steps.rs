//! The writer of trajectories: appends whole or partial steps; items refer to any kept cells.

mod items;
mod spans;

pub use items::{ItemColumn, ItemForm};

use super::forms::Forms;
use super::run::{ChunkRun, chunk_length, layout};
use super::sink::{ColumnCells, Sink, next_episode, next_stream};
use crate::chunk::{Compression, Meter};
use crate::error::{Error, Result};
use crate::spec::{ColumnSpec, Schema};
use smallvec::SmallVec;
use spans::SpannedBody;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Options of a [`StepWriter`]: how it keeps its steps and divides them into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// The number of cells of a column that items may refer to, the latest included.
    pub keep_alive: usize,
    /// The number of steps in a chunk; `None` chooses by their size.
    pub chunk_length: Option<usize>,
    /// The compression of the chunks.
    pub compression: Compression,
}

struct WriterColumn {
    spec: ColumnSpec,
    options: WriterOptions,
    group: usize,
    within: usize,
    /// The last step that holds or skips a cell of this column.
    written: Option<u64>,
}

struct ColumnGroup {
    run: ChunkRun,
    columns: Vec<usize>,
    /// Cells without a fixed width: every chunk is one step, as wide as its value.
    variable: bool,
    /// The bytes of the latest cell of a group of such cells, and of its elements.
    latest: Option<(usize, usize)>,
}

/// The writer's side of trajectories: history, chunks, items. It never blocks.
pub struct StepWriter {
    meter: Arc<Meter>,
    options: WriterOptions,
    configured: HashMap<String, WriterOptions>,
    columns: Vec<WriterColumn>,
    by_path: HashMap<String, usize>,
    groups: Vec<ColumnGroup>,
    /// The number of the open step, or of the next one.
    step: u64,
    step_open: bool,
    /// The beginning of the history: steps before it were cleared.
    base: u64,
    /// The episodes of the kept steps, each with its first step, the present one last.
    episodes: VecDeque<(u64, u32)>,
    stream: u32,
    forms: Forms,
    /// The latest bodies over several chunks, latest first.
    spans: SmallVec<[SpannedBody; 1]>,
    /// Paths and numbers of axes of the cells that may differ in their first size.
    variable: Vec<(String, usize)>,
}

impl StepWriter {
    /// A writer without columns; they are added when they are first appended.
    pub fn new(sink: Arc<dyn Sink>, options: WriterOptions) -> Result<Self> {
        Self::metered(Arc::clone(sink.meter()), options)
    }

    /// A writer like that of [`StepWriter::new`], for items that go to no sink: the chunks count in this meter.
    pub fn metered(meter: Arc<Meter>, options: WriterOptions) -> Result<Self> {
        Self::check_options(&options)?;
        Ok(Self {
            meter,
            options,
            configured: HashMap::new(),
            columns: Vec::new(),
            by_path: HashMap::new(),
            groups: Vec::new(),
            step: 0,
            step_open: false,
            base: 0,
            episodes: [(0, next_episode())].into(),
            stream: next_stream(),
            forms: Forms::default(),
            spans: SmallVec::new(),
            variable: Vec::new(),
        })
    }

    /// Cells of these columns may differ in the size of their first axis: their paths and the numbers of a cell's axes.
    #[must_use]
    pub fn of_variable(mut self, columns: Vec<(String, usize)>) -> Self {
        self.variable = columns;
        self
    }

    /// Items will be runs of whole steps: a table's signature may describe the step (see [`Pattern::timestep`]).
    ///
    /// [`Pattern::timestep`]: crate::item::Pattern::timestep
    #[must_use]
    pub fn of_timesteps(mut self) -> Self {
        self.forms.timestep = true;
        self
    }

    /// Items will be like others of their table (see [`Pattern::alike`](crate::item::Pattern::alike)).
    #[must_use]
    pub fn of_alike(mut self) -> Self {
        self.forms.alike = true;
        self
    }

    fn check_options(options: &WriterOptions) -> Result<()> {
        if options.keep_alive < 1 || options.chunk_length.is_some_and(|length| length < 1) {
            return Err(Error::InvalidArgument(
                "a writer needs num_keep_alive_refs >= 1 and a chunk length >= 1".to_owned(),
            ));
        }
        Ok(())
    }

    /// Sets a column's options.
    ///
    /// A column that was appended before stays in its group, whose chunks end here: the next chunks are no longer than
    /// any column of the group asks for. Cells that it no longer kept do not come back.
    pub fn configure(&mut self, path: &str, options: WriterOptions) -> Result<()> {
        Self::check_options(&options)?;
        let Some(column) = self.by_path.get(path).copied() else {
            self.configured.insert(path.to_owned(), options);
            return Ok(());
        };
        if self.step_open {
            return Err(Error::InvalidArgument(format!(
                "column '{path}' cannot be configured within a step: end it with an append that is not partial"
            )));
        }
        self.columns[column].options = options;
        let group = self.columns[column].group;
        self.groups[group].run.seal();
        self.spans.clear();
        if !self.groups[group].variable {
            self.lay_out(group);
        }
        Ok(())
    }

    /// Returns the numbers of a schema's columns, and adds new columns.
    ///
    /// New columns of one call with the same options share chunks. Refuses a column whose dtype or shape changed, and
    /// two columns with one path.
    pub fn resolve(&mut self, schema: &Schema) -> Result<Vec<usize>> {
        let mut paths = HashSet::with_capacity(schema.columns.len());
        for spec in &schema.columns {
            if !paths.insert(&spec.path) {
                return Err(Error::InvalidArgument(format!(
                    "two columns of a step have the path '{}': rename a key that holds a '/'",
                    spec.path
                )));
            }
            if let Some(known) = self.by_path.get(&spec.path).map(|column| &self.columns[*column].spec)
                && known != spec
                && !(known.is_variable() && known.is_alike(spec))
            {
                return Err(Error::Signature {
                    path: spec.path.clone(),
                    got: format!("{} {:?}", spec.dtype, spec.shape),
                    want: format!("{} {}, as in the steps before", known.dtype, known.shape_text()),
                });
            }
        }
        let mut made: Vec<(WriterOptions, usize)> = Vec::new();
        let resolve = |spec: &ColumnSpec| -> usize {
            if let Some(column) = self.by_path.get(&spec.path) {
                return *column;
            }
            let options = self.configured.get(&spec.path).copied().unwrap_or(self.options);
            let may_differ = self.variable.iter().any(|(path, axes)| (path, *axes) == (&spec.path, spec.shape.len()));
            let spec = spec.variable().filter(|_| may_differ).unwrap_or_else(|| spec.clone());
            let variable = spec.cell_bytes().is_none();
            let found = made.iter().find(|(other, _)| *other == options && !variable).map(|(_, group)| *group);
            let group = found.unwrap_or_else(|| {
                let group = ColumnGroup {
                    run: ChunkRun::new(layout(&[(0, 1)], 1), options.compression, Arc::clone(&self.meter)),
                    columns: Vec::new(),
                    variable,
                    latest: None,
                };
                self.groups.push(group);
                if !variable {
                    made.push((options, self.groups.len() - 1));
                }
                self.groups.len() - 1
            });
            let within = self.groups[group].columns.len();
            let column = self.columns.len();
            self.groups[group].columns.push(column);
            self.by_path.insert(spec.path.clone(), column);
            self.columns.push(WriterColumn { spec, options, group, within, written: None });
            column
        };
        let columns = schema.columns.iter().map(resolve).collect();
        for (_, group) in made {
            self.lay_out(group);
        }
        Ok(columns)
    }

    fn lay_out(&mut self, group: usize) {
        let group = &mut self.groups[group];
        let cells: Vec<(usize, usize)> = group
            .columns
            .iter()
            .map(|column| {
                let spec = &self.columns[*column].spec;
                (spec.cell_bytes().unwrap_or(0), spec.dtype.size().unwrap_or(0))
            })
            .collect();
        let step_bytes = cells.iter().map(|(width, _)| width).sum();
        let length = group.columns.iter().filter_map(|column| self.columns[*column].options.chunk_length).min();
        group.run.set_layout(layout(&cells, length.unwrap_or_else(|| chunk_length(step_bytes))));
    }

    /// Appends one cell to each of `columns`; with `partial` the step stays open for more.
    ///
    /// Columns that a step leaves out hold no value there. If a column has its cell already, the call fails and nothing
    /// is written.
    pub fn append(&mut self, columns: &[usize], cells: &[ColumnCells<'_>], partial: bool) -> Result<()> {
        for (column, cells) in columns.iter().zip(cells) {
            let column = &self.columns[*column];
            if column.written == Some(self.step) {
                return Err(Error::InvalidArgument(format!(
                    "column '{}' was given twice in one step",
                    column.spec.path
                )));
            }
            let want = column.spec.elements() * cells.itemsize;
            let fits = match column.spec.is_variable() {
                true => column.spec.rows_in(cells.bytes.len()).is_some(),
                false => cells.bytes.len() == want,
            };
            if !fits {
                return Err(Error::Signature {
                    path: column.spec.path.clone(),
                    got: format!("{} bytes", cells.bytes.len()),
                    want: format!("{want} bytes"),
                });
            }
        }
        for (index, cells) in columns.iter().zip(cells) {
            let column = &mut self.columns[*index];
            column.written = Some(self.step);
            let group = &mut self.groups[column.group];
            let latest = (cells.bytes.len(), cells.itemsize);
            if group.variable && group.latest != Some(latest) {
                group.latest = Some(latest);
                group.run.set_layout(layout(&[latest], 1));
            }
            group.run.push(self.step, column.within, *cells);
        }
        self.step_open = true;
        if !partial {
            self.close_step();
        }
        Ok(())
    }

    /// Ends a step that was left open; does nothing without one.
    pub fn close_step(&mut self) {
        if !self.step_open {
            return;
        }
        for group in &mut self.groups {
            let written = |column: &usize| self.columns[*column].written == Some(self.step);
            // A group without cells in this step begins no chunk, but an open chunk keeps in step.
            if group.columns.iter().any(written) || group.run.is_open_at(self.step) {
                for column in group.columns.iter().filter(|column| !written(column)) {
                    group.run.writer(self.step).skip(self.columns[*column].within);
                }
            }
            let keep = group.columns.iter().map(|column| self.columns[*column].options.keep_alive).max();
            group.run.seal_full();
            if group.run.forget_before((self.step + 1).saturating_sub(keep.unwrap_or(1) as u64)) {
                // They may refer to released chunks.
                self.spans.clear();
            }
        }
        self.step += 1;
        self.step_open = false;
    }

    /// True between a partial append and the end of its step.
    pub fn step_is_open(&self) -> bool {
        self.step_open
    }

    /// The number of steps since the history was cleared, the open one included.
    pub fn num_steps(&self) -> u64 {
        self.step - self.base + u64::from(self.step_open)
    }

    /// The number of whole steps of this episode.
    pub fn episode_steps(&self) -> u64 {
        self.step - self.episodes.back().map_or(0, |(start, _)| *start)
    }

    /// The step at which the history begins, counted from the writer's start.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The specification of a column.
    pub fn spec(&self, column: usize) -> &ColumnSpec {
        &self.columns[column].spec
    }

    /// Bytes of a column's cell; of the latest one where they differ.
    pub fn cell_bytes(&self, column: usize) -> usize {
        let WriterColumn { spec, group, .. } = &self.columns[column];
        spec.cell_bytes().unwrap_or_else(|| self.groups[*group].latest.map_or(0, |(bytes, _)| bytes))
    }

    /// The number of a column that was appended.
    pub fn column(&self, path: &str) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    /// True if the column has its cell of the open step.
    pub fn written_in_open_step(&self, column: usize) -> bool {
        self.step_open && self.columns[column].written == Some(self.step)
    }

    /// Ends the episode and the step; the next step begins another episode.
    ///
    /// With `clear_buffers` the history is cleared; without, items may still refer to earlier steps.
    pub fn end_episode(&mut self, clear_buffers: bool) {
        self.close_step();
        self.episodes.push_back((self.step, next_episode()));
        if clear_buffers {
            self.base = self.step;
            self.spans.clear();
            for group in &mut self.groups {
                group.run.seal();
                group.run.clear();
            }
        }
        let keep = self.columns.iter().map(|column| column.options.keep_alive).max().unwrap_or(1);
        let oldest = self.step.saturating_sub(keep as u64).max(self.base);
        while self.episodes.get(1).is_some_and(|(start, _)| *start <= oldest) {
            self.episodes.pop_front();
        }
    }

    /// The episode of a kept step.
    fn episode_at(&self, step: u64) -> u32 {
        let after = self.episodes.partition_point(|(start, _)| *start <= step);
        self.episodes[after.saturating_sub(1)].1
    }
}
