//! The writer of n-step transitions from vector environments.
//!
//! Each environment has a run of chunks of its own. A step's observation and action are written as they come;
//! the n-step return and discount of a step follow when its right end is known, into the same row: every
//! observation is stored once, and an item is the row, its form and the chunk.
//!
//! For a start s whose right end is s + m, m <= n (Sutton & Barto, 2nd ed., section 7.1):
//! reward = sum over k < m of discount^k * r_{s+k}, discount = discount^m, or 0 where the m-th step terminated.

use super::run::{Run, chunk_length, layout};
use super::sink::{Cells, Sink, next_episode};
use crate::chunk::Compression;
use crate::error::{Error, Result};
use crate::item::{self, Body, Form, Item, Pattern, PatternColumn};
use crate::spec::{ColumnSpec, DType, Key, Schema, Structure};
use crate::table::{Inserts, Priority};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Where the observation after a step that ended an episode comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightEnds {
    /// From the next append, which is then no transition (Gymnasium's `NEXT_STEP` autoreset).
    NextAppend,
    /// From the same append, as `final_obs` (`SAME_STEP` autoreset, or environments that the caller resets).
    Given,
}

/// What a [`TransitionWriter`] is told.
#[derive(Clone, Debug)]
pub struct TransitionOptions {
    /// Environments that step together.
    pub num_envs: usize,
    /// Steps from an item's observation to its next observation, at most.
    pub n_step: usize,
    /// Per step, within [0, 1].
    pub discount: f64,
    /// Observations are stacks of this many frames; the environment gives the newest one.
    pub frame_stack: Option<usize>,
    /// Where the stack's axis stands among a frame's axes.
    pub stack_axis: u8,
    /// Where last observations come from.
    pub right_ends: RightEnds,
    /// Added to |TD error| where priorities are computed.
    pub priority_eps: f64,
    /// The priority of items whose TD error is not known.
    pub priority: Priority,
    /// How the chunks are stored.
    pub compression: Compression,
}

impl TransitionOptions {
    /// Refuses what can never work.
    pub fn validate(&self) -> Result<()> {
        let refuse = |reason: String| Err(Error::InvalidArgument(reason));
        if self.num_envs < 1 || self.n_step < 1 || self.n_step > 10_000 {
            return refuse(format!(
                "num_envs must be at least 1 and n_step between 1 and 10000, got {} and {}",
                self.num_envs, self.n_step
            ));
        }
        if !(0.0..=1.0).contains(&self.discount) {
            return refuse(format!("discount must be within [0, 1], got {}", self.discount));
        }
        if self.frame_stack.is_some_and(|frames| !(1..=1000).contains(&frames)) {
            return refuse("frame_stack must be between 1 and 1000".to_owned());
        }
        if !(self.priority_eps >= 0.0 && self.priority_eps.is_finite()) {
            return refuse(format!("priority_eps must be finite and at least 0, got {}", self.priority_eps));
        }
        Ok(())
    }
}

/// One step of all environments; every array has one row per environment.
#[derive(Clone, Copy, Debug)]
pub struct TransitionStep<'a> {
    /// The observations in which the actions were taken, then the actions, then the extras; column by column.
    pub columns: &'a [Cells<'a>],
    /// What the actions earned.
    pub rewards: &'a [f64],
    /// The episode ended in a terminal state.
    pub terminated: &'a [bool],
    /// The episode was cut off.
    pub truncated: &'a [bool],
    /// q(obs, action), to compute priorities.
    pub q_taken: Option<&'a [f64]>,
    /// The value of the observations, to compute priorities of the items that end here.
    pub bootstrap: Option<&'a [f64]>,
    /// The observations after the actions, read where an episode ended; only with [`RightEnds::Given`].
    pub final_obs: Option<&'a [Cells<'a>]>,
    /// The value of those.
    pub final_value: Option<&'a [f64]>,
}

/// A step whose right end is not known yet.
struct Start {
    step: u64,
    reward: f64,
    discount: f64,
    q_taken: Option<f64>,
}

/// The body that the latest items over two or more chunks share: from the chunk of one first step to that of another.
struct Span {
    first: u64,
    last: u64,
    parts: Arc<Vec<item::Part>>,
}

struct Env {
    run: Run,
    step: u64,
    episode: u32,
    episode_start: u64,
    ended: bool,
    /// The last step's reward, and whether it terminated: counts for the open starts only once the observation
    /// after it is known.
    earned: Option<(f64, bool)>,
    open: VecDeque<Start>,
    span: Option<Span>,
}

/// The columns of a writer: observation, action, extras as they are given, then reward and discount.
struct Columns {
    specs: Vec<ColumnSpec>,
    num_obs: usize,
    /// For every column of an item in flattening order: its path, the column, and whether it is of the right end.
    item: Vec<(String, usize, bool)>,
    structure: Structure,
    patterns: HashMap<(usize, usize), Form>,
}

/// Writes transitions of vector environments; it never blocks.
pub struct TransitionWriter {
    options: TransitionOptions,
    columns: Columns,
    envs: Vec<Env>,
    dropped: u64,
}

/// The names that the writer gives to what it adds.
const RESERVED: [&str; 5] = ["action", "discount", "next_obs", "obs", "reward"];

impl TransitionWriter {
    /// A writer for steps of these forms. `extras` fills further names of the item and must be a dictionary;
    /// names that the writer gives itself are refused.
    pub fn new(
        sink: &Arc<dyn Sink>,
        options: TransitionOptions,
        obs: &Schema,
        action: &Schema,
        extras: Option<&Schema>,
    ) -> Result<Self> {
        options.validate()?;
        let columns = Columns::new(obs, action, extras)?;
        if let Some(spec) = columns.specs.iter().find(|spec| spec.dtype.size().is_none()) {
            return Err(Error::InvalidArgument(format!(
                "column '{}' is {}: transitions hold numbers only; use a trajectory writer for text",
                spec.path, spec.dtype
            )));
        }
        if let (Some(_), Some(spec)) = (
            options.frame_stack,
            columns.specs[..columns.num_obs].iter().find(|spec| usize::from(options.stack_axis) > spec.shape.len()),
        ) {
            return Err(Error::InvalidArgument(format!(
                "stack_axis {} is beyond the axes of column '{}' {:?}",
                options.stack_axis, spec.path, spec.shape
            )));
        }
        let cells: Vec<_> =
            columns.specs.iter().map(|c| (c.cell_bytes().unwrap_or(0), c.dtype.size().unwrap_or(0))).collect();
        let layout = layout(&cells, chunk_length(cells.iter().map(|(width, _)| width).sum()));
        let env = |_| Env {
            run: Run::new(Arc::clone(&layout), options.compression, Arc::clone(sink.meter())),
            step: 0,
            episode: next_episode(),
            episode_start: 0,
            ended: false,
            earned: None,
            open: VecDeque::new(),
            span: None,
        };
        Ok(Self { envs: (0..options.num_envs).map(env).collect(), options, columns, dropped: 0 })
    }

    /// Appends one step of every environment, and returns the items that are complete with it, environment by
    /// environment. Arrays of the wrong length refuse the call, and nothing is written.
    pub fn append(&mut self, step: &TransitionStep<'_>) -> Result<Inserts> {
        self.check(step)?;
        let mut items = Inserts::new();
        for index in 0..self.envs.len() {
            self.append_env(index, step, &mut items);
        }
        Ok(items)
    }

    fn append_env(&mut self, index: usize, step: &TransitionStep<'_>, items: &mut Inserts) {
        let Self { options, columns, envs, .. } = self;
        let env = &mut envs[index];
        let at = |values: Option<&[f64]>| values.map(|values| values[index]);
        env.earn(options);
        if env.ended {
            env.end_episode(columns, options, (index, step.columns), at(step.bootstrap), items);
            return;
        }
        env.write(index, 0..step.columns.len(), step.columns);
        if env.open.len() == options.n_step {
            env.complete(columns, options, at(step.bootstrap), items);
        }
        env.open.push_back(Start { step: env.step, reward: 0.0, discount: 1.0, q_taken: at(step.q_taken) });
        env.earned = Some((step.rewards[index], step.terminated[index]));
        env.step += 1;
        env.ended = step.terminated[index] || step.truncated[index];
        if let (true, Some(final_obs)) = (env.ended, step.final_obs) {
            env.earn(options);
            env.end_episode(columns, options, (index, final_obs), at(step.final_value), items);
        }
        env.tidy(options);
    }

    fn check(&self, step: &TransitionStep<'_>) -> Result<()> {
        let n = self.options.num_envs;
        let rows = |path: &str, got: usize, want: usize| check_rows(path, got, want, n);
        let given = self.columns.specs.len() - 2;
        if step.columns.len() != given {
            return Err(Error::InvalidArgument(format!(
                "{given} columns are needed, {} were given",
                step.columns.len()
            )));
        }
        let bytes =
            |cells: &[Cells<'_>]| -> Result<()> {
                self.columns.specs.iter().zip(cells).try_for_each(|(spec, cells)| {
                    rows(&spec.path, cells.bytes.len(), n * spec.cell_bytes().unwrap_or(0))
                })
            };
        bytes(step.columns)?;
        rows("reward", step.rewards.len(), n)?;
        rows("terminated", step.terminated.len(), n)?;
        rows("truncated", step.truncated.len(), n)?;
        for (path, values) in
            [("q_taken", step.q_taken), ("bootstrap_value", step.bootstrap), ("final_value", step.final_value)]
        {
            check_values(path, values, n)?;
        }
        if let Some(env) = step.rewards.iter().position(|reward| !(*reward as f32).is_finite()) {
            return Err(Error::InvalidArgument(format!(
                "the reward of environment {env} is not finite in float32, as which it is stored: {}",
                step.rewards[env]
            )));
        }
        match (self.options.right_ends, step.final_obs) {
            (RightEnds::NextAppend, Some(_)) => Err(Error::InvalidArgument(
                "final_obs was given, but last observations come with the next append (autoreset=\"next_step\")"
                    .to_owned(),
            )),
            (RightEnds::Given, None) if step.terminated.iter().zip(step.truncated).any(|(a, b)| *a || *b) => {
                Err(Error::InvalidArgument(
                    "an episode ended: final_obs must give the observation after the last action".to_owned(),
                ))
            }
            (_, Some(cells)) if cells.len() != self.columns.num_obs => Err(Error::InvalidArgument(format!(
                "final_obs has {} columns, the observation has {}",
                cells.len(),
                self.columns.num_obs
            ))),
            (_, Some(cells)) => bytes(cells),
            (_, None) => Ok(()),
        }
    }

    /// Ends all episodes as they are: steps whose observation was followed by another get the last one as their
    /// right end, and their items are returned. The very last step of each environment has none: it is dropped
    /// and counted. `bootstrap` is the value of the last observations; values that do not fit refuse the call, and
    /// nothing is ended. The writer holds no chunk afterwards, and may go on with new episodes.
    pub fn finish(&mut self, bootstrap: Option<&[f64]>) -> Result<Inserts> {
        check_values("bootstrap_value", bootstrap, self.envs.len())?;
        let mut items = Inserts::new();
        let Self { options, columns, envs, dropped } = self;
        for (index, env) in envs.iter_mut().enumerate() {
            if env.open.pop_back().is_some() {
                *dropped += 1;
                env.step -= 1;
                while !env.open.is_empty() {
                    env.complete(columns, options, bootstrap.map(|values| values[index]), &mut items);
                }
                env.step += 1;
                env.begin_episode();
            }
            env.span = None;
            env.run.seal();
            env.run.clear();
        }
        Ok(items)
    }

    /// Steps that could not become items because their right end never came.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn check_rows(path: &str, got: usize, want: usize, num_envs: usize) -> Result<()> {
    match got == want {
        true => Ok(()),
        false => Err(Error::Signature {
            path: path.to_owned(),
            got: format!("{got} values"),
            want: format!("{want}: one row for each of {num_envs} environments"),
        }),
    }
}

/// A NaN would only be seen steps later, as a priority that the table refuses.
fn check_values(path: &str, values: Option<&[f64]>, num_envs: usize) -> Result<()> {
    check_rows(path, values.map_or(num_envs, <[f64]>::len), num_envs, num_envs)?;
    match values.and_then(|values| values.iter().position(|value| !value.is_finite())) {
        Some(env) => Err(Error::InvalidArgument(format!("{path} of environment {env} is not finite"))),
        None => Ok(()),
    }
}

impl Env {
    /// Lets the open starts have the last reward.
    fn earn(&mut self, options: &TransitionOptions) {
        let Some((reward, terminated)) = self.earned.take() else { return };
        for start in &mut self.open {
            start.reward += start.discount * reward;
            start.discount *= if terminated { 0.0 } else { options.discount };
        }
    }

    /// Writes this environment's row of the given columns at the present step.
    fn write(&mut self, index: usize, columns: std::ops::Range<usize>, cells: &[Cells<'_>]) {
        let writer = self.run.writer(self.step);
        for column in columns {
            let width = writer.layout().width(column);
            writer.push(column, &cells[column].bytes[index * width..(index + 1) * width]);
        }
    }

    /// Takes the observation after the last action: it is the right end of all open starts, and its row holds
    /// nothing else.
    fn end_episode(
        &mut self,
        columns: &mut Columns,
        options: &TransitionOptions,
        (index, obs): (usize, &[Cells<'_>]),
        value: Option<f64>,
        items: &mut Inserts,
    ) {
        self.write(index, 0..columns.num_obs, obs);
        while !self.open.is_empty() {
            self.complete(columns, options, value, items);
        }
        let writer = self.run.writer(self.step);
        (columns.num_obs..columns.specs.len()).for_each(|column| writer.skip(column));
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

    /// The oldest open start ends at the present step, whose observation is written.
    fn complete(
        &mut self,
        columns: &mut Columns,
        options: &TransitionOptions,
        value: Option<f64>,
        items: &mut Inserts,
    ) {
        let Start { step, reward, discount, q_taken } = self.open.pop_front().expect("a start is open");
        let writer = self.run.writer_at(step);
        writer.push(columns.specs.len() - 2, &(reward as f32).to_ne_bytes());
        writer.push(columns.specs.len() - 1, &(discount as f32).to_ne_bytes());
        let before = ((step - self.episode_start) as usize).min(options.frame_stack.unwrap_or(1) - 1);
        let (body, origin) = self.body(step - before as u64, self.step);
        let item = Item {
            body,
            pattern: columns.pattern(options, before, (self.step - step) as usize),
            anchor: (step - origin) as u32,
            episode: self.episode,
        };
        // Horgan et al. 2018, section 3 and algorithm 1: the absolute n-step TD error, of values that the actor
        // computed anyway.
        let priority = match (q_taken, value) {
            (Some(q), Some(value)) => Priority::Value((reward + discount * value - q).abs() + options.priority_eps),
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
        let parts = Arc::new(vec![self.run.part(first, last, origin)]);
        self.span = Some(Span { first: origin, last: end, parts: Arc::clone(&parts) });
        (Body::Span(parts), origin)
    }

    fn tidy(&mut self, options: &TransitionOptions) {
        let oldest = self.open.front().map_or(self.step, |start| start.step);
        let frames = options.frame_stack.unwrap_or(1) as u64 - 1;
        self.run.seal_full();
        self.run.forget_before(oldest.saturating_sub(frames).max(self.episode_start.min(oldest)));
        if self.span.as_ref().is_some_and(|span| span.last < oldest) {
            self.span = None;
        }
    }
}

impl Columns {
    fn new(obs: &Schema, action: &Schema, extras: Option<&Schema>) -> Result<Self> {
        let under = |name: &str, schema: &Schema| -> Vec<ColumnSpec> {
            let path = |spec: &ColumnSpec| match spec.path.is_empty() {
                true => name.to_owned(),
                false => format!("{name}/{}", spec.path),
            };
            schema.columns.iter().map(|spec| ColumnSpec { path: path(spec), ..spec.clone() }).collect()
        };
        let mut specs = under("obs", obs);
        let num_obs = specs.len();
        specs.extend(under("action", action));
        let num_steps = specs.len();
        // Top-level name, its structure, its columns here, and whether they are read at the right end.
        let mut parts = vec![
            ("obs".to_owned(), obs.structure.clone(), 0..num_obs, false),
            ("next_obs".to_owned(), obs.structure.clone(), 0..num_obs, true),
            ("action".to_owned(), action.structure.clone(), num_obs..num_steps, false),
        ];
        if let Some(extras) = extras {
            let Structure::Dict(entries) = &extras.structure else {
                return Err(Error::InvalidArgument("extras must be a dictionary of arrays".to_owned()));
            };
            for (key, structure) in entries {
                let name = match key {
                    Key::Str(name) if !RESERVED.contains(&name.as_str()) => name.clone(),
                    other => {
                        return Err(Error::InvalidArgument(format!(
                            "extras cannot be named '{other}': the writer gives {RESERVED:?} itself, and names are text"
                        )));
                    }
                };
                let first = specs.len();
                specs.extend(extras.columns[first - num_steps..][..structure.num_leaves()].iter().cloned());
                parts.push((name, structure.clone(), first..specs.len(), false));
            }
        }
        let float = |path: &str| ColumnSpec { path: path.to_owned(), dtype: DType::Float32, shape: vec![] };
        for name in ["reward", "discount"] {
            parts.push((name.to_owned(), Structure::Leaf, specs.len()..specs.len() + 1, false));
            specs.push(float(name));
        }
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        let structure =
            Structure::Dict(parts.iter().map(|(name, s, ..)| (Key::Str(name.clone()), s.clone())).collect());
        let columns = parts.iter().flat_map(|(_, _, columns, right)| columns.clone().map(|column| (column, *right)));
        let item = structure.paths().into_iter().zip(columns).map(|(path, (column, right))| (path, column, right));
        Ok(Self { num_obs, item: item.collect(), structure, patterns: HashMap::new(), specs })
    }

    /// The form of an item with `before` earlier frames in its episode (at most a stack's) and its right end
    /// `steps` later. Where a stack reaches before the episode, the first frame is repeated.
    fn pattern(&mut self, options: &TransitionOptions, before: usize, steps: usize) -> Form {
        let Self { item, specs, num_obs, structure, patterns, .. } = self;
        let make = || {
            let columns = item.iter().map(|(path, column, right)| {
                let at = if *right { steps as i32 } else { 0 };
                let stacked = options.frame_stack.filter(|_| column < num_obs);
                let cells = match stacked {
                    None => item::Cells::one(at),
                    Some(frames) if before + if *right { steps } else { 0 } + 1 >= frames => {
                        item::Cells::range(at + 1 - frames as i32, at + 1)
                    }
                    Some(frames) => item::Cells::List(
                        (at + 1 - frames as i32..=at).map(|cell| cell.max(-(before as i32))).collect(),
                    ),
                };
                PatternColumn {
                    spec: ColumnSpec { path: path.clone(), ..specs[*column].clone() },
                    part: 0,
                    column: *column as u32,
                    cells,
                    squeeze: stacked.is_none(),
                    stack_axis: stacked.map_or(0, |_| options.stack_axis),
                }
            });
            Form::new(Pattern { columns: columns.collect(), structure: structure.clone(), timestep: false })
        };
        patterns.entry((before, steps)).or_insert_with(make).clone()
    }
}
