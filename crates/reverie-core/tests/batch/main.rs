//! Batches: what the cells hold is what the arrays hold, for every form of item and every way to store its chunks.

mod arrays;
#[path = "../support/cases.rs"]
mod cases;
mod layout;
mod left_raw;
mod model;
mod sizes;
mod support;
#[path = "../support/tiers.rs"]
mod tiers;
