//! A server's checkpoints: its tables and where they are saved.

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

/// The tables of one server and the folder that they are saved in. Who serves them needs nothing else.
pub struct Saver {
    tables: Arc<Tables>,
    disk: Arc<dyn Disk>,
    store: Store,
    /// Time since the Unix epoch.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Saver {
    /// Saves these tables there. `now` gives the time since the Unix epoch.
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

    /// Where checkpoints go.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Restores the checkpoint at `path`; see [`Checkpoint::restore`](super::Checkpoint::restore). `forward` is to set
    /// the tables' clock ahead, which was not used yet, so that items are as old as they are.
    pub fn restore(&self, path: &Path, forward: impl FnOnce(Duration)) -> Result<(Summary, Restored)> {
        let checkpoint = load(&*self.disk, path, self.tables.bytes().0)?;
        let now = (self.now)();
        forward(checkpoint.clock_at(now));
        let summary = checkpoint.summary.clone();
        self.store.adopt(&checkpoint);
        Ok((summary, checkpoint.restore(&self.tables, now)?))
    }
}
