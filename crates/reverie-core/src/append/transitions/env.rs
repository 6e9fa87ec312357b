//! One environment of a transition writer: its run of chunks, and the starts whose right end is not known yet.

use super::columns::Columns;
use super::options::{TransitionOptions, TransitionStep};
use crate::append::run::ChunkRun;
use crate::append::sink::{ColumnCells, next_episode, next_stream};
use crate::item::{self, Body, Item};
use crate::table::{Inserts, Priority};
use std::collections::VecDeque;
use std::sync::Arc;

/// A step whose right end is not known yet.
struct OpenStep {
    step: u64,
    reward: f64,
    discount: f64,
    q_taken: Option<f64>,
}

/// The body that the latest items over several chunks share: from the chunk with step `first` to that with `last`.
struct SharedSpan {
    first: u64,
    last: u64,
    parts: Arc<item::Span>,
}

pub(super) struct Env {
    run: ChunkRun,
    /// The open runs, one for each column whose cells differ in width.
    open_runs: Vec<ChunkRun>,
    step: u64,
    stream: u32,
    episode: u32,
    episode_start: u64,
    ended: bool,
    /// The last step's reward, and whether it terminated.
    ///
    /// It counts for the open starts only once the observation after it is known.
    earned: Option<(f64, bool)>,
    open: VecDeque<OpenStep>,
    span: Option<SharedSpan>,
}

impl Env {
    pub(super) fn new(run: ChunkRun, open_runs: Vec<ChunkRun>) -> Self {
        Self {
            run,
            open_runs,
            step: 0,
            stream: next_stream(),
            episode: next_episode(),
            episode_start: 0,
            ended: false,
            earned: None,
            open: VecDeque::new(),
            span: None,
        }
    }

    /// Takes this environment's row of a step; adds the items that are complete with it to `items`.
    pub(super) fn append(
        &mut self,
        columns: &mut Columns,
        options: &TransitionOptions,
        index: usize,
        step: &TransitionStep<'_>,
        items: &mut Inserts,
    ) {
        let at = |values: Option<&[f64]>| values.map(|values| values[index]);
        self.earn(options);
        if self.ended {
            self.end_episode(columns, options, (index, step.columns), at(step.bootstrap), items);
            return;
        }
        self.write(columns, options, index, 0..step.columns.len(), step.columns);
        if self.open.len() == options.n_step {
            self.complete(columns, options, at(step.bootstrap), items);
        }
        self.open.push_back(OpenStep { step: self.step, reward: 0.0, discount: 1.0, q_taken: at(step.q_taken) });
        self.earned = Some((step.rewards[index], step.terminated[index]));
        self.step += 1;
        self.ended = step.terminated[index] || step.truncated[index];
        if let (true, Some(final_obs)) = (self.ended, step.final_obs) {
            self.earn(options);
            self.end_episode(columns, options, (index, final_obs), at(step.final_value), items);
        }
        self.tidy(options);
    }

    /// Ends the episode as it is, with the last observation as the right end of all starts before it.
    ///
    /// True if the last step was dropped, because it has no right end. No chunk is held afterwards.
    pub(super) fn finish(
        &mut self,
        columns: &mut Columns,
        options: &TransitionOptions,
        value: Option<f64>,
        items: &mut Inserts,
    ) -> bool {
        let dropped = self.open.pop_back().is_some();
        if dropped {
            self.step -= 1;
            while !self.open.is_empty() {
                self.complete(columns, options, value, items);
            }
            self.step += 1;
            self.begin_episode();
        }
        self.span = None;
        for run in std::iter::once(&mut self.run).chain(&mut self.open_runs) {
            run.seal();
            run.clear();
        }
        dropped
    }

    /// Adds the last reward to the open starts.
    fn earn(&mut self, options: &TransitionOptions) {
        let Some((reward, terminated)) = self.earned.take() else { return };
        for start in &mut self.open {
            start.reward += start.discount * reward;
            start.discount *= if terminated { 0.0 } else { options.discount };
        }
    }

    /// Writes this environment's row of the given columns at the present step.
    fn write(
        &mut self,
        columns: &Columns,
        options: &TransitionOptions,
        index: usize,
        written: std::ops::Range<usize>,
        cells: &[ColumnCells<'_>],
    ) {
        let writer = self.run.writer(self.step);
        for column in written {
            let ColumnCells { bytes, itemsize } = cells[column];
            let (run, within) = columns.places[column];
            if run == 0 {
                let width = writer.layout().width(within);
                writer.push(within, &bytes[index * width..(index + 1) * width]);
            } else {
                let width = bytes.len() / options.num_envs;
                let cell = ColumnCells { itemsize, bytes: &bytes[index * width..(index + 1) * width] };
                self.open_runs[run - 1].push_alone(self.step, cell);
            }
        }
    }

    /// Takes the observation after the last action: it is the right end of all open starts.
    ///
    /// Its row holds nothing else.
    fn end_episode(
        &mut self,
        columns: &mut Columns,
        options: &TransitionOptions,
        (index, obs): (usize, &[ColumnCells<'_>]),
        value: Option<f64>,
        items: &mut Inserts,
    ) {
        self.write(columns, options, index, 0..columns.num_obs, obs);
        while !self.open.is_empty() {
            self.complete(columns, options, value, items);
        }
        let writer = self.run.writer(self.step);
        for (run, within) in &columns.places[columns.num_obs..] {
            if *run == 0 {
                writer.skip(*within);
            }
        }
        self.step += 1;
        self.begin_episode();
        self.tidy(options);
    }

    fn begin_episode(&mut self) {
        self.ended = false;
        self.earned = None;
        self.episode = next_episode();
        self.episode_start = self.step;
    }

    /// Completes the oldest open start at the present step, whose observation is written.
    fn complete(
        &mut self,
        columns: &mut Columns,
        options: &TransitionOptions,
        value: Option<f64>,
        items: &mut Inserts,
    ) {
        let OpenStep { step, reward, discount, q_taken } = self.open.pop_front().expect("a start is open");
        let writer = self.run.writer_at(step);
        let last = columns.specs.len() - columns.open.len() - 1;
        writer.push(last - 1, &(reward as f32).to_ne_bytes());
        writer.push(last, &(discount as f32).to_ne_bytes());
        let before = ((step - self.episode_start) as usize).min(options.frame_stack.unwrap_or(1) - 1);
        let (body, origin) = match columns.open[..] {
            [] => self.body(step - before as u64, self.step),
            _ => self.body_with_open(columns, step - before as u64, step),
        };
        let item = Item {
            body,
            pattern: columns.pattern(options, before, (self.step - step) as usize),
            anchor: (step - origin) as u32,
            episode: self.episode,
            stream: self.stream,
        };
        // Horgan et al. 2018, section 3 and algorithm 1: the absolute n-step TD error, of values that the actor
        // computed anyway. After a terminal step nothing is bootstrapped: its value is not needed.
        let value = if discount == 0.0 { Some(0.0) } else { value };
        let priority = match (q_taken, value) {
            (Some(q), Some(value)) => {
                let error = (reward + discount * value - q).abs();
                // A value that is not finite stays so, and is refused later.
                let unit = options.priority_unit;
                let bounded = if error.is_finite() { error.min(options.priority_clip * unit) } else { error };
                Priority::Value(bounded + options.priority_eps * unit)
            }
            _ => options.priority,
        };
        items.push((item, priority));
    }

    fn body(&mut self, first: u64, last: u64) -> (Body, u64) {
        let link = |step| self.run.link(step).expect("the step's chunk is kept");
        let (first, last) = (link(first), link(last));
        let origin = self.run.get(first).start;
        if first == last {
            return (Body::Chunk(Arc::clone(&self.run.get(first).chunk)), origin);
        }
        let end = self.run.get(last).start;
        if let Some(span) = self.span.as_ref().filter(|span| (span.first, span.last) == (origin, end)) {
            return (Body::Span(Arc::clone(&span.parts)), origin);
        }
        let parts = Arc::new(vec![self.run.part(first, last, origin)].into());
        self.span = Some(SharedSpan { first: origin, last: end, parts: Arc::clone(&parts) });
        (Body::Span(parts), origin)
    }

    /// The body where cells of columns differ in width: each of these columns has chunks of its own.
    fn body_with_open(&self, columns: &Columns, first: u64, step: u64) -> (Body, u64) {
        let link = |run: &ChunkRun, step| run.link(step).expect("the step's chunk is kept");
        let (from, to) = (link(&self.run, first), link(&self.run, self.step));
        let origin = self.run.get(from).start;
        let mut parts = vec![self.run.part(from, to, origin)];
        for (column, run) in columns.open.iter().zip(&self.open_runs) {
            // Only observations are read at the right end.
            let last = if *column < columns.num_obs { self.step } else { step };
            parts.push(run.part(link(run, step), link(run, last), origin));
        }
        (Body::Span(Arc::new(parts.into())), origin)
    }

    fn tidy(&mut self, options: &TransitionOptions) {
        let oldest = self.open.front().map_or(self.step, |start| start.step);
        let frames = options.frame_stack.unwrap_or(1) as u64 - 1;
        let kept = oldest.saturating_sub(frames).max(self.episode_start.min(oldest));
        for run in std::iter::once(&mut self.run).chain(&mut self.open_runs) {
            run.seal_full();
            run.forget_before(kept);
        }
        if self.span.as_ref().is_some_and(|span| span.last < oldest) {
            self.span = None;
        }
    }
}
