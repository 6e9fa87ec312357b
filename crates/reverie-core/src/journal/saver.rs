//! The files of a server on the disk: its checkpoints, and its journal if it has one.

use super::group::Journal;
use super::options::JournalOptions;
use super::recover::{JournalEnd, RecoveredJournal, changes_after, recover, recover_from};
use super::replay::HeldLease;
use crate::checkpoint::folder_claim::lock_for_reading;
use crate::checkpoint::load::load_manifest;
use crate::checkpoint::manifest::Manifest;
use crate::checkpoint::{Disk, RestoreOutcome, SaveOutcome, Store, Summary, describe, latest};
use crate::disk::folder_of;
use crate::error::{CountedNoun, Error, Result};
use crate::table::{Lessee, Tables};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The tables of one server and the folder where they are kept.
pub struct Saver {
    tables: Arc<Tables>,
    disk: Arc<dyn Disk>,
    store: Arc<Store>,
    /// Time since the Unix epoch.
    now: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The end of the journal that was recovered.
    end: OnceLock<JournalEnd>,
    journal: OnceLock<Arc<Journal>>,
    /// Guards the release of the folder.
    uses: Mutex<FolderUses>,
}

/// The uses of a server's folder, which is released after the last of them.
#[derive(Default)]
struct FolderUses {
    num_keepers: u64,
    /// The last of them releases it.
    releases: bool,
}

/// See [`Saver::keep_folder`].
pub struct FolderKeeper(Arc<Saver>);

impl Drop for FolderKeeper {
    fn drop(&mut self) {
        let mut uses = self.0.uses();
        uses.num_keepers -= 1;
        if uses.num_keepers == 0 && std::mem::take(&mut uses.releases) {
            self.0.store.release();
        }
    }
}

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovery {
    /// The newest checkpoint, with the time of the last commit.
    pub summary: Summary,
    /// The content of the tables.
    pub restored: RestoreOutcome,
    /// The number of commits after the checkpoint.
    pub commits: u64,
    /// See [`RecoveredJournal::torn`].
    pub torn: Option<(PathBuf, u64)>,
}

impl Saver {
    /// A saver of these tables to this store. `now` returns the time since the Unix epoch.
    pub fn new(
        tables: Arc<Tables>,
        disk: Arc<dyn Disk>,
        store: impl Into<Arc<Store>>,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let (store, now) = (store.into(), Arc::new(now));
        store.share(&tables);
        Self { tables, disk, store, now, end: OnceLock::new(), journal: OnceLock::new(), uses: Mutex::default() }
    }

    /// Takes a checkpoint, see [`Store::save`].
    pub fn save(&self) -> Result<SaveOutcome> {
        match self.journal.get() {
            Some(journal) => journal.save(),
            None => self.store.save(&self.tables, (self.now)()),
        }
    }

    /// Takes the last checkpoint of closed tables, see [`Store::save_last`].
    pub fn save_last(&self) -> Result<SaveOutcome> {
        match self.journal.get() {
            Some(journal) => journal.save_last(),
            None => self.store.save_last(&self.tables, (self.now)()),
        }
    }

    /// True once a journal has begun.
    pub fn has_journal(&self) -> bool {
        self.journal.get().is_some()
    }

    /// The store of the checkpoints.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Restores the checkpoint at `path`; see [`Checkpoint::restore`](crate::checkpoint::Checkpoint::restore).
    ///
    /// `forward` must move the tables' clock, which is not used yet, forward by the given time, so that items keep
    /// their age. `InvalidArgument` for a checkpoint of the store's folder that a journal there continues: the next
    /// checkpoint would remove what is in the journal alone.
    pub fn restore(&self, path: &Path, forward: impl FnOnce(Duration)) -> Result<(Summary, RestoreOutcome)> {
        let manifest = Manifest::read(&*self.disk, path)?;
        let is_ours = folder_of(path) == self.store.root();
        if is_ours && manifest.summary.journal.is_some() {
            self.refuse_continued(path)?;
        }
        let checkpoint = load_manifest(&*self.disk, manifest, self.tables.bytes().0, is_ours)?;
        let now = (self.now)();
        forward(checkpoint.clock_at(now));
        let summary = checkpoint.summary.clone();
        self.store.adopt(&checkpoint);
        let restored = checkpoint.restore(&self.tables, now)?;
        self.tables.note_saved(summary.clock);
        Ok((summary, restored))
    }

    fn refuse_continued(&self, path: &Path) -> Result<()> {
        let root = self.store.root();
        let commits = changes_after(&*self.disk, root, path)?;
        if commits == 0 {
            return Ok(());
        }
        let (root, path, commits) = (root.display(), path.display(), CountedNoun(commits, "commit"));
        Err(Error::InvalidArgument(format!(
            "{path} is continued by a journal: {commits} after it would be lost; start the server with \
             journal=reverie.Journal('{root}') (reverie serve --journal {root}), or, to go on without them, give the \
             checkpoints another folder and fallback_checkpoint_path='{path}'"
        )))
    }

    /// Restores the newest checkpoint of the store and the journal after it; `None` if there is no checkpoint.
    ///
    /// [Holds](Store::hold) the folder before it is read, and until [`Store::release`]: what another server
    /// acknowledged after that would be lost. On an error the folder is released.
    ///
    /// `forward` as for [`Saver::restore`], `always` as for [`Checkpoint::restore_limits`]. With `holds_leases`, draws
    /// that clients had not acknowledged wait for [`Tables::claim_leases`]; otherwise they are undone.
    ///
    /// [`Checkpoint::restore_limits`]: crate::checkpoint::Checkpoint::restore_limits
    pub fn recover(
        &self,
        always: bool,
        holds_leases: bool,
        forward: impl FnOnce(Duration),
    ) -> Result<Option<Recovery>> {
        self.store.hold()?;
        self.recover_held(always, holds_leases, forward).inspect_err(|_| self.store.release())
    }

    fn recover_held(
        &self,
        always: bool,
        holds_leases: bool,
        forward: impl FnOnce(Duration),
    ) -> Result<Option<Recovery>> {
        let found = recover(&*self.disk, self.store.root(), self.tables.bytes().0)?;
        let Some(RecoveredJournal { checkpoint, commits, leases, torn, end }) = found else { return Ok(None) };
        let now = (self.now)();
        forward(checkpoint.clock_at(now));
        let summary = checkpoint.summary.clone();
        self.store.adopt(&checkpoint);
        checkpoint.restore_limits(&self.tables, always)?;
        let restored = checkpoint.restore(&self.tables, now)?;
        // A reader in the process of the tables ended with it. A table that the new server does not have was left out.
        let returns = |held: &HeldLease| held.lessee != Lessee::HERE && self.tables.get(&held.table).is_ok();
        let leases = leases.iter().filter(|held| holds_leases && returns(held));
        leases.into_iter().try_for_each(|held| self.tables.hold_lease(&held.table, held.lessee, &held.slots))?;
        // It is recovered once: the tables must have been unused.
        let _ = self.end.set(end);
        Ok(Some(Recovery { summary, restored, commits, torn }))
    }

    /// Restores the newest checkpoint of another folder, at `path`, and the journal after it: what a server would have
    /// that starts there. Reads the folder and changes nothing in it; draws that clients had not acknowledged are
    /// undone.
    ///
    /// `forward` and `always` as for [`Saver::recover`]. `Storage` if a server writes a journal there, or if the folder
    /// has a newer checkpoint.
    pub fn recover_copy(&self, path: &Path, always: bool, forward: impl FnOnce(Duration)) -> Result<Recovery> {
        let root = folder_of(path);
        // A server may have taken another one since the caller looked, and removed what this one needs: that is no
        // damage.
        let check_newest = || match latest(&*self.disk, &root)?.as_deref() == Some(path) {
            true => Ok(()),
            false => {
                let reason = "it has a newer checkpoint now; try again".to_owned();
                Err(Error::Storage { path: root.display().to_string(), action: "read".into(), reason })
            }
        };
        let unless_older = |error| check_newest().err().unwrap_or(error);
        let is_continued = describe(&*self.disk, path).map_err(unless_older)?.journal.is_some();
        let instead = "name the server's address instead, or wait until it has ended";
        let _alone = if is_continued { lock_for_reading(&*self.disk, &root, instead)? } else { None };
        let found = recover_from(&*self.disk, path, self.tables.bytes().0, false).map_err(unless_older)?;
        // Nor may a server that this process does not see have taken one meanwhile.
        check_newest()?;
        let RecoveredJournal { checkpoint, commits, torn, .. } = found;
        let now = (self.now)();
        forward(checkpoint.clock_at(now));
        let summary = checkpoint.summary.clone();
        checkpoint.restore_limits(&self.tables, always)?;
        let restored = checkpoint.restore(&self.tables, now)?;
        Ok(Recovery { summary, restored, commits, torn })
    }

    /// Begins a journal, see [`Journal::begin`]. The content of the folder must have been [recovered](Saver::recover)
    /// before.
    ///
    /// On an error the folder is released.
    pub fn begin_journal(&self, options: JournalOptions) -> Result<()> {
        if self.journal.get().is_some() {
            return Err(Error::InvalidArgument("a server has one journal".to_owned()));
        }
        self.begin_held(options).inspect_err(|_| self.store.release())
    }

    fn begin_held(&self, options: JournalOptions) -> Result<()> {
        if let (None, Some(path)) = (self.end.get(), self.store.found()) {
            let reason = format!("{} must be recovered before a journal begins in its folder", path.display());
            return Err(Error::InvalidArgument(reason));
        }
        let (from, now) = (self.end.get().copied().unwrap_or_default(), Arc::clone(&self.now));
        let (tables, store) = (Arc::clone(&self.tables), Arc::clone(&self.store));
        let journal = Journal::begin(tables, store, from, options, move || now())?;
        let second = || Error::InvalidArgument("a server has one journal".to_owned());
        self.journal.set(journal).map_err(|_| second())
    }

    /// See [`Journal::checkpoint_by`]. Does nothing without a journal.
    pub fn checkpoint_by(&self, bytes: u64, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(journal) = self.journal.get() {
            journal.checkpoint_by(bytes, wake);
        }
    }

    /// Writes what is left of the journal, waits for the disk, and ends it. Does nothing without a journal.
    pub fn end_journal(&self) -> Result<()> {
        self.journal.get().map_or(Ok(()), |journal| journal.stop())
    }

    /// Keeps the folder until this is dropped: [`Saver::release`] takes effect then. For a thread that ends the journal
    /// while its caller may leave.
    pub fn keep_folder(self: &Arc<Self>) -> FolderKeeper {
        self.uses().num_keepers += 1;
        FolderKeeper(Arc::clone(self))
    }

    /// Releases the folder to other servers, now or when nothing [keeps](Saver::keep_folder) it.
    pub fn release(&self) {
        let mut uses = self.uses();
        match uses.num_keepers {
            0 => self.store.release(),
            _ => uses.releases = true,
        }
    }

    fn uses(&self) -> MutexGuard<'_, FolderUses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
