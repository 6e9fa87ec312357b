//! Sections of a manifest that are whole and have impossible values: each is refused with its reason.

use super::support::disk::FakeDisk;
use super::support::saving::{KEEP, contents, insert, over, restore, save, store};
use super::support::{Rows, options, tables};
use reverie_core::append::next_episode;
use reverie_core::checkpoint::load;
use reverie_core::sample::SampleRequest;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{InsertOnSample, TableOptions, Tables};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The first section of that tag: its number, and where its payload is.
fn section(manifest: &[u8], tag: &[u8; 4]) -> (u64, Range<usize>) {
    let (mut at, mut number) = (12, 0);
    loop {
        let length = u64::from_le_bytes(manifest[at + 4..at + 12].try_into().unwrap()) as usize;
        let payload = at + 12..at + 12 + length;
        if &manifest[at..at + 4] == tag {
            return (number, payload);
        }
        (at, number) = (payload.end + 4, number + 1);
    }
}

/// Refuses the manifest once these bytes of the section's payload are others, with a checksum that fits.
fn refused(disk: &FakeDisk, path: &Path, tag: &[u8; 4], changes: &[(usize, &[u8])], words: &str) {
    let disk = disk.copy();
    disk.edit(path, |manifest| {
        let (number, payload) = section(manifest, tag);
        for (at, bytes) in changes {
            manifest[payload.start + at..][..bytes.len()].copy_from_slice(bytes);
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&number.to_le_bytes());
        crc.update(&manifest[payload.start - 12..payload.end]);
        manifest[payload.end..payload.end + 4].copy_from_slice(&crc.finalize().to_le_bytes());
    });
    match load(&disk, path, &Arc::default()) {
        Ok(_) => panic!("{changes:?} was taken"),
        Err(error) => assert!(error.to_string().contains(words), "{error}"),
    }
}

#[test]
fn copies_of_other_tables_items_are_of_present_items_in_order_and_have_keys_of_their_own() {
    let copying = InsertOnSample { target: "b".to_owned(), timeout: None };
    let a = TableOptions { sampler: SelectorOptions::Lifo, extensions: vec![copying], ..options("a", 10) };
    let all = vec![a, options("b", 10)];
    let (tables, _) = tables(all);
    let mut rows = Rows::new(&tables);
    insert(&tables, "b", [(rows.item(9.0), 1.0)]);
    for value in [1.0, 2.0] {
        insert(&tables, "a", [(rows.item(value), 1.0)]);
        drop(tables.get("a").unwrap().sample(SampleRequest { num_samples: 1, ..Default::default() }).unwrap());
    }
    let b = tables.get("b").unwrap();
    // The first of the slots 0 to 2 is free.
    let own = b.cut().iter().next().map(|(slot, ..)| b.cut().key(slot, 0)).unwrap();
    assert_eq!(b.delete(&[own.get()]).unwrap().applied, 1);
    let disk = FakeDisk::default();
    let path = save(&store(&disk, KEEP), &tables).path;
    let whole = disk.files().into_iter().find(|(file, _)| *file == path).unwrap().1;
    // The table, how many; slot and key of each.
    let payload = &whole[section(&whole, b"copy").1];
    let (first, second) = (8, 20);
    assert_eq!(payload[4..first + 4], [2, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(payload[second..second + 4], [2, 0, 0, 0]);
    let (slot_of_second, key_of_second) = (&payload[second..second + 4], &payload[second + 4..]);
    let refused =
        |at, bytes: &[u8]| refused(&disk, &path, b"copy", &[(at, bytes)], "of table 'b' is invalid: a copy needs");
    refused(first, &[0; 4]);
    refused(first, slot_of_second);
    refused(first + 4, key_of_second);
    refused(first + 11, &[0x80]);
    load(&disk, &path, &Arc::default()).unwrap();
}

/// Four items of three episodes: two of these over several.
fn of_episodes() -> (Arc<Tables>, Vec<TableOptions>) {
    let all = vec![options("t", 10)];
    let (tables, _) = tables(all.clone());
    let (mut rows, [a, b, c]) = (Rows::new(&tables), std::array::from_fn(|_| next_episode()));
    for (value, episode, further) in [(1.0, a, &[][..]), (2.0, a, &[b, c]), (3.0, b, &[]), (4.0, b, &[c])] {
        insert(&tables, "t", [(over(&mut rows, value, episode, further), 1.0)]);
    }
    (tables, all)
}

#[test]
fn further_episodes_of_an_item_come_back_and_count_until_their_last_item_is_gone() {
    let (before, all) = of_episodes();
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &before);
    let (after, _) = restore(&disk, all);
    assert_eq!(contents(&after, "t"), contents(&before, "t"));
    for tables in [&before, &after] {
        let t = tables.get("t").unwrap();
        let counted = |key: Option<i64>| {
            t.delete(key.as_slice()).unwrap();
            let info = t.info();
            (info.num_episodes, info.stats.deleted_episodes)
        };
        let keys: Vec<i64> = t.cut().iter().map(|(slot, ..)| t.cut().key(slot, 0).get()).collect();
        assert_eq!(counted(None), (3, 0));
        assert_eq!([1, 0, 3, 2].map(|item| counted(Some(keys[item]))), [(3, 0), (2, 1), (1, 2), (0, 3)]);
    }
}

#[test]
fn episodes_are_of_runs_that_there_are_in_their_order() {
    let (before, _) = of_episodes();
    let disk = FakeDisk::default();
    let path = save(&store(&disk, KEEP), &before).path;
    let whole = disk.files().into_iter().find(|(file, _)| *file == path).unwrap().1;
    let payload = &whole[section(&whole, b"epis").1];
    // How many; the first's run, how many, which; the second's run.
    let (first, episode, second) = (4, 12, 20);
    assert_eq!(payload[..12], [2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(payload[second..second + 8], [3, 0, 0, 0, 1, 0, 0, 0]);
    let refused = |changes: &[(usize, &[u8])], words| refused(&disk, &path, b"epis", changes, words);
    refused(&[(second, &[4])], "episodes are unsorted, or refer to a run that does not exist");
    refused(&[(first, &[3])], "episodes are unsorted, or refer to a run that does not exist");
    refused(&[(episode, &[0; 4])], "refers to an episode that does not exist");
    load(&disk, &path, &Arc::default()).unwrap();
}
