//! The decisions of a table: which item is drawn, which is evicted, whether a request must wait.
//!
//! Contains the table, selectors, the rate limiter, slots and queries, all with `&mut self`. Contains no lock, clock,
//! request queue or waiting thread; the time is an argument. Files here use `types`, never `waiting`.

pub(super) mod discarded_items;
pub(super) mod extensions;
pub(super) mod forgotten_senders;
mod largest_priority;
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
mod multiplicative_hasher;
pub mod sum_tree;
pub(super) mod table;
