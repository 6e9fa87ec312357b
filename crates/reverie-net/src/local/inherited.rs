//! The sockets that a forked child has inherited: it closes them, so that a connection ends with the process that made it.

use crate::mapping::close;
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// The clients' sockets of this process, for as long as they are certainly open.
static OPEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
/// A thread that does not exist here holds the list: this process was forked meanwhile, and lists no sockets.
static LOST: AtomicBool = AtomicBool::new(false);

/// Keeps a socket in the list; dropped before the socket is closed.
#[derive(Debug)]
pub(super) struct Listed(RawFd);

impl Listed {
    pub(super) fn new(socket: RawFd) -> Self {
        change(|open| open.insert(socket));
        Self(socket)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        change(|open| open.remove(&self.0));
    }
}

fn change(how: impl FnOnce(&mut BTreeSet<RawFd>) -> bool) {
    if !LOST.load(Ordering::Relaxed) {
        how(&mut OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Closes the clients' sockets of the parent process. To be called in a forked child before anything connects there.
///
/// The parent's objects must never be dropped in the child: they would close descriptors that are others by then. If a
/// thread of the parent changed the list during the fork, none is closed.
pub fn close_inherited() {
    let inherited = match OPEN.try_lock() {
        Ok(mut open) => std::mem::take(&mut *open),
        Err(TryLockError::Poisoned(open)) => std::mem::take(&mut *open.into_inner()),
        Err(TryLockError::WouldBlock) => {
            LOST.store(true, Ordering::Relaxed);
            return;
        }
    };
    inherited.into_iter().for_each(close);
}
