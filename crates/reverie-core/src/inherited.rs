//! Descriptors that a forked child closes: locks of files, and sockets.
//!
//! A child has a copy of each open descriptor. If it kept these, what they hold would be held until the child ends,
//! though the process that opened them was killed: the lock of a journal's folder, a port, a connection.
//!
//! A descriptor is listed right after it was opened. A child that another thread forks between the two keeps it.

#[cfg(unix)]
pub use listed::{Listed, close_inherited};
#[cfg(not(unix))]
pub use no_forks::{Listed, close_inherited};

#[cfg(unix)]
mod listed {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// As many descriptors as a process may have by default at most; others are not listed.
    const MOST: usize = 1 << 20;
    /// A bit for each descriptor, set while it is listed. Without a lock, which a thread could hold during a fork.
    static OPEN: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

    /// Keeps a descriptor in the list. Must be dropped before the descriptor is closed.
    #[derive(Debug)]
    pub struct Listed(RawFd);

    impl Listed {
        /// Lists an open descriptor.
        pub fn of(descriptor: &impl AsFd) -> Self {
            let descriptor = descriptor.as_fd().as_raw_fd();
            if let Some((word, bit)) = place(descriptor) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
            Self(descriptor)
        }
    }

    impl Drop for Listed {
        fn drop(&mut self) {
            if let Some((word, bit)) = place(self.0) {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    fn place(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
        let descriptor = usize::try_from(descriptor).ok()?;
        Some((OPEN.get(descriptor / 64)?, 1 << (descriptor % 64)))
    }

    /// Closes the listed descriptors of the parent process. To be called in a forked child before anything opens there.
    ///
    /// The parent's objects must never be dropped in the child: they would close descriptors that are others by then.
    pub fn close_inherited() {
        for (index, word) in OPEN.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            word.store(0, Ordering::Relaxed);
            while bits != 0 {
                let descriptor = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // SAFETY: open since the fork, and the objects that own it belong to the parent: the child never drops
                // them. A descriptor that fitted into a `RawFd` when it was listed fits again.
                drop(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) });
            }
        }
    }
}

#[cfg(not(unix))]
mod no_forks {
    /// Lists nothing: a process of this system is never forked.
    #[derive(Debug)]
    pub struct Listed;

    impl Listed {
        /// Lists nothing.
        pub fn of<T>(_descriptor: &T) -> Self {
            Self
        }
    }

    /// Closes nothing.
    pub fn close_inherited() {}
}
