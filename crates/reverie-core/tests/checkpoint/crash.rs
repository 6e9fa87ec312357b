//! Machines that stop and bytes that change: a checkpoint is there whole, or it is named and refused.

use super::support::cases::cases;
use super::support::disk::{CRASHES, FakeDisk};
use super::support::saving::{KEEP, NOW, ROOT, Steps, contents, insert, save, store, write_steps};
use super::support::{Rows, options, tables};
use reverie_core::checkpoint::{Store, latest, list, load, verify};
use reverie_core::chunk::{Compression, Meter, Restorer, TierOptions};
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::error::Error;
use reverie_core::table::{TableOptions, Tables};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Two tables small enough to be saved a thousand times.
fn small() -> (Arc<Tables>, Vec<TableOptions>) {
    let all = vec![options("rows", 6), options("steps", 4)];
    (made(&all, None), all)
}

/// The tables; with a disk tier that gives chunks so many bytes of memory. Its own files are on a disk that never
/// stops.
fn made(all: &[TableOptions], memory_bytes: Option<u64>) -> Arc<Tables> {
    let Some(memory_bytes) = memory_bytes else { return tables(all.to_vec()).0 };
    let tier = TierOptions { folder: PathBuf::from("/tier"), memory_bytes, ..TierOptions::default() };
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    Arc::new(Tables::with_disk(all.to_vec(), None, Some((tier, Arc::new(FakeDisk::default()))), &clock, 7).unwrap())
}

fn fill(tables: &Arc<Tables>, from: i32) {
    fill_rows(tables, from);
    write_steps(tables, "steps", Compression::Zstd, 3 + from as u64);
}

fn fill_rows(tables: &Arc<Tables>, from: i32) {
    let mut rows = Rows::new(tables);
    for value in from..from + 4 {
        insert(tables, "rows", [(rows.item(f64::from(value)), f64::from(value))]);
        rows.close();
    }
}

/// Like [`fill`], with large chunks, of which the last stay in the tables.
fn fill_large(tables: &Arc<Tables>, from: i32) {
    fill_rows(tables, from);
    let mut steps = Steps::of_width(tables, "steps", Compression::None, 130);
    (0..8 + from).for_each(|_| steps.step());
}

fn all_contents(tables: &Tables) -> String {
    tables.iter().map(|table| contents(tables, table.name())).collect()
}

/// The tables of a server that starts on this disk, and true if it found a checkpoint; an error if the newest is
/// refused.
fn start(disk: &FakeDisk, all: &[TableOptions]) -> Result<(Arc<Tables>, bool), Error> {
    start_with(disk, all, None)
}

fn start_with(disk: &FakeDisk, all: &[TableOptions], memory_bytes: Option<u64>) -> Result<(Arc<Tables>, bool), Error> {
    let tables = made(all, memory_bytes);
    let Some(path) = latest(disk, Path::new(ROOT))? else { return Ok((tables, false)) };
    load(disk, &path, tables.bytes().0)?.restore(&tables, NOW)?;
    Ok((tables, true))
}

/// Keeps one checkpoint, in small segments: files are removed at every save.
fn tight(disk: &FakeDisk) -> Store {
    store(disk, reverie_core::checkpoint::RetentionPolicy { count: 1, max_age: None }).with_segment_bytes(150)
}

#[test]
fn a_machine_that_stops_anywhere_in_a_checkpoint_leaves_the_old_one_or_the_new_one_whole() {
    stops_anywhere(None);
}

#[test]
fn a_machine_that_stops_anywhere_in_a_checkpoint_of_chunks_on_the_disk_leaves_the_old_one_or_the_new_one_whole() {
    stops_anywhere(Some(10_000));
}

fn stops_anywhere(memory_bytes: Option<u64>) {
    let (_, all) = small();
    let tables = made(&all, memory_bytes);
    let fill = if memory_bytes.is_some() { fill_large } else { fill };
    let tier = |tables: &Tables| tables.bytes().0.tier_info().unwrap_or_default();
    let disk = FakeDisk::default();
    fill(&tables, 0);
    tight(&disk).save(&tables, NOW).unwrap();
    let old = all_contents(&tables);
    fill(&tables, 4);
    let new = all_contents(&tables);
    assert_eq!(tier(&tables).stored > 4096, memory_bytes.is_some(), "{:?}", tier(&tables));
    let (mut stopped, mut seen) = (0, [0, 0]);
    loop {
        let disk = disk.copy();
        // A new store has no record of the chunks that are there: all are written, as after a restart.
        let store = tight(&disk);
        disk.stop_after(stopped);
        let outcome = store.save(&tables, NOW);
        let finished = matches!(&outcome, Ok(saved) if saved.left_behind.is_none());
        for (names, tail) in CRASHES {
            let left = disk.after_crash(names, tail);
            let (restored, any) = start_with(&left, &all, memory_bytes)
                .unwrap_or_else(|error| panic!("{stopped} {names:?} {tail:?}: {error}"));
            assert!(any, "{stopped} {names:?} {tail:?}: no checkpoint");
            let got = all_contents(&restored);
            assert!(got == old || got == new, "{stopped} {names:?} {tail:?}: neither the old nor the new");
            assert!(outcome.is_err() || got == new, "{stopped} {names:?} {tail:?}: the old after the new was promised");
            seen[usize::from(got == new)] += 1;
            for (path, _) in list(&left, Path::new(ROOT)).unwrap() {
                verify(&left, &path).unwrap();
            }
            // And the next checkpoint is a good one, with nothing left over.
            let next = tight(&left).save(&restored, NOW).unwrap();
            verify(&left, &next.path).unwrap();
            let described = list(&left, Path::new(ROOT)).unwrap();
            let segments = described.last().unwrap().1.as_ref().unwrap().segments.len();
            assert_eq!((described.len(), left.names().len()), (1, segments + 1), "{:?}", left.names());
        }
        if finished {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 20 && seen[0] > 50 && seen[1] > 20, "{stopped} {seen:?}");
}

#[test]
fn a_machine_that_stops_anywhere_in_a_first_checkpoint_leaves_none_or_it_whole() {
    let (tables, all) = small();
    fill(&tables, 0);
    let want = all_contents(&tables);
    let (mut stopped, mut seen) = (0, [0, 0]);
    loop {
        let disk = FakeDisk::default();
        let store = tight(&disk);
        disk.stop_after(stopped);
        let outcome = store.save(&tables, NOW);
        for (names, tail) in CRASHES {
            let left = disk.after_crash(names, tail);
            let (restored, any) = start(&left, &all).unwrap();
            assert!(any || outcome.is_err());
            assert!(!any || all_contents(&restored) == want);
            seen[usize::from(any)] += 1;
        }
        if outcome.is_ok() {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 15 && seen[0] > 50 && seen[1] > 6, "{stopped} {seen:?}");
}

#[test]
fn a_store_whose_checkpoint_failed_anywhere_takes_the_next_one_as_if_it_had_not_tried() {
    let (tables, all) = small();
    fill(&tables, 0);
    let first = FakeDisk::default();
    tight(&first).save(&tables, NOW).unwrap();
    for segment_bytes in [150, 1 << 20] {
        fails_anywhere(&first, &all, segment_bytes);
    }
}

fn fails_anywhere(first: &FakeDisk, all: &[TableOptions], segment_bytes: u64) {
    let mut stopped = 0;
    loop {
        let disk = FakeDisk::default();
        let store = store(&disk, KEEP).with_segment_bytes(segment_bytes);
        let (tables, _) = start(first, all).unwrap();
        store.save(&tables, NOW).unwrap();
        fill(&tables, 8);
        // A disk that is full, and then is not.
        disk.stop_after(stopped);
        let failed = store.save(&tables, NOW);
        disk.stop_after(1 << 40);
        let saved = save(&store, &tables);
        verify(&disk, &saved.path).unwrap();
        assert_eq!(all_contents(&start(&disk, all).unwrap().0), all_contents(&tables), "{stopped}");
        if failed.is_ok_and(|saved| saved.left_behind.is_none()) {
            break;
        }
        stopped += 1;
    }
    assert!(stopped > 8, "{stopped}");
}

#[test]
fn a_restore_that_stops_anywhere_leaves_the_tables_empty_and_the_files_as_they_were() {
    let (before, all) = small();
    fill(&before, 0);
    let disk = FakeDisk::default();
    let path = tight(&disk).save(&before, NOW).unwrap().path;
    let files = disk.files();
    let mut stopped = 0;
    loop {
        let (tables, _) = tables(all.clone());
        disk.stop_after(stopped);
        let loaded = load(&disk, &path, tables.bytes().0);
        assert!(tables.iter().all(|table| table.info().size == 0));
        let Err(error) = loaded else { break };
        assert!(matches!(error, Error::Storage { .. }), "{error}");
        assert_eq!(tables.bytes().0.live_bytes(), 0);
        stopped += 1;
    }
    assert!(stopped > 10, "{stopped}");
    assert_eq!(disk.files(), files);
}

/// The error names the file, and a place not behind the damage.
fn assert_named(error: &Error, file: &Path, at: usize, what: &str) {
    match error {
        Error::DamagedFile { path, offset, .. } => {
            assert_eq!(path, &file.display().to_string(), "{what}");
            assert!(*offset <= at as u64, "{what}: {offset} is behind {at}");
        }
        other => panic!("{what}: {other}"),
    }
}

#[test]
fn any_flipped_bit_and_any_missing_or_added_byte_is_found_and_named() {
    let (before, all) = small();
    fill(&before, 0);
    let disk = FakeDisk::default();
    let newest = tight(&disk).save(&before, NOW).unwrap().path;
    let files = disk.files();
    assert!(files.len() > 3, "several segments");
    let (tables, _) = tables(all);
    // At a desk two bits of each byte, other ones from byte to byte.
    let apart = 8 / cases(8) as usize;
    let check = |file: &PathBuf, at: usize, what: &str| {
        let error = verify(&disk, &newest).expect_err(what);
        assert_named(&error, file, at, what);
        // Damage that is found without reading the items is reported in the same way by both.
        if at.is_multiple_of(16) {
            assert_eq!(load(&disk, &newest, tables.bytes().0).expect_err(what), error);
            assert_eq!(tables.bytes().0.live_bytes(), 0);
        }
    };
    for (file, bytes) in &files {
        for at in 0..bytes.len() {
            for bit in (at % apart..8).step_by(apart) {
                disk.edit(file, |bytes| bytes[at] ^= 1 << bit);
                check(file, at, &format!("byte {at} bit {bit}"));
                disk.edit(file, |bytes| bytes[at] ^= 1 << bit);
            }
            disk.edit(file, |bytes| bytes.truncate(at));
            check(file, at, &format!("cut at {at}"));
            disk.edit(file, |now| *now = bytes.clone());
        }
        disk.delete(file);
        check(file, 0, &format!("{} deleted", file.display()));
        disk.restore(file, bytes.clone());
    }
    disk.edit(&newest, |bytes| bytes.push(0));
    check(&newest, files[0].1.len().max(1 << 20), "a byte more");
    disk.edit(&newest, |bytes| _ = bytes.pop());
    verify(&disk, &newest).unwrap();
}

#[test]
fn a_segment_in_the_place_of_another_is_found() {
    let (before, _) = small();
    fill(&before, 0);
    let disk = FakeDisk::default();
    let newest = tight(&disk).save(&before, NOW).unwrap().path;
    let segments: Vec<_> = disk.files().into_iter().filter(|(path, _)| *path != newest).collect();
    let (file, other) = (&segments[0].0, &segments[1].1);
    disk.edit(file, |bytes| bytes.clone_from(other));
    assert_named(&verify(&disk, &newest).unwrap_err(), file, 0, "another segment");
    // Nor does an older state of the same segment pass, whole as it is.
    let (others, _) = small();
    fill(&others, 1);
    let elsewhere = FakeDisk::default();
    tight(&elsewhere).save(&others, NOW).unwrap();
    let older = elsewhere.files().into_iter().find(|(path, _)| path == file).unwrap().1;
    disk.edit(file, |bytes| bytes.clone_from(&older));
    assert_named(&verify(&disk, &newest).unwrap_err(), file, older.len(), "an older segment");
}

/// The sections of a manifest as its format describes them: where each one's payload is.
fn payloads(manifest: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut at, mut all) = (12, Vec::new());
    while at < manifest.len() {
        let length = u64::from_le_bytes(manifest[at + 4..at + 12].try_into().unwrap()) as usize;
        all.push(at + 12..at + 12 + length);
        at += 12 + length + 4;
    }
    all
}

#[test]
fn a_manifest_that_is_whole_but_makes_no_sense_is_refused_without_a_panic() {
    let (before, all) = small();
    fill(&before, 0);
    let disk = FakeDisk::default();
    let path = tight(&disk).save(&before, NOW).unwrap().path;
    let whole = disk.files().into_iter().find(|(file, _)| *file == path).unwrap().1;
    let (mut refused, mut taken) = (0, 0);
    for (number, payload) in payloads(&whole).into_iter().enumerate() {
        for at in payload.clone() {
            for value in [1, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                disk.edit(&path, |bytes| *bytes = sealed(changed, number, &payload));
                let (tables, _) = tables(all.clone());
                let outcome = load(&disk, &path, tables.bytes().0).and_then(|loaded| loaded.restore(&tables, NOW));
                match outcome {
                    Ok(_) => {
                        taken += 1;
                        // Every cell of what was taken is there.
                        all_contents(&tables);
                    }
                    Err(_) => {
                        refused += 1;
                        assert_eq!(tables.bytes().0.live_bytes(), 0);
                    }
                }
            }
        }
    }
    // Most of the bytes are priorities, counts and times, of which one is as good as another.
    assert!(refused > 500 && taken > 500, "{refused} refused, {taken} taken");
}

/// The manifest with a section's bytes changed, and its CRC made right again.
fn sealed(mut manifest: Vec<u8>, number: usize, payload: &std::ops::Range<usize>) -> Vec<u8> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&(number as u64).to_le_bytes());
    crc.update(&manifest[payload.start - 12..payload.end]);
    manifest[payload.end..payload.end + 4].copy_from_slice(&crc.finalize().to_le_bytes());
    manifest
}

#[test]
fn a_priority_that_is_no_finite_number_is_refused_as_damage_where_the_rest_of_the_manifest_is_whole() {
    let (before, all) = small();
    let mut rows = Rows::new(&before);
    let priority = 12_345.678_f64;
    insert(&before, "rows", [(rows.item(1.0), priority)]);
    let disk = FakeDisk::default();
    let path = tight(&disk).save(&before, NOW).unwrap().path;
    let whole = disk.files().into_iter().find(|(file, _)| *file == path).unwrap().1;
    let at = whole.windows(8).position(|bytes| bytes == priority.to_le_bytes()).expect("it is there");
    let (number, payload) = payloads(&whole).into_iter().enumerate().find(|(_, of)| of.contains(&at)).unwrap();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.5] {
        let mut changed = whole.clone();
        changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
        disk.edit(&path, |bytes| *bytes = sealed(changed, number, &payload));
        let (tables, _) = tables(all.clone());
        match load(&disk, &path, tables.bytes().0) {
            Ok(_) => assert_eq!(value, -1.5, "a queue takes negative priorities"),
            Err(Error::DamagedFile { what, .. }) => {
                assert!(
                    !value.is_finite() && what.contains(&format!("the invalid priority {value}")),
                    "{value}: {what}"
                );
            }
            Err(other) => panic!("{value}: {other}"),
        }
    }
}

#[test]
fn the_bytes_of_a_chunk_that_make_no_sense_are_refused_without_a_panic() {
    let (before, _) = small();
    fill(&before, 0);
    for name in ["rows", "steps"] {
        let cut = before.get(name).unwrap().cut();
        let (_, slot, _) = cut.iter().next().unwrap();
        let chunk = slot.item.as_ref().unwrap().chunks().next().unwrap().clone();
        let mut whole = Vec::new();
        chunk.save(&mut whole).unwrap();
        let meter = Arc::new(Meter::new());
        let mut refused = 0;
        let mut attempt = |bytes: &[u8]| {
            let read = Restorer::new(&meter).chunk(bytes).and_then(|chunk| chunk.read().map(|_| ()));
            refused += usize::from(read.is_err());
        };
        for at in 0..whole.len() {
            attempt(&whole[..at]);
            for value in [0, 1, 0x7f, 0xff, whole[at] ^ 1] {
                let mut changed = whole.clone();
                changed[at] = value;
                attempt(&changed);
            }
        }
        assert!(refused > whole.len(), "{refused} of {}", whole.len());
        assert_eq!(meter.live_bytes(), 0);
    }
}
