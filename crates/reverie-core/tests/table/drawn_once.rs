//! Queues whose items leave without a draw: inserts wait for no draw that cannot come.

use super::leases::LESSEE;
use super::support::{Rows, f64_of, options, queue, queue_limiter};
use super::waiting::{one, sample};
use reverie_core::Error;
use reverie_core::sample::SampleRequest;
use reverie_core::table::limiter::Limiter;
use reverie_core::table::{Change, SharedTable, TableOptions};
use std::sync::Arc;

fn draw(table: &Arc<SharedTable>, n: usize) -> Vec<f64> {
    let draws = table.sample(sample(n)).unwrap().poll().expect("nothing holds it back").unwrap();
    draws.items.iter().map(f64_of).collect()
}

/// Values from `first` on, as many as the table admits at once.
fn admitted(table: &Arc<SharedTable>, rows: &mut Rows, first: u32) -> u64 {
    let before = table.info().counters.inserts;
    let values: Vec<f64> = (first..first + 20).map(f64::from).collect();
    let ticket = table.insert(rows.inserts(&values)).unwrap();
    _ = ticket.cancel();
    table.info().counters.inserts - before
}

#[test]
fn a_queue_made_smaller_takes_as_many_items_as_it_then_holds() {
    let (_tables, table, mut rows, _) = one(queue("q", 10));
    assert_eq!(admitted(&table, &mut rows, 0), 10);
    let limiter = Some(queue_limiter(5));
    table.configure(Change { max_size: Some(5), limiter, ..Change::default() }).unwrap();
    assert_eq!(table.info().stats.evicted, 5);
    assert_eq!(draw(&table, 5), [5.0, 6.0, 7.0, 8.0, 9.0]);
    assert_eq!(admitted(&table, &mut rows, 10), 5);
}

#[test]
fn a_queue_that_evicted_for_its_bytes_takes_other_items_instead() {
    let (_tables, table, mut rows, _) = one(TableOptions { max_bytes: Some(1), ..queue("q", 4) });
    let error = table.insert(rows.inserts(&[0.0])).err().expect("an item is larger than one byte");
    let Error::ResourceExhausted { needed, .. } = error else { panic!("{error}") };
    // Room for three items, each in a chunk of its own.
    let (_tables, table, mut rows, _) = one(TableOptions { max_bytes: Some(3 * needed), ..queue("q", 4) });
    for value in 0..20 {
        let row = rows.inserts(&[f64::from(value)]);
        rows.close();
        assert!(table.insert(row).unwrap().is_done(), "value {value} waits");
    }
    assert!(table.info().stats.evicted > 0);
    draw(&table, table.info().size as usize);
    let counters = table.info().counters;
    assert_eq!((counters.size(), counters.inserts - counters.samples), (0, 0));
}

#[test]
fn a_table_that_becomes_a_queue_awaits_one_draw_of_each_item_that_it_holds() {
    let (_tables, table, mut rows, _) = one(options("t", 4));
    assert_eq!(admitted(&table, &mut rows, 0), 20);
    for num_samples in [1, 30] {
        draw(&table, num_samples);
        let limiter = Some(queue_limiter(4));
        table.configure(Change { limiter, max_times_sampled: Some(1), ..Change::default() }).unwrap();
        assert_eq!(admitted(&table, &mut rows, 0), 0);
        let held = table.info().size as usize;
        assert_eq!(draw(&table, held).len(), 4, "after {num_samples} draws");
        assert_eq!(admitted(&table, &mut rows, 0), 4);
        let limiter = Some(Limiter::min_size(1).unwrap());
        table.configure(Change { limiter, max_times_sampled: Some(0), ..Change::default() }).unwrap();
    }
}

#[test]
fn draws_acknowledged_after_their_table_became_a_queue_are_draws_of_no_later_item() {
    let (_tables, table, mut rows, _) = one(TableOptions { max_times_sampled: 2, ..options("t", 4) });
    assert_eq!(admitted(&table, &mut rows, 0), 20);
    let request = SampleRequest { lessee: Some(LESSEE), ..sample(6) };
    let mut draws = table.sample(request).unwrap().poll().unwrap().unwrap();
    let limiter = Some(queue_limiter(4));
    table.configure(Change { limiter, max_times_sampled: Some(1), ..Change::default() }).unwrap();
    std::mem::take(&mut draws.lease).acknowledge();
    let held = table.info().size as usize;
    assert_eq!((draw(&table, held).len(), admitted(&table, &mut rows, 0)), (held, 4));
    let counters = table.info().counters;
    assert_eq!(counters.samples, counters.deletes);
}

#[test]
fn draws_leased_before_a_table_becomes_a_queue_may_come_back() {
    let (_tables, table, mut rows, _) = one(TableOptions { max_times_sampled: 2, ..options("t", 4) });
    assert_eq!(admitted(&table, &mut rows, 0), 20);
    let request = SampleRequest { lessee: Some(LESSEE), ..sample(3) };
    let draws = table.sample(request).unwrap().poll().unwrap().unwrap();
    let limiter = Some(queue_limiter(4));
    table.configure(Change { limiter, max_times_sampled: Some(1), ..Change::default() }).unwrap();
    drop(draws);
    assert_eq!((draw(&table, 4).len(), admitted(&table, &mut rows, 0)), (4, 4));
}

#[test]
fn evictions_of_a_table_whose_inserts_wait_for_no_draws_are_no_draws() {
    let (_tables, table, mut rows, _) = one(TableOptions { max_times_sampled: 1, ..options("t", 4) });
    assert_eq!(admitted(&table, &mut rows, 0), 20);
    assert_eq!((table.info().stats.evicted, table.info().counters.samples), (16, 0));
}
