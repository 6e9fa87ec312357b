//! Memory shared by two processes, and the registration of a socket's descriptor: `unsafe`, and of Linux alone.
//!
//! A mapping is made from a memfd that can neither shrink nor grow (both ends check the seals), so that touching it
//! never faults, whatever the peer does. The peer may still change the bytes at any moment. So nothing here returns a
//! `&[u8]`: bytes are copied out and in through raw pointers, and the copy is checked, not the original.
//! [`Mapping::as_uninit`] is for the one case where the protocol lets no other process write (a batch slot that is not
//! lent): a peer that writes nevertheless corrupts only the batch that it would have been given, since code that holds
//! `MaybeUninit` bytes never acts on their values.

use reverie_core::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use tokio::io::unix::AsyncFd;

/// Huge pages are requested for mappings of at least one such page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// The seals that a descriptor must have before it is mapped.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Shared memory, mapped for reading and writing until dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is not tied to a thread; all access goes through raw copies, or through `&mut self`.
unsafe impl Send for Mapping {}
// SAFETY: `copy_out` and `copy_in` through `&self` may race with each other as with the peer: they move bytes whose
// values nothing relies on.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New zeroed shared memory, and the sealed descriptor through which a peer can map it.
    /// `ResourceExhausted` if the system provides no descriptor or no address space.
    pub(crate) fn create(len: usize) -> Result<(Self, OwnedFd)> {
        let failed = |errno: rustix::io::Errno| Error::ResourceExhausted {
            what: "a shared-memory slot".to_owned(),
            needed: len as u64,
            budget: 0,
            hint: format!("the system refused it: {errno}"),
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("reverie", flags).map_err(failed)?;
        ftruncate(&fd, len as u64).map_err(failed)?;
        fcntl_add_seals(&fd, SEALS).map_err(failed)?;
        Ok((Self::map(&fd, len).map_err(failed)?, fd))
    }

    /// Maps a descriptor from a peer. `Protocol` if it is not a memfd of this size, or is not sealed.
    pub(crate) fn open(fd: &OwnedFd, len: usize) -> Result<Self> {
        let refused = |why: String| Error::Protocol(format!("a slot of {len} bytes {why}"));
        let seals = fcntl_get_seals(fd).map_err(|_| refused("is not shared memory".to_owned()))?;
        if !seals.contains(SEALS) {
            return Err(refused("can still shrink".to_owned()));
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(refused("is read-only".to_owned()));
        }
        let size = fstat(fd).map_err(|errno| refused(format!("whose size cannot be read: {errno}")))?.st_size;
        if len == 0 || u64::try_from(size) != Ok(len as u64) {
            return Err(refused(format!("whose descriptor has {size}")));
        }
        Self::map(fd, len).map_err(|errno| refused(format!("that cannot be mapped: {errno}")))
    }

    fn map(fd: &OwnedFd, len: usize) -> rustix::io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of this process.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd.as_fd(), 0) }?;
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(rustix::io::Errno::NOMEM) };
        let mapping = Self { base, len };
        if len >= HUGE_PAGE {
            // SAFETY: the range is this mapping. If there are no huge pages, the advice fails, and small pages are
            // used.
            let _ = unsafe { madvise(mapping.base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The start in this process. Valid for `len` bytes until dropped.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Copies bytes into `to`, starting at `offset`, and returns it filled. Panics if there are too few.
    pub(crate) fn copy_out<'a>(&self, offset: usize, to: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        self.check(offset, to.len());
        // SAFETY: in bounds of the mapping, which cannot shrink; `to` is memory of this process alone, so they do not
        // overlap; a racing write of the peer gives bytes that are neither the old nor the new, and any will do.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), to.as_mut_ptr().cast(), to.len()) };
        // SAFETY: all of them were just written.
        unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len()) }
    }

    /// A copy of `len` bytes starting at `offset`. Panics if there are too few.
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        let copied = self.copy_out(offset, &mut bytes.spare_capacity_mut()[..len]).len();
        // SAFETY: `copy_out` has written them.
        unsafe { bytes.set_len(copied) };
        bytes
    }

    /// Copies `from` to the bytes starting at `offset`. Panics if there are too few.
    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: as for `copy_out`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.base.as_ptr().add(offset), from.len()) }
    }

    fn check(&self, offset: usize, bytes: usize) {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.len);
        assert!(fits, "{bytes} bytes at {offset} of a mapping of {}", self.len);
    }

    /// All bytes, to be written while the protocol keeps the peer away. See the module.
    pub(crate) fn as_uninit(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: in bounds, and nothing else in this process has it while it is borrowed mutably; the bytes may hold
        // anything at any time, which `MaybeUninit` allows.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().cast(), self.len) }
    }

    /// Returns the pages to the system, even if a peer still has them mapped. They read as zeros afterwards.
    pub(crate) fn discard(&mut self) {
        // SAFETY: the range is this mapping; its bytes may change at any time in any case.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxRemove) };
    }
}

/// A socket that tasks can wait for. Needs a tokio runtime.
pub(crate) fn watch(stream: UnixStream) -> std::io::Result<AsyncFd<UnixStream>> {
    // SAFETY: a `UnixStream` owns its open descriptor, and nothing replaces it behind the `AsyncFd`.
    Ok(unsafe { AsyncFd::register(stream) }?)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and not used after this.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unsealed(len: u64, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, len).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn both_ends_see_what_either_writes(
            writes in prop::collection::vec((any::<bool>(), 0usize..4096, prop::collection::vec(any::<u8>(), 0..300)), 1..20),
        ) {
            let (ours, fd) = Mapping::create(4096).unwrap();
            let theirs = Mapping::open(&fd, 4096).unwrap();
            let mut model = vec![0u8; 4096];
            for (first, at, bytes) in writes {
                let bytes = &bytes[..bytes.len().min(4096 - at)];
                if first { ours.copy_in(at, bytes) } else { theirs.copy_in(at, bytes) }
                model[at..at + bytes.len()].copy_from_slice(bytes);
                prop_assert_eq!(&ours.read(0, 4096), &model);
                prop_assert_eq!(&theirs.read(at, bytes.len()), &model[at..at + bytes.len()]);
            }
        }
    }

    #[test]
    fn a_slot_is_written_through_its_slice_and_seen_by_the_peer() {
        let (mut ours, fd) = Mapping::create(1 << 16).unwrap();
        let theirs = Mapping::open(&fd, 1 << 16).unwrap();
        ours.as_uninit()[65_535].write(7);
        assert_eq!(theirs.read(65_534, 2), [0, 7]);
        ours.discard();
        assert_eq!(theirs.read(65_535, 1), [0], "the pages are gone for both");
    }

    #[test]
    fn the_descriptor_can_be_closed_once_it_is_mapped_and_the_memory_outlives_its_maker() {
        let (ours, fd) = Mapping::create(4096).unwrap();
        let theirs = Mapping::open(&fd, 4096).unwrap();
        drop(fd);
        ours.copy_in(0, b"kept");
        drop(ours);
        assert_eq!(theirs.read(0, 4), b"kept");
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        for seals in [SealFlags::empty(), SealFlags::GROW | SealFlags::SEAL, SealFlags::SHRINK | SealFlags::GROW] {
            let refused = Mapping::open(&unsealed(4096, seals), 4096).unwrap_err();
            assert!(matches!(refused, Error::Protocol(why) if why.contains("can still shrink")));
        }
        assert!(Mapping::open(&unsealed(4096, SEALS), 4096).is_ok());
    }

    #[test]
    fn memory_of_another_size_or_that_cannot_be_written_is_refused() {
        let (_ours, fd) = Mapping::create(4096).unwrap();
        for len in [0, 4095, 8192] {
            assert!(matches!(Mapping::open(&fd, len), Err(Error::Protocol(_))), "{len}");
        }
        let read_only = unsealed(4096, SEALS | SealFlags::WRITE);
        assert!(matches!(Mapping::open(&read_only, 4096), Err(Error::Protocol(_))));
    }

    #[test]
    fn a_descriptor_that_is_no_shared_memory_is_refused() {
        let fd = OwnedFd::from(std::fs::File::open("/dev/zero").unwrap());
        assert!(matches!(Mapping::open(&fd, 4096), Err(Error::Protocol(why)) if why.contains("is not shared memory")));
    }

    #[test]
    #[should_panic(expected = "of a mapping of 4096")]
    fn bytes_behind_the_end_are_not_touched() {
        let (ours, _fd) = Mapping::create(4096).unwrap();
        ours.copy_in(4090, &[0; 7]);
    }
}
