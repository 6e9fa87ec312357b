//! Restores: what was in the tables comes back, and the tables' own configuration holds.

use super::support::disk::FakeDisk;
use super::support::saving::{KEEP, NOW, busy, contents, draw, insert, restore, save, store, write_steps};
use super::support::{Rows, bounded_tables, f64_of, options, queue, row_of, tables};
use reverie_core::append::next_episode;
use reverie_core::checkpoint::{Difference, Store, load, verify};
use reverie_core::chunk::Compression;
use reverie_core::clock::ManualClock;
use reverie_core::item::{self, Item};
use reverie_core::journal::Saver;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::{ColumnSignature, DType, Signature, Structure};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Keys, SentInsert, TableOptions, Tables};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn every_table_comes_back_with_its_items_keys_counts_and_bytes() {
    let (tables, all) = busy();
    let disk = FakeDisk::default();
    let saved = save(&store(&disk, KEEP), &tables);
    assert_eq!(saved.items, tables.iter().map(|table| table.info().size).sum::<u64>());
    let (restored, differences) = restore(&disk, all.clone());
    assert_eq!(differences, []);
    for options in &all {
        assert_eq!(contents(&restored, &options.name), contents(&tables, &options.name), "{}", options.name);
    }
    let want = verify(&disk, &saved.path).unwrap();
    assert_eq!((want.items, want.chunks, want.bytes), (saved.items, saved.chunks, saved.written));
    // Both go on alike where nothing is random.
    for name in ["queue", "heaps"] {
        assert_eq!(draw(&restored, name, 1), draw(&tables, name, 1), "{name}");
    }
}

#[test]
fn a_table_restored_as_a_queue_awaits_one_draw_of_each_item_that_it_holds() {
    for num_draws in [0, 30] {
        let (before, _) = tables(vec![options("t", 4)]);
        let mut rows = Rows::new(&before);
        let table = before.get("t").unwrap();
        (0..20).for_each(|value| assert!(table.insert(rows.inserts(&[f64::from(value)])).unwrap().is_done()));
        (0..num_draws).for_each(|_| _ = draw(&before, "t", 1));
        let disk = FakeDisk::default();
        save(&store(&disk, KEEP), &before);
        let (after, _) = restore(&disk, vec![queue("t", 4)]);
        let (table, mut rows) = (after.get("t").unwrap(), Rows::new(&after));
        let ticket = table.insert(rows.inserts(&[20.0])).unwrap();
        assert!(!ticket.is_done(), "after {num_draws} draws an insert evicts an item that was not drawn");
        assert_eq!(draw(&after, "t", 4).len(), 4);
        assert!(ticket.is_done() && table.insert(rows.inserts(&[21.0, 22.0, 23.0])).unwrap().is_done());
    }
}

#[test]
fn a_restored_item_counts_as_the_largest_of_its_table_at_the_servers_limit() {
    let all = vec![options("a", 1), options("b", 5)];
    let (before, _) = tables(all.clone());
    assert!(before.get("a").unwrap().insert(row_of(&before, 90_000)).unwrap().is_done());
    let disk = FakeDisk::default();
    let saved = save(&store(&disk, KEEP), &before);
    let (after, _) = bounded_tables(all, Some(100_000));
    load(&disk, &saved.path, after.bytes().0).unwrap().restore(&after, NOW).unwrap();
    let full = after.get("b").unwrap();
    for bytes in [10, 9_000] {
        (0..5).for_each(|_| assert!(full.insert(row_of(&after, bytes)).unwrap().is_done()));
    }
    assert!(after.bytes().0.table_bytes() > 130_000);
}

#[test]
fn plain_chunks_come_back_plain_and_packed_ones_packed() {
    let (tables, all) = busy();
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &tables);
    let packed = |tables: &Tables, name: &str| {
        let cut = tables.get(name).unwrap().cut();
        let chunks =
            cut.iter().flat_map(|(_, slot, _)| slot.item.as_ref().unwrap().chunks().cloned().collect::<Vec<_>>());
        chunks.filter(|chunk| chunk.packed().is_some()).count()
    };
    let (restored, _) = restore(&disk, all);
    assert!(packed(&tables, "packed") > 0);
    assert_eq!(packed(&restored, "packed"), packed(&tables, "packed"));
    assert_eq!((packed(&tables, "per"), packed(&restored, "per")), (0, 0));
}

#[test]
fn the_room_of_an_open_chunk_that_holds_no_cell_yet_is_not_brought_back() {
    let all = vec![options("t", 10)];
    let (tables, _) = tables(all.clone());
    let writer = write_steps(&tables, "t", Compression::None, 1);
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &tables);
    drop(writer);
    let (restored, _) = restore(&disk, all);
    let (before, after) = (tables.get("t").unwrap().info().bytes, restored.get("t").unwrap().info().bytes);
    assert!(after + 3 * 512 <= before, "{after} of {before}: three steps of 512 bytes were not written");
    assert_eq!(contents(&restored, "t"), contents(&tables, "t"));
}

#[test]
fn bytes_go_when_the_restored_items_go() {
    let (tables, all) = busy();
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &tables);
    let (restored, _) = restore(&disk, all);
    restored.iter().for_each(|table| table.reset().unwrap());
    assert_eq!((restored.bytes().0.live_bytes(), restored.bytes().0.table_bytes()), (0, 0));
}

#[test]
fn ties_of_heaps_go_by_the_order_of_updates_and_fifo_by_that_of_insertions() {
    let heap = TableOptions { sampler: SelectorOptions::MaxHeap, ..options("heap", 9) };
    let all = vec![heap, queue("fifo", 9)];
    let (tables, _) = tables(all.clone());
    let mut rows = Rows::new(&tables);
    let heap_keys = insert(&tables, "heap", (0..5).map(|value| (rows.item(f64::from(value)), 1.0)));
    let fifo_keys = insert(&tables, "fifo", (0..5).map(|value| (rows.item(f64::from(value)), 1.0)));
    // Now 0 and 2 are the youngest among equals; in the queue an update changes nothing.
    for (name, keys) in [("heap", heap_keys), ("fifo", fifo_keys)] {
        tables.get(name).unwrap().update(&[keys[2], keys[0]], &[1.0, 1.0], None).unwrap();
    }
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &tables);
    let (restored, _) = restore(&disk, all);
    let mut order = Vec::new();
    while order.len() < 5 {
        let request = SampleRequest { num_samples: 1, ..Default::default() };
        let draws = restored.get("heap").unwrap().sample(request).unwrap().poll().unwrap().unwrap();
        order.push(f64_of(&draws.items[0]));
        restored.get("heap").unwrap().delete(&[draws.keys[0].get()]).unwrap();
    }
    assert_eq!(order, [1.0, 3.0, 4.0, 2.0, 0.0]);
    assert_eq!(draw(&restored, "fifo", 5), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn keys_that_were_given_out_after_the_checkpoint_are_stale_after_its_restore() {
    let all = vec![options("t", 10_000)];
    let (before, _) = tables(all.clone());
    let mut rows = Rows::new(&before);
    let kept = insert(&before, "t", (0..10).map(|value| (rows.item(f64::from(value)), 1.0)));
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &before);
    // Each slot has a next tenant, whose key is lost with the process.
    let reuse_slots = |tables: &Tables, rows: &mut Rows, keys: &[i64]| {
        tables.get("t").unwrap().delete(keys).unwrap();
        let mut found = Vec::new();
        while found.len() < keys.len() {
            let key = insert(tables, "t", [(rows.item(0.0), 1.0)])[0];
            tables.get("t").unwrap().delete(&[key]).unwrap();
            if keys.iter().any(|old| item::Key::from(*old).slot() == item::Key::from(key).slot()) {
                found.push(key);
            }
        }
        found.sort_unstable();
        found
    };
    let lost = reuse_slots(&before, &mut rows, &kept);
    let (after, _) = restore(&disk, all);
    let table = after.get("t").unwrap();
    assert_eq!(table.update(&kept, &[2.0; 10], None).unwrap().applied, 10, "keys of the checkpoint hold");
    assert_eq!(table.update(&lost, &[2.0; 10], None).unwrap().stale, 10);
    let new = reuse_slots(&after, &mut Rows::new(&after), &kept);
    let slots = |keys: &[i64]| {
        let mut slots: Vec<u32> = keys.iter().map(|key| item::Key::from(*key).slot()).collect();
        slots.sort_unstable();
        slots
    };
    assert_eq!(slots(&new), slots(&lost), "the same slots");
    assert!(new.iter().all(|key| !lost.contains(key) && !kept.contains(key)));
}

#[test]
fn the_tables_own_configuration_holds_and_every_difference_is_reported() {
    let (tables_before, _) = tables(vec![options("t", 100), options("gone", 5)]);
    let mut rows = Rows::new(&tables_before);
    insert(&tables_before, "t", (0..50).map(|value| (rows.item(f64::from(value)), f64::from(value))));
    insert(&tables_before, "gone", [(rows.item(1.0), 1.0)]);
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &tables_before);
    let other = TableOptions {
        max_size: 20,
        remover: SelectorOptions::MinHeap,
        limiter: Limiter::min_size(3).unwrap(),
        max_times_sampled: 2,
        max_bytes: Some(1 << 30),
        compression: Compression::Lz4,
        ..options("t", 20)
    };
    let (restored, differences) = restore(&disk, vec![other, options("new", 5)]);
    let left: Vec<f64> =
        restored.get("t").unwrap().cut().iter().map(|(_, slot, _)| f64_of(slot.item.as_ref().unwrap())).collect();
    assert_eq!(left, (30..50).map(f64::from).collect::<Vec<_>>(), "the smallest priorities went");
    let info = restored.get("t").unwrap().info();
    assert_eq!((info.counters.inserts, info.counters.deletes, info.stats.evicted), (50, 30, 30));
    let named = |name: &'static str| {
        differences.iter().any(|difference| matches!(difference, Difference::Option { option, .. } if *option == name))
    };
    for option in ["remover", "max_size", "rate_limiter", "max_times_sampled", "max_bytes", "compression"] {
        assert!(named(option), "{option}: {differences:?}");
    }
    assert!(!named("sampler") && !named("signature"));
    let limiter = differences.iter().map(Difference::to_string).find(|text| text.contains("rate_limiter")).unwrap();
    assert!(limiter.contains("rate_limiter is RateLimiter(1, 3, -inf, inf), the checkpoint's was"), "{limiter}");
    assert!(differences.contains(&Difference::NoTable { table: "gone".to_owned(), items: 1 }));
    assert!(differences.contains(&Difference::NotSaved { table: "new".to_owned() }));
    assert!(differences.contains(&Difference::Evicted { table: "t".to_owned(), items: 30 }));
    assert!(
        differences
            .iter()
            .any(|difference| difference.to_string() == "table 't': max_size is 20, the checkpoint's was 100")
    );
}

#[test]
fn a_servers_saver_restores_sets_the_clock_ahead_and_goes_on_from_the_files() {
    let (before, all) = busy();
    let disk = FakeDisk::default();
    let saver = |tables: &Arc<Tables>, now: Duration| {
        Saver::new(Arc::clone(tables), Arc::new(disk.clone()), store(&disk, KEEP), move || now)
    };
    let saved = saver(&before, NOW).save().unwrap();
    let (after, clock) = tables(all);
    let saver = saver(&after, NOW + Duration::from_secs(9));
    let mut ahead = None;
    assert_eq!((before.checkpoint_age(), after.checkpoint_age()), (Some(Duration::ZERO), None));
    let (summary, restored) = saver
        .restore(&saved.path, |by| {
            ahead = Some(by);
            clock.advance(by);
        })
        .unwrap();
    assert_eq!(after.checkpoint_age(), Some(Duration::from_secs(9)), "that of the restored one");
    assert_eq!((summary.number, ahead), (1, Some(Duration::from_secs(9))), "the tests' clocks stand at 0");
    assert_eq!(restored.tables.iter().map(|(_, size)| size).sum::<u64>(), saved.items);
    assert_eq!(saver.save().unwrap().new_chunks, 0);
    assert_eq!(after.checkpoint_age(), Some(Duration::ZERO));
}

#[test]
fn a_restore_that_one_table_refuses_leaves_all_of_them_empty() {
    let all = vec![options("a", 10), options("b", 10)];
    let (before, _) = tables(all.clone());
    let mut rows = Rows::new(&before);
    insert(&before, "a", [(rows.item(1.0), 1.0)]);
    insert(&before, "b", [(rows.item(1.0), -1.0)]);
    let disk = FakeDisk::default();
    let path = save(&store(&disk, KEEP), &before).path;
    let column = ColumnSignature { path: String::new(), dtype: DType::Int8, shape: vec![] };
    let signature = Some(Signature { columns: vec![column], structure: Structure::Leaf });
    let prioritized = SelectorOptions::Prioritized { exponent: 1.0 };
    for refusing in [
        TableOptions { sampler: prioritized, ..options("b", 10) },
        TableOptions { signature, ..options("b", 10) },
        TableOptions { shard: 3, ..options("b", 10) },
    ] {
        let (tables, _) = tables(vec![options("a", 10), refusing]);
        load(&disk, &path, tables.bytes().0).unwrap().restore(&tables, NOW).unwrap_err();
        assert!(tables.iter().all(|table| table.info().size == 0 && table.info().counters.inserts == 0));
        assert_eq!(tables.bytes().0.live_bytes(), 0);
    }
    // Nor does a table that is in use take anything in.
    let (used, _) = tables(all);
    insert(&used, "b", [(Rows::new(&used).item(5.0), 1.0)]);
    load(&disk, &path, used.bytes().0).unwrap().restore(&used, NOW).unwrap_err();
    assert_eq!(used.get("a").unwrap().info().size, 0);
}

#[test]
fn items_are_as_old_as_they_were_and_older_by_the_time_between() {
    let (before, clock) = tables(vec![options("t", 10)]);
    let mut rows = Rows::new(&before);
    clock.advance(Duration::from_secs(5));
    insert(&before, "t", [(rows.item(1.0), 1.0)]);
    clock.advance(Duration::from_secs(7));
    let disk = FakeDisk::default();
    let path = save(&store(&disk, KEEP), &before).path;
    let age = |ahead: bool| {
        let (after, clock): (_, Arc<ManualClock>) = tables(vec![options("t", 10)]);
        let checkpoint = load(&disk, &path, after.bytes().0).unwrap();
        let later = NOW + Duration::from_secs(100);
        assert_eq!(checkpoint.clock_at(later), Duration::from_secs(112));
        // If the machine's clock was set back meanwhile, no time counts as passed.
        assert_eq!(checkpoint.clock_at(NOW - Duration::from_secs(100)), Duration::from_secs(12));
        clock.advance(if ahead { Duration::from_secs(112) } else { Duration::from_secs(3) });
        checkpoint.restore(&after, later).unwrap();
        let cut = after.get("t").unwrap().cut();
        let (_, slot, _) = cut.iter().next().unwrap();
        after.now().as_secs() - slot.inserted_at / 1_000_000_000
    };
    assert_eq!(age(true), 107);
    assert_eq!(age(false), 3, "as old as the clock can tell");
}

#[test]
fn episodes_that_come_back_are_not_those_that_begin_afterwards() {
    let all = vec![options("t", 100)];
    let (before, _) = tables(all.clone());
    let mut rows = Rows::new(&before);
    // As a process has them that began more episodes than this one did: this one's next numbers.
    let ahead = next_episode();
    for episode in 1..=40 {
        for value in [1.0, 2.0] {
            let item = Item { episode: ahead + episode, ..rows.item(value) };
            insert(&before, "t", [(item, 1.0)]);
        }
    }
    let disk = FakeDisk::default();
    save(&store(&disk, KEEP), &before);
    let (after, _) = restore(&disk, all);
    assert_eq!(after.get("t").unwrap().info().num_episodes, 40);
    write_steps(&after, "t", Compression::None, 15);
    assert_eq!(after.get("t").unwrap().info().num_episodes, 42);
}

#[test]
fn the_record_of_inserts_that_may_be_sent_again_is_as_old_as_the_items() {
    the_record_of_inserts_that_may_be_sent_again(|store, tables| drop(save(store, tables)));
}

#[test]
fn the_record_of_inserts_that_waited_when_a_server_stopped_is_in_its_last_checkpoint() {
    the_record_of_inserts_that_may_be_sent_again(|store, tables| {
        tables.close();
        store.save_last(tables, NOW).unwrap();
    });
}

fn the_record_of_inserts_that_may_be_sent_again(save: impl Fn(&Store, &Tables)) {
    let sent = |sender: u8, number| SentInsert { sender: [sender; 16], number };
    let disk = FakeDisk::default();
    let (tables, _) = tables(vec![queue("q", 3)]);
    let (table, mut rows) = (tables.get("q").unwrap(), Rows::new(&tables));
    let mut insert = |items: &[f64], sent| table.insert_sent(rows.inserts(items), sent, Keys::new()).unwrap();
    let first = insert(&[1.0], sent(1, 4)).poll().unwrap().unwrap();
    let other = insert(&[1.0], sent(2, 4)).poll().unwrap().unwrap();
    insert(&[1.0], sent(1, 5));
    // Two of three wait for room; so do those of the other.
    let drawn = table.sample(SampleRequest { num_samples: 1, ..SampleRequest::default() }).unwrap();
    let mut part = insert(&[1.0, 1.0, 1.0], sent(1, 9));
    insert(&[1.0], sent(2, 7));
    assert!(part.poll().is_none());
    table.received(&[1; 16], 5, &[]);
    table.received(&[2; 16], 0, &[77]);
    tables.forgotten().add([3; 16]);
    save(&store(&disk, KEEP), &tables);
    // Changes after the cut are not in the checkpoint.
    table.received(&[2; 16], 9, &[]);
    drop(drawn);

    let (again, _) = restore(&disk, vec![queue("q", 3)]);
    let table = again.get("q").unwrap();
    let numbers = |sender: u8| table.arrivals(&[sender; 16]).into_iter().map(|(number, keys)| (number, keys.len()));
    assert_eq!(numbers(1).collect::<Vec<_>>(), [(5, 1), (9, 1)], "received, whole, in part");
    assert_eq!(table.arrivals(&[2; 16]), [(4, other)]);
    assert!(again.forgotten().has(&[3; 16]) && !again.forgotten().has(&[2; 16]));
    // The rest of the part comes in under its number, with the keys of all.
    let (_, keys) = table.arrivals(&[1; 16]).pop().unwrap();
    let mut rows = Rows::new(&again);
    let mut rest = table.insert_sent(rows.inserts(&[1.0, 1.0]), sent(1, 9), keys.clone()).unwrap();
    table.sample(SampleRequest { num_samples: 3, ..SampleRequest::default() }).unwrap();
    let all = rest.poll().unwrap().unwrap();
    assert_eq!((all.len(), all[0]), (3, keys[0]));
    assert_eq!(numbers(1).collect::<Vec<_>>(), [(5, 1), (9, 3)]);
    table.received(&[1; 16], 0, &[5, 9]);
    assert!(table.arrivals(&[1; 16]).is_empty());
    table.forget_sender(&[2; 16]);
    assert_eq!(table.senders(), [[1; 16]]);
    assert_ne!(first, all);
}
