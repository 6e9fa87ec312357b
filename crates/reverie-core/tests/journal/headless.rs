//! Folders of a journal from which every checkpoint is gone.

use super::starts::{is_free, saver};
use super::support::disk::{FakeDisk, Names, Tail};
use super::support::journaled::{all, left, now, options_of, server, wait};
use super::support::saving::{NOW, ROOT, contents};
use super::support::{Rows, tables};
use reverie_core::checkpoint::{Disk, latest};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::error::Error;
use reverie_core::journal::{Loss, SyncPolicy, recover, refuse_headless, repair, verify};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of a server that was killed after these inserts, and the contents of its tables.
fn killed(syncs: SyncPolicy, inserts: u32) -> (FakeDisk, Vec<String>) {
    let mut first = server(options_of(syncs));
    for value in 0..inserts {
        wait(first.insert("rows", f64::from(value))).unwrap();
        wait(first.insert("queue", f64::from(value))).unwrap();
    }
    let (disk, contents) = (first.disk.after_crash(Names::All, Tail::All), now(&first));
    first.journal.stop().unwrap();
    (disk, contents)
}

fn newest(disk: &FakeDisk) -> PathBuf {
    latest(disk, Path::new(ROOT)).unwrap().expect("a checkpoint")
}

#[test]
fn a_folder_with_commits_and_no_checkpoint_is_refused_with_their_number_and_keeps_them() {
    for syncs in [SyncPolicy::Always, SyncPolicy::Os] {
        let (disk, contents) = killed(syncs, 3);
        let manifest = newest(&disk);
        let bytes = disk.files().into_iter().find(|(path, _)| *path == manifest).unwrap().1;
        disk.delete(&manifest);
        let segments = disk.files();
        let refused = [
            saver(&disk, all()).recover(false, true, |_| ()).err(),
            verify(&disk, Path::new(ROOT)).err(),
            refuse_headless(&disk, Path::new(ROOT)).err(),
        ];
        for error in refused {
            let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(matches!(error, Some(Error::InvalidArgument(_))), "{text}");
            assert!(text.contains(" commits of a journal, from number 1 on, and no checkpoint"), "{text}");
            assert!(text.contains("Restore") && text.contains("reverie checkpoint repair"), "{text}");
            assert!(!text.contains("delete"), "{text}");
        }
        assert!(is_free(&disk));
        assert_eq!(disk.files(), segments);
        disk.restore(&manifest, bytes);
        assert_eq!(left(&disk), contents);
    }
}

#[test]
fn commits_whose_first_ones_are_gone_with_their_checkpoints_are_refused_too() {
    let mut first = server(options_of(SyncPolicy::Os));
    for value in 0..12 {
        wait(first.insert("rows", f64::from(value))).unwrap();
    }
    let disk = {
        first.journal.save().unwrap();
        wait(first.insert("rows", 20.0)).unwrap();
        first.disk.after_crash(Names::All, Tail::All)
    };
    first.journal.stop().unwrap();
    disk.delete(&newest(&disk));
    disk.delete(&Path::new(ROOT).join("0000000001.segment"));
    let text = saver(&disk, all()).recover(false, true, |_| ()).unwrap_err().to_string();
    assert!(text.contains("from number 1") && !text.contains("from number 1 on"), "{text}");
    assert!(!text.contains("repair"), "there is nothing to begin with: {text}");
}

#[test]
fn a_start_that_ended_before_its_first_checkpoint_was_complete_is_followed_by_another() {
    for stop in 0.. {
        let disk = FakeDisk::default();
        let (made, start) = (tables(all()).0, saver(&disk, all()));
        assert_eq!(made.iter().count(), 2);
        start.recover(false, true, |_| ()).unwrap();
        disk.stop_after(stop);
        let has_begun = start.begin_journal(options_of(SyncPolicy::Os)).is_ok();
        for (names, tail) in super::support::disk::CRASHES {
            let left = disk.after_crash(names, tail);
            let found = recover(&left, Path::new(ROOT), tables(all()).0.bytes().0);
            assert!(found.is_ok(), "stopped after {stop} operations: {found:?}");
        }
        disk.stop_after(1 << 40);
        if has_begun {
            return start.end_journal().unwrap();
        }
    }
}

/// The contents of the tables that a repair of this folder saves, and what it lost.
fn repaired(disk: &FakeDisk) -> (Vec<String>, Vec<Loss>) {
    let (any, clock): (Arc<dyn Disk>, Arc<dyn Clock>) = (Arc::new(disk.clone()), Arc::new(ManualClock::default()));
    let outcome = repair(&any, Path::new(ROOT), PathBuf::from("/repaired"), &clock, |_| {}, NOW).unwrap();
    let (made, _) = tables(all());
    let saved = recover(disk, Path::new("/repaired"), made.bytes().0).unwrap().expect("it was saved");
    saved.checkpoint.restore(&made, NOW).unwrap();
    // It can be used.
    wait(made.get("rows").unwrap().insert(Rows::new(&made).inserts(&[1.0])).unwrap()).unwrap();
    let (made, _) = tables(all());
    let saved = recover(disk, Path::new("/repaired"), made.bytes().0).unwrap().expect("it was saved");
    saved.checkpoint.restore(&made, NOW).unwrap();
    (made.iter().map(|table| contents(&made, table.name())).collect(), outcome.losses)
}

#[test]
fn a_repair_without_a_checkpoint_has_all_items_of_a_journal_with_its_first_commit() {
    let (disk, contents) = killed(SyncPolicy::Os, 5);
    disk.delete(&newest(&disk));
    assert_eq!(repaired(&disk), (contents, vec![Loss::AllCheckpoints]));
}

#[test]
fn a_repair_with_a_damaged_checkpoint_has_all_items_of_a_journal_with_its_first_commit() {
    let (disk, contents) = killed(SyncPolicy::Always, 5);
    disk.edit(&newest(&disk), |bytes| bytes[30] ^= 1);
    let (saved, losses) = repaired(&disk);
    assert_eq!(saved, contents);
    assert!(matches!(&losses[..], [Loss::Checkpoint(_), Loss::AllCheckpoints]), "{losses:?}");
}

#[test]
fn the_error_of_a_damaged_file_advises_nothing_that_loses_data() {
    let (disk, _) = killed(SyncPolicy::Always, 1);
    disk.edit(&newest(&disk), |bytes| bytes[30] ^= 1);
    let text = saver(&disk, all()).recover(false, true, |_| ()).unwrap_err().to_string();
    assert!(text.contains(&format!("reverie checkpoint repair {ROOT} --to NEW")), "{text}");
    assert!(!text.contains("delete") && !text.contains("without it"), "{text}");
    let of_tier = Error::DamagedFile { path: "/disk/7-00000001.chunks".into(), what: "bytes".into(), offset: 3 };
    assert!(!of_tier.to_string().contains("repair") && !of_tier.to_string().contains("start without"), "{of_tier}");
}
