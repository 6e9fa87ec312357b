//! Decisions: which item is next, which leaves, and whether a request may go on.
//!
//! In here: the table, selectors, the rate limiter, slots, queries, with `&mut self`. Not in here: a lock, a clock, a
//! queue of requests, waking; the time is an argument.

pub(super) mod emptied;
pub(super) mod extensions;
pub(super) mod forgotten;
mod largest;
mod leases;
pub mod limiter;
mod lineage;
pub(super) mod options;
mod pages;
pub(super) mod query;
pub mod selector;
pub(super) mod slots;
mod spread;
pub mod sum_tree;
pub(super) mod table;
