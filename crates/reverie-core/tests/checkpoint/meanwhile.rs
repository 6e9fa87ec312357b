//! Changes made by calls while a checkpoint is written, and the memory that is reserved for it.

use super::support::disk::FakeDisk;
use super::support::saving::{KEEP, NOW, ROOT, contents, insert, restore};
use super::support::{Rows, options, tables};
use reverie_core::checkpoint::{Disk, Input, Output, SaveOutcome, Store};
use reverie_core::table::Tables;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Items of a page of slots.
const PAGE: usize = 256;

/// A disk on which something happens as soon as a checkpoint writes its first file, which is after the cut.
struct InterruptedDisk<F> {
    disk: FakeDisk,
    act: Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> Disk for InterruptedDisk<F> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Output>> {
        let act = self.act.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Input>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn shorten(&self, path: &Path, size: u64) -> io::Result<()> {
        self.disk.shorten(path, size)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.make_folder(folder)
    }

    fn sync(&self, path: &Path) -> io::Result<()> {
        self.disk.sync(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn reverie_core::checkpoint::DiskLock>>> {
        self.disk.lock(path)
    }
}

fn save_while(disk: &FakeDisk, tables: &Tables, act: impl FnOnce() + Send + 'static) -> SaveOutcome {
    let disk = InterruptedDisk { disk: disk.clone(), act: Mutex::new(Some(act)) };
    Store::new(Arc::new(disk), PathBuf::from(ROOT), KEEP).unwrap().save(tables, NOW).unwrap()
}

#[test]
fn a_page_that_is_changed_meanwhile_is_copied_once_to_memory_that_stood_ready() {
    let all = vec![options("t", 1_000)];
    let (tables, _) = tables(all.clone());
    let mut rows = Rows::new(&tables);
    let keys = insert(&tables, "t", (0..4 * PAGE).map(|value| (rows.item(value as f64), 1.0)));
    let first_of = |page: usize| keys[page * PAGE + 255];
    let of_two_pages = [first_of(1), first_of(1) - 1, first_of(3), first_of(3) - 1];
    let before = contents(&tables, "t");
    let disk = FakeDisk::default();
    let table = Arc::clone(tables.get("t").unwrap());
    let saved = save_while(&disk, &tables, move || {
        for priority in [2.0, 3.0] {
            assert_eq!(table.update(&of_two_pages, &[priority; 4], None).unwrap().applied, 4);
        }
    });
    assert_eq!(saved.spare % 4, 0, "as many pages as the items take");
    assert_eq!(saved.spare_used, saved.spare / 4 * 2, "two of four");
    assert_ne!(contents(&tables, "t"), before);
    assert_eq!(contents(&restore(&disk, all).0, "t"), before, "what is saved is what there was at the cut");
    assert_eq!(save_while(&FakeDisk::default(), &tables, || ()).spare_used, 0, "nothing was changed");
}

#[test]
fn a_table_that_is_reset_meanwhile_is_saved_as_it_was() {
    let all = vec![options("t", 1_000)];
    let (tables, _) = tables(all.clone());
    let mut rows = Rows::new(&tables);
    insert(&tables, "t", (0..2 * PAGE).map(|value| (rows.item(value as f64), 1.0)));
    let before = contents(&tables, "t");
    let disk = FakeDisk::default();
    let again = Arc::clone(&tables);
    let saved = save_while(&disk, &tables, move || {
        again.get("t").unwrap().reset().unwrap();
        let mut rows = Rows::new(&again);
        insert(&again, "t", [(rows.item(7.0), 1.0)]);
    });
    assert_eq!((saved.items, saved.spare_used), (2 * PAGE as u64, 0));
    assert_eq!(contents(&restore(&disk, all).0, "t"), before);
    assert_eq!(tables.get("t").unwrap().info().size, 1);
}
