//! Batches in memory of their reader: gathered ahead, or joined from the batches of several servers.

use super::Draws;
use crate::batch::{Head, OutputArray, Plan};
use crate::spec::Structure;
use std::any::Any;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Memory for one array.
pub trait ArrayMemory: Any + Send + Sync {
    /// The first `bytes` bytes.
    fn bytes(&mut self, bytes: usize) -> &mut [MaybeUninit<u8>];
}

/// Returns memory for at least this many bytes, with any content; `None` if there is none.
pub type ArrayAllocator = fn(usize) -> Option<Box<dyn ArrayMemory>>;

/// A batch whose arrays are filled: the draws' figures, and one array for each output.
pub struct GatheredBatch {
    /// The draws, without their items.
    pub draws: Draws,
    /// Describes the arrays.
    pub description: Description,
    /// The arrays, in the order of the outputs.
    pub arrays: Vec<Box<dyn ArrayMemory>>,
}

/// The description of arrays: the plan that gathered them, or the head of the batches that were joined.
pub enum Description {
    /// Gathered by this plan.
    Plan(Arc<Plan>),
    /// Joined.
    Head(Head),
}

impl Description {
    /// The arrays: first the columns in the structure's order.
    pub fn outputs(&self) -> &[OutputArray] {
        match self {
            Self::Plan(plan) => &plan.outputs,
            Self::Head(head) => &head.outputs,
        }
    }

    /// The structure that the columns fill, and their number.
    pub fn structure(&self) -> (&Structure, usize) {
        match self {
            Self::Plan(plan) => (&plan.structure, plan.num_columns),
            Self::Head(head) => (&head.structure, head.num_columns),
        }
    }

    /// True if the items are single steps; a plan does not know its items, and returns false.
    pub fn is_one_step(&self) -> bool {
        match self {
            Self::Plan(_) => false,
            Self::Head(head) => head.timestep,
        }
    }
}
