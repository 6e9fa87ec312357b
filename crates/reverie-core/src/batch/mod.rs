//! **Batch**: one contiguous array per column, gathered from the cells that items refer to.
//!
//! [`plan`] decides which arrays to allocate, or refuses, before memory is allocated. [`Plan::gather`] fills the
//! arrays. A [`Planner`] keeps the last plan, which usually fits the next batch, too.

mod arrays;
mod copies;
mod deferred_cells;
mod gather;
mod join;
mod output;
mod pieces;
mod plan;
mod planner;
mod readers;
mod run;
mod select;
mod sizes;
mod split;
mod unpacked;
mod windows;

pub use arrays::{ALIGN, Arrays, BatchLayout, Block, Head, INFO_ARRAYS};
pub use join::{join, place};
pub use output::{BatchOptions, ONE_BY_ONE, OutputArray, Ragged, Role};
pub use plan::{Plan, plan};
pub use planner::Planner;
pub use split::{ContiguousCells, Split};
pub use unpacked::{UnpackCallback, UnpackCost, reads_in_place};
