//! Disk tiers in folders of their own.
#![allow(dead_code)]

use reverie_core::checkpoint::{Disk, LocalFileSystem};
use reverie_core::chunk::{Meter, TierOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder under the machine's temporary one; removed when it is dropped.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("reverie-tier-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    /// The names of the files of chunks.
    pub fn files(&self) -> Vec<String> {
        let names = LocalFileSystem.list(&self.0).unwrap();
        names.into_iter().filter(|name| name.ends_with(".chunks")).collect()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn options(folder: &Temporary, memory_bytes: u64) -> TierOptions {
    TierOptions { folder: folder.0.clone(), memory_bytes, ..TierOptions::default() }
}

pub fn meter(options: TierOptions) -> Arc<Meter> {
    let meter = Arc::new(Meter::new());
    meter.set_tier(options, Arc::new(LocalFileSystem)).unwrap();
    meter
}

/// Waits for the mover, for some minutes at most.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed().as_secs() < 200, "{what}");
        std::thread::yield_now();
    }
}
