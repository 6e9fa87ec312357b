//! **Sample**: the draws: which items, with what probability, and what the table knew of them.

mod draws;
mod source;

pub use draws::Draws;
pub use source::{SampleRequest, Source};
