//! **Append**: a writer puts cells of steps into open chunks; items refer to them at once.

mod forms;
mod in_flight;
mod inserts;
mod pace;
mod rows;
mod run;
mod sink;
mod steps;
mod structured;
mod transitions;

pub use in_flight::{Goal, InFlight, Load};
pub use inserts::{InsertParts, MultiTableInsert, SplitInsert};
pub use pace::Pace;
pub use rows::RowWriter;
pub use sink::{ColumnCells, Sink, next_episode, next_stream};
pub use steps::{ItemColumn, ItemForm, StepWriter, WriterOptions};
pub use structured::{
    Config, ConfigNode, CreatedItem, CreatedItems, PriorityRule, Quantity, Relation, StepCondition, StructuredWriter,
};
pub use transitions::{RightEnds, TransitionOptions, TransitionStep, TransitionWriter};
