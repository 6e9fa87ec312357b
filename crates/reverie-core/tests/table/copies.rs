//! Items that are copied into another table when they are first sampled.

use super::support::{Rows, f64_of, options, queue, tables};
use reverie_core::Error;
use reverie_core::clock::{Clock, ManualClock};
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{CopyStats, InsertOnSample, MOST_WAITING, Priority, TableOptions, Tables};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn copying(table: TableOptions, target: &str, timeout: Option<Duration>) -> TableOptions {
    TableOptions { extensions: vec![InsertOnSample { target: target.to_owned(), timeout }], ..table }
}

fn insert(tables: &Arc<Tables>, table: &str, values: &[f64]) {
    let values = values.iter().copied();
    let mut rows = Rows::new(tables);
    let items = values.map(|value| (rows.item(value), Priority::Value(value))).collect();
    drop(tables.get(table).unwrap().insert(items).unwrap());
}

fn sample(tables: &Tables, table: &str, num_samples: usize) -> Draws {
    let request = SampleRequest { num_samples, ..Default::default() };
    let ticket = tables.get(table).unwrap().sample(request);
    ticket.unwrap().poll().expect("nothing holds it back").unwrap()
}

fn values(draws: &Draws) -> Vec<f64> {
    draws.items.iter().map(f64_of).collect()
}

fn copied(tables: &Tables, table: &str) -> CopyStats {
    tables.get(table).unwrap().info().copies[0]
}

fn size(tables: &Tables, table: &str) -> u64 {
    tables.get(table).unwrap().info().size
}

#[test]
fn an_item_goes_into_the_other_table_when_it_is_sampled_first_and_under_its_own_key() {
    let source = TableOptions { sampler: SelectorOptions::Lifo, ..options("a", 10) };
    let (tables, _) = tables(vec![copying(source, "b", None), options("b", 10)]);
    insert(&tables, "b", &[9.0]);
    insert(&tables, "a", &[1.0, 2.0]);
    let bytes = tables.bytes().0.live_bytes();
    let first = sample(&tables, "a", 3);
    assert_eq!((values(&first), &*first.times_sampled), (vec![2.0; 3], &[1, 2, 3][..]));
    assert_eq!(copied(&tables, "a"), CopyStats { inserted: 1, dropped: 0, waiting: 0 });
    assert_eq!(tables.bytes().0.live_bytes(), bytes, "the steps are shared");
    let b = tables.get("b").unwrap();
    let key = first.keys[0].get();
    let found = b.get(&[key]).unwrap();
    assert_eq!((values(&found), found.times_sampled[0], found.priorities[0]), (vec![2.0], 1, 2.0));
    // Only the copy is updated.
    assert_eq!(b.update(&[key], &[7.0], None).unwrap().applied, 1);
    assert_eq!(tables.get("a").unwrap().get(&[key]).unwrap().priorities[0], 2.0);
    let info = b.info();
    assert_eq!((info.counters.inserts, info.counters.samples, info.stats.sampled_present), (2, 0, 1));
    assert_eq!(b.query(&Default::default()).unwrap().keys[1].get(), key);
    b.delete(&[sample(&tables, "b", 1).keys[0].get()]).unwrap();
    let again = sample(&tables, "b", 1);
    assert_eq!((again.keys[0].get(), again.times_sampled[0], again.priorities[0]), (key, 2, 7.0));
    // The item counts as sampled when it is copied, and its first draw here does not count it again.
    assert_eq!(b.delete(&[key]).unwrap().applied, 1);
    assert_eq!(b.update(&[key], &[1.0], None).unwrap().stale, 1);
    assert_eq!((size(&tables, "b"), b.info().stats.sampled_present), (0, 0));
    insert(&tables, "b", &[3.0]);
    assert_eq!(b.update(&[key], &[1.0], None).unwrap().stale, 1, "the slot's next tenant has another key");
}

#[test]
fn a_consumed_item_lives_on_in_the_other_table() {
    let (tables, _) = tables(vec![copying(queue("q", 4), "replay", Some(Duration::ZERO)), options("replay", 3)]);
    for round in 0..5 {
        insert(&tables, "q", &[f64::from(round)]);
        sample(&tables, "q", 1);
    }
    assert_eq!(size(&tables, "q"), 0);
    assert_eq!(copied(&tables, "q").inserted, 5);
    let replay = tables.get("replay").unwrap();
    let keys: Vec<i64> = replay.query(&Default::default()).unwrap().keys.iter().map(|key| key.get()).collect();
    assert_eq!(values(&replay.get(&keys).unwrap()), [2.0, 3.0, 4.0], "its own remover bounds it");
    replay.reset().unwrap();
    assert_eq!(tables.bytes().0.live_chunks(), 0, "nothing is left behind");
}

#[test]
fn a_copy_that_is_held_back_waits_for_its_time_and_is_dropped_and_counted_then() {
    let (tables, clock) = tables(vec![copying(options("a", 10), "q", Some(SECOND)), queue("q", 1)]);
    insert(&tables, "a", &[1.0]);
    sample(&tables, "a", 1);
    let a = tables.get("a").unwrap();
    for value in [2.0, 3.0] {
        let keys: Vec<i64> = a.query(&Default::default()).unwrap().keys.iter().map(|key| key.get()).collect();
        a.delete(&keys).unwrap();
        insert(&tables, "a", &[value]);
        sample(&tables, "a", 1);
        clock.advance(SECOND / 4);
    }
    assert_eq!(copied(&tables, "a"), CopyStats { inserted: 1, dropped: 0, waiting: 2 });
    assert_eq!(tables.get("q").unwrap().info().pending_inserts, 2);
    // Room for one: the first goes in as if it had always been there.
    assert_eq!(values(&sample(&tables, "q", 1)), [1.0]);
    assert_eq!(copied(&tables, "a"), CopyStats { inserted: 2, dropped: 0, waiting: 1 });
    clock.advance(SECOND);
    assert_eq!(copied(&tables, "a"), CopyStats { inserted: 2, dropped: 1, waiting: 0 });
    assert_eq!(tables.get("q").unwrap().info().pending_inserts, 0);
    assert!(tables.get("q").unwrap().why().inserts.is_empty());
    assert_eq!(values(&sample(&tables, "q", 1)), [2.0]);
    assert_eq!(size(&tables, "q"), 0, "what is late does not go in");
    a.reset().unwrap();
    assert_eq!(copied(&tables, "a"), CopyStats::default());
}

#[test]
fn inserts_behind_a_late_copy_are_not_held_back_by_it() {
    let (tables, clock) = tables(vec![copying(options("a", 10), "q", Some(SECOND)), queue("q", 1)]);
    insert(&tables, "q", &[1.0]);
    insert(&tables, "a", &[2.0]);
    sample(&tables, "a", 1);
    insert(&tables, "q", &[3.0]);
    clock.advance(2 * SECOND);
    assert_eq!(values(&sample(&tables, "q", 1)), [1.0]);
    assert_eq!(values(&sample(&tables, "q", 1)), [3.0]);
    assert_eq!(copied(&tables, "a"), CopyStats { inserted: 0, dropped: 1, waiting: 0 });
}

#[test]
fn no_more_copies_wait_than_are_allowed_and_a_timeout_of_zero_lets_none_wait() {
    for (timeout, waiting) in [(None, MOST_WAITING), (Some(Duration::ZERO), 0)] {
        let source = TableOptions { sampler: SelectorOptions::Fifo, ..queue("a", 5000) };
        let (tables, _) = tables(vec![copying(source, "q", timeout), queue("q", 1)]);
        let many = MOST_WAITING + 10;
        insert(&tables, "a", &(0..many).map(|n| n as f64).collect::<Vec<_>>());
        sample(&tables, "a", many as usize);
        let dropped = many - 1 - waiting;
        assert_eq!(copied(&tables, "a"), CopyStats { inserted: 1, dropped, waiting }, "{timeout:?}");
        tables.close();
        assert_eq!(copied(&tables, "a"), CopyStats { inserted: 1, dropped: many - 1, waiting: 0 }, "{timeout:?}");
    }
}

#[test]
fn a_copy_that_the_other_table_refuses_is_dropped_and_the_sample_goes_on() {
    let target = TableOptions { sampler: SelectorOptions::Prioritized { exponent: 1.0 }, ..options("b", 10) };
    let (tables, _) = tables(vec![copying(options("a", 10), "b", None), target]);
    insert(&tables, "a", &[-1.0]);
    assert_eq!(values(&sample(&tables, "a", 1)), [-1.0]);
    assert_eq!(copied(&tables, "a"), CopyStats { inserted: 0, dropped: 1, waiting: 0 });
}

#[test]
fn extensions_that_can_never_work_are_refused_by_name() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let refused = |all: Vec<TableOptions>| match Tables::new(all, None, &clock, 7) {
        Err(Error::InvalidArgument(reason)) => reason,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was taken"),
    };
    let to = |name: &str, target: &str| copying(options(name, 10), target, None);
    assert!(refused(vec![to("a", "c"), options("b", 10)]).contains("which has 'a', 'b'"));
    assert!(refused(vec![to("a", "a")]).contains("leads back"));
    assert!(refused(vec![to("a", "b"), to("b", "c"), to("c", "a")]).contains("leads back"));
    let mut twice = to("a", "b");
    twice.extensions.push(InsertOnSample { target: "b".to_owned(), timeout: Some(SECOND) });
    assert!(refused(vec![twice, options("b", 10)]).contains("twice"));
    assert!(Tables::new(vec![to("a", "b"), to("b", "c"), options("c", 1)], None, &clock, 7).is_ok());
}

#[test]
fn a_waiting_sample_of_the_other_table_is_served_by_a_copy() {
    let (tables, _) = tables(vec![copying(options("a", 10), "b", None), options("b", 10)]);
    let mut waiting = tables.get("b").unwrap().sample(SampleRequest { num_samples: 2, ..Default::default() }).unwrap();
    insert(&tables, "a", &[4.0]);
    assert!(waiting.poll().is_none());
    let key = sample(&tables, "a", 1).keys[0];
    let served = waiting.poll().expect("the copy is there").unwrap();
    assert_eq!((served.keys[1], &*served.times_sampled), (key, &[2, 3][..]));
}

#[test]
fn an_insert_behind_a_copy_has_the_time_when_the_copy_is_dropped_and_no_other_insert_waits_for_time() {
    let (tables, clock) = tables(vec![copying(options("a", 10), "b", Some(SECOND)), queue("b", 1)]);
    let b = tables.get("b").unwrap();
    insert(&tables, "a", &[1.0]);
    insert(&tables, "b", &[2.0, 3.0]);
    assert_eq!(b.drops_late_in(), None);
    drop(sample(&tables, "a", 1));
    insert(&tables, "b", &[4.0]);
    assert_eq!((b.drops_late_in(), b.info().pending_inserts), (Some(SECOND), 3));
    clock.advance(SECOND / 4);
    assert_eq!(b.drops_late_in(), Some(SECOND * 3 / 4));
    clock.advance(SECOND);
    assert_eq!(b.drops_late_in(), Some(Duration::ZERO));
    assert_eq!((b.info().pending_inserts, b.drops_late_in()), (2, None));
}
