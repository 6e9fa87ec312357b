//! Descriptors that a forked child closes: locks of files, and sockets.
//!
//! A child has a copy of each open descriptor. If it kept these, what they hold would be held until the child ends,
//! though the process that opened them was killed: the lock of a journal's folder, a port, a connection.
//!
//! A descriptor is listed right after it was opened. A child that another thread forks between the two keeps it.

#[cfg(unix)]
pub use listed::{ListedDescriptor, close_inherited};
#[cfg(not(unix))]
pub use no_forks::{ListedDescriptor, close_inherited};

#[cfg(unix)]
mod listed {
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// As many descriptors as a process may have by default at most; others are not listed.
    const MOST: usize = 1 << 20;
    /// A bit for each descriptor, set while it is listed. Without a lock, which a thread could hold during a fork.
    static OPEN: [AtomicU64; MOST / 64] = [const { AtomicU64::new(0) }; MOST / 64];

    /// Keeps a descriptor in the list. Must be dropped before the descriptor is closed.
    #[derive(Debug)]
    pub struct ListedDescriptor(RawFd);

    impl ListedDescriptor {
        /// Lists an open descriptor.
        pub fn of(descriptor: &impl AsFd) -> Self {
            let descriptor = descriptor.as_fd().as_raw_fd();
            if let Some((word, bit)) = place(descriptor) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
            Self(descriptor)
        }
    }

    impl Drop for ListedDescriptor {
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
    /// Their numbers stay taken, by `/dev/null`: an object of the parent that is dropped in the child closes that, and not
    /// a descriptor that the child has opened since.
    pub fn close_inherited() {
        let null = File::options().read(true).write(true).open("/dev/null").ok();
        for (index, word) in OPEN.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            word.store(0, Ordering::Relaxed);
            while bits != 0 {
                let descriptor = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                // SAFETY: it was open at the fork, and fitted into a `RawFd` when it was listed. Its owner is an object of
                // the parent, which the child does not use.
                let mut inherited = unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) };
                // Without a descriptor to spare, closing it is all that can be done.
                if let Some(null) = &null
                    && rustix::io::dup2(null, &mut inherited).is_ok()
                {
                    // At worst a program that the child starts has it, too.
                    let _ = rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::CLOEXEC);
                    std::mem::forget(inherited);
                }
            }
        }
    }
}

#[cfg(not(unix))]
mod no_forks {
    /// Lists nothing: a process of this system is never forked.
    #[derive(Debug)]
    pub struct ListedDescriptor;

    impl ListedDescriptor {
        /// Lists nothing.
        pub fn of<T>(_descriptor: &T) -> Self {
            Self
        }
    }

    /// Closes nothing.
    pub fn close_inherited() {}
}
