//! Threads of this process that unpack chunks and read the disk.

use crate::error::Result;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Threads at least: most of them wait where the bytes are on a disk.
const ON_DISK: usize = 8;

/// The threads that one gather uses.
pub(super) struct Readers {
    pool: Arc<rayon_core::ThreadPool>,
    /// Including the caller.
    threads: usize,
}

/// Threads at most where none waits for a disk.
const UNPACKING: usize = 16;
/// Bytes for each thread that unpacks: waking one takes as long as to unpack some tenth of them.
const EACH: u64 = 256 << 10;
/// From this many bytes on several threads read the disk: it takes many reads at a time.
const FROM_DISK: u64 = 512 << 10;

/// The threads for a gather that unpacks or reads `bytes`, some of them on the disk; `None` if the caller is enough.
pub(super) fn readers(bytes: u64, on_disk: bool) -> Option<Readers> {
    let threads = match on_disk {
        true => {
            if bytes >= FROM_DISK {
                ON_DISK + 1
            } else {
                1
            }
        }
        false => cores().min(UNPACKING).min((bytes / EACH) as usize),
    };
    (threads > 1).then(|| Some(Readers { pool: pool()?, threads })).flatten()
}

/// Asking the system takes some ten microseconds: it reads the limits of its control group.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Readers {
    /// Does all of `work`, in `shares` shares for each thread; returns an error of one of them, if there is one.
    ///
    /// The caller works, too: on a busy machine it does most of it. `begin` makes what a thread keeps from share to share.
    pub(super) fn each_share<T: Send, K>(
        &self,
        work: &mut [T],
        shares: usize,
        begin: impl Fn() -> K + Sync,
        each: impl Fn(&mut K, &mut [T]) -> Result<()> + Sync,
    ) -> Result<()> {
        let helpers = self.threads.min(work.len()) - usize::from(!work.is_empty());
        let share = work.len().div_ceil(shares * self.threads).max(1);
        let (queue, outcome) = (Mutex::new(work.chunks_mut(share)), Mutex::new(Ok(())));
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let thread = || {
            let Some(mut share) = next() else { return };
            let mut kept = begin();
            loop {
                if let Err(error) = each(&mut kept, share) {
                    *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                    return;
                }
                match next() {
                    Some(more) => share = more,
                    None => return,
                }
            }
        };
        self.pool.in_place_scope(|scope| {
            (0..helpers).for_each(|_| scope.spawn(|_| thread()));
            thread();
        });
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The threads of this process; `None` if they cannot be started.
fn pool() -> Option<Arc<rayon_core::ThreadPool>> {
    /// The process that started them: after a fork the child has none of them.
    static POOL: Mutex<Option<(u32, Arc<rayon_core::ThreadPool>)>> = Mutex::new(None);
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*pool {
        Some((process, pool)) if *process == std::process::id() => Some(Arc::clone(pool)),
        _ => {
            let builder = rayon_core::ThreadPoolBuilder::new().num_threads(cores().max(ON_DISK));
            let new = Arc::new(builder.thread_name(|number| format!("reverie-read-{number}")).build().ok()?);
            // Ending the pool of a parent would wait for threads that are not here.
            std::mem::forget(pool.replace((std::process::id(), Arc::clone(&new))));
            Some(new)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn every_piece_of_work_is_done_once_by_several_threads_or_by_the_caller_alone() {
        for threads in [1, 2, 9] {
            let readers = Readers { threads, ..readers(1 << 30, true).expect("threads can be started") };
            for count in [0, 1, 7, 100] {
                let mut work = vec![0_u32; count];
                let done = readers.each_share(
                    &mut work,
                    4,
                    || 1,
                    |one, share| {
                        share.iter_mut().for_each(|work| *work += *one);
                        Ok(())
                    },
                );
                assert_eq!((done, work), (Ok(()), vec![1; count]));
            }
        }
    }

    #[test]
    fn the_error_of_any_share_is_returned() {
        let readers = readers(1 << 30, true).expect("threads can be started");
        let refuse = |(): &mut (), share: &mut [u32]| match share.contains(&63) {
            true => Err(Error::Damaged("63".to_owned())),
            false => Ok(()),
        };
        let done = readers.each_share(&mut (0..100).collect::<Vec<_>>(), 4, || (), refuse);
        assert_eq!(done, Err(Error::Damaged("63".to_owned())));
    }
}
