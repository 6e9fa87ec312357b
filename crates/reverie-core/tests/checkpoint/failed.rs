//! Checkpoints that fail leave nothing behind: the disk is no fuller than before, and the next one goes on.

use super::support::disk::FakeDisk;
use super::support::saving::{KEEP, NOW, contents, insert, restore, save, store, write_steps};
use super::support::{Rows, options, tables};
use reverie_core::checkpoint::verify;
use reverie_core::chunk::Compression;
use reverie_core::error::Error;
use reverie_core::table::{TableOptions, Tables};
use std::sync::Arc;

fn some() -> (Arc<Tables>, Vec<TableOptions>) {
    let all = vec![options("rows", 100), options("steps", 100)];
    let (tables, _) = tables(all.clone());
    (tables, all)
}

fn fill(tables: &Arc<Tables>, n: u64) {
    let mut rows = Rows::new(tables);
    insert(tables, "rows", (0..n).map(|value| (rows.item(value as f64), 1.0)).collect::<Vec<_>>());
    rows.close();
    write_steps(tables, "steps", Compression::None, n);
}

fn is_storage<T>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Storage { .. }))
}

#[test]
fn a_checkpoint_that_fails_for_lack_of_space_leaves_the_files_as_they_were() {
    for segment_bytes in [150, 1 << 20] {
        let ((tables, all), disk) = (some(), FakeDisk::default());
        let store = store(&disk, KEEP).with_segment_bytes(segment_bytes);
        fill(&tables, 5);
        save(&store, &tables);
        let (files, used) = (disk.files(), disk.size());
        fill(&tables, 30);
        for more in [0, 10, 100, 1000, 5000] {
            disk.set_capacity(Some(used + more));
            assert!(is_storage(store.save(&tables, NOW)), "{more}");
            assert_eq!(disk.files(), files, "{segment_bytes} {more}");
        }
        // A checkpoint that has next to nothing to write finds the room that it had before.
        tables.iter().for_each(|table| table.reset().unwrap());
        disk.set_capacity(Some(used + 5000));
        let saved = save(&store, &tables);
        assert_eq!((saved.items, saved.new_chunks), (0, 0));
        disk.set_capacity(None);
        fill(&tables, 20);
        verify(&disk, &save(&store, &tables).path).unwrap();
        let (restored, _) = restore(&disk, all);
        for name in ["rows", "steps"] {
            assert_eq!(contents(&restored, name), contents(&tables, name));
        }
    }
}

#[test]
fn a_checkpoint_that_fails_removes_segments_that_a_server_left_that_ended_while_it_wrote() {
    let ((tables, _), disk) = (some(), FakeDisk::default());
    let store = store(&disk, KEEP);
    fill(&tables, 5);
    let newest = save(&store, &tables).path;
    let (files, used) = (disk.files(), disk.size());
    disk.restore(&newest.with_file_name("0000000007.segment"), vec![0; 300]);
    disk.restore(&newest.with_file_name("0000000007.unfinished"), vec![0; 300]);
    fill(&tables, 30);
    disk.set_capacity(Some(used + 600));
    assert!(is_storage(store.save(&tables, NOW)));
    assert_eq!(disk.files(), files);
}

#[test]
fn a_first_checkpoint_that_fails_leaves_an_empty_folder() {
    let ((tables, _), disk) = (some(), FakeDisk::default());
    fill(&tables, 20);
    disk.set_capacity(Some(1000));
    let store = store(&disk, KEEP);
    assert!(is_storage(store.save(&tables, NOW)));
    assert_eq!(disk.names(), Vec::<String>::new());
    disk.set_capacity(None);
    verify(&disk, &save(&store, &tables).path).unwrap();
}

#[test]
fn a_checkpoint_whose_rename_failed_is_removed_and_kept_if_the_rename_was_made() {
    for made in [false, true] {
        let ((tables, all), disk) = (some(), FakeDisk::default());
        let store = store(&disk, KEEP);
        fill(&tables, 5);
        save(&store, &tables);
        let files = disk.files();
        fill(&tables, 9);
        disk.fail_renames(Some(made));
        assert!(is_storage(store.save(&tables, NOW)));
        disk.fail_renames(None);
        assert_eq!(disk.files() == files, !made);
        let (restored, _) = restore(&disk, all);
        assert_eq!(contents(&restored, "rows") == contents(&tables, "rows"), made);
        verify(&disk, &save(&store, &tables).path).unwrap();
    }
}
