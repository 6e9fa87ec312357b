//! What a table needs of a journal: when what was done outlives the process.

use super::ticket::Ticket;
use crate::error::Result;
use crate::table::types::journal::JournalInfo;

/// A journal of tables.
pub trait Durable: Send + Sync {
    /// A ticket that is done once everything that was done before this call is as durable as the journal promises.
    ///
    /// Fails with `Storage` if the journal has stopped.
    fn barrier(&self) -> Ticket<()>;

    /// A ticket that is done once everything that was done before this call is on the disk, priorities and counts too.
    ///
    /// With `at_once` the journal does not wait for the end of its interval. Fails as [`Durable::barrier`].
    fn durable(&self, at_once: bool) -> Ticket<()>;

    /// True if what it acknowledges may not be on the disk yet, and it works.
    fn is_later(&self) -> bool;

    /// `Storage` if the journal has stopped: nothing more is made durable.
    fn check(&self) -> Result<()>;

    /// The figures.
    fn info(&self) -> JournalInfo;
}
