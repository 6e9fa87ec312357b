//! **Batch**: one contiguous array per column, gathered from the cells that items refer to.
//!
//! [`plan`] decides, and refuses, before memory is set aside: it says which arrays to allocate. [`Plan::gather`]
//! fills them. A [`Planner`] keeps the plan of the batch before, which mostly serves the next one too.

mod copies;
mod gather;
mod join;
mod output;
mod plan;
mod planner;
mod select;
mod split;
mod unpacked;
mod windows;

pub use join::{join, place};
pub use output::{Options, Output, Ragged, Role};
pub use plan::{Plan, plan};
pub use planner::Planner;
pub use split::{Lying, Split};
pub use unpacked::Pause;
