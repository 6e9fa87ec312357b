//! Chunks on the disk.

mod chunks;
mod support;
