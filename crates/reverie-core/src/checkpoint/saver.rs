//! A server's checkpoints: its tables and the folder where they are saved.

use super::disk::Disk;
use super::load::load;
use super::manifest::Summary;
use super::restore::Restored;
use super::store::{Saved, Store};
use crate::error::Result;
use crate::table::Tables;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The tables of one server and the folder where they are saved.
pub struct Saver {
    tables: Arc<Tables>,
    disk: Arc<dyn Disk>,
    store: Store,
    /// Time since the Unix epoch.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Saver {
    /// A saver of these tables to this store. `now` returns the time since the Unix epoch.
    pub fn new(
        tables: Arc<Tables>,
        disk: Arc<dyn Disk>,
        store: Store,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        Self { tables, disk, store, now: Box::new(now) }
    }

    /// See [`Store::save`].
    pub fn save(&self) -> Result<Saved> {
        self.store.save(&self.tables, (self.now)())
    }

    /// See [`Store::save_last`].
    pub fn save_last(&self) -> Result<Saved> {
        self.store.save_last(&self.tables, (self.now)())
    }

    /// The store of the checkpoints.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Restores the checkpoint at `path`; see [`Checkpoint::restore`](super::Checkpoint::restore).
    ///
    /// `forward` must move the tables' clock, which is not used yet, forward by the given time, so that items keep
    /// their age.
    pub fn restore(&self, path: &Path, forward: impl FnOnce(Duration)) -> Result<(Summary, Restored)> {
        let checkpoint = load(&*self.disk, path, self.tables.bytes().0)?;
        let now = (self.now)();
        forward(checkpoint.clock_at(now));
        let summary = checkpoint.summary.clone();
        self.store.adopt(&checkpoint);
        Ok((summary, checkpoint.restore(&self.tables, now)?))
    }
}
