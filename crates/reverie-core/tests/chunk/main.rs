//! Chunks: what is written is read, by each reader and in each form, and every byte is accounted for.

mod accounts;
mod blocks;
mod cells;
mod copies;
mod packing;
#[path = "../support/mod.rs"]
mod shared;
mod support;
mod trade;
