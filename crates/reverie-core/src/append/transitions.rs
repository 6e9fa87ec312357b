//! The writer of n-step transitions from vector environments.
//!
//! Each environment has its own run of chunks. A step's observation and action are written when they arrive; its n-step
//! return and discount follow when its right end is known, into the same row: every observation is stored once, and an
//! item is the row, its form and the chunk.
//!
//! For a start s whose right end is s + m, m <= n (Sutton & Barto, 2nd ed., section 7.1):
//!
//! reward = sum over k < m of discount^k * r_{s+k}, discount = discount^m, or 0 if the m-th step terminated.

mod columns;
mod env;
mod options;

pub use options::{RightEnds, TransitionOptions, TransitionStep};

use super::run::{ChunkRun, chunk_length, layout};
use super::sink::{ColumnCells, Sink};
use crate::error::{Error, Result};
use crate::spec::Schema;
use crate::table::Inserts;
use columns::Columns;
use env::Env;
use std::sync::Arc;

/// Writes transitions of vector environments; it never blocks.
pub struct TransitionWriter {
    options: TransitionOptions,
    columns: Columns,
    envs: Vec<Env>,
    dropped: u64,
}

impl TransitionWriter {
    /// A writer for steps of these schemas.
    ///
    /// `extras` adds further names to the item and must be a dictionary; names that the writer sets itself are refused.
    /// Cells of a column whose first size is [`ANY_SIZE`](crate::spec::ANY_SIZE) may differ in it between steps; in one
    /// step they have one size in all environments.
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
        if options.frame_stack.is_some() {
            let obs = &columns.specs[..columns.num_obs];
            if let Some(spec) = obs.iter().find(|spec| spec.is_variable()) {
                return Err(Error::InvalidArgument(format!(
                    "column '{}' is {} {}: frames of several sizes cannot be stacked; leave out frame_stack",
                    spec.path,
                    spec.dtype,
                    spec.shape_text()
                )));
            }
            if let Some(spec) = obs.iter().find(|spec| usize::from(options.stack_axis) > spec.shape.len()) {
                return Err(Error::InvalidArgument(format!(
                    "stack_axis {} is beyond the axes of column '{}' {:?}",
                    options.stack_axis, spec.path, spec.shape
                )));
            }
        }
        let cells: Vec<_> =
            columns.fixed().map(|c| (c.cell_bytes().unwrap_or(0), c.dtype.size().unwrap_or(0))).collect();
        let shared = layout(&cells, chunk_length(cells.iter().map(|(width, _)| width).sum()));
        let run = |layout: &Arc<_>| ChunkRun::new(Arc::clone(layout), options.compression, Arc::clone(sink.meter()));
        let alone = |column: &usize| run(&layout(&[(0, columns.specs[*column].dtype.size().unwrap_or(0))], 1));
        let env = |_| Env::new(run(&shared), columns.open.iter().map(alone).collect());
        Ok(Self { envs: (0..options.num_envs).map(env).collect(), options, columns, dropped: 0 })
    }

    /// Sets the unit of `priority_eps` and `priority_clip`, for items that are complete from now on.
    pub fn set_priority_unit(&mut self, unit: f64) -> Result<()> {
        options::check_unit(unit)?;
        self.options.priority_unit = unit;
        Ok(())
    }

    /// Appends one step of every environment; returns the items that are complete with it, environment by environment.
    ///
    /// If an array has the wrong length, the call fails and nothing is written.
    pub fn append(&mut self, step: &TransitionStep<'_>) -> Result<Inserts> {
        self.check(step)?;
        let mut items = Inserts::new();
        for (index, env) in self.envs.iter_mut().enumerate() {
            env.append(&mut self.columns, &self.options, index, step, &mut items);
        }
        Ok(items)
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
        let bytes = |cells: &[ColumnCells<'_>]| -> Result<()> {
            self.columns.specs.iter().zip(cells).try_for_each(|(spec, cells)| {
                let got = cells.bytes.len();
                match got.is_multiple_of(n) && spec.is_variable() && spec.rows_in(got / n).is_some() {
                    true => Ok(()),
                    false => rows(&spec.path, got, n * spec.cell_bytes().unwrap_or(0)),
                }
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
        self.check_pairs(step)?;
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

    /// Refuses values that would be silently ignored.
    fn check_pairs(&self, step: &TransitionStep<'_>) -> Result<()> {
        let refuse = |reason: &str| Err(Error::InvalidArgument(reason.to_owned()));
        if step.q_taken.is_some() != step.bootstrap.is_some() {
            return refuse("q_taken and bootstrap_value go together: a TD error needs both, in every append");
        }
        let cut_off = || step.terminated.iter().zip(step.truncated).any(|(terminated, cut)| *cut && !*terminated);
        match (self.options.right_ends, step.final_value) {
            (RightEnds::NextAppend, Some(_)) => refuse(
                "final_value was given, but last observations come with the next append (autoreset=\"next_step\")",
            ),
            (RightEnds::Given, Some(_)) if step.q_taken.is_none() => {
                refuse("final_value needs q_taken and bootstrap_value: a TD error needs all of them")
            }
            (RightEnds::Given, None) if step.q_taken.is_some() && cut_off() => {
                refuse("an episode was truncated: final_value must give the value of final_obs, as q_taken is given")
            }
            _ => Ok(()),
        }
    }

    /// Ends all episodes as they are; returns the completed items.
    ///
    /// A step whose observation was followed by another gets the last one as its right end. The very last step of each
    /// environment has no right end: it is dropped and counted. `bootstrap` is the value of the last observations; if
    /// the values do not fit, the call fails and nothing is ended. The writer holds no chunk afterwards, and new
    /// episodes may follow.
    pub fn finish(&mut self, bootstrap: Option<&[f64]>) -> Result<Inserts> {
        check_values("bootstrap_value", bootstrap, self.envs.len())?;
        let mut items = Inserts::new();
        let Self { options, columns, envs, dropped } = self;
        for (index, env) in envs.iter_mut().enumerate() {
            let value = bootstrap.map(|values| values[index]);
            *dropped += u64::from(env.finish(columns, options, value, &mut items));
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

/// Refuses a NaN now: it would show only steps later, as a priority that the table refuses.
fn check_values(path: &str, values: Option<&[f64]>, num_envs: usize) -> Result<()> {
    check_rows(path, values.map_or(num_envs, <[f64]>::len), num_envs, num_envs)?;
    match values.and_then(|values| values.iter().position(|value| !value.is_finite())) {
        Some(env) => Err(Error::InvalidArgument(format!("{path} of environment {env} is not finite"))),
        None => Ok(()),
    }
}
