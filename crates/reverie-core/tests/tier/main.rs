//! Chunks on the disk.

mod bound;
mod chunks;
mod full;
mod segments;
mod support;
mod tables;
#[path = "../support/mod.rs"]
mod shared;
#[path = "../support/tiers.rs"]
mod tiers;
mod unmovable;
