//! The options of a transition writer, and the steps that are appended.

use crate::append::sink::ColumnCells;
use crate::chunk::Compression;
use crate::error::{Error, Result};
use crate::table::Priority;

/// The source of the observation after a step that ended an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightEnds {
    /// The next append, which is then no transition (Gymnasium's `NEXT_STEP` autoreset).
    NextAppend,
    /// The same append, as `final_obs` (`SAME_STEP` autoreset, or environments that the caller resets).
    Given,
}

/// The options of a [`TransitionWriter`](super::TransitionWriter).
#[derive(Clone, Debug)]
pub struct TransitionOptions {
    /// The number of environments that step together.
    pub num_envs: usize,
    /// The most steps from an item's observation to its next observation.
    pub n_step: usize,
    /// The discount per step, within [0, 1].
    pub discount: f64,
    /// Observations are stacks of this many frames; the environment gives the newest one.
    pub frame_stack: Option<usize>,
    /// The position of the stack's axis among a frame's axes.
    pub stack_axis: u8,
    /// The source of last observations.
    pub right_ends: RightEnds,
    /// Added to |TD error| in computed priorities.
    pub priority_eps: f64,
    /// The upper bound of an absolute TD error in a priority; infinite for no bound.
    pub priority_clip: f64,
    /// The unit of these two: both are multiplied by it.
    pub priority_unit: f64,
    /// The priority of items whose TD error is not known.
    pub priority: Priority,
    /// The compression of the chunks.
    pub compression: Compression,
}

impl TransitionOptions {
    /// Refuses options that can never work.
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
            let frames = self.frame_stack.unwrap_or(0);
            return refuse(format!("frame_stack must be between 1 and 1000, got {frames}"));
        }
        if !(self.priority_eps >= 0.0 && self.priority_eps.is_finite()) {
            return refuse(format!("priority_eps must be finite and at least 0, got {}", self.priority_eps));
        }
        if self.priority_clip.is_nan() || self.priority_clip <= 0.0 {
            return refuse(format!("priority_clip must be above 0, or None, got {}", self.priority_clip));
        }
        check_unit(self.priority_unit)?;
        Ok(())
    }
}

/// Refuses a unit in which no priority can be.
pub(super) fn check_unit(unit: f64) -> Result<()> {
    if unit > 0.0 && unit.is_finite() {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("priority_unit must be finite and above 0, got {unit}")))
}

/// One step of all environments; every array has one row per environment.
#[derive(Clone, Copy, Debug)]
pub struct TransitionStep<'a> {
    /// The observations in which the actions were taken, then the actions, then the extras; column by column.
    pub columns: &'a [ColumnCells<'a>],
    /// The rewards of the actions.
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
    pub final_obs: Option<&'a [ColumnCells<'a>]>,
    /// The value of `final_obs`.
    pub final_value: Option<&'a [f64]>,
}
