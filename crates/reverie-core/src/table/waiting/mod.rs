//! The requests that wait at a table: the one lock, queues, tickets, leases, budgets of bytes.
//!
//! Contains everything with a lock, a condition variable, a clock or an atomic. Which item is drawn, and whether a
//! request must wait, is decided in `policy`. Only decisions run under the lock: no copy, no drop of items, no wait.

mod deferred_work;
mod budget;
mod consumed;
mod copies;
pub(super) mod durable;
mod held;
mod insert_queue;
pub(super) mod promise;
mod queues;
mod reason;
mod sample_queue;
mod senders;
pub(super) mod shared;
pub(super) mod spares;
pub(super) mod tables;
pub(super) mod ticket;
pub(super) mod driven;
