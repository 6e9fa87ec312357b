//! The lock and the waiters under a model checker: thousands of thread schedules, each from a seed.
//! `cargo test -p reverie-core --features shuttle --test interleavings`
#![cfg(feature = "shuttle")]

mod support;

use reverie_core::append::{ColumnCells, RowWriter, Sink};
use reverie_core::chunk::Compression;
use reverie_core::item::Item;
use reverie_core::sample::SampleRequest;
use reverie_core::spec::DType;
use reverie_core::table::{Priority, SharedTable, Tables};
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;
use support::{Rows, bounded_tables, f64_of, leaf, options, queue, tables};

const SCHEDULES: usize = 2_000;

fn items(rows: &mut Rows, values: std::ops::Range<u32>) -> Vec<Item> {
    values.map(|value| rows.item(f64::from(value))).collect()
}

fn sample(n: usize) -> SampleRequest {
    SampleRequest { num_samples: n, ..Default::default() }
}

fn insert_all(table: &Arc<SharedTable>, items: Vec<Item>) {
    for item in items {
        let mut ticket = table.insert(smallvec::smallvec![(item, Priority::Value(1.0))]).unwrap();
        while ticket.wait(Duration::from_secs(1)).is_none() {}
    }
}

fn take(table: &Arc<SharedTable>, n: usize) -> Vec<f64> {
    let mut ticket = table.sample(sample(n)).unwrap();
    loop {
        if let Some(draws) = ticket.wait(Duration::from_secs(1)) {
            return draws.unwrap().items.iter().map(f64_of).collect();
        }
    }
}

#[test]
fn every_item_of_a_queue_is_taken_exactly_once_by_any_waiting_request() {
    shuttle::check_random(
        || {
            let (tables, _) = tables(vec![queue("q", 2)]);
            let table = Arc::clone(tables.get("q").unwrap());
            let mut rows = Rows::new(&tables);
            let producers: Vec<_> = [0..3, 3..6]
                .into_iter()
                .map(|range| {
                    let (table, items) = (Arc::clone(&table), items(&mut rows, range));
                    thread::spawn(move || insert_all(&table, items))
                })
                .collect();
            let consumers: Vec<_> = (0..2)
                .map(|_| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || (0..3).flat_map(|_| take(&table, 1)).collect::<Vec<f64>>())
                })
                .collect();
            producers.into_iter().for_each(|thread| thread.join().unwrap());
            let mut taken: Vec<f64> = consumers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            taken.sort_by(f64::total_cmp);
            assert_eq!(taken, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        },
        SCHEDULES,
    );
}

#[test]
fn a_request_that_is_cancelled_while_it_completes_loses_no_item() {
    shuttle::check_random(
        || {
            let (tables, _) = tables(vec![queue("q", 4)]);
            let table = Arc::clone(tables.get("q").unwrap());
            let mut rows = Rows::new(&tables);
            let items = items(&mut rows, 0..3);
            let ticket = table.sample(sample(3)).unwrap();
            let producer = {
                let table = Arc::clone(&table);
                thread::spawn(move || insert_all(&table, items))
            };
            let mut taken: Vec<f64> = ticket.cancel().unwrap().items.iter().map(f64_of).collect();
            producer.join().unwrap();
            taken.extend(take(&table, 3 - taken.len()));
            assert_eq!(taken, [0.0, 1.0, 2.0]);
        },
        SCHEDULES,
    );
}

#[test]
fn closing_wakes_every_waiting_request() {
    shuttle::check_random(
        || {
            let (tables, _) = tables(vec![queue("q", 4)]);
            let table = Arc::clone(tables.get("q").unwrap());
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let table = Arc::clone(&table);
                    thread::spawn(move || {
                        let Ok(mut ticket) = table.sample(sample(1)) else { return };
                        loop {
                            if let Some(outcome) = ticket.wait(Duration::from_secs(1)) {
                                assert!(outcome.is_err());
                                return;
                            }
                        }
                    })
                })
                .collect();
            tables.close();
            waiters.into_iter().for_each(|thread| thread.join().unwrap());
        },
        SCHEDULES,
    );
}

#[test]
fn an_insert_that_waits_for_bytes_goes_on_whenever_they_are_freed() {
    shuttle::check_random(
        || {
            // Room for three chunks of 64 rows.
            let probe = tables(vec![options("probe", 10)]).0;
            let row = Rows::new(&probe).item(0.0);
            let chunk = row.chunks().next().unwrap().size_bytes();
            let (tables, _) = bounded_tables(vec![queue("q", 4), options("t", 10)], Some(3 * chunk));
            let (q, t) = (Arc::clone(tables.get("q").unwrap()), Arc::clone(tables.get("t").unwrap()));
            // Each writer has a chunk of its own.
            let item = |value: f64| Rows::new(&tables).item(value);
            insert_all(&q, vec![item(1.0)]);
            insert_all(&t, vec![item(2.0), item(3.0)]);
            let late = item(4.0);
            let producer = {
                let t = Arc::clone(&t);
                thread::spawn(move || t.insert(smallvec::smallvec![(late, Priority::Value(1.0))]))
            };
            take(&q, 1);
            // No thread looks again: the one that freed the bytes has served them.
            let mut ticket = producer.join().unwrap().unwrap();
            assert!(ticket.poll().is_some_and(|outcome| outcome.is_ok()));
        },
        SCHEDULES,
    );
}

#[test]
fn an_insert_that_waits_for_bytes_goes_on_when_a_chunk_is_packed() {
    shuttle::check_random(
        || {
            let frames = leaf(DType::UInt8, &[4000]);
            let writer = |tables: &Arc<Tables>| {
                let sink: Arc<dyn Sink> = tables.clone();
                RowWriter::new(sink, Compression::Zstd, false)
            };
            let row = |writer: &mut RowWriter| {
                let cells = [ColumnCells { itemsize: 1, bytes: &[7; 4000] }];
                writer.append(&frames, &cells, 1).unwrap().remove(0)
            };
            let probe = tables(vec![options("probe", 10)]).0;
            let chunk = row(&mut writer(&probe)).chunks().next().unwrap().size_bytes();
            let (tables, _) = bounded_tables(vec![queue("q", 4), options("t", 10)], Some(2 * chunk));
            let (q, t) = (Arc::clone(tables.get("q").unwrap()), Arc::clone(tables.get("t").unwrap()));
            let (mut first, mut second) = (writer(&tables), writer(&tables));
            // A sample could free bytes: an insert waits, and is not refused.
            insert_all(&q, vec![Rows::new(&tables).item(1.0)]);
            insert_all(&t, vec![row(&mut first)]);
            let late = row(&mut second);
            let producer = {
                let t = Arc::clone(&t);
                thread::spawn(move || t.insert(smallvec::smallvec![(late, Priority::Value(1.0))]))
            };
            // The scheduler changes threads at locks only.
            (0..4).for_each(|_| drop(q.info()));
            first.close();
            let mut ticket = producer.join().unwrap().unwrap();
            assert!(ticket.poll().is_some_and(|outcome| outcome.is_ok()));
        },
        SCHEDULES,
    );
}

#[test]
fn a_cut_of_all_tables_is_of_one_moment_while_others_write_and_wait_for_bytes() {
    shuttle::check_random(
        || {
            let (tables, _) = bounded_tables(vec![queue("a", 4), options("b", 4)], Some(1 << 20));
            let (a, b) = (Arc::clone(tables.get("a").unwrap()), Arc::clone(tables.get("b").unwrap()));
            let items = items(&mut Rows::new(&tables), 0..3);
            // Each into a and then into b.
            let writer = thread::spawn(move || {
                for item in items {
                    insert_all(&a, vec![item.clone()]);
                    insert_all(&b, vec![item]);
                }
            });
            let cutter = {
                let tables = Arc::clone(&tables);
                thread::spawn(move || {
                    for _ in 0..3 {
                        let cuts = tables.cut().unwrap();
                        let (a, b) = (cuts.tables[0].counters.inserts, cuts.tables[1].counters.inserts);
                        assert!(a == b || a == b + 1, "{a} in a, {b} in b");
                    }
                })
            };
            take(tables.get("a").unwrap(), 2);
            writer.join().unwrap();
            cutter.join().unwrap();
        },
        SCHEDULES,
    );
}
