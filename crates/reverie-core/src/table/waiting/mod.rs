//! Who waits at a table: THE lock, the queues, tickets, leases and bytes.
//!
//! In here: everything with a lock, a condition, a clock or an atomic. Not in here: which item is next, or whether a
//! request may go on (they are in `policy`). Under the lock are decisions only: no copy, no drop of items, no wait.

pub(super) mod copies;
pub(super) mod insert_queue;
pub(super) mod lease;
pub(super) mod queues;
mod saving;
pub(super) mod sent;
pub(super) mod shared;
pub(super) mod spares;
pub(super) mod tables;
pub(super) mod ticket;
