//! Chunks: what is written is read, whoever reads and however it is stored, and every byte is accounted for.

mod accounts;
mod blocks;
mod cells;
mod packing;
mod support;
mod trade;
