//! The files of the tier never have more bytes than `disk_bytes`.

use super::support::{Temporary, check, chunk, options, until};
use reverie_core::checkpoint::{Disk, Input, LocalFileSystem, Output};
use reverie_core::chunk::{Compression, Meter, TierOptions};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The machine's folders, and the bytes of the files in them. Every third file is removed at the second attempt.
#[derive(Clone, Default)]
struct CountingDisk(Arc<Counts>);

#[derive(Default)]
struct Counts {
    sizes: Mutex<HashMap<PathBuf, u64>>,
    most: AtomicU64,
    removals: AtomicU64,
}

struct CountedOutput {
    output: Box<dyn Output>,
    path: PathBuf,
    counts: Arc<Counts>,
}

impl Output for CountedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut sizes = self.counts.sizes.lock().unwrap();
        *sizes.get_mut(&self.path).unwrap() += bytes.len() as u64;
        self.counts.most.fetch_max(sizes.values().sum(), SeqCst);
        self.output.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.output.sync()
    }

    fn duplicate(&self) -> io::Result<Box<dyn Output>> {
        self.output.duplicate()
    }
}

impl Disk for CountingDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let output = LocalFileSystem.create(path)?;
        self.0.sizes.lock().unwrap().insert(path.to_owned(), 0);
        Ok(Box::new(CountedOutput { output, path: path.to_owned(), counts: Arc::clone(&self.0) }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>> {
        LocalFileSystem.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        LocalFileSystem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.0.removals.fetch_add(1, SeqCst).is_multiple_of(3) {
            return Err(io::Error::other("the file is busy"));
        }
        LocalFileSystem.remove(path)?;
        self.0.sizes.lock().unwrap().remove(path);
        Ok(())
    }

    fn shorten(&self, path: &Path, size: u64) -> io::Result<()> {
        LocalFileSystem.shorten(path, size)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        LocalFileSystem.sync(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        LocalFileSystem.list(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        LocalFileSystem.make_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        LocalFileSystem.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn reverie_core::checkpoint::DiskLock>>> {
        LocalFileSystem.lock(path)
    }
}

/// Pseudo-random numbers below `end`.
fn below(state: &mut u64, end: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % end
}

#[test]
fn files_keep_within_disk_bytes_while_chunks_move_and_leave_and_files_are_compacted() {
    const DISK: u64 = 2 << 20;
    const MEMORY: u64 = 256 << 10;
    for seed in 0..3 {
        let (folder, disk, mut state) = (Temporary::new(), CountingDisk::default(), seed);
        let meter = Arc::new(Meter::new());
        let limits = TierOptions { disk_bytes: Some(DISK), compaction_bytes_per_second: 0, ..options(&folder, MEMORY) };
        meter.set_tier(limits, Arc::new(disk.clone())).unwrap();
        let (mut chunks, mut live) = (Vec::new(), 0);
        for number in 0..300 {
            // Most are smaller than a file (an eighth of a MiB), and some larger than several.
            let steps = if below(&mut state, 40) == 0 { 80 } else { 1 + below(&mut state, 20) as usize };
            chunks.push((number, steps, chunk(&meter, number, steps, Compression::None)));
            live += steps;
            while live > 300 {
                // Chunks of random files are dropped, so that the files are compacted.
                live -= chunks.swap_remove(below(&mut state, chunks.len() as u64) as usize).1;
            }
            until("the memory is within its limit", || meter.memory_bytes() <= MEMORY);
        }
        let info = meter.tier_info().unwrap();
        assert!(info.compacted > 0, "{info:?}");
        let most = disk.0.most.load(SeqCst);
        assert!(most <= DISK, "seed {seed}: {most} bytes of {DISK}, {info:?}");
        assert!(most > DISK / 4 * 3, "seed {seed}: {most} bytes of {DISK}, {info:?}");
        chunks.iter().for_each(|(number, steps, chunk)| check(chunk, *number, *steps));
        drop(chunks);
        until("the files of no chunk are removed", || {
            // The mover looks again when a chunk leaves.
            drop(chunk(&meter, 0, 60, Compression::None));
            meter.tier_info().unwrap().used <= DISK / 8
        });
        let sizes: u64 = disk.0.sizes.lock().unwrap().values().sum();
        assert!(sizes <= DISK / 4, "{sizes} bytes are left");
    }
}
