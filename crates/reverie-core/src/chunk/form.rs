//! The forms of a chunk whose bytes may be replaced: raw, packed, on the disk.

use super::Layout;
use super::account::Account;
use super::codec::PackedChunk;
use super::slab::Slab;
use super::tier::ChunkOnDisk;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A chunk that is raw until it is sealed, and then perhaps packed, moved to the disk, or both.
#[derive(Debug)]
pub(super) struct PackableChunk {
    pub(super) layout: Arc<Layout>,
    /// Guards the present form and the accounts that are charged. Nothing is copied, packed, read or freed under it.
    state: Mutex<FormState>,
}

#[derive(Debug)]
pub(super) struct FormState {
    pub(super) form: ChunkForm,
    pub(super) accounts: Accounts,
}

#[derive(Clone, Debug)]
pub(super) enum ChunkForm {
    Raw(Arc<Slab>),
    Packed(Arc<PackedChunk>),
    Stored(Arc<ChunkOnDisk>),
}

/// The accounts that are charged: a list, because nearly all chunks have one.
#[derive(Debug, Default)]
pub(super) struct Accounts(Option<ChargedAccount>);

#[derive(Debug)]
struct ChargedAccount {
    account: Arc<Account>,
    references: u32,
    next: Option<Box<ChargedAccount>>,
}

impl Accounts {
    fn iter(&self) -> impl Iterator<Item = &ChargedAccount> {
        std::iter::successors(self.0.as_ref(), |charged| charged.next.as_deref())
    }

    /// True if no account is charged.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The size of the chunk changed.
    pub(super) fn replace(&self, old: u64, new: u64) {
        self.iter().for_each(|charged| charged.account.replace(old, new));
    }

    /// Adds a reference; true if it is the account's first.
    pub(super) fn add(&mut self, account: &Arc<Account>) -> bool {
        let mut at = self.0.as_mut();
        while let Some(charged) = at {
            if Arc::ptr_eq(&charged.account, account) {
                charged.references += 1;
                return false;
            }
            at = charged.next.as_deref_mut();
        }
        let next = self.0.take().map(Box::new);
        self.0 = Some(ChargedAccount { account: Arc::clone(account), references: 1, next });
        true
    }

    /// Removes a reference; true if it was the account's last. Panics if it has none.
    pub(super) fn remove(&mut self, account: &Arc<Account>) -> bool {
        let is = |charged: &ChargedAccount| Arc::ptr_eq(&charged.account, account);
        let first = self.0.as_mut().expect("a table gives back a reference that it never took");
        if is(first) {
            first.references -= 1;
            let last = first.references == 0;
            if last {
                self.0 = first.next.take().map(|next| *next);
            }
            return last;
        }
        let mut link = &mut first.next;
        loop {
            let charged = link.as_deref_mut().expect("a table gives back a reference that it never took");
            if is(charged) {
                charged.references -= 1;
                let last = charged.references == 0;
                if last {
                    let next = charged.next.take();
                    *link = next;
                }
                return last;
            }
            link = &mut link.as_deref_mut().expect("it is there").next;
        }
    }
}

impl PackableChunk {
    pub(super) fn new(form: ChunkForm, layout: Arc<Layout>) -> Self {
        let state = Mutex::new(FormState { form, accounts: Accounts::default() });
        Self { layout, state }
    }

    /// Bytes of the raw form.
    pub(super) fn raw_bytes(&self) -> u64 {
        self.layout.size_bytes() as u64
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FormState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn form(&self) -> ChunkForm {
        self.state().form.clone()
    }
}

impl ChunkForm {
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
