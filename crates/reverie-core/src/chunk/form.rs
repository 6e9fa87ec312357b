//! The forms of a chunk whose bytes may be replaced: raw, packed, on the disk.

use super::Layout;
use super::account::Account;
use super::codec::Packed;
use super::slab::Slab;
use super::tier::Stored;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A chunk that is raw until it is sealed, and then perhaps packed, moved to the disk, or both.
#[derive(Debug)]
pub(super) struct Packable {
    pub(super) layout: Arc<Layout>,
    /// Bytes of the layout.
    pub(super) raw_bytes: u64,
    /// It may be packed; otherwise it only moves.
    pub(super) packs: bool,
    /// It was read since the disk tier looked at it.
    used: AtomicBool,
    /// Guards the present form and the accounts that are charged. Nothing is copied, packed, read or freed under it.
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) form: Form,
    pub(super) accounts: Vec<Charged>,
}

#[derive(Clone, Debug)]
pub(super) enum Form {
    Raw(Arc<Slab>),
    Packed(Arc<Packed>),
    Stored(Arc<Stored>),
}

#[derive(Debug)]
pub(super) struct Charged {
    pub(super) account: Arc<Account>,
    pub(super) references: u32,
}

impl Packable {
    pub(super) fn new(form: Form, layout: Arc<Layout>, packs: bool) -> Box<Self> {
        let raw_bytes = layout.size_bytes() as u64;
        let state = Mutex::new(State { form, accounts: Vec::new() });
        Box::new(Self { layout, raw_bytes, packs, used: false.into(), state })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn form(&self) -> Form {
        self.state().form.clone()
    }

    /// The present form, for a reader.
    pub(super) fn read(&self) -> Form {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        self.form()
    }

    /// True if it was read since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Relaxed)
    }
}

impl Form {
    pub(super) fn has(&self, column: usize, cell: usize) -> bool {
        match self {
            Self::Raw(slab) => slab.has(column, cell),
            Self::Packed(packed) => packed.has(column, cell),
            Self::Stored(stored) => stored.has(column, cell),
        }
    }

    pub(super) fn has_run(&self, column: usize, first: usize, n: usize) -> bool {
        match self {
            Self::Raw(slab) => slab.has_run(column, first, n),
            Self::Packed(packed) => packed.has_run(column, first, n),
            Self::Stored(stored) => stored.has_run(column, first, n),
        }
    }

    pub(super) fn len(&self, column: usize) -> usize {
        match self {
            Self::Raw(slab) => slab.len(column),
            Self::Packed(packed) => packed.len(column),
            Self::Stored(stored) => stored.len(column),
        }
    }

    /// The bytes of this form, and those of them that are on the disk. `raw`: those of the raw one.
    pub(super) fn sizes(&self, raw: u64) -> (u64, u64) {
        let on_disk = self.disk_bytes();
        match self {
            Self::Raw(_) => (raw, on_disk),
            Self::Packed(packed) => (packed.size_bytes() as u64, on_disk),
            Self::Stored(stored) => (stored.memory_bytes() + on_disk, on_disk),
        }
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        match self {
            Self::Stored(stored) => stored.disk_bytes(),
            _ => 0,
        }
    }
}
