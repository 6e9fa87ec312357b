//! Changes of items and limits at the edges: keys named twice, tables that are reset, rations.

use super::support::{Rows, options, queue, tables};
use reverie_core::sample::{Draws, SampleRequest};
use reverie_core::table::limiter::Limiter;
use reverie_core::table::selector::SelectorOptions;
use reverie_core::table::{Change, Keys, Neighbours, SentInsert, SharedTable, Table, TableOptions, Updates};
use std::sync::Arc;

fn keys(table: &Arc<SharedTable>, rows: &mut Rows, n: usize) -> Vec<i64> {
    let keys = table.insert(rows.inserts(&vec![1.0; n])).unwrap().poll().expect("nothing holds it back").unwrap();
    keys.iter().map(|key| key.get()).collect()
}

fn priorities(table: &SharedTable, keys: &[i64]) -> Vec<f64> {
    table.get(keys).unwrap().priorities
}

#[test]
fn the_last_priority_of_a_key_that_is_named_twice_counts_with_its_version_as_without() {
    for versions in [None, Some([0; 3])] {
        let (tables, _) = tables(vec![options("t", 10)]);
        let table = tables.get("t").unwrap();
        let keys = keys(table, &mut Rows::new(&tables), 2);
        let named = [keys[0], keys[1], keys[0]];
        let updated = table.update(&named, &[5.0, 6.0, 7.0], versions.as_ref().map(|all| &all[..])).unwrap();
        assert_eq!((updated.applied, updated.stale), (3, 0));
        let found = table.get(&keys).unwrap();
        assert_eq!((found.priorities, &*found.versions), (vec![7.0, 6.0], &[2, 1][..]));
    }
    // A version that the item does not have before the call is stale, also where the call itself brings it there.
    let (tables, _) = tables(vec![options("t", 10)]);
    let table = tables.get("t").unwrap();
    let keys = keys(table, &mut Rows::new(&tables), 1);
    let updated = table.update(&[keys[0], keys[0]], &[5.0, 6.0], Some(&[0, 1])).unwrap();
    assert_eq!((updated.applied, updated.stale), (1, 1));
    assert_eq!(priorities(table, &keys), [5.0]);
}

#[test]
fn items_of_a_table_that_was_reset_have_no_neighbours_from_before() {
    let (tables, _) = tables(vec![options("t", 10)]);
    let (table, mut rows) = (tables.get("t").unwrap(), Rows::new(&tables));
    keys(table, &mut rows, 3);
    table.reset().unwrap();
    let keys = keys(table, &mut rows, 3);
    let neighbours = Some(Neighbours::new(2, 0.5).unwrap());
    let updates = Updates { keys: &keys[..1], priorities: &[100.0], if_version: None, neighbours };
    table.mutate(&updates, &[]).unwrap();
    assert_eq!(priorities(table, &keys), [100.0, 1.0, 1.0], "nothing came in before the first");
}

#[test]
fn a_table_that_is_given_a_ration_starts_at_what_it_has_and_keeps_what_it_was_granted() {
    let (tables, _) = tables(vec![options("t", 100)]);
    let (table, mut rows) = (tables.get("t").unwrap(), Rows::new(&tables));
    keys(table, &mut rows, 3);
    let rationed = Change { limiter: Some(Limiter::rationed()), ..Change::default() };
    table.configure(rationed.clone()).unwrap();
    let tally = table.tally(None).unwrap();
    assert_eq!((tally.ration, table.can_insert(1)), (Some(3), false));
    table.tally(Some((tally.incarnation, 8))).unwrap();
    // Neither the same limiter again nor another change takes it back.
    for change in [rationed.clone(), Change { max_size: Some(50), ..Change::default() }] {
        table.configure(change).unwrap();
        assert_eq!((table.tally(None).unwrap().ration, table.can_insert(5)), (Some(8), true));
    }
    // From another limiter back to a ration begins at what is in, and not where the last ration ended.
    table.configure(Change { limiter: Some(Limiter::min_size(1).unwrap()), ..Change::default() }).unwrap();
    keys(table, &mut rows, 1);
    table.configure(rationed).unwrap();
    assert_eq!((table.tally(None).unwrap().ration, table.can_insert(1)), (Some(4), false));
}

#[test]
fn nothing_is_kept_of_an_insert_whose_sender_was_forgotten_while_it_waited() {
    let (tables, _) = tables(vec![queue("q", 2)]);
    let (q, mut rows) = (tables.get("q").unwrap(), Rows::new(&tables));
    let mut insert = |n: usize, number| {
        q.insert_sent(rows.inserts(&vec![1.0; n]), SentInsert { sender: [1; 16], number }, Keys::new()).unwrap()
    };
    let take = |n| {
        let request = SampleRequest { num_samples: n, ..SampleRequest::default() };
        drop(q.sample(request).unwrap().poll().expect("so many are there").unwrap());
    };
    let mut waiting = [insert(3, 1), insert(1, 2)];
    q.forget_sender(&[1; 16]);
    let sent = tables.cut().unwrap().tables.remove(0).sent;
    assert!(sent.is_empty(), "a checkpoint has nothing of it either: {sent:?}");
    take(2);
    assert!(waiting.iter_mut().all(|ticket| ticket.poll().expect("they go in all the same").is_ok()));
    assert!(q.senders().is_empty() && q.arrivals(&[1; 16]).is_empty());
    // One of the same name that comes later is known by what it sends itself.
    take(2);
    let _waits = [insert(2, 3), insert(1, 4)];
    q.forget_sender(&[1; 16]);
    let mut again = insert(1, 9);
    take(2);
    assert!(again.poll().is_some_and(|outcome| outcome.is_ok()));
    assert_eq!(q.arrivals(&[1; 16]).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [9]);
    q.forget_sender(&[1; 16]);
    assert!(q.senders().is_empty());
}

#[test]
fn the_number_of_inserts_that_wait_is_kept_on_every_way_out_of_the_queue() {
    let (tables, _) = tables(vec![queue("q", 3)]);
    let (q, mut rows) = (tables.get("q").unwrap(), Rows::new(&tables));
    let mut insert = |n: usize| q.insert(rows.inserts(&vec![1.0; n])).unwrap();
    let waiting = || q.info().pending_inserts;
    let take = |n| drop(q.sample(SampleRequest { num_samples: n, ..SampleRequest::default() }).unwrap().poll());
    let mut tickets: Vec<_> = [2, 4, 1, 5, 2, 3].into_iter().map(&mut insert).collect();
    assert_eq!(waiting(), 14, "one of the second has gone in");
    // From the middle, and the first, of which a part is in.
    assert_eq!(tickets.remove(3).cancel().unwrap().len(), 0);
    assert_eq!(waiting(), 9);
    assert_eq!(tickets.remove(1).cancel().unwrap().len(), 1);
    assert_eq!((waiting(), q.tally(None).unwrap().waiting_inserts), (6, 6));
    take(2);
    assert_eq!(waiting(), 4);
    // Dropped, an insert goes on.
    drop(tickets);
    take(3);
    assert_eq!((waiting(), q.info().size), (1, 3));
    q.reset().unwrap();
    assert_eq!((waiting(), q.info().size), (0, 1));
    insert(7);
    assert_eq!(waiting(), 5);
    tables.close();
    assert_eq!(waiting(), 0);
}

/// All items of a table of these priorities, drawn without replacement, so many at a time.
fn all_of(exponent: f64, priorities: &[f64], seed: u64, at_a_time: usize) -> Draws {
    let (tables, _) = tables(vec![options("chunks", 1)]);
    let mut rows = Rows::new(&tables);
    let sampler = SelectorOptions::Prioritized { exponent };
    let mut table = Table::new(TableOptions { sampler, sampler_seed: seed, ..options("t", 100) }, 99).unwrap();
    priorities.iter().for_each(|priority| _ = table.insert(rows.item(*priority), *priority, 0));
    let mut draws = Draws::default();
    while draws.len() < priorities.len() {
        assert!(table.draw_distinct(at_a_time, 0, &mut draws).unwrap() > 0);
    }
    draws
}

#[test]
fn without_replacement_no_probability_exceeds_one_and_items_that_come_last_share_theirs() {
    // The exponent, the priorities, and with which probability each of these is drawn.
    let (four, third) = (0.25_f64.powf(-1.0), 1.0 / 3.0);
    type Case<'a> = (f64, &'a [f64], &'a [f64]);
    let cases: [Case<'_>; 5] = [
        (1.0, &[0.25, 0.0], &[1.0, 1.0]),
        (1.0, &[8.0, 0.0, 0.0, 0.0], &[1.0, third, third, third]),
        (1.0, &[3.0, 1.0, 0.0, 0.0], &[0.75, 0.25, 0.5, 0.5]),
        (-1.0, &[0.25, 0.0, 0.0], &[1.0, 0.5, 0.5]),
        (-1.0, &[0.25, 0.5, 0.0], &[four / (four + 2.0), 2.0 / (four + 2.0), 1.0]),
    ];
    for (exponent, priorities, wanted) in cases {
        for (seed, at_a_time) in (0..20).flat_map(|seed| [(seed, 1), (seed, 2), (seed, 9)]) {
            let draws = all_of(exponent, priorities, seed, at_a_time);
            for (priority, probability) in draws.priorities.iter().zip(&draws.probabilities) {
                let wanted = wanted[priorities.iter().position(|of| of == priority).unwrap()];
                assert!(*probability <= 1.0 && (probability - wanted).abs() < 1e-12, "{priorities:?}: {draws:?}");
            }
        }
    }
}
