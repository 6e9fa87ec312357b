//! The time for which a table's lock is held for a request of very many draws, changes or items: the clock is read once
//! for each hold.

use super::support::{self, Rows, f64_of, options, queue};
use reverie_core::clock::Clock;
use reverie_core::sample::SampleRequest;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, MOST_REPORTED, Neighbours, SharedTable, TableOptions, Tables, Updates};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Default)]
struct Counting(AtomicUsize);

impl Clock for Counting {
    fn now(&self) -> Duration {
        self.0.fetch_add(1, Ordering::Relaxed);
        Duration::ZERO
    }
}

impl Counting {
    /// Holds of the lock while `act` runs.
    fn holds<R>(&self, act: impl FnOnce() -> R) -> (usize, R) {
        let before = self.0.load(Ordering::Relaxed);
        let result = act();
        (self.0.load(Ordering::Relaxed) - before, result)
    }
}

fn counted(options: TableOptions) -> (Arc<Counting>, Arc<Tables>, Arc<SharedTable>) {
    let clock = Arc::new(Counting::default());
    let as_clock: Arc<dyn Clock> = clock.clone();
    let tables = Arc::new(Tables::new(vec![options], None, &as_clock, 7).unwrap());
    let table = Arc::clone(tables.get("t").unwrap());
    (clock, tables, table)
}

fn numbers(n: u32) -> Vec<f64> {
    (0..n).map(f64::from).collect()
}

#[test]
fn a_table_that_becomes_much_smaller_lets_go_of_the_lock_in_between() {
    let (clock, tables, table) = counted(options("t", 100_000));
    let keys = table.insert(Rows::new(&tables).inserts(&numbers(50_000))).unwrap().poll().unwrap().unwrap();
    let smaller = |max_size| table.configure(Change { max_size: Some(max_size), ..Change::default() }).unwrap();
    assert_eq!(clock.holds(|| smaller(49_900)).0, 1);
    assert!(clock.holds(|| smaller(10)).0 > 10, "of some thousand items each");
    let info = table.info();
    assert_eq!((info.size, info.stats.evicted, info.counters.deletes), (10, 49_990, 49_990));
    let left: Vec<i64> = keys[49_990..].iter().map(|key| key.get()).collect();
    assert_eq!(table.get(&left).unwrap().len(), 10, "the remover chose, to the last");
    assert_eq!(info.bytes, tables.bytes().0.table_bytes());
}

#[test]
fn an_item_that_displaces_very_many_lets_go_of_the_lock_in_between() {
    let budget = 400_000;
    let (clock, tables, table) = counted(TableOptions { max_bytes: Some(budget), ..options("t", 100_000) });
    let mut rows = Rows::new(&tables);
    for value in 0..20_000 {
        let items = rows.inserts(&[f64::from(value)]);
        rows.close();
        table.insert(items).unwrap();
    }
    let before = table.info();
    assert!(before.bytes <= budget && before.size > 500, "{before:?}");
    let wide = support::leaf(reverie_core::spec::DType::UInt8, &[390_000]);
    let sink: Arc<dyn reverie_core::append::Sink> = tables.clone();
    let mut writer = reverie_core::append::RowWriter::new(sink, reverie_core::chunk::Compression::None, false);
    let cells = [reverie_core::append::ColumnCells { itemsize: 1, bytes: &[0; 390_000] }];
    let item = writer.append(&wide, &cells, 1).unwrap().remove(0);
    let items = std::iter::once((item, reverie_core::table::Priority::Value(1.0))).collect();
    let (holds, ticket) = clock.holds(|| table.insert(items).unwrap());
    assert!(ticket.is_done() && holds > 1, "{holds}");
    let after = table.info();
    assert!(after.bytes <= budget && after.size < before.size / 2, "{after:?}");
}

#[test]
fn very_many_inserts_that_may_go_in_at_once_let_go_of_the_lock_in_between_and_keep_their_order() {
    let (clock, tables, table) = counted(TableOptions { limiter: Limiter::rationed(), ..options("t", 100_000) });
    let mut rows = Rows::new(&tables);
    let mut tickets: Vec<_> =
        numbers(30_000).iter().map(|value| table.insert(rows.inserts(&[*value])).unwrap()).collect();
    assert_eq!(table.info().pending_inserts, 30_000);
    let limiter = Some(Limiter::min_size(1).unwrap());
    let (holds, ()) = clock.holds(|| table.configure(Change { limiter, ..Change::default() }).unwrap());
    assert!(holds > 5, "of some thousand items each, not {holds}");
    assert_eq!((table.info().pending_inserts, table.info().size), (0, 30_000));
    let keys: Vec<i64> =
        tickets.iter_mut().map(|ticket| ticket.poll().expect("it went in").unwrap()[0].get()).collect();
    let items = table.get(&keys).unwrap().items;
    assert_eq!(items.iter().map(f64_of).collect::<Vec<_>>(), numbers(30_000));
    let drawn = table.sample(SampleRequest { num_samples: 1, ..Default::default() }).unwrap().poll().unwrap().unwrap();
    assert_eq!(f64_of(&drawn.items[0]), 0.0, "the oldest is the one that came first");
}

#[test]
fn the_first_of_very_many_waiting_requests_are_listed_and_all_are_counted() {
    let (_, tables, table) = counted(queue("t", 1));
    let mut rows = Rows::new(&tables);
    let most = MOST_REPORTED as u64;
    let _tickets: Vec<_> = (0..most + 500).map(|_| table.insert(rows.inserts(&[1.0, 1.0])).unwrap()).collect();
    let why = table.why();
    assert_eq!((why.num_inserts, why.inserts.len() as u64, why.num_samples), (most + 500, most, 0));
    assert_eq!((why.inserts[0].done, why.inserts[1].done), (1, 0));
    assert!(why.to_string().contains(&format!(" {} inserts waiting", most + 500)), "{why}");
    let request = SampleRequest { num_samples: 10 * MOST_REPORTED, ..Default::default() };
    let _samples: Vec<_> = (0..most + 7).map(|_| table.sample(request).unwrap()).collect();
    let why = table.why();
    assert_eq!((why.num_samples, why.samples.len() as u64), (most + 7, most));
}

#[test]
fn the_neighbours_of_very_many_items_are_raised_in_parts_and_come_out_as_at_once() {
    let sampler = SelectorOptions::MaxHeap;
    let (clock, tables, table) = counted(TableOptions { sampler, ..options("t", 100_000) });
    let mut rows = Rows::new(&tables);
    let keys = table.insert(rows.inserts(&numbers(3_000))).unwrap().poll().unwrap().unwrap();
    let keys: Vec<i64> = keys.iter().map(|key| key.get()).collect();
    let priorities: Vec<f64> = (0..3_000_u32).map(|at| f64::from(at * 7919 % 1_000)).collect();
    let neighbours = Some(Neighbours::new(200, 0.99).unwrap());
    let updates = Updates { keys: &keys, priorities: &priorities, if_version: Some(&[0; 3_000]), neighbours };
    let (holds, updated) = clock.holds(|| table.mutate(&updates, &[]).unwrap().0);
    assert_eq!((updated.applied, updated.stale), (3_000, 0));
    assert!(holds > 20, "of some eighty items each, not {holds}");
    let found = table.get(&keys).unwrap().priorities;
    for (at, priority) in found.iter().enumerate() {
        let behind = (1..=200_usize.min(2_999 - at)).map(|i| priorities[at + i] * 0.99_f64.powi(i as i32));
        let wanted = behind.fold(priorities[at], f64::max);
        assert!((priority - wanted).abs() < 1e-9, "{at}: {priority}, not {wanted}");
    }
    let stale = Updates { if_version: Some(&[9; 3_000]), ..updates };
    assert_eq!(table.mutate(&stale, &[]).unwrap().0.stale, 3_000);
    assert_eq!(table.get(&keys).unwrap().priorities, found, "nothing was updated, and nothing raised");
}

#[test]
fn a_request_for_very_many_draws_lets_go_of_the_lock_in_between() {
    let clock = Arc::new(Counting::default());
    let as_clock: Arc<dyn Clock> = clock.clone();
    let tables = Arc::new(Tables::new(vec![options("t", 10)], None, &as_clock, 7).unwrap());
    let table = tables.get("t").unwrap();
    table.insert(Rows::new(&tables).inserts(&[1.0, 2.0])).unwrap();
    let holds = |num_samples| {
        let before = clock.0.load(Ordering::Relaxed);
        let mut ticket = table.sample(SampleRequest { num_samples, ..Default::default() }).unwrap();
        let draws = ticket.poll().expect("nothing holds it back").unwrap();
        assert_eq!(draws.len(), num_samples);
        assert!(draws.times_sampled.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order, and each counted once");
        clock.0.load(Ordering::Relaxed) - before
    };
    assert_eq!(holds(1_000), 1);
    assert!((6..=13).contains(&holds(200_000)), "of at most 2^15 draws each");
}

#[test]
fn a_request_that_waits_for_many_inserts_is_served_in_order_when_they_come() {
    let (tables, _) = support::tables(vec![queue("q", 100_000)]);
    let table = tables.get("q").unwrap();
    let request = |num_samples| SampleRequest { num_samples, ..Default::default() };
    let mut first = table.sample(request(40_000)).unwrap();
    let mut second = table.sample(request(10)).unwrap();
    let values: Vec<f64> = (0..40_010).map(f64::from).collect();
    table.insert(Rows::new(&tables).inserts(&values)).unwrap();
    let taken = |ticket: &mut reverie_core::table::Ticket<reverie_core::sample::Draws>| -> Vec<f64> {
        ticket.poll().expect("it was served").unwrap().items.iter().map(f64_of).collect()
    };
    assert_eq!(taken(&mut first), values[..40_000]);
    assert_eq!(taken(&mut second), values[40_000..]);
}
