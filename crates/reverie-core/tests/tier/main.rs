//! Chunks on the disk.

mod chunks;
mod support;
mod tables;
#[path = "../support/mod.rs"]
mod shared;
#[path = "../support/tiers.rs"]
mod tiers;
