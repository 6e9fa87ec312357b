//! The decisions of a table: which item is drawn, which is evicted, whether a request must wait.
//!
//! Contains the table, selectors, the rate limiter, slots and queries, all with `&mut self`. Contains no lock, clock,
//! request queue or waiting thread; the time is an argument. Files here use `types`, never `waiting`.

pub(super) mod emptied;
pub(super) mod extensions;
pub(super) mod forgotten;
mod largest;
mod largest_item;
mod layout;
mod leases;
pub mod limiter;
mod lineage;
mod open_cells;
pub(super) mod options;
mod pages;
pub(super) mod query;
pub mod selector;
pub(super) mod slots;
mod spread;
pub mod sum_tree;
pub(super) mod table;
