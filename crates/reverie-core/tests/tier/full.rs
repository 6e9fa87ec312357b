//! Tables that evict an item for each insert, while the files have all of `disk_bytes`.

use super::shared::options;
use super::tables::{ITEM, Writer, done, tables};
use super::tiers::{self, Temporary};
use reverie_core::checkpoint::LocalFileSystem;
use reverie_core::chunk::TierOptions;
use reverie_core::error::Error;
use reverie_core::table::TableOptions;
use reverie_core::table::selector::SelectorOptions;

const MEMORY: u64 = 8 * ITEM as u64;

/// Inserts items into a table of `max_size`, with a disk for so many; gives the refusal where there was one, how many
/// went in, and the most memory held.
fn exchanged(max_size: u64, disk: u64, remover: SelectorOptions, max_bytes: Option<u64>) -> (Option<Error>, u64, u64) {
    let (folder, items) = (Temporary::new(), 2 * max_size + 400);
    let limits = TierOptions {
        disk_bytes: Some(disk * ITEM as u64),
        compaction_bytes_per_second: 0,
        ..tiers::options(&folder, MEMORY)
    };
    let table = TableOptions { remover, ..options("t", max_size) };
    let tables = tables(vec![table], limits, std::sync::Arc::new(LocalFileSystem), max_bytes);
    let (table, mut writer, mut most) = (tables.get("t").unwrap().clone(), Writer::new(&tables), 0);
    let refused = (0..items).find_map(|number| {
        let outcome = done(table.insert(writer.inserts(number)));
        most = most.max(tables.bytes().0.table_memory());
        outcome.err()
    });
    (refused, table.info().counters.inserts, most)
}

#[test]
fn a_full_table_that_memory_and_disk_have_room_for_exchanges_items_within_its_memory() {
    // A file's worth is left for compaction, and up to a twentieth of the files may be of chunks that are gone.
    for remover in [SelectorOptions::Fifo, SelectorOptions::Uniform] {
        let (refused, _, most) = exchanged(56, 64, remover, None);
        assert!(refused.is_none() && most <= MEMORY, "{remover:?}: {most} bytes of {MEMORY}, {refused:?}");
    }
}

#[test]
fn a_full_table_for_which_the_disk_has_too_little_room_is_refused_and_exceeds_no_memory() {
    // All of its items have room, but what is evicted is spread over all files, too little of each to compact it.
    for max_bytes in [None, Some(478 * ITEM as u64)] {
        let (refused, inserted, most) = exchanged(478, 512, SelectorOptions::Uniform, max_bytes);
        assert!(inserted >= 470 && most <= MEMORY, "{inserted} inserts, {most} bytes of {MEMORY}");
        let refused = refused.expect("an insert is refused");
        assert!(matches!(&refused, Error::ResourceExhausted { .. }), "{refused}");
        assert_eq!(max_bytes.is_none(), refused.to_string().contains("disk_bytes"), "{refused}");
    }
}
