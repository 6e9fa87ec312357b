//! The requests that wait at a table: THE lock, queues, tickets, leases, budgets of bytes.
//!
//! Here: everything with a lock, a condition variable, a clock or an atomic. Not here: which item is drawn, or whether a
//! request may go on (see `policy`). Under the lock are decisions only: no copy, no drop of items, no wait.

mod after;
mod budget;
mod copies;
mod insert_queue;
mod queues;
mod reason;
mod sample_queue;
mod senders;
pub(super) mod shared;
pub(super) mod spares;
pub(super) mod tables;
pub(super) mod ticket;
