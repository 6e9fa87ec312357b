//! Chunks: what is written is read, by each reader and in each form, and every byte is accounted for.

mod accounts;
mod blocks;
mod cells;
mod packing;
mod support;
mod trade;
