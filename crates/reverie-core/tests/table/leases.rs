//! Draws that may come back: a lease that is dropped leaves the table as if the draw had never been made, one that is
//! acknowledged as if it had been made for good.

use super::support::{Rows, f64_of, options, queue, tables};
use reverie_core::clock::ManualClock;
use reverie_core::item::Key;
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::table::{
    Age, Change, Lessee, Neighbours, Priority, Row, SharedTable, Slot, Table, TableContents, TableInfo, TableOptions,
    Tables, Updates,
};
use std::sync::Arc;
use std::time::Duration;

pub(super) const LESSEE: Lessee = Lessee { sender: [7; 16], request: 1 };

fn leased(n: usize) -> SampleRequest {
    SampleRequest { num_samples: n, lessee: Some(LESSEE), ..Default::default() }
}

fn plain(n: usize) -> SampleRequest {
    SampleRequest { lessee: None, ..leased(n) }
}

struct Fixture {
    _tables: Arc<Tables>,
    table: Arc<SharedTable>,
    rows: Rows,
    clock: Arc<ManualClock>,
}

fn one(options: TableOptions) -> Fixture {
    let (tables, clock) = tables(vec![options]);
    let (table, rows) = (Arc::clone(tables.iter().next().unwrap()), Rows::new(&tables));
    Fixture { _tables: tables, table, rows, clock }
}

impl Fixture {
    fn insert(&mut self, values: &[f64]) {
        drop(self.table.insert(self.rows.inserts(values)).unwrap());
    }

    fn draw(&self, request: SampleRequest) -> Draws {
        self.table.sample(request).unwrap().poll().expect("it can be drawn at once").unwrap()
    }

    /// Draws all there is, one by one.
    fn drain(&self) -> Vec<f64> {
        std::iter::from_fn(|| self.table.sample(plain(1)).unwrap().poll()).map(|d| values(&d.unwrap())[0]).collect()
    }
}

pub(super) fn values(draws: &Draws) -> Vec<f64> {
    draws.items.iter().map(f64_of).collect()
}

/// The figures of a table that any client can see, without the times.
fn seen(info: &TableInfo) -> ([u64; 9], u128, Vec<u64>) {
    let TableInfo { counters, stats, size, bytes, .. } = info;
    let histograms = [&stats.age_histogram[..], &stats.times_histogram].concat();
    let (present, unique, single) = (stats.sampled_present, stats.sampled_unique, stats.single_steps);
    let left = stats.draws_of_left;
    let counts = [counters.inserts, counters.samples, counters.deletes, *size, *bytes, present, unique, single, left];
    (counts, stats.age_sum, histograms)
}

#[test]
fn draws_whose_lease_is_dropped_are_made_again_in_the_order_that_they_had() {
    let mut all = one(queue("q", 10));
    all.insert(&[1.0, 2.0, 3.0, 4.0]);
    let before = seen(&all.table.info());
    all.clock.advance(Duration::from_nanos(700));
    let draws = all.draw(leased(3));
    assert_eq!(all.table.info().stats.age_sum, 2100);
    assert_eq!((values(&draws), all.table.info().size, all.table.info().leased), (vec![1.0, 2.0, 3.0], 1, 3));
    drop(draws);
    assert_eq!((seen(&all.table.info()), all.table.info().leased), (before, 0));
    assert_eq!(all.drain(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn draws_whose_lease_is_acknowledged_are_gone_for_good() {
    let mut all = one(queue("q", 10));
    all.insert(&[1.0, 2.0, 3.0]);
    let mut draws = all.draw(leased(2));
    let key = draws.keys[0].get();
    std::mem::take(&mut draws.lease).acknowledge();
    drop(draws);
    assert_eq!((all.table.info().size, all.table.info().leased, all.table.info().counters.deletes), (1, 0, 2));
    assert!(all.table.get(&[key]).is_err());
    assert_eq!(all.drain(), [3.0]);
}

#[test]
fn draws_are_handed_over_until_their_table_is_closed_and_are_in_its_last_checkpoint_after_that() {
    let mut all = one(queue("q", 10));
    all.insert(&[1.0, 2.0]);
    let [mut first, mut second] = [all.draw(leased(1)), all.draw(leased(1))];
    assert!(std::mem::take(&mut first.lease).try_acknowledge());
    all.table.close();
    assert!(!std::mem::take(&mut second.lease).try_acknowledge(), "the next server has it");
    assert_eq!((all.table.info().leased, all.table.info().size), (0, 1));
}

#[test]
fn inserts_go_on_while_draws_are_leased_and_nothing_is_evicted_where_they_come_back() {
    let mut all = one(queue("q", 2));
    all.insert(&[1.0, 2.0]);
    let draws = all.draw(leased(1));
    let why = all.table.why().to_string();
    assert!(why.contains("1 sample not acknowledged by their clients yet"), "{why}");
    all.insert(&[3.0]);
    assert_eq!(all.table.info().size, 2);
    drop(draws);
    assert_eq!(
        (all.table.info().size, all.table.info().stats.evicted),
        (3, 0),
        "more than it may hold, and none is lost"
    );
    let mut waiting = all.table.insert(all.rows.inserts(&[4.0])).unwrap();
    assert!(waiting.poll().is_none(), "the limiter counts what came back");
    assert_eq!(all.drain(), [1.0, 2.0, 3.0, 4.0]);
    assert!(waiting.poll().is_some());
}

#[test]
fn a_request_for_more_draws_than_a_queue_may_hold_is_filled_by_inserts_that_go_on() {
    let mut all = one(queue("q", 2));
    let mut draws = all.table.sample(leased(5)).unwrap();
    let mut inserts = all.table.insert(all.rows.inserts(&[1.0, 2.0, 3.0, 4.0, 5.0])).unwrap();
    assert!(inserts.poll().is_some());
    assert_eq!(values(&draws.poll().unwrap().unwrap()), [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_table_that_evicts_does_so_at_the_next_insert_after_draws_came_back() {
    let mut all = one(TableOptions { max_times_sampled: 1, ..options("t", 2) });
    all.insert(&[1.0, 2.0]);
    let draws = all.draw(leased(2));
    all.insert(&[3.0, 4.0]);
    drop(draws);
    assert_eq!((all.table.info().size, all.table.info().stats.evicted), (4, 0));
    all.insert(&[5.0]);
    assert_eq!((all.table.info().size, all.table.info().stats.evicted), (2, 3));
    assert_eq!(all.drain(), [4.0, 5.0]);
}

#[test]
fn a_returned_draw_serves_the_request_that_waits_for_it() {
    let mut all = one(queue("q", 2));
    all.insert(&[1.0]);
    let draws = all.draw(leased(1));
    let mut next = all.table.sample(leased(1)).unwrap();
    assert!(next.poll().is_none());
    drop(draws);
    assert_eq!(values(&next.poll().unwrap().unwrap()), [1.0]);
}

#[test]
fn draws_of_a_waiting_request_come_back_if_it_is_dropped_withdrawn_or_refused() {
    let mut all = one(queue("q", 4));
    all.insert(&[1.0, 2.0]);
    drop(all.table.sample(leased(3)).unwrap());
    assert_eq!((all.table.info().size, all.table.info().leased), (2, 0), "dropped");
    drop(all.table.sample(leased(3)).unwrap().cancel().unwrap());
    assert_eq!((all.table.info().size, all.table.info().leased), (2, 0), "withdrawn, and its draws dropped");
    let waiting = all.table.sample(leased(3)).unwrap();
    all.table.close();
    assert_eq!((all.table.info().size, all.table.info().leased), (2, 0), "the table was closed");
    drop(waiting);
}

#[test]
fn a_leased_item_cannot_be_read_changed_or_deleted_and_is_found_by_no_query() {
    let mut all = one(queue("q", 4));
    all.insert(&[1.0, 2.0]);
    let draws = all.draw(leased(1));
    let key = draws.keys[0].get();
    assert!(all.table.get(&[key]).is_err());
    assert_eq!(all.table.update(&[key], &[5.0], None).unwrap().stale, 1);
    assert_eq!(all.table.delete(&[key]).unwrap().stale, 1);
    assert_eq!(all.table.query(&Default::default()).unwrap().len(), 1);
    drop(draws);
    assert_eq!(all.table.get(&[key]).unwrap().priorities, [1.0]);
    assert_eq!(all.table.query(&Default::default()).unwrap().len(), 2);
}

#[test]
fn the_largest_priority_is_that_of_the_items_that_are_present() {
    let mut all = one(queue("q", 4));
    all.insert(&[1.0]);
    let key = all.draw(leased(1)).keys[0].get();
    all.table.update(&[key], &[9.0], None).unwrap();
    assert_eq!(all.table.info().max_priority, 9.0);
    all.insert(&[2.0]);
    let draws = all.draw(leased(1));
    assert_eq!((draws.keys[0].get(), all.table.info().max_priority), (key, 1.0));
    drop(draws);
    assert_eq!(all.table.info().max_priority, 9.0);
}

#[test]
fn a_reset_ends_all_leases_and_their_end_changes_nothing() {
    let mut all = one(queue("q", 4));
    all.insert(&[1.0, 2.0]);
    let (first, mut second) = (all.draw(leased(1)), all.draw(leased(1)));
    all.table.reset().unwrap();
    all.insert(&[3.0]);
    drop(first);
    std::mem::take(&mut second.lease).acknowledge();
    let info = all.table.info();
    assert_eq!((info.size, info.leased, info.counters.inserts, info.counters.samples), (1, 0, 1, 0));
    assert_eq!(all.drain(), [3.0]);
}

#[test]
fn a_returned_item_has_its_former_place_among_the_items_of_its_stream() {
    let mut all = one(queue("q", 10));
    let stream = |value: &f64| {
        let mut item = all.rows.item(*value);
        (item.stream, item.episode) = (1, 1);
        (item, Priority::Value(1.0))
    };
    let items = [1.0, 2.0, 3.0, 4.0].iter().map(stream).collect();
    let keys = all.table.insert(items).unwrap().poll().unwrap().unwrap();
    let keys: Vec<i64> = keys.iter().map(|key| key.get()).collect();
    drop(all.draw(leased(2)));
    let neighbours = Some(Neighbours::new(3, 0.5).unwrap());
    let updates = Updates { keys: &keys[3..], priorities: &[8.0], neighbours, ..Updates::default() };
    all.table.mutate(&updates, &[]).unwrap();
    assert_eq!(all.table.get(&keys).unwrap().priorities, [1.0, 2.0, 4.0, 8.0]);
}

#[test]
fn an_item_that_may_be_drawn_twice_comes_back_for_the_draw_that_was_returned() {
    let mut all = one(TableOptions { max_times_sampled: 2, ..options("t", 10) });
    all.insert(&[1.0]);
    let (first, mut second) = (all.draw(leased(1)), all.draw(leased(1)));
    assert_eq!((first.times_sampled[0], second.times_sampled[0], all.table.info().size), (1, 2, 0));
    std::mem::take(&mut second.lease).acknowledge();
    assert_eq!(all.table.info().size, 0, "the first draw may still come back");
    drop(first);
    assert_eq!((all.table.info().size, all.table.info().leased), (1, 0));
    assert_eq!(all.draw(plain(1)).times_sampled, [2]);
    assert_eq!(all.table.info().size, 0);
}

#[test]
fn a_leased_item_that_is_deleted_or_evicted_meanwhile_does_not_come_back() {
    let mut all = one(TableOptions { max_times_sampled: 2, ..options("t", 2) });
    all.insert(&[1.0, 2.0]);
    let draws = all.draw(leased(1));
    assert_eq!(all.table.delete(&[draws.keys[0].get()]).unwrap().applied, 1);
    let other = all.draw(leased(1));
    all.insert(&[3.0, 4.0]);
    assert_eq!((all.table.info().size, all.table.info().leased), (2, 2));
    drop((draws, other));
    let info = all.table.info();
    assert_eq!((info.size, info.leased, info.counters.samples), (2, 0, 0));
    assert_eq!(all.drain(), [3.0, 3.0, 4.0, 4.0]);
}

#[test]
fn a_table_that_keeps_its_items_leases_nothing() {
    let mut all = one(options("t", 2));
    all.insert(&[1.0]);
    let draws = all.draw(leased(3));
    assert!(draws.lease.is_empty() && draws.lessee.is_none());
    drop(draws);
    assert_eq!(all.table.info().counters.samples, 3);
}

#[test]
fn a_request_that_waits_while_its_table_begins_to_delete_what_is_sampled_leases_its_draws() {
    let mut all = one(options("t", 10));
    let mut waiting = all.table.sample(leased(2)).unwrap();
    all.insert(&[1.0]);
    all.table.configure(Change { max_times_sampled: Some(1), ..Change::default() }).unwrap();
    assert_eq!((all.table.info().leased, waiting.is_done()), (0, true), "both draws were made before");
    drop(waiting.poll());
    let mut none = one(options("t", 10));
    let mut waiting = none.table.sample(leased(2)).unwrap();
    none.table.configure(Change { max_times_sampled: Some(1), ..Change::default() }).unwrap();
    none.insert(&[1.0, 2.0]);
    let draws = waiting.poll().unwrap().unwrap();
    assert_eq!((none.table.info().size, none.table.info().leased), (0, 2));
    drop(draws);
    assert_eq!((none.table.info().size, none.drain()), (2, vec![1.0, 2.0]));
}

#[test]
fn a_copy_of_draws_holds_no_lease_and_cut_draws_keep_it_in_one_place() {
    let mut all = one(queue("q", 4));
    all.insert(&[1.0, 2.0]);
    let mut draws = all.draw(leased(2));
    drop(draws.clone());
    let behind = draws.split_off(1);
    assert!(behind.lease.is_empty());
    drop(behind);
    assert_eq!(all.table.info().leased, 2);
    drop(draws);
    assert_eq!(all.drain(), [1.0, 2.0]);
}

#[test]
fn leased_items_take_none_of_the_bytes_of_a_table() {
    let mut all = one(queue("q", 4));
    all.insert(&[1.0]);
    let bytes = all.table.info().bytes;
    let draws = all.draw(leased(1));
    assert_eq!((all.table.info().bytes, bytes > 0), (0, true));
    drop(draws);
    assert_eq!(all.table.info().bytes, bytes);
}

#[test]
fn a_cut_for_a_checkpoint_has_what_is_leased_as_if_it_had_not_been_drawn() {
    let (mut table, mut rows) = bare(queue("q", 10));
    let keys: Vec<Key> = (1..=4).map(|v| table.insert(rows.item(f64::from(v)), 1.0, 0)).collect();
    let mut draws = Draws { lessee: Some(LESSEE), ..Draws::default() };
    table.draw(2, 900, &mut draws);
    let (counters, stats) = (*table.counters(), table.stats().clone());
    assert_eq!((stats.age_sum, stats.draws_of_left, stats.times_histogram[1]), (1800, 2, 2));
    let cut = table.snapshot();
    assert_eq!((cut.size, cut.counters.samples, cut.counters.deletes, cut.stats.sampled_present), (4, 0, 0, 0));
    for undone in [&cut.stats, &table.delta(true).stats.unwrap()] {
        assert_eq!((undone.age_sum, undone.draws_of_left), (0, 0));
        assert!(undone.age_histogram.iter().chain(&undone.times_histogram).all(|count| *count == 0));
    }
    assert_eq!(table.stats().times_histogram, stats.times_histogram);
    assert_eq!(cut.items.iter().map(|(_, slot, _)| slot.times_sampled()).collect::<Vec<_>>(), [0; 4]);
    // And the table goes on with its leases.
    assert_eq!((*table.counters(), table.leased(), table.len()), (counters, 2, 2));
    table.acknowledge(&LESSEE, &keys[..1]);
    table.return_draws(&LESSEE, &keys[1..2]);
    let mut rest = Draws::default();
    table.draw(4, 0, &mut rest);
    assert_eq!(values(&rest), [2.0, 3.0, 4.0]);
    drop((table.take_dropped(), draws, cut));
}

#[test]
fn a_queue_that_is_restored_with_what_was_leased_loses_nothing_where_that_is_more_than_it_may_hold() {
    let (mut table, mut rows) = bare(queue("q", 2));
    (1..=2).for_each(|value| _ = table.insert(rows.item(f64::from(value)), 1.0, 0));
    let mut draws = Draws { lessee: Some(LESSEE), ..Draws::default() };
    table.draw(1, 0, &mut draws);
    table.insert(rows.item(3.0), 1.0, 0);
    let cut = table.snapshot();
    let row = |(slot, of, age): (u32, &Slot, &Age)| Row {
        item: of.item.clone().unwrap(),
        slot,
        generation: of.generation,
        priority: of.priority(),
        version: of.version(),
        times_sampled: of.times_sampled(),
        inserted_at: 0,
        inserted: age.inserted,
        updated: age.updated(),
        copy_of: None,
    };
    let rows = cut.items.iter().map(row).collect();
    let from = TableContents {
        counters: cut.counters,
        stats: cut.stats.clone(),
        order: cut.order,
        rows,
        ..Default::default()
    };
    let mut next = Table::new(queue("q", 2), 5).unwrap();
    next.check_restoring(&from).unwrap();
    next.restore(from, 5);
    assert_eq!((next.len(), next.stats().evicted, next.is_over(), next.can_insert()), (3, 0, false, false));
    let mut all = Draws::default();
    next.draw(3, 0, &mut all);
    assert_eq!(values(&all), [1.0, 2.0, 3.0]);
    drop((table.take_dropped(), next.take_dropped(), draws, cut));
}

pub(super) fn bare(options: TableOptions) -> (Table, Rows) {
    let (tables, _) = tables(vec![options.clone()]);
    (Table::new(options, 3).unwrap(), Rows::new(&tables))
}
