//! **Chunk**: consecutive steps of one writer, column by column.
//!
//! A chunk is open while its [`ChunkWriter`] lives: its published cells only grow, and readers see them at once. Once
//! sealed, it is immutable. It lives while an item or its writer refers to it.

mod account;
mod chooser;
mod codec;
mod layout;
mod raw;
mod saved;
pub(crate) mod slab;
mod writer;

pub use account::{Account, Meter};
pub use chooser::{Chooser, Compression};
pub use codec::Decoder;
pub use layout::Layout;
pub use raw::{PackedBytes, Raw};
pub use saved::Restorer;
pub use slab::{fill, filled};
pub use writer::ChunkWriter;

use crate::error::Result;
use account::TableRefs;
use codec::Packed;
use slab::Slab;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of consecutive steps.
#[derive(Debug)]
#[repr(C)] // fields that every read needs come first
pub struct Chunk {
    storage: Storage,
    meter: Arc<Meter>,
    size: AtomicU64,
    /// The number of tables that refer to the chunk.
    tables: AtomicU32,
    /// References of tables if the size is fixed; a packable chunk stores them with its bytes.
    refs: TableRefs,
}

#[derive(Debug)]
enum Storage {
    /// Raw for ever: read without a lock.
    Plain(Slab),
    /// Raw until sealed, then packed.
    Packable(Box<Packable>),
}

#[derive(Debug)]
struct Packable {
    layout: Arc<Layout>,
    raw_bytes: u64,
    /// Guards the present form and the accounts that are charged. Nothing is copied, packed or freed under it.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    form: Form,
    accounts: Vec<Charged>,
}

#[derive(Clone, Debug)]
enum Form {
    Raw(Arc<Slab>),
    Packed(Arc<Packed>),
}

#[derive(Debug)]
struct Charged {
    account: Arc<Account>,
    references: u32,
}

impl Storage {
    fn packable(slab: Arc<Slab>) -> Self {
        let layout = slab.layout().clone();
        let raw_bytes = HEADER + size_of::<Packable>() as u64 + layout.size_bytes() as u64;
        Self::Packable(Box::new(Packable { layout, raw_bytes, state: Mutex::new(State::new(Form::Raw(slab))) }))
    }
}

impl State {
    fn new(form: Form) -> Self {
        Self { form, accounts: Vec::new() }
    }
}

impl Packable {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn form(&self) -> Form {
        self.state().form.clone()
    }
}

/// The size of the chunk itself and of its two reference counts.
const HEADER: u64 = (size_of::<Chunk>() + 2 * size_of::<usize>()) as u64;

impl Chunk {
    fn new(storage: Storage, meter: &Arc<Meter>) -> Arc<Self> {
        let size = match &storage {
            Storage::Plain(slab) => HEADER + slab.layout().size_bytes() as u64,
            Storage::Packable(packable) => match packable.form() {
                Form::Raw(_) => packable.raw_bytes,
                Form::Packed(packed) => HEADER + size_of::<Packable>() as u64 + packed.size_bytes() as u64,
            },
        };
        meter.add(size);
        let (size, tables, refs) = (AtomicU64::new(size), AtomicU32::new(0), TableRefs::default());
        Arc::new(Self { storage, meter: meter.clone(), size, tables, refs })
    }

    /// A sealed chunk from its packed form, as returned by [`Chunk::packed`].
    ///
    /// `Damaged` if the bytes cannot be the packed form of a chunk of that layout. Damage inside a column is reported
    /// when the column is read.
    pub fn from_packed(layout: Arc<Layout>, bytes: &[u8], meter: &Arc<Meter>) -> Result<Arc<Self>> {
        let packed = Arc::new(Packed::parse(bytes.into(), &layout)?);
        let raw_bytes = HEADER + size_of::<Packable>() as u64 + layout.size_bytes() as u64;
        let state = Mutex::new(State::new(Form::Packed(packed)));
        Ok(Self::new(Storage::Packable(Box::new(Packable { layout, raw_bytes, state })), meter))
    }

    /// The packed bytes; `None` if the chunk is open or was left raw.
    pub fn packed(&self) -> Option<Vec<u8>> {
        match &self.storage {
            Storage::Packable(packable) => match packable.form() {
                Form::Packed(packed) => Some(packed.bytes().to_vec()),
                Form::Raw(_) => None,
            },
            Storage::Plain(_) => None,
        }
    }

    /// Replaces the raw bytes by the packed form; readers keep the raw bytes until they are done.
    fn replace(&self, packed: Packed) {
        let Storage::Packable(packable) = &self.storage else { unreachable!("only packable chunks are packed") };
        let size = HEADER + size_of::<Packable>() as u64 + packed.size_bytes() as u64;
        let mut state = packable.state();
        let old = self.size.swap(size, Ordering::Relaxed);
        let raw = std::mem::replace(&mut state.form, Form::Packed(Arc::new(packed)));
        state.accounts.iter().for_each(|charged| charged.account.replace(old, size));
        if !state.accounts.is_empty() {
            self.meter.replace_in_tables(old, size);
        }
        drop(state);
        self.meter.replace(old, size);
        drop(raw);
        if size < old {
            self.meter.packed();
        }
    }

    /// True if the cell was written and holds a value; false for a column that does not exist.
    pub fn has(&self, column: usize, cell: usize) -> bool {
        if column >= self.layout().num_columns() {
            return false;
        }
        match &self.storage {
            Storage::Plain(slab) => slab.has(column, cell),
            Storage::Packable(packable) => match packable.form() {
                Form::Raw(slab) => slab.has(column, cell),
                Form::Packed(packed) => packed.has(column, cell),
            },
        }
    }

    /// True if all these cells were written and hold values; false for a column that does not exist.
    pub fn has_run(&self, column: usize, first: usize, n: usize) -> bool {
        if column >= self.layout().num_columns() {
            return false;
        }
        match &self.storage {
            Storage::Plain(slab) => slab.has_run(column, first, n),
            Storage::Packable(packable) => match packable.form() {
                Form::Raw(slab) => slab.has_run(column, first, n),
                Form::Packed(packed) => packed.has_run(column, first, n),
            },
        }
    }

    /// The number of published cells of the column: only grows.
    pub fn len(&self, column: usize) -> usize {
        match &self.storage {
            Storage::Plain(slab) => slab.len(column),
            Storage::Packable(packable) => match packable.form() {
                Form::Raw(slab) => slab.len(column),
                Form::Packed(packed) => packed.len(column),
            },
        }
    }

    /// True if no column has a cell.
    pub fn is_empty(&self) -> bool {
        (0..self.layout().num_columns()).all(|column| self.len(column) == 0)
    }

    /// The layout of the columns while the chunk is raw; widths and element sizes also apply to the packed form.
    #[inline]
    pub fn layout(&self) -> &Arc<Layout> {
        match &self.storage {
            Storage::Plain(slab) => slab.layout(),
            Storage::Packable(packable) => &packable.layout,
        }
    }

    /// The bytes that the chunk counts for, its header included.
    ///
    /// That is the whole allocation from the start, or the packed form once sealed so.
    pub fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The bytes that the chunk counts for while it is raw.
    pub fn raw_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Plain(_) => self.size_bytes(),
            Storage::Packable(packable) => packable.raw_bytes,
        }
    }

    /// Adds a reference of a table; true if it is the table's first, which charges the chunk to the table's account.
    ///
    /// Called under the table's lock; other tables may call at the same time. Packing the chunk adjusts the account.
    pub fn table_ref(&self, account: &Arc<Account>) -> bool {
        match &self.storage {
            Storage::Plain(_) => {
                let first = self.refs.add(account);
                if first {
                    account.add(self.size_bytes());
                    self.enter_table();
                }
                first
            }
            Storage::Packable(packable) => {
                let mut state = packable.state();
                match state.accounts.iter_mut().find(|charged| Arc::ptr_eq(&charged.account, account)) {
                    Some(charged) => {
                        charged.references += 1;
                        false
                    }
                    None => {
                        account.add(self.size_bytes());
                        self.enter_table();
                        state.accounts.push(Charged { account: account.clone(), references: 1 });
                        true
                    }
                }
            }
        }
    }

    /// Removes a reference of a table; true if it was the last, which takes the chunk off the table's account.
    ///
    /// Called as [`Chunk::table_ref`]. Panics if the table holds no reference.
    pub fn table_unref(&self, account: &Arc<Account>) -> bool {
        match &self.storage {
            Storage::Plain(_) => {
                let last = self.refs.remove(account);
                if last {
                    account.remove(self.size_bytes());
                    self.leave_table();
                }
                last
            }
            Storage::Packable(packable) => {
                let mut state = packable.state();
                let at = state.accounts.iter().position(|charged| Arc::ptr_eq(&charged.account, account));
                let at = at.expect("a table gives back a reference that it never took");
                state.accounts[at].references -= 1;
                let last = state.accounts[at].references == 0;
                if last {
                    state.accounts.swap_remove(at);
                    account.remove(self.size_bytes());
                    self.leave_table();
                }
                last
            }
        }
    }

    fn enter_table(&self) {
        if self.tables.fetch_add(1, Ordering::Relaxed) == 0 {
            self.meter.enter_tables(self.size_bytes());
        }
    }

    fn leave_table(&self) {
        if self.tables.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.meter.leave_tables(self.size_bytes());
        }
    }

    /// True while a table refers to the chunk.
    pub fn in_tables(&self) -> bool {
        self.tables.load(Ordering::Relaxed) > 0
    }

    /// A view of all columns: borrowed if the chunk is raw, unpacked otherwise.
    ///
    /// No lock is held on return, nor while unpacking. `Damaged` if the packed bytes are corrupt.
    pub fn read(&self) -> Result<Cells<'_>> {
        match self.raw() {
            Some(source) => Ok(Cells { source, layout: self.layout() }),
            None => {
                let mut decoder = Box::new(Decoder::default());
                self.decode(&mut decoder, &|_| true)?;
                Ok(Cells { source: Source::Owned(decoder), layout: self.layout() })
            }
        }
    }

    /// As [`Chunk::read`], unpacking only the columns that `wanted` selects, into reused memory.
    pub fn read_with<'a>(&'a self, decoder: &'a mut Decoder, wanted: &dyn Fn(usize) -> bool) -> Result<Cells<'a>> {
        match self.raw() {
            Some(source) => Ok(Cells { source, layout: self.layout() }),
            None => {
                self.decode(decoder, wanted)?;
                Ok(Cells { source: Source::Borrowed(decoder), layout: self.layout() })
            }
        }
    }

    fn raw(&self) -> Option<Source<'_>> {
        match &self.storage {
            Storage::Plain(slab) => Some(Source::Slab(slab)),
            Storage::Packable(packable) => match packable.form() {
                Form::Raw(slab) => Some(Source::Shared(slab)),
                Form::Packed(_) => None,
            },
        }
    }

    fn decode(&self, decoder: &mut Decoder, wanted: &dyn Fn(usize) -> bool) -> Result<()> {
        let Storage::Packable(packable) = &self.storage else { unreachable!("plain chunks are raw") };
        let Form::Packed(packed) = packable.form() else { unreachable!("a packed chunk stays packed") };
        decoder.decode(&packed, &packable.layout, wanted)
    }

    /// The memory of a chunk that is never packed.
    #[inline]
    pub(crate) fn plain(&self) -> Option<&Slab> {
        match &self.storage {
            Storage::Plain(slab) => Some(slab),
            Storage::Packable(_) => None,
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        crate::sync::Deciding::check_not();
        self.meter.remove(*self.size.get_mut());
    }
}

/// The cells of a chunk, readable.
#[derive(Debug)]
pub struct Cells<'a> {
    source: Source<'a>,
    layout: &'a Layout,
}

#[derive(Debug)]
enum Source<'a> {
    Slab(&'a Slab),
    Shared(Arc<Slab>),
    Owned(Box<Decoder>),
    Borrowed(&'a Decoder),
}

impl Cells<'_> {
    /// The bytes of a cell, zeros if it holds no value; `None` if it is not published.
    ///
    /// Cells published after the view was made may be missing from it, except in an open chunk.
    #[inline]
    pub fn cell(&self, column: usize, index: usize) -> Option<&[u8]> {
        match &self.source {
            Source::Slab(slab) => slab.cell(column, index),
            Source::Shared(slab) => slab.cell(column, index),
            Source::Owned(decoder) => decoder.run(column, self.layout.width(column), index, 1),
            Source::Borrowed(decoder) => decoder.run(column, self.layout.width(column), index, 1),
        }
    }

    /// `n` cells in one slice, if they are contiguous and all published.
    #[inline]
    pub fn run(&self, column: usize, first: usize, n: usize) -> Option<&[u8]> {
        match &self.source {
            Source::Slab(slab) => slab.run(column, first, n),
            Source::Shared(slab) => slab.run(column, first, n),
            Source::Owned(decoder) => decoder.run(column, self.layout.width(column), first, n),
            Source::Borrowed(decoder) => decoder.run(column, self.layout.width(column), first, n),
        }
    }
}
