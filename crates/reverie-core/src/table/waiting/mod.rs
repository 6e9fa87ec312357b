//! Who waits at a table: THE lock, the queues, tickets, leases and bytes.
//!
//! In here: everything with a lock, a condition, a clock or an atomic. Not in here: which item is next, or whether a
//! request may go on (they are in `policy`). Under the lock are decisions only: no copy, no drop of items, no wait.

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
